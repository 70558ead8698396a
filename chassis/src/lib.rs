//! chassis: stub.
