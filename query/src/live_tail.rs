//! Live tail: the log records or business messages that a filter lets through, as they become visible, as the text of an event stream.
//!
//! ```text
//! engine's ring ──> Follower (a task each): filter a block ─> its text, made once for all ─> channel of one ─> Tail ─> a socket
//!                     │ while the socket is slow: what is going to be forgotten is looked at, counted, passed
//!                     └ before that, if asked for: the backlog of the view that the position was taken with
//! ```
//!
//! # Events
//!
//! | event | data | when |
//! |---|---|---|
//! | (none) | a row as its list gives it | each row; `id` is the place behind it |
//! | `lagged` | `missed`, `resume`; `unseen` if it is not 0 | the reader was too slow |
//! | `gap` | `from`, `since`, `reason` | the stream cannot go on where it was to, or its backlog ended early |
//! | `error` | `detail` | the tail ends |
//!
//! A comment every [`HEARTBEAT`] carries the `id` of what was looked at, so that a filter that lets nothing through does not fall behind; who comes back
//! is told so at once when it has caught up. So does a comment after each stretch of the backlog in which nothing was found.
//!
//! # Invariants
//!
//! - Each row that the filter lets through comes once, or counts in `missed`; rows that went before the filter had looked at them count in
//!   `unseen`. Without a filter `unseen` is 0.
//! - A row outside the scope of who asks is nowhere, wherever the token comes from that it is gone on from.
//! - Backlog and live rows join without a seam: the view has exactly what came before the position.
//! - A follower that filters gives others their turn after each slice of rows, and ends there when its reader is gone.
//! - A follower holds one text of about [`TEXT`] bytes at a time, and the engine's rows only while it looks at them. A backlog holds its view
//!   and a slice of rows, no longer than [`QueryLimits::backlog`] however slow its reader is.
//!
//! # Not here
//!
//! Sockets and their deadlines (`mixer`), what is kept for followers ([`engine::TailFollower`]).

mod backlog;
mod event_text;
mod resume_token;
mod tail_filter;
mod tail_task;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, WeightedCache};
use model::filter::RawForm;
use model::{Clock, Table};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::event_text::EventTextCache;
use self::resume_token::ResumeToken;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use self::resume_token::fuzz_resume_token;
use self::tail_filter::TailFilter;
use self::tail_task::{StartPosition, TailStart, TailTask};
use crate::admission_gate::{AdmissionGate, close};
use crate::data_scope::DataScope;
use crate::query_caller::QueryCaller;
use crate::scan::ScanFilter;
use crate::session_pool::SessionPool;
use crate::snapshot_registry::SnapshotRegistry;
use crate::time_range::TimeRange;
use crate::{Error, ListQuery, QueryLimits, filter};

/// How long nothing is said, at most.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// About so many bytes of text are sent at once.
const TEXT: usize = 64 << 10;
/// A text of so many bytes is not copied into one with others.
const LARGE: usize = 16 << 10;
/// The time between two texts, so that many small batches are one.
const PACE: Duration = Duration::from_millis(20);
/// Arrivals looked at between two looks at the ring.
const AT_ONCE: usize = 64;

/// What all tails share.
pub(crate) struct TailService {
    engine: Arc<Engine>,
    clock: Clock,
    sessions: Arc<SessionPool>,
    gate: Arc<AdmissionGate>,
    snapshots: Arc<SnapshotRegistry>,
    places: Arc<Semaphore>,
    most: usize,
    texts: EventTextCache,
    /// How long one look at the store may take.
    timeout: Duration,
    /// How long a backlog may take.
    patience: Duration,
}

impl TailService {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        limits: &QueryLimits,
        clock: &Clock,
        sessions: &Arc<SessionPool>,
        gate: &Arc<AdmissionGate>,
        snapshots: &Arc<SnapshotRegistry>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            clock: clock.clone(),
            sessions: Arc::clone(sessions),
            gate: Arc::clone(gate),
            snapshots: Arc::clone(snapshots),
            places: Arc::new(Semaphore::new(limits.max_followers)),
            most: limits.max_followers,
            texts: EventTextCache(WeightedCache::new(
                usize::try_from(limits.tail_texts.get()).unwrap_or(usize::MAX),
            )),
            timeout: limits.timeout,
            patience: limits.backlog,
        }
    }

    /// What a look at the store finds that takes no longer than a query may.
    async fn with_timeout<T>(&self, look: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let found = tokio::time::timeout(self.timeout, look).await;
        found.unwrap_or_else(|_| Err(Error::Timeout(self.timeout.into())))
    }

    /// Waits until nobody follows; from then on nobody does.
    pub(crate) async fn close(&self) {
        close(&self.places, self.most).await;
    }

    fn id(&self) -> u32 {
        resume_token::store_tag(self.engine.store_id())
    }

    /// Prepares a tail; `resume` is the `id` of the last event that its reader had, and the parameter that said so.
    pub(crate) fn open(
        self: &Arc<Self>,
        (scope, caller): (&Arc<DataScope>, Option<&Arc<QueryCaller>>),
        query: &ListQuery,
        resume: Option<(&'static str, &str)>,
    ) -> Result<TailTask, Error> {
        let (asked, conditions) = (query.row_query(), query.conditions());
        let scoped = [scope.conditions(asked.table)?, conditions.clone()].concat();
        for (name, is_given, reason) in [
            ("until", asked.until.is_some(), "a tail has no end: leave it out"),
            (
                "offset",
                asked.offset.is_some(),
                "a tail has no pages: limit says how many of the newest rows come first",
            ),
            (
                "order",
                asked.order.is_some(),
                "a tail gives rows as they come: leave it out",
            ),
        ] {
            if is_given {
                return Err(Error::parameter(name, reason));
            }
        }
        let paging = filter::PageBounds::check(asked.limit, None, None)?;
        let resume = match (resume, asked.cursor.as_deref()) {
            (None, Some(cursor)) => Some(("cursor", cursor)),
            (resume, _) => resume,
        };
        let resume = resume.map(|(name, text)| ResumeToken::parse(text).ok_or_else(|| resume_token::refused(name)));
        let resume = resume.transpose()?;
        let window = TimeRange::resolve(asked.since, None, asked.flux_id, self.clock.now())?;
        let of_caller = caller.map(|caller| caller.follow()).transpose()?;
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(Error::TooManyFollowers(self.most));
        };
        let compiled = ScanFilter::new(self.sessions.template(), asked.table, &scoped)?;
        let (view, follow) = self.engine.follow(asked.table).map_err(|_| Error::NothingToFollow)?;
        let pinned = self.snapshots.pin(view.clone());
        let begin = match resume {
            Some(token) => StartPosition::Resume(token),
            None if asked.limit.is_some() => StartPosition::Newest(window, paging.limit),
            None if asked.since.is_some() => StartPosition::Since(window),
            None => StartPosition::Now,
        };
        let (out, texts) = mpsc::channel(1);
        Ok(TailTask {
            shown: TailRendering {
                table: asked.table,
                raw: asked.raw,
            },
            filter: TailFilter {
                all: scoped.is_empty(),
                scope: Arc::clone(scope),
                caller: caller.cloned(),
                conditions,
                compiled,
            },
            start: TailStart {
                begin,
                view: Some(view),
                pinned: Some(pinned),
            },
            follow,
            out,
            texts: Some(texts),
            missed: 0,
            unseen: 0,
            said: Instant::now(),
            tails: Arc::clone(self),
            _places: (place, of_caller),
        })
    }
}

/// Rows of a table, and how they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TailRendering {
    table: Table,
    raw: RawForm,
}

/// A running tail. Dropped, its task ends.
#[derive(Debug)]
pub struct LiveTail {
    texts: mpsc::Receiver<Bytes>,
    _task: AbortOnDropHandle<()>,
}

impl LiveTail {
    /// The next piece of the stream, whole events; `None` when the tail has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.texts.recv().await
    }
}
