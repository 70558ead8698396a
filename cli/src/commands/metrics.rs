//! `platform metrics`.

use model::filter::MetricFilter;

use crate::args::MetricsArgs;
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output;

const POINTS: &[&str] = &["ts", "name", "entity_name", "type", "value", "labels"];

pub(crate) fn run(args: &MetricsArgs) -> Result<(), Error> {
    let filter = MetricFilter {
        name: args.name.clone(),
        entity: args.entity.clone(),
        since: args.page.since,
        until: args.page.until,
        group_by: args.group_by.clone(),
        interval: args.interval,
        agg: args.agg,
        limit: Some(args.page.limit),
        ..MetricFilter::default()
    };
    let page = Client::new(&args.page.api).page("/api/v1/telemetry/metrics", &filter)?;
    output::rows(&page.rows, &columns(&page.rows), args.page.api.output)?;
    super::notes(&page);
    Ok(())
}

/// Points have the table's columns; buckets have whatever was asked for.
fn columns(rows: &[Row]) -> Vec<&str> {
    match rows.first() {
        Some(row) if !row.contains_key("labels") => row.keys().map(String::as_str).collect(),
        _ => POINTS.to_vec(),
    }
}
