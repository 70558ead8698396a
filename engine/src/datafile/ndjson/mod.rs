//! Data files of lines: one JSON object per row under the columns' names, plain or in frames of zstd or snappy.
//!
//! ```text
//! open    frame 0 │ description 0 │ frame 1 │ description 1 │ …        one frame per publish, as an open Parquet file grows
//! sealed  frame │ frame │ … │ description                              the same lines in large frames
//! ```
//!
//! A JSON file has no footer. What a Parquet footer says of its file stands here in bytes that every reader skips: a
//! skippable frame of zstd, a skippable chunk of snappy, or blanks behind the last object of a plain file. So a file of lines
//! is taken up, adopted, checked and rebuilt from exactly as a Parquet file is.
//!
//! | column | value |
//! |---|---|
//! | time | RFC 3339 with microseconds, UTC |
//! | UUID | its text form |
//! | text, word | a string |
//! | JSON | the object as it is; a string where the text is no object on one line |
//! | number | a number; the strings `NaN`, `inf`, `-inf` |
//! | blob | lower-case hex in a string |
//! | missing | `null` |
//!
//! # Invariants
//!
//! - `rows → lines → rows` is the identity, for every value of every column.
//! - A file at any of its published lengths ends behind a whole frame and its description.
//! - Lines of an open file are in the order of their publishes, newest first within one; a sealed file keeps that order: no
//!   order is promised to queries.

mod frame_compressor;
mod frame_copy;
mod json_scan;
mod reader;
mod row_writer;
mod sealed_writer;
mod skippable_footer;

#[cfg(test)]
mod tests;

pub(super) use frame_copy::{FrameCopy, frames, join};
pub use reader::NdjsonReader;
pub(super) use sealed_writer::{frame, seal, write_sealed};
pub(super) use skippable_footer::{FooterPairs, description, pairs_of, raw_description};
