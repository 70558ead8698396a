//! The export of one signal: rows from the log become requests, which are sent until they are settled.
//!
//! # Invariants
//!
//! - The same bytes are sent again: a collector that deduplicates by content can tell.
//! - A wait grows from [`super::ExportSettings::first_pause`] to a minute, by chance a half shorter, unless the collector says how long.
//! - Rows are settled in their order, also those of a request that had to be divided.
//! - A collector that is away costs nothing but time. A single row is given up as what the collector cannot bear only when it had no
//!   answer [`MAX_ALONE`] times in a row, others were accepted after that, and once more it had none.
//! - Whoever has accepted nothing of a signal since the start denies what it refuses: it may be no collector at all.
//! - Dead letters come no faster than requests are sent again, until one is accepted.
//! - A signal that is denied waits, unless the log is half full and another signal is accepted meanwhile: then it has dead letters.

use std::sync::Arc;
use std::time::Duration;

use engine::{ArrivalPosition, LogFollower};
use model::Table;
use tokio_util::sync::CancellationToken;

use super::ExportParts;
use super::answer::{ExportAnswer, UNKNOWN};
use super::client::CollectorClient;
use super::letters::{RefusedRequest, RefusedRows};
use super::pack::{PackedRequest, RequestRows};
use super::refusal_log::RefusalLog;
use super::retry_pause::RetryPause;
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
/// How long another signal's acceptance shows that the collector is there and knows us.
const ACCEPTED_LATELY: Duration = Duration::from_secs(60);
/// How long an answer is waited for when the process ends: what was accepted is not to be sent again.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// Exports one signal.
#[derive(Debug)]
pub(super) struct SignalExporter {
    follower: LogFollower,
    client: Arc<CollectorClient>,
    parts: ExportParts,
    status: Arc<ExportStatus>,
    refusals: RefusalLog,
    /// The waits after dead letters, since the last acceptance.
    after_letter: Option<RetryPause>,
}

/// What became of a request.
enum RequestOutcome {
    Accepted { rejected: u64, reason: String },
    TooLarge(String),
    Invalid(String),
    Unanswered(String),
    Denied(String),
    Refused(String),
}

/// The process ends.
struct ExportStopped;

impl SignalExporter {
    pub(super) fn new(
        follower: LogFollower,
        client: Arc<CollectorClient>,
        parts: ExportParts,
        status: Arc<ExportStatus>,
    ) -> Self {
        Self {
            follower,
            client,
            parts,
            status,
            refusals: RefusalLog::default(),
            after_letter: None,
        }
    }

    /// Exports until it is told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (mut hand, mut pause, mut is_unreadable) = (RowsInHand::default(), self.pause(), false);
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return,
                next = self.follower.next(STRETCH) => next,
            };
            let exported = match next {
                Ok(entries) => {
                    pause = self.pause();
                    if std::mem::take(&mut is_unreadable) {
                        self.count(SignalStatus::clear_trouble);
                    }
                    hand.extend(entries);
                    self.export(&mut hand, &stop).await
                }
                Err(error) => {
                    is_unreadable = true;
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
            let (rows, message) = self.encode(rows, stop).await?;
            if rows.is_too_large(&message) {
                // More than one row: it is divided.
                let _ = hand.divide(0, rows);
                continue;
            }
            let request = self.pack(message, stop).await?;
            let outcome = self.send(&request, (count, &mut *hand), stop).await?;
            let is_denied = matches!(outcome, RequestOutcome::Denied(_));
            let is_partial = matches!(outcome, RequestOutcome::Accepted { .. });
            let is_invalid = matches!(outcome, RequestOutcome::Invalid(_));
            let reason = match outcome {
                RequestOutcome::Accepted { rejected, reason } => self.count_accepted(count, rejected, &reason),
                RequestOutcome::Invalid(reason) if hand.divisions >= MAX_DIVISIONS => Some(reason),
                RequestOutcome::Invalid(reason) | RequestOutcome::TooLarge(reason) => match hand.divide(0, rows) {
                    Ok(()) => {
                        hand.divisions += usize::from(is_invalid);
                        continue;
                    }
                    Err(_) => Some(reason),
                },
                RequestOutcome::Unanswered(reason) => match hand.divide(0, rows) {
                    Ok(()) => continue,
                    Err(_) => Some(format!(
                        "others were accepted meanwhile, this row alone had no answer: {reason}"
                    )),
                },
                RequestOutcome::Denied(reason) | RequestOutcome::Refused(reason) => Some(reason),
            };
            let is_letter = reason.is_some();
            if let Some(reason) = reason {
                let rows = RefusedRows {
                    range,
                    count,
                    is_partial,
                };
                self.keep_letter(rows, reason, &request, stop).await?;
                if !is_denied {
                    self.count(SignalStatus::clear_trouble);
                }
            }
            self.settle(range.1).await;
            if is_letter && !is_partial && !is_denied {
                self.wait_after_letter(stop).await?;
            }
        }
        self.count(|status| status.set_oldest(None));
        Ok(())
    }

    /// Counts rows that the collector accepted; why it is a dead letter all the same, if it is.
    fn count_accepted(&mut self, rows: usize, rejected: u64, reason: &str) -> Option<String> {
        self.after_letter = None;
        let counted = rejected.min(rows as u64);
        self.count(|status| {
            status.rows.add(rows as u64 - counted);
            status.rejected.add(counted);
        });
        match rejected {
            0 => None,
            UNKNOWN => Some(format!(
                "the collector accepted it, and how many records it rejected is not known: {reason}"
            )),
            _ => Some(format!("the collector accepted it but for {counted} records: {reason}")),
        }
    }

    /// Waits after a dead letter: what is refused may be somebody's mistake, which must not empty the log.
    async fn wait_after_letter(&mut self, stop: &CancellationToken) -> Result<(), ExportStopped> {
        let first = self.pause();
        let pause = self.after_letter.get_or_insert(first).next(&self.parts.entropy);
        wait(pause, stop).await
    }

    /// The rows' request as protobuf. It is tried again for as long as it fails, which is a defect.
    async fn encode(
        &self,
        rows: RequestRows,
        stop: &CancellationToken,
    ) -> Result<(RequestRows, Vec<u8>), ExportStopped> {
        let (rows, mut pause, signal) = (Arc::new(rows), self.pause(), self.signal());
        loop {
            let shared = Arc::clone(&rows);
            let encoded = tokio::task::spawn_blocking(move || shared.encode(signal)).await;
            let reason = match encoded {
                Ok(Ok(message)) => {
                    // Nobody else has it any more.
                    let Some(rows) = Arc::into_inner(rows) else {
                        return Err(ExportStopped);
                    };
                    return Ok((rows, message));
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            self.trouble(format!("rows cannot be encoded: {reason}"), false);
            wait(pause.next(&self.parts.entropy), stop).await?;
        }
    }

    async fn pack(&self, message: Vec<u8>, stop: &CancellationToken) -> Result<PackedRequest, ExportStopped> {
        let (signal, compression, protocol) = (self.signal(), self.client.compression(), self.client.protocol());
        let packing = move || PackedRequest::pack(signal, message, compression, protocol);
        match tokio::task::spawn_blocking(packing).await {
            Ok(Ok(packed)) => Ok(packed),
            // Writing to memory does not fail; a task fails when the process ends.
            failed => {
                self.trouble(format!("a request cannot be packed: {failed:?}"), false);
                stop.cancelled().await;
                Err(ExportStopped)
            }
        }
    }

    /// Sends a request of so many rows until it is decided on.
    async fn send(
        &mut self,
        request: &PackedRequest,
        (rows, hand): (usize, &mut RowsInHand),
        stop: &CancellationToken,
    ) -> Result<RequestOutcome, ExportStopped> {
        let (mut pause, mut unanswered, mut is_other_accepted) = (self.pause(), 0, false);
        loop {
            let mut is_doubtful = false;
            let (reason, is_denied, wanted) = match self.send_once(request, stop).await? {
                ExportAnswer::Accepted { rejected, reason } => {
                    self.count(SignalStatus::clear_trouble);
                    if rejected == 0 && self.refusals.is_news(&reason) {
                        tracing::warn!(signal = %self.signal(), reason, "the collector accepted telemetry with a warning");
                    }
                    return Ok(RequestOutcome::Accepted { rejected, reason });
                }
                ExportAnswer::TooLarge { reason } => return Ok(RequestOutcome::TooLarge(reason)),
                ExportAnswer::Invalid { reason }
                    if self.has_accepted() || (rows > 1 && hand.divisions < MAX_DIVISIONS) =>
                {
                    return Ok(RequestOutcome::Invalid(reason));
                }
                ExportAnswer::Refused { reason } if self.has_accepted() => return Ok(RequestOutcome::Refused(reason)),
                ExportAnswer::Invalid { reason } | ExportAnswer::Refused { reason } => {
                    unanswered = 0;
                    is_doubtful = true;
                    (reason, true, None)
                }
                ExportAnswer::Unanswered { reason, wait } => {
                    unanswered += 1;
                    if is_other_accepted || (rows > 1 && unanswered >= MAX_UNANSWERED) {
                        return Ok(RequestOutcome::Unanswered(reason));
                    }
                    (reason, false, wait)
                }
                ExportAnswer::Later { reason, wait } => {
                    unanswered = 0;
                    (reason, false, wait)
                }
                ExportAnswer::Denied { reason } => {
                    unanswered = 0;
                    (reason, true, None)
                }
            };
            self.trouble(reason.clone(), is_denied);
            if is_denied && self.must_give_way() {
                return Ok(RequestOutcome::Denied(format!(
                    "{reason} (it takes other signals, and half of the log waits)"
                )));
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
        let more = tokio::select! {
            () = stop.cancelled() => return Err(ExportStopped),
            () = tokio::time::sleep(delay) => None,
            next = self.follower.next(STRETCH), if !hand.has_others() => Some(next),
        };
        match more {
            Some(Ok(entries)) => hand.extend(entries),
            // It is said when these rows are settled.
            Some(Err(_)) => wait(delay, stop).await?,
            None => {}
        }
        let Some((at, rows)) = hand.take_other() else {
            return Ok(false);
        };
        let Some(range) = rows.range() else {
            return Ok(false);
        };
        let (rows, message) = self.encode(rows, stop).await?;
        if rows.is_too_large(&message) {
            let _ = hand.divide(at, rows);
            return Ok(false);
        }
        let (count, request) = (rows.count(), self.pack(message, stop).await?);
        let ExportAnswer::Accepted { rejected, reason } = self.send_once(&request, stop).await? else {
            hand.put_back(at, RequestTurn::Send(rows));
            return Ok(false);
        };
        if let Some(reason) = self.count_accepted(count, rejected, &reason) {
            let rows = RefusedRows {
                range,
                count,
                is_partial: true,
            };
            self.keep_letter(rows, reason, &request, stop).await?;
        }
        hand.put_back(at, RequestTurn::Settle(range.1));
        Ok(true)
    }

    /// Whether the collector has accepted a request of this signal since the start.
    fn has_accepted(&self) -> bool {
        self.status.of(self.signal()).and_then(SignalStatus::accepted).is_some()
    }

    /// Whether this signal is denied while the collector takes another one, and what waits for somebody to mend that is half of what
    /// the log may be: the other half is for the signals that it takes.
    fn must_give_way(&self) -> bool {
        let own = self.signal();
        let denied_since = self
            .status
            .of(own)
            .and_then(SignalStatus::trouble)
            .map(|trouble| trouble.since);
        let now = self.parts.clock.now();
        let is_other_taken = self.status.signals().iter().any(|other| {
            let accepted = other.accepted().filter(|_| other.signal != own);
            accepted.is_some_and(|at| Some(at) >= denied_since && now.since(at) < ACCEPTED_LATELY)
        });
        let stats = self.parts.engine.stats();
        is_other_taken && stats.wal_bytes > stats.wal_max_bytes / 2
    }

    /// Sends a request and has its answer, also when the process is about to end.
    async fn send_once(
        &self,
        request: &PackedRequest,
        stop: &CancellationToken,
    ) -> Result<ExportAnswer, ExportStopped> {
        self.count(|status| status.requests.add(1));
        let sending = self.client.send(request);
        tokio::pin!(sending);
        let answer = tokio::select! {
            answer = &mut sending => answer,
            () = stop.cancelled() => {
                let last = LAST_ANSWER.min(self.client.timeout());
                tokio::time::timeout(last, sending).await.map_err(|_| ExportStopped)?
            }
        };
        if matches!(answer, ExportAnswer::Accepted { .. }) {
            let now = self.parts.clock.now();
            self.count(|status| status.set_accepted(now));
        }
        Ok(answer)
    }

    /// Keeps a request that is not going to be accepted, however long that takes.
    async fn keep_letter(
        &mut self,
        rows: RefusedRows,
        reason: String,
        request: &PackedRequest,
        stop: &CancellationToken,
    ) -> Result<(), ExportStopped> {
        let refused = RefusedRequest {
            signal: self.signal(),
            collector: self.status.collector(),
            rows,
            reason,
            message: request.message.clone(),
        };
        let mut pause = self.pause();
        let dropped = loop {
            match refused.keep(&self.parts.engine, self.parts.clock.now()).await {
                Ok(dropped) => break dropped,
                Err(error) => self.trouble(
                    format!("no dead letter of what was refused can be kept: {error}"),
                    false,
                ),
            }
            wait(pause.next(&self.parts.entropy), stop).await?;
        };
        if let Some(letters) = self.refusals.count_letter(self.parts.clock.now()) {
            let (signal, rows, reason) = (refused.signal, rows.count, refused.reason);
            tracing::warn!(%signal, letters, rows, reason, "the collector refused telemetry: it is in dead letters");
        }
        self.count(|status| {
            status.letters.add(1);
            status.dropped_letters.add(dropped);
        });
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

/// Waits, unless the process ends.
async fn wait(pause: Duration, stop: &CancellationToken) -> Result<(), ExportStopped> {
    tokio::select! {
        () = stop.cancelled() => Err(ExportStopped),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}
