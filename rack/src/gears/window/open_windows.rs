//! The windows that are open, by begin and key, and their form in the outbox.
//!
//! ```text
//! window of a key ─▶ page = hash(key) mod 64 ─▶ note `window <gear> <page>` = CBOR { configuration, watermark, windows }
//! ```
//!
//! # Invariants
//!
//! - A window whose end the watermark has reached is closed and never opened again; the watermark only grows, unless a clock that was
//!   ahead has raised it ([`OpenWindows::lower`]).
//! - All windows here have the same length, so they end in the order of their slots.
//! - What changes marks its page; only marked pages are written. The watermark is in each page: the latest one holds.
//! - A gear's state has [`PAGES`] pages of at most [`MAX_PAGE`] bytes, 1 MiB in all. What would outgrow its page is refused.
//! - A page says by a hash what it was configured as; what was configured otherwise is given back when it is read.

use std::collections::{BTreeMap, BTreeSet};

use gear_spec::window::WindowAggregate;
use model::{Timestamp, stable_hash};
use serde_json::Value;

use super::aggregate::{WindowAccumulator, most_bytes};
use super::state_page::{StoredWindow, WindowPage};

/// How many pages a gear has.
pub(super) const PAGES: u8 = 64;
/// The most bytes of a page.
const MAX_PAGE: usize = 16 << 10;
/// Bytes of a page beside its windows, at most.
const PAGE_OVERHEAD: usize = 64;
/// Bytes of a window beside its key and its aggregates, at most.
const WINDOW_OVERHEAD: usize = 96;

/// Where a message belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WindowKey {
    pub(super) start: Timestamp,
    pub(super) key: String,
}

/// A window of a key so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenWindow {
    pub(super) end: Timestamp,
    /// The most gears that one of its messages has left.
    pub(super) hops: u32,
    pub(super) aggregates: Vec<(String, WindowAccumulator)>,
}

impl OpenWindow {
    pub(super) fn new(end: Timestamp, aggregates: &[WindowAggregate]) -> Self {
        let of = |aggregate: &WindowAggregate| (aggregate.name.clone(), WindowAccumulator::new(aggregate.operation));
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

    /// The most bytes that it may have in a page.
    fn most_bytes(&self, key: &str) -> usize {
        let of = |(name, accumulator): &(String, WindowAccumulator)| name.len() + most_bytes(accumulator.operation());
        WINDOW_OVERHEAD + key.len() + self.aggregates.iter().map(of).sum::<usize>()
    }
}

/// Why there is no place for another window.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageFullError;

/// See the module.
#[derive(Debug)]
pub(super) struct OpenWindows {
    /// A hash of what makes windows what they are.
    configuration: u64,
    watermark: Timestamp,
    windows: BTreeMap<WindowKey, OpenWindow>,
    /// The most bytes that each page may have.
    sizes: BTreeMap<u8, usize>,
    marked: BTreeSet<u8>,
}

impl OpenWindows {
    pub(super) const fn new(configuration: u64) -> Self {
        Self {
            configuration,
            watermark: Timestamp::MIN,
            windows: BTreeMap::new(),
            sizes: BTreeMap::new(),
            marked: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.windows.len()
    }

    pub(super) const fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// The end of the first window to close.
    pub(super) fn first_end(&self) -> Option<Timestamp> {
        self.windows.values().next().map(|window| window.end)
    }

    pub(super) fn has(&self, slot: &WindowKey) -> bool {
        self.windows.contains_key(slot)
    }

    /// The window of a slot, which is marked as changed.
    pub(super) fn window(&mut self, slot: &WindowKey) -> Option<&mut OpenWindow> {
        let window = self.windows.get_mut(slot)?;
        self.marked.insert(page_of(&slot.key));
        Some(window)
    }

    /// Opens a window.
    pub(super) fn open(&mut self, slot: WindowKey, window: OpenWindow) -> Result<(), PageFullError> {
        let (page, bytes) = (page_of(&slot.key), window.most_bytes(&slot.key));
        let size = self.sizes.entry(page).or_default();
        if *size + bytes > MAX_PAGE - PAGE_OVERHEAD {
            return Err(PageFullError);
        }
        *size += bytes;
        self.marked.insert(page);
        self.windows.insert(slot, window);
        Ok(())
    }

    /// Raises the watermark, and takes out what it closes.
    pub(super) fn close(&mut self, watermark: Timestamp) -> Vec<(WindowKey, OpenWindow)> {
        self.watermark = self.watermark.max(watermark);
        let mut closed = Vec::new();
        while let Some(first) = self.windows.first_entry()
            && first.get().end <= self.watermark
        {
            closed.push(first.remove_entry());
        }
        self.leave(&closed);
        closed
    }

    /// Takes out all windows, and raises the watermark to the end of the last one, at most so far.
    pub(super) fn close_all(&mut self, most: Timestamp) -> Vec<(WindowKey, OpenWindow)> {
        if let Some(last) = self.windows.values().next_back() {
            self.watermark = self.watermark.max(last.end.min(most));
        }
        self.take_all()
    }

    /// Takes out all windows.
    pub(super) fn take_all(&mut self) -> Vec<(WindowKey, OpenWindow)> {
        let taken: Vec<_> = std::mem::take(&mut self.windows).into_iter().collect();
        self.leave(&taken);
        taken
    }

    /// Lowers a watermark that is later than this, and takes out the windows that begin later; none where it is not.
    pub(super) fn lower(&mut self, most: Timestamp) -> Option<Vec<(WindowKey, OpenWindow)>> {
        if self.watermark <= most {
            return None;
        }
        self.watermark = most;
        // It is in all of them.
        self.marked.extend(0..PAGES);
        let behind = |slot: &WindowKey, _: &mut OpenWindow| slot.start > most;
        let taken: Vec<_> = self.windows.extract_if(.., behind).collect();
        self.leave(&taken);
        Some(taken)
    }

    /// Windows were taken out.
    fn leave(&mut self, taken: &[(WindowKey, OpenWindow)]) {
        for (slot, window) in taken {
            let page = page_of(&slot.key);
            self.marked.insert(page);
            let size = self.sizes.entry(page).or_default();
            *size = size.saturating_sub(window.most_bytes(&slot.key));
        }
    }

    /// Whether a page has changed since they were [written](Self::write).
    pub(super) fn is_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// The pages that have changed, to be kept.
    pub(super) fn write(&mut self) -> Result<Vec<(u8, Vec<u8>)>, String> {
        let marked = std::mem::take(&mut self.marked);
        let mut pages: BTreeMap<u8, WindowPage> = marked.iter().map(|page| (*page, self.new_page())).collect();
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

    /// Takes in a page that was kept; gives back the windows of another configuration.
    pub(super) fn read(&mut self, number: u8, page: &[u8]) -> Result<Vec<(WindowKey, OpenWindow)>, String> {
        let page = WindowPage::from_cbor(page)?;
        self.watermark = self.watermark.max(Timestamp::from_micros(page.watermark));
        let windows = page.windows.into_iter().map(StoredWindow::into_window);
        if page.configuration != self.configuration {
            self.marked.insert(number);
            return Ok(windows.collect());
        }
        for (slot, window) in windows {
            *self.sizes.entry(page_of(&slot.key)).or_default() += window.most_bytes(&slot.key);
            self.windows.insert(slot, window);
        }
        Ok(Vec::new())
    }

    const fn new_page(&self) -> WindowPage {
        WindowPage {
            configuration: self.configuration,
            watermark: self.watermark.micros(),
            windows: Vec::new(),
        }
    }
}

fn page_of(key: &str) -> u8 {
    let [page, ..] = stable_hash(key.as_bytes()).to_le_bytes();
    page % PAGES
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use gear_spec::window::AggregateOperation;
    use serde_json::json;

    use super::super::state_page::count;
    use super::*;

    fn slot(start: i64, key: &str) -> WindowKey {
        WindowKey {
            start: Timestamp::from_micros(start),
            key: key.into(),
        }
    }

    fn window(end: i64, operations: &[AggregateOperation]) -> OpenWindow {
        let of = |operation: &AggregateOperation| WindowAggregate {
            name: format!("{operation:?}"),
            operation: *operation,
            of: None,
        };
        let aggregates: Vec<_> = operations.iter().map(of).collect();
        OpenWindow::new(Timestamp::from_micros(end), &aggregates)
    }

    #[test]
    fn what_was_written_comes_back_and_only_what_has_changed_is_written() {
        let mut open = OpenWindows::new(1);
        for number in 0..100 {
            let mut window = window(20, &[AggregateOperation::Mean, AggregateOperation::Last]);
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
        let mut again = OpenWindows::new(1);
        for (number, page) in &pages {
            assert!(again.read(*number, page).unwrap().is_empty());
        }
        assert_eq!((&again.windows, &again.sizes), (&open.windows, &open.sizes));
        assert_eq!(open.close(Timestamp::from_micros(20)).len(), 100);
        assert!(open.sizes.values().all(|size| *size == 0));
        pages.extend(open.write().unwrap());
        let mut closed = OpenWindows::new(1);
        for (number, page) in &pages {
            closed.read(*number, page).unwrap();
        }
        assert_eq!((closed.len(), closed.watermark()), (0, Timestamp::from_micros(20)));
        assert!(closed.read(0, b"no page").is_err());
    }

    #[test]
    fn no_page_outgrows_a_note_whatever_the_windows_keep() {
        let mut open = OpenWindows::new(1);
        // All of one key, so of one page.
        let most = (0..).find(|number| {
            let mut window = window(i64::MAX, &[AggregateOperation::First, AggregateOperation::Sum]);
            window.add(u32::MAX, vec![json!("x".repeat(254)), json!(f64::MAX)]);
            open.open(slot(*number, "key"), window) == Err(PageFullError)
        });
        assert!(most.is_some_and(|most| most > 14), "{most:?}");
        let (_, page) = open.write().unwrap().remove(0);
        assert!(page.len() <= MAX_PAGE, "{}", page.len());
        open.close(Timestamp::MAX);
        assert_eq!(
            open.open(slot(1, "key"), window(2, &[AggregateOperation::Count])),
            Ok(())
        );
    }

    #[test]
    fn windows_of_another_configuration_are_given_back_and_their_page_is_written_without_them() {
        let mut open = OpenWindows::new(1);
        open.open(slot(10, "a"), window(20, &[AggregateOperation::Count]))
            .unwrap();
        let (number, page) = open.write().unwrap().remove(0);
        assert_eq!(count(&page), 1);
        let mut other = OpenWindows::new(2);
        assert_eq!(other.read(number, &page).unwrap().len(), 1);
        let written = other.write().unwrap();
        assert_eq!((written.len(), written[0].0, count(&written[0].1)), (1, number, 0));
    }

    #[test]
    fn a_watermark_of_a_clock_that_was_ahead_is_lowered_for_good_and_windows_behind_it_leave() {
        let time = Timestamp::from_micros;
        let mut open = OpenWindows::new(1);
        for start in [10, 1000] {
            open.open(slot(start, "a"), window(start + 10, &[AggregateOperation::Count]))
                .unwrap();
        }
        open.watermark = time(1000);
        let (number, ahead) = open.write().unwrap().remove(0);
        assert_eq!(open.lower(time(1000)), None);
        let left = open.lower(time(15)).unwrap();
        assert_eq!(
            (left.len(), left[0].0.start, open.watermark()),
            (1, time(1000), time(15))
        );
        let mut pages = BTreeMap::from([(number, ahead)]);
        pages.extend(open.write().unwrap());
        let mut again = OpenWindows::new(1);
        for (number, page) in &pages {
            again.read(*number, page).unwrap();
        }
        assert_eq!((again.watermark(), again.len()), (time(15), 1));
        // What nothing is waited for any more raises it no further than that.
        assert_eq!(again.close_all(time(18)).len(), 1);
        assert_eq!(again.watermark(), time(18));
    }
}
