//! The API over a real socket.
