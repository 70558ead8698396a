//! Columns of an Iceberg table, from Arrow or Parquet schemas, and as JSON.
//!
//! | Arrow | Iceberg |
//! |---|---|
//! | Timestamp(µs, UTC) | `timestamptz` |
//! | FixedSizeBinary(16) | `uuid` |
//! | Utf8, JSON among it | `string` |
//! | Float32 / Float64 | `float` / `double` |
//! | Int64 | `long` |
//! | Boolean | `boolean` |
//! | Binary | `binary` |
//!
//! # Invariants
//!
//! - The number of a column is the one that it has in the files: readers find a column by it, not by its name or place.
//! - A column has one type in all files of a table; one whose files disagree is in no schema.
//!
//! # Not here
//!
//! Which columns the stored tables have: [`model::Table`] and [`model::spec`].

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, parquet_to_arrow_schema};
use parquet::file::metadata::ParquetMetaData;
use serde_json::{Value, json};

use crate::IcebergError;

/// Iceberg keeps the numbers above this to itself.
const LAST_COLUMN_ID: i32 = i32::MAX - 200;

/// A type of Iceberg that our columns have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IcebergType {
    /// Microseconds since the epoch, UTC.
    Timestamptz,
    /// Sixteen bytes.
    Uuid,
    /// A text.
    String,
    /// 32 bits.
    Float,
    /// 64 bits.
    Double,
    /// Bytes.
    Binary,
    /// A whole number of 64 bits.
    Long,
    /// True or false.
    Boolean,
}

impl IcebergType {
    const ALL: [Self; 8] = [
        Self::Timestamptz,
        Self::Uuid,
        Self::String,
        Self::Float,
        Self::Double,
        Self::Binary,
        Self::Long,
        Self::Boolean,
    ];

    /// Its name in schemas.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Timestamptz => "timestamptz",
            Self::Uuid => "uuid",
            Self::String => "string",
            Self::Float => "float",
            Self::Double => "double",
            Self::Binary => "binary",
            Self::Long => "long",
            Self::Boolean => "boolean",
        }
    }

    fn of(kind: &DataType) -> Option<Self> {
        Some(match kind {
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::Timestamptz,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            DataType::Utf8 => Self::String,
            DataType::Float32 => Self::Float,
            DataType::Float64 => Self::Double,
            DataType::Binary => Self::Binary,
            DataType::Int64 => Self::Long,
            DataType::Boolean => Self::Boolean,
            _ => return None,
        })
    }
}

/// A column of an Iceberg table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IcebergColumn {
    /// Its number, as in the files.
    pub(crate) id: i32,
    /// Its name.
    pub(crate) name: String,
    /// Whether every row has a value.
    pub(crate) required: bool,
    /// Its type.
    pub(crate) kind: IcebergType,
}

/// The columns of an Iceberg table, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IcebergSchema {
    /// The columns.
    pub(crate) columns: Vec<IcebergColumn>,
}

impl IcebergSchema {
    /// The columns of an Arrow schema whose fields have the numbers that they have in Parquet files. A number that Iceberg keeps to
    /// itself, which one in ten million promoted names has, leaves its column out.
    pub(crate) fn of(schema: &Schema) -> Result<Self, IcebergError> {
        let columns = schema.fields().iter().map(|field| column_of(field));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            columns: columns
                .into_iter()
                .filter(|column| (1..=LAST_COLUMN_ID).contains(&column.id))
                .collect(),
        })
    }

    /// The columns of a Parquet file.
    pub(crate) fn of_footer(footer: &ParquetMetaData) -> Result<Self, IcebergError> {
        let schema = parquet_to_arrow_schema(footer.file_metadata().schema_descr(), None);
        Self::of(&schema.map_err(|error| IcebergError::refused("a Parquet file", error))?)
    }

    /// The columns of a schema that [`Self::to_json`] wrote; none if it is something else.
    pub(crate) fn from_json(schema: &Value) -> Option<Self> {
        let columns = schema.get("fields")?.as_array()?.iter().map(|field| {
            let kind = field.get("type")?.as_str()?;
            Some(IcebergColumn {
                id: i32::try_from(field.get("id")?.as_i64()?).ok()?,
                name: field.get("name")?.as_str()?.to_owned(),
                required: field.get("required")?.as_bool()?,
                kind: IcebergType::ALL.into_iter().find(|known| known.name() == kind)?,
            })
        });
        Some(Self {
            columns: columns.collect::<Option<_>>()?,
        })
    }

    /// As it stands in table metadata.
    pub(crate) fn to_json(&self, schema_id: i32) -> Value {
        let fields = self.columns.iter().map(|column| {
            json!({
                "id": column.id,
                "name": column.name,
                "required": column.required,
                "type": column.kind.name(),
            })
        });
        json!({"type": "struct", "schema-id": schema_id, "fields": fields.collect::<Vec<_>>()})
    }

    /// The greatest number of a column.
    pub(crate) fn last_column_id(&self) -> i32 {
        self.columns.iter().map(|column| column.id).max().unwrap_or_default()
    }
}

fn column_of(field: &Field) -> Result<IcebergColumn, IcebergError> {
    let refused = |reason: String| IcebergError::refused(format!("column {}", field.name()), reason);
    let id = field.metadata().get(PARQUET_FIELD_ID_META_KEY);
    Ok(IcebergColumn {
        id: id
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| refused("it has no field id".to_owned()))?,
        name: field.name().clone(),
        required: !field.is_nullable(),
        kind: IcebergType::of(field.data_type())
            .ok_or_else(|| refused(format!("its type is {}", field.data_type())))?,
    })
}

/// The columns of all files of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergedSchema {
    /// Those of the table, then those that some file has more, by their names.
    pub(crate) schema: IcebergSchema,
    /// The names of columns that files have with different types, or under one number with another column.
    pub(crate) left_out: BTreeSet<String>,
}

/// The columns of a table: its own, and those of its files. The order of the files does not matter.
pub(crate) fn merged<'a>(own: &IcebergSchema, files: impl IntoIterator<Item = &'a IcebergSchema>) -> MergedSchema {
    let is_own = |column: &IcebergColumn| own.columns.iter().any(|known| known.id == column.id);
    let mut found: BTreeMap<i32, Vec<&IcebergColumn>> = BTreeMap::new();
    for column in files.into_iter().flat_map(|file| &file.columns) {
        let same_id = found.entry(column.id).or_default();
        let is_known = |known: &&IcebergColumn| known.name == column.name && known.kind == column.kind;
        if !is_own(column) && !same_id.iter().any(is_known) {
            same_id.push(column);
        }
    }
    let (mut more, mut left_out) = (BTreeMap::new(), BTreeSet::new());
    for columns in found.into_values() {
        match columns.as_slice() {
            // A file from before the column was promoted does not have it.
            [column] => {
                let optional = IcebergColumn {
                    required: false,
                    ..(*column).clone()
                };
                more.insert(&column.name, optional);
            }
            several => left_out.extend(several.iter().map(|column| column.name.clone())),
        }
    }
    let columns = own.columns.iter().cloned().chain(more.into_values());
    MergedSchema {
        schema: IcebergSchema {
            columns: columns.collect(),
        },
        left_out,
    }
}

#[cfg(test)]
mod tests {
    use model::Table;
    use model::spec::columns::schema as with_columns;
    use model::spec::{FieldType, SpecColumn};

    use super::*;

    fn messages(columns: &[(&str, FieldType)]) -> IcebergSchema {
        let columns: Vec<_> = columns
            .iter()
            .map(|(name, kind)| SpecColumn {
                name: (*name).to_owned(),
                kind: *kind,
            })
            .collect();
        IcebergSchema::of(&with_columns(&columns)).unwrap()
    }

    fn names(schema: &IcebergSchema) -> Vec<(i32, &str, &str, bool)> {
        let columns = schema.columns.iter();
        columns
            .map(|column| (column.id, column.name.as_str(), column.kind.name(), column.required))
            .collect()
    }

    #[test]
    fn columns_keep_the_numbers_of_the_files() {
        let logs = IcebergSchema::of(&Table::Logs.schema()).unwrap();
        assert_eq!(
            names(&logs),
            [
                (1, "ts", "timestamptz", true),
                (2, "entity_id", "uuid", true),
                (3, "entity_name", "string", true),
                (4, "flux_id", "uuid", false),
                (5, "level", "string", true),
                (6, "message", "string", true),
                (7, "attributes", "string", true),
            ]
        );
        assert_eq!(logs.last_column_id(), 7);
        let kinds = |table: Table| {
            IcebergSchema::of(&table.schema())
                .unwrap()
                .columns
                .into_iter()
                .map(|column| column.kind)
        };
        assert_eq!(kinds(Table::Traces).nth(8), Some(IcebergType::Float));
        assert_eq!(kinds(Table::Metrics).nth(5), Some(IcebergType::Double));
        assert_eq!(kinds(Table::DeadLetters).nth(5), Some(IcebergType::Binary));
    }

    #[test]
    fn a_schema_survives_json() {
        let all = [
            ("count", FieldType::Int),
            ("is_late", FieldType::Bool),
            ("due", FieldType::Timestamp),
            ("price", FieldType::Float),
            ("key", FieldType::Uuid),
        ];
        let schema = messages(&all);
        let json = schema.to_json(3);
        assert_eq!(json["schema-id"], 3);
        assert_eq!(json["type"], "struct");
        assert_eq!(
            json["fields"][0],
            json!({"id": 1, "name": "ts", "required": true, "type": "timestamptz"})
        );
        assert_eq!(json["fields"][12]["type"], "long");
        assert_eq!(json["fields"][13]["type"], "boolean");
        assert_eq!(IcebergSchema::from_json(&json), Some(schema));
        let mut other = json;
        other["fields"][0]["type"] = json!("decimal(9,2)");
        assert_eq!(IcebergSchema::from_json(&other), None);
    }

    #[test]
    fn columns_of_all_files_are_merged_whatever_their_order() {
        let base = messages(&[]);
        let (one, two) = (
            messages(&[("city", FieldType::String)]),
            messages(&[("amount", FieldType::Int), ("city", FieldType::String)]),
        );
        let all = merged(&base, [&one, &two, &base]);
        assert_eq!(all, merged(&base, [&two, &base, &one]));
        assert!(all.left_out.is_empty());
        let (own, more) = all.schema.columns.split_at(base.columns.len());
        assert_eq!(own, base.columns);
        assert_eq!(
            more.iter().map(|column| &column.name).collect::<Vec<_>>(),
            ["amount", "city"]
        );
        assert!(more.iter().all(|column| !column.required && column.id >= 1000));
    }

    #[test]
    fn a_column_whose_files_disagree_on_its_type_is_left_out() {
        let base = messages(&[]);
        let (int, float) = (
            messages(&[("amount", FieldType::Int), ("city", FieldType::String)]),
            messages(&[("amount", FieldType::Float)]),
        );
        let both = merged(&base, [&int, &float]);
        assert_eq!(both.left_out, BTreeSet::from(["amount".to_owned()]));
        assert_eq!(
            both.schema,
            merged(&base, [&messages(&[("city", FieldType::String)])]).schema
        );
        let later = merged(&base, [&float]);
        assert!(later.left_out.is_empty());
        assert_eq!(
            later.schema.columns.last().map(|column| column.kind),
            Some(IcebergType::Double)
        );
    }

    #[test]
    fn what_has_no_number_or_no_type_in_iceberg_is_refused() {
        let field = |kind, id: &str| {
            Field::new("x", kind, true).with_metadata([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_owned())].into())
        };
        let of = |field: Field| IcebergSchema::of(&Schema::new(vec![field])).map(|schema| schema.columns.len());
        assert_eq!(of(field(DataType::Int64, "7")).unwrap(), 1);
        assert_eq!(of(field(DataType::Int64, &i32::MAX.to_string())).unwrap(), 0);
        assert!(of(Field::new("x", DataType::Int64, true)).is_err());
        let refused = of(field(DataType::Int16, "7")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "column x cannot be in the Iceberg catalogue: its type is Int16"
        );
    }
}
