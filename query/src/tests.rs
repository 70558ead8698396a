//! The room's promises, tried against a real engine.
#![allow(clippy::unwrap_used, reason = "tests")]
