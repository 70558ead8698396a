//! Recovery of segments of earlier runs: finding them, reading them, cutting off torn writes.
//!
//! # Invariants
//!
//! - Only the newest segment may end in an unfinished record or whole; it is cut off. Anything else that does not read is damage,
//!   also in the last record: the whole segment is copied aside, what precedes the damage is kept.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::{SpoolSegment, apply_checkpoint};
use super::segment::{self, HEADER, ProducerRun, SpoolReadError, SpoolRecord, SpoolRecordKind};
use crate::spool::SourceCheckpoint;

/// What was found when the spool was opened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SpoolRecoveryReport {
    /// Batches that wait to be sent.
    pub(crate) batches: u64,
    /// Bytes that a crash left behind unfinished; they were never acknowledged to anyone.
    pub(crate) torn_bytes: u64,
    /// Copies of damaged segments.
    pub(crate) damaged: Vec<PathBuf>,
}

pub(super) fn segment_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:020}.seg"))
}

pub(super) fn segment_ids(dir: &Path) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".seg"));
        ids.extend(id.and_then(|id| id.parse::<u64>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Reads a segment of an earlier run; none if it was never finished being created.
pub(super) fn scan(
    id: u64,
    path: &Path,
    newest: bool,
    now: model::Timestamp,
    checkpoints: &mut BTreeMap<String, Vec<u8>>,
    found: &mut SpoolRecoveryReport,
) -> io::Result<Option<SpoolSegment>> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let meta = file.metadata()?;
    let end = meta.len();
    if !segment::has_header(&file, id)? {
        if newest && end <= HEADER {
            std::fs::remove_file(path)?;
        } else {
            found.damaged.push(copy_damaged(path)?);
            std::fs::remove_file(path)?;
        }
        return Ok(None);
    }
    let mut segment = SpoolSegment {
        id,
        path: path.to_owned(),
        file: Arc::new(file),
        len: HEADER,
        opened: meta.modified().map_or(now, Into::into),
        spans: Vec::new(),
    };
    let mut whole = SpoolTransaction::default();
    let mut at = segment.len;
    while at < end {
        match segment::read(&segment.file, id, at, end) {
            Ok(record) => {
                at = record.next;
                whole.take(&record);
                if record.head.kind != SpoolRecordKind::Part {
                    segment.len = at;
                    whole.end(&mut segment, checkpoints, found);
                }
            }
            Err(SpoolReadError::Io(error)) => return Err(error),
            Err(SpoolReadError::Damaged) => {
                if newest && segment::is_torn(&segment.file, id, at, end)? {
                    found.torn_bytes += end - segment.len;
                } else {
                    found.damaged.push(copy_damaged(path)?);
                }
                truncate_file(&segment)?;
                return Ok(Some(segment));
            }
        }
    }
    if segment.len < end {
        // What a crash left of a whole; nobody was told that it is there.
        found.torn_bytes += end - segment.len;
        truncate_file(&segment)?;
    }
    Ok(Some(segment))
}

fn truncate_file(segment: &SpoolSegment) -> io::Result<()> {
    segment.file.set_len(segment.len)?;
    segment.file.sync_all()
}

/// Records that count together.
#[derive(Default)]
struct SpoolTransaction {
    batches: Vec<(ProducerRun, u64)>,
    checkpoints: Vec<SourceCheckpoint>,
}

impl SpoolTransaction {
    fn take(&mut self, record: &SpoolRecord) {
        let head = record.head;
        let notes = match head.kind {
            SpoolRecordKind::Notes => &record.body[..],
            SpoolRecordKind::Batch | SpoolRecordKind::Part => record.body.get(..head.notes.into()).unwrap_or_default(),
        };
        self.checkpoints.extend(segment::decode_checkpoints(notes));
        if head.kind.is_batch() {
            self.batches.push((head.run, head.seq));
        }
    }

    /// It is complete.
    fn end(
        &mut self,
        segment: &mut SpoolSegment,
        checkpoints: &mut BTreeMap<String, Vec<u8>>,
        found: &mut SpoolRecoveryReport,
    ) {
        found.batches += self.batches.len() as u64;
        for (run, seq) in self.batches.drain(..) {
            segment.add(run, seq);
        }
        self.checkpoints
            .drain(..)
            .for_each(|note| apply_checkpoint(checkpoints, note));
    }
}

/// A copy of a damaged segment, for people.
pub(super) fn copy_damaged(path: &Path) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    std::fs::copy(path, &aside)?;
    Ok(aside)
}
