//! `platform metrics`: points and buckets, and which metrics and labels there are.

use model::filter::{MAX_LIMIT, MetricAggregate, MetricFilter, SeriesFilter, TimePoint};
use model::{HumanDuration, Timestamp};
use serde_json::Value;

use crate::args::{MetricLabelsArgs, MetricsArgs, MetricsVerb, OutputFormat, PageArgs, SeriesArgs};
use crate::chart::{self, TimeAxis};
use crate::client::{ApiClient, ResultPage, Row, path_segment};
use crate::error::Error;
use crate::nearest_word::nearest;
use crate::output::RowPrinter;
use crate::span_tree::text;
use crate::terminal::TerminalSize;
use crate::value_units::UNIT;

const POINTS: &[&str] = &["ts", "name", "entity_name", "type", "value", "labels"];
/// The same with all that is stored, for CSV.
const WHOLE_POINTS: &[&str] = &["ts", "name", "entity_id", "entity_name", "type", "value", "labels"];

const NAMES: &str = "/api/v1/telemetry/metrics/names";
const LABEL_KEYS: &[&str] = &["key", "values", "count"];
const LABEL_VALUES: &[&str] = &["value", "count"];
const EXEMPLARS: &[&str] = &["ts", "value", "trace_id", "span_id", "entity_name", "labels"];

pub(crate) fn run(args: &MetricsArgs) -> Result<(), Error> {
    match (&args.verb, &args.name) {
        (Some(MetricsVerb::Names(args)), _) => names(args),
        (Some(MetricsVerb::Labels(args)), _) => labels(args),
        (None, Some(name)) if args.exemplars => exemplars(args, name),
        (None, _) => points(args),
    }
}

/// The metrics that have points.
fn names(args: &SeriesArgs) -> Result<(), Error> {
    let page = ApiClient::new(&args.page.api).page_within(NAMES, &args.filter()?, args.page.wait)?;
    RowPrinter::from(&args.page.api).rows(&page.rows, &["name", "type", "count"])?;
    note_limit(&page, &args.page);
    super::notes(&page, super::NO_ROWS)
}

/// The label keys of a metric, or the values of one of them.
fn labels(args: &MetricLabelsArgs) -> Result<(), Error> {
    let (series, metric) = (&args.series, path_segment(&args.name));
    let (path, columns) = match &args.key {
        None => (format!("/api/v1/telemetry/metrics/{metric}/labels"), LABEL_KEYS),
        Some(key) => (
            format!("/api/v1/telemetry/metrics/{metric}/labels/{}", path_segment(key)),
            LABEL_VALUES,
        ),
    };
    let page = ApiClient::new(&series.page.api).page_within(&path, &series.filter()?, series.page.wait)?;
    RowPrinter::from(&series.page.api).exact().rows(&page.rows, columns)?;
    note_limit(&page, &series.page);
    super::notes(
        &page,
        "no label of it in this window (--since, --until; default: the last 24 h)",
    )
}

/// Lists of names have no cursor: one that is as long as it may be may be cut.
fn note_limit(page: &ResultPage, args: &PageArgs) {
    if page.rows.len() >= args.limit as usize {
        super::note(&format!("there may be more than these {}; raise --limit", args.limit));
    }
}

fn exemplars(args: &MetricsArgs, name: &str) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let filter = SeriesFilter {
        entity: args.entity.clone(),
        service: args.service.clone(),
        labels: crate::args::values_by_key("label", &args.label)?,
        since,
        until,
        limit: Some(args.page.limit),
    };
    let path = format!("/api/v1/telemetry/metrics/{}/exemplars", path_segment(name));
    let page = ApiClient::new(&args.page.api).page_within(&path, &filter, args.page.wait)?;
    RowPrinter::from(&args.page.api).rows(&page.rows, EXEMPLARS)?;
    super::notes(
        &page,
        "no point in this window has exemplars (--since, --until; default: the last 24 h)",
    )
}

/// Points, or what they come to.
fn points(args: &MetricsArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let filter = MetricFilter {
        name: args.name.clone(),
        entity: args.entity.clone(),
        service: args.service.clone(),
        since,
        until,
        group_by: args.group_by.clone(),
        interval: args.interval,
        agg: args.agg,
        labels: crate::args::values_by_key("label", &args.label)?,
        fill: args.fill.then_some(true),
        limit: Some(args.page.limit),
        ..MetricFilter::default()
    };
    let client = ApiClient::new(&args.page.api);
    let mut page = client.page_within("/api/v1/telemetry/metrics", &filter, args.page.wait)?;
    if chart::is_buckets(&page.rows) {
        oldest_first(&mut page.rows);
    }
    let printer = RowPrinter::from(&args.page.api);
    let is_whole = printer.format == OutputFormat::Csv && !chart::is_buckets(&page.rows);
    let columns = if is_whole {
        WHOLE_POINTS.to_vec()
    } else {
        columns(&page.rows)
    };
    let mut rows = page.rows.clone();
    if printer.format == OutputFormat::Table
        && let Some(unit) = bucket_unit(&client, &filter, &rows)
    {
        for row in &mut rows {
            row.insert(UNIT.to_owned(), unit.as_str().into());
        }
    }
    if printer.draws(args.chart) && chart::is_buckets(&rows) {
        printer.text(&drawn(&rows, columns, args.interval, printer))?;
    } else {
        printer.rows(&rows, &columns)?;
    }
    if let Some(key) = args.group_by.as_deref().filter(|key| lack_label(&rows, key)) {
        super::note(&format!(
            "no point here has the label {key}; `platform metrics labels NAME` lists those that a metric has"
        ));
    }
    let name = args.name.as_deref().filter(|_| page.rows.is_empty());
    let unknown = name.and_then(|name| unknown_metric(&client, name, (since, until)));
    super::notes(&page, unknown.as_deref().unwrap_or(super::NO_ROWS))
}

/// Whether groups by a label are one group, of points without it.
fn lack_label(groups: &[Row], key: &str) -> bool {
    let is_empty = |group: &Row| {
        let value = group.get("labels").and_then(|labels| labels.get(key));
        value.is_some_and(|value| value.is_null() || value == "")
    };
    !groups.is_empty() && groups.iter().all(is_empty)
}

/// The unit of what the points of a bucket come to, if they are of one metric. The newest bucket is looked at.
fn bucket_unit(client: &ApiClient, filter: &MetricFilter, rows: &[Row]) -> Option<String> {
    let name = filter.name.as_ref().filter(|_| chart::is_buckets(rows))?;
    let is_filled = |row: &&Row| row.get("samples").and_then(Value::as_u64) != Some(0);
    let newest = rows.iter().rev().find(is_filled)?;
    let at = text(newest, "ts").parse::<Timestamp>().ok();
    let bucket = at.zip(filter.interval).map(|(at, width)| [at, at.plus(width.get())]);
    let [since, until] = bucket.map_or([filter.since, filter.until], |ends| {
        ends.map(|at| Some(TimePoint::At(at)))
    });
    let one = MetricFilter {
        entity: filter.entity.clone(),
        service: filter.service.clone(),
        labels: filter.labels.clone(),
        since,
        until,
        limit: Some(1),
        ..MetricFilter::default()
    };
    let path = format!("/api/v1/telemetry/metrics/{}", path_segment(name));
    let answer = client.get(&path, &one).ok()?;
    let metric = &answer["metric"];
    let unit = metric["unit"].as_str().unwrap_or_default();
    match filter.agg {
        Some(MetricAggregate::Count) => None,
        Some(MetricAggregate::Rate) => Some(format!("{unit}/s")),
        None if metric["type"] == "counter" => Some(format!("{unit}/s")),
        _ => Some(unit.to_owned()),
    }
}

/// What to say of a metric that has no points at all, and which other one may be meant.
fn unknown_metric(
    client: &ApiClient,
    name: &str,
    (since, until): (Option<TimePoint>, Option<TimePoint>),
) -> Option<String> {
    let filter = SeriesFilter {
        since,
        until,
        limit: Some(MAX_LIMIT),
        ..SeriesFilter::default()
    };
    let known = client.page(NAMES, &filter).ok()?.rows;
    let known = || known.iter().map(|row| text(row, "name"));
    if known().any(|known| known == name) {
        return None;
    }
    let meant = nearest(name, known()).map_or_else(|| ";".to_owned(), |meant| format!("; did you mean {meant}?"));
    Some(format!(
        "the metric {name} has no points in this window{meant} `platform metrics names` lists those that have"
    ))
}

/// Buckets in the order of time, as lines of blocks have them; those of one time keep theirs.
pub(super) fn oldest_first(buckets: &mut [Row]) {
    buckets.sort_by(|a, b| text(a, "ts").cmp(text(b, "ts")));
}

/// When it was, a line of blocks for each series, and below them the table, with a bar a row where rows compare.
pub(super) fn drawn(
    rows: &[Row],
    mut columns: Vec<&str>,
    interval: Option<HumanDuration>,
    printer: RowPrinter,
) -> String {
    let axis = TimeAxis::of(rows, interval.map(HumanDuration::get));
    let mut listed = rows.to_vec();
    if let Some(bars) = chart::bars(rows, &axis) {
        columns.push(chart::BAR);
        listed = listed.into_iter().zip(bars).map(with_bar).collect();
    }
    // Lines show where there was nothing.
    listed.retain(|row| !axis.is_line() || row.get("count").and_then(Value::as_u64) != Some(0));
    let table = printer.table(&listed, &columns);
    if !axis.is_line() {
        return table;
    }
    let lines = chart::sparklines(rows, &axis, TerminalSize::drawing_width());
    format!("{}{lines}\n{table}", span(&axis, interval, printer))
}

/// What time the lines are of.
fn span(axis: &TimeAxis, interval: Option<HumanDuration>, printer: RowPrinter) -> String {
    let Some((first, last, count)) = axis.ends() else {
        return String::new();
    };
    // Of a width that the Mixer chose, the buckets tell it: all of them are there.
    let even = last.since(first) / u32::try_from(count).unwrap_or(u32::MAX).saturating_sub(1).max(1);
    let even = HumanDuration::from_millis(u64::try_from(even.as_millis()).unwrap_or(u64::MAX));
    let interval = interval.unwrap_or(even);
    let (first, end) = (printer.zone.show(first), printer.zone.show(last.plus(interval.get())));
    format!("{first} to {end}, {count} buckets of {interval}\n")
}

fn with_bar((mut row, bar): (Row, String)) -> Row {
    row.insert(chart::BAR.to_owned(), bar.into());
    row
}

/// Points have the table's columns; buckets have whatever was asked for, time first and values last.
fn columns(rows: &[Row]) -> Vec<&str> {
    if chart::is_buckets(rows) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn buckets(zones: &[&str], minutes: &[usize]) -> Vec<Row> {
        let bucket = |minute: usize, zone: &str, value: usize| {
            json!({ "ts": format!("2026-11-21T10:{minute:02}:00.000000Z"), "name": "temp", "type": "gauge",
                    "labels": { "zone": zone }, "value": value, "samples": 2 })
        };
        let each = |minute: &usize| {
            let of = |(at, zone): (usize, &&str)| bucket(*minute, zone, minute * 10 + at);
            zones.iter().enumerate().map(of).collect::<Vec<Value>>()
        };
        let rows = minutes.iter().rev().flat_map(each);
        let mut rows: Vec<Row> = rows.filter_map(|row| row.as_object().cloned()).collect();
        oldest_first(&mut rows);
        rows
    }

    fn drawn_of(rows: &[Row]) -> String {
        drawn(
            rows,
            columns(rows),
            Some(HumanDuration::from_secs(60)),
            RowPrinter::of(OutputFormat::Table),
        )
    }

    #[test]
    fn a_single_series_is_a_line_and_a_bar_a_row() {
        insta::assert_snapshot!(drawn_of(&buckets(&["a"], &[1, 2, 3, 6])));
    }

    #[test]
    fn more_series_are_a_line_each() {
        insta::assert_snapshot!(drawn_of(&buckets(&["a", "b"], &[1, 2])));
    }

    #[test]
    fn groups_of_one_bucket_are_a_bar_each() {
        insta::assert_snapshot!(drawn_of(&buckets(&["a", "b", "c"], &[1])));
    }
}
