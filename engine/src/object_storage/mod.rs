//! The object store: its catalogue, its calls and retries, and the tree of data files as its read cache.
//!
//! | file | what |
//! |---|---|
//! | [`retry`], [`crate::RemoteErrorKind`] | calls, retries, what a refusal means |
//! | [`mod@object_format`], [`state`], [`commit_log`] | the catalogue in the object store, and who may write it |
//! | [`takeover`] | opening: a new bucket, a new machine, the same folder again |
//! | [`object_upload`], [`orphan_sweep`] | one object on its way there, and what was left on it |
//! | [`open_file_restore`] | open files from their pieces, on a new machine |
//! | [`read_cache`], [`remote_footer`] | the way back |
//! | [`remote_check`] | what a check asks |
//!
//! # Invariants
//!
//! - A record covers a prefix of the log, so a take-over has files, marks and LSN in one step, and stores what comes again once.
//! - A record names only objects that are whole.
//! - A local file goes only when its object is recorded. A file that comes back is checked before it has its name.
//! - One writer: a second one pushes the first out, which stops with the other's name.
//!
//! # Not here
//!
//! What is uploaded and when: [`crate::replication`]. Making an S3 client: that is HTTP, and the Mixer's. Anything that implements `object_store`'s traits serves.

pub(crate) mod commit_log;
pub(crate) mod object_format;
pub(crate) mod object_upload;
pub(crate) mod open_file_restore;
pub(crate) mod orphan_sweep;
pub(crate) mod read_cache;
pub(crate) mod remote_check;
pub(crate) mod remote_footer;
mod retry;
pub(crate) mod state;
pub(crate) mod takeover;

pub(crate) use retry::CreateOutcome;
pub(crate) use takeover::RemoteLink;
