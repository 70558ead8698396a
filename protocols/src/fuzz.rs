//! Fuzz targets of the formats of others: requests of OTLP for each signal, as protobuf and as JSON, and what agents speak.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. gRPC's frames (`mixer`), and how inputs are made
//! (`model::fuzz`).

use bytes::Bytes;
use model::batch::conform;
use model::fuzz::FuzzTarget;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use model::{EntityId, Table, Timestamp};

use crate::SenderSettings;
use crate::otlp::{OtlpEncoding, request};

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
    all
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

/// Whether a body has rows: the same ones, in the table's schema, however large its parts are.
fn has_rows(table: Table, encoding: OtlpEncoding, bytes: &[u8]) -> bool {
    let read = |size: usize| {
        let opened = request(table, encoding, Bytes::copy_from_slice(bytes), settings()).ok()?;
        let mut records = BodyRecordReader::of_format(table, opened.records, opened.body, settings().fallback);
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
