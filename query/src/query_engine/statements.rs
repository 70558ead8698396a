//! SQL statements: each in a place of its class, on threads of its own, with its rows as they come.
//!
//! # Invariants
//!
//! - A statement begins anew without a damaged file, and where its distinct ids do not fit into memory; all its beginnings share one timeout.
//!
//! Not here: how a statement is planned and bounded ([`crate::sql`]).

use std::sync::Arc;
use std::time::Instant;

#[cfg(test)]
use datafusion::physical_plan::SendableRecordBatchStream;
use tokio::sync::{mpsc, oneshot};

use super::{PostgresCatalogs, QueryEngine};
use crate::Error;
use crate::admission_gate::{QueryClass, QueryPermit};
use crate::error::is_caused_by;
use crate::limits::DAMAGED_FILES;
use crate::query_scan::meter;
use crate::spec_tables::SpecTables;
use crate::sql::{
    AHEAD, AnswerHeader, CancellationError, DistinctLimitError, GRACE, PostgresCompatibility, SqlAnswer, SqlDialect,
    SqlStatement, StatementCancellation, StatementContext, StatementDescription, StatementTask, plan_description,
    task_error,
};

impl QueryEngine {
    /// The answer of one statement that only reads.
    ///
    /// # Errors
    /// [`Error::Statement`] if it cannot be carried out, [`Error::ReadOnly`] if it would change something; see [`Error`].
    pub async fn sql(&self, statement: &SqlStatement) -> Result<SqlAnswer, Error> {
        // So many bytes of ids at once: partitions and what is made of them have theirs.
        let mut ids = usize::try_from(self.limits.running().get() / 8).ok();
        let (mut started, mut damaged) = (None, 0);
        loop {
            let place = self.enter(QueryClass::Statement).await?;
            let started = *started.get_or_insert_with(Instant::now);
            match self.sql_once(statement, ids, place, started).await {
                Err(error) if error.is_caused_by_damage() && damaged < DAMAGED_FILES => {
                    damaged += 1;
                    tracing::warn!(%error, "restarting a statement without a damaged file");
                }
                Err(error) if ids.is_some() && is_caused_by::<DistinctLimitError>(&error) => {
                    tracing::debug!("restarting a statement: distinct ids are counted by an operator that spills");
                    ids = None;
                }
                answered => return answered,
            }
        }
    }

    async fn sql_once(
        &self,
        statement: &SqlStatement,
        ids: Option<usize>,
        place: QueryPermit,
        started: Instant,
    ) -> Result<SqlAnswer, Error> {
        let (limits, asking) = (&self.limits, self.statement_context(statement));
        let pinned = self.snapshots.pin(asking.view.clone());
        let own_limit = statement.limit.filter(|limit| *limit < limits.max_rows);
        let (left, gone) = (self.time_left(started), self.stop.child_token());
        let stop = StatementCancellation {
            gone: gone.clone(),
            too_old: pinned.too_old().clone(),
            deadline: started.checked_add(limits.timeout),
        };
        let work = StatementTask {
            asking: StatementContext {
                ids_in_memory: ids,
                ..asking
            },
            most_rows: own_limit.unwrap_or(limits.max_rows),
            started,
            stop: Arc::new(stop),
            waiting: Arc::default(),
        };
        let gone = gone.drop_guard();
        let (begun, head) = oneshot::channel();
        let (to, rows) = mpsc::channel(AHEAD);
        let waiting = Arc::clone(&work.waiting);
        let (stop, timeout, all) = (self.stop.clone(), limits.timeout, Arc::clone(limits));
        let snapshots = Arc::clone(&self.snapshots);
        let task = self.threads.spawn(QueryClass::Statement, async move {
            let _place = place;
            tokio::select! {
                biased;
                () = stop.cancelled() => Err(Error::Closed),
                () = pinned.too_old().cancelled() => Err(snapshots.too_old()),
                ended = tokio::time::timeout(left, work.carry_out(begun, to)) => match ended {
                    Err(_) => Err(Error::Timeout(timeout.into())),
                    Ok(Err(error)) if is_caused_by::<CancellationError>(&error) => Err(if stop.is_cancelled() {
                        Error::Closed
                    } else if pinned.too_old().is_cancelled() {
                        snapshots.too_old()
                    } else {
                        Error::Timeout(timeout.into())
                    }),
                    Ok(ended) => ended.map_err(|error| error.classify_limits(&all)),
                }
            }
        })?;
        // The task ends by itself in its time, unless a rule of planning keeps its thread.
        match tokio::time::timeout(left, head).await {
            Ok(Ok(AnswerHeader {
                columns,
                schema,
                partial,
            })) => Ok(SqlAnswer {
                columns,
                schema,
                partial,
                max_rows: own_limit.is_none().then_some(limits.max_rows),
                rows,
                waiting,
                held: None,
                task,
                _stop: gone,
                time: (started.checked_add(timeout.saturating_add(GRACE)), timeout),
                stats: None,
            }),
            Ok(Err(_)) => match task.await.map_err(task_error)? {
                Err(error) => Err(error),
                Ok(_) => Err(Error::Aborted("it ended before it began".to_owned())),
            },
            Err(_) => Err(Error::Timeout(timeout.into())),
        }
    }

    /// What a statement will give; its parameters are `$1`, `$2` and so on, and need no values. [`SqlStatement::limit`] and
    /// [`SqlStatement::parameters`] are not looked at. It is planned in a place of a statement: a text may take long to plan.
    ///
    /// # Errors
    /// As [`QueryEngine::sql`] has them before the first row.
    pub async fn describe(&self, statement: &crate::sql::SqlStatement) -> Result<StatementDescription, Error> {
        self.run_as(QueryClass::Statement, || {
            let asking = self.statement_context(statement);
            async move { plan_description(&asking).await }
        })
        .await
    }

    fn statement_context(&self, statement: &SqlStatement) -> StatementContext {
        let specs = self.specs();
        let postgres = match statement.dialect {
            SqlDialect::Plain => None,
            SqlDialect::Postgres => self.postgres(&specs),
        };
        let sessions = postgres.as_ref().map_or(&self.pools.sql, |postgres| &postgres.sessions);
        StatementContext {
            base: sessions.acquire_session(),
            postgres,
            specs,
            scope: Arc::clone(&self.scope),
            view: self.engine.view(),
            now: self.clock.now(),
            statement: statement.clone(),
            meter: meter(self.pools.sql.template(), self.caller.clone()),
            ids_in_memory: None,
        }
    }

    /// The rows of a statement as partitions that nobody has read from, so that a test decides how many are read at once.
    #[cfg(test)]
    pub(crate) async fn partition_streams(
        &self,
        statement: &SqlStatement,
    ) -> Result<Vec<SendableRecordBatchStream>, crate::Error> {
        self.statement_context(statement).partition_streams().await
    }

    /// What clients of PostgreSQL expect, made when the first of them asks after the specs changed.
    fn postgres(&self, specs: &SpecTables) -> Option<Arc<PostgresCompatibility>> {
        let mut catalogs = self.postgres.lock();
        if !Arc::ptr_eq(&catalogs.specs, specs) {
            *catalogs = PostgresCatalogs {
                specs: Arc::clone(specs),
                ..PostgresCatalogs::default()
            };
        }
        let made = catalogs.by_tables.entry(self.scope.tables.clone());
        let postgres = made.or_insert_with(|| {
            let made = PostgresCompatibility::new(&self.pools.sql, &self.scope, specs);
            made.map(Arc::new)
                .inspect_err(|error| {
                    tracing::error!(%error, "cannot create pg_catalog: PostgreSQL clients see only the tables");
                })
                .ok()
        });
        postgres.clone()
    }
}
