//! Engines of others that read the Iceberg catalogue, as their makers ship them: each has the rows of the Mixer's own SQL, of one snapshot at a time.
//!
//! # Invariants
//!
//! - An engine is a process that is asked again and again, and keeps its catalogue attached meanwhile.
//! - What is compared is a digest of all rows and columns; the Mixer's own rows go the same way, by its SQL.
//! - An engine that is asked for and does not run fails the test.
//!
//! # Not here
//!
//! What the catalogue says by itself (`iceberg`). `make lakehouse` runs the long form with all engines (`LAKEHOUSE_ENGINES`, [`SCANS`], [`ROWS`]);
//! the suite has those that `make tools` installs.

mod catalog_reader;
mod engine_table;
mod snapshot_scans;
mod stored_rows;

use std::time::Duration;

use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, TestMixer};
use serde_json::{Value, json};

use crate::readme::project;

const SOON: Duration = Duration::from_secs(120);
/// Scans of each of the two trials while files change.
const SCANS: (&str, u64) = ("PLATFORM_TEST_LAKEHOUSE_SCANS", 12);
/// Log records whose digests are compared.
const ROWS: (&str, u64) = ("PLATFORM_TEST_LAKEHOUSE_ROWS", 6_000);
/// Engines of the suite, by their names in `engines.py`.
const USUAL: &str = "pyiceberg duckdb polars";

/// The engines to ask; none if they are not installed, and nobody insists on them.
fn engines() -> Option<Vec<String>> {
    let named = std::env::var("LAKEHOUSE_ENGINES")
        .ok()
        .filter(|names| !names.is_empty());
    if named.is_none() && !project().join(".tools/lakehouse-python/installed").is_file() {
        println!("left out: the engines that read Iceberg are missing; make tools installs them");
        return None;
    }
    let names = named.unwrap_or_else(|| USUAL.to_owned());
    Some(names.split_whitespace().map(str::to_owned).collect())
}

/// What a Mixer needs to be told of the test's bucket: keys, and environment.
struct BucketKeys {
    url: String,
    endpoint: String,
}

impl BucketKeys {
    fn new(endpoint: String) -> Self {
        let url = format!("\"s3://{BUCKET}/plant/a\"");
        Self { url, endpoint }
    }

    /// A Mixer on the bucket.
    fn mixer(&self, keys: &[(&str, &str)]) -> Result<TestMixer, Failure> {
        let envs = [
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
        ];
        let url = ("observability.embedded.storage.url", self.url.as_str());
        let soon = ("observability.embedded.storage.upload_interval", "\"200ms\"");
        TestMixer::with(&[&[url, soon], keys].concat(), &envs)
    }
}

/// A table of the catalogue as a client loads it.
fn loaded(mixer: &TestMixer, table: &str) -> Option<Value> {
    let path = format!("/iceberg/v1/namespaces/telemetry/tables/{table}");
    let answer = mixer.api.get(&path).ok()?;
    (answer.status == 200).then_some(answer.json)
}

/// The current snapshot of a table, and its rows as its summary has them.
fn current_snapshot(mixer: &TestMixer, table: &str) -> Option<(i64, u64)> {
    let metadata = &loaded(mixer, table)?["metadata"];
    let id = metadata["current-snapshot-id"].as_i64()?;
    let all = metadata["snapshots"].as_array()?;
    let snapshot = all.iter().find(|snapshot| snapshot["snapshot-id"] == id)?;
    let rows = snapshot["summary"]["total-records"].as_str()?;
    Some((id, rows.parse().ok()?))
}

/// The columns of a table, each with its type in Iceberg.
fn columns(mixer: &TestMixer, table: &str) -> Option<Value> {
    let metadata = &loaded(mixer, table)?["metadata"];
    let schemas = metadata["schemas"].as_array()?;
    let schema = schemas
        .iter()
        .find(|schema| schema["schema-id"] == metadata["current-schema-id"])?;
    let fields = schema["fields"].as_array()?;
    Some(
        fields
            .iter()
            .map(|field| json!([field["name"], field["type"]]))
            .collect(),
    )
}
