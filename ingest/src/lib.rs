//! ingest: stub.
