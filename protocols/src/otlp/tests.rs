//! Requests into rows.
