//! mixer: stub.
