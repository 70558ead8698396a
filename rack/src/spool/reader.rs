//! Reads durable entries of the spool in append order, for the bus.
//!
//! # Invariants
//!
//! - Batches that the Mixer has as durable are skipped.
//! - A sequence that is missing although nothing before it was given up (its bytes are damaged) is handed out as
//!   [`SpoolItem::Lost`], so that the publisher can say so under that sequence and the Mixer's floor is not held back.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use model::Table;
use parking_lot::Mutex;

use super::SpoolError;
use super::index::{SpoolIndex, SpoolSegment};
use super::recovery::copy_damaged;
use super::segment::{self, HEADER, ProducerRun, SpoolReadError, SpoolRecord};

/// Where reading goes on. The default is the oldest batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpoolCursor {
    segment: u64,
    offset: u64,
    seen: BTreeMap<ProducerRun, u64>,
}

/// A batch to publish.
#[derive(Debug, Clone)]
pub(crate) struct SpoolEntry {
    pub(crate) run: ProducerRun,
    pub(crate) seq: u64,
    pub(crate) table: Table,
    pub(crate) payload: Bytes,
}

/// What is to be published under the next sequence.
#[derive(Debug, Clone)]
pub(crate) enum SpoolItem {
    Batch(SpoolEntry),
    /// The batches of these sequences cannot be read any more.
    Lost {
        run: ProducerRun,
        first: u64,
        last: u64,
    },
}

/// The reading end of the spool.
#[derive(Debug, Clone)]
pub(crate) struct SpoolReader {
    index: Arc<Mutex<SpoolIndex>>,
}

impl SpoolReader {
    pub(super) const fn new(index: Arc<Mutex<SpoolIndex>>) -> Self {
        Self { index }
    }

    /// The next batches, at most about `max_bytes` of them; what is skipped does not count. Blocks on the disk.
    pub(crate) fn read(&self, cursor: &mut SpoolCursor, max_bytes: usize) -> Result<Vec<SpoolItem>, SpoolError> {
        let (mut out, mut bytes) = (Vec::new(), 0);
        while bytes < max_bytes {
            let Some((file, id, end)) = self.locate(cursor) else {
                break;
            };
            match segment::read(&file, id, cursor.offset, end) {
                Ok(record) => {
                    cursor.offset = record.next;
                    let before = out.len();
                    self.take(&record, cursor, &mut out);
                    if out.len() > before {
                        bytes += record.body.len();
                    }
                }
                Err(SpoolReadError::Io(source)) => {
                    return Err(SpoolError::Io {
                        path: self.path(id),
                        source,
                    });
                }
                Err(SpoolReadError::Damaged) => self.damaged(id, cursor)?,
            }
        }
        Ok(out)
    }

    /// The sequence up to which nothing of the run will be sent any more.
    pub(crate) fn settled(&self, run: ProducerRun) -> u64 {
        self.index.lock().settled(run)
    }

    /// Whether the Mixer has a batch as durable.
    pub(crate) fn is_durable(&self, run: ProducerRun, seq: u64) -> bool {
        self.index.lock().floor(run) >= seq
    }

    /// The first run of which the Mixer did not say that it has everything, and how far it has it.
    pub(crate) fn first_waiting(&self) -> Option<(ProducerRun, u64)> {
        self.index.lock().first_waiting()
    }

    /// The segment that the cursor is in, or the first one behind it.
    fn locate(&self, cursor: &mut SpoolCursor) -> Option<(Arc<File>, u64, u64)> {
        let index = self.index.lock();
        let from = cursor.segment;
        let mut segments = index.segments.iter().skip_while(|segment| segment.id < from);
        let mut segment = segments.next()?;
        loop {
            if segment.id != cursor.segment {
                cursor.segment = segment.id;
                cursor.offset = HEADER;
            }
            if cursor.offset < segment.len {
                return Some((Arc::clone(&segment.file), segment.id, segment.len));
            }
            segment = segments.next()?;
        }
    }

    fn take(&self, record: &SpoolRecord, cursor: &mut SpoolCursor, out: &mut Vec<SpoolItem>) {
        let head = record.head;
        let Some(table) = Table::from_number(head.table).filter(|_| head.kind.is_batch()) else {
            return;
        };
        let (floor, settled) = {
            let index = self.index.lock();
            (index.floor(head.run), index.settled(head.run))
        };
        let before = cursor.seen.get(&head.run).copied().unwrap_or(0).max(settled);
        let seen = cursor.seen.entry(head.run).or_default();
        *seen = head.seq.max(*seen);
        if head.seq <= floor {
            return;
        }
        if head.seq > before + 1 {
            out.push(SpoolItem::Lost {
                run: head.run,
                first: before + 1,
                last: head.seq - 1,
            });
        }
        out.push(SpoolItem::Batch(SpoolEntry {
            run: head.run,
            seq: head.seq,
            table,
            payload: record.body.slice(usize::from(head.notes)..),
        }));
    }

    /// Keeps a copy of a segment that cannot be read further, and goes on behind it.
    fn damaged(&self, id: u64, cursor: &mut SpoolCursor) -> Result<(), SpoolError> {
        let mut index = self.index.lock();
        if index.segments.back().is_some_and(|active| active.id == id) {
            index.leave_active = true;
            return Err(SpoolError::Damaged {
                path: index
                    .segments
                    .back()
                    .map(|active| active.path.clone())
                    .unwrap_or_default(),
            });
        }
        let Some(segment) = index.segments.iter_mut().find(|segment| segment.id == id) else {
            return Ok(());
        };
        let path = segment.path.clone();
        let aside = copy_damaged(&path).map_err(|source| SpoolError::Io { path, source })?;
        tracing::error!(kept = %aside.display(), "a spool segment is damaged; what follows the damage is lost");
        truncate_segment(segment, cursor.offset);
        Ok(())
    }

    fn path(&self, id: u64) -> std::path::PathBuf {
        let index = self.index.lock();
        let segment = index.segments.iter().find(|segment| segment.id == id);
        segment.map(|segment| segment.path.clone()).unwrap_or_default()
    }
}

/// Forgets everything of the segment from `end` on.
fn truncate_segment(segment: &mut SpoolSegment, end: u64) {
    segment.len = end;
    segment.spans.clear();
    let mut offset = HEADER;
    while let Ok(record) = segment::read(&segment.file, segment.id, offset, end) {
        if record.head.kind.is_batch() {
            segment.add(record.head.run, record.head.seq);
        }
        offset = record.next;
    }
}
