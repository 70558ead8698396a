//! PostgreSQL compatibility: `pg_catalog`, its functions, and PostgreSQL's syntax.
//!
//! # Invariants
//!
//! - Only statements that say so ([`SqlDialect::Postgres`](super::SqlDialect)) see any of this; the tables behind them, and all bounds,
//!   are those of every statement.
//! - A text is rewritten only if it speaks of the catalogue: what is asked of the tables means what it says.
//! - `pg_catalog` tells of names and types. There is nothing behind it that changes, and nothing of the machine.

mod catalog_functions;
mod catalog_rewrites;
mod catalog_views;
mod empty_relations;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::catalog::memory::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Statement as Ast};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use model::Table;

use self::catalog_views::{PgCatalogSchema, PgInformationSchema};
use super::function_allowlist::offered;
use super::regtype::to_regtype;
use super::session::{CATALOG, SCHEMA, TABLES};
use super::sql_types::SqlTypes;
use crate::data_scope::DataScope;
use crate::session_pool::SessionPool;
use crate::spec_tables::SpecTables;

/// The schema that describes all others.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The version whose ways are followed.
pub const POSTGRES_VERSION: &str = "15.0";
/// The same as one number.
pub const POSTGRES_VERSION_NUMBER: &str = "150000";
/// What every session says of itself, whatever a client sets.
pub const POSTGRES_SETTINGS: [(&str, &str); 24] = [
    ("server_version", POSTGRES_VERSION),
    ("server_version_num", POSTGRES_VERSION_NUMBER),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, YMD"),
    ("TimeZone", "UTC"),
    ("IntervalStyle", "postgres"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "off"),
    ("in_hot_standby", "off"),
    ("default_transaction_read_only", "on"),
    ("transaction_read_only", "on"),
    ("transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "repeatable read"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("lc_collate", "C"),
    ("lc_ctype", "C"),
    ("lc_messages", "C"),
    ("bytea_output", "hex"),
    ("escape_string_warning", "on"),
    ("session_authorization", "platform"),
    ("ssl", "off"),
];
/// Words of the catalogue, beside those that begin with `pg_`.
const OF_CATALOG: [&str; 10] = [
    "information_schema",
    "regclass",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
    "to_regclass",
];
/// Words of the session, which are columns and other names in questions about rows.
const OF_SESSION: [&str; 13] = [
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_schemas",
    "current_setting",
    "current_user",
    "has_database_privilege",
    "has_schema_privilege",
    "has_table_privilege",
    "session_user",
    "user",
    "version",
];

/// See the module.
#[derive(Debug)]
pub(crate) struct PostgresCompatibility {
    /// What the sessions of statements begin as.
    pub(crate) sessions: Arc<SessionPool>,
    pub(crate) catalog: Arc<dyn SchemaProvider>,
    pub(crate) information_schema: Arc<dyn SchemaProvider>,
    parser: PostgresCompatibilityParser,
}

impl PostgresCompatibility {
    /// The catalogue of the tables of a scope and the functions, over what all statements have.
    pub(crate) fn new(sql: &SessionPool, scope: &DataScope, specs: &SpecTables) -> Result<Self> {
        let tables = tables(scope, specs);
        let schema = MemorySchemaProvider::new();
        for (name, columns) in &tables {
            schema.register_table(name.clone(), Arc::new(EmptyTable::new(Arc::clone(columns))))?;
        }
        let platform = Arc::new(MemoryCatalogProvider::new());
        platform.register_schema(SCHEMA, Arc::new(schema))?;
        let catalogs: Arc<dyn CatalogProviderList> = Arc::new(MemoryCatalogProviderList::new());
        catalogs.register_catalog(CATALOG.to_owned(), Arc::clone(&platform) as _);
        let mut state = sql.template().clone();
        state.register_catalog_list(Arc::clone(&catalogs));
        let context = SessionContext::new_with_state(state);
        setup_pg_catalog(&context, CATALOG, EmptyContextProvider).map_err(|error| *error)?;
        let catalog = platform
            .schema(PG_CATALOG)
            .ok_or_else(|| DataFusionError::Internal(format!("{PG_CATALOG} was not made")))?;
        let state = offered(context.state(), true);
        let config = state.config().clone().with_information_schema(false);
        let mut base = SessionStateBuilder::new_from_existing(state)
            .with_config(config)
            .with_type_planner(Arc::new(PostgresTypePlanner))
            .build();
        for function in catalog_functions::functions().into_iter().chain([to_regtype()]) {
            base.register_udf(Arc::new(function))?;
        }
        Ok(Self {
            sessions: sql.beside(base),
            catalog: Arc::new(PgCatalogSchema::new(catalog, &tables)?),
            information_schema: Arc::new(PgInformationSchema::new(catalogs, &tables)?),
            parser: PostgresCompatibilityParser::new(),
        })
    }

    /// The statements of a text that speaks of the catalogue, or of the session and of no rows, as the planner understands them; `None`
    /// for any other text. What is made of subqueries on the way must not reach rows.
    pub(crate) fn parse_catalog_query(
        &self,
        text: &str,
        tokens: &[TokenWithSpan],
    ) -> Option<Result<Vec<Ast>, ParserError>> {
        let words = || {
            tokens.iter().filter_map(|token| match &token.token {
                Token::Word(word) => Some((word.value.to_ascii_lowercase(), word.quote_style.is_none())),
                _ => None,
            })
        };
        let is_plain = |of: &[&str]| words().any(|(word, is_plain)| is_plain && of.contains(&word.as_str()));
        let speaks = words().any(|(word, _)| word.starts_with("pg_") || OF_CATALOG.contains(&word.as_str()))
            || (is_plain(&OF_SESSION) && !is_plain(&["from"]));
        speaks.then(|| {
            let mut statements = self.parser.parse(text)?;
            for statement in &mut statements {
                empty_relations::fold(statement);
                catalog_rewrites::rewrite(statement);
            }
            Ok(statements)
        })
    }
}

/// The tables of a scope, with their columns.
fn tables(scope: &DataScope, specs: &SpecTables) -> Vec<(String, SchemaRef)> {
    let own = TABLES.into_iter().filter(|table| scope.includes_table(*table));
    let own = own.map(|table| (table.name().to_owned(), table.schema()));
    let specs = specs.iter().filter(|_| scope.includes_table(Table::Messages));
    own.chain(specs.map(|spec| (spec.name().to_owned(), Arc::clone(&spec.schema))))
        .collect()
}

/// The types of all statements first, then those of the catalogue.
#[derive(Debug)]
struct PostgresTypePlanner;

impl TypePlanner for PostgresTypePlanner {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<arrow_schema::FieldRef>> {
        match SqlTypes.plan_type_field(sql_type)? {
            Some(field) => Ok(Some(field)),
            None => PgOidTypePlanner.plan_type_field(sql_type),
        }
    }
}
