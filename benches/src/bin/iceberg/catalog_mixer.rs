//! Mixers whose catalogue is measured, rows for them, and what the catalogue has of these.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use benches::data::Source;
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Api, Failure, TestMixer};
use model::telemetry_codec::{BatchEncoding, encode_arrow};
use model::{Table, Timestamp};

/// Where a client loads the table of log rows.
const LOGS: &str = "/iceberg/v1/namespaces/telemetry/tables/logs";

/// A Mixer with default settings but for these keys, on a folder.
pub(crate) fn in_folder(keys: &[(&str, &str)], envs: &[(&str, &str)]) -> Result<TestMixer, Failure> {
    let usual = [("observability.embedded.flush_interval", "\"5s\"")];
    TestMixer::with(&[&usual[..], keys].concat(), envs)
}

/// The same behind a bucket.
pub(crate) fn at_bucket(endpoint: &str, keys: &[(&str, &str)]) -> Result<TestMixer, Failure> {
    let url = format!("\"s3://{BUCKET}/bench\"");
    let place = [("observability.embedded.storage.url", url.as_str())];
    let envs = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL", endpoint),
    ];
    in_folder(&[&place[..], keys].concat(), &envs)
}

/// Stores log rows that all happened at one moment.
pub(crate) fn send_rows(api: &Api, source: &mut Source, rows: u64, at: Timestamp) -> Result<(), Failure> {
    let made = source.batch(Table::Logs, usize::try_from(rows)?)?;
    let times = TimestampMicrosecondArray::from_value(at.micros(), made.num_rows()).with_timezone("UTC");
    let mut columns = made.columns().to_vec();
    columns[0] = Arc::new(times) as ArrayRef;
    let body = encode_arrow(&[RecordBatch::try_new(made.schema(), columns)?])?;
    let headers = [("Content-Type", BatchEncoding::Arrow.content_type())];
    let answer = api.send("/api/v1/ingest/logs", &headers, &body)?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!("{status} {}", answer.text).into()),
    }
}

/// The current snapshot of the log rows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PublishedLogs {
    pub(crate) rows: u64,
    pub(crate) files: u64,
    /// The version of the table's metadata that has it, by the name of its object.
    pub(crate) version: u64,
}

/// What a client that loads the table now is told; `None` before there is a snapshot.
pub(crate) fn published_logs(api: &Api) -> Option<PublishedLogs> {
    let loaded = api.get(LOGS).ok()?.json;
    let summary = &loaded["metadata"]["snapshots"].as_array()?.last()?["summary"];
    let number = |key: &str| summary[key].as_str()?.parse().ok();
    let (_, object) = loaded["metadata-location"].as_str()?.rsplit_once("/v")?;
    Some(PublishedLogs {
        rows: number("total-records")?,
        files: number("total-data-files")?,
        version: object.strip_suffix(".metadata.json")?.parse().ok()?,
    })
}
