//! Reads the Parquet footer of a data file from its object: the last bytes, once more where they are too few.
//!
//! # Invariants
//!
//! - What is returned is the footer that was written, by its CRC-32C.
//! - The file is neither fetched into the read cache nor held there.

use parquet::file::metadata::ParquetMetaData;

use super::state::RemoteFile;
use super::takeover::RemoteLink;
use crate::Error;
use crate::datafile::{decode_footer, footer_length};
use crate::error::damaged_object;

/// So many of the last bytes are read first.
const TAIL: u64 = 64 << 10;

/// The footer of a Parquet file as its object has it. Blocks.
///
/// # Errors
/// If the object is gone or damaged, or the store refuses.
pub(crate) fn read_footer(link: &RemoteLink, file: &RemoteFile) -> Result<ParquetMetaData, Error> {
    let (size, path) = (file.entry.size, link.names.object(&file.key));
    let last = |length: u64| {
        let (path, range) = (path.clone(), size.saturating_sub(length)..size);
        link.io.wait(|calls| async move { calls.get_range(&path, range).await })
    };
    let damaged = |reason: &str| damaged_object(&link.settings.url, &file.key, reason);
    let mut tail = last(TAIL)?;
    let length = tail.last_chunk::<8>().and_then(|end| footer_length(*end, size));
    let length = length.ok_or_else(|| damaged("no Parquet footer at its end"))?;
    if length > tail.len() as u64 {
        tail = last(length)?;
    }
    let from = usize::try_from(length)
        .ok()
        .and_then(|length| tail.len().checked_sub(length));
    let footer = from.and_then(|from| tail.get(from..));
    let footer = footer.filter(|footer| crc32c::crc32c(footer) == file.entry.footer_crc);
    let footer = footer.ok_or_else(|| damaged("its footer is not the one that was written"))?;
    decode_footer(footer).map_err(|error| damaged(&error.to_string()))
}
