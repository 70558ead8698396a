//! Inspects a log that is not open: where it begins, and where its batches came from. Nothing is changed.
//!
//! # Not here
//!
//! What is damaged in it: the next start judges that ([`super::recovery`]).

use std::fs;
use std::path::Path;

use bytes::Bytes;
use uuid::Uuid;

use super::frame::SegmentScan;
use super::segment::{BadHeader, FORMAT, HEADER_BLOCK, SegmentHeader, SegmentIdentity, WalFileRole, parse_name};
use crate::Error;

/// Whether there is a log: any segment that holds frames.
pub(crate) fn is_there(dir: &Path) -> Result<bool, Error> {
    Ok(!segments(dir)?.is_empty())
}

/// The numbers and names of the segments that count; none where there is no folder.
fn segments(dir: &Path) -> Result<Vec<(u64, String)>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", dir)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(Error::io("list", dir))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if let Some((WalFileRole::Log, number)) = parse_name(&name) {
            found.push((number, name));
        }
    }
    found.sort();
    Ok(found)
}

/// Hands the LSN and the origin of each frame to `each`. The lowest LSN that the log can hold; `None` where there is no log
/// of this store.
pub(crate) fn inspect_log(dir: &Path, store: Uuid, mut each: impl FnMut(u64, &[u8])) -> Result<Option<u64>, Error> {
    let mut begins: Option<u64> = None;
    for (number, name) in segments(dir)? {
        let path = dir.join(name);
        let bytes = Bytes::from(fs::read(&path).map_err(Error::io("read", &path))?);
        let (number, first) = match SegmentHeader::decode(&bytes) {
            Ok(header) if header.store == store => (header.number, Some(header.first)),
            Ok(_) => continue,
            Err(BadHeader::Newer(found)) => return Err(Error::newer(&path, found, FORMAT)),
            Err(BadHeader::Damaged) => (number, None),
        };
        let scan = SegmentScan::run(
            &SegmentIdentity::new(store, number),
            &bytes,
            HEADER_BLOCK.min(bytes.len()),
        );
        scan.found()
            .for_each(|found| each(found.lsn, &found.frame(&bytes).origin));
        let lowest = scan.found().map(|found| found.lsn).chain(first).min();
        begins = [begins, lowest].into_iter().flatten().min();
    }
    Ok(begins)
}
