//! Replication by prefix cuts: the uploader of the writer, the follower of a reader, and copies of whole stores.
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
//! | [`uploader`], [`incremental_upload`] | prefix cuts become objects and one record |
//! | [`replica_follower`] | a Mixer that only reads |
//! | [`store_copy`] | a whole store from one back end to the other |
//!
//! # Invariants
//!
//! - Appends never wait for the object store. Who wants to know when rows are there asks for the LSN that it has.
//! - A recorded object is deleted only after the record that removes it, and a grace; not within a grace of a start.
//!
//! # Not here
//!
//! The catalogue in the object store, calls and retries: [`crate::object_storage`].

mod incremental_upload;
mod replica_follower;
mod store_copy;
mod uploader;

pub(crate) use replica_follower::ReplicaFollower;
pub use store_copy::{CopyReport, copy_from_remote, copy_to_remote};
pub(crate) use uploader::CutUploader;
