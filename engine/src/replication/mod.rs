//! Replication to an object store and from it: the uploader of the writer, the follower of a reader, and copies of whole stores.
//!
//! | file | what |
//! |---|---|
//! | [`uploader`], [`incremental_upload`] | prefix cuts become objects and one record |
//! | [`replica_follower`] | a Mixer that only reads |
//! | [`store_copy`] | a whole store from one back end to the other |
//!
//! # Invariants
//!
//! - Appends never wait for the object store.
//! - An object is deleted only after the record that removes it, and a grace.
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
