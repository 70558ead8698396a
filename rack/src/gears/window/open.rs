//! The windows that are open, by begin and key, and their form in the outbox.
//!
//! ```text
//! window of a key ─▶ page = hash(key) mod 256 ─▶ note `window <gear> <page>` = CBOR { watermark, windows }
//! ```
//!
//! # Invariants
//!
//! - A window whose end the watermark has reached is closed and never opened again; the watermark only grows.
//! - What changes marks its page; only marked pages are written. The watermark is in each page: that of the one written last holds.
//! - A page is at most [`MAX_PAGE`]: a note has room for 64 KiB. What would outgrow it is refused.
//! - A stored window says what it is: it can be closed where the configuration has changed.

use std::collections::{BTreeMap, BTreeSet};

use model::{Timestamp, stable_hash};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::aggregate::{Accumulator, Aggregate};

/// The most bytes of a page.
const MAX_PAGE: usize = 60 << 10;
/// Bytes of a window beside its key and its aggregates, at most.
const WINDOW_OVERHEAD: usize = 96;

/// Where a message belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) start: Timestamp,
    pub(super) key: String,
}

/// A window of a key so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenWindow {
    pub(super) end: Timestamp,
    /// The most gears that one of its messages has left.
    pub(super) hops: u32,
    pub(super) aggregates: Vec<(String, Accumulator)>,
}

impl OpenWindow {
    pub(super) fn new(end: Timestamp, aggregates: &[Aggregate]) -> Self {
        let of = |aggregate: &Aggregate| (aggregate.name.clone(), Accumulator::new(aggregate.operation));
        Self {
            end,
            hops: 0,
            aggregates: aggregates.iter().map(of).collect(),
        }
    }

    /// Adds a message's values, one for each aggregate.
    pub(super) fn add(&mut self, hops: u32, values: Vec<Value>) {
        self.hops = self.hops.max(hops);
        for ((_, accumulator), value) in self.aggregates.iter_mut().zip(values) {
            accumulator.add(value);
        }
    }

    /// Whether it has the same aggregates.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let of = |window: &Self| -> Vec<_> {
            let aggregates = window.aggregates.iter();
            aggregates
                .map(|(name, made)| (name.clone(), made.operation()))
                .collect()
        };
        of(self) == of(other)
    }

    /// The most bytes that it may have in a page.
    fn most_bytes(&self, key: &str) -> usize {
        let of = |(name, accumulator): &(String, Accumulator)| name.len() + accumulator.operation().most_bytes();
        WINDOW_OVERHEAD + key.len() + self.aggregates.iter().map(of).sum::<usize>()
    }
}

/// Why there is no place for another window.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageFull;

/// See the module.
#[derive(Debug)]
pub(super) struct OpenWindows {
    watermark: Timestamp,
    windows: BTreeMap<Slot, OpenWindow>,
    /// The most bytes that each page may have.
    sizes: BTreeMap<u8, usize>,
    marked: BTreeSet<u8>,
}

impl Default for OpenWindows {
    fn default() -> Self {
        Self {
            watermark: Timestamp::MIN,
            windows: BTreeMap::new(),
            sizes: BTreeMap::new(),
            marked: BTreeSet::new(),
        }
    }
}

impl OpenWindows {
    pub(super) fn len(&self) -> usize {
        self.windows.len()
    }

    pub(super) const fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// The end of the first window to close.
    pub(super) fn first_end(&self) -> Option<Timestamp> {
        self.windows.values().map(|window| window.end).min()
    }

    /// The end of the last one.
    pub(super) fn last_end(&self) -> Option<Timestamp> {
        self.windows.values().map(|window| window.end).max()
    }

    pub(super) fn has(&self, slot: &Slot) -> bool {
        self.windows.contains_key(slot)
    }

    /// The window of a slot, which is marked as changed.
    pub(super) fn window(&mut self, slot: &Slot) -> Option<&mut OpenWindow> {
        let window = self.windows.get_mut(slot)?;
        self.marked.insert(page_of(&slot.key));
        Some(window)
    }

    /// Opens a window.
    pub(super) fn open(&mut self, slot: Slot, window: OpenWindow) -> Result<(), PageFull> {
        let (page, bytes) = (page_of(&slot.key), window.most_bytes(&slot.key));
        let size = self.sizes.entry(page).or_default();
        if *size + bytes > MAX_PAGE {
            return Err(PageFull);
        }
        *size += bytes;
        self.marked.insert(page);
        self.windows.insert(slot, window);
        Ok(())
    }

    /// Raises the watermark, and takes out what it closes.
    pub(super) fn close(&mut self, watermark: Timestamp) -> Vec<(Slot, OpenWindow)> {
        self.watermark = self.watermark.max(watermark);
        let watermark = self.watermark;
        self.take(|_, window| window.end <= watermark)
    }

    /// Takes out windows.
    pub(super) fn take(&mut self, is_wanted: impl Fn(&Slot, &OpenWindow) -> bool) -> Vec<(Slot, OpenWindow)> {
        let taken: Vec<_> = self
            .windows
            .extract_if(.., |slot, window| is_wanted(slot, window))
            .collect();
        for (slot, window) in &taken {
            let page = page_of(&slot.key);
            self.marked.insert(page);
            let size = self.sizes.entry(page).or_default();
            *size = size.saturating_sub(window.most_bytes(&slot.key));
        }
        taken
    }

    /// Whether a page has changed since they were [written](Self::write).
    pub(super) fn is_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// The pages that have changed, to be kept.
    pub(super) fn write(&mut self) -> Result<Vec<(u8, Vec<u8>)>, String> {
        let marked = std::mem::take(&mut self.marked);
        let mut pages: BTreeMap<u8, Page> = marked.iter().map(|page| (*page, Page::new(self.watermark))).collect();
        for (slot, window) in &self.windows {
            if let Some(page) = pages.get_mut(&page_of(&slot.key)) {
                page.windows.push(StoredWindow::new(slot, window));
            }
        }
        pages
            .into_iter()
            .map(|(number, page)| Ok((number, page.to_cbor()?)))
            .collect()
    }

    /// Takes in a page that was kept.
    pub(super) fn read(&mut self, page: &[u8]) -> Result<(), String> {
        let page: Page = ciborium::from_reader(page).map_err(|error| error.to_string())?;
        self.watermark = self.watermark.max(Timestamp::from_micros(page.watermark));
        for stored in page.windows {
            let (slot, window) = stored.into_window();
            *self.sizes.entry(page_of(&slot.key)).or_default() += window.most_bytes(&slot.key);
            self.windows.insert(slot, window);
        }
        Ok(())
    }
}

fn page_of(key: &str) -> u8 {
    let [page, ..] = stable_hash(key.as_bytes()).to_le_bytes();
    page
}

/// The windows of some keys, as they are kept.
#[derive(Serialize, Deserialize)]
struct Page {
    /// In µs, as all times here.
    watermark: i64,
    windows: Vec<StoredWindow>,
}

#[derive(Serialize, Deserialize)]
struct StoredWindow {
    start: i64,
    end: i64,
    key: String,
    hops: u32,
    aggregates: Vec<(String, Accumulator)>,
}

impl Page {
    const fn new(watermark: Timestamp) -> Self {
        Self {
            watermark: watermark.micros(),
            windows: Vec::new(),
        }
    }

    fn to_cbor(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        ciborium::into_writer(self, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}

impl StoredWindow {
    fn new(slot: &Slot, window: &OpenWindow) -> Self {
        Self {
            start: slot.start.micros(),
            end: window.end.micros(),
            key: slot.key.clone(),
            hops: window.hops,
            aggregates: window.aggregates.clone(),
        }
    }

    fn into_window(self) -> (Slot, OpenWindow) {
        let slot = Slot {
            start: Timestamp::from_micros(self.start),
            key: self.key,
        };
        let window = OpenWindow {
            end: Timestamp::from_micros(self.end),
            hops: self.hops,
            aggregates: self.aggregates,
        };
        (slot, window)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::super::aggregate::Operation;
    use super::*;

    fn slot(start: i64, key: &str) -> Slot {
        Slot {
            start: Timestamp::from_micros(start),
            key: key.into(),
        }
    }

    fn window(end: i64, operations: &[Operation]) -> OpenWindow {
        let of = |operation: &Operation| Aggregate {
            name: format!("{operation:?}"),
            operation: *operation,
            of: None,
        };
        let aggregates: Vec<_> = operations.iter().map(of).collect();
        OpenWindow::new(Timestamp::from_micros(end), &aggregates)
    }

    #[test]
    fn what_was_written_comes_back_and_only_what_has_changed_is_written() {
        let mut open = OpenWindows::default();
        for number in 0..100 {
            let mut window = window(20, &[Operation::Mean, Operation::Last]);
            window.add(3, vec![json!(number), json!({"n": number})]);
            open.open(slot(10, &number.to_string()), window).unwrap();
        }
        let mut pages: BTreeMap<u8, Vec<u8>> = open.write().unwrap().into_iter().collect();
        assert!(open.write().unwrap().is_empty());
        open.window(&slot(10, "7"))
            .unwrap()
            .add(4, vec![json!(0.5), json!(null)]);
        let changed = open.write().unwrap();
        assert_eq!(changed.len(), 1);
        pages.extend(changed);
        assert!(open.close(Timestamp::from_micros(19)).is_empty());
        let mut again = OpenWindows::default();
        pages.values().for_each(|page| again.read(page).unwrap());
        assert_eq!((&again.windows, &again.sizes), (&open.windows, &open.sizes));
        assert_eq!(open.close(Timestamp::from_micros(20)).len(), 100);
        assert!(open.sizes.values().all(|size| *size == 0));
        pages.extend(open.write().unwrap());
        let mut closed = OpenWindows::default();
        pages.values().for_each(|page| closed.read(page).unwrap());
        assert_eq!((closed.len(), closed.watermark()), (0, Timestamp::from_micros(20)));
        assert!(closed.read(b"no page").is_err());
    }

    #[test]
    fn no_page_outgrows_a_note_whatever_the_windows_keep() {
        let mut open = OpenWindows::default();
        // All of one key, so of one page.
        let most = (0..).find(|number| {
            let mut window = window(i64::MAX, &[Operation::First, Operation::Sum]);
            window.add(u32::MAX, vec![json!("x".repeat(254)), json!(f64::MAX)]);
            open.open(slot(*number, "key"), window) == Err(PageFull)
        });
        assert!(most.is_some_and(|most| most > 50), "{most:?}");
        let (_, page) = open.write().unwrap().remove(0);
        assert!(page.len() <= MAX_PAGE, "{}", page.len());
        open.close(Timestamp::MAX);
        assert_eq!(open.open(slot(1, "key"), window(2, &[Operation::Count])), Ok(()));
    }
}
