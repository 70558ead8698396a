//! `window`: aggregates messages over tumbling windows (equal spans of time that follow one another), for each key.
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
//! - By `event` time the watermark is the latest time of a message less `lateness`; where nothing comes for `idle`, what is open closes.
//!   A time in the future counts as now: a wrong clock shall not make everybody else late. Where the Rack's own clock was ahead, the
//!   watermark is lowered to now and one window. By `arrival` the watermark is the Rack's clock.
//! - Silence counts only while the gear waits for messages, not while it waits for room at the outbox; whether the bus is there it does
//!   not know. What closed by silence says so.
//! - Messages of guaranteed wires are aggregated exactly once: the state after them, the results that left and the word that they were
//!   taken are one write of the outbox ([`GearContext::group_commit`]), and a life begins with the state that the one before has left.
//!   The messages are not held until their window closes, as `batch` does: 1,024 are held at most, which would bound a
//!   window's rate, and event time would stand still with them. So the state is kept instead, in pages ([`open_windows`]), once in
//!   [`WRITE_AFTER`], when no more messages may be held, and with each result.
//! - Once its state is kept a gear goes on where it was after a stop, a crash, or a failure. A gear that its scenario has no more leaves
//!   nothing ([`state_notes`]). Before that, with hot wires only, windows are in memory: a stop sends what is open, marked `window.partial`,
//!   and a crash loses it.
//!
//! # Not here
//!
//! What aggregates are ([`aggregate`]), what may be configured ([`gear_spec::window`]).

mod aggregate;
mod open_windows;
mod state_notes;
mod state_page;
#[cfg(test)]
mod tests;
mod window_result;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::expression::{CelExpression, key_or_one};
use gear_spec::window::{WindowAggregate, WindowConfig, WindowTime};
use model::gear_manifest;
use model::message::Message;
use model::{Level, MessageId, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::output_transaction::DeliveryGuarantee;
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use crate::spool::SourceCheckpoint;
use aggregate::value_of;
use open_windows::{OpenWindow, OpenWindows, PAGES, PageFullError, WindowKey};
pub(crate) use state_notes::forget_windows;
use state_notes::note_key;
#[cfg(any(test, feature = "fuzz"))]
pub(super) use state_page::fuzz_page;
use window_result::{WindowCloseReason, WindowResult};

/// How long messages wait for the next write of the state, if nothing closes.
const WRITE_AFTER: Duration = Duration::from_secs(1);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: WindowConfig = gear_manifest::config(config)?;
    let (key, aggregates) = config.compile()?;
    Ok(Gear::Passive(Box::new(WindowAggregator {
        spec: WindowSpec {
            key,
            aggregates,
            every: config.every.get(),
            lateness: config.lateness.get(),
            idle: config.idle(),
            time: config.time,
            most: config.max_keys as usize,
        },
        open: OpenWindows::new(config.identity_hash()?),
        closed: Vec::new(),
        dirty: None,
        must_write: false,
        is_kept: false,
        is_restored: false,
        close_at: Some(Instant::now()),
        is_silent: false,
    })))
}

/// Which windows there are, and what is computed of each.
struct WindowSpec {
    key: Option<CelExpression>,
    aggregates: Vec<WindowAggregate>,
    every: Duration,
    lateness: Duration,
    idle: Duration,
    time: WindowTime,
    /// Keys at most.
    most: usize,
}

struct WindowAggregator {
    spec: WindowSpec,
    open: OpenWindows,
    /// What leaves next.
    closed: Vec<WindowResult>,
    dirty: Option<DirtySpan>,
    /// Whether the state is to be written with the next flush.
    must_write: bool,
    /// Whether the outbox has a state of this gear.
    is_kept: bool,
    is_restored: bool,
    /// When something is to be closed though nothing comes.
    close_at: Option<Instant>,
    /// Whether that time has come, and no message since.
    is_silent: bool,
}

/// The messages of guaranteed wires since the state was written.
#[derive(Clone, Copy)]
struct DirtySpan {
    first: MessageId,
    last: MessageId,
    /// When it is to be written at the latest.
    until: Instant,
}

impl PassiveGear for WindowAggregator {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            self.restore(cx).await;
            let now = cx.recorder().now();
            let taken = self.take(cx, delivery.message, now).await;
            self.schedule(now);
            taken
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let is_last = cx.is_draining();
            if is_last && !self.is_kept {
                let open = self.open.take_all();
                self.end(open, WindowCloseReason::Partial);
            }
            let is_due = self.dirty.is_some_and(|dirty| dirty.until <= Instant::now());
            if (is_last || is_due || self.must_write || !self.closed.is_empty())
                && let Some(dirty) = self.dirty.take()
            {
                self.must_write = false;
                cx.group_commit((dirty.first, dirty.last), self.send_closed(cx)).await;
            }
            if is_last && self.is_kept && self.open.is_marked() {
                cx.commit_together(None, self.send_closed(cx)).await;
            }
            self.send_unheld(cx).await;
            Ok(())
        }
        .boxed()
    }

    fn unfinished(&self) -> Option<MessageId> {
        self.dirty.map(|dirty| dirty.first)
    }

    fn finish_all(&mut self) {
        self.must_write = true;
    }

    fn wake_at(&self) -> Option<Instant> {
        let write_at = self.dirty.filter(|_| !self.must_write).map(|dirty| dirty.until);
        self.close_at.into_iter().chain(write_at).min()
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let now = cx.recorder().now();
            if !self.is_restored {
                self.restore(cx).await;
                self.schedule(now);
            }
            self.must_write |= self.dirty.is_some_and(|dirty| dirty.until <= Instant::now());
            self.close_due(now);
            self.send_unheld(cx).await;
            Ok(())
        }
        .boxed()
    }
}

impl WindowAggregator {
    /// Takes a message into its window.
    async fn take(&mut self, cx: &GearContext, message: Message, now: Timestamp) -> Result<(), GearError> {
        cx.check_hops(&message)?;
        let key = key_or_one(self.spec.key.as_ref(), &message)?;
        let values = self
            .spec
            .aggregates
            .iter()
            .map(|aggregate| value_of(aggregate, &message));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        self.lower_watermark(cx, now);
        let (slot, end) = self.slot(&message, key, now);
        if end <= self.open.watermark() {
            cx.send_if_wired("late", message).await;
            return Ok(());
        }
        self.advance(message.ts.min(now), now);
        self.add((slot, end), message.hops, values)?;
        if DeliveryGuarantee::current() == DeliveryGuarantee::Again {
            let begun = DirtySpan {
                first: message.id,
                last: message.id,
                until: Instant::now() + WRITE_AFTER,
            };
            self.dirty.get_or_insert(begun).last = message.id;
            self.is_kept = true;
        } else {
            self.send_unheld(cx).await;
        }
        Ok(())
    }

    /// Where a message belongs, and when that ends.
    fn slot(&self, message: &Message, key: String, now: Timestamp) -> (WindowKey, Timestamp) {
        let ts = match self.spec.time {
            WindowTime::Event => message.ts.min(now),
            // Where the clock was set back, the window that is open goes on.
            WindowTime::Arrival => now.max(self.open.watermark()),
        };
        let every = i64::try_from(self.spec.every.as_micros()).unwrap_or(i64::MAX).max(1);
        let start = Timestamp::from_micros(ts.micros() - ts.micros().rem_euclid(every));
        (WindowKey { start, key }, start.plus(self.spec.every))
    }

    /// Raises the watermark for a message of a time.
    fn advance(&mut self, ts: Timestamp, now: Timestamp) {
        let watermark = match self.spec.time {
            WindowTime::Event => ts.minus(self.spec.lateness),
            WindowTime::Arrival => now,
        };
        let closed = self.open.close(watermark);
        self.end(closed, WindowCloseReason::Watermark);
    }

    /// Corrects a watermark that the Rack's clock has raised while it was ahead: all that comes would be late for as long.
    fn lower_watermark(&mut self, cx: &GearContext, now: Timestamp) {
        if let Some(ahead) = self.open.lower(now.plus(self.spec.every)) {
            let says = "the clock of the Rack was ahead: windows that began in the future leave as a part, and messages of the present are late \
                        for the length of one window";
            cx.log(Level::Warn, says);
            self.end(ahead, WindowCloseReason::Partial);
        }
    }

    fn add(&mut self, (slot, end): (WindowKey, Timestamp), hops: u32, values: Vec<Value>) -> Result<(), GearError> {
        if !self.open.has(&slot) {
            if self.open.len() >= self.spec.most {
                let most = self.spec.most;
                return Err(GearError::Rejected(format!(
                    "{most} windows are open, and max_keys allows no more: raise it, or choose a key with fewer values"
                )));
            }
            let opened = self
                .open
                .open(slot.clone(), OpenWindow::new(end, &self.spec.aggregates));
            opened.map_err(|PageFullError| {
                let why = "there is no place for another window, 1 MiB keeps all of them: use fewer or shorter keys, or fewer aggregates";
                GearError::Rejected(why.into())
            })?;
        }
        if let Some(window) = self.open.window(&slot) {
            window.add(hops, values);
        }
        Ok(())
    }

    /// Closes what nothing is waited for any more.
    fn close_due(&mut self, now: Timestamp) {
        if self.close_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        match self.spec.time {
            WindowTime::Arrival => {
                let closed = self.open.close(now);
                self.end(closed, WindowCloseReason::Watermark);
            }
            // Messages may wait in the inbox because the gear waited for room: they come before it is woken once more.
            WindowTime::Event if !std::mem::replace(&mut self.is_silent, true) => {
                self.close_at = Some(Instant::now());
                return;
            }
            WindowTime::Event => {
                let closed = self.open.close_all(now.plus(self.spec.every));
                self.end(closed, WindowCloseReason::Idle);
            }
        }
        self.schedule(now);
    }

    /// Sets the time when something is to be closed though nothing comes.
    fn schedule(&mut self, now: Timestamp) {
        let wait = |end: Timestamp| match self.spec.time {
            WindowTime::Event => self.spec.idle,
            WindowTime::Arrival => end.since(now),
        };
        self.is_silent = false;
        self.close_at = self.open.first_end().map(|end| Instant::now() + wait(end));
    }

    fn end(&mut self, windows: Vec<(WindowKey, OpenWindow)>, closing: WindowCloseReason) {
        let results = windows
            .into_iter()
            .map(|(slot, window)| WindowResult { slot, window, closing });
        self.closed.extend(results);
    }

    /// Lets closed windows leave, unless they wait with messages for the next flush.
    async fn send_unheld(&mut self, cx: &GearContext) {
        if !self.closed.is_empty() && self.dirty.is_none() {
            cx.commit_together(None, self.send_closed(cx)).await;
        }
    }

    /// Sends what is closed, and keeps the state that is left.
    async fn send_closed(&mut self, cx: &GearContext) {
        for result in std::mem::take(&mut self.closed) {
            result.send(cx).await;
        }
        if !self.is_kept {
            return;
        }
        match self.open.write() {
            Ok(pages) => {
                let note = |(page, value)| SourceCheckpoint {
                    key: note_key(cx.name().as_str(), page),
                    value,
                };
                cx.add_notes(pages.into_iter().map(note).collect());
            }
            Err(reason) => cx.error(format!("the state of the open windows cannot be written: {reason}")),
        }
    }

    /// Takes over what a life before has left in the outbox.
    async fn restore(&mut self, cx: &GearContext) {
        if std::mem::replace(&mut self.is_restored, true) {
            return;
        }
        // It may have writes under way; this one begins behind them.
        cx.wait_until_durable().await;
        let mut foreign = Vec::new();
        for page in 0..PAGES {
            let Some(bytes) = cx.note(&note_key(cx.name().as_str(), page)) else {
                continue;
            };
            self.is_kept = true;
            match self.open.read(page, &bytes) {
                Ok(windows) => foreign.extend(windows),
                Err(reason) => cx.error(format!(
                    "page {page} of the kept windows cannot be read ({reason}); its windows start afresh"
                )),
            }
        }
        self.end(foreign, WindowCloseReason::Partial);
        self.lower_watermark(cx, cx.recorder().now());
    }
}
