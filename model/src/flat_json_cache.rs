//! JSON objects found flat a short while ago on this thread: labels repeat themselves, from series to series and from scrape to
//! scrape, and are not read again.
//!
//! # Invariants
//!
//! - Only a text that is equal, byte by byte, to one that was read and found flat is taken for flat unread.
//! - A thread keeps at most [`SETS`] times [`WAYS`] texts of [`LONGEST`] bytes.
//! - Where texts do not repeat themselves, few are looked up: a batch that has met too few known ones goes on without.
//!
//! # Not here
//!
//! What a flat object is: [`crate::flat_json`].

use std::cell::Cell;

use crate::flat_json::FlatObject;
use crate::json_scan::is_flat;

/// Sets of texts that may be known at once.
const SETS: usize = 1024;
/// Texts of a set.
const WAYS: usize = 2;
/// To read a shorter text costs no more than to look it up.
const SHORTEST: usize = 16;
/// A longer text is not kept.
const LONGEST: usize = 256;
/// So many texts of a batch are looked up before it is judged whether that pays.
const TRIES: u32 = 64;
/// Then at least one in so many must have been known.
const ONE_IN: u32 = 4;

const KEYS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

thread_local! {
    static KNOWN: Cell<Vec<[Vec<u8>; WAYS]>> = const { Cell::new(Vec::new()) };
}

/// The texts that this thread knows, lent for a column of a batch.
#[derive(Debug)]
pub(crate) struct FlatJsonCache {
    sets: Vec<[Vec<u8>; WAYS]>,
    tries: u32,
    hits: u32,
}

impl FlatJsonCache {
    /// Those of the thread; none if they are lent already.
    pub(crate) fn take_thread_cache() -> Self {
        Self {
            sets: KNOWN.try_with(Cell::take).unwrap_or_default(),
            tries: 0,
            hits: 0,
        }
    }

    /// Whether a text is a flat JSON object.
    pub(crate) fn check_flat(&mut self, text: &str) -> bool {
        let pays = self.tries < TRIES || self.hits >= self.tries / ONE_IN;
        if !pays || !(SHORTEST..=LONGEST).contains(&text.len()) {
            return read(text);
        }
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, Default::default);
        }
        self.tries += 1;
        let Some([newer, older]) = self.sets.get_mut(set(text.as_bytes())) else {
            return read(text);
        };
        if newer == text.as_bytes() || older == text.as_bytes() {
            self.hits += 1;
            return true;
        }
        let good = read(text);
        if good {
            std::mem::swap(newer, older);
            newer.clear();
            newer.extend_from_slice(text.as_bytes());
        }
        good
    }
}

impl Drop for FlatJsonCache {
    fn drop(&mut self) {
        let sets = std::mem::take(&mut self.sets);
        // A thread that ends has no use for them.
        let _ = KNOWN.try_with(|known| known.set(sets));
    }
}

fn read(text: &str) -> bool {
    is_flat(text) || serde_json::from_str::<FlatObject>(text).is_ok()
}

/// The set of a text; of a short one, any.
fn set(text: &[u8]) -> usize {
    let (blocks, _) = text.as_chunks::<SHORTEST>();
    let last = text.last_chunk::<SHORTEST>();
    let mixed = blocks.iter().chain(last).fold(text.len() as u64, |mixed, block| {
        let block = u128::from_le_bytes(*block);
        let product = u128::from(block as u64 ^ mixed ^ KEYS[0]) * u128::from((block >> 64) as u64 ^ KEYS[1]);
        product as u64 ^ (product >> 64) as u64
    });
    mixed as usize % SETS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_is_not_flat_is_refused_every_time() {
        let mut known = FlatJsonCache::take_thread_cache();
        for _ in 0..3 {
            assert!(known.check_flat(r#"{"device":"dev0","mode":"user"}"#));
            assert!(known.check_flat(r#"{"device":"dev0","mode":"\u00e9"}"#));
            assert!(!known.check_flat(r#"{"device":"dev0","mode":{"a":1}}"#));
            assert!(!known.check_flat(r#"{"device":"dev0","mode":"user"]"#));
        }
    }

    #[test]
    fn what_a_thread_has_read_is_known_in_its_next_batch() {
        let text = r#"{"device":"dev0","mode":"user"}"#;
        for batch in 0..3 {
            let mut known = FlatJsonCache::take_thread_cache();
            assert!(known.check_flat(text));
            assert_eq!(known.hits, u32::from(batch > 0));
        }
    }

    #[test]
    fn texts_that_do_not_repeat_are_soon_not_looked_up() {
        let mut known = FlatJsonCache::take_thread_cache();
        for at in 0..1000 {
            assert!(known.check_flat(&format!(r#"{{"request":"{at:016x}"}}"#)));
        }
        assert_eq!((known.tries, known.hits), (TRIES, 0));
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_is_flat(
            heads in prop::collection::vec(r#"\{"[ab]{8}":"#, 1..3),
            tails in prop::collection::vec(r#"("[a-c\\"]{0,6}"|[0-9e.]{1,3}|\{\}|\[1,?\])[}\]]"#, 1..8),
            picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..400),
        ) {
            let mut known = FlatJsonCache::take_thread_cache();
            for (head, tail) in picks {
                // Beginnings and lengths are often the same.
                let text = format!("{}{}", head.get(&heads), tail.get(&tails));
                let flat = serde_json::from_str::<FlatObject>(&text).is_ok();
                prop_assert_eq!(known.check_flat(&text), flat, "{}", text);
            }
        }
    }
}
