//! `window`: tumbling windows, aggregates messages over equal spans of time, for each key.
//!
//! ```text
//! message ─▶ window of its time and key ─▶ aggregates        late ──▶ late
//!                      │ the watermark reaches its end
//!                      └──▶ out: start, end, key, results
//! ```
//!
//! # Invariants
//!
//! - A window closes once and has one result for each key; a message whose window is closed is late and changes none.
//! - By `event` time the watermark is the latest time of a message less `lateness`; where nothing comes for as long as a window and
//!   `lateness`, what is open closes. A time in the future counts as now: a wrong clock shall not make everybody else late. By
//!   `arrival` the watermark is the Rack's clock.
//! - Messages of guaranteed wires are aggregated exactly once: the state after them, the results that left and the word that they were
//!   taken are one write of the outbox ([`Context::group_commit`]), and a life begins with the state that the one before has left.
//!   The messages are not held until their window closes, as `batch` does: 1,024 are held at most, which would bound a
//!   window's rate, and event time would stand still with them. So the state is kept instead, in pages ([`open`]).
//! - Once its state is kept a gear goes on where it was after a stop, a crash, or a failure. Before that, with hot wires only,
//!   windows are in memory: a stop sends what is open, marked `window.partial`, and a crash loses it.
//!
//! # Not here
//!
//! What aggregates are ([`aggregate`]), what may be configured ([`config`]).

mod aggregate;
mod config;
mod open;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use model::gear::{self, Manifest};
use model::message::Message;
use model::{Attributes, MessageId, Timestamp};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::expression::{Expression, key_or_one};
use super::gathering::Handled;
use super::{Config, Context, Fault, Gear, Passive, Work};
use crate::telemetry::Checkpoint;
use crate::wires::Delivery;
use aggregate::Aggregate;
use config::{Time, Window};
use open::{OpenWindow, OpenWindows, PageFull, Slot};

/// What the type is.
pub(super) const MANIFEST: Manifest = Manifest {
    kind: "window",
    summary: "aggregates messages over spans of time, for each key",
    inputs: &["in"],
    outputs: &["out", "late"],
    doc: "Time is cut into spans of `every`, beginning at 1970-01-01T00:00:00Z. When one has ended, a message for each key leaves by `out`: an object of \
          `start`, `end`, `key` where there is one, and each aggregate by its name. It begins a signal and a trace of its own. A message whose window has \
          ended leaves by `late`, unchanged, or is dropped and counted. Where no message comes for `every` and `lateness`, what is open ends. With a \
          guaranteed wire to this gear the windows are kept in the Rack's outbox and each message is aggregated exactly once, through stops and \
          crashes; 256 groups of keys have 60 KiB each for that. A gear that is taken out of its scenario leaves them for the next one of its name; where \
          that is configured otherwise, they leave at once as `window.partial`. With hot wires only, windows are in memory: a stop, or a gear that is \
          replaced, sends what is open as `window.partial`; a crash loses it. Expressions are [CEL](https://cel.dev).",
    example: include_str!("../../../../examples/gears/window.yaml"),
    schema: gear::schema::<Window>,
    check: gear::check::<Window>,
    passes_on: gear::never,
};

/// The fact of a result that is not of all of its window.
const PARTIAL: &str = "window.partial";

pub(super) fn build(config: &Config) -> Result<Gear, String> {
    let config: Window = gear::config(config)?;
    let (key, aggregates) = config.compile()?;
    Ok(Gear::Passive(Box::new(Aggregator {
        key,
        aggregates,
        every: config.every.get(),
        lateness: config.lateness.get(),
        time: config.time,
        most: config.max_keys as usize,
        open: OpenWindows::default(),
        closed: Vec::new(),
        unkept: None,
        is_kept: false,
        is_restored: false,
        wake_at: Some(Instant::now()),
    })))
}

struct Aggregator {
    key: Option<Expression>,
    aggregates: Vec<Aggregate>,
    every: Duration,
    lateness: Duration,
    time: Time,
    most: usize,
    open: OpenWindows,
    /// What leaves next.
    closed: Vec<WindowResult>,
    /// The first and the last message of a guaranteed wire since the state was kept.
    unkept: Option<(MessageId, MessageId)>,
    /// Whether the outbox has a state of this gear.
    is_kept: bool,
    is_restored: bool,
    wake_at: Option<Instant>,
}

struct WindowResult {
    slot: Slot,
    window: OpenWindow,
    is_partial: bool,
}

impl Passive for Aggregator {
    fn process<'a>(&'a mut self, cx: &'a Arc<Context>, delivery: Delivery) -> Work<'a> {
        async move {
            self.restore(cx).await;
            let (message, handled) = (delivery.message, Handled::now());
            let key = key_or_one(self.key.as_ref(), &message)?;
            let values = self.aggregates.iter().map(|aggregate| aggregate.value(&message));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let now = cx.recorder().now();
            let (slot, end) = self.slot(&message, key, now);
            if end <= self.open.watermark() {
                cx.offer("late", message).await;
                return Ok(());
            }
            self.advance(message.ts.min(now), now);
            self.add((slot, end), message.hops, values)?;
            self.schedule(now);
            if handled == Handled::Again {
                self.unkept.get_or_insert((message.id, message.id)).1 = message.id;
                self.is_kept = true;
            } else {
                self.leave_closed(cx).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            if let Some(unkept) = self.unkept.take() {
                cx.group_commit(unkept, self.leave(cx)).await;
            }
            if cx.is_draining() && !self.is_kept {
                let open = self.open.take(|_, _| true);
                self.end(open, true);
            }
            if cx.is_draining() && self.open.is_marked() && self.is_kept {
                cx.leave_together(None, self.leave(cx)).await;
            }
            self.leave_closed(cx).await;
            Ok(())
        }
        .boxed()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            let now = cx.recorder().now();
            if self.is_restored {
                self.close_due(now);
            } else {
                self.restore(cx).await;
            }
            self.schedule(now);
            self.leave_closed(cx).await;
            Ok(())
        }
        .boxed()
    }
}

impl Aggregator {
    /// Where a message belongs, and when that ends.
    fn slot(&self, message: &Message, key: String, now: Timestamp) -> (Slot, Timestamp) {
        let ts = match self.time {
            Time::Event => message.ts.min(now),
            // Where the clock was set back, the window that is open goes on.
            Time::Arrival => now.max(self.open.watermark()),
        };
        let every = i64::try_from(self.every.as_micros()).unwrap_or(i64::MAX).max(1);
        let start = Timestamp::from_micros(ts.micros() - ts.micros().rem_euclid(every));
        (Slot { start, key }, start.plus(self.every))
    }

    /// Raises the watermark for a message of a time.
    fn advance(&mut self, ts: Timestamp, now: Timestamp) {
        let watermark = match self.time {
            Time::Event => ts.minus(self.lateness),
            Time::Arrival => now,
        };
        let closed = self.open.close(watermark);
        self.end(closed, false);
    }

    fn add(&mut self, (slot, end): (Slot, Timestamp), hops: u32, values: Vec<Value>) -> Result<(), Fault> {
        if !self.open.has(&slot) {
            if self.open.len() >= self.most {
                let most = self.most;
                return Err(Fault::Rejected(format!(
                    "{most} windows are open, and max_keys allows no more: raise it, or choose a key with fewer values"
                )));
            }
            let opened = self.open.open(slot.clone(), OpenWindow::new(end, &self.aggregates));
            opened.map_err(|PageFull| {
                let why = "there is no place in the outbox for the state of another window: use shorter keys or fewer aggregates";
                Fault::Rejected(why.into())
            })?;
        }
        if let Some(window) = self.open.window(&slot) {
            window.add(hops, values);
        }
        Ok(())
    }

    /// Closes what nothing is waited for any more.
    fn close_due(&mut self, now: Timestamp) {
        let is_due = self.wake_at.is_some_and(|at| at <= Instant::now());
        let watermark = match self.time {
            Time::Arrival => Some(now),
            // Nothing came for so long.
            Time::Event => self.open.last_end().filter(|_| is_due),
        };
        let closed = watermark.map(|watermark| self.open.close(watermark));
        self.end(closed.unwrap_or_default(), false);
    }

    /// Sets the time when something is to be closed though nothing came.
    fn schedule(&mut self, now: Timestamp) {
        let wait = |end: Timestamp| match self.time {
            Time::Event => self.every + self.lateness,
            Time::Arrival => end.since(now),
        };
        self.wake_at = self.open.first_end().map(|end| Instant::now() + wait(end));
    }

    fn end(&mut self, windows: Vec<(Slot, OpenWindow)>, is_partial: bool) {
        let results = windows.into_iter().map(|(slot, window)| WindowResult {
            slot,
            window,
            is_partial,
        });
        self.closed.extend(results);
    }

    /// Lets closed windows leave, unless they wait with messages for the next flush.
    async fn leave_closed(&mut self, cx: &Context) {
        if !self.closed.is_empty() && self.unkept.is_none() {
            cx.leave_together(None, self.leave(cx)).await;
        }
    }

    /// Sends what is closed, and keeps the state that is left.
    async fn leave(&mut self, cx: &Context) {
        for result in std::mem::take(&mut self.closed) {
            result.leave(cx).await;
        }
        if !self.is_kept {
            return;
        }
        match self.open.write() {
            Ok(pages) => {
                let note = |(page, value)| Checkpoint {
                    key: note_key(cx, page),
                    value,
                };
                cx.add_notes(pages.into_iter().map(note).collect());
            }
            Err(reason) => cx.error(format!("the state of the open windows cannot be written: {reason}")),
        }
    }

    /// Takes over what a life before has left in the outbox.
    async fn restore(&mut self, cx: &Context) {
        if std::mem::replace(&mut self.is_restored, true) {
            return;
        }
        // It may have writes under way; this one begins behind them.
        cx.settled().await;
        for page in u8::MIN..=u8::MAX {
            let Some(bytes) = cx.note(&note_key(cx, page)) else {
                continue;
            };
            self.is_kept = true;
            if let Err(reason) = self.open.read(&bytes) {
                cx.error(format!(
                    "page {page} of the kept windows cannot be read ({reason}); its windows begin anew"
                ));
            }
        }
        let like = OpenWindow::new(Timestamp::MIN, &self.aggregates);
        let is_foreign =
            |slot: &Slot, window: &OpenWindow| !window.is_like(&like) || window.end != slot.start.plus(self.every);
        let foreign = self.open.take(is_foreign);
        self.end(foreign, true);
    }
}

/// The name of a page among the notes of the outbox.
fn note_key(cx: &Context, page: u8) -> String {
    format!("window {} {page}", cx.name())
}

impl WindowResult {
    async fn leave(self, cx: &Context) {
        let began = std::time::Instant::now();
        let Self {
            slot,
            window,
            is_partial,
        } = self;
        let mut data = Map::new();
        data.insert("start".into(), slot.start.to_string().into());
        data.insert("end".into(), window.end.to_string().into());
        if !slot.key.is_empty() {
            data.insert("key".into(), slot.key.into());
        }
        let results = window.aggregates.into_iter().map(|(name, made)| (name, made.result()));
        data.extend(results);
        let meta = if is_partial {
            Attributes::new().with(PARTIAL, true)
        } else {
            Attributes::new()
        };
        let mut message = cx.make(None, meta, Vec::new());
        message.data = Value::Object(data);
        message.hops = window.hops;
        // A refusal has been counted and reported.
        cx.emit("out", message, None, began).await.ok();
    }
}
