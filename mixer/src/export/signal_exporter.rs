//! The export of one signal: rows from the log become requests, which are sent until they are settled.
//!
//! # Invariants
//!
//! - The same bytes are sent again: a collector that deduplicates by content can tell.
//! - A wait grows from [`super::ExportSettings::first_pause`] to a minute, by chance a half shorter, unless the collector says how long.
//! - Rows are sent and settled in their order, also those of a request that had to be divided.
//! - What is denied, not taken for now, or alone and never answered waits, and costs nothing but time.
//! - What is refused for good is a dead letter at once while fewer than [`BELIEVED`] requests became letters since the signal had an
//!   acceptance; after that one at most in [`LETTER_PAUSE`], and the next one is sent again until then. So settings that are wrong cost
//!   little, and nothing that is refused stops what is behind it for good. Of what was one request [`LETTERS_OF_ONE`] count once. What was accepted in part has its letter in any case.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::{ArrivalPosition, LogEntry, LogFollower};
use model::{Table, Timestamp};
use tokio_util::sync::CancellationToken;

use super::ExportParts;
use super::answer::{ExportAnswer, is_taken, rejection};
use super::client::CollectorClient;
use super::letters::{LetterFiles, RefusedRequest};
use super::pack::{PackedRequest, RequestRows};
use super::refusal_log::RefusalLog;
use super::retry_pause::{ExportStopped, RetryPause, wait};
use super::status::{ExportStatus, SignalStatus};

/// So many bytes of the log are read at once.
const STRETCH: u64 = 2 << 20;
/// The least wait, whatever the collector asks for.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// So often what was one request is divided because something of it is wrong: enough to find a bad row or two of the most that a
/// request has, and no flood where every row is.
const MAX_DIVISIONS: usize = 32;
/// So many dead letters of what was one request count as one: what so many divisions leave.
const LETTERS_OF_ONE: usize = MAX_DIVISIONS + 1;
/// A request of more rows that had no answer so many times is divided, whatever else was answered in between: a collector that dies of
/// it is away for a while each time.
const MAX_UNANSWERED: u32 = 3;
/// Rows that could not be encoded so many times are divided.
const MAX_UNENCODED: u32 = 3;
/// So many requests become dead letters at once before one is accepted again.
const BELIEVED: usize = 16;
/// And then one in this time.
const LETTER_PAUSE: Duration = Duration::from_secs(60);

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
    /// When the last one did.
    last_letter: Option<Timestamp>,
}

/// What became of the parts of what was one request.
#[derive(Debug, Default)]
struct RequestHistory {
    /// So often something of it was wrong and it was divided.
    divisions: usize,
    /// So many parts of it were refused and became dead letters.
    letters: usize,
}

/// The rows of a request: their place in the log, and how many they are.
#[derive(Debug, Clone, Copy)]
struct RequestPlace {
    range: (ArrivalPosition, ArrivalPosition),
    rows: usize,
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
            letters: 0,
            last_letter: None,
        }
    }

    /// Exports until it is told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut pause = self.pause();
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return,
                next = self.follower.next(STRETCH) => next,
            };
            let exported = match next {
                Ok(entries) => {
                    pause = self.pause();
                    self.export_all(entries.into(), &stop).await
                }
                Err(error) => {
                    self.trouble(error.to_string(), false);
                    // What waits, if anything does, cannot be read: it waits at least since then.
                    let is_behind = self.follower.is_behind();
                    self.count(|status| {
                        let since = status.trouble().map(|trouble| trouble.since);
                        status.set_oldest(since.filter(|_| is_behind));
                    });
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
        let is_denied = is_denied || self.letters >= BELIEVED;
        let now = self.parts.clock.now();
        self.count(|status| status.set_trouble(reason, is_denied, now));
    }

    /// Sends rows until all of them are settled.
    async fn export_all(
        &mut self,
        mut waiting: VecDeque<LogEntry>,
        stop: &CancellationToken,
    ) -> Result<(), ExportStopped> {
        while let Some(rows) = RequestRows::take(&mut waiting) {
            self.export(rows, stop).await?;
        }
        self.count(|status| status.set_oldest(None));
        Ok(())
    }

    /// Sends what is one request, or was, until all of it is settled.
    async fn export(&mut self, rows: RequestRows, stop: &CancellationToken) -> Result<(), ExportStopped> {
        let (mut parts, mut history) = (vec![rows], RequestHistory::default());
        while let Some(part) = parts.pop() {
            if stop.is_cancelled() {
                return Err(ExportStopped);
            }
            let (rows, arrived) = (part.count(), part.arrived());
            self.count(|status| status.set_oldest(arrived));
            let Some(range) = part.range() else { continue };
            let (part, request) = self.pack(part, stop).await?;
            let is_over = match request {
                Some(request) => {
                    let place = RequestPlace { range, rows };
                    self.send(&request, place, &mut history, stop).await?
                }
                None => false,
            };
            if is_over {
                if self.settle(range.1).await && self.letters < BELIEVED {
                    self.count(SignalStatus::clear_trouble);
                }
            } else if let Ok([first, others]) = part.halve() {
                parts.extend([others, first]);
            }
        }
        Ok(())
    }

    /// Counts rows that the collector took.
    fn count_accepted(&mut self, rows: usize, rejected: u64) {
        self.letters = 0;
        let (rows, counted) = (rows as u64, rejected.min(rows as u64));
        self.count(|status| {
            status.rows.add(rows - counted);
            status.rejected.add(counted);
        });
    }

    /// The rows' request; none if they must be divided. One that cannot be encoded, which is a defect, is divided as well; a single row
    /// waits for a version that can.
    async fn pack(
        &self,
        rows: RequestRows,
        stop: &CancellationToken,
    ) -> Result<(RequestRows, Option<PackedRequest>), ExportStopped> {
        let (rows, mut pause, signal) = (Arc::new(rows), self.pause(), self.signal());
        let (compression, protocol) = (self.client.compression(), self.client.protocol());
        let mut failures = 0;
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
            failures += 1;
            if failures >= MAX_UNENCODED && rows.count() > 1 {
                let rows = Arc::into_inner(rows).ok_or(ExportStopped)?;
                return Ok((rows, None));
            }
            self.trouble(format!("rows cannot be encoded: {reason}"), true);
            wait(pause.next(&self.parts.entropy), stop).await?;
        }
    }

    /// Sends a request until it is accepted or a dead letter; false if it is to be divided, for which it has more than one row.
    async fn send(
        &mut self,
        request: &PackedRequest,
        place: RequestPlace,
        history: &mut RequestHistory,
        stop: &CancellationToken,
    ) -> Result<bool, ExportStopped> {
        let (mut pause, mut unanswered) = (self.pause(), 0);
        loop {
            self.count(|status| status.requests.add(1));
            let answer = self.client.send_to_the_end(request, stop).await?;
            unanswered += u32::from(matches!(answer, ExportAnswer::Unanswered { .. }));
            let is_invalid = matches!(answer, ExportAnswer::Invalid { .. });
            let is_divisible = match &answer {
                ExportAnswer::TooLarge { .. } => true,
                ExportAnswer::Invalid { .. } => history.divisions < MAX_DIVISIONS,
                ExportAnswer::Unanswered { .. } => unanswered >= MAX_UNANSWERED,
                _ => false,
            };
            if is_divisible && place.rows > 1 {
                history.divisions += usize::from(is_invalid);
                return Ok(false);
            }
            let is_refused = match &answer {
                ExportAnswer::Accepted { rejected, reason } if is_taken(*rejected, place.rows) => {
                    self.take_acceptance(request, place, (*rejected, reason), stop).await?;
                    return Ok(true);
                }
                ExportAnswer::Later { .. } | ExportAnswer::Unanswered { .. } | ExportAnswer::Denied { .. } => false,
                _ => true,
            };
            let is_denied = is_refused || matches!(answer, ExportAnswer::Denied { .. });
            let rejected = match &answer {
                ExportAnswer::Accepted { rejected, reason } => rejection(*rejected, reason),
                _ => None,
            };
            let is_rejected = rejected.is_some();
            let (said, wanted) = answer.into_reason();
            let mut reason = rejected.unwrap_or(said);
            if is_refused && self.is_believed(history) {
                match self.keep_letter(request, place, &reason, Some(&mut *history)).await {
                    Ok(()) => {
                        if is_rejected {
                            self.count(|status| status.rejected.add(place.rows as u64));
                        }
                        return Ok(true);
                    }
                    Err(error) => reason = error,
                }
            }
            self.trouble(reason, is_denied);
            let own = pause.next(&self.parts.entropy);
            // A collector that always says "at once" is asked as rarely as one that says nothing.
            let wanted = wanted.filter(|wanted| !wanted.is_zero());
            wait(wanted.map_or(own, |wanted| wanted.max(LEAST_PAUSE)), stop).await?;
            self.count(|status| status.retries.add(1));
        }
    }

    /// Counts what the collector took of a request, and keeps a letter if it was not all. Sent again it would come twice, so only the
    /// letter is tried again.
    async fn take_acceptance(
        &mut self,
        request: &PackedRequest,
        place: RequestPlace,
        (rejected, said): (u64, &str),
        stop: &CancellationToken,
    ) -> Result<(), ExportStopped> {
        self.count_accepted(place.rows, rejected);
        let Some(reason) = rejection(rejected, said) else {
            if self.refusals.is_news(said) {
                tracing::warn!(signal = %self.signal(), reason = said, "the collector accepted telemetry with a warning");
            }
            return Ok(());
        };
        let mut pause = self.pause();
        while let Err(error) = self.keep_letter(request, place, &reason, None).await {
            self.trouble(error, true);
            wait(pause.next(&self.parts.entropy), stop).await?;
        }
        Ok(())
    }

    /// Whether a request with this history becomes a dead letter now if it is refused.
    fn is_believed(&self, history: &RequestHistory) -> bool {
        let now = self.parts.clock.now();
        // Also after the clock was set back.
        let is_time = |at: Timestamp| now < at || now.since(at) >= LETTER_PAUSE;
        !history.letters.is_multiple_of(LETTERS_OF_ONE)
            || self.letters < BELIEVED
            || self.last_letter.is_none_or(is_time)
    }

    /// Keeps a request that is not going to be accepted, with what it was a part of, or of which a part was not; or why it could not be
    /// kept.
    async fn keep_letter(
        &mut self,
        request: &PackedRequest,
        RequestPlace { range, rows }: RequestPlace,
        reason: &str,
        refused: Option<&mut RequestHistory>,
    ) -> Result<(), String> {
        let signal = self.signal();
        let letter = RefusedRequest {
            signal,
            collector: self.status.collector(),
            range,
            rows,
            is_partial: refused.is_none(),
            reason: reason.to_owned(),
            message: request.message.clone(),
        };
        let kept = letter.keep(&self.parts.engine, &self.files, self.parts.clock.now());
        kept.await
            .map_err(|error| format!("no dead letter of what was refused can be kept: {error}"))?;
        let now = self.parts.clock.now();
        if let Some(history) = refused {
            self.letters += usize::from(history.letters.is_multiple_of(LETTERS_OF_ONE));
            history.letters += 1;
            self.last_letter = Some(now);
        }
        if self.letters >= BELIEVED {
            self.trouble(format!("nothing is accepted, the last time: {reason}"), true);
        }
        if let Some(letters) = self.refusals.count_letter(now) {
            tracing::warn!(%signal, letters, rows, reason, "the collector refused telemetry: it is in dead letters");
        }
        self.count(|status| status.letters.add(1));
        Ok(())
    }

    /// What was accepted or kept needs no place in the log any more. Whether that could be written down: if not, it counts until the
    /// process ends, and is tried again with the next one.
    async fn settle(&self, end: ArrivalPosition) -> bool {
        let settled = self.follower.settle(end).await;
        if let Err(error) = &settled {
            let reason = format!("how far telemetry was exported cannot be written down: {error}");
            self.trouble(reason, false);
        }
        settled.is_ok()
    }
}
