//! What leaves when a window closes.

use model::Attributes;
use serde_json::{Map, Value};

use super::super::GearContext;
use super::open_windows::{OpenWindow, WindowKey};

/// The fact of a result that is not of all of its window.
const PARTIAL: &str = "window.partial";
/// The fact of a result that says why its window closed, if not by time.
const CLOSED_BY: &str = "window.closed_by";

/// The result of a window of a key.
pub(super) struct WindowResult {
    pub(super) slot: WindowKey,
    pub(super) window: OpenWindow,
    pub(super) closing: WindowCloseReason,
}

/// Why a window closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowCloseReason {
    /// The watermark reached its end.
    Watermark,
    /// Nothing came any more.
    Idle,
    /// It could not go on: it is a part.
    Partial,
}

impl WindowResult {
    pub(super) async fn send(self, cx: &GearContext) {
        let began = std::time::Instant::now();
        let Self { slot, window, closing } = self;
        let mut data = Map::new();
        data.insert("start".into(), slot.start.to_string().into());
        data.insert("end".into(), window.end.to_string().into());
        if !slot.key.is_empty() {
            data.insert("key".into(), slot.key.into());
        }
        let results = window.aggregates.into_iter().map(|(name, made)| (name, made.result()));
        data.extend(results);
        let meta = match closing {
            WindowCloseReason::Watermark => Attributes::new(),
            WindowCloseReason::Idle => Attributes::new().with(CLOSED_BY, "idle"),
            WindowCloseReason::Partial => Attributes::new().with(PARTIAL, true),
        };
        let mut message = cx.make(None, meta, Vec::new());
        message.data = Value::Object(data);
        message.hops = window.hops;
        // A refusal has been counted and reported.
        cx.emit("out", message, None, began).await.ok();
    }
}
