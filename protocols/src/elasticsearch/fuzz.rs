//! Bulk requests as fuzz targets.

use std::sync::Arc;

use bytes::Bytes;
use model::fuzz::FuzzTarget;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use model::{EntityId, Table, Timestamp};

use super::{BulkSettings, request};
use crate::sender::SenderSettings;

/// A request of each action.
pub(super) const SAMPLE: &str = r#"{"create":{"_index":"logs-app"}}
{"@timestamp":"2026-11-21T12:00:00.123Z","message":"one","log":{"level":"warn"},"host":{"name":"press-1"},"n":1}

{"index":{"_id":"7","_index":null}}
{"@timestamp":1795262400123,"msg":"two","tags":["a"]}
{"update":{"_id":8,"_index":"a"}}
{"doc":{"message":"changed"}}
{"delete":{"_id":"7"}}
{"index":{}}
{"time":"12"}"#;

/// The target.
pub(crate) fn fuzz_targets() -> Vec<FuzzTarget> {
    vec![FuzzTarget::new(
        "elasticsearch.bulk",
        vec![SAMPLE.as_bytes().to_vec()],
        reads,
    )]
}

/// Reads all rows of a request and answers it: whether it is one.
fn reads(body: &[u8]) -> bool {
    let fallback = PublisherIdentity {
        entity_id: EntityId::for_name("http"),
        entity_name: "http".to_owned(),
    };
    let settings = SenderSettings {
        entity: Arc::from(["host.name".to_owned()]),
        fallback: fallback.clone(),
        now: Timestamp::from_micros(0),
    };
    let bulk = BulkSettings {
        index: "logs".to_owned(),
        items: Arc::default(),
    };
    let items = Arc::clone(&bulk.items);
    let Ok(opened) = request(Bytes::copy_from_slice(body), bulk, settings) else {
        return false;
    };
    let mut records = BodyRecordReader::of_format(Table::Logs, opened.records, opened.body, fallback).marking_refused();
    let mut rows = 0;
    while let Ok(Some(part)) = records.next_part(4 << 10) {
        rows += part.batch.num_rows() as u64;
    }
    let marked: u32 = records.take_marks().iter().map(|marks| marks.count_ones()).sum();
    let items = items.get().map_or(0, |items| {
        (0..items.len()).for_each(|at| assert!(items.answer(at, "x", None).is_object()));
        items.len()
    });
    assert_eq!(rows + u64::from(marked), items as u64, "every item is a row or refused");
    true
}
