//! A prefix cut: the files that have every row up to one LSN, for the object store.

use std::sync::Arc;

use crate::data_file_handle::DataFileHandle;
use crate::dedup::WatermarkDelta;
use crate::manifest::FileEntry;

/// The store as of one LSN.
#[derive(Debug)]
pub(crate) struct PrefixCut {
    /// Every row of every batch up to this LSN is in files.
    pub(crate) lsn: u64,
    /// What changed in the watermarks since the last cut.
    pub(crate) watermarks: WatermarkDelta,
    /// Files that the object store does not have as they are now, and the bytes of this moment.
    pub(crate) files: Vec<(FileEntry, Arc<DataFileHandle>)>,
    /// Segments that were removed and may still be in the object store.
    pub(crate) gone: Vec<u64>,
    /// Rows and bytes that were appended before it since the store was opened.
    pub(crate) appended: (u64, u64),
}
