//! Fuzz targets of the formats of others: requests of OTLP for each signal, as protobuf and as JSON, what agents speak, what collectors answer,
//! records of JSON in shapes of others, and texts of metrics.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. gRPC's frames (`mixer`), and how inputs are made
//! (`model::fuzz`).

use bytes::Bytes;
use model::batch::conform;
use model::fuzz::FuzzTarget;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity, RecordFormat};
use model::{EntityId, Table, Timestamp};

use crate::json_records::{JsonFraming, json_records};
use crate::otlp::{self, OtlpEncoding, request};
use crate::prometheus_text::{PrometheusFormat, parse};
use crate::{SenderSettings, grpc};

/// A part that holds a few rows.
const SMALL: usize = 1_000;

/// A log record with all that there is.
const LOGS: &str = r#"{"resourceLogs":[{"schemaUrl":"https://x/1","resource":{"droppedAttributesCount":1,"attributes":[
  {"key":"service.name","value":{"stringValue":"shop"}},{"key":"platform.entity_id","value":{"stringValue":"0198a8b0-2d5e-7c3a-8f6b-0123456789ab"}}]},
  "scopeLogs":[{"scope":{"name":"s","version":"1","attributes":[{"key":"flux_id","value":{"stringValue":"0198a8b0-2d5e-7c3a-8f6b-0123456789ab"}}]},
  "logRecords":[{"timeUnixNano":"1795255200123456789","observedTimeUnixNano":"1","severityNumber":18,"severityText":"ERROR2","eventName":"e","flags":257,
  "traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","droppedAttributesCount":2,
  "body":{"kvlistValue":{"values":[{"key":"a","value":{"kvlistValue":{"values":[{"key":"b","value":{"intValue":"-1"}}]}}}]}},
  "attributes":[{"key":"l","value":{"arrayValue":{"values":[{"boolValue":true},{"bytesValue":"AQID"},{"doubleValue":1.5},{}]}}},{"key":"n"}]},
  {"body":{"arrayValue":{"values":[{"stringValue":"x"}]}}},{"body":{"bytesValue":"AQID"}},{"severityText":"warning"},{}]}]}]}"#;
/// A span with all that there is.
const SPANS: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174",
  "parentSpanId":"eee19b7ec3c1b173","traceState":"a=b","flags":768,"name":"n","kind":3,"startTimeUnixNano":"1795255200123456789",
  "endTimeUnixNano":"1795255200133456789","attributes":[{"key":"k","value":{"stringValue":"v"}}],"droppedAttributesCount":1,
  "events":[{"timeUnixNano":"1","name":"e","attributes":[{"key":"k","value":{"boolValue":true}}],"droppedAttributesCount":1},{}],"droppedEventsCount":1,
  "links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","traceState":"c=d","flags":512,
  "attributes":[{"key":"k","value":{"intValue":1}}]}],"droppedLinksCount":1,"status":{"code":2,"message":"m"}}]}]}]}"#;
/// Points of what the examples lack: exemplars, sums that fall, summaries, points without a value.
const METRICS: &str = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
  {"name":"sum","unit":"1","metadata":[{"key":"m","value":{"stringValue":"v"}}],"sum":{"aggregationTemporality":2,"dataPoints":[{"asInt":"-9007199254740993",
  "exemplars":[{"timeUnixNano":"1","asDouble":1.5,"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174",
  "filteredAttributes":[{"key":"k","value":{"stringValue":"v"}}]}]},{"flags":1}]}},
  {"name":"histogram","histogram":{"dataPoints":[{"count":"3"},{"bucketCounts":["3"]}]}},
  {"name":"exponential","exponentialHistogram":{"dataPoints":[{"scale":-3,"zeroCount":"1","zeroThreshold":0.5,"negative":{"offset":-7,"bucketCounts":["1","300"]}}]}},
  {"name":"summary","summary":{"dataPoints":[{"count":"2","sum":3,"quantileValues":[{"quantile":0.5,"value":1},{"quantile":1,"value":"NaN"}]}]}}]}]}]}"#;

const SCRAPE: &str = "# HELP a b\n# TYPE a_total counter\na_total{k=\"v\\\"\\n\"} 1.5e3 1795255200123\n# TYPE h histogram\n\
    h_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n# TYPE s summary\ns{quantile=\"0.5\"} NaN\ns_sum 1\ns_count 1\nu -Inf\n";

const OPEN_METRICS: &str = "# TYPE a counter\n# UNIT a seconds\na_total 1 1795255200.123 # {trace_id=\"5b8efff798038103d269b633813fc60c\"} 0.5 1.25\n\
    a_created 1795255200\n# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE t stateset\nt{t=\"on\"} 1\n# EOF\n";

const FOREIGN_LINES: &str = r#"{"@timestamp":"2026-11-21T10:00:00.5+01:00","msg":"one","severity":"WARN","host":{"name":"press-1"},"n":1}
{"time":1795255200.25,"message":"two","lvl":"e","trace_id":"5b8efff798038103d269b633813fc60c"}
{"timestamp":1795255200123456789,"log":{"level":"Error"},"error":{"stack":["a","b"]},"flux_id":"0198a8b0-2d5e-7c3a-8f6b-0123456789ab"}"#;

const FOREIGN_DOCUMENT: &str =
    r#"[{"ts":1795255200123,"text":"one","level":30},{"a.b":{"c":[1,{"d":null}]},"date":"2026-11-21 10:00:00"},{}]"#;

/// The official examples.
const LOG_EXAMPLE: &str = include_str!("../fixtures/opentelemetry-proto/logs.json");
const EVENT_EXAMPLE: &str = include_str!("../fixtures/opentelemetry-proto/events.json");
const SPAN_EXAMPLE: &str = include_str!("../fixtures/opentelemetry-proto/trace.json");
const METRIC_EXAMPLE: &str = include_str!("../fixtures/opentelemetry-proto/metrics.json");

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let logs = [LOGS, LOG_EXAMPLE, EVENT_EXAMPLE];
    let spans = [SPANS, SPAN_EXAMPLE];
    let metrics = [METRICS, METRIC_EXAMPLE];
    let mut all = vec![
        target(("otlp.logs", Table::Logs), OtlpEncoding::Protobuf, &logs),
        target(("otlp.logs_json", Table::Logs), OtlpEncoding::Json, &logs),
        target(("otlp.traces", Table::Traces), OtlpEncoding::Protobuf, &spans),
        target(("otlp.traces_json", Table::Traces), OtlpEncoding::Json, &spans),
        target(("otlp.metrics", Table::Metrics), OtlpEncoding::Protobuf, &metrics),
        target(("otlp.metrics_json", Table::Metrics), OtlpEncoding::Json, &metrics),
    ];
    all.extend(sender_targets());
    all.extend([answers(), metrics_text(), foreign_json()]);
    all
}

/// What a collector answers, framed and not, as protobuf and as JSON.
fn answers() -> FuzzTarget {
    let said = [OtlpEncoding::Protobuf, OtlpEncoding::Json].map(|encoding| {
        let rejected = otlp::export_response(encoding, Table::Logs, 3, "too old");
        [rejected, otlp::retry_status(encoding, 8, "full", 7)]
    });
    let framed = grpc::frame(false, &said[0][0]).to_vec();
    let samples = said.into_iter().flatten().chain([framed]).collect();
    FuzzTarget::new("otlp.answers", samples, |bytes| {
        let framed = grpc::message(&Bytes::copy_from_slice(bytes)).ok();
        let message = framed.as_ref().map_or(bytes, |framed| &framed.message);
        let (whole, start) = (otlp::rejected_of(message), otlp::rejected_of_start(message));
        let (text, status) = (otlp::rejected_of_json(bytes), otlp::status_of(message));
        whole.is_ok() || start.is_some() || text.is_ok() || status.is_ok()
    })
}

/// Scrapes in both formats.
fn metrics_text() -> FuzzTarget {
    FuzzTarget::of_text("prometheus.text", &[SCRAPE, OPEN_METRICS], |text| {
        let formats = [PrometheusFormat::Text, PrometheusFormat::OpenMetrics];
        formats.map(|format| parse(text, format, 1_000).is_ok()).contains(&true)
    })
}

/// Log records as other programs write them, one a line and as a document.
fn foreign_json() -> FuzzTarget {
    let samples = [FOREIGN_LINES, FOREIGN_DOCUMENT].map(|text| text.as_bytes().to_vec());
    FuzzTarget::new("json.foreign", samples.into(), |bytes| {
        let body = Bytes::copy_from_slice(bytes);
        let framings = [JsonFraming::Lines, JsonFraming::Document];
        let has_rows = framings.map(|framing| {
            same_rows(Table::Logs, || {
                let records = json_records(Table::Logs, framing, &body, settings()).ok()?;
                Some((records, body.clone()))
            })
        });
        has_rows.contains(&true)
    })
}

/// What agents speak.
#[must_use]
pub fn sender_targets() -> Vec<FuzzTarget> {
    let all = [
        crate::elasticsearch::fuzz::fuzz_targets(),
        crate::loki::fuzz::fuzz_targets(),
        crate::remote_write::fuzz::fuzz_targets(),
    ];
    all.into_iter().flatten().collect()
}

fn target((name, table): (&'static str, Table), encoding: OtlpEncoding, samples: &[&str]) -> FuzzTarget {
    let sample = |text: &&str| match encoding {
        OtlpEncoding::Json => text.as_bytes().to_vec(),
        OtlpEncoding::Protobuf => {
            let body = Bytes::copy_from_slice(text.as_bytes());
            let read = request(table, OtlpEncoding::Json, body, settings());
            read.map(|read| read.body.to_vec()).unwrap_or_default()
        }
    };
    let samples = samples.iter().map(sample).collect();
    FuzzTarget::new(name, samples, move |bytes| has_rows(table, encoding, bytes))
}

fn settings() -> SenderSettings {
    SenderSettings {
        entity: ["host.name".to_owned(), "service.name".to_owned()].into(),
        fallback: PublisherIdentity {
            entity_id: EntityId::for_name("http"),
            entity_name: "http".to_owned(),
        },
        now: Timestamp::from_micros(1),
    }
}

/// Requests of all signals as protobuf: whether one of them has rows.
pub fn otlp(bytes: &[u8]) -> bool {
    signals(OtlpEncoding::Protobuf, bytes)
}

/// The same as JSON.
pub fn otlp_json(bytes: &[u8]) -> bool {
    signals(OtlpEncoding::Json, bytes)
}

fn signals(encoding: OtlpEncoding, bytes: &[u8]) -> bool {
    let tables = [Table::Logs, Table::Traces, Table::Metrics];
    // Each of them is read.
    tables
        .into_iter()
        .filter(|table| has_rows(*table, encoding, bytes))
        .count()
        > 0
}

fn has_rows(table: Table, encoding: OtlpEncoding, bytes: &[u8]) -> bool {
    same_rows(table, || {
        let opened = request(table, encoding, Bytes::copy_from_slice(bytes), settings()).ok()?;
        Some((opened.records, opened.body))
    })
}

/// Whether a body has rows: the same ones, in the table's schema, however large its parts are.
fn same_rows(table: Table, open: impl Fn() -> Option<(Box<dyn RecordFormat>, Bytes)>) -> bool {
    let read = |size: usize| {
        let (records, body) = open()?;
        let mut records = BodyRecordReader::of_format(table, records, body, settings().fallback);
        let mut rows = 0;
        loop {
            let part = records.next_part(size);
            assert!(part.is_ok(), "columns fit their schema: {part:?}");
            let Ok(Some(part)) = part else { break };
            let same = conform(table, &part.batch);
            assert!(
                same.is_ok_and(|same| same == part.batch),
                "rows are those that the table takes"
            );
            rows += part.batch.num_rows();
        }
        Some((rows, records.rejected()))
    };
    let whole = read(usize::MAX);
    assert_eq!(read(SMALL), whole, "rows do not depend on the size of parts");
    whole.is_some_and(|(rows, _)| rows > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_of_a_stranger_makes_a_decoder_panic_or_rows_that_no_table_takes()
    -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }
}
