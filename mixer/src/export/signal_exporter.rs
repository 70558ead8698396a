//! The export of one signal: rows from the log become requests, which are sent until they are settled.
//!
//! # Invariants
//!
//! - The same bytes are sent again: a collector that deduplicates by content can tell.
//! - A wait grows from [`FIRST_PAUSE`] to [`MAX_PAUSE`], by chance a half shorter, unless the collector says how long.
//! - Rows are settled in their order, also those of a request that had to be divided.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::{ArrivalPosition, LogEntry, LogFollower};
use model::{Entropy, Table};
use tokio_util::sync::CancellationToken;

use super::ExportParts;
use super::answer::ExportAnswer;
use super::client::CollectorClient;
use super::letters::RefusedRequest;
use super::pack::{PackedRequest, RequestRows};
use super::status::{ExportStatus, SignalStatus};

/// So many bytes of the log are read at once.
const STRETCH: u64 = 2 << 20;
/// The first wait before a request is sent again, or the log is read again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The least, whatever the collector asks for.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// The longest of our own accord.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// So often what was one request is divided because something of it is wrong: enough to find a bad row or two of the most that a
/// request has, and no flood where every row is.
const MAX_DIVISIONS: usize = 32;
/// How long an answer is waited for when the process ends: what was accepted is not to be sent again.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// Exports one signal.
#[derive(Debug)]
pub(super) struct SignalExporter {
    follower: LogFollower,
    client: Arc<CollectorClient>,
    parts: ExportParts,
    status: Arc<ExportStatus>,
}

/// What became of a request.
enum RequestOutcome {
    Accepted { rejected: u64, reason: String },
    TooLarge(String),
    Invalid(String),
    Refused(String),
}

/// The process ends.
struct ExportStopped;

impl SignalExporter {
    pub(super) const fn new(
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
        }
    }

    /// Exports until it is told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut pause = RetryPause::default();
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return,
                next = self.follower.next(STRETCH) => next,
            };
            let exported = match next {
                Ok(entries) => {
                    pause = RetryPause::default();
                    self.count(SignalStatus::clear_trouble);
                    self.export(entries.into(), &stop).await
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

    /// Sends some rows, until all of them are settled.
    async fn export(&self, mut waiting: VecDeque<LogEntry>, stop: &CancellationToken) -> Result<(), ExportStopped> {
        let (mut divided, mut divisions): (VecDeque<RequestRows>, usize) = (VecDeque::new(), 0);
        loop {
            if divided.is_empty() {
                divisions = 0;
            }
            let Some(rows) = divided.pop_front().or_else(|| RequestRows::take(&mut waiting)) else {
                break;
            };
            let (count, arrived) = (rows.count(), rows.arrived());
            self.count(|status| status.set_oldest(arrived));
            let Some((first, end)) = rows.range() else { continue };
            let (rows, message) = self.encode(rows, stop).await?;
            if rows.is_too_large(&message) {
                // More than one row: it is divided.
                let _ = rows.halve(&mut divided);
                continue;
            }
            let request = self.pack(message, stop).await?;
            let reason = match self.send(&request, stop).await? {
                RequestOutcome::Accepted { rejected, reason } => {
                    let rejected = rejected.min(count as u64);
                    self.count(|status| {
                        status.rows.add(count as u64 - rejected);
                        status.rejected.add(rejected);
                    });
                    (rejected > 0).then(|| format!("the collector accepted it but for {rejected} records: {reason}"))
                }
                RequestOutcome::Invalid(reason) if divisions >= MAX_DIVISIONS => Some(reason),
                RequestOutcome::Invalid(reason) | RequestOutcome::TooLarge(reason) => match rows.halve(&mut divided) {
                    Ok(()) => {
                        divisions += 1;
                        continue;
                    }
                    Err(_) => Some(reason),
                },
                RequestOutcome::Refused(reason) => Some(reason),
            };
            if let Some(reason) = reason {
                self.keep_letter((first, count), reason, &request, stop).await?;
            }
            self.settle(end).await;
        }
        self.count(|status| status.set_oldest(None));
        Ok(())
    }

    /// The rows' request as protobuf. It is tried again for as long as it fails, which is a defect.
    async fn encode(
        &self,
        rows: RequestRows,
        stop: &CancellationToken,
    ) -> Result<(RequestRows, Vec<u8>), ExportStopped> {
        let (rows, mut pause, signal) = (Arc::new(rows), RetryPause::default(), self.signal());
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

    /// Sends a request until it is decided on.
    async fn send(&self, request: &PackedRequest, stop: &CancellationToken) -> Result<RequestOutcome, ExportStopped> {
        let mut pause = RetryPause::default();
        loop {
            self.count(|status| status.requests.add(1));
            let (reason, is_denied, wanted) = match self.send_once(request, stop).await? {
                ExportAnswer::Accepted { rejected, reason } => {
                    self.count(SignalStatus::clear_trouble);
                    if rejected == 0 && !reason.is_empty() {
                        tracing::warn!(signal = %self.signal(), reason, "the collector accepted telemetry with a warning");
                    }
                    return Ok(RequestOutcome::Accepted { rejected, reason });
                }
                ExportAnswer::TooLarge { reason } => return Ok(RequestOutcome::TooLarge(reason)),
                ExportAnswer::Invalid { reason } => return Ok(RequestOutcome::Invalid(reason)),
                ExportAnswer::Refused { reason } => return Ok(RequestOutcome::Refused(reason)),
                ExportAnswer::Later { reason, wait } => (reason, false, wait),
                ExportAnswer::Denied { reason } => (reason, true, None),
            };
            self.trouble(reason, is_denied);
            let own = pause.next(&self.parts.entropy);
            wait(wanted.map_or(own, |wanted| wanted.max(LEAST_PAUSE)), stop).await?;
            self.count(|status| status.retries.add(1));
        }
    }

    /// Sends a request and has its answer, also when the process is about to end.
    async fn send_once(
        &self,
        request: &PackedRequest,
        stop: &CancellationToken,
    ) -> Result<ExportAnswer, ExportStopped> {
        let sending = self.client.send(request);
        tokio::pin!(sending);
        tokio::select! {
            answer = &mut sending => return Ok(answer),
            () = stop.cancelled() => {}
        }
        let last = LAST_ANSWER.min(self.client.timeout());
        tokio::time::timeout(last, sending).await.map_err(|_| ExportStopped)
    }

    /// Keeps a request that is not going to be accepted, however long that takes.
    async fn keep_letter(
        &self,
        (position, rows): (ArrivalPosition, usize),
        reason: String,
        request: &PackedRequest,
        stop: &CancellationToken,
    ) -> Result<(), ExportStopped> {
        let refused = RefusedRequest {
            signal: self.signal(),
            collector: self.status.collector(),
            position,
            rows,
            reason,
            message: request.message.clone(),
        };
        let mut pause = RetryPause::default();
        while let Err(error) = refused.keep(&self.parts.engine, self.parts.clock.now()).await {
            self.trouble(
                format!("no dead letter of what was refused can be kept: {error}"),
                false,
            );
            wait(pause.next(&self.parts.entropy), stop).await?;
        }
        tracing::warn!(signal = %refused.signal, rows, reason = refused.reason, "the collector refused telemetry: it is a dead letter");
        self.count(|status| {
            status.letters.add(1);
            status.clear_trouble();
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

/// Exponential back-off with jitter.
#[derive(Debug, Default)]
struct RetryPause {
    attempts: u32,
}

impl RetryPause {
    fn next(&mut self, entropy: &Entropy) -> Duration {
        let full = FIRST_PAUSE.saturating_mul(1 << self.attempts.min(6)).min(MAX_PAUSE);
        self.attempts = self.attempts.saturating_add(1);
        let [by_chance] = entropy.bytes::<1>();
        full - full / 2 * u32::from(by_chance) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_are_a_half_shorter_at_most() {
        for (byte, wanted) in [
            (0, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]),
            (255, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]),
        ] {
            let (entropy, mut pause) = (Entropy::new(move |bytes| bytes.fill(byte)), RetryPause::default());
            assert_eq!(wanted.map(|_| pause.next(&entropy).as_millis()), wanted);
        }
    }
}
