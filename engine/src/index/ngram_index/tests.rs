//! Texts in a sidecar against a reading of all messages: none is hidden, whatever they are and whatever becomes of the bytes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::matrix::NgramMatrix;
use super::*;
use crate::index::sidecar_format::{EncodedSection, encode};
use crate::index::tests::{open_again, open_with, owner, without_texts};
use crate::index::{BLOCK_ROWS, BlockSelection, SidecarIndex};

/// Messages of rows, group by group.
type Groups = Vec<Vec<String>>;

/// A data file that leaves room for all that there is to say.
const LARGE: u64 = 1 << 30;

/// Reproducible numbers, each as likely as any other.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn blocks_of(groups: &Groups) -> u32 {
    groups
        .iter()
        .map(|group| u32::try_from(group.len()).unwrap().div_ceil(BLOCK_ROWS))
        .sum()
}

fn built(groups: &Groups, size: u64) -> NgramIndexBuilder {
    let bytes = groups.iter().flatten().map(String::len).sum::<usize>();
    let mut builder = NgramIndexBuilder::new(blocks_of(groups), bytes as u64, size);
    for group in groups {
        for block in group.chunks(BLOCK_ROWS as usize) {
            // In two pieces, as pages end anywhere.
            let (one, other) = block.split_at(block.len() / 3);
            for rows in [one, other] {
                let rows: Vec<_> = rows.iter().map(|text| Some(text.as_bytes())).collect();
                builder.add(&rows, false).unwrap();
            }
        }
        builder.end_group();
    }
    builder
}

/// The sidecar of a data file of so many bytes.
fn sidecar(groups: &Groups, size: u64) -> Vec<u8> {
    encoded(built(groups, size), blocks_of(groups))
}

fn encoded(builder: NgramIndexBuilder, blocks: u32) -> Vec<u8> {
    let parts = builder.finish().map(|(class, form, bytes)| EncodedSection {
        kind: class.kind(),
        form,
        bytes,
        is_checked: true,
    });
    encode(&owner(), BLOCK_ROWS, blocks, &parts)
}

fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// The blocks that have a text, told without the code under test.
fn expected(groups: &Groups, text: &str) -> BTreeSet<u32> {
    let wanted = folded(text);
    let blocks = groups.iter().flat_map(|group| group.chunks(BLOCK_ROWS as usize));
    let has = |block: &[String]| block.iter().any(|message| folded(message).contains(&wanted));
    (0..)
        .zip(blocks)
        .filter(|(_, block)| has(block))
        .map(|(n, _)| n)
        .collect()
}

fn found(index: &SidecarIndex, text: &str) -> BlockSelection {
    NgramQuery::of(text).map_or(BlockSelection::All, |grams| index.text(&grams).blocks)
}

fn has(blocks: &BlockSelection, wanted: &BTreeSet<u32>) -> bool {
    match blocks {
        BlockSelection::All => true,
        BlockSelection::Some(blocks) => wanted.iter().all(|block| blocks.binary_search(block).is_ok()),
    }
}

/// A message as machines write it: words of a few, numbers of all.
fn message(random: &mut Random) -> String {
    const WORDS: [&str; 12] = [
        "accepted",
        "connection",
        "from",
        "GET",
        "/api/v2/orders",
        "Ärger",
        "ΟΔΟΣ",
        "failed",
        "block",
        "user",
        "=",
        "\0",
    ];
    let mut text = String::new();
    for _ in 0..random.below(7) {
        match random.below(4) {
            0 => text += &format!("{:012x}", random.below(1 << 48)),
            1 => text += &random.below(100_000).to_string(),
            _ => text += WORDS[usize::try_from(random.below(12)).unwrap()],
        }
        text.push(' ');
    }
    text
}

fn messages(groups: &[usize], random: &mut Random) -> Groups {
    let group = |rows: &usize| (0..*rows).map(|_| message(random)).collect();
    groups.iter().map(group).collect()
}

fn open(folder: &Path, groups: &Groups, size: u64) -> SidecarIndex {
    open_with(folder, &sidecar(groups, size), 0).unwrap()
}

/// A part of a text, of so many letters.
fn part(text: &str, from: usize, letters: usize) -> String {
    text.chars().skip(from).take(letters).collect()
}

#[test]
fn the_hash_is_what_earlier_versions_wrote() {
    assert_eq!(
        [0, 1, u32::MAX, 0x6469_736b].map(mix),
        [0, 0x514e_28b7, 0x81f1_6f39, 0x6b31_c0c2]
    );
}

#[test]
fn a_text_that_is_there_is_found_in_its_block_and_one_that_is_not_in_none() {
    let mut random = Random(11);
    let mut groups = messages(&[150_000, 2_048, 40_000], &mut random);
    groups[0][70_000] += "kernel panic";
    groups[2][3_000] += "Out Of Memory";
    let folder = tempfile::tempdir().unwrap();
    let index = open(folder.path(), &groups, LARGE);
    for text in ["kernel panic", "KERNEL PAN", "out of memory", "Memory"] {
        assert_eq!(
            found(&index, text),
            BlockSelection::Some(expected(&groups, text).into_iter().collect())
        );
    }
    for absent in ["segmentation fault", "disk quota exceeded", "zürich", "οδος"] {
        let lookup = index.text(&NgramQuery::of(absent).unwrap());
        assert!(
            lookup.blocks.is_none() && (1..100_000).contains(&lookup.bytes),
            "{absent}: {lookup:?}"
        );
    }
    for common in ["accepted", "CONNECTION", "ärger", "οδοσ"] {
        assert_eq!(found(&index, common), BlockSelection::All, "{common}");
    }
    let (mut blocks, mut read) = (0, 0);
    for _ in 0..500 {
        if let BlockSelection::Some(found) = found(&index, &format!("{:012x}", random.below(1 << 48))) {
            (blocks, read) = (blocks + 1, read + found.len());
        }
    }
    assert!(
        blocks == 500 && read < 500,
        "{read} blocks for {blocks} numbers that are not there"
    );
}

#[test]
fn a_rare_word_of_a_large_file_is_found_in_its_block_alone() {
    const BLOCKS: u32 = 700;
    let mut builder = NgramIndexBuilder::new(BLOCKS, 1 << 30, LARGE);
    for block in 0..BLOCKS {
        let rare = format!("{} of {block}", if block == 333 { "kernel panic" } else { "request" });
        let mut rows = vec![Some("connection accepted".as_bytes()); BLOCK_ROWS as usize];
        rows[7] = Some(rare.as_bytes());
        builder.add(&rows, true).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let index = open_with(folder.path(), &encoded(builder, BLOCKS), 0).unwrap();
    assert_eq!(found(&index, "kernel panic"), BlockSelection::Some(vec![333]));
    assert_eq!(found(&index, "segmentation fault"), BlockSelection::NONE);
    assert_eq!(found(&index, "accepted"), BlockSelection::All);
    assert_eq!(found(&index, "request of"), BlockSelection::All);
}

#[test]
fn a_matrix_stays_within_its_bytes_and_hides_nothing() {
    let mut random = Random(16);
    let mut matrix = NgramMatrix::new(12, 5_000, 4096, 64 << 10);
    let mut noted = Vec::new();
    for block in 0..5_000 {
        for _ in 0..3 {
            let slot = random.below(1 << 12);
            matrix.note(usize::try_from(slot).unwrap(), block);
            noted.push((slot, block));
        }
        assert!(matrix.bytes() <= 64 << 10);
    }
    let (form, section) = matrix.encode(1 << 20).unwrap();
    let read = |into: &mut [u8], at: u64| {
        into.copy_from_slice(&section[usize::try_from(at).unwrap()..][..into.len()]);
        Ok(())
    };
    for (slot, block) in noted {
        let gram = u32::try_from(slot << 20).unwrap();
        let found = find(&[gram], (form, section.len() as u64), 5_000, read).unwrap();
        assert!(has(&found.blocks, &BTreeSet::from([block])), "{slot} {block}");
    }
}

#[test]
fn the_sections_take_no_more_than_their_part_of_the_file() {
    let mut random = Random(12);
    for rows in [1_000, 30_000, 100_000] {
        let groups = messages(&[rows], &mut random);
        let noise: Groups = vec![
            (0..rows)
                .map(|_| (0..40).map(|_| letter(&mut random)).collect())
                .collect(),
        ];
        for groups in [&groups, &noise] {
            for size in [0, 50_000, 400_000, 4_000_000, LARGE] {
                let bytes: usize = built(groups, size)
                    .finish()
                    .iter()
                    .map(|(_, _, bytes)| bytes.len())
                    .sum();
                assert!(bytes as u64 <= (size / 25 + 4_096).min(3 << 20), "{bytes} of {size}");
            }
        }
    }
}

fn letter(random: &mut Random) -> char {
    char::from_u32(u32::try_from(random.below(0x1_0000)).unwrap()).unwrap_or('x')
}

#[test]
fn of_messages_that_are_noise_nothing_is_said() {
    let mut random = Random(13);
    let long = |random: &mut Random| (0..60_000).map(|_| letter(random)).collect();
    let groups: Groups = vec![(0..60).map(|_| long(&mut random)).collect()];
    let [(_, _, words), (_, _, _)] = built(&groups, LARGE).finish();
    assert_eq!(words.len(), 0);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        found(&open(folder.path(), &groups, LARGE), "nothing of it"),
        BlockSelection::All
    );
}

#[test]
fn values_at_one_address_are_read_once_and_lie_in_all_their_blocks() {
    let texts = ["the first one", "another thing", "a third, 12345"];
    let mut builder = NgramIndexBuilder::new(3, 1_000, LARGE);
    for block in 0..3 {
        let rows: Vec<_> = (0..BLOCK_ROWS as usize)
            .map(|row| Some(texts[(row % 2) * block].as_bytes()))
            .collect();
        builder.add(&rows, true).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let index = open_with(folder.path(), &encoded(builder, 3), 0).unwrap();
    assert_eq!(found(&index, "first one"), BlockSelection::All);
    assert_eq!(found(&index, "another"), BlockSelection::Some(vec![1]));
    assert_eq!(found(&index, "12345"), BlockSelection::Some(vec![2]));
}

#[test]
fn no_flipped_byte_and_no_cut_hides_a_text() {
    let mut random = Random(14);
    let mut groups = messages(&[2_100, 60], &mut random);
    groups[1][7] += "kernel panic";
    let folder = tempfile::tempdir().unwrap();
    let texts = [
        "kernel panic",
        "accepted",
        "ärger",
        "user",
        &groups[0][11].clone(),
        &groups[0][2_060].clone(),
    ];
    let expected = texts.map(|text| (text.to_owned(), expected(&groups, text)));
    let whole = sidecar(&groups, 100_000);
    let holds = |bytes: &[u8], what: &str| {
        let Ok(index) = open_with(folder.path(), bytes, 0) else {
            return;
        };
        for index in [index, open_again(folder.path(), 1 << 20).unwrap()] {
            for (text, blocks) in &expected {
                let found = found(&index, text);
                assert!(has(&found, blocks), "{what}: {text}: {found:?}");
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
fn a_sidecar_without_texts_says_every_block() {
    let groups = messages(&[3_000], &mut Random(15));
    let folder = tempfile::tempdir().unwrap();
    let bytes = sidecar(&groups, LARGE);
    assert!(found(&open_with(folder.path(), &bytes, 0).unwrap(), "nowhere").is_none());
    let old = open_with(folder.path(), &without_texts(&bytes), 0).unwrap();
    assert_eq!(found(&old, "nowhere"), BlockSelection::All);
}

#[test]
fn a_text_of_less_than_four_bytes_is_not_asked_for_and_of_a_long_one_some_grams_are() {
    assert!(NgramQuery::of("").is_none() && NgramQuery::of("abc").is_none() && NgramQuery::of("ä\0").is_none());
    let NgramQuery([words, numbers]) = NgramQuery::of("Ärg").unwrap();
    assert_eq!((words.len(), numbers.len()), (1, 0), "four bytes are a gram");
    let NgramQuery([words, numbers]) = NgramQuery::of(&"connection 10.0.0.1 refused ".repeat(100)).unwrap();
    assert!((8..=MOST_GRAMS).contains(&(words.len() + numbers.len())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_block_that_has_a_text_is_found(
        seed in any::<u64>(),
        groups in prop::collection::vec(0usize..5_000, 0..4),
        size in prop::sample::select(vec![0, 60_000, 300_000, 2_000_000, LARGE]),
        odd in prop::collection::vec("\\PC{0,60}|[a-f0-9]{0,20}|(ä|\u{0}|9|K|ſ|İ){0,30}", 1..20),
        long in 0usize..300_000,
        memory in prop::sample::select(vec![0, 1 << 20]),
    ) {
        let mut random = Random(seed);
        let mut groups = messages(&groups, &mut random);
        let places: usize = groups.iter().map(Vec::len).sum();
        let mut odd = odd;
        odd.push("long ".repeat(long / 5) + "end");
        for text in &odd {
            if let Some(row) = groups.iter_mut().flatten().nth(usize::try_from(random.below(places as u64 + 1)).unwrap()) {
                row.push_str(text);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let index = open_with(folder.path(), &sidecar(&groups, size), memory).unwrap();
        let rows: Vec<&String> = groups.iter().flatten().collect();
        for n in 0..40usize {
            let from = match n % 3 {
                0 => &odd[n % odd.len()],
                _ if rows.is_empty() => continue,
                _ => rows[usize::try_from(random.below(rows.len() as u64)).unwrap()],
            };
            let letters = from.chars().count() as u64;
            let text = part(from, usize::try_from(random.below(letters + 1)).unwrap(), usize::try_from(random.below(24)).unwrap());
            let text = if n % 2 == 0 { text } else { text.to_uppercase() };
            let found = found(&index, &text);
            prop_assert!(has(&found, &expected(&groups, &text)), "{text:?}: {found:?}");
        }
    }
}
