//! `platform audit`: the audit log, its checkpoints, and whether it is as it was recorded.

mod key_lineage;
mod verification;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use model::filter::{AuditFilter, CheckpointFilter};
use model::lifecycle_event::LifecycleEvent;
use model::{HumanDuration, KeyFingerprint};
use serde_json::{Value, json};

use crate::args::{ApiArgs, AuditArgs, AuditVerb};
use crate::client::{ApiClient, Row};
use crate::error::Error;
use crate::nearest_word::nearest;
use crate::output::RowPrinter;
use key_lineage::KeyLineage;
use verification::{KeptCheckpoint, verify_log};

const COLUMNS: &[&str] = &[
    "ts",
    "kind",
    "by",
    "rack",
    "entity_id",
    "reference",
    "from",
    "to",
    "why",
];
const CHECKPOINT_COLUMNS: &[&str] = &["ts", "id", "chain", "signed_by"];
const VERDICT_COLUMNS: &[&str] = &[
    "entries",
    "first",
    "last",
    "checkpoints",
    "older_checkpoints",
    "lost_checkpoints",
    "signed_by",
];
const CHECKPOINTS: &str = "/api/v1/audit/checkpoints";
/// The largest page.
const PAGE: u32 = 10_000;

pub(crate) fn run(args: &AuditArgs) -> Result<(), Error> {
    match &args.verb {
        None => list(args),
        Some(AuditVerb::Checkpoints { limit, api }) => {
            let filter = CheckpointFilter {
                limit: Some(*limit),
                cursor: None,
            };
            let page = ApiClient::new(api).page(CHECKPOINTS, &filter)?;
            RowPrinter::from(api).rows(&page.rows, CHECKPOINT_COLUMNS)?;
            super::notes(
                &page,
                "no checkpoint has been signed yet: one is, an hour after the first entry",
            )
        }
        Some(AuditVerb::Verify {
            checkpoints,
            cluster_key,
            keep,
            api,
        }) => verify(api, (checkpoints.as_deref(), *cluster_key), *keep),
    }
}

fn list(args: &AuditArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let filter = AuditFilter {
        since,
        until,
        rack: args.rack.clone(),
        kind: args.kind.clone(),
        limit: Some(args.page.limit),
        cursor: None,
    };
    let page = ApiClient::new(&args.page.api).page_within("/api/v1/audit", &filter, args.page.wait)?;
    RowPrinter::from(&args.page.api).rows(&page.rows, COLUMNS)?;
    let kinds = LifecycleEvent::NAMES.iter().copied();
    let meant = args.kind.as_deref().and_then(|kind| nearest(kind, kinds));
    match meant.filter(|meant| args.kind.as_deref() != Some(*meant)) {
        Some(meant) => super::notes(
            &page,
            &format!("no such events in this window; did you mean --kind {meant}?"),
        ),
        None => super::notes(&page, "no such events in this window"),
    }
}

/// Checks the whole log against its own links, the checkpoints that the Mixer has, and those of a file.
fn verify(
    api: &ApiArgs,
    (file, known): (Option<&Path>, Option<KeyFingerprint>),
    keep: HumanDuration,
) -> Result<(), Error> {
    let client = ApiClient::new(api);
    let expired = chassis::system_clock().now().minus(keep.get());
    // Before the entries: none of them is of an entry that comes meanwhile.
    let mut kept = all_pages(&client, CHECKPOINTS, |cursor| CheckpointFilter {
        limit: Some(PAGE),
        cursor,
    })?;
    let one = CheckpointFilter {
        limit: Some(1),
        cursor: None,
    };
    let keys = KeyLineage::open(client.get(CHECKPOINTS, &one)?, known)?;
    if let Some(file) = file {
        kept.extend(read_rows(file)?);
    }
    let checkpoints = kept.iter().map(KeptCheckpoint::open);
    let checkpoints = checkpoints.collect::<Result<Vec<_>, _>>().map_err(Error::AuditLog)?;
    let mut entries = all_pages(&client, "/api/v1/audit", |cursor| AuditFilter {
        limit: Some(PAGE),
        cursor,
        ..AuditFilter::default()
    })?;
    entries.reverse();
    let verdict = verify_log(&entries, (&checkpoints, &keys), expired).map_err(Error::AuditLog)?;
    let row = json!({
        "entries": verdict.entries, "first": verdict.first, "last": verdict.last,
        "checkpoints": verdict.met, "older_checkpoints": verdict.older, "lost_checkpoints": verdict.lost, "signed_by": verdict.signed_by,
    });
    let row: Vec<Row> = row.as_object().cloned().into_iter().collect();
    RowPrinter::from(api).rows(&row, VERDICT_COLUMNS)?;
    Ok(())
}

/// Every row of a list, the newest first.
fn all_pages<F: serde::Serialize>(
    client: &ApiClient,
    path: &str,
    filter: impl Fn(Option<String>) -> F,
) -> Result<Vec<Row>, Error> {
    let (mut rows, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.page(path, &filter(cursor))?;
        rows.extend(page.rows);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(rows);
        }
    }
}

fn read_rows(path: &Path) -> Result<Vec<Row>, Error> {
    let unreadable = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut rows = Vec::new();
    for (line, number) in file.lines().zip(1..) {
        let line = line.map_err(unreadable)?;
        match serde_json::from_str(&line) {
            _ if line.trim().is_empty() => {}
            Ok(Value::Object(row)) => rows.push(row),
            _ => {
                return Err(Error::Data {
                    path: path.to_owned(),
                    reason: format!("line {number} is not a JSON object"),
                });
            }
        }
    }
    Ok(rows)
}
