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
    let page = Client::new(&args.page.api).page_within("/api/v1/telemetry/metrics", &filter, args.page.wait)?;
    output::rows(&page.rows, &columns(&page.rows), args.page.api.output)?;
    super::notes(&page, super::NO_ROWS);
    Ok(())
}

/// Points have the table's columns; buckets have whatever was asked for, time first and values last.
fn columns(rows: &[Row]) -> Vec<&str> {
    let is_bucket = rows.first().is_some_and(|row| row.contains_key("samples"));
    if is_bucket {
        let mut columns: Vec<&str> = rows
            .first()
            .into_iter()
            .flat_map(|row| row.keys().map(String::as_str))
            .collect();
        columns.sort_by_key(|column| match *column {
            "ts" => 0,
            "name" => 1,
            "type" => 3,
            "samples" => 4,
            "value" => 5,
            _ => 2,
        });
        return columns;
    }
    POINTS.to_vec()
}
