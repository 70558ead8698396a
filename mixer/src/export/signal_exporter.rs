//! The export of one signal: rows from the log become requests, which are sent until they are settled.
//!
//! # Invariants
//!
//! - The same bytes are sent again: a collector that deduplicates by content can tell.
//! - A wait grows from [`super::ExportSettings::first_pause`] to a minute, by chance a half shorter, unless the collector says how long.
//! - Rows are settled in their order, also those of a request that had to be divided.
//! - A collector that is away costs nothing but time. A single row is given up as what the collector cannot bear only when it had no
//!   answer [`MAX_ALONE`] times in a row, others were accepted after that, and once more it had none.
//! - A refusal is believed while fewer than [`BELIEVED`] requests have become dead letters since one was accepted; at the start none
//!   is: it may be no collector at all. One that is not believed is as a denial.
//! - A signal that is denied waits, unless the log is half full and another signal is accepted meanwhile: then it has dead letters.

use std::sync::Arc;
use std::time::Duration;

use engine::{ArrivalPosition, LogFollower};
use model::Table;
use tokio_util::sync::CancellationToken;

use super::ExportParts;
use super::answer::{ExportAnswer, is_taken, rejection};
use super::client::CollectorClient;
use super::letters::{LetterFiles, RefusedRequest};
use super::pack::{PackedRequest, RequestRows};
use super::refusal_log::RefusalLog;
use super::retry_pause::{ExportStopped, RetryPause, wait};
use super::rows_in_hand::{RequestTurn, RowsInHand};
use super::status::{ExportStatus, SignalStatus};

/// So many bytes of the log are read at once.
const STRETCH: u64 = 2 << 20;
/// The least wait, whatever the collector asks for.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// So often what was one request is divided because something of it is wrong: enough to find a bad row or two of the most that a
/// request has, and no flood where every row is.
const MAX_DIVISIONS: usize = 32;
/// A request of more rows that had no answer so many times in a row is divided.
const MAX_UNANSWERED: u32 = 3;
/// One of a single row that had no answer so many times in a row is sent by turns with others.
const MAX_ALONE: u32 = 8;
/// So many requests may become dead letters before one is accepted again.
const BELIEVED: usize = 16;

/// Exports one signal.
#[derive(Debug)]
pub(super) struct SignalExporter {
    follower: LogFollower,
    client: Arc<CollectorClient>,
    parts: ExportParts,
    status: Arc<ExportStatus>,
    refusals: RefusalLog,
    files: Arc<LetterFiles>,
    /// So many requests became dead letters since one was accepted.
    letters: usize,
}

impl SignalExporter {
    pub(super) fn new(
        follower: LogFollower,
        client: Arc<CollectorClient>,
        parts: ExportParts,
        status: Arc<ExportStatus>,
        files: Arc<LetterFiles>,
    ) -> Self {
        Self {
            follower,
            client,
            parts,
            status,
            refusals: RefusalLog::default(),
            files,
            letters: BELIEVED,
        }
    }

    /// Exports until it is told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (mut hand, mut pause) = (RowsInHand::default(), self.pause());
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return,
                next = self.follower.next(STRETCH) => next,
            };
            let exported = match next {
                Ok(entries) => {
                    pause = self.pause();
                    hand.extend(entries);
                    self.export(&mut hand, &stop).await
                }
                Err(error) => {
                    self.trouble(error.to_string(), false);
                    // What waits cannot be read: it waits at least since then.
                    self.count(|status| status.set_oldest(status.trouble().map(|trouble| trouble.since)));
                    wait(pause.next(&self.parts.entropy), &stop).await
                }
            };
            if exported.is_err() {
                return;
            }
        }
    }

    fn pause(&self) -> RetryPause {
        RetryPause::beginning_with(self.client.first_pause())
    }

    fn signal(&self) -> Table {
        self.follower.table()
    }

    fn count(&self, count: impl FnOnce(&SignalStatus)) {
        if let Some(status) = self.status.of(self.signal()) {
            count(status);
        }
    }

    fn trouble(&self, reason: String, is_denied: bool) {
        let now = self.parts.clock.now();
        self.count(|status| status.set_trouble(reason, is_denied, now));
    }

    /// Sends the rows in hand, until all of them are settled.
    async fn export(&mut self, hand: &mut RowsInHand, stop: &CancellationToken) -> Result<(), ExportStopped> {
        while let Some(turn) = hand.next() {
            let rows = match turn {
                RequestTurn::Send(rows) => rows,
                RequestTurn::Settle(end) => {
                    self.settle(end).await;
                    continue;
                }
            };
            let (count, arrived) = (rows.count(), rows.arrived());
            self.count(|status| status.set_oldest(arrived));
            let Some(range) = rows.range() else { continue };
            let (rows, request) = self.pack(rows, stop).await?;
            let Some(request) = request else {
                // More than one row: it is divided.
                let _ = hand.divide(0, rows);
                continue;
            };
            let answer = self.send(&request, (count, &mut *hand), stop).await?;
            let is_denied = matches!(answer, ExportAnswer::Denied { .. });
            let is_partial = matches!(answer, ExportAnswer::Accepted { .. });
            let is_invalid = matches!(answer, ExportAnswer::Invalid { .. });
            let is_divisible = match answer {
                ExportAnswer::Invalid { .. } => hand.divisions < MAX_DIVISIONS,
                ExportAnswer::TooLarge { .. } | ExportAnswer::Unanswered { .. } => true,
                _ => false,
            };
            if is_divisible && hand.divide(0, rows).is_ok() {
                hand.divisions += usize::from(is_invalid);
                continue;
            }
            let reason = match answer {
                ExportAnswer::Accepted { rejected, reason } => self.count_accepted(count, rejected, &reason),
                ExportAnswer::Unanswered { reason, .. } => Some(format!(
                    "others were accepted meanwhile, this row alone had no answer: {reason}"
                )),
                other => Some(other.into_reason().0),
            };
            if let Some(reason) = reason {
                let rows = (range, count, is_partial);
                self.keep_letter(rows, reason, &request, hand, stop).await?;
            }
            if !is_denied && self.letters < BELIEVED {
                self.count(SignalStatus::clear_trouble);
            }
            self.settle(range.1).await;
            if is_denied && let Err(error) = self.parts.engine.flush().await {
                // What gave way counts in the log until then, and more would follow.
                self.trouble(format!("what is in dead letters cannot leave the log: {error}"), true);
                wait(self.pause().next(&self.parts.entropy), stop).await?;
            }
        }
        self.count(|status| status.set_oldest(None));
        Ok(())
    }

    /// Counts rows that the collector accepted; why it is a dead letter all the same, if it is.
    fn count_accepted(&mut self, rows: usize, rejected: u64, reason: &str) -> Option<String> {
        if rejected < rows as u64 {
            self.letters = 0;
            let now = self.parts.clock.now();
            self.count(|status| status.set_accepted(now));
        }
        let counted = rejected.min(rows as u64);
        self.count(|status| {
            status.rows.add(rows as u64 - counted);
            status.rejected.add(counted);
        });
        rejection(rejected, reason)
    }

    /// The rows' request; none if they must be divided. It is tried again for as long as it fails, which is a defect.
    async fn pack(
        &self,
        rows: RequestRows,
        stop: &CancellationToken,
    ) -> Result<(RequestRows, Option<PackedRequest>), ExportStopped> {
        let (rows, mut pause, signal) = (Arc::new(rows), self.pause(), self.signal());
        let (compression, protocol) = (self.client.compression(), self.client.protocol());
        loop {
            let shared = Arc::clone(&rows);
            let packing = move || PackedRequest::of(&shared, signal, compression, protocol);
            let reason = match tokio::task::spawn_blocking(packing).await {
                Ok(Ok(request)) => {
                    // Nobody else has them any more.
                    let rows = Arc::into_inner(rows).ok_or(ExportStopped)?;
                    return Ok((rows, request));
                }
                Ok(Err(reason)) => reason,
                Err(error) => error.to_string(),
            };
            self.trouble(format!("rows cannot be encoded: {reason}"), false);
            wait(pause.next(&self.parts.entropy), stop).await?;
        }
    }

    /// Sends a request of so many rows until it is decided on; the answer that decides.
    async fn send(
        &mut self,
        request: &PackedRequest,
        (rows, hand): (usize, &mut RowsInHand),
        stop: &CancellationToken,
    ) -> Result<ExportAnswer, ExportStopped> {
        let (mut pause, mut unanswered, mut is_other_accepted) = (self.pause(), 0, false);
        loop {
            self.count(|status| status.requests.add(1));
            let answer = self.client.send_to_the_end(request, stop).await?;
            let is_believed = self.letters < BELIEVED;
            let is_unanswered = matches!(answer, ExportAnswer::Unanswered { .. });
            unanswered = if is_unanswered { unanswered + 1 } else { 0 };
            let (decides, is_doubtful) = match &answer {
                ExportAnswer::Accepted { rejected, .. } => (is_believed || is_taken(*rejected, rows), true),
                ExportAnswer::Invalid { .. } => {
                    let is_divisible = rows > 1 && hand.divisions < MAX_DIVISIONS;
                    (is_believed || (is_divisible && !self.must_give_way()), true)
                }
                ExportAnswer::Refused { .. } => (is_believed, true),
                ExportAnswer::Unanswered { .. } => {
                    (is_other_accepted || (rows > 1 && unanswered >= MAX_UNANSWERED), false)
                }
                ExportAnswer::TooLarge { .. } => (true, false),
                ExportAnswer::Later { .. } | ExportAnswer::Denied { .. } => (false, false),
            };
            if let ExportAnswer::Accepted { rejected: 0, reason } = &answer
                && self.refusals.is_news(reason)
            {
                tracing::warn!(signal = %self.signal(), reason, "the collector accepted telemetry with a warning");
            }
            if decides {
                return Ok(answer);
            }
            let is_denied = is_doubtful || matches!(answer, ExportAnswer::Denied { .. });
            let (reason, wanted) = answer.into_reason();
            self.trouble(reason.clone(), is_denied);
            if is_denied && self.must_give_way() {
                let reason = format!("{reason} (it takes other signals, and half of the log waits)");
                return Ok(ExportAnswer::Denied { reason });
            }
            let own = pause.next(&self.parts.entropy);
            let delay = wanted.map_or(own, |wanted| wanted.max(LEAST_PAUSE));
            let is_alone = unanswered >= MAX_ALONE;
            is_other_accepted = false;
            if is_alone || is_doubtful {
                is_other_accepted = self.try_other(hand, delay, stop).await? && is_alone;
            } else {
                wait(delay, stop).await?;
            }
            self.count(|status| status.retries.add(1));
        }
    }

    /// Waits, and sends other rows than those that have no answer, if there are any. Whether they were accepted: then it is not the
    /// collector that is away.
    async fn try_other(
        &mut self,
        hand: &mut RowsInHand,
        delay: Duration,
        stop: &CancellationToken,
    ) -> Result<bool, ExportStopped> {
        wait(delay, stop).await?;
        if !hand.has_others() {
            let more = tokio::select! {
                () = stop.cancelled() => return Err(ExportStopped),
                more = self.follower.next_now(STRETCH) => more,
            };
            // What cannot be read is said when these rows are settled.
            hand.extend(more.unwrap_or_default());
        }
        let Some((at, rows)) = hand.take_other() else {
            return Ok(false);
        };
        let Some(range) = rows.range() else {
            return Ok(false);
        };
        let (count, (rows, request)) = (rows.count(), self.pack(rows, stop).await?);
        let Some(request) = request else {
            let _ = hand.divide(at, rows);
            return Ok(false);
        };
        self.count(|status| status.requests.add(1));
        match self.client.send_to_the_end(&request, stop).await? {
            ExportAnswer::Accepted { rejected, reason } if is_taken(rejected, count) => {
                if let Some(reason) = self.count_accepted(count, rejected, &reason) {
                    let rows = (range, count, true);
                    self.keep_letter(rows, reason, &request, hand, stop).await?;
                }
                hand.put_back(at, RequestTurn::Settle(range.1));
                Ok(rejected < count as u64)
            }
            _ => {
                hand.put_back(at, RequestTurn::Send(rows));
                Ok(false)
            }
        }
    }

    /// Whether this signal is denied while the collector takes another one, and what waits for somebody to mend that is half of what
    /// the log may be: the other half is for the signals that it takes.
    fn must_give_way(&self) -> bool {
        let (own, now) = (self.status.of(self.signal()), self.parts.clock.now());
        let stats = self.parts.engine.stats();
        own.is_some_and(|own| self.status.takes_others(own, now)) && stats.wal_bytes > stats.wal_max_bytes / 2
    }

    /// Keeps a request that is not going to be accepted, however long that takes.
    async fn keep_letter(
        &mut self,
        (range, rows, is_partial): ((ArrivalPosition, ArrivalPosition), usize, bool),
        reason: String,
        request: &PackedRequest,
        hand: &mut RowsInHand,
        stop: &CancellationToken,
    ) -> Result<(), ExportStopped> {
        let refused = RefusedRequest {
            signal: self.signal(),
            collector: self.status.collector(),
            range,
            rows,
            is_partial,
            reason,
            message: request.message.clone(),
        };
        let mut pause = self.pause();
        while let Err(error) = refused
            .keep(&self.parts.engine, &self.files, self.parts.clock.now())
            .await
        {
            let reason = format!("no dead letter of what was refused can be kept: {error}");
            self.trouble(reason, true);
            wait(pause.next(&self.parts.entropy), stop).await?;
        }
        self.letters += usize::from(!std::mem::replace(&mut hand.has_letter, true));
        if self.letters >= BELIEVED {
            let reason = format!("nothing is accepted, the last time: {}", refused.reason);
            self.trouble(reason, true);
        }
        if let Some(letters) = self.refusals.count_letter(self.parts.clock.now()) {
            let (signal, reason) = (refused.signal, refused.reason);
            tracing::warn!(%signal, letters, rows, reason, "the collector refused telemetry: it is in dead letters");
        }
        self.count(|status| status.letters.add(1));
        Ok(())
    }

    /// What was accepted or kept needs no place in the log any more.
    async fn settle(&self, end: ArrivalPosition) {
        if let Err(error) = self.follower.settle(end).await {
            // It counts until the process ends, and is tried again with the next one.
            self.trouble(
                format!("how far telemetry was exported cannot be written down: {error}"),
                false,
            );
        }
    }
}
