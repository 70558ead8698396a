//! Exemplars of metric points: single observations, most of which name the span that they were made in.
//!
//! # Invariants
//!
//! - Looked at are the newest points that carry some, as many as exemplars are asked for; one that several points of a series say is
//!   there once.
//! - An id that is none is null, so what leads to a trace is the id of one.
//! - No more are held than are asked for. Those of one point share its labels until they are written.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use datafusion::logical_expr::{Expr, ident, lit};
use model::{SpanId, Timestamp, TraceId};
use serde_json::{Map, Value};

use crate::Error;
use crate::aggregation::{has_rows, no_metric};
use crate::filter::PageBounds;
use crate::keyset_pagination;
use crate::point_labels::{EXEMPLARS, is_of_point};
use crate::query_result::{JsonPage, QueryStats, object_bytes};
use crate::query_scan::QueryScan;
use crate::row_rendering::RowRendering;
use crate::scalar_functions::json_text;

/// More exemplars of one point are not looked at; OTLP's have eight at most.
const MOST_OF_POINT: usize = 64;

/// By their times, the newest first; the hash tells those of one time apart.
type ExemplarMap = BTreeMap<(Reverse<Timestamp>, u64), FoundExemplar>;

/// An exemplar without the labels of its point, and these.
struct FoundExemplar {
    row: Map<String, Value>,
    labels: Arc<Map<String, Value>>,
}

/// Those of the points of a scan, which meet `conditions`; at most so many.
pub(crate) async fn newest(
    scan: QueryScan,
    name: String,
    mut conditions: Vec<Expr>,
    limit: usize,
) -> Result<JsonPage, Error> {
    conditions.push(json_text(ident("labels"), lit(EXEMPLARS)).is_not_null());
    let paging = PageBounds { limit, offset: 0 };
    let points =
        keyset_pagination::list(&scan.scan_with(conditions)?, paging, None, 0, RowRendering::default()).await?;
    if points.rows().num_rows() == 0 && !has_rows(&scan).await? {
        return Err(no_metric(name, &scan));
    }
    let memory = scan.memory("exemplars");
    let columns = points.rows().get_array_memory_size();
    memory.try_grow(columns)?;
    let points = points.into_objects(&memory)?;
    memory.shrink(columns);
    let mut found = ExemplarMap::new();
    for point in points.rows {
        add(&mut found, point);
        while found.len() > limit {
            found.pop_last();
        }
    }
    let mut rows = Vec::with_capacity(found.len());
    for FoundExemplar { mut row, labels } in found.into_values() {
        // As an object, and as the text that is written of it.
        memory.try_grow(2 * (object_bytes(&row) + object_bytes(&labels)))?;
        row.insert("labels".to_owned(), Map::clone(&labels).into());
        rows.push(row);
    }
    let page = JsonPage {
        stats: QueryStats {
            rows: rows.len() as u64,
            ..points.stats
        },
        rows,
        ..JsonPage::default()
    };
    let bytes = memory.free();
    page.reserve_memory(&scan.session(), bytes)
}

/// Adds the exemplars of a point.
fn add(found: &mut ExemplarMap, mut point: Map<String, Value>) {
    let Some(Value::Object(mut labels)) = point.remove("labels") else {
        return;
    };
    let Some(Value::Array(exemplars)) = labels.remove(EXEMPLARS) else {
        return;
    };
    labels.retain(|key, _| !is_of_point(key));
    let of_labels = Value::Object(labels.clone()).to_string();
    let labels = Arc::new(labels);
    let measured = point.get("ts").and_then(Value::as_str).and_then(|ts| ts.parse().ok());
    for exemplar in exemplars.into_iter().take(MOST_OF_POINT) {
        let Value::Object(mut exemplar) = exemplar else {
            continue;
        };
        let text = |key: &str| exemplar.get(key).and_then(Value::as_str);
        // One without a time has that of its point.
        let said = text("time").and_then(|time| time.parse().ok());
        let ts = said.filter(|ts: &Timestamp| ts.micros() > 0).or(measured);
        let trace_id = text("trace_id").and_then(|id| id.parse::<TraceId>().ok());
        let span_id = text("span_id").and_then(|id| id.parse::<SpanId>().ok());
        let value = exemplar.remove("value").filter(Value::is_number);
        let attributes = exemplar.remove("attributes").filter(Value::is_object);
        let row = [
            ("ts", ts.map(|ts| ts.to_string()).into()),
            ("value", value.unwrap_or_default()),
            ("trace_id", trace_id.map(|id| id.to_string()).into()),
            ("span_id", span_id.map(|id| id.to_string()).into()),
            ("entity_name", point.get("entity_name").cloned().unwrap_or_default()),
            ("attributes", attributes.unwrap_or_else(|| Map::new().into())),
        ];
        let row = Map::from_iter(row.map(|(name, value)| (name.to_owned(), value)));
        let row = Value::Object(row);
        let mut hash = DefaultHasher::new();
        (row.to_string(), &of_labels).hash(&mut hash);
        if let Value::Object(row) = row {
            let labels = Arc::clone(&labels);
            found.insert(
                (Reverse(ts.unwrap_or_default()), hash.finish()),
                FoundExemplar { row, labels },
            );
        }
    }
}
