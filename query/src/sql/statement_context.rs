//! One statement and what it is asked of: one view at one moment.

use std::sync::Arc;

#[cfg(test)]
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream_partitioned};
use engine::ReadView;
use model::Timestamp;

use super::postgres::PostgresCompatibility;
use super::{SqlDialect, SqlStatement};
use crate::QueryEngine;
use crate::query_scan::meter;
use crate::segment_reader::ScanMeter;
use crate::session_pool::QuerySession;
use crate::spec_tables::SpecTables;

impl QueryEngine {
    pub(super) fn statement_context(&self, statement: &SqlStatement) -> StatementContext {
        let specs = self.specs();
        let postgres = match statement.dialect {
            SqlDialect::Plain => None,
            SqlDialect::Postgres => self.postgres(&specs),
        };
        let sessions = postgres.as_ref().map_or(&self.sql, |postgres| &postgres.sessions);
        StatementContext {
            base: sessions.acquire_session(),
            postgres,
            specs,
            view: self.engine.view(),
            now: self.clock.now(),
            statement: statement.clone(),
            meter: meter(self.sql.template()),
            ids_in_memory: None,
        }
    }

    /// The rows of a statement as partitions that nobody has read from, so that a test decides how many are read at once.
    #[cfg(test)]
    pub(crate) async fn partition_streams(
        &self,
        statement: &SqlStatement,
    ) -> Result<Vec<SendableRecordBatchStream>, crate::Error> {
        let context = self.statement_context(statement);
        let asked = super::statement_parser::parse_bound(&statement.query, &statement.parameters, None)?;
        let session = context.session(&asked, None)?;
        let plan = session.statement_to_plan(asked.statement).await?;
        let plan = session.create_physical_plan(&plan).await?;
        Ok(execute_stream_partitioned(plan, session.task_ctx())?)
    }

    /// What clients of PostgreSQL expect, made when the first of them asks after the specs changed.
    fn postgres(&self, specs: &SpecTables) -> Option<Arc<PostgresCompatibility>> {
        let mut made = self.postgres.lock();
        if let Some((_, postgres)) = made.as_ref().filter(|(of, _)| Arc::ptr_eq(of, specs)) {
            return postgres.clone();
        }
        let postgres = match PostgresCompatibility::new(&self.sql, specs) {
            Ok(postgres) => Some(Arc::new(postgres)),
            Err(error) => {
                tracing::error!(%error, "pg_catalog cannot be made: clients of PostgreSQL see the tables alone");
                None
            }
        };
        *made = Some((Arc::clone(specs), postgres.clone()));
        postgres
    }
}

impl StatementContext {
    /// Why rows are missing, if a part of the store cannot be read and the statement, which is planned, asks for rows of the store.
    pub(super) fn partial(&self) -> Option<String> {
        let partial = self.view.partial().filter(|_| self.meter.has_planned());
        partial.map(str::to_owned)
    }
}

/// One statement and what it is asked of.
pub(super) struct StatementContext {
    pub(super) base: Arc<QuerySession>,
    pub(super) postgres: Option<Arc<PostgresCompatibility>>,
    pub(super) view: ReadView,
    pub(super) specs: SpecTables,
    pub(super) now: Timestamp,
    pub(super) statement: SqlStatement,
    pub(super) meter: Arc<ScanMeter>,
    /// So many bytes of distinct ids may be counted in memory, see [`super::distinct_ids`]; without, they spill.
    pub(super) ids_in_memory: Option<usize>,
}
