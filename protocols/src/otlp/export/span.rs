//! Rows of `traces` into spans.

use arrow_array::{Array, RecordBatch};
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use serde_json::Value;

use super::row_attributes::{OwnAttributes, RowAttributes, id_bytes, nanos, nested_attributes};
use super::{EntityColumns, OtlpError, RecordGroups, RowColumns, flux_id, nanos_of};
use crate::otlp::spans::{KINDS, STATUS_ERROR, STATUS_OK};

/// Adds the rows of a batch.
pub(super) fn add(batch: &RecordBatch, groups: &mut RecordGroups<Span>) -> Result<(), OtlpError> {
    let columns = RowColumns(batch);
    let entities = EntityColumns::of(&columns)?;
    let (times, flux) = (columns.times()?, columns.ids("flux_id")?);
    let (traces, spans) = (columns.texts("trace_id")?, columns.texts("span_id")?);
    let (parents, names) = (columns.texts("parent_span_id")?, columns.texts("span_name")?);
    let (durations, statuses) = (columns.floats("duration_ms")?, columns.texts("status")?);
    let attributes = columns.texts("attributes")?;
    for row in 0..batch.num_rows() {
        let mut found = RowAttributes::read(attributes.value(row));
        let mut own = std::mem::take(&mut found.own);
        let place = groups.place(entities.at(row), found);
        let start = nanos_of(times.value(row));
        let parent = parents.is_valid(row).then(|| parents.value(row));
        let span = Span {
            trace_id: id_bytes(traces.value(row), 16).unwrap_or_default(),
            span_id: id_bytes(spans.value(row), 8).unwrap_or_default(),
            parent_span_id: parent.and_then(|id| id_bytes(id, 8)).unwrap_or_default(),
            name: names.value(row).to_owned(),
            start_time_unix_nano: start,
            end_time_unix_nano: start.saturating_add(nanos_of_millis(durations.value(row))),
            status: status(&mut own, statuses.value(row)),
            kind: kind(&mut own),
            trace_state: own.text("otel.trace_state").unwrap_or_default(),
            flags: own.number("otel.flags").unwrap_or_default(),
            dropped_attributes_count: own.number("otel.dropped_attributes_count").unwrap_or_default(),
            events: own.list("otel.events", event),
            dropped_events_count: own.number("otel.dropped_events_count").unwrap_or_default(),
            links: own.list("otel.links", link),
            dropped_links_count: own.number("otel.dropped_links_count").unwrap_or_default(),
            attributes: own.rest(flux_id(flux, row)),
        };
        groups.push(place, span);
    }
    Ok(())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and a duration that is no number is none"
)]
fn nanos_of_millis(millis: f32) -> u64 {
    (f64::from(millis) * 1e6).round() as u64
}

fn kind(own: &mut OwnAttributes) -> i32 {
    let kind = own.take("span.kind", |kind| match kind.as_str() {
        Some(name) => {
            let number = KINDS.iter().position(|kind| !kind.is_empty() && *kind == name)?;
            i32::try_from(number).ok()
        }
        None => i32::try_from(kind.as_i64()?).ok(),
    });
    kind.unwrap_or_default()
}

/// The status; none where nothing was said.
fn status(own: &mut OwnAttributes, status: &str) -> Option<Status> {
    let is_ok = own.take("otel.status_code", |code| (code.as_str()? == "OK").then_some(()));
    let code = match (status, is_ok) {
        ("error", _) => STATUS_ERROR,
        (_, Some(())) => STATUS_OK,
        _ => 0,
    };
    let message = own.text("otel.status_description").unwrap_or_default();
    (code != 0 || !message.is_empty()).then_some(Status { message, code })
}

fn dropped(of: &Value) -> u32 {
    let count = of.get("dropped_attributes_count").and_then(Value::as_u64);
    count.and_then(|count| count.try_into().ok()).unwrap_or_default()
}

fn event(event: &Value) -> Option<Event> {
    Some(Event {
        time_unix_nano: nanos(event.get("time")?.as_str()?)?,
        name: event.get("name")?.as_str()?.to_owned(),
        attributes: nested_attributes(event),
        dropped_attributes_count: dropped(event),
    })
}

/// An id of so many bytes, or the empty one: of another length a collector refuses the whole request.
fn link_id(link: &Value, key: &str, length: usize) -> Option<Vec<u8>> {
    let id = model::hex::decode(link.get(key)?.as_str()?)?;
    (id.is_empty() || id.len() == length).then_some(id)
}

fn link(link: &Value) -> Option<Link> {
    let flags = link.get("flags").and_then(Value::as_u64);
    let state = link.get("trace_state").and_then(Value::as_str);
    Some(Link {
        trace_id: link_id(link, "trace_id", 16)?,
        span_id: link_id(link, "span_id", 8)?,
        trace_state: state.unwrap_or_default().to_owned(),
        attributes: nested_attributes(link),
        dropped_attributes_count: dropped(link),
        flags: flags.and_then(|flags| flags.try_into().ok()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_with_an_id_of_another_length_stays_an_attribute() {
        let (trace, span) = ("0102030405060708090a0b0c0d0e0f10", "0102030405060708");
        for (trace, span, is_link) in [
            (trace, span, true),
            (trace, "01", false),
            (span, span, false),
            ("xy", span, false),
        ] {
            let links = serde_json::json!([{ "trace_id": trace, "span_id": span }]);
            let mut own = OwnAttributes::default();
            own.0.insert("otel.links".to_owned(), links);
            assert_eq!(
                own.list("otel.links", link).len(),
                usize::from(is_link),
                "{trace} {span}"
            );
            assert_eq!(own.rest(None).is_empty(), is_link, "{trace} {span}");
        }
    }
}
