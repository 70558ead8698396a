//! Fuzz target of the spool: a segment that a Rack finds on its disk.

use std::fs::File;
use std::os::unix::fs::FileExt;

use model::EntityId;
use model::fuzz::FuzzTarget;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::segment::{self, HEADER, ProducerRun, SpoolRecordHeader, SpoolRecordKind};

/// The id of the segment.
const SEGMENT: u64 = 1;

/// The target: a segment whose records are read as a start reads them.
pub(crate) fn fuzz_segment() -> FuzzTarget {
    let notes = segment::encode_checkpoints([("source", &b"position"[..])].into_iter());
    let head = |kind, rows, seq| SpoolRecordHeader {
        len: 0,
        crc: 0,
        kind,
        table: 1,
        notes: 0,
        rows,
        run: ProducerRun {
            entity: EntityId::for_name("press-1"),
            epoch: 7,
        },
        seq,
    };
    let mut sample = segment::file_header(SEGMENT).to_vec();
    segment::encode(&mut sample, SEGMENT, head(SpoolRecordKind::Part, 1, 1), &[], b"a batch");
    segment::encode(
        &mut sample,
        SEGMENT,
        head(SpoolRecordKind::Batch, 2, 2),
        &notes,
        b"another batch",
    );
    let bodies = [b"a batch".to_vec(), [&notes[..], b"another batch"].concat()];
    FuzzTarget::new("disk.spool", vec![sample], move |bytes| {
        let Some(file) = in_memory(bytes) else { return false };
        let end = bytes.len() as u64;
        if !segment::has_header(&file, SEGMENT).is_ok_and(|has| has) {
            return false;
        }
        let mut at = HEADER;
        while at < end {
            let Ok(record) = segment::read(&file, SEGMENT, at, end) else {
                segment::is_torn(&file, SEGMENT, at, end).ok();
                return false;
            };
            assert!(
                bodies.iter().any(|body| *body == record.body),
                "it reads a record that nobody wrote"
            );
            let notes = record.body.get(..usize::from(record.head.notes));
            segment::decode_checkpoints(notes.unwrap_or_default());
            at = record.next;
        }
        true
    })
}

/// A file of these bytes that is on no disk.
fn in_memory(bytes: &[u8]) -> Option<File> {
    let file = File::from(memfd_create("segment", MFdFlags::empty()).ok()?);
    file.write_all_at(bytes, 0).ok()?;
    Some(file)
}
