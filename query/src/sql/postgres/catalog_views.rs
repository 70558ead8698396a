//! Tables of the catalogue that are not as `datafusion-pg-catalog` has them: ids and types as PostgreSQL calls them, settings, and no rows
//! about what is not here.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProviderList, MemTable, SchemaProvider, TableProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, ident, lit, when};

use super::empty_relations::is_empty;
use super::{POSTGRES_SETTINGS, SCHEMA};
use crate::sql::session::CATALOG;

/// `pg_catalog`.
#[derive(Debug)]
pub(super) struct PgCatalogSchema {
    catalog: Arc<dyn SchemaProvider>,
    /// The names of columns of ids.
    ids: Vec<String>,
    settings: Arc<dyn TableProvider>,
}

impl PgCatalogSchema {
    /// The catalogue of tables by name.
    pub(super) fn new(catalog: Arc<dyn SchemaProvider>, tables: &[(String, SchemaRef)]) -> Result<Self> {
        let columns = tables.iter().flat_map(|(_, schema)| schema.fields());
        let ids = columns.filter(|column| *column.data_type() == DataType::FixedSizeBinary(16));
        Ok(Self {
            catalog,
            ids: ids.map(|column| column.name().clone()).collect(),
            settings: settings()?,
        })
    }
}

#[async_trait]
impl SchemaProvider for PgCatalogSchema {
    fn table_names(&self) -> Vec<String> {
        self.catalog.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if name == "pg_settings" {
            return Ok(Some(Arc::clone(&self.settings)));
        }
        let Some(table) = self.catalog.table(name).await? else {
            return Ok(None);
        };
        Ok(Some(match name {
            "pg_attribute" => with_ids(table, &self.ids)?,
            "pg_class" => without_pages(table)?,
            name if is_empty(name) => Arc::new(EmptyTable::new(table.schema())) as Arc<dyn TableProvider>,
            _ => table,
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.table_exist(name)
    }
}

/// `pg_attribute`, whose rows for ids say that they are some bytes.
fn with_ids(attributes: Arc<dyn TableProvider>, ids: &[String]) -> Result<Arc<dyn TableProvider>> {
    const BYTEA: i32 = 17;
    const UUID: i32 = 2_950;
    const UUID_LENGTH: i16 = 16;
    const IN_PLACE: &str = "p";
    let ids = ids.iter().map(|name| lit(name.clone())).collect();
    let is_id = ident("atttypid")
        .eq(lit(BYTEA))
        .and(ident("attname").in_list(ids, false));
    with_columns("pg_attribute", attributes, |name, column| {
        Ok(match name {
            "atttypid" => when(is_id.clone(), lit(UUID)).otherwise(column)?.alias(name),
            "attlen" => when(is_id.clone(), lit(UUID_LENGTH)).otherwise(column)?.alias(name),
            "attstorage" => when(is_id.clone(), lit(IN_PLACE)).otherwise(column)?.alias(name),
            _ => column,
        })
    })
}

/// `pg_class`, whose tables have no pages: clients would read them page by page (`ctid`).
fn without_pages(classes: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    with_columns("pg_class", classes, |name, column| {
        Ok(match name {
            "relpages" => lit(0_i32).alias(name),
            _ => column,
        })
    })
}

/// A table with other values in some of its columns.
fn with_columns(
    name: &str,
    table: Arc<dyn TableProvider>,
    shown: impl Fn(&str, Expr) -> Result<Expr>,
) -> Result<Arc<dyn TableProvider>> {
    let schema = table.schema();
    let fields = schema.fields().iter();
    let columns = fields.map(|field| shown(field.name(), ident(field.name())));
    let columns = columns.collect::<Result<Vec<Expr>>>()?;
    let plan = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?;
    Ok(Arc::new(ViewTable::new(plan.project(columns)?.build()?, None)))
}

/// `pg_settings`.
fn settings() -> Result<Arc<dyn TableProvider>> {
    let texts = |value: fn(&(&'static str, &'static str)) -> &'static str| {
        let texts: StringArray = POSTGRES_SETTINGS.iter().map(|setting| Some(value(setting))).collect();
        Arc::new(texts) as ArrayRef
    };
    let columns = "name setting unit category short_desc extra_desc context vartype source min_val max_val enumvals boot_val \
                   reset_val sourcefile";
    let columns = columns.split(' ').map(|name| {
        let values = match name {
            "name" => texts(|setting| setting.0),
            "setting" | "boot_val" | "reset_val" => texts(|setting| setting.1),
            "context" => texts(|_| "internal"),
            "vartype" => texts(|_| "string"),
            "source" => texts(|_| "default"),
            _ => new_null_array(&DataType::Utf8, POSTGRES_SETTINGS.len()),
        };
        (name, values)
    });
    table_of(columns.collect())
}

/// `information_schema`.
#[derive(Debug)]
pub(super) struct PgInformationSchema {
    all: InformationSchemaProvider,
    columns: Arc<dyn TableProvider>,
}

impl PgInformationSchema {
    /// That of tables by name, which are in these catalogues.
    pub(super) fn new(catalogs: Arc<dyn CatalogProviderList>, tables: &[(String, SchemaRef)]) -> Result<Self> {
        Ok(Self {
            all: InformationSchemaProvider::new(catalogs),
            columns: columns(tables)?,
        })
    }
}

#[async_trait]
impl SchemaProvider for PgInformationSchema {
    fn table_names(&self) -> Vec<String> {
        self.all.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match name {
            "columns" => Ok(Some(Arc::clone(&self.columns))),
            _ => self.all.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.all.table_exist(name)
    }
}

/// `information_schema.columns`.
fn columns(tables: &[(String, SchemaRef)]) -> Result<Arc<dyn TableProvider>> {
    let columns: Vec<(&str, i32, &Arc<Field>)> = tables
        .iter()
        .flat_map(|(table, schema)| {
            let fields = (1..).zip(schema.fields());
            fields.map(move |(place, field)| (table.as_str(), place, field))
        })
        .collect();
    let texts = |value: &dyn Fn(&str, &Field) -> Option<String>| {
        let texts: StringArray = columns.iter().map(|(table, _, field)| value(table, field)).collect();
        Arc::new(texts) as ArrayRef
    };
    let all = |text: &'static str| texts(&|_, _| Some(text.to_owned()));
    let names = "table_catalog table_schema table_name column_name ordinal_position column_default is_nullable data_type \
                 character_maximum_length character_octet_length numeric_precision numeric_precision_radix numeric_scale \
                 datetime_precision interval_type character_set_name collation_name domain_catalog domain_schema domain_name \
                 udt_catalog udt_schema udt_name is_identity identity_generation is_generated generation_expression is_updatable";
    let shown = names.split_whitespace().map(|name| {
        let values = match name {
            "table_catalog" | "udt_catalog" => all(CATALOG),
            "table_schema" => all(SCHEMA),
            "table_name" => texts(&|table, _| Some(table.to_owned())),
            "column_name" => texts(&|_, field| Some(field.name().clone())),
            "ordinal_position" => {
                let places: Int32Array = columns.iter().map(|(_, place, _)| Some(*place)).collect();
                Arc::new(places) as ArrayRef
            }
            "is_nullable" => texts(&|_, field| Some(if field.is_nullable() { "YES" } else { "NO" }.to_owned())),
            "data_type" => texts(&|_, field| Some(type_names(field.data_type()).0.to_owned())),
            "udt_schema" => all(super::PG_CATALOG),
            "udt_name" => texts(&|_, field| Some(type_names(field.data_type()).1)),
            "is_identity" | "is_updatable" => all("NO"),
            "is_generated" => all("NEVER"),
            name if name.ends_with("_length") || name.starts_with("numeric_") || name == "datetime_precision" => {
                new_null_array(&DataType::Int32, columns.len())
            }
            _ => new_null_array(&DataType::Utf8, columns.len()),
        };
        (name, values)
    });
    table_of(shown.collect())
}

fn table_of(columns: Vec<(&str, ArrayRef)>) -> Result<Arc<dyn TableProvider>> {
    let fields = columns
        .iter()
        .map(|(name, values)| Field::new(*name, values.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let values = columns.into_iter().map(|(_, values)| values).collect();
    let rows = RecordBatch::try_new(Arc::clone(&schema), values)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![rows]])?))
}

/// What SQL and PostgreSQL call a type.
fn type_names(kind: &DataType) -> (&'static str, String) {
    let (sql, own) = match kind {
        DataType::Boolean => ("boolean", "bool"),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => ("smallint", "int2"),
        DataType::Int32 | DataType::UInt16 => ("integer", "int4"),
        DataType::Int64 | DataType::UInt32 => ("bigint", "int8"),
        DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => ("numeric", "numeric"),
        DataType::Float16 | DataType::Float32 => ("real", "float4"),
        DataType::Float64 => ("double precision", "float8"),
        DataType::FixedSizeBinary(16) => ("uuid", "uuid"),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            ("bytea", "bytea")
        }
        DataType::Date32 | DataType::Date64 => ("date", "date"),
        DataType::Time32(_) | DataType::Time64(_) => ("time without time zone", "time"),
        DataType::Timestamp(_, Some(_)) => ("timestamp with time zone", "timestamptz"),
        DataType::Timestamp(_, None) => ("timestamp without time zone", "timestamp"),
        DataType::Interval(_) | DataType::Duration(_) => ("interval", "interval"),
        DataType::Dictionary(_, values) => return type_names(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            return ("ARRAY", format!("_{}", type_names(item.data_type()).1));
        }
        _ => ("text", "text"),
    };
    (sql, own.to_owned())
}
