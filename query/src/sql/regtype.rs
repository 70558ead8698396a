//! `to_regtype(name)`: the number of a type of PostgreSQL by its name, as drivers ask for it at their start; null for any other.
//!
//! # Not here
//!
//! The types themselves (`pg_type` of `datafusion-pg-catalog`), `'name'::regtype` (its parser).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Int32Array};
use arrow_schema::DataType;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ScalarUDF, Volatility, create_udf};

/// Names and numbers, as `pg_type` of PostgreSQL has them.
const TYPES: [(&str, i32); 33] = [
    ("bool", 16),
    ("boolean", 16),
    ("bytea", 17),
    ("name", 19),
    ("int8", 20),
    ("bigint", 20),
    ("int2", 21),
    ("smallint", 21),
    ("int4", 23),
    ("int", 23),
    ("integer", 23),
    ("text", 25),
    ("oid", 26),
    ("json", 114),
    ("float4", 700),
    ("real", 700),
    ("float8", 701),
    ("double precision", 701),
    ("bpchar", 1_042),
    ("character", 1_042),
    ("varchar", 1_043),
    ("character varying", 1_043),
    ("date", 1_082),
    ("time", 1_083),
    ("time without time zone", 1_083),
    ("timestamp", 1_114),
    ("timestamp without time zone", 1_114),
    ("timestamptz", 1_184),
    ("timestamp with time zone", 1_184),
    ("interval", 1_186),
    ("numeric", 1_700),
    ("uuid", 2_950),
    ("jsonb", 3_802),
];

/// See the module. The numbers are of the type of `pg_type.oid`.
pub(super) fn to_regtype() -> ScalarUDF {
    let numbers = |args: &[ArrayRef]| -> Result<ArrayRef> {
        let names = args.first().and_then(|names| names.as_string_opt::<i32>());
        let names = names.ok_or_else(|| internal_datafusion_err!("names of types are texts"))?;
        let numbers: Int32Array = names.iter().map(number).collect();
        Ok(Arc::new(numbers))
    };
    create_udf(
        "to_regtype",
        vec![DataType::Utf8],
        DataType::Int32,
        Volatility::Stable,
        Arc::new(make_scalar_function(numbers, Vec::new())),
    )
}

fn number(name: Option<&str>) -> Option<i32> {
    let name = name?.trim().to_ascii_lowercase();
    let plain = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    TYPES
        .iter()
        .find(|(known, _)| *known == plain)
        .map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_a_number_by_each_of_its_names_and_no_other_text_has_one() {
        for (name, is) in [("text", 25), ("BIGINT", 20), ("pg_catalog.int8", 20), (" uuid ", 2_950)] {
            assert_eq!(number(Some(name)), Some(is), "{name}");
        }
        for name in [Some("hstore"), Some(""), Some("pg_catalog."), None] {
            assert_eq!(number(name), None, "{name:?}");
        }
    }
}
