//! Result view: headers, types and plans of a statement's answer as people write them.
//!
//! | the planner says | people see |
//! |---|---|
//! | `to_char(logs.ts,Utf8("YYYY"))` | `to_char`, as in PostgreSQL |
//! | `Int64(1)` | `?column?`, as there |
//! | `FixedSizeBinary(16)`, `Timestamp(µs, "UTC")`, `Utf8` in a column `data_type` | `uuid`, `timestamptz`, `text` |
//! | a plan with line breaks | a row for each line |
//!
//! # Not here
//!
//! What programs get: names, types and plans as the Mixer says them.

use std::iter;

use serde_json::Value;

use super::SqlResultSet;
use crate::client::Row;

const PLAN_TYPE: &str = "plan_type";
const PLAN: &str = "plan";

impl SqlResultSet {
    /// Whether it is what `EXPLAIN` says.
    pub(super) fn is_plan(&self) -> bool {
        self.columns.iter().map(|(name, _)| name.as_str()).eq([PLAN_TYPE, PLAN])
    }

    /// A row for each line of a plan.
    pub(super) fn split_plan(&mut self) {
        self.rows = self.rows.iter().flat_map(plan_lines).collect();
    }

    /// Gives columns without a name of their own the name of their function, where no other column has it.
    pub(super) fn shorten_headers(&mut self) {
        for at in 0..self.columns.len() {
            let name = self.columns[at].0.clone();
            let Some(short) = header(&name) else {
                continue;
            };
            if self.columns.iter().any(|(other, _)| other == short) {
                continue;
            }
            for row in &mut self.rows {
                if let Some(value) = row.remove(&name) {
                    row.insert(short.to_owned(), value);
                }
            }
            self.columns[at].0 = short.to_owned();
        }
    }

    /// Types of columns as statements write them, in the description of a table.
    pub(super) fn show_types(&mut self) {
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        if !names.eq(["column_name", "data_type", "is_nullable"]) {
            return;
        }
        for value in self.rows.iter_mut().filter_map(|row| row.get_mut("data_type")) {
            if let Some(kind) = value.as_str().and_then(type_name) {
                *value = kind.into();
            }
        }
    }
}

/// The header of a column that the planner named by its expression, if that is one call or one literal.
fn header(name: &str) -> Option<&str> {
    let (function, arguments) = name.split_once('(')?;
    if !closes_at_its_end(arguments) {
        return None;
    }
    let is_literal = ["Int64", "Float64", "Utf8", "Boolean"].contains(&function);
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match function {
        "" => None,
        _ if is_literal => Some("?column?"),
        _ => function.bytes().all(is_word).then_some(function),
    }
}

/// Whether a parenthesis that is open is closed by the last character, and not before.
fn closes_at_its_end(text: &str) -> bool {
    let mut open = 1_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => open += 1,
            b')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return at + 1 == text.len();
        }
    }
    false
}

/// A type of the planner as statements write it.
fn type_name(planned: &str) -> Option<&'static str> {
    Some(match planned {
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "FixedSizeBinary(16)" => "uuid",
        "Boolean" => "boolean",
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "UInt64" => "ubigint",
        "Float32" => "real",
        "Float64" => "double",
        "Binary" | "LargeBinary" | "BinaryView" => "blob",
        "Date32" => "date",
        _ if planned.starts_with("Timestamp(") && planned.contains('"') => "timestamptz",
        _ if planned.starts_with("Timestamp(") => "timestamp",
        _ => return None,
    })
}

fn plan_lines(row: &Row) -> Vec<Row> {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let kinds = iter::once(text(PLAN_TYPE)).chain(iter::repeat(""));
    let lines = text(PLAN).lines().zip(kinds);
    let line = |(line, kind): (&str, &str)| {
        Row::from_iter([
            (PLAN_TYPE.to_owned(), Value::from(kind)),
            (PLAN.to_owned(), Value::from(line)),
        ])
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_are_those_of_postgresql_where_an_expression_is_one_call_or_literal() {
        for (name, expected) in [
            ("count(*)", Some("count")),
            ("to_char(logs.ts,Utf8(\"YYYY\"))", Some("to_char")),
            ("Int64(1)", Some("?column?")),
            ("sum(a) / count(*)", None),
            ("count(*)_1", None),
            ("rate (1/s)", None),
            ("(a)", None),
            ("n", None),
            ("f(", None),
            ("Größe(x)", None),
        ] {
            assert_eq!(header(name), expected, "{name}");
        }
    }

    #[test]
    fn types_plans_and_headers_are_shown_as_people_write_them() {
        let set = |columns: &[&str], rows: Value| SqlResultSet {
            columns: columns
                .iter()
                .map(|name| ((*name).to_owned(), "text".to_owned()))
                .collect(),
            rows: rows
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row.as_object().unwrap().clone())
                .collect(),
            truncated: false,
            partial: None,
            ms: None,
        };
        let described = ["column_name", "data_type", "is_nullable"];
        let mut types = set(
            &described,
            json!([
                { "column_name": "ts", "data_type": "Timestamp(µs, \"UTC\")" },
                { "column_name": "flux_id", "data_type": "FixedSizeBinary(16)" },
                { "column_name": "odd", "data_type": "Map" },
            ]),
        );
        types.show_types();
        let kinds: Vec<_> = types.rows.iter().map(|row| row["data_type"].clone()).collect();
        assert_eq!(kinds, ["timestamptz", "uuid", "Map"]);
        let mut own = set(
            &described[1..2],
            json!([{ "data_type": "Map" }, { "data_type": "Utf8" }]),
        );
        own.show_types();
        assert_eq!(own.rows[1]["data_type"], "Utf8", "a column of somebody's own");

        let mut plan = set(
            &[PLAN_TYPE, PLAN],
            json!([{ "plan_type": "logical_plan", "plan": "A\n  B\n" }]),
        );
        assert!(plan.is_plan() && !types.is_plan());
        plan.split_plan();
        assert_eq!(
            json!(plan.rows),
            json!([{ "plan_type": "logical_plan", "plan": "A" }, { "plan_type": "", "plan": "  B" }])
        );

        let mut counts = set(&["count(*)", "max(n)"], json!([{ "count(*)": 2, "max(n)": 7 }]));
        counts.shorten_headers();
        assert_eq!(json!(counts.rows), json!([{ "count": 2, "max": 7 }]));
        let mut taken = set(&["count(*)", "count"], json!([{ "count(*)": 2, "count": 7 }]));
        taken.shorten_headers();
        assert_eq!(json!(taken.rows), json!([{ "count(*)": 2, "count": 7 }]));
    }
}
