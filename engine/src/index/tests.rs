//! A sidecar alone: what is in it is found, and no damage hides it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::sidecar_format::{EncodedSection, IndexedFile, encode};
use super::zone_map::{IdRange, ZoneMap};
use super::*;

/// Ids of rows, group by group.
type Groups = Vec<Vec<Option<Vec<u8>>>>;

pub(super) fn owner() -> IndexedFile {
    IndexedFile {
        store: Uuid::from_u128(7),
        table: Table::Traces,
        segment: 12,
        version: 3,
        size: 1 << 20,
        crc: 0xfeed,
        rows: 9,
    }
}

/// The blocks that each id is in, told without the code under test.
fn expected(groups: &Groups) -> BTreeMap<Vec<u8>, BTreeSet<u32>> {
    let mut blocks = BTreeMap::<_, BTreeSet<u32>>::new();
    let mut first = 0;
    for group in groups {
        for (row, id) in group.iter().enumerate() {
            let block = first + u32::try_from(row).unwrap() / BLOCK_ROWS;
            id.iter()
                .for_each(|id| blocks.entry(id.clone()).or_default().extend([block]));
        }
        first += u32::try_from(group.len()).unwrap().div_ceil(BLOCK_ROWS);
    }
    blocks
}

fn sidecar(groups: &Groups) -> Vec<u8> {
    let (mut ids, mut range) = (id_index::IdIndexBuilder::default(), IdRange::default());
    for group in groups {
        for id in group {
            id.iter().for_each(|id| range.add(id));
            ids.add(id.as_deref());
        }
        ids.end_group();
    }
    let blocks = ids.blocks();
    let (form, bytes) = ids.finish().unwrap();
    let digest = EncodedSection {
        kind: SectionKind::Digest,
        form: 0,
        bytes: ZoneMap::new(&[(SectionKind::TraceIds, range)]).encode(),
        is_checked: false,
    };
    let ids = EncodedSection {
        kind: SectionKind::TraceIds,
        form,
        bytes,
        is_checked: true,
    };
    encode(&owner(), BLOCK_ROWS, blocks, &[digest, ids])
}

/// Opens a sidecar of which nothing is kept in memory.
fn open(folder: &Path, bytes: &[u8]) -> Result<SidecarIndex, Error> {
    open_with(folder, bytes, 0)
}

/// Opens a sidecar of which so many bytes may be kept in memory.
pub(super) fn open_with(folder: &Path, bytes: &[u8], memory: usize) -> Result<SidecarIndex, Error> {
    let path = path_of(folder, Table::Traces, (12, 3));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    open_again(folder, memory)
}

pub(super) fn open_again(folder: &Path, memory: usize) -> Result<SidecarIndex, Error> {
    SidecarIndex::open(&folder.into(), &owner(), &Arc::new(IndexQueue::new(2 * memory)))
}

fn numbered(n: u64) -> Vec<u8> {
    Uuid::from_u128(u128::from(::model::stable_hash(&n.to_le_bytes())) << 64 | u128::from(n))
        .as_bytes()
        .to_vec()
}

/// Rows of which each fifth has no id, and each id comes in several blocks.
fn many(groups: &[usize], distinct: u64) -> Groups {
    let mut n = 0;
    let row = |()| {
        n += 1;
        (n % 5 > 0).then(|| numbered(n * 7919 % distinct))
    };
    let mut row = row;
    groups
        .iter()
        .map(|rows| (0..*rows).map(|_| row(())).collect())
        .collect()
}

fn has(blocks: &BlockSelection, wanted: &BTreeSet<u32>) -> bool {
    match blocks {
        BlockSelection::All => true,
        BlockSelection::Some(blocks) => wanted.iter().all(|block| blocks.contains(block)),
    }
}

/// A sidecar as it was made before texts were known: their sections are of a kind that nobody knows.
pub(super) fn without_texts(sidecar: &[u8]) -> Vec<u8> {
    let mut bytes = sidecar.to_vec();
    let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    for section in bytes[80..length].chunks_mut(24) {
        if section[0] == SectionKind::Words as u8 || section[0] == SectionKind::Numbers as u8 {
            section[0] += 100;
        }
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..length]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn ids_of_many_blocks_are_found_with_little_read_and_others_mostly_not() {
    let groups = many(&[200_000, 1, 2048, 50_000], 40_000);
    let folder = tempfile::tempdir().unwrap();
    let index = open(folder.path(), &sidecar(&groups)).unwrap();
    let expected = expected(&groups);
    let mut wrong = 0;
    for (id, blocks) in &expected {
        let found = index.ids(IdColumn::TraceId, id);
        assert!(has(&found.blocks, blocks), "{found:?}");
        assert!((1..400).contains(&found.bytes), "{found:?}");
        wrong += usize::from(found.blocks != BlockSelection::Some(blocks.iter().copied().collect()));
    }
    let absent = (0..20_000).map(|n| numbered(n + 1_000_000));
    let hits = absent
        .filter(|id| !index.ids(IdColumn::TraceId, id).blocks.is_none())
        .count();
    assert!(
        hits < 20 && wrong < 40,
        "{hits} of 20000, {wrong} of {}",
        expected.len()
    );
    assert_eq!(
        index.ids(IdColumn::FluxId, &numbered(1)).blocks,
        BlockSelection::All,
        "not indexed"
    );
}

#[test]
fn a_small_section_is_read_once_and_a_large_one_never_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, is_small) in [(5_000, true), (60_000, false)] {
        let groups = many(&[rows], rows as u64);
        let bytes = sidecar(&groups);
        let index = open_with(folder.path(), &bytes, 1 << 20).unwrap();
        for (n, (id, blocks)) in expected(&groups).iter().enumerate() {
            let found = index.ids(IdColumn::TraceId, id);
            assert!(has(&found.blocks, blocks), "{found:?}");
            match (is_small, n) {
                (true, 0) => assert!((rows as u64..bytes.len() as u64).contains(&found.bytes), "{found:?}"),
                (true, _) => assert_eq!(found.bytes, 0),
                (false, _) => assert!((1..400).contains(&found.bytes), "{found:?}"),
            }
        }
    }
}

#[test]
fn what_is_kept_is_not_asked_of_the_disk_again() {
    let groups = many(&[3_000], 200);
    let folder = tempfile::tempdir().unwrap();
    let index = open_with(folder.path(), &sidecar(&groups), 1 << 20).unwrap();
    let expected = expected(&groups);
    let mut ids = expected.iter();
    let (first, blocks) = ids.next().unwrap();
    assert!(has(&index.ids(IdColumn::TraceId, first).blocks, blocks));
    std::fs::remove_file(index.path()).unwrap();
    for (id, blocks) in ids {
        let found = index.ids(IdColumn::TraceId, id).blocks;
        assert!(has(&found, blocks) && found != BlockSelection::All, "{found:?}");
    }
}

/// Tags of another version mean something else: here, other ids. The sections are of the same size and kind.
#[test]
fn a_sidecar_made_anew_hides_nothing_from_whoever_has_the_one_before() {
    let of = |ids: std::ops::Range<u64>| -> Groups { vec![ids.map(|n| Some(numbered(n))).collect()] };
    let (first, second) = (of(0..100), of(1_000..1_100));
    assert_eq!(sidecar(&first).len(), sidecar(&second).len());
    for room in [0, 1 << 20] {
        let folder = tempfile::tempdir().unwrap();
        let queue = Arc::new(IndexQueue::new(2 * room));
        let open = |bytes: &[u8]| {
            drop(open_with(folder.path(), bytes, 0).unwrap());
            SidecarIndex::open(&folder.path().into(), &owner(), &queue).unwrap()
        };
        let before = open(&sidecar(&first));
        let after = open(&sidecar(&second));
        for (id, blocks) in expected(&second) {
            let found = after.ids(IdColumn::TraceId, &id).blocks;
            assert!(has(&found, &blocks) && found != BlockSelection::All, "{found:?}");
        }
        for (id, blocks) in expected(&first) {
            assert!(has(&before.ids(IdColumn::TraceId, &id).blocks, &blocks), "{room}");
        }
    }
}

#[test]
fn ids_beyond_the_least_and_greatest_cost_no_read() {
    let between: Groups = vec![vec![Some(vec![5; 16]), Some(vec![9; 16]), None]];
    let folder = tempfile::tempdir().unwrap();
    let index = open(folder.path(), &sidecar(&between)).unwrap();
    for outside in [vec![4; 16], vec![10; 16], vec![]] {
        assert_eq!(
            index.ids(IdColumn::TraceId, &outside),
            IndexLookup::free(BlockSelection::NONE)
        );
    }
    let none = open(folder.path(), &sidecar(&vec![vec![None; 10]])).unwrap();
    assert_eq!(
        none.ids(IdColumn::TraceId, &[7; 16]),
        IndexLookup::free(BlockSelection::NONE)
    );
}

#[test]
fn no_flipped_byte_and_no_cut_hides_an_id() {
    let groups = many(&[5_000, 3_000], 150);
    let expected = expected(&groups);
    let folder = tempfile::tempdir().unwrap();
    let whole = sidecar(&groups);
    let holds = |bytes: &[u8], what: &str| {
        for index in [open(folder.path(), bytes), open_again(folder.path(), 1 << 20)] {
            let Ok(index) = index else {
                return;
            };
            for (id, blocks) in &expected {
                let found = index.ids(IdColumn::TraceId, id);
                assert!(has(&found.blocks, blocks), "{what}: {found:?}");
            }
        }
    };
    holds(&whole, "whole");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        holds(&bytes, &format!("a bit of byte {at}"));
        bytes[at] = !whole[at];
        holds(&bytes, &format!("byte {at}"));
    }
    for length in (0..whole.len()).step_by(13) {
        holds(&whole[..length], &format!("{length} bytes"));
    }
}

#[test]
fn a_sidecar_of_another_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = sidecar(&many(&[10], 5));
    let all: Arc<Path> = folder.path().into();
    let others = [
        IndexedFile {
            store: Uuid::from_u128(8),
            ..owner()
        },
        IndexedFile {
            table: Table::Logs,
            ..owner()
        },
        IndexedFile { segment: 13, ..owner() },
        IndexedFile { version: 4, ..owner() },
        IndexedFile { size: 1, ..owner() },
        IndexedFile { crc: 1, ..owner() },
        IndexedFile { rows: 8, ..owner() },
    ];
    for other in others {
        let path = path_of(&all, other.table, (other.segment, other.version));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let opened = SidecarIndex::open(&all, &other, &Arc::new(IndexQueue::new(0)));
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{other:?}");
    }
}

#[test]
fn blocks_meet_and_join() {
    let some = |blocks: &[u32]| BlockSelection::Some(blocks.to_vec());
    assert_eq!(some(&[1, 3, 5]).and(some(&[3, 4, 5])), some(&[3, 5]));
    assert_eq!(BlockSelection::All.and(some(&[3])), some(&[3]));
    assert_eq!(some(&[1, 3]).or(some(&[2, 3])), some(&[1, 2, 3]));
    assert_eq!(BlockSelection::All.or(BlockSelection::NONE), BlockSelection::All);
    assert!(some(&[1]).and(some(&[2])).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_block_that_has_an_id_is_found(
        groups in prop::collection::vec(prop::collection::vec(prop::option::of(0u64..60), 0..5_000), 0..4),
        length in 0usize..20,
        memory in prop::sample::select(vec![0, 1 << 20]),
        absent in 60u64..1_000,
    ) {
        let id = |n: u64| numbered(n).into_iter().rev().cycle().take(length).collect::<Vec<u8>>();
        let groups: Groups = groups.into_iter().map(|group| group.into_iter().map(|n| n.map(id)).collect()).collect();
        let folder = tempfile::tempdir().unwrap();
        let index = open_with(folder.path(), &sidecar(&groups), memory).unwrap();
        let expected = expected(&groups);
        for (id, blocks) in &expected {
            let found = index.ids(IdColumn::TraceId, id).blocks;
            prop_assert!(has(&found, blocks) && found != BlockSelection::All, "{found:?}");
        }
        // The same bytes after a way through the disk say the same.
        prop_assert_eq!(sidecar(&groups), std::fs::read(index.path()).unwrap());
        let _ = index.ids(IdColumn::TraceId, &id(absent));
    }
}
