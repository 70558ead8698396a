//! A page of a window gear's state: what a note of the outbox has of it, as CBOR.

use model::Timestamp;
use serde::{Deserialize, Serialize};

use super::aggregate::WindowAccumulator;
use super::open_windows::{OpenWindow, WindowKey};

/// The windows of some keys, as they are kept.
#[derive(Serialize, Deserialize)]
pub(super) struct WindowPage {
    pub(super) configuration: u64,
    /// In µs, as all times here.
    pub(super) watermark: i64,
    pub(super) windows: Vec<StoredWindow>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredWindow {
    start: i64,
    end: i64,
    key: String,
    hops: u32,
    aggregates: Vec<(String, WindowAccumulator)>,
}

impl WindowPage {
    pub(super) fn from_cbor(bytes: &[u8]) -> Result<Self, String> {
        ciborium::from_reader(bytes).map_err(|error| error.to_string())
    }

    pub(super) fn to_cbor(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        ciborium::into_writer(self, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}

impl StoredWindow {
    pub(super) fn new(slot: &WindowKey, window: &OpenWindow) -> Self {
        Self {
            start: slot.start.micros(),
            end: window.end.micros(),
            key: slot.key.clone(),
            hops: window.hops,
            aggregates: window.aggregates.clone(),
        }
    }

    pub(super) fn into_window(self) -> (WindowKey, OpenWindow) {
        let slot = WindowKey {
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

/// The target: a page that a note of the outbox has.
#[cfg(any(test, feature = "fuzz"))]
pub(in crate::gears) fn fuzz_page() -> model::fuzz::FuzzTarget {
    use gear_spec::window::AggregateOperation::{Count, First, Mean};

    let mut aggregates = Vec::new();
    for (name, operation) in [("n", Count), ("mean", Mean), ("first", First)] {
        let mut accumulator = WindowAccumulator::new(operation);
        accumulator.add(serde_json::json!(2.5));
        aggregates.push((name.to_owned(), accumulator));
    }
    let window = StoredWindow {
        start: 0,
        end: 60_000_000,
        key: "a".to_owned(),
        hops: 3,
        aggregates,
    };
    let page = WindowPage {
        configuration: 7,
        watermark: 59_000_000,
        windows: vec![window],
    };
    let sample = page.to_cbor().unwrap_or_default();
    model::fuzz::FuzzTarget::new("disk.window", vec![sample], |bytes| {
        let windows = WindowPage::from_cbor(bytes).map(|page| page.windows.into_iter().map(StoredWindow::into_window));
        windows.is_ok_and(|windows| {
            windows.for_each(|(_, window)| window.aggregates.into_iter().for_each(|(_, kept)| drop(kept.result())));
            true
        })
    })
}

/// How many windows a page has that was kept.
pub(super) fn count(page: &[u8]) -> usize {
    WindowPage::from_cbor(page).map_or(0, |page| page.windows.len())
}
