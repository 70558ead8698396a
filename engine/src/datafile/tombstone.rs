//! Tombstone: stands in for a data file whose rows are gone while readers may still open its name: its footer, without rows.
//!
//! # Invariants
//!
//! - Any Parquet reader takes it for a file of the same columns with no rows.
//! - Its footer names the same segment, and zero rows, which no other file of ours does: whoever takes stock of the tree
//!   knows that it was removed.
//!
//! # Not here
//!
//! When it stands in: [`crate::retention`]. Files of lines have no such form.

use std::path::Path;

use parquet::file::metadata::KeyValue;

use super::file_prefix::FilePrefix;
use super::footer::{
    FileDescription, MAGIC, file_like, footer_bytes, is_arrow_schema, is_of_groups, read_metadata, unwritable,
};
use crate::Error;

const ROWS: &str = "platform.rows";

impl FileDescription {
    /// Whether it stands in for a file that was removed.
    pub(crate) const fn is_tombstone(&self) -> bool {
        self.extent.rows == 0
    }
}

/// The bytes that stand in for a data file; `None` if it is not there.
pub(crate) fn tombstone(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Some(file) = durable_fs::open_if_there(path)? else {
        return Ok(None);
    };
    let size = file.metadata().map_err(Error::io("read", path))?.len();
    let metadata = read_metadata(&FilePrefix::new(file, size), path, false)?;
    let of = metadata.file_metadata();
    let pairs = of.key_value_metadata().cloned().unwrap_or_default();
    let without_rows = |pair: KeyValue| match pair.key == ROWS {
        true => KeyValue::new(pair.key, "0".to_owned()),
        false => pair,
    };
    if !pairs.iter().any(|pair| pair.key == ROWS) {
        return Err(Error::damaged(path, format!("its footer has no {ROWS}")));
    }
    let is_kept = |pair: &KeyValue| !is_of_groups(pair) && !is_arrow_schema(pair);
    let pairs = pairs.into_iter().filter(is_kept).map(without_rows);
    let footer = file_like(of, 0, pairs.collect()).and_then(|empty| footer_bytes(empty, Vec::new()));
    Ok(Some([&MAGIC[..], &footer.map_err(unwritable(path))?[..]].concat()))
}
