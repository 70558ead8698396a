//! engine: stub.
