//! Tests of data files.
