//! model: stub.
