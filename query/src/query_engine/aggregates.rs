//! Aggregates: histograms, most frequent values, services and their calls, metrics by name and what their labels are.
//!
//! Not here: how they are computed ([`crate::aggregation`]).

use std::collections::HashSet;

use datafusion::logical_expr::{Expr, ident, lit};
use model::filter::{
    DEFAULT_LIMIT, HistogramFilter, HistogramGrouping, LogFilter, MAX_LIMIT, MetricFilter, SeriesFilter, SortOrder,
    TopFilter, TraceFilter,
};
use model::{Table, TraceId};

use super::QueryEngine;
use crate::aggregation::log_histogram::HistogramQuery;
use crate::aggregation::{
    field_catalog, has_rows, log_histogram, metric_catalog, no_metric, rollup_query, service_graph, top_values,
};
use crate::query_result::{JsonPage, LogHistogram, MetricPage};
use crate::query_scan::QueryScan;
use crate::scalar_functions::json_text;
use crate::scan::RollupQuery;
use crate::time_range::TimeRange;
use crate::{Error, ListQuery, TraceSearch, exemplars, filter, trace_search};

/// The greatest number of values of one top list.
const MOST_TOP: u32 = 1_000;
/// The greatest number of traces of one answer, as Jaeger's page has it.
const MOST_TRACES: u32 = 1_500;

impl QueryEngine {
    /// How many of the log records that a filter lets through lie in each bucket of time, newest bucket first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn logs_histogram(&self, filter: &LogFilter, shape: &HistogramFilter) -> Result<LogHistogram, Error> {
        no_pages(filter.limit, filter.offset, filter.cursor.as_deref(), filter.order)?;
        let window = TimeRange::resolve(filter.since, filter.until, filter.flux_id, self.now())?;
        let plan = HistogramQuery::new(filter, shape, window, self.now())?;
        let scan = || self.scan(Table::Logs, window, filter::logs(filter));
        self.run(|| {
            let (scan, plan) = (scan(), plan.clone());
            async move { log_histogram::log_histogram(scan?, plan).await }
        })
        .await
    }

    /// The most frequent values of a field of the log records that a filter lets through.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn logs_top(&self, filter: &LogFilter, top: &TopFilter) -> Result<JsonPage, Error> {
        no_pages(None, filter.offset, filter.cursor.as_deref(), filter.order)?;
        let window = TimeRange::resolve(filter.since, filter.until, filter.flux_id, self.now())?;
        let by = match top.field.as_deref() {
            Some("level") => Some(HistogramGrouping::Level),
            Some("entity_name") => Some(HistogramGrouping::EntityName),
            _ => None,
        };
        let question =
            by.and_then(|by| rollup_query::rollup_query(filter, window, (by, None), top_values::MOST_VALUES));
        let scanned = (Table::Logs, window, filter::logs(filter));
        self.top(scanned, question, top, filter.limit).await
    }

    /// The most frequent values of a field of the spans that a filter lets through.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn traces_top(&self, filter: &TraceFilter, top: &TopFilter) -> Result<JsonPage, Error> {
        no_pages(None, filter.offset, filter.cursor.as_deref(), filter.order)?;
        let window = TimeRange::resolve(filter.since, filter.until, filter.flux_id, self.now())?;
        let scanned = (Table::Traces, window, filter::traces(filter));
        self.top(scanned, None, top, filter.limit).await
    }

    /// The fields of the log records that a filter lets through, each with how many of them have it: columns, then attributes.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn log_fields(&self, filter: &LogFilter) -> Result<JsonPage, Error> {
        no_pages(None, filter.offset, filter.cursor.as_deref(), filter.order)?;
        let limit = up_to(filter.limit, MAX_LIMIT, MAX_LIMIT)?;
        let window = TimeRange::resolve(filter.since, filter.until, filter.flux_id, self.now())?;
        self.run(|| {
            let scan = self.scan(Table::Logs, window, filter::logs(filter));
            async move { field_catalog::fields(scan?, limit).await }
        })
        .await
    }

    /// As [`QueryEngine::log_fields`], of spans.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn trace_fields(&self, filter: &TraceFilter) -> Result<JsonPage, Error> {
        self.of_spans(filter, field_catalog::fields).await
    }

    /// The services of the spans that a filter lets through, by name: how many spans and errors each has, how long they took, and when
    /// the last one began.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn services(&self, filter: &TraceFilter) -> Result<JsonPage, Error> {
        self.of_spans(filter, service_graph::services).await
    }

    /// The names of the services of the spans that a filter lets through, sorted.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn service_names(&self, filter: &TraceFilter) -> Result<JsonPage, Error> {
        self.of_spans(filter, service_graph::service_names).await
    }

    /// The operations of the spans that a filter lets through, with their kinds, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn operations(&self, filter: &TraceFilter) -> Result<JsonPage, Error> {
        self.of_spans(filter, service_graph::operations).await
    }

    /// Which service calls which, how often, and how often in vain; a filter is of the spans that are called.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dependencies(&self, filter: &TraceFilter) -> Result<JsonPage, Error> {
        self.of_spans(filter, service_graph::dependencies).await
    }

    /// What a summary says of the spans that a filter lets through.
    async fn of_spans<W>(
        &self,
        filter: &TraceFilter,
        summarize: impl Fn(QueryScan, usize) -> W + Copy + Send + 'static,
    ) -> Result<JsonPage, Error>
    where
        W: Future<Output = Result<JsonPage, Error>> + Send + 'static,
    {
        no_pages(None, filter.offset, filter.cursor.as_deref(), filter.order)?;
        let limit = up_to(filter.limit, MAX_LIMIT, MAX_LIMIT)?;
        let window = TimeRange::resolve(filter.since, filter.until, filter.flux_id, self.now())?;
        self.run(|| {
            let scan = self.scan(Table::Traces, window, filter::traces(filter));
            async move { summarize(scan?, limit).await }
        })
        .await
    }

    /// The newest traces with a span that meets a search, each with all of its stored spans; 10,000 spans at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn whole_traces(&self, search: &TraceSearch) -> Result<JsonPage, Error> {
        let filter = &search.filter;
        no_pages(None, filter.offset, filter.cursor.as_deref(), filter.order)?;
        let limit = up_to(filter.limit, DEFAULT_LIMIT, MOST_TRACES)?;
        let window = TimeRange::resolve(filter.since, filter.until, filter.flux_id, self.now())?;
        self.run(|| {
            let scan = self.scan(Table::Traces, window, search.conditions());
            async move { trace_search::whole_traces(scan?, limit).await }
        })
        .await
    }

    /// All stored spans of these traces, 10,000 at most. A trace that is named twice is one.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the store has no span of any of them; see [`Error`].
    pub async fn spans_of_traces(&self, ids: &[TraceId]) -> Result<JsonPage, Error> {
        let mut named = HashSet::new();
        let ids: Vec<TraceId> = ids.iter().copied().filter(|id| named.insert(*id)).collect();
        if ids.len() > MOST_TRACES as usize {
            let reason = format!("{} traces are more than {MOST_TRACES}: ask for some of them", ids.len());
            return Err(Error::parameter("traceID", reason));
        }
        self.run(|| {
            let scan = self.scan(Table::Traces, TimeRange::ALL, Vec::new());
            let ids = ids.clone();
            async move { trace_search::stored_traces(scan?, &ids).await }
        })
        .await
    }

    /// How many dead letters are kept, by subject; of so many subjects those that have most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn letter_counts(&self, most: u32) -> Result<Vec<(String, u64)>, Error> {
        let by_subject = TopFilter {
            field: Some("subject".to_owned()),
        };
        let scanned = (Table::DeadLetters, TimeRange::ALL, Vec::new());
        let page = self.top(scanned, None, &by_subject, Some(most)).await?;
        let count = |mut row: serde_json::Map<String, serde_json::Value>| {
            let subject = row.remove("value")?.as_str()?.to_owned();
            Some((subject, row.get("count")?.as_u64()?))
        };
        Ok(page.rows.into_iter().filter_map(count).collect())
    }

    async fn top(
        &self,
        (table, window, conditions): (Table, TimeRange, Vec<Expr>),
        question: Option<RollupQuery>,
        top: &TopFilter,
        limit: Option<u32>,
    ) -> Result<JsonPage, Error> {
        let field = top_values::field_of(table, top)?;
        let limit = up_to(limit, DEFAULT_LIMIT, MOST_TOP)?;
        let scan = || self.scan(table, window, conditions.clone());
        self.run(|| {
            let (scan, field, question) = (scan(), field.clone(), question.clone());
            async move { top_values::most_frequent_counted(scan?, field, question, limit).await }
        })
        .await
    }

    /// One metric by its name: its points, or what they come to, with its type, unit and label keys.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no point of it lies in the window; see [`Error`].
    pub async fn metric(&self, name: &str, filter: &MetricFilter) -> Result<MetricPage, Error> {
        let filter = named(name, filter.clone())?;
        let list = self.list(&ListQuery::Metrics(filter.clone())).await?;
        let of_all = MetricFilter {
            entity: None,
            service: None,
            ..filter
        };
        let window = TimeRange::resolve(of_all.since, of_all.until, None, self.now())?;
        let scan = || self.scan(Table::Metrics, window, filter::metrics(&of_all));
        self.run(|| {
            let (scan, name, list) = (scan(), name.to_owned(), list.clone());
            async move { metric_catalog::describe(scan?, name, list).await }
        })
        .await
    }

    /// The metrics that have points, by name and type.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn metric_names(&self, filter: &SeriesFilter) -> Result<JsonPage, Error> {
        let limit = up_to(filter.limit, MAX_LIMIT, MAX_LIMIT)?;
        let window = self.series_window(filter)?;
        let scan = || self.scan(Table::Metrics, window, filter::series(None, filter));
        self.run(|| {
            let scan = scan();
            async move { metric_catalog::names(scan?, limit).await }
        })
        .await
    }

    /// The keys of a metric's labels, each with the number of its values.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no point of it lies in the window; see [`Error`].
    pub async fn metric_labels(&self, name: &str, filter: &SeriesFilter) -> Result<JsonPage, Error> {
        let limit = up_to(filter.limit, MAX_LIMIT, MAX_LIMIT)?;
        let window = self.series_window(filter)?;
        let scan = || self.scan(Table::Metrics, window, filter::series(Some(name), filter));
        self.run(|| {
            let (scan, name) = (scan(), name.to_owned());
            async move { metric_catalog::label_keys_of(scan?, name, limit).await }
        })
        .await
    }

    /// The values of one of a metric's labels, the most frequent first.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no point of it lies in the window; see [`Error`].
    pub async fn metric_label_values(&self, name: &str, key: &str, filter: &SeriesFilter) -> Result<JsonPage, Error> {
        let limit = up_to(filter.limit, MAX_LIMIT, MAX_LIMIT)?;
        let window = self.series_window(filter)?;
        let field = json_text(ident("labels"), lit(key));
        self.run(|| {
            let scan = self.scan(Table::Metrics, window, filter::series(Some(name), filter));
            let (name, field) = (name.to_owned(), field.clone());
            async move {
                let scan = scan?;
                let page = top_values::most_frequent(&scan, &field, limit + 1).await?;
                if page.rows.is_empty() && !has_rows(&scan).await? {
                    return Err(no_metric(name, &scan));
                }
                Ok(page.truncate_to(limit))
            }
        })
        .await
    }

    /// The exemplars of a metric's points, the newest first: observations that most often name a trace.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no point of it lies in the window; see [`Error`].
    pub async fn metric_exemplars(&self, name: &str, filter: &SeriesFilter) -> Result<JsonPage, Error> {
        let limit = up_to(filter.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
        let window = self.series_window(filter)?;
        let conditions = filter::series(Some(name), filter);
        self.run(|| {
            let scan = self.scan(Table::Metrics, window, conditions.clone());
            let (name, conditions) = (name.to_owned(), conditions.clone());
            async move { exemplars::newest(scan?, name, conditions, limit).await }
        })
        .await
    }

    fn series_window(&self, filter: &SeriesFilter) -> Result<TimeRange, Error> {
        TimeRange::resolve(filter.since, filter.until, None, self.now())
    }
}

/// A filter of the metric that a path names.
fn named(name: &str, filter: MetricFilter) -> Result<MetricFilter, Error> {
    if filter.name.as_deref().is_some_and(|given| given != name) {
        let reason = format!("the path already names the metric {name:?}");
        return Err(Error::parameter("name", reason));
    }
    Ok(MetricFilter {
        name: Some(name.to_owned()),
        ..filter
    })
}

/// Refuses what only a list with pages has.
fn no_pages(
    limit: Option<u32>,
    offset: Option<u32>,
    cursor: Option<&str>,
    order: Option<SortOrder>,
) -> Result<(), Error> {
    let given = [
        ("limit", limit.is_some()),
        ("offset", offset.is_some()),
        ("cursor", cursor.is_some()),
        ("order", order.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Error::parameter(
            name,
            "this answer comes as a whole and in its own order: leave it out",
        )),
        None => Ok(()),
    }
}

fn up_to(limit: Option<u32>, default: u32, most: u32) -> Result<usize, Error> {
    let limit = limit.unwrap_or(default);
    if (1..=most).contains(&limit) {
        return Ok(limit as usize);
    }
    Err(Error::parameter(
        "limit",
        format!("{limit} is not between 1 and {most}"),
    ))
}
