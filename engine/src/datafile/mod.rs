//! Data files: an *open* one per (table, partition) that grows in place, and *sealed* ones, of which no version changes. Most are
//! Parquet; files of ndjson ([`ndjson`]) grow and end in the same way.
//!
//! ```text
//! open    PAR1 │ group 0 │ footer 0 │ group 1 │ footer 1 │ …     a publish adds row groups, old footers stay
//! sealed  PAR1 │ large groups, blooms │ page index │ footer
//! ```
//!
//! The whole earlier open file, its footer included, is a prefix of the later one. A reader that looked up an earlier
//! length finds a footer at its end and reads exactly the rows of that moment.
//!
//! The bytes of a publish are written to a hidden second inode, the *shadow file*, which is synced and then exchanged with the
//! name in the tree: both then differ by one publish. The displaced inode becomes the next shadow file and needs only that
//! difference, unless somebody still has it: then a fresh one is copied whole. See [`OpenDataFile`].
//!
//! A seal gives the same name to a sorted file, re-encoded or, where the groups were large from the start, put together
//! from them ([`sorted_runs`]), as long as its rows need: most often much shorter, as it has one footer. A reader that looked the
//! open file's length up just before gets an error, once; one that has the file open reads on.
//!
//! # Invariants
//!
//! - A name in the tree always means a complete file whose bytes and name are durable before anybody counts on them.
//! - No inode that somebody else has open, mapped or linked is ever written to.
//! - A publish that failed up to the exchange changed nothing and may be tried again. One that failed after it needs a
//!   restart.
//! - Rows of one group are sorted: metrics by series, others by `ts` descending ([`sort_order`]).
//! - A file's CRC-32C is known without reading it again, and bytes copied from it are checked against it.
//!
//! # Not here
//!
//! Which rows go where, when to publish and to seal, what is recorded: the engine's flusher and catalogue.

mod column_encoder;
mod delta_encoding;
mod dictionary_choice;
mod file_format;
mod file_prefix;
mod file_recovery;
mod footer;
mod group_writer;
mod incremental_file;
mod interleave;
mod ndjson;
mod open_file;
mod promoted_columns;
mod row_group;
mod row_group_merge;
mod row_width;
mod schema;
mod sealed_file;
mod shadow_file;
mod sort_order;
mod sorted_runs;
mod tombstone;
mod whole_file;

#[cfg(test)]
mod tests;

pub(crate) use file_format::FileFormat;
pub(crate) use file_prefix::{FilePrefix, compare_crc, file_crc, file_crc_while};
pub(crate) use file_recovery::{RecordedVersion, RecoveredFile, resume};
pub(crate) use footer::{
    FileDescription as Described, FileIdentity, FileVersion, FooterFacts, decode_footer, footer_crc, footer_length,
    inspect, read_metadata, unreadable,
};
pub(crate) use incremental_file::{join_pieces, write_piece};
pub use ndjson::NdjsonReader;
pub(crate) use open_file::OpenDataFile;
pub(crate) use promoted_columns::PromotedColumns;
pub(crate) use schema::WriteOptions;
pub(crate) use sealed_file::{damage_of, seal, write_sealed};
pub use sorted_runs::SortedRun;
pub(crate) use tombstone::tombstone;
pub(crate) use whole_file::read_whole;
