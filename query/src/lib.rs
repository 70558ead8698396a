//! query: stub.
