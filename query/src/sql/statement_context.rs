//! Context of one statement: one snapshot at one moment.

use std::sync::Arc;

#[cfg(test)]
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream_partitioned};
use engine::ReadView;
use model::Timestamp;

use super::SqlStatement;
use super::postgres::PostgresCompatibility;
use crate::data_scope::DataScope;
use crate::segment_reader::ScanMeter;
use crate::session_pool::QuerySession;
use crate::spec_tables::SpecTables;

impl StatementContext {
    /// See [`crate::QueryEngine::partition_streams`].
    #[cfg(test)]
    pub(crate) async fn partition_streams(&self) -> Result<Vec<SendableRecordBatchStream>, crate::Error> {
        let asked = super::statement_parser::parse_bound(&self.statement, None)?;
        let session = self.session(&asked, None)?;
        let plan = session.statement_to_plan(asked.statement).await?;
        let plan = session.create_physical_plan(&plan).await?;
        Ok(execute_stream_partitioned(plan, session.task_ctx())?)
    }

    /// Why rows are missing, if a part of the store cannot be read and the statement, which is planned, asks for rows of the store.
    pub(crate) fn partial(&self) -> Option<String> {
        let partial = self.view.partial().filter(|_| self.meter.has_planned());
        partial.map(str::to_owned)
    }
}

/// One statement and what it is asked of.
pub(crate) struct StatementContext {
    pub(crate) base: Arc<QuerySession>,
    pub(crate) postgres: Option<Arc<PostgresCompatibility>>,
    pub(crate) scope: Arc<DataScope>,
    pub(crate) view: ReadView,
    pub(crate) specs: SpecTables,
    pub(crate) now: Timestamp,
    pub(crate) statement: SqlStatement,
    pub(crate) meter: Arc<ScanMeter>,
    /// So many bytes of distinct ids may be counted in memory, see [`super::distinct_ids`]; without, they spill.
    pub(crate) ids_in_memory: Option<usize>,
}
