//! Fuzz entry of sidecars: any bytes.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Weak};

use super::section_cache::SectionCache;
use super::sidecar_format::SidecarHeader;
use super::{BlockSelection, IdColumn, NgramQuery, RollupDimension, SidecarIndex};
use crate::datafile::FilePrefix;

/// Opens it, looks ids and texts up in it, and counts; whether it opens.
pub(crate) fn fuzz_sidecar(file: File, size: u64) -> bool {
    let file = Arc::new(file);
    let bytes = FilePrefix::shared(Arc::clone(&file), size);
    let Ok(head) = SidecarHeader::read(|at, length| bytes.read(at, length), size) else {
        return false;
    };
    // Nothing is kept of it but the handle: there is no file by its name.
    let memory = Arc::new(SectionCache::new(0));
    let index = SidecarIndex::of(&head, size, &Path::new("").into(), &memory, &Weak::new());
    memory.files.put(index.opening, file, 1);
    let holds = |blocks: BlockSelection| {
        if let BlockSelection::Some(blocks) = blocks {
            assert!(blocks.is_sorted() && blocks.iter().all(|block| *block < head.blocks));
        }
    };
    for column in [IdColumn::FluxId, IdColumn::TraceId] {
        for id in [
            &[0; 16][..],
            &[0x7f; 16],
            &[0xff; 16],
            b"0123456789abcdef0123456789abcdef",
        ] {
            holds(index.ids(column, id).blocks);
        }
    }
    for text in [
        "matin row 12",
        "error",
        "code 5021",
        "\u{e4}rger",
        "connection reset by peer 10.0.0.1",
    ] {
        if let Some(grams) = NgramQuery::of(text) {
            holds(index.text(&grams).blocks);
        }
    }
    for (counts, _) in RollupDimension::ALL.into_iter().filter_map(|by| index.counts(by)) {
        let cells = counts.groups().flat_map(|group| group.minutes());
        assert_eq!(cells.map(|(_, rows)| rows).sum::<u64>(), head.owner.rows);
    }
    true
}
