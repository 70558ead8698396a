//! The Iceberg catalogue: how far it is behind, what a large table's metadata takes, what a scan asks for, what publication costs ingest.
//!
//! | argument | what is measured |
//! |---|---|
//! | `lag` | seconds from the acknowledgement of rows to the first table that a client loads with them: in a folder and behind a bucket |
//! | `metadata` | 100,000 data files: the first publication, one more file a hundred times, a new start, garbage |
//! | `requests` | requests of one scan at the Mixer and at the bucket, by pyiceberg and DuckDB |
//! | `ingest` | rows/s and CPU seconds with the catalogue and without, in turn |
//!
//! Without arguments all of them. The head of each part's file (`iceberg/`) describes its method. Mixers are release ones in temporary folders, a
//! bucket is a `SeaweedFS` of one process on loopback; all processes share the machine's cores.

#[path = "iceberg/catalog_mixer.rs"]
mod catalog_mixer;
#[path = "iceberg/ingest_cost.rs"]
mod ingest_cost;
#[path = "iceberg/lag.rs"]
mod lag;
#[path = "iceberg/large_table.rs"]
mod large_table;
#[path = "iceberg/scan_requests.rs"]
mod scan_requests;

use std::path::Path;

use benches::load;
use harness::Failure;

/// A part, and what runs it.
type BenchPart = (&'static str, fn() -> Result<(), Failure>);

const PARTS: [BenchPart; 4] = [
    ("lag", lag::measure),
    ("metadata", large_table::measure),
    ("requests", scan_requests::measure),
    ("ingest", ingest_cost::measure),
];

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["make", store] => return large_table::make(Path::new(store)),
        ["publish", how, store] => return large_table::publish(how, Path::new(store)),
        _ => {}
    }
    if let Some(unknown) = words.iter().find(|word| PARTS.iter().all(|(name, _)| name != *word)) {
        return Err(format!("{unknown} is no part: say lag, metadata, requests or ingest").into());
    }
    println!("load before: {}", load());
    for (name, measure) in PARTS {
        if words.is_empty() || words.contains(&name) {
            measure()?;
        }
    }
    println!("load after: {}", load());
    Ok(())
}
