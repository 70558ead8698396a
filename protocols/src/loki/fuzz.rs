//! Push requests as fuzz targets.

use std::sync::Arc;

use bytes::Bytes;
use model::fuzz::FuzzTarget;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use model::{EntityId, Table, Timestamp};

use super::{LokiEncoding, json, label_parser, request};
use crate::sender::SenderSettings;

/// A request of two streams.
pub(super) const SAMPLE: &str = r#"{"streams":[
 {"stream":{"job":"app","host":"press-1","level":"warn"},"values":[
  ["1795262400123456789","one"],
  ["1795262400123456790","two",{"trace_id":"0123456789abcdef0123456789abcdef","user":"7"}]]},
 {"values":[["1795262401000000000","level=error three"]],"stream":{"service_name":"shop"}}]}"#;

/// The targets.
pub(crate) fn fuzz_targets() -> Vec<FuzzTarget> {
    let protobuf = json::to_protobuf(SAMPLE.as_bytes()).unwrap_or_default().to_vec();
    vec![
        FuzzTarget::new("loki.protobuf", vec![protobuf], |body| {
            reads(LokiEncoding::Protobuf, body)
        }),
        FuzzTarget::new("loki.json", vec![SAMPLE.as_bytes().to_vec()], |body| {
            reads(LokiEncoding::Json, body)
        }),
        FuzzTarget::of_text(
            "loki.labels",
            &[r#"{a="b", c="\"\u00e9\x41\101", d=`e`,}"#, "{}"],
            |labels| label_parser::parse(labels, |_, _| Ok(())).is_ok(),
        ),
    ]
}

/// Reads all rows of a request: whether it is one.
fn reads(encoding: LokiEncoding, body: &[u8]) -> bool {
    let fallback = PublisherIdentity {
        entity_id: EntityId::for_name("http"),
        entity_name: "http".to_owned(),
    };
    let settings = SenderSettings {
        entity: Arc::from(["host".to_owned(), "service_name".to_owned()]),
        fallback: fallback.clone(),
        now: Timestamp::from_micros(0),
    };
    let Ok(opened) = request(encoding, Bytes::copy_from_slice(body), settings) else {
        return false;
    };
    let mut records = BodyRecordReader::of_format(Table::Logs, opened.records, opened.body, fallback);
    while let Ok(Some(part)) = records.next_part(4 << 10) {
        assert!(part.batch.num_rows() > 0);
    }
    true
}
