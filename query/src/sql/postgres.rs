//! PostgreSQL compatibility: `pg_catalog`, its functions, and PostgreSQL's syntax.
//!
//! # Invariants
//!
//! - Only statements that say so ([`SqlDialect::Postgres`](super::SqlDialect)) see any of this; the tables behind them, and all bounds,
//!   are those of every statement.
//! - A text is rewritten only if it speaks of the catalogue: what is asked of the tables means what it says.
//! - `pg_catalog` tells of names and types. There is nothing behind it that changes, and nothing of the machine.

use std::sync::Arc;

use arrow_schema::DataType;
use async_trait::async_trait;
use datafusion::catalog::memory::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlanBuilder, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility, ident,
    lit, when,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Statement as Ast};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use model::Table;

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
/// Words of the catalogue, beside those that begin with `pg_`.
const OF_CATALOG: [&str; 9] = [
    "information_schema",
    "regclass",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
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
    parser: PostgresCompatibilityParser,
}

impl PostgresCompatibility {
    /// The catalogue of the tables of a scope and the functions, over what all statements have.
    pub(crate) fn new(sql: &SessionPool, scope: &DataScope, specs: &SpecTables) -> Result<Self> {
        let tables = MemorySchemaProvider::new();
        for table in TABLES.into_iter().filter(|table| scope.includes_table(*table)) {
            tables.register_table(table.name().to_owned(), Arc::new(EmptyTable::new(table.schema())))?;
        }
        for spec in specs.iter().filter(|_| scope.includes_table(Table::Messages)) {
            let empty = EmptyTable::new(Arc::clone(&spec.schema));
            tables.register_table(spec.name().to_owned(), Arc::new(empty))?;
        }
        let platform = Arc::new(MemoryCatalogProvider::new());
        platform.register_schema(SCHEMA, Arc::new(tables))?;
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::clone(&platform) as _);
        let mut state = sql.template().clone();
        state.register_catalog_list(Arc::new(catalogs));
        let context = SessionContext::new_with_state(state);
        setup_pg_catalog(&context, CATALOG, EmptyContextProvider).map_err(|error| *error)?;
        for constant in constants() {
            context.register_udf(constant);
        }
        context.register_udf(to_regtype());
        context.register_udf(current_setting());
        let catalog = platform
            .schema(PG_CATALOG)
            .ok_or_else(|| DataFusionError::Internal(format!("{PG_CATALOG} was not made")))?;
        let base = SessionStateBuilder::new_from_existing(offered(context.state(), true))
            .with_type_planner(Arc::new(PostgresTypePlanner))
            .build();
        Ok(Self {
            sessions: sql.beside(base),
            catalog: Arc::new(PgCatalogSchema {
                catalog,
                ids: ids(specs),
            }),
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
        speaks.then(|| self.parser.parse(text))
    }
}

/// The catalogue, in which columns of ids are of the type that their values come as.
#[derive(Debug)]
struct PgCatalogSchema {
    catalog: Arc<dyn SchemaProvider>,
    /// The names of columns of ids.
    ids: Vec<String>,
}

#[async_trait]
impl SchemaProvider for PgCatalogSchema {
    fn table_names(&self) -> Vec<String> {
        self.catalog.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table = self.catalog.table(name).await?;
        match table {
            Some(table) if name == "pg_attribute" => with_ids(table, &self.ids).map(Some),
            other => Ok(other),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.table_exist(name)
    }
}

/// The names of columns of ids, in any table.
fn ids(specs: &SpecTables) -> Vec<String> {
    let tables = TABLES.iter().map(|table| table.schema());
    let schemas = tables.chain(specs.iter().map(|spec| Arc::clone(&spec.schema)));
    let columns = schemas.flat_map(|schema| schema.fields().iter().cloned().collect::<Vec<_>>());
    let ids = columns.filter(|column| *column.data_type() == DataType::FixedSizeBinary(16));
    ids.map(|column| column.name().clone()).collect()
}

/// `pg_attribute`, whose rows for ids say that they are some bytes.
fn with_ids(attributes: Arc<dyn TableProvider>, ids: &[String]) -> Result<Arc<dyn TableProvider>> {
    const BYTEA: i32 = 17;
    const UUID: i32 = 2_950;
    const UUID_LENGTH: i16 = 16;
    let ids = ids.iter().map(|name| lit(name.clone())).collect();
    let is_id = ident("atttypid")
        .eq(lit(BYTEA))
        .and(ident("attname").in_list(ids, false));
    let schema = attributes.schema();
    let shown = schema.fields().iter().map(|field| {
        let column = ident(field.name());
        Ok(match field.name().as_str() {
            "atttypid" => when(is_id.clone(), lit(UUID)).otherwise(column)?.alias("atttypid"),
            "attlen" => when(is_id.clone(), lit(UUID_LENGTH)).otherwise(column)?.alias("attlen"),
            _ => column,
        })
    });
    let shown = shown.collect::<Result<Vec<Expr>>>()?;
    let plan = LogicalPlanBuilder::scan("pg_attribute", provider_as_source(attributes), None)?;
    Ok(Arc::new(ViewTable::new(plan.project(shown)?.build()?, None)))
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

/// Functions that say one thing, whatever they are given.
fn constants() -> impl Iterator<Item = ScalarUDF> {
    let version = format!("PostgreSQL {POSTGRES_VERSION} (platform {})", env!("CARGO_PKG_VERSION"));
    let texts = [
        ("version", Some(version)),
        ("current_user", Some("platform".to_owned())),
        ("current_role", Some("platform".to_owned())),
        ("current_catalog", Some(CATALOG.to_owned())),
        ("obj_description", None),
        ("col_description", None),
        ("shobj_description", None),
        ("pg_get_viewdef", None),
        ("pg_get_indexdef", None),
        ("pg_get_ruledef", None),
        ("pg_get_triggerdef", None),
        ("pg_get_functiondef", None),
        ("pg_get_function_arguments", None),
        ("pg_get_function_identity_arguments", None),
        ("pg_get_function_result", None),
        ("pg_get_serial_sequence", None),
        ("pg_tablespace_location", None),
    ];
    let truths = [
        ("pg_type_is_visible", true),
        ("pg_function_is_visible", true),
        ("pg_operator_is_visible", true),
        ("pg_is_in_recovery", false),
    ];
    let texts = texts.into_iter().map(|(name, says)| (name, ScalarValue::Utf8(says)));
    let truths = truths
        .into_iter()
        .map(|(name, says)| (name, ScalarValue::Boolean(Some(says))));
    texts.chain(truths).map(|(name, says)| {
        let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        let (any, kind) = (Signature::one_of(any, Volatility::Stable), says.data_type());
        let says = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(says.clone()));
        SimpleScalarUDF::new_with_signature(name, any, kind, Arc::new(says)).into()
    })
}

/// `current_setting(name)`, of what clients ask for in the midst of a query.
fn current_setting() -> ScalarUDF {
    let says = |args: &[ColumnarValue]| {
        let value = match args.first() {
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) => match name.as_str() {
                "server_version" => Some(POSTGRES_VERSION),
                "server_version_num" => Some(POSTGRES_VERSION_NUMBER),
                "search_path" => Some(SCHEMA),
                _ => None,
            },
            _ => None,
        };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(value.map(str::to_owned))))
    };
    let signature = Signature::any(1, Volatility::Stable);
    SimpleScalarUDF::new_with_signature("current_setting", signature, DataType::Utf8, Arc::new(says)).into()
}
