//! The task behind one tail: takes new rows, filters them, sends them, counts what its reader is too slow for.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use engine::{ArrivalPosition, ReadView, TailArrival, TailFollower};
use model::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::backlog::TailBacklog;
use super::event_text::{self, TailBlock, blocks};
use super::resume_token::ResumeToken;
use super::tail_filter::TailFilter;
use super::{AT_ONCE, HEARTBEAT, LARGE, LiveTail, PACE, TEXT, TailRendering, TailService};
use crate::admission_gate::{QueryClass, QueryRuntimes};
use crate::snapshot_registry::PinnedSnapshot;
use crate::time_range::TimeRange;
use crate::{Error, cursor};

/// Where a tail begins.
pub(super) enum StartPosition {
    Now,
    /// With all rows of a window first.
    Since(TimeRange),
    /// With the newest rows of a window first.
    Newest(TimeRange, usize),
    Resume(ResumeToken),
}

/// Why a tail ends.
enum TailExit {
    /// Its reader is gone.
    Gone,
    Failed(Error),
}

impl From<Error> for TailExit {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Before the first row of a window.
const fn start(window: TimeRange) -> cursor::KeysetPosition {
    cursor::KeysetPosition {
        ts: window.since.micros(),
        hash: 0,
        seen: 0,
    }
}

/// The task behind a tail.
pub(crate) struct TailTask {
    pub(super) shown: TailRendering,
    pub(super) tails: Arc<TailService>,
    pub(super) follow: TailFollower,
    pub(super) start: TailStart,
    pub(super) filter: TailFilter,
    pub(super) out: mpsc::Sender<Bytes>,
    pub(super) texts: Option<mpsc::Receiver<Bytes>>,
    pub(super) missed: u64,
    pub(super) unseen: u64,
    /// When something was said last.
    pub(super) said: Instant,
    /// One of all, and one of its caller.
    pub(super) _places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// Where a tail begins, and the view of that moment.
pub(super) struct TailStart {
    pub(super) begin: StartPosition,
    pub(super) view: Option<ReadView>,
    /// As long as the view is held.
    pub(super) pinned: Option<PinnedSnapshot>,
}

impl TailTask {
    /// Starts the task.
    pub(crate) fn start(mut self, threads: &QueryRuntimes, stop: CancellationToken) -> Result<LiveTail, Error> {
        let texts = self.texts.take().ok_or(Error::Closed)?;
        let task = threads.spawn(QueryClass::Typed, async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                ended = self.run() => if let Err(TailExit::Failed(error)) = ended {
                    tracing::warn!(%error, "a tail ended early");
                    self.release_view();
                    let _ = self.send_text(event_text::error(&error)).await;
                }
            }
        })?;
        Ok(LiveTail { texts, _task: task })
    }

    async fn run(&mut self) -> Result<(), TailExit> {
        let id = self.tails.id();
        // What the view has came before this place.
        let end = self.follow.position();
        match std::mem::replace(&mut self.start.begin, StartPosition::Now) {
            StartPosition::Now => {}
            StartPosition::Since(window) => {
                let backlog = self.backlog(window, start(window));
                self.send_backlog(backlog, None).await?;
            }
            StartPosition::Newest(window, count) => {
                let backlog = self.backlog(window, start(window));
                self.send_backlog(backlog, Some(count)).await?;
            }
            StartPosition::Resume(token) if token.store == id && self.follow.seek(token.position()) => {
                if let Some(after) = token.after {
                    self.resume_backlog(token, after, end).await?;
                }
            }
            StartPosition::Resume(token) => {
                let is_ours = token.store == id && token.position() < self.follow.position();
                let oldest = is_ours.then(|| self.follow.seek_oldest()).flatten();
                self.gap(
                    Some(token),
                    oldest.as_deref(),
                    "the rows in between are no longer available",
                )
                .await?;
            }
        }
        self.release_view();
        self.send_lagged().await?;
        self.send_text(event_text::hello(&self.token())).await?;
        self.live().await
    }

    fn release_view(&mut self) {
        (self.start.view, self.start.pinned) = (None, None);
    }

    fn token(&self) -> ResumeToken {
        ResumeToken::live(self.tails.id(), self.follow.position())
    }

    fn backlog(&mut self, window: TimeRange, after: cursor::KeysetPosition) -> TailBacklog {
        let boundary = ResumeToken::live(self.tails.id(), self.follow.position());
        TailBacklog::new(
            self.start.view.take().unwrap_or_else(|| self.tails.engine.view()),
            (self.shown, window),
            (
                (Arc::clone(&self.filter.scope), self.filter.caller.clone()),
                self.filter.conditions.clone(),
            ),
            boundary,
            after,
            Instant::now() + self.tails.patience,
        )
    }

    /// Goes on with a backlog from which rows have been given, without what came since it began: that is live. Only what came
    /// up to `end` is in the view: a row that came later must not be left out in place of one like it.
    async fn resume_backlog(
        &mut self,
        token: ResumeToken,
        after: cursor::KeysetPosition,
        end: ArrivalPosition,
    ) -> Result<(), TailExit> {
        let window = TimeRange {
            since: after.moment(),
            ..TimeRange::ALL
        };
        let mut backlog = self.backlog(window, after);
        loop {
            let taken = self.follow.take(AT_ONCE);
            if taken.lost > 0 {
                break;
            }
            if taken.arrivals.is_empty() || self.follow.position() >= end {
                if self.follow.seek(token.position()) {
                    return self.send_backlog(backlog, None).await;
                }
                break;
            }
            for arrival in taken.arrivals.iter().filter(|arrival| arrival.lsn < end.lsn) {
                for piece in &arrival.pieces {
                    backlog.exclude_rows(&piece.batch)?;
                }
            }
            // Those behind the end are only passed: this ends the loop.
            for arrival in &taken.arrivals {
                self.follow.pass(arrival, arrival.rows);
            }
            tokio::task::yield_now().await;
        }
        drop(backlog);
        let oldest = self.follow.seek_oldest();
        let reason = "the rest of the backlog can no longer be distinguished from later rows";
        self.gap(Some(token), oldest.as_deref(), reason).await
    }

    /// Gives a backlog, or the newest rows of it, oldest row first, as far as that is done in time.
    async fn send_backlog(&mut self, mut backlog: TailBacklog, newest: Option<usize>) -> Result<(), TailExit> {
        let pinned = self.start.pinned.take();
        let too_old = pinned
            .as_ref()
            .map(|pinned| pinned.too_old().clone())
            .unwrap_or_default();
        let given = tokio::select! {
            biased;
            () = too_old.cancelled() => Err(TailExit::Failed(self.tails.snapshots.too_old())),
            given = self.send_slices(&mut backlog, newest) => given,
        };
        let reason = match given {
            Err(TailExit::Failed(Error::Timeout(_))) if backlog.is_late() => {
                "the backlog took too long: the rest of it is left out"
            }
            Err(TailExit::Failed(Error::Timeout(_))) => {
                "rows of the backlog take longer to find than query.timeout allows: the rest of it is left out"
            }
            Err(TailExit::Failed(error)) if error.is_caused_by_damage() => {
                "a data file of the backlog is damaged: the rest of the backlog is left out"
            }
            Err(TailExit::Failed(Error::SnapshotTooOld(_))) => {
                "rows that the backlog keeps in memory are in files by now and too many: the rest of it is left out"
            }
            given => return given,
        };
        let from = backlog.token();
        // While its reader takes the gap, nothing of the view is held.
        drop((backlog, pinned));
        self.gap(Some(from), None, reason).await
    }

    async fn send_slices(&mut self, backlog: &mut TailBacklog, newest: Option<usize>) -> Result<(), TailExit> {
        let tails = Arc::clone(&self.tails);
        if let Some(count) = newest {
            self.keep_up_during(backlog.keep_newest(&tails, count)).await?;
        }
        self.send_before_deadline(event_text::hello(&backlog.token()), backlog)
            .await?;
        while let Some(mut slice) = self.keep_up_during(backlog.slice(&tails)).await? {
            let mut is_found = false;
            while let Some((text, given)) = backlog.text(&mut slice) {
                self.send_before_deadline(text, backlog).await?;
                backlog.set_given(given);
                is_found = true;
            }
            drop(slice);
            if !is_found {
                self.send_before_deadline(event_text::heartbeat(&backlog.advance_past_slice()), backlog)
                    .await?;
            }
        }
        Ok(())
    }

    /// Hands a text of a backlog over before its time is up.
    async fn send_before_deadline(&mut self, text: Bytes, backlog: &TailBacklog) -> Result<(), TailExit> {
        let said = timeout_at(backlog.deadline(), self.send_text(text)).await;
        said.unwrap_or_else(|_| Err(Error::Timeout(self.tails.timeout.into()).into()))
    }

    /// Waits for something while the ring moves on; says now and then that it does.
    async fn keep_up_during<T>(&mut self, work: impl Future<Output = Result<T, Error>>) -> Result<T, TailExit> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.map_err(TailExit::Failed),
                () = self.out.closed() => return Err(TailExit::Gone),
                () = sleep_until(self.said + HEARTBEAT) => {
                    // Not waited for: the work may hold a place.
                    let _ = self.out.try_send(event_text::keep_alive());
                    self.said = Instant::now();
                }
                () = self.follow.news() => {}
            }
            self.skip_expiring().await?;
        }
    }

    async fn gap(
        &mut self,
        from: Option<ResumeToken>,
        oldest: Option<&TailArrival>,
        reason: &str,
    ) -> Result<(), TailExit> {
        self.release_view();
        let times = oldest.into_iter().flat_map(|arrival| &arrival.pieces);
        let since: Option<Timestamp> = times.map(|piece| piece.min_ts).min();
        let since = since.unwrap_or_else(|| self.tails.clock.now());
        self.send_text(event_text::gap(&self.token(), from.as_ref(), since, reason))
            .await
    }

    /// Says what was missed up to the position; what is missed while that is being said too.
    async fn send_lagged(&mut self) -> Result<(), TailExit> {
        while self.missed + self.unseen > 0 {
            let (missed, unseen) = (std::mem::take(&mut self.missed), std::mem::take(&mut self.unseen));
            self.send_text(event_text::lagged(&self.token(), missed, unseen))
                .await?;
        }
        Ok(())
    }

    async fn live(&mut self) -> Result<(), TailExit> {
        // Who comes back is told that it has caught up, even if its filter let none of what came meanwhile through.
        let mut behind = Some(self.follow.position());
        loop {
            self.send_lagged().await?;
            let taken = self.follow.take(AT_ONCE);
            if taken.lost > 0 {
                self.count_lost(taken.lost);
            } else if taken.arrivals.is_empty() {
                if behind.take().is_some_and(|began| began != self.follow.position()) {
                    self.send_text(event_text::heartbeat(&self.token())).await?;
                } else {
                    self.wait().await?;
                }
            } else {
                let text = self.text_of(&taken.arrivals).await?;
                drop(taken);
                match text {
                    Some(text) => self.send_text(text).await?,
                    None => tokio::task::yield_now().await,
                }
            }
        }
    }

    /// The text of the next rows, as much as is sent at once; `None` if the filter lets none through.
    async fn text_of(&mut self, arrivals: &[Arc<TailArrival>]) -> Result<Option<Bytes>, Error> {
        let mut text = BytesMut::new();
        for arrival in arrivals {
            let left: Vec<TailBlock> = blocks(arrival, self.follow.position()).collect();
            for block in left {
                let (rows, kept) = self.filter.matching_rows(&block.rows, block.skip).await?;
                if rows > 0 {
                    let rendered = self.tails.texts.of(self.tails.id(), self.shown, arrival, &block);
                    if rows == block.rows.num_rows() && text.is_empty() && rendered.all().len() >= LARGE {
                        self.follow.pass(arrival, block.end());
                        return Ok(Some(rendered.all()));
                    }
                    rendered.copy(&mut text, block.skip, kept.as_ref());
                }
                self.follow.pass(arrival, block.end());
                if text.len() >= TEXT {
                    return Ok(Some(text.freeze()));
                }
            }
        }
        Ok((!text.is_empty()).then(|| text.freeze()))
    }

    /// Looks at rows that are going to be forgotten before the reader takes them, and passes them, for a moment: more of them are
    /// forgotten only with news, and a filter that is slower than these must not keep the task from all else. What was looked at when
    /// this is ended early is not counted, and not passed.
    async fn skip_expiring(&mut self) -> Result<(), Error> {
        let end = Instant::now() + PACE;
        loop {
            let taken = self.follow.take_expiring(AT_ONCE);
            self.count_lost(taken.lost);
            if taken.arrivals.is_empty() {
                return Ok(());
            }
            for arrival in &taken.arrivals {
                let left: Vec<TailBlock> = blocks(arrival, self.follow.position()).collect();
                let mut missed = 0;
                for block in left {
                    missed += self.filter.matching_rows(&block.rows, block.skip).await?.0 as u64;
                }
                self.missed += missed;
                self.follow.pass(arrival, arrival.rows);
                if Instant::now() >= end {
                    return Ok(());
                }
            }
        }
    }

    fn count_lost(&mut self, rows: u64) {
        if self.filter.all {
            self.missed += rows;
        } else {
            self.unseen += rows;
        }
    }

    /// Hands a text over. While its reader takes its time, what is going to be forgotten is counted.
    async fn send_text(&mut self, text: Bytes) -> Result<(), TailExit> {
        let out = self.out.clone();
        loop {
            tokio::select! {
                biased;
                place = out.reserve() => {
                    place.map_err(|_| TailExit::Gone)?.send(text);
                    self.said = Instant::now();
                    return Ok(());
                }
                () = self.follow.news() => {}
            }
            self.skip_expiring().await?;
        }
    }

    /// Waits for news, not sooner than a moment after the last text; says something now and then.
    async fn wait(&mut self) -> Result<(), TailExit> {
        tokio::select! {
            biased;
            () = self.out.closed() => return Err(TailExit::Gone),
            () = sleep_until(self.said + HEARTBEAT) => {}
            () = self.follow.news() => {
                sleep_until(self.said + PACE).await;
                return Ok(());
            }
        }
        self.send_text(event_text::heartbeat(&self.token())).await
    }
}
