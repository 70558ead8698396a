//! A statement as it is submitted: its text, its parameters, its limit.
//!
//! # Invariants
//!
//! - A key that is not known is refused, and a limit is a whole number, however it is written.
//!
//! # Not here
//!
//! What the text means: [`super::statement_parser`].

use std::collections::BTreeMap;

use arrow_schema::DataType;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What a statement is written for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SqlDialect {
    /// The tables.
    #[default]
    Plain,
    /// PostgreSQL, with its `pg_catalog` and its functions beside the tables.
    Postgres,
}

/// One statement and what stands in its places.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlStatement {
    /// The text.
    pub query: String,
    /// What `$1` or `$name` stand for.
    #[serde(default)]
    pub parameters: SqlParameters,
    /// At most so many rows, fewer than the limit of all answers.
    #[serde(default, deserialize_with = "whole")]
    pub limit: Option<u64>,
    /// What it is written for.
    #[serde(skip)]
    pub dialect: SqlDialect,
    /// The types of parameters that a client declares, by their places from 1. Intervals and bytes are no texts; the others are of their
    /// type where they are selected, and of what they are compared with elsewhere.
    #[serde(skip)]
    pub declared: BTreeMap<usize, DataType>,
}

/// The least number that is too great for 64 bits.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// A whole number. `5.0` is one in JSON Schema, and what some writers of JSON make of 5.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else {
        return Ok(None);
    };
    let fits = |float: &f64| float.fract() == 0.0 && (0.0..TWO_TO_64).contains(float);
    let of_float = number.as_f64().filter(fits);
    let whole = number.as_u64().or_else(|| of_float.map(|float| float as u64));
    whole
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("{number} is not a whole number from 0 on")))
}

/// The values of a statement's parameters: texts, numbers, booleans, null, or lists of these.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum SqlParameters {
    /// `$1` and those after it.
    Listed(Vec<Value>),
    /// `$name`.
    Named(BTreeMap<String, Value>),
}

impl Default for SqlParameters {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl SqlParameters {
    /// By how they are written in a text.
    pub(super) fn by_place(&self) -> BTreeMap<String, Value> {
        let listed = |values: &[Value]| {
            let places = values.iter().zip(1..);
            places
                .map(|(value, place)| (format!("${place}"), value.clone()))
                .collect()
        };
        match self {
            Self::Listed(values) => listed(values),
            Self::Named(values) => values
                .iter()
                .map(|(name, value)| (format!("${name}"), value.clone()))
                .collect(),
        }
    }
}
