//! The columns of an answer: their names, of which no two are the same, and what their types are called.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY, ExtensionType as _, Json};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use model::{ColumnType, Table};
use serde::Serialize;

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SqlColumn {
    /// Its name, which no other has, except for a PostgreSQL client.
    pub name: String,
    /// Its type, such as `text`, `bigint`, `double`, `timestamptz`, `uuid`, `json`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The columns and the schema of an answer whose plan has this one.
pub(crate) fn columns_of(plan: &Schema) -> (Vec<SqlColumn>, SchemaRef) {
    let mut taken = HashSet::new();
    let (columns, fields): (Vec<_>, Vec<_>) = plan
        .fields()
        .iter()
        .map(|field| {
            let name = free(field.name(), &mut taken);
            let kind = if is_json(field) {
                "json".to_owned()
            } else {
                type_name(field.data_type())
            };
            let metadata = field.metadata().iter();
            let extension = metadata
                .filter(|(key, _)| [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY].contains(&key.as_str()));
            let field = Field::new(&name, field.data_type().clone(), true)
                .with_metadata(extension.map(|(key, value)| (key.clone(), value.clone())).collect());
            (SqlColumn { name, kind }, field)
        })
        .unzip();
    (columns, Arc::new(Schema::new(fields)))
}

/// A name that is not taken: itself, or with a number behind it.
fn free(name: &str, taken: &mut HashSet<String>) -> String {
    let numbered = (1_u32..).map(|n| format!("{name}_{n}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// Whether a column of an answer is a JSON column of a table, by its name and its number there, or says that it is one.
fn is_json(field: &Field) -> bool {
    if field.extension_type_name() == Some(Json::NAME) {
        return true;
    }
    let number = field
        .metadata()
        .get("PARQUET:field_id")
        .and_then(|id| id.parse::<usize>().ok());
    let Some(place) = number.and_then(|number| number.checked_sub(1)) else {
        return false;
    };
    Table::ALL.iter().any(|table| {
        let column = table.columns().get(place);
        column.is_some_and(|column| column.kind == ColumnType::Json && column.name == field.name())
    })
}

fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "boolean",
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::UInt8 => "utinyint",
        DataType::UInt16 => "usmallint",
        DataType::UInt32 => "uinteger",
        DataType::UInt64 => "ubigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "blob",
        DataType::FixedSizeBinary(16) => "uuid",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
            return format!("decimal({digits},{scale})");
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            return format!("{}[]", type_name(item.data_type()));
        }
        DataType::Dictionary(_, values) => return type_name(values),
        other => return other.to_string().to_lowercase(),
    }
    .to_owned()
}
