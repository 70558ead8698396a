//! The decoders as fuzz targets.
