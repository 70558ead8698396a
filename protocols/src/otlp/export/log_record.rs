//! Rows of `logs` into log records.

use arrow_array::RecordBatch;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use super::row_attributes::{OwnAttributes, RowAttributes, typed_body};
use super::{EntityColumns, OtlpError, RecordGroups, RowColumns, flux_id, nanos_of};
use crate::severity;

/// Adds the rows of a batch.
pub(super) fn add(batch: &RecordBatch, groups: &mut RecordGroups<LogRecord>) -> Result<(), OtlpError> {
    let columns = RowColumns(batch);
    let entities = EntityColumns::of(&columns)?;
    let (times, flux) = (columns.times()?, columns.ids("flux_id")?);
    let (levels, messages) = (columns.texts("level")?, columns.texts("message")?);
    let attributes = columns.texts("attributes")?;
    for row in 0..batch.num_rows() {
        let mut found = RowAttributes::read(attributes.value(row));
        let own = std::mem::take(&mut found.own);
        let place = groups.place(entities.at(row), found);
        let mut record = record(own, (levels.value(row), messages.value(row)), flux_id(flux, row));
        record.time_unix_nano = nanos_of(times.value(row));
        record.observed_time_unix_nano = record.time_unix_nano;
        groups.push(place, record);
    }
    Ok(())
}

fn record(mut own: OwnAttributes, (level, message): (&str, &str), flux: Option<model::FluxId>) -> LogRecord {
    let level = severity::of_text(level).unwrap_or(model::Level::Info);
    let number = own.number("otel.severity_number");
    let text = own.text("otel.severity_text");
    let event_name = own.text("otel.event.name").unwrap_or_default();
    let body = body(&mut own, message, &event_name);
    LogRecord {
        severity_number: number.unwrap_or_else(|| severity::canonical_number(level)),
        severity_text: text.unwrap_or_else(|| severity::canonical_text(level).to_owned()),
        body: body.map(|value| AnyValue { value: Some(value) }),
        dropped_attributes_count: own.number("otel.dropped_attributes_count").unwrap_or_default(),
        flags: own.number("otel.flags").unwrap_or_default(),
        trace_id: own.id("trace_id", 16),
        span_id: own.id("span_id", 8),
        event_name,
        attributes: own.rest(flux),
        ..LogRecord::default()
    }
}

/// The body as it was; a text where nothing else is known.
fn body(own: &mut OwnAttributes, message: &str, event: &str) -> Option<AnyKind> {
    let kind = own.take("otel.body.type", |kind| {
        let kind = kind.as_str()?;
        let body = match kind {
            "map" => None,
            kind => Some(typed_body(kind, message)?),
        };
        Some(body)
    });
    match kind {
        Some(Some(typed)) => Some(typed),
        Some(None) => Some(AnyKind::KvlistValue(KeyValueList {
            values: own.below("body."),
        })),
        // An event without a body has its name as text.
        None if !event.is_empty() && message == event => None,
        None => Some(AnyKind::StringValue(message.to_owned())),
    }
}
