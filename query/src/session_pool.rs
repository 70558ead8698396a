//! Memory pool of queries, and which query is at fault where it is not enough.
//!
//! ```text
//! query ── asks for more ──▶ would a pool of its own have it? ── no ──▶ the query needs too much
//!                              │ yes
//!                              ▼
//!                            has the shared one it? ── no ──▶ others have it now
//! ```
//!
//! # Invariants
//!
//! - A query takes from the shared pool; the one beside it, as large, has what this query alone has taken.
//! - A session is one query's at a time: it is another's only when nothing is left that could take memory of it.
//! - What lists hold that are being sent outlives their queries. It is counted by the shared pool, of which it never has more than
//!   half, but for small ones: queries run beside readers that take their time. The few batches of a statement that are on their way
//!   are counted too. Rows that snapshots retain (`snapshots`) may have the other half.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use parking_lot::Mutex;

/// Answers of so few bytes are always sent: readers that take their time keep nobody from a chart.
const SMALL: usize = 64 << 10;
/// How the refusal begins of what a query could have if it ran alone.
const CROWDED: &str = "other queries have the memory: ";

/// Whether others are why a query did not get what it needs.
pub(crate) fn is_contention(refusal: &str) -> bool {
    refusal.starts_with(CROWDED)
}

/// Sessions of queries that run at the same time, all like one, each with a pool that knows what its query has taken. They are used again.
#[derive(Debug)]
pub(crate) struct SessionPool {
    like: SessionState,
    /// The pool of answers that are being sent.
    answers: Arc<dyn MemoryPool>,
    most: usize,
    free: Mutex<Vec<Arc<SessionState>>>,
}

impl SessionPool {
    /// Keeps at most so many that nobody uses.
    pub(crate) fn new(like: SessionState, most: usize) -> Arc<Self> {
        let shared = Arc::clone(&like.runtime_env().memory_pool);
        Self::with(Arc::new(QueryPool::beside(shared, 2)), like, most)
    }

    /// Sessions of another kind, whose answers are in the same pool.
    pub(crate) fn beside(&self, like: SessionState) -> Arc<Self> {
        Self::with(Arc::clone(&self.answers), like, self.most)
    }

    fn with(answers: Arc<dyn MemoryPool>, like: SessionState, most: usize) -> Arc<Self> {
        Arc::new(Self {
            answers,
            like,
            most,
            free: Mutex::default(),
        })
    }

    /// What all of them are like.
    pub(crate) const fn template(&self) -> &SessionState {
        &self.like
    }

    /// One for a query.
    pub(crate) fn acquire_session(self: &Arc<Self>) -> Arc<QuerySession> {
        let free = self.free.lock().pop();
        Arc::new(QuerySession {
            state: free.unwrap_or_else(|| Arc::new(with_own_pool(&self.like))),
            home: Arc::clone(self),
        })
    }
}

/// The session of a query, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct QuerySession {
    state: Arc<SessionState>,
    home: Arc<SessionPool>,
}

impl Deref for QuerySession {
    type Target = SessionState;

    fn deref(&self) -> &SessionState {
        &self.state
    }
}

impl QuerySession {
    /// Counts so many bytes as memory of queries, for an answer that holds them beyond its query.
    pub(crate) fn reserve_answer(&self, bytes: usize) -> Result<MemoryReservation> {
        let held = MemoryConsumer::new("answer").register(&self.home.answers);
        if bytes <= SMALL {
            held.grow(bytes);
            return Ok(held);
        }
        held.try_grow(bytes)
            .map_err(|error| match self.home.answers.memory_limit() {
                MemoryLimit::Finite(most) if bytes <= most => contention_error(error),
                _ => error,
            })?;
        Ok(held)
    }
}

impl QuerySession {
    /// Memory that is counted against what queries may use.
    pub(crate) fn memory(&self, consumer: &str) -> MemoryReservation {
        MemoryConsumer::new(consumer).register(&self.runtime_env().memory_pool)
    }

    /// Counts so many bytes that are on their way to who reads an answer, and refuses nothing: there are few of them, and whoever asks
    /// for memory meanwhile finds them taken.
    pub(crate) fn reserve_in_flight(&self, bytes: usize) -> MemoryReservation {
        let pool = &self.home.like.runtime_env().memory_pool;
        let counted = MemoryConsumer::new("rows of an answer").register(pool);
        counted.grow(bytes);
        counted
    }
}

impl Drop for QuerySession {
    fn drop(&mut self) {
        // Who still has a reservation, or what makes one, as the thread of a query that was ended, may take memory a moment later.
        let env = self.state.runtime_env();
        if Arc::strong_count(env) > 1 || Arc::strong_count(&env.memory_pool) > 1 {
            return;
        }
        let mut free = self.home.free.lock();
        if free.len() < self.home.most {
            free.push(Arc::clone(&self.state));
        }
    }
}

fn with_own_pool(like: &SessionState) -> SessionState {
    let env = like.runtime_env();
    let env = RuntimeEnv {
        memory_pool: Arc::new(QueryPool::beside(Arc::clone(&env.memory_pool), 1)),
        ..env.as_ref().clone()
    };
    SessionStateBuilder::new_from_existing(like.clone())
        .with_runtime_env(Arc::new(env))
        .build()
}

/// The refusal of what would be had if others did not have it.
fn contention_error(refusal: DataFusionError) -> DataFusionError {
    match refusal {
        DataFusionError::ResourcesExhausted(text) if !is_contention(&text) => {
            DataFusionError::ResourcesExhausted(format!("{CROWDED}{text}"))
        }
        other => other,
    }
}

/// The pool of one query, or of all answers that are being sent.
#[derive(Debug)]
struct QueryPool {
    shared: Arc<dyn MemoryPool>,
    /// What it may have of it.
    alone: FairSpillPool,
}

impl QueryPool {
    /// A pool of one of so many parts of another.
    fn beside(shared: Arc<dyn MemoryPool>, parts: usize) -> Self {
        let size = match shared.memory_limit() {
            MemoryLimit::Finite(size) => size,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self {
            shared,
            alone: FairSpillPool::new(size / parts),
        }
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        self.shared.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.alone.register(consumer);
        self.shared.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.alone.unregister(consumer);
        self.shared.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.alone.grow(reservation, additional);
        self.shared.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.alone.shrink(reservation, shrink);
        self.shared.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.alone.try_grow(reservation, additional)?;
        self.shared.try_grow(reservation, additional).map_err(|error| {
            self.alone.shrink(reservation, additional);
            contention_error(error)
        })
    }

    /// What the query has taken.
    fn reserved(&self) -> usize {
        self.alone.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.alone.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::limits::QueryLimits;

    fn sessions() -> Arc<SessionPool> {
        let threads = crate::admission_gate::QueryRuntimes::new(1).unwrap();
        let session = crate::query_scan::new_session_state(&QueryLimits::default(), threads.of_typed().unwrap());
        SessionPool::new(session.unwrap(), 2)
    }

    #[test]
    fn a_session_is_not_used_again_while_something_can_take_memory_of_it() {
        let sessions = sessions();
        let one = sessions.acquire_session();
        let thread = MemoryConsumer::new("a thread").register(&one.runtime_env().memory_pool);
        drop(one);
        thread.try_grow(1 << 20).unwrap();
        assert_eq!(sessions.acquire_session().runtime_env().memory_pool.reserved(), 0);

        let one = sessions.acquire_session();
        let env = Arc::clone(one.runtime_env());
        drop(one);
        let task = MemoryConsumer::new("a task").register(&env.memory_pool);
        task.try_grow(1 << 20).unwrap();
        assert_eq!(sessions.acquire_session().runtime_env().memory_pool.reserved(), 0);
    }

    #[test]
    fn what_an_answer_holds_stays_counted_and_its_session_is_used_again() {
        let sessions = sessions();
        let one = sessions.acquire_session();
        let held = one.reserve_answer(1 << 20).unwrap();
        drop(one);
        assert_eq!(sessions.free.lock().len(), 1);
        assert_eq!(sessions.acquire_session().runtime_env().memory_pool.reserved(), 0);
        let shared = &sessions.template().runtime_env().memory_pool;
        assert_eq!(shared.reserved(), 1 << 20);
        drop(held);
        assert_eq!(shared.reserved(), 0);
    }
}
