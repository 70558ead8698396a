//! rack: stub.
