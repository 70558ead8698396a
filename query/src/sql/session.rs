//! The SQL session: its tables, functions and rules.
//!
//! # Invariants
//!
//! - Every statement sees the tables of one view, under `platform.public`, and nothing of another statement.
//! - A table outside the scope of who asks is not there, and who names it is told so; of others there are the rows of the scope.
//! - There are no files, no addresses and no settings behind any name, and no functions but those that are offered by name
//!   ([`super::function_allowlist`]).
//! - Time stands still while a statement runs: `now()` is the moment at which it began.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::catalog::memory::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::optimizer::Analyzer;
use model::Table;

use super::bounded_functions::BoundedFunctions;
use super::cancellation::StatementCancellation;
use super::expression_rewriter::ExpressionRewriter;
use super::function_allowlist::offered;
use super::postgres::PG_CATALOG;
use super::scoped_table::{self, ScopedSchema};
use super::sql_types::SqlTypes;
use super::statement_bounds::StatementBounds;
use super::statement_context::StatementContext;
use super::statement_parser::ParsedStatement;
use super::{cancellable_rules, time_zones};
use crate::approx_percentile;
use crate::scalar_functions;
use crate::scan::SegmentSelection;
use crate::time_range::TimeRange;
use crate::view_table::{RowOrder, ViewTable};

/// The tables of statements.
pub(super) const TABLES: [Table; 4] = [Table::Logs, Table::Traces, Table::Metrics, Table::Messages];

pub(super) const CATALOG: &str = "platform";
pub(super) const SCHEMA: &str = "public";

/// What the sessions of all statements have in common, on the memory and the threads of the other queries.
pub(crate) fn base(shared: &SessionState) -> SessionState {
    let mut config = shared
        .config()
        .clone()
        .with_information_schema(true)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false);
    let options = config.options_mut();
    // Times with a zone are in UTC, `now()` and what `TIMESTAMPTZ` reads as those of tables.
    options.execution.time_zone = Some("UTC".to_owned());
    // Fields of files have numbers in their metadata, which a union has of neither side or of one: that is no other schema.
    options.execution.skip_physical_aggregate_schema_check = true;
    let parser = &mut options.sql_parser;
    parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
    parser.collect_spans = true;
    parser.map_string_types_to_utf8view = false;
    let ids: Arc<ExpressionRewriter> = Arc::new(ExpressionRewriter);
    let mut planners = SessionStateDefaults::default_expr_planners();
    planners.insert(0, Arc::clone(&ids) as _);
    // Before the types of both sides of a comparison are made the same.
    let mut rules = Analyzer::new().rules;
    rules.insert(0, ids as _);
    // After them: what is made of texts is of one type by then.
    rules.push(Arc::new(BoundedFunctions));
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(Arc::clone(shared.runtime_env()))
        .with_expr_planners(planners)
        .with_type_planner(Arc::new(SqlTypes))
        .with_analyzer_rules(cancellable_rules::analyzer_rules(rules))
        .with_optimizer_rules(cancellable_rules::optimizer_rules())
        .with_physical_optimizer_rules(cancellable_rules::physical_optimizer_rules())
        .with_scalar_functions(scalar_functions())
        .with_aggregate_functions(aggregate_functions())
        .with_window_functions(SessionStateDefaults::default_window_functions())
        .with_table_functions(HashMap::new())
        .build();
    offered(state, false)
}

fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    let known = SessionStateDefaults::default_scalar_functions().into_iter();
    known
        .chain(scalar_functions::offered())
        .chain([Arc::new(time_zones::timezone())])
        .collect()
}

fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let mut functions = SessionStateDefaults::default_aggregate_functions();
    // Of two with one name the last is taken.
    functions.push(approx_percentile::function());
    functions
}

impl StatementContext {
    /// The session of the statement.
    pub(super) fn session(
        &self,
        asked: &ParsedStatement,
        stop: Option<&Arc<StatementCancellation>>,
    ) -> Result<SessionState> {
        let order = if asked.newest_first {
            RowOrder::NewestFirst
        } else {
            RowOrder::Any
        };
        let schema = MemorySchemaProvider::new();
        let provider = |table, spec| {
            let rows = ViewTable {
                view: self.view.clone(),
                table,
                spec,
                window: TimeRange::ALL,
                pieces: SegmentSelection::All,
                order,
                meter: Arc::clone(&self.meter),
            };
            scoped_table::within_scope(rows, &self.scope)
        };
        for table in TABLES.into_iter().filter(|table| self.scope.includes_table(*table)) {
            schema.register_table(table.name().to_owned(), provider(table, None)?)?;
        }
        for spec in self.specs.iter().filter(|_| self.scope.includes_table(Table::Messages)) {
            let provider = provider(Table::Messages, Some(Arc::clone(spec)))?;
            schema.register_table(spec.name().to_owned(), provider)?;
        }
        let schema = ScopedSchema {
            tables: schema,
            scope: Arc::clone(&self.scope),
        };
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(SCHEMA, Arc::new(schema))?;
        if let Some(postgres) = &self.postgres {
            catalog.register_schema(PG_CATALOG, Arc::clone(&postgres.catalog))?;
            catalog.register_schema(INFORMATION_SCHEMA, Arc::clone(&postgres.information_schema))?;
        }
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
        let mut state = SessionState::clone(&self.base);
        state.register_catalog_list(Arc::new(catalogs));
        let bounds = StatementBounds::new(state.runtime_env().memory_pool.as_ref(), stop.cloned());
        state.config_mut().options_mut().extensions.insert(bounds);
        state.mark_start_execution();
        state.execution_props_mut().query_execution_start_time = self.now.to_datetime();
        Ok(state)
    }
}
