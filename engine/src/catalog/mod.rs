//! The catalogue: which data files are live, and what of the log is in them.

mod segment;

pub use segment::Segment;
