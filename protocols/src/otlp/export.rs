//! Rows into OTLP requests that export them: the inverse of what requests become ([`super`]).
//!
//! ```text
//! row ─ attributes ─┬─ resource.*, otel.schema_url ─> resource ┐
//!                   ├─ otel.scope.* ──────────────────> scope  ├─ request
//!                   └─ otel.*, the others ────────────> record ┘
//! ```
//!
//! Rows with equal resources and scopes share them, in the order in which those come first. What is lost on the way in and out
//! again: `docs/export.md`.
//!
//! # Invariants
//!
//! - An attribute whose value is not what its name promises stays an attribute: nothing is dropped.
//! - `host.name` is the entity's name where the resource has none, `platform.entity_id` its id.
//!
//! # Not here
//!
//! How large a request may be, sending it: `mixer`.

mod log_record;
mod metric;
mod row_attributes;
mod span;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampMicrosecondType};
use arrow_array::{Array, FixedSizeBinaryArray, PrimitiveArray, RecordBatch, StringArray};
use model::{EntityId, FluxId, Table};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use serde_json::{Map, Value};

use super::OtlpError;
use super::context::{ENTITY_ID, FLUX_ID};
use row_attributes::{OwnAttributes, RowAttributes};
pub(super) use row_attributes::{any_value, key_value, text_value};

/// The attribute of a resource that names its entity.
const HOST_NAME: &str = "host.name";

/// The request that exports rows of a signal, as protobuf.
///
/// # Errors
/// If they are rows of another table, or of none of the three.
pub fn export_request(table: Table, rows: &[RecordBatch]) -> Result<Vec<u8>, OtlpError> {
    match table {
        Table::Logs => {
            let mut groups = RecordGroups::default();
            for batch in rows {
                log_record::add(batch, &mut groups)?;
            }
            let resource_logs = groups.resources.into_iter().map(|group| ResourceLogs {
                scope_logs: group.scopes.into_iter().map(scope_logs).collect(),
                resource: Some(group.resource),
                schema_url: group.schema_url,
            });
            let resource_logs = resource_logs.collect();
            Ok(ExportLogsServiceRequest { resource_logs }.encode_to_vec())
        }
        Table::Traces => {
            let mut groups = RecordGroups::default();
            for batch in rows {
                span::add(batch, &mut groups)?;
            }
            let resource_spans = groups.resources.into_iter().map(|group| ResourceSpans {
                scope_spans: group.scopes.into_iter().map(scope_spans).collect(),
                resource: Some(group.resource),
                schema_url: group.schema_url,
            });
            let resource_spans = resource_spans.collect();
            Ok(ExportTraceServiceRequest { resource_spans }.encode_to_vec())
        }
        Table::Metrics => {
            let mut groups = metric::MetricGroups::default();
            for batch in rows {
                groups.add(batch)?;
            }
            let resource_metrics = groups.finish().resources.into_iter().map(|group| ResourceMetrics {
                scope_metrics: group.scopes.into_iter().map(scope_metrics).collect(),
                resource: Some(group.resource),
                schema_url: group.schema_url,
            });
            let resource_metrics = resource_metrics.collect();
            Ok(ExportMetricsServiceRequest { resource_metrics }.encode_to_vec())
        }
        Table::DeadLetters | Table::Messages => Err(OtlpError::Signal(table)),
    }
}

fn scope_logs(group: ScopeGroup<opentelemetry_proto::tonic::logs::v1::LogRecord>) -> ScopeLogs {
    ScopeLogs {
        scope: group.scope,
        log_records: group.records,
        schema_url: group.schema_url,
    }
}

fn scope_spans(group: ScopeGroup<opentelemetry_proto::tonic::trace::v1::Span>) -> ScopeSpans {
    ScopeSpans {
        scope: group.scope,
        spans: group.records,
        schema_url: group.schema_url,
    }
}

fn scope_metrics(group: ScopeGroup<opentelemetry_proto::tonic::metrics::v1::Metric>) -> ScopeMetrics {
    ScopeMetrics {
        scope: group.scope,
        metrics: group.records,
        schema_url: group.schema_url,
    }
}

/// Records by resource and scope.
#[derive(Debug)]
struct RecordGroups<T> {
    resources: Vec<ResourceGroup<T>>,
    by_key: HashMap<String, usize>,
}

#[derive(Debug)]
struct ResourceGroup<T> {
    resource: Resource,
    schema_url: String,
    scopes: Vec<ScopeGroup<T>>,
    by_key: HashMap<String, usize>,
}

#[derive(Debug)]
struct ScopeGroup<T> {
    scope: Option<InstrumentationScope>,
    schema_url: String,
    records: Vec<T>,
}

impl<T> Default for RecordGroups<T> {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            by_key: HashMap::new(),
        }
    }
}

/// Whose a row is.
#[derive(Debug, Clone, Copy)]
struct RowEntity<'a> {
    id: EntityId,
    name: &'a str,
}

impl<T> RecordGroups<T> {
    /// The numbers of the resource and scope that a row belongs to.
    fn place(&mut self, entity: RowEntity<'_>, row: RowAttributes) -> (usize, usize) {
        let key = format!("{} {}\n{}", entity.id, entity.name, json_text(&row.resource));
        let number = self.resources.len();
        let at = *self.by_key.entry(key).or_insert(number);
        if at == number {
            self.resources.push(ResourceGroup::new(entity, row.resource));
        }
        let Some(group) = self.resources.get_mut(at) else {
            return (at, 0);
        };
        let number = group.scopes.len();
        let scope = *group.by_key.entry(json_text(&row.scope)).or_insert(number);
        if scope == number {
            group.scopes.push(ScopeGroup::new(row.scope));
        }
        (at, scope)
    }

    fn records(&mut self, (resource, scope): (usize, usize)) -> Option<&mut Vec<T>> {
        let group = self.resources.get_mut(resource)?.scopes.get_mut(scope)?;
        Some(&mut group.records)
    }

    fn push(&mut self, place: (usize, usize), record: T) {
        if let Some(records) = self.records(place) {
            records.push(record);
        }
    }
}

fn json_text(map: &Map<String, Value>) -> String {
    serde_json::to_string(map).unwrap_or_default()
}

impl<T> ResourceGroup<T> {
    fn new(entity: RowEntity<'_>, attributes: Map<String, Value>) -> Self {
        let mut attributes = OwnAttributes(attributes);
        let schema_url = attributes.text("schema_url").unwrap_or_default();
        let dropped_attributes_count = attributes.number("dropped_attributes_count").unwrap_or_default();
        let mut attributes = attributes.prefixed("resource.");
        let id = entity.id.to_string();
        for (key, value) in [(HOST_NAME, entity.name), (ENTITY_ID, id.as_str())] {
            if !attributes.iter().any(|attribute| attribute.key == key) {
                attributes.push(text_value(key, value));
            }
        }
        Self {
            resource: Resource {
                attributes,
                dropped_attributes_count,
                ..Resource::default()
            },
            schema_url,
            scopes: Vec::new(),
            by_key: HashMap::new(),
        }
    }
}

impl<T> ScopeGroup<T> {
    fn new(attributes: Map<String, Value>) -> Self {
        let is_there = !attributes.is_empty();
        let mut attributes = OwnAttributes(attributes);
        let schema_url = attributes.text("schema_url").unwrap_or_default();
        let scope = InstrumentationScope {
            name: attributes.text("name").unwrap_or_default(),
            version: attributes.text("version").unwrap_or_default(),
            dropped_attributes_count: attributes.number("dropped_attributes_count").unwrap_or_default(),
            attributes: attributes.rest(None),
        };
        Self {
            scope: is_there.then_some(scope),
            schema_url,
            records: Vec::new(),
        }
    }
}

/// The columns of a batch, by the names that its table gives them.
struct RowColumns<'a>(&'a RecordBatch);

impl<'a> RowColumns<'a> {
    fn column<C>(&self, name: &'static str, read: impl Fn(&'a dyn Array) -> Option<&'a C>) -> Result<&'a C, OtlpError> {
        let column = self.0.column_by_name(name);
        column
            .and_then(|column| read(column.as_ref()))
            .ok_or(OtlpError::Column(name))
    }

    fn texts(&self, name: &'static str) -> Result<&'a StringArray, OtlpError> {
        self.column(name, |column| column.as_string_opt::<i32>())
    }

    fn ids(&self, name: &'static str) -> Result<&'a FixedSizeBinaryArray, OtlpError> {
        self.column(name, |column| column.as_fixed_size_binary_opt())
    }

    fn times(&self) -> Result<&'a PrimitiveArray<TimestampMicrosecondType>, OtlpError> {
        self.column("ts", |column| column.as_primitive_opt())
    }

    fn doubles(&self, name: &'static str) -> Result<&'a PrimitiveArray<Float64Type>, OtlpError> {
        self.column(name, |column| column.as_primitive_opt())
    }

    fn floats(&self, name: &'static str) -> Result<&'a PrimitiveArray<Float32Type>, OtlpError> {
        self.column(name, |column| column.as_primitive_opt())
    }
}

/// Whose the rows are.
struct EntityColumns<'a> {
    ids: &'a FixedSizeBinaryArray,
    names: &'a StringArray,
}

impl<'a> EntityColumns<'a> {
    fn of(columns: &RowColumns<'a>) -> Result<Self, OtlpError> {
        Ok(Self {
            ids: columns.ids("entity_id")?,
            names: columns.texts("entity_name")?,
        })
    }

    fn at(&self, row: usize) -> RowEntity<'a> {
        RowEntity {
            id: EntityId::from_bytes(self.ids.value(row).try_into().unwrap_or_default()),
            name: self.names.value(row),
        }
    }
}

/// A row's signal, if it has one.
fn flux_id(ids: &FixedSizeBinaryArray, row: usize) -> Option<FluxId> {
    let id = ids.is_valid(row).then(|| ids.value(row))?;
    Some(FluxId::from_bytes(id.try_into().ok()?))
}

/// Nanoseconds of a time in microseconds; of one before the epoch none.
pub(super) fn nanos_of(micros: i64) -> u64 {
    u64::try_from(micros).unwrap_or(0).saturating_mul(1_000)
}
