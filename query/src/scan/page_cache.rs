//! Page cache: decompressed pages of data files, up to a bound of bytes.
//!
//! # Invariants
//!
//! - A page is known by its segment, by the form of the file, and by where it begins in it. All versions of an open file begin
//!   with the same bytes, so what was kept of one serves the later ones; a sealed file is another form, named by its version.
//! - A dictionary weighs half of its bytes: without it no page of its column can be read.

use std::sync::Arc;

use engine::{DataFileHandle, WeightedCache};
use model::ByteSize;
use parquet::column::page::Page;
use parquet::file::page_index::offset_index::PageLocation;

/// What a kept page takes beside its bytes.
const OVERHEAD: usize = 256;

/// Where something begins in a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    segment: u64,
    /// The version of a sealed file; 0 of an open one.
    form: u32,
    at: u64,
}

impl PageKey {
    pub(super) fn new(segment: &DataFileHandle, at: u64) -> Self {
        Self {
            segment: segment.id,
            form: if segment.sealed { segment.version } else { 0 },
            at,
        }
    }
}

/// What is kept.
#[derive(Debug, Clone)]
enum PageEntry {
    Page(Page),
    /// Where the pages of a column chunk are, of a file that does not say it itself.
    Places(Arc<[PageLocation]>),
}

impl PageEntry {
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
enum PageEntryKind {
    Page,
    Places,
}

/// A cache of pages, shared by all queries.
#[derive(Debug)]
pub(super) struct PageCache {
    /// Half of the room for one page would drive all others out.
    heaviest: usize,
    kept: WeightedCache<(PageEntryKind, PageKey), PageEntry>,
}

impl PageCache {
    pub(super) fn new(most: ByteSize) -> Self {
        let most = usize::try_from(most.get()).unwrap_or(usize::MAX);
        Self {
            heaviest: most / 2,
            kept: WeightedCache::new(most),
        }
    }

    pub(super) fn page(&self, key: PageKey) -> Option<Page> {
        match self.kept.get((PageEntryKind::Page, key))? {
            PageEntry::Page(page) => Some(page),
            PageEntry::Places(_) => None,
        }
    }

    pub(super) fn keep_page(&self, key: PageKey, page: &Page) {
        self.put((PageEntryKind::Page, key), PageEntry::Page(page.clone()));
    }

    pub(super) fn places(&self, key: PageKey) -> Option<Arc<[PageLocation]>> {
        match self.kept.get((PageEntryKind::Places, key))? {
            PageEntry::Places(places) => Some(places),
            PageEntry::Page(_) => None,
        }
    }

    pub(super) fn keep_places(&self, key: PageKey, places: &Arc<[PageLocation]>) {
        self.put((PageEntryKind::Places, key), PageEntry::Places(Arc::clone(places)));
    }

    fn put(&self, key: (PageEntryKind, PageKey), value: PageEntry) {
        let weight = value.weight();
        if weight <= self.heaviest {
            self.kept.put(key, value, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(at: u64) -> PageKey {
        PageKey {
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
        cache.keep_page(key(1), &page(12 << 10));
        for _ in 0..8 {
            cache.keep_page(key(0), &page(12 << 10));
        }
        assert!(cache.page(key(1)).is_some(), "there is room for both");
        assert!(cache.places(key(0)).is_none());
        let places: Arc<[PageLocation]> = Arc::new([]);
        cache.keep_places(key(0), &places);
        assert!(cache.places(key(0)).is_some() && cache.page(key(0)).is_some());
    }
}
