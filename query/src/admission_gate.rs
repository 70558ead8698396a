//! Admission gate: how many queries run at once, and on which threads.
//!
//! # Invariants
//!
//! - At most so many queries run as there are places; others wait a moment and are then refused. A place is given back when the
//!   query's task is really gone.
//! - SQL statements never have all of the places, unless there is one only, and they run on threads of their own: what typed
//!   queries ask is bounded by its form, what a statement asks is not, and an operator of a plan may keep its thread for a while. So
//!   lists, charts and tails are answered beside statements of any weight.
//! - What tails begin with waits as long as it takes, in a queue of its own: at most a quarter of the places are taken by it or asked
//!   for, however many tails come at once.
//! - A caller ([`QueryCaller`]) has at most its own places, for which its queries wait behind each other alone. Its second query and those after it
//!   never have the last quarter of all places: whoever runs nothing finds one there. A caller that may have all places is not told
//!   apart: that is so where there is one only, or the configuration says so.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use crate::Error;
use crate::query_caller::{CallerPlace, QueryCaller, statement_share};

/// How long a query waits for a place.
const PATIENCE: Duration = Duration::from_secs(1);
/// The stack of a query thread: the planning of SQL recurses, as deep as the bounds of a statement let it.
pub(crate) const STACK: usize = 16 << 20;

/// What a query is, for the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryClass {
    /// Lists, charts, traces.
    Typed,
    /// SQL, carried out or only planned.
    Statement,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AdmissionGate {
    all: Arc<Semaphore>,
    statements: Arc<Semaphore>,
    /// Of callers that have a query running.
    further: Arc<Semaphore>,
    tails: Semaphore,
    /// How many `all` and `statements` had.
    places: (usize, usize),
    patience: Duration,
}

/// The right to run.
#[derive(Debug)]
pub(crate) struct QueryPermit {
    _one_of_all: OwnedSemaphorePermit,
    _of_statements: Option<OwnedSemaphorePermit>,
    _of_caller: Option<CallerPlace>,
}

impl AdmissionGate {
    /// A gate with so many places, for which nobody waits longer than the timeout of a query.
    pub(crate) fn new(places: usize, timeout: Duration) -> Self {
        let of_statements = statement_share(places);
        Self {
            all: Arc::new(Semaphore::new(places)),
            statements: Arc::new(Semaphore::new(of_statements)),
            further: Arc::new(Semaphore::new(of_statements)),
            tails: Semaphore::new(places.div_ceil(4)),
            places: (places, of_statements),
            patience: PATIENCE.min(timeout),
        }
    }

    /// A place, if one becomes free in time.
    pub(crate) async fn enter(
        &self,
        class: QueryClass,
        caller: Option<&Arc<QueryCaller>>,
    ) -> Result<QueryPermit, Error> {
        // Whoever waits here holds none of the places of all.
        let of_caller = match caller.filter(|caller| caller.most() < self.places.0) {
            None => None,
            Some(caller) => Some(match class {
                QueryClass::Typed => caller.enter().await?,
                QueryClass::Statement => caller.enter_statement().await?,
            }),
        };
        let (all, of_statements) = self.places;
        let running = match class {
            QueryClass::Typed => all,
            QueryClass::Statement => of_statements,
        };
        match tokio::time::timeout(self.patience, self.place(class, of_caller)).await {
            Ok(place) => place,
            Err(_) if class == QueryClass::Typed => Err(Error::Busy { running }),
            Err(_) => Err(Error::BusyWithStatements { running }),
        }
    }

    async fn place(&self, class: QueryClass, mut of_caller: Option<CallerPlace>) -> Result<QueryPermit, Error> {
        if let Some(CallerPlace { turn: turn @ None, .. }) = &mut of_caller {
            *turn = Some(owned(&self.further).await?);
        }
        let of_statements = match class {
            QueryClass::Typed => None,
            QueryClass::Statement => Some(owned(&self.statements).await?),
        };
        Ok(QueryPermit {
            _one_of_all: owned(&self.all).await?,
            _of_statements: of_statements,
            _of_caller: of_caller,
        })
    }

    /// A place for what a tail begins with, however long it takes.
    pub(crate) async fn enter_tail(&self) -> Result<[SemaphorePermit<'_>; 2], Error> {
        let turn = self.tails.acquire().await.map_err(|_| Error::Closed)?;
        let place = self.all.acquire().await.map_err(|_| Error::Closed)?;
        Ok([turn, place])
    }

    /// How many places are free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// Waits until all places are free; from then on nobody gets one.
    pub(crate) async fn close(&self) {
        close(&self.all, self.places.0).await;
        self.statements.close();
        self.further.close();
        self.tails.close();
    }
}

/// Waits until all places are free; from then on nobody gets one.
pub(crate) async fn close(places: &Semaphore, all: usize) {
    if let Ok(permits) = places.acquire_many(u32::try_from(all).unwrap_or(u32::MAX)).await {
        permits.forget();
        places.close();
    }
}

async fn owned(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
    let place = Arc::clone(places).acquire_owned().await;
    place.map_err(|_| Error::Closed)
}

/// The threads of queries: as many for typed queries as for statements. These stand back where the processors are busy, so that what
/// comes in is stored beside the longest statement. Scans of both run on those of typed queries.
#[derive(Debug)]
pub(crate) struct QueryRuntimes {
    typed: Option<Runtime>,
    statements: Option<Runtime>,
}

impl QueryRuntimes {
    pub(crate) fn new(count: usize) -> Result<Self, Error> {
        let runtime = |name, niceness: Option<engine::ThreadNiceness>| {
            tokio::runtime::Builder::new_multi_thread()
                .on_thread_start(move || {
                    if let Some(niceness) = niceness {
                        engine::lower_thread_priority(niceness);
                    }
                })
                .worker_threads(count.max(1))
                .thread_stack_size(STACK)
                .enable_time()
                .thread_name(name)
                .build()
        };
        Ok(Self {
            typed: Some(runtime("query", None)?),
            statements: Some(runtime("statement", Some(engine::ThreadNiceness::Bulk))?),
        })
    }

    /// Those of typed queries.
    pub(crate) fn of_typed(&self) -> Result<Handle, Error> {
        let runtime = self.typed.as_ref().ok_or(Error::Closed)?;
        Ok(runtime.handle().clone())
    }

    /// Starts work on the threads of a class, which ends with who waits for it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        class: QueryClass,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<AbortOnDropHandle<T>, Error> {
        let runtime = match class {
            QueryClass::Typed => &self.typed,
            QueryClass::Statement => &self.statements,
        };
        let runtime = runtime.as_ref().ok_or(Error::Closed)?;
        Ok(AbortOnDropHandle::new(runtime.spawn(work)))
    }
}

impl Drop for QueryRuntimes {
    fn drop(&mut self) {
        // Waiting for threads is not allowed where this may run; who closes has waited for the queries.
        for runtime in [self.typed.take(), self.statements.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn statements_never_have_all_places_but_where_there_is_one() {
        let shares: Vec<usize> = [1, 2, 3, 4, 5, 8, 100].map(statement_share).to_vec();
        assert_eq!(shares, [1, 1, 2, 3, 3, 6, 75]);
    }

    #[tokio::test]
    async fn a_statement_waits_for_other_statements_and_typed_queries_do_not() {
        let gate = AdmissionGate::new(4, Duration::from_millis(10));
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(gate.enter(QueryClass::Statement, None).await.unwrap());
        }
        let refused = gate.enter(QueryClass::Statement, None).await;
        assert!(
            matches!(refused, Err(Error::BusyWithStatements { running: 3 })),
            "{refused:?}"
        );
        let typed = gate.enter(QueryClass::Typed, None).await.unwrap();
        let refused = gate.enter(QueryClass::Typed, None).await;
        assert!(matches!(refused, Err(Error::Busy { running: 4 })), "{refused:?}");
        // Who waited and was refused left nothing behind.
        drop((typed, running));
        assert_eq!((gate.free(), gate.statements.available_permits()), (4, 3));
        gate.close().await;
        assert!(matches!(gate.enter(QueryClass::Typed, None).await, Err(Error::Closed)));
        assert!(matches!(
            gate.enter(QueryClass::Statement, None).await,
            Err(Error::Closed)
        ));
    }

    #[tokio::test]
    async fn callers_that_have_queries_running_leave_a_place_to_one_that_has_none() {
        let gate = AdmissionGate::new(8, Duration::from_millis(10));
        let callers: Vec<_> = (0..3)
            .map(|_| QueryCaller::new(4, 1, Duration::from_millis(10)))
            .collect();
        let mut running = Vec::new();
        for _ in 0..4 {
            running.push(gate.enter(QueryClass::Typed, Some(&callers[0])).await.unwrap());
        }
        let beyond = gate.enter(QueryClass::Typed, Some(&callers[0])).await;
        assert!(matches!(beyond, Err(Error::CallerBusy { running: 4 })), "{beyond:?}");
        // Its first is not among the six that are of second queries.
        for _ in 0..4 {
            running.push(gate.enter(QueryClass::Typed, Some(&callers[1])).await.unwrap());
        }
        assert_eq!(gate.free(), 0);
        running.truncate(7);
        running.push(gate.enter(QueryClass::Statement, Some(&callers[2])).await.unwrap());
        running.remove(1);
        let further = gate.enter(QueryClass::Typed, Some(&callers[2])).await;
        assert!(further.is_ok(), "a second query of another may have it: {further:?}");
        drop((running, further));
        assert_eq!((gate.free(), gate.further.available_permits()), (8, 6));
    }

    /// How nice the thread is that this runs on.
    async fn niceness() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(16).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn the_threads_of_statements_stand_back_and_those_of_typed_queries_do_not() {
        let threads = QueryRuntimes::new(1).unwrap();
        let own = niceness().await;
        let typed = threads.spawn(QueryClass::Typed, niceness()).unwrap().await.unwrap();
        let statement = threads.spawn(QueryClass::Statement, niceness()).unwrap().await.unwrap();
        assert_eq!((typed, statement), (own, (own + 12).min(19)));
    }

    #[tokio::test]
    async fn tails_queue_behind_each_other_and_not_before_a_typed_query() {
        let gate = AdmissionGate::new(2, Duration::from_secs(60));
        let running = (
            gate.enter(QueryClass::Typed, None).await,
            gate.enter(QueryClass::Typed, None).await,
        );
        let mut tails: Vec<_> = (0..10).map(|_| Box::pin(gate.enter_tail())).collect();
        for tail in &mut tails {
            assert!(futures::poll!(tail.as_mut()).is_pending());
        }
        drop(running);
        let typed = gate.enter(QueryClass::Typed, None).await;
        assert!(typed.is_ok(), "{typed:?}");
        // Each tail has its turn.
        for tail in tails {
            assert!(tail.await.is_ok());
        }
    }
}
