//! Maps DataFusion's errors to ours: what is the statement's fault, where it is, and what would help.
//!
//! # Invariants
//!
//! - What comes of a disk, a file or the machine stays ours ([`Error::Execution`]); all else is the statement's.

use std::sync::Arc;

use arrow_schema::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use model::Table;
use parquet::errors::ParquetError;

use super::function_allowlist::is_refused;
use super::session::TABLES;
use crate::Error;

/// An error of parsing, planning or carrying out a statement.
pub(super) fn statement_error(error: DataFusionError) -> Error {
    if let DataFusionError::External(cause) = error.find_root() {
        match cause.downcast_ref() {
            Some(Error::Forbidden { table, .. }) => return Error::outside_scope(table),
            Some(Error::StoredElsewhere { table, place }) => {
                return Error::StoredElsewhere {
                    table: table.clone(),
                    place: Arc::clone(place),
                };
            }
            _ => {}
        }
    }
    if is_ours(&error) {
        return Error::Execution(Box::new(error));
    }
    let at = place(&error);
    let root = error.find_root();
    let mut reason = match root {
        DataFusionError::SQL(error, _) => parser_message(error),
        DataFusionError::ArrowError(error, _) => error.to_string(),
        DataFusionError::ParquetError(error) => condition(error).unwrap_or_else(|| error.to_string()),
        DataFusionError::Internal(text) => {
            tracing::warn!(error = %text, "a statement hit a defect of the query engine");
            first_line(text)
        }
        DataFusionError::ExecutionJoin(_) => {
            tracing::error!(%error, "a statement made the query engine panic");
            "the query engine cannot execute it: write it in another way".to_owned()
        }
        other => other.message().into_owned(),
    };
    if let Some(name) = refused(&reason) {
        reason = format!("Invalid function '{name}': it is not supported; docs/sql.md names those that are");
    } else if let Some(hint) = hint(&reason) {
        reason = format!("{}: {hint}", reason.trim_end_matches('.'));
    }
    Error::Statement { reason, at }
}

/// What a task that panicked or was stopped leaves behind.
pub(crate) fn task_error(stopped: tokio::task::JoinError) -> Error {
    if stopped.is_panic() {
        tracing::error!(error = %stopped, "a statement made the query engine panic");
        return Error::statement("the query engine cannot execute this statement: write it in another way");
    }
    Error::Aborted(stopped.to_string())
}

/// Whether the fault is not the statement's.
fn is_ours(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ParquetError(error) if condition(error).is_some() => false,
        DataFusionError::External(error) if error.is::<regex::Error>() => false,
        DataFusionError::ResourcesExhausted(_)
        | DataFusionError::ParquetError(_)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::IoError(_)
        | DataFusionError::External(_) => true,
        DataFusionError::ArrowError(error, _) => matches!(
            error.as_ref(),
            ArrowError::ExternalError(_) | ArrowError::IoError(..) | ArrowError::ParquetError(_)
        ),
        _ => false,
    }
}

/// What a condition said that could not be evaluated while a file was read.
fn condition(error: &ParquetError) -> Option<String> {
    let ParquetError::External(error) = error else {
        return None;
    };
    match error.downcast_ref::<ArrowError>() {
        Some(ArrowError::ComputeError(text)) => Some(text.clone()),
        _ => None,
    }
}

fn parser_message(error: &ParserError) -> String {
    match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
            // The place is given beside the message.
            text.split(" at Line:").next().unwrap_or(text).to_owned()
        }
        ParserError::RecursionLimitExceeded => "parts of it are too deep within each other".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Line and column, both from 1.
fn place(error: &DataFusionError) -> Option<(u64, u64)> {
    if let Some(span) = error.diagnostic().and_then(|diagnostic| diagnostic.span) {
        return Some((span.start.line, span.start.column));
    }
    let DataFusionError::SQL(error, _) = error.find_root() else {
        return None;
    };
    let text = error.to_string();
    let (_, place) = text.split_once("at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    let digits = column.find(|c: char| !c.is_ascii_digit()).unwrap_or(column.len());
    Some((line.parse().ok()?, column.get(..digits)?.parse().ok()?))
}

/// The function that a statement asks for, if it is known and not supported.
fn refused(reason: &str) -> Option<&str> {
    let (_, name) = reason
        .split_once("nvalid function '")
        .or_else(|| reason.split_once("able function '"))?;
    name.split('\'').next().filter(|name| is_refused(name))
}

/// What would help.
fn hint(reason: &str) -> Option<String> {
    if reason.contains("table '") && reason.contains("not found") {
        let names: Vec<_> = TABLES.iter().map(|table| table.name()).collect();
        return Some(format!(
            "the tables are {}, and messages_NAME of each spec",
            names.join(", ")
        ));
    }
    if reason.contains("Error parsing timestamp") {
        return Some("a time is written as 2026-01-31, 2026-01-31 10:00:00 or 2026-01-31T10:00:00.5+01:00".to_owned());
    }
    if reason.contains("FixedSizeBinary(16)") {
        let hint = "an id compares with text as it is; uuid_text(id) makes a text of one, uuid(text) an id";
        return Some(hint.to_owned());
    }
    if reason.contains("No field named") && !reason.contains("Did you mean") && !reason.contains("Valid fields") {
        let columns = |table: &Table| {
            let names: Vec<_> = table.columns().iter().map(|column| column.name).collect();
            format!("{table} ({})", names.join(", "))
        };
        let all: Vec<_> = TABLES.iter().map(columns).collect();
        return Some(format!("columns are {}", all.join("; ")));
    }
    None
}
