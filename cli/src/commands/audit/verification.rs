//! Verification of the audit log: its hash chain, and the signed checkpoints of it.
//!
//! | what somebody did | is seen by |
//! |---|---|
//! | changed, dropped or inserted an entry | the next entry's link |
//! | wrote all later links anew, or cut off the end | a checkpoint that was kept elsewhere |
//! | signed other checkpoints with another key | `--cluster-key` |
//!
//! Not here: entries that have gone because of their age; checkpoints of them are only counted.

use std::collections::BTreeSet;

use model::audit_chain::{AUDIT_CHAIN_START, AuditCheckpoint, audit_link};
use serde_json::Value;

use crate::client::Row;

/// A checkpoint whose signature is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptCheckpoint {
    head: AuditCheckpoint,
    signed_by: String,
}

/// What was checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogVerdict {
    pub(super) entries: usize,
    /// When the first and the last entry were recorded.
    pub(super) first: Option<Value>,
    pub(super) last: Option<Value>,
    /// Checkpoints of entries that are there.
    pub(super) met: usize,
    /// Checkpoints of entries that have gone.
    pub(super) older: usize,
    pub(super) signed_by: BTreeSet<String>,
}

impl KeptCheckpoint {
    /// Opens a row; `key` must have signed it, or whichever key it names.
    pub(super) fn open(row: &Row, key: Option<&str>) -> Result<Self, String> {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
        let signed_by = key.unwrap_or_else(|| text("signed_by")).to_ascii_lowercase();
        let decoded = |name: &str, hex: &str| {
            let bytes = model::hex::decode(hex);
            bytes.ok_or_else(|| format!("a checkpoint's {name} is not in hexadecimal digits"))
        };
        let signed = decoded("signed", text("signed"))?;
        let head = AuditCheckpoint::open(&signed, &decoded("signed_by", &signed_by)?);
        match head {
            Ok(head) => Ok(Self { head, signed_by }),
            Err(error) => Err(format!(
                "the checkpoint of entry {} at {} is not signed by {signed_by}: {error}",
                row.get("id").unwrap_or(&Value::Null),
                text("ts")
            )),
        }
    }
}

/// Checks entries, the oldest first, and checkpoints of them.
pub(super) fn verify_log(entries: &[Row], checkpoints: &[KeptCheckpoint]) -> Result<LogVerdict, String> {
    let linked: Vec<_> = entries.iter().filter(|entry| link(entry).is_some()).collect();
    if let Some(first) = linked.first().filter(|first| id(first) == Some(1)) {
        follows(AUDIT_CHAIN_START, first)?;
    }
    for pair in linked.windows(2) {
        if let [previous, entry] = pair {
            follows(link(previous).unwrap_or_default(), entry)?;
        }
    }
    let (mut met, mut older) = (0, 0);
    for KeptCheckpoint { head, .. } in checkpoints {
        let found = linked.binary_search_by_key(&Some(head.id), |entry| id(entry));
        let found = found.ok().and_then(|at| linked.get(at));
        match found {
            Some(entry) if link(entry) == Some(&head.chain) => met += 1,
            None if linked
                .first()
                .and_then(|first| id(first))
                .is_some_and(|first| head.id < first) =>
            {
                older += 1
            }
            Some(_) => {
                return Err(format!(
                    "entry {} is another one than the checkpoint of {} signed",
                    head.id, head.ts
                ));
            }
            None => {
                return Err(format!(
                    "entry {} is missing, which the checkpoint of {} signed",
                    head.id, head.ts
                ));
            }
        }
    }
    let ts = |entry: Option<&&Row>| entry.and_then(|entry| entry.get("ts").cloned());
    Ok(LogVerdict {
        entries: linked.len(),
        first: ts(linked.first()),
        last: ts(linked.last()),
        met,
        older,
        signed_by: checkpoints.iter().map(|kept| kept.signed_by.clone()).collect(),
    })
}

fn link(entry: &Row) -> Option<&str> {
    entry.get("chain").and_then(Value::as_str)
}

fn id(entry: &Row) -> Option<u64> {
    entry.get("id").and_then(Value::as_u64)
}

fn follows(previous: &str, entry: &Row) -> Result<(), String> {
    if link(entry) == Some(&audit_link(previous, entry)) {
        return Ok(());
    }
    let ts = entry.get("ts").and_then(Value::as_str).unwrap_or_default();
    let id = id(entry).unwrap_or_default();
    Err(format!(
        "entry {id} of {ts} does not follow from the one before it: one of the two was changed, or others between them were dropped or inserted"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use ed25519_dalek::SigningKey;
    use model::{ClusterId, Timestamp};
    use serde_json::json;

    use super::*;

    fn log() -> Vec<Row> {
        let mut previous = AUDIT_CHAIN_START.to_owned();
        let entries = (1..=5).map(|id| {
            let ts = format!("2026-11-28T00:00:0{id}Z");
            let mut entry = json!({ "id": id, "ts": ts, "kind": "rack_labels", "why": null, "chain": null });
            if id != 3 {
                previous = audit_link(&previous, entry.as_object().unwrap());
                entry["chain"] = previous.clone().into();
            }
            entry.as_object().unwrap().clone()
        });
        entries.collect()
    }

    fn key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    fn checkpoint(entry: &Row) -> Row {
        let head = AuditCheckpoint {
            cluster_id: ClusterId::at(Timestamp::from_micros(1), [3; 10]),
            ts: Timestamp::from_micros(9),
            id: id(entry).unwrap(),
            chain: link(entry).unwrap().to_owned(),
        };
        let signed = model::hex::encode(&head.sign(&key()).unwrap());
        let signed_by = model::hex::encode(key().verifying_key().as_bytes());
        let row = json!({ "id": head.id, "signed": signed, "signed_by": signed_by });
        row.as_object().unwrap().clone()
    }

    fn kept(row: &Row) -> KeptCheckpoint {
        KeptCheckpoint::open(row, None).unwrap()
    }

    #[test]
    fn a_log_as_it_was_recorded_passes_whole_or_without_its_oldest_entries() {
        let log = log();
        let checkpoints = [kept(&checkpoint(&log[0])), kept(&checkpoint(&log[4]))];
        let verdict = verify_log(&log, &checkpoints).unwrap();
        assert_eq!((verdict.entries, verdict.met, verdict.older), (4, 2, 0));
        assert_eq!(verdict.last, Some(json!("2026-11-28T00:00:05Z")));
        let verdict = verify_log(&log[1..], &checkpoints).unwrap();
        assert_eq!((verdict.entries, verdict.met, verdict.older), (3, 1, 1));
        assert_eq!(verify_log(&[], &[]).unwrap().entries, 0);
    }

    #[test]
    fn what_was_changed_dropped_inserted_or_cut_off_is_seen() {
        let log = log();
        let newest = [kept(&checkpoint(&log[4]))];
        let refused = |change: &dyn Fn(&mut Vec<Row>), checkpoints: &[KeptCheckpoint]| {
            let mut changed = log.clone();
            change(&mut changed);
            verify_log(&changed, checkpoints).unwrap_err()
        };
        let changed = refused(&|log| log[1]["kind"] = "rack_online".into(), &[]);
        assert!(changed.contains("entry 2 of 2026-11-28T00:00:02Z"), "{changed}");
        assert!(refused(&|log| drop(log.remove(1)), &[]).contains("entry 4"));
        assert!(refused(&|log| log.insert(1, log[0].clone()), &[]).contains("entry 1"));
        assert!(refused(&|log| log[0]["why"] = "x".into(), &[]).contains("entry 1"));
        assert!(refused(&|log| log.truncate(4), &newest).contains("entry 5 is missing"));
        let anew = |log: &mut Vec<Row>| {
            log[4]["why"] = "x".into();
            log[4]["chain"] = audit_link(link(&log[3]).unwrap(), &log[4]).into();
        };
        assert!(refused(&anew, &newest).contains("entry 5 is another one"));
    }

    #[test]
    fn a_checkpoint_of_another_key_is_refused() {
        let row = checkpoint(&log()[4]);
        let other = SigningKey::from_bytes(&[8; 32]);
        let other = model::hex::encode(other.verifying_key().as_bytes());
        assert!(KeptCheckpoint::open(&row, Some(&other)).unwrap_err().contains(&other));
        let mut forged = row;
        forged["signed"] = "00".into();
        assert!(KeptCheckpoint::open(&forged, None).unwrap_err().contains("entry 5"));
    }
}
