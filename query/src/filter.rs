//! Translates filters to conditions on columns. Only expressions; the window's bounds are conditions too.

use std::collections::BTreeSet;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Case, Expr, ident, lit};
use model::filter::{
    KeyedValueSets, KeyedValues, LetterFilter, LogFilter, MessageFilter, MetricFilter, SeriesFilter, TraceFilter,
    page_size,
};
use model::{EntityId, FluxId, Level, MessageDirection, Span, SpanStatus, Table, Timestamp, TraceId};

use crate::Error;
use crate::scalar_functions::{contains_any_fold, contains_fold, json_text};
use crate::time_range::TimeRange;

/// A moment as a literal of the `ts` column's type.
pub(crate) fn timestamp_literal(ts: Timestamp) -> Expr {
    lit(ScalarValue::TimestampMicrosecond(Some(ts.micros()), Some("UTC".into())))
}

pub(crate) fn in_range(window: TimeRange) -> Expr {
    let ts = ident("ts");
    ts.clone()
        .gt_eq(timestamp_literal(window.since))
        .and(ts.lt(timestamp_literal(window.until)))
}

pub(crate) fn uuid(bytes: &[u8; 16]) -> Expr {
    lit(ScalarValue::FixedSizeBinary(16, Some(bytes.to_vec())))
}

/// An entity by its name or, where the text is a UUID, by its id.
fn entity(text: &str) -> Expr {
    let named = ident("entity_name").eq(lit(text));
    match text.parse::<EntityId>() {
        Ok(id) => ident("entity_id").eq(uuid(id.as_bytes())).or(named),
        Err(_) => named,
    }
}

/// One of several entities, each as [`entity`] has it.
pub(crate) fn of_entities(texts: &BTreeSet<String>) -> Expr {
    if texts.is_empty() {
        return lit(false);
    }
    let named = ident("entity_name").in_list(texts.iter().map(lit).collect(), false);
    let ids = texts.iter().filter_map(|text| text.parse::<EntityId>().ok());
    let ids: Vec<_> = ids.map(|id| uuid(id.as_bytes())).collect();
    match ids.is_empty() {
        true => named,
        false => ident("entity_id").in_list(ids, false).or(named),
    }
}

pub(crate) fn flux(id: FluxId) -> Expr {
    ident("flux_id").eq(uuid(id.as_bytes()))
}

fn at_least(least: Level) -> Expr {
    let levels = Level::ALL.iter().filter(|level| **level >= least);
    ident("level").in_list(levels.map(|level| lit(level.as_str())).collect(), false)
}

fn word(column: &str, value: Option<&str>) -> Option<Expr> {
    value.map(|value| ident(column).eq(lit(value)))
}

/// A field of a JSON column, by the text of its value.
fn field(column: &str, key: &str, value: &str) -> Expr {
    json_text(ident(column), lit(key)).eq(lit(value))
}

/// Of a service, as [`service_of`] has it.
fn is_of_service(column: &str, name: &str) -> Expr {
    service_of(column).eq(lit(name))
}

fn fields(column: &str, values: &KeyedValues) -> impl Iterator<Item = Option<Expr>> {
    values.iter().map(move |(key, value)| Some(field(column, key, value)))
}

/// That what an expression gives is none of these texts; null is none of them.
fn is_none_of(of: Expr, texts: &BTreeSet<String>) -> Option<Expr> {
    let is_one = of.in_list(texts.iter().map(lit).collect(), false);
    (!texts.is_empty()).then(|| is_one.is_not_true())
}

/// That a text has none of these parts, letter case aside.
fn has_none_of(of: Expr, parts: &BTreeSet<String>) -> Option<Expr> {
    let first = parts.first()?;
    let has_one = if parts.len() == 1 {
        contains_fold(of, first)
    } else {
        contains_any_fold(of, parts)
    };
    Some(has_one.is_not_true())
}

fn is_not_of_levels(levels: &BTreeSet<Level>) -> Option<Expr> {
    let names = levels.iter().map(|level| lit(level.as_str()));
    (!levels.is_empty()).then(|| ident("level").in_list(names.collect(), true))
}

fn is_not_of_entities(texts: &BTreeSet<String>) -> Option<Expr> {
    (!texts.is_empty()).then(|| of_entities(texts).is_not_true())
}

fn without_fields(column: &str, values: &KeyedValueSets) -> impl Iterator<Item = Option<Expr>> {
    let of = move |key: &String| json_text(ident(column), lit(key));
    values.iter().map(move |(key, texts)| is_none_of(of(key), texts))
}

/// The conditions of a filter, all of which must hold; the window aside.
pub(crate) fn logs(filter: &LogFilter) -> Vec<Expr> {
    let attribute = |key, value: &str| field("attributes", key, value);
    [
        word("level", filter.level.map(Level::as_str)),
        filter.min_level.map(at_least),
        filter.rack_id.as_deref().map(entity),
        filter.entity.as_deref().map(entity),
        filter.service.as_deref().map(|name| is_of_service("attributes", name)),
        filter.flux_id.map(flux),
        filter.gear_id.as_deref().map(|id| attribute("gear.id", id)),
        filter.trace_id.map(|id| attribute("trace_id", &id.to_string())),
        filter.q.as_deref().map(|q| contains_fold(ident("message"), q)),
        is_not_of_entities(&filter.not_entity),
        is_none_of(service_of("attributes"), &filter.not_service),
        is_not_of_levels(&filter.not_level),
        has_none_of(ident("message"), &filter.not_q),
    ]
    .into_iter()
    .chain(fields("attributes", &filter.attributes))
    .chain(without_fields("attributes", &filter.not_attributes))
    .flatten()
    .collect()
}

pub(crate) fn traces(filter: &TraceFilter) -> Vec<Expr> {
    [
        filter.flux_id.map(flux),
        filter.trace_id.map(of_trace),
        word("status", filter.status.map(SpanStatus::as_str)),
        filter.entity.as_deref().map(entity),
        filter.service.as_deref().map(|name| is_of_service("attributes", name)),
        word("span_name", filter.span_name.as_deref()),
        filter
            .min_duration_ms
            .map(|ms| ident("duration_ms").gt_eq(lit(least_f32(ms)))),
        is_not_of_entities(&filter.not_entity),
        is_none_of(service_of("attributes"), &filter.not_service),
        is_none_of(ident("span_name"), &filter.not_span_name),
    ]
    .into_iter()
    .chain(fields("attributes", &filter.attributes))
    .chain(without_fields("attributes", &filter.not_attributes))
    .flatten()
    .collect()
}

/// The service of a row by the JSON column that has attributes of its resource, as [`Span::service`] has it.
pub(crate) fn service_of(column: &str) -> Expr {
    let named = json_text(ident(column), lit(Span::SERVICE_NAME));
    // Not `coalesce`, which some of our plans would have to simplify first.
    let is_named = (Box::new(named.clone().is_not_null()), Box::new(named));
    Expr::Case(Case::new(None, vec![is_named], Some(Box::new(ident("entity_name")))))
}

/// A tag of a span: an attribute of its own or of its resource.
pub(crate) fn tag(key: &str, value: &str) -> Expr {
    let of_resource = field("attributes", &format!("resource.{key}"), value);
    field("attributes", key, value).or(of_resource)
}

/// That a span took no less, or no more, than so many milliseconds as they are stored.
pub(crate) fn durations(least: Option<f32>, most: Option<f32>) -> impl Iterator<Item = Expr> {
    let duration = || ident("duration_ms");
    let least = least.map(|ms| duration().gt_eq(lit(ms)));
    least.into_iter().chain(most.map(|ms| duration().lt_eq(lit(ms))))
}

pub(crate) fn metrics(filter: &MetricFilter) -> Vec<Expr> {
    let of = (filter.entity.as_deref(), filter.service.as_deref());
    points(filter.name.as_deref(), of, &filter.labels)
}

/// Those of the points of a metric, or of all.
pub(crate) fn series(name: Option<&str>, filter: &SeriesFilter) -> Vec<Expr> {
    points(
        name,
        (filter.entity.as_deref(), filter.service.as_deref()),
        &filter.labels,
    )
}

fn points(name: Option<&str>, (of, service): (Option<&str>, Option<&str>), labels: &KeyedValues) -> Vec<Expr> {
    let service = service.map(|name| is_of_service("labels", name));
    [word("name", name), of.map(entity), service]
        .into_iter()
        .chain(fields("labels", labels))
        .flatten()
        .collect()
}

pub(crate) fn messages(filter: &MessageFilter) -> Vec<Expr> {
    [
        filter.flux_id.map(flux),
        filter.trace_id.map(of_trace),
        filter.rack_id.as_deref().map(entity),
        filter.entity.as_deref().map(entity),
        word("src_gear_id", filter.src_gear_id.as_deref()),
        word("dst_gear_id", filter.dst_gear_id.as_deref()),
        word("msg_type", filter.msg_type.as_deref()),
        word("direction", filter.direction.map(MessageDirection::as_str)),
        word("status", filter.status.map(SpanStatus::as_str)),
    ]
    .into_iter()
    .chain(fields("promoted", &filter.promoted))
    .flatten()
    .collect()
}

/// What all letters of a filter meet, and perhaps others: a Rack and a gear are parts of a subject.
pub(crate) fn letters(filter: &LetterFilter) -> Vec<Expr> {
    let in_subject = |name: &String| contains_fold(ident("subject"), &format!(".{name}"));
    let by_subject = |subject: &String| {
        let of_wire = contains_fold(ident("headers"), subject);
        ident("subject").eq(lit(subject.as_str())).or(of_wire)
    };
    [
        filter.rack.as_ref().map(in_subject),
        filter.gear.as_ref().map(in_subject),
        filter.subject.as_ref().map(by_subject),
        filter.reason.as_deref().map(|q| contains_fold(ident("reason"), q)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn of_trace(id: TraceId) -> Expr {
    ident("trace_id").eq(lit(id.to_string()))
}

/// What names the trace of a row: a column, of logs an attribute.
pub(crate) fn trace_of(table: Table) -> Expr {
    match table {
        Table::Logs => json_text(ident("attributes"), lit("trace_id")),
        _ => ident("trace_id"),
    }
}

pub(crate) fn of_traces(ids: &[TraceId]) -> Expr {
    let ids = ids.iter().map(|id| lit(id.to_string()));
    ident("trace_id").in_list(ids.collect(), false)
}

/// Rows of these traces that name no signal.
pub(crate) fn of_traces_without_flux(table: Table, traces: &BTreeSet<TraceId>) -> Vec<Expr> {
    let traces = traces.iter().map(|id| lit(id.to_string()));
    vec![
        ident("flux_id").is_null(),
        trace_of(table).in_list(traces.collect(), false),
    ]
}

/// The least 32-bit number that is not below `ms`.
#[allow(clippy::cast_precision_loss, reason = "the loss is what is corrected here")]
fn least_f32(ms: u32) -> f32 {
    let near = ms as f32;
    if f64::from(near) < f64::from(ms) {
        near.next_up()
    } else {
        near
    }
}

/// How much of the answer is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageBounds {
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

impl PageBounds {
    pub(crate) fn check(limit: Option<u32>, offset: Option<u32>, cursor: Option<&str>) -> Result<Self, Error> {
        let limit = page_size(limit).map_err(|bad| Error::parameter("limit", bad.to_string()))?;
        let offset = offset.unwrap_or(0);
        if offset > 0 && cursor.is_some() {
            return Err(Error::parameter(
                "offset",
                "a cursor already says where to begin: give one of the two",
            ));
        }
        Ok(Self {
            limit,
            offset: offset as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use model::filter::MAX_LIMIT;

    use super::*;

    #[test]
    fn what_is_left_out_is_one_condition_for_each_column_or_key_however_many_values_there_are() {
        let values = || -> BTreeSet<String> { (0..30).map(|number| format!("value {number}")).collect() };
        let by_key = || KeyedValueSets::from([("a".to_owned(), values()), ("b".to_owned(), values())]);
        let of_logs = LogFilter {
            not_level: Level::ALL.iter().copied().collect(),
            not_entity: values(),
            not_service: values(),
            not_q: values(),
            not_attributes: by_key(),
            ..LogFilter::default()
        };
        assert_eq!(logs(&of_logs).len(), 6);
        let of_spans = TraceFilter {
            not_entity: values(),
            not_service: values(),
            not_span_name: values(),
            not_attributes: by_key(),
            ..TraceFilter::default()
        };
        assert_eq!(traces(&of_spans).len(), 5);
        assert_eq!(logs(&LogFilter::default()).len(), 0);
    }

    #[test]
    fn a_duration_bound_is_never_rounded_below_itself() {
        for ms in [0, 1, 16_777_216, 16_777_217, 16_777_219, u32::MAX] {
            assert!(f64::from(least_f32(ms)) >= f64::from(ms), "{ms}");
        }
        assert!((f64::from(least_f32(16_777_217)) - 16_777_218.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_limit_outside_its_bounds_or_an_offset_beside_a_cursor_is_refused_by_name() {
        assert!(PageBounds::check(None, None, None).is_ok_and(|paging| paging.limit == 100));
        assert!(PageBounds::check(Some(MAX_LIMIT), Some(u32::MAX), None).is_ok());
        for (limit, offset, cursor, name) in [
            (Some(0), None, None, "limit"),
            (Some(MAX_LIMIT + 1), None, None, "limit"),
            (None, Some(1), Some("00"), "offset"),
        ] {
            let refused = PageBounds::check(limit, offset, cursor);
            assert!(matches!(refused, Err(Error::Parameter { parameter, .. }) if parameter == name));
        }
    }
}
