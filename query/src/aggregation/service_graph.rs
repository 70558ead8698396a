//! Services as spans name them: how many spans and errors each has and how long they take, its operations, and the service graph,
//! which says how often one calls another.
//!
//! A call is a span whose parent is a span of another service; it is an error if the called span is one. Calls are found by a join of
//! spans with their parents, in memory that counts as the query's.
//!
//! # Invariants
//!
//! - A called span is one call, however often it or its parent is stored.
//! - A call whose parent is not in the window, not stored or not in the scope of who asks is not counted.
//!
//! Not here: what the service of a span is ([`crate::filter::service_of`]).

use datafusion::common::JoinType;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::{Expr, ident, lit, when};
use model::{Span, SpanStatus};

use crate::approx_percentile::approx_percentile;
use crate::query_result::{JsonPage, objects};
use crate::query_scan::QueryScan;
use crate::scalar_functions::json_text;
use crate::view_table::RowOrder;
use crate::{Error, filter};

/// Each service with its spans, by its name.
pub(crate) async fn services(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let frame = scan.frame(scan.window, RowOrder::Any)?.select(vec![
        filter::service_of("attributes").alias("service"),
        failed()?.alias("failed"),
        ident("duration_ms"),
        ident("ts"),
    ])?;
    let sums = vec![
        count(lit(1)).alias("spans"),
        count(ident("failed")).alias("errors"),
        approx_percentile(ident("duration_ms"), 0.5).alias("p50_ms"),
        approx_percentile(ident("duration_ms"), 0.99).alias("p99_ms"),
        max(ident("ts")).alias("last_seen"),
    ];
    let frame = frame.aggregate(vec![ident("service")], sums)?;
    let frame = frame.sort(vec![ident("service").sort(true, false)])?;
    let found = frame.limit(0, Some(limit + 1))?.collect().await?;
    Ok(scan.last_page(objects(&found).collect()).truncate_to(limit))
}

/// The names of services, sorted.
pub(crate) async fn service_names(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let frame = frame.select(vec![filter::service_of("attributes").alias("service")])?;
    let frame = frame.aggregate(vec![ident("service")], Vec::new())?;
    let frame = frame.sort(vec![ident("service").sort(true, false)])?;
    let found = frame.limit(0, Some(limit + 1))?.collect().await?;
    Ok(scan.last_page(objects(&found).collect()).truncate_to(limit))
}

/// Each operation with its kind, if that is known, by their names.
pub(crate) async fn operations(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let keys = || ["span_name", "span_kind"].map(ident).to_vec();
    let kind = json_text(ident("attributes"), lit(Span::KIND)).alias("span_kind");
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let frame = frame.select(vec![ident("span_name"), kind])?;
    let frame = frame.aggregate(keys(), vec![count(lit(1)).alias("spans")])?;
    let order = keys().into_iter().map(|key| key.sort(true, true)).collect();
    let found = frame.sort(order)?.limit(0, Some(limit + 1))?.collect().await?;
    Ok(scan.last_page(objects(&found).collect()).truncate_to(limit))
}

/// The calls of the spans that `scan` finds, by caller and callee, the most frequent first.
pub(crate) async fn dependencies(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let called = scan.frame(scan.window, RowOrder::Any)?;
    let called = called.filter(ident("parent_span_id").is_not_null())?.select(vec![
        ident("trace_id").alias("trace"),
        ident("span_id").alias("span"),
        ident("parent_span_id").alias("parent"),
        filter::service_of("attributes").alias("callee"),
        failed()?.alias("failed"),
    ])?;
    let parents = scan.scan_with(Vec::new())?;
    let parents = parents.frame(scan.window, RowOrder::Any)?.select(vec![
        ident("trace_id").alias("parent_trace"),
        ident("span_id").alias("parent_span"),
        filter::service_of("attributes").alias("caller"),
    ])?;
    let calls = called.join(
        parents,
        JoinType::Inner,
        &["trace", "parent"],
        &["parent_trace", "parent_span"],
        Some(ident("caller").not_eq(ident("callee"))),
    )?;
    let of_span = vec![
        min(ident("caller")).alias("caller"),
        max(ident("failed")).alias("failed"),
    ];
    let calls = calls.aggregate(["trace", "span", "callee"].map(ident).to_vec(), of_span)?;
    let sums = vec![count(lit(1)).alias("calls"), count(ident("failed")).alias("errors")];
    let calls = calls.aggregate(["caller", "callee"].map(ident).to_vec(), sums)?;
    let order = vec![
        ident("calls").sort(false, true),
        ident("caller").sort(true, false),
        ident("callee").sort(true, false),
    ];
    let found = calls.sort(order)?.limit(0, Some(limit + 1))?.collect().await?;
    Ok(scan.last_page(objects(&found).collect()).truncate_to(limit))
}

/// A value for spans that are errors, for others none.
fn failed() -> Result<Expr, Error> {
    Ok(when(ident("status").eq(lit(SpanStatus::Error.as_str())), lit(1)).end()?)
}
