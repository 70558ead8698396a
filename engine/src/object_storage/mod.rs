//! Object-store replication by prefix cuts: every so often the object store gets all rows up to one log position.
//!
//! ```text
//!  flusher: a cut at LSN L ─> uploader: sealed files as they are, pieces of open ones ─> one record: "all up to L, marks as of L"
//!                                                └─> a new machine, read-only Mixers
//!  the tree of data files = read cache: uploaded files go from it, least recently used first, and come back when read
//! ```
//!
//! A piece is made of the row groups that an open file got since the last cut, copied as they are; it lies outside the tree
//! that outside readers list. When the file is sealed, the record that names it removes its pieces.
//!
//! | file | what |
//! |---|---|
//! | [`retry`], [`crate::RemoteErrorKind`] | calls, retries, what a refusal means |
//! | [`mod@object_format`], [`state`], [`commit_log`] | the catalogue in the object store, and who may write it |
//! | [`takeover`] | opening: a new bucket, a new machine, the same folder again |
//! | [`object_upload`], [`orphan_sweep`] | one object on its way there, and what was left on it |
//! | [`open_file_restore`] | open files from their pieces, on a new machine |
//! | [`read_cache`] | the way back |
//! | [`remote_check`] | what a check asks |
//!
//! # Invariants
//!
//! - Appends never wait for the object store. Who wants to know when rows are there asks for the LSN that it has.
//! - A record covers a prefix of the log, so a take-over has files, marks and LSN in one step, and stores what comes again once.
//! - A record names only objects that are whole; an object is deleted only after the record that removes it, and a grace.
//! - A local file goes only when its object is recorded. A file that comes back is checked before it has its name.
//! - One writer: a second one pushes the first out, which stops with the other's name.
//!
//! # Not here
//!
//! Making an S3 client: that is HTTP, and the Mixer's. Anything that implements `object_store`'s traits serves.

pub(crate) mod commit_log;
pub(crate) mod object_format;
pub(crate) mod object_upload;
pub(crate) mod open_file_restore;
pub(crate) mod orphan_sweep;
pub(crate) mod read_cache;
pub(crate) mod remote_check;
mod retry;
pub(crate) mod state;
pub(crate) mod takeover;

pub(crate) use takeover::RemoteLink;
