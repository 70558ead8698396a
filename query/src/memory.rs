//! The memory that queries share, and who is at fault where it is not enough.
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
//! - A session is one query's at a time, and the next one's when nothing of that query is left.

use std::fmt;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use parking_lot::Mutex;

/// How the refusal begins of what a query could have if it ran alone.
const CROWDED: &str = "other queries have the memory: ";

/// Whether others are why a query did not get what it needs.
pub(crate) fn is_crowded(refusal: &str) -> bool {
    refusal.starts_with(CROWDED)
}

/// Sessions of queries that run at the same time, all like one, each with a pool that knows what its query has taken. They are used again.
#[derive(Debug)]
pub(crate) struct Sessions {
    like: SessionState,
    most: usize,
    kept: Mutex<Vec<Arc<SessionState>>>,
}

impl Sessions {
    /// Keeps at most so many.
    pub(crate) fn new(like: SessionState, most: usize) -> Arc<Self> {
        Arc::new(Self {
            like,
            most,
            kept: Mutex::default(),
        })
    }

    /// What all of them are like.
    pub(crate) const fn like(&self) -> &SessionState {
        &self.like
    }

    /// One for a query.
    pub(crate) fn one(&self) -> Arc<SessionState> {
        let mut kept = self.kept.lock();
        if let Some(free) = kept.iter().find(|session| is_free(session)) {
            return Arc::clone(free);
        }
        let made = Arc::new(with_own_pool(&self.like));
        if kept.len() < self.most {
            kept.push(Arc::clone(&made));
        }
        made
    }
}

/// Whether nobody has the session any more, and nobody has or could take memory of it: neither a plan that was broken off nor a
/// slow reader of rows.
fn is_free(session: &Arc<SessionState>) -> bool {
    let env = session.runtime_env();
    Arc::strong_count(session) == 1 && Arc::strong_count(env) == 1 && Arc::strong_count(&env.memory_pool) == 1
}

fn with_own_pool(like: &SessionState) -> SessionState {
    let env = like.runtime_env();
    let env = RuntimeEnv {
        memory_pool: Arc::new(QueryPool::beside(Arc::clone(&env.memory_pool))),
        ..env.as_ref().clone()
    };
    SessionStateBuilder::new_from_existing(like.clone())
        .with_runtime_env(Arc::new(env))
        .build()
}

/// The pool of one query.
#[derive(Debug)]
struct QueryPool {
    shared: Arc<dyn MemoryPool>,
    alone: FairSpillPool,
}

impl QueryPool {
    fn beside(shared: Arc<dyn MemoryPool>) -> Self {
        let size = match shared.memory_limit() {
            MemoryLimit::Finite(size) => size,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self {
            shared,
            alone: FairSpillPool::new(size),
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
            match error {
                DataFusionError::ResourcesExhausted(text) => {
                    DataFusionError::ResourcesExhausted(format!("{CROWDED}{text}"))
                }
                other => other,
            }
        })
    }

    /// What the query has taken.
    fn reserved(&self) -> usize {
        self.alone.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.shared.memory_limit()
    }
}
