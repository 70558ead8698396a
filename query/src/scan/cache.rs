//! Decompressed pages of data files, kept up to a bound of bytes.
//!
//! # Invariants
//!
//! - A page is known by its segment, by the form of the file, and by where it begins in it. All versions of an open file begin
//!   with the same bytes, so what was kept of one serves the later ones; a sealed file is another form, named by its version.
//! - What was used since it was looked at last gets another turn, so making room costs a constant time for each page that goes.
//! - A dictionary weighs half of its bytes: without it no page of its column can be read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use engine::Segment;
use model::ByteSize;
use parking_lot::Mutex;
use parquet::column::page::Page;
use parquet::file::page_index::offset_index::PageLocation;

/// What a kept page takes beside its bytes.
const OVERHEAD: usize = 256;

/// Where something begins in a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    segment: u64,
    /// The version of a sealed file; 0 of an open one.
    form: u32,
    at: u64,
}

impl Key {
    pub(super) fn new(segment: &Segment, at: u64) -> Self {
        Self {
            segment: segment.id,
            form: if segment.sealed { segment.version } else { 0 },
            at,
        }
    }
}

/// What is kept.
#[derive(Debug, Clone)]
enum Kept {
    Page(Page),
    /// Where the pages of a column chunk are, of a file that does not say it itself.
    Places(Arc<[PageLocation]>),
}

impl Kept {
    fn weight(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Page(page) if page.is_dictionary_page() => page.buffer().len() / 2,
                Self::Page(page) => page.buffer().len(),
                Self::Places(places) => size_of_val::<[PageLocation]>(places),
            }
    }
}

/// Which of the two things that may begin at a place is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Page,
    Places,
}

/// A cache of pages, shared by all queries.
#[derive(Debug)]
pub(super) struct PageCache {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: HashMap<(What, Key), Entry>,
    turns: VecDeque<(What, Key)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    value: Kept,
    used: bool,
}

impl PageCache {
    pub(super) fn new(most: ByteSize) -> Self {
        Self {
            most: usize::try_from(most.get()).unwrap_or(usize::MAX),
            inner: Mutex::default(),
        }
    }

    pub(super) fn page(&self, key: Key) -> Option<Page> {
        match self.get((What::Page, key))? {
            Kept::Page(page) => Some(page),
            Kept::Places(_) => None,
        }
    }

    pub(super) fn keep_page(&self, key: Key, page: &Page) {
        self.put((What::Page, key), Kept::Page(page.clone()));
    }

    pub(super) fn places(&self, key: Key) -> Option<Arc<[PageLocation]>> {
        match self.get((What::Places, key))? {
            Kept::Places(places) => Some(places),
            Kept::Page(_) => None,
        }
    }

    pub(super) fn keep_places(&self, key: Key, places: &Arc<[PageLocation]>) {
        self.put((What::Places, key), Kept::Places(Arc::clone(places)));
    }

    fn get(&self, key: (What, Key)) -> Option<Kept> {
        let mut inner = self.inner.lock();
        let entry = inner.kept.get_mut(&key)?;
        entry.used = true;
        Some(entry.value.clone())
    }

    fn put(&self, key: (What, Key), value: Kept) {
        // Half of the room for one page would drive all others out.
        if value.weight() > self.most / 2 {
            return;
        }
        let gone = self.inner.lock().put(key, value, self.most);
        drop(gone);
    }
}

impl Inner {
    /// What had to go, to be dropped without the lock.
    fn put(&mut self, key: (What, Key), value: Kept, most: usize) -> Vec<Kept> {
        let mut gone = Vec::new();
        self.bytes += value.weight();
        match self.kept.insert(key, Entry { value, used: false }) {
            // Another query read the same; the turn is still there.
            Some(other) => {
                self.bytes -= other.value.weight();
                gone.push(other.value);
            }
            None => self.turns.push_back(key),
        }
        while self.bytes > most {
            let Some(next) = self.turns.pop_front() else {
                break;
            };
            match self.kept.get_mut(&next) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.turns.push_back(next);
                }
                _ => {
                    if let Some(entry) = self.kept.remove(&next) {
                        self.bytes -= entry.value.weight();
                        gone.push(entry.value);
                    }
                }
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(at: u64) -> Key {
        Key {
            segment: 1,
            form: 0,
            at,
        }
    }

    fn page(bytes: usize) -> Page {
        Page::DataPage {
            buf: vec![0; bytes].into(),
            num_values: 1,
            encoding: parquet::basic::Encoding::PLAIN,
            def_level_encoding: parquet::basic::Encoding::RLE,
            rep_level_encoding: parquet::basic::Encoding::RLE,
            statistics: None,
        }
    }

    #[test]
    fn pages_are_kept_up_to_the_bound_and_used_ones_stay() {
        let cache = PageCache::new(ByteSize::bytes(40 << 10));
        for at in 0..3 {
            cache.keep_page(key(at), &page(12 << 10));
        }
        assert!(cache.page(key(0)).is_some());
        cache.keep_page(key(3), &page(12 << 10));
        assert!(cache.page(key(0)).is_some() && cache.page(key(3)).is_some());
        assert!(cache.page(key(1)).is_none(), "nobody used it");
        assert!(cache.inner.lock().bytes <= 40 << 10);
    }

    #[test]
    fn one_page_does_not_drive_out_all_others() {
        let cache = PageCache::new(ByteSize::bytes(40 << 10));
        cache.keep_page(key(0), &page(12 << 10));
        cache.keep_page(key(1), &page(39 << 10));
        assert!(cache.page(key(0)).is_some() && cache.page(key(1)).is_none());
    }

    #[test]
    fn the_same_page_twice_counts_once_and_places_are_apart_from_pages() {
        let cache = PageCache::new(ByteSize::bytes(40 << 10));
        cache.keep_page(key(0), &page(1 << 10));
        let before = cache.inner.lock().bytes;
        cache.keep_page(key(0), &page(1 << 10));
        assert_eq!(cache.inner.lock().bytes, before);
        assert!(cache.places(key(0)).is_none());
        let places: Arc<[PageLocation]> = Arc::new([]);
        cache.keep_places(key(0), &places);
        assert!(cache.places(key(0)).is_some() && cache.page(key(0)).is_some());
    }
}
