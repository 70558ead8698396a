//! Verification of the audit log: its hash chain, and the signed checkpoints of it.
//!
//! | what somebody did | is seen by |
//! |---|---|
//! | changed, dropped or inserted an entry | the next entry's link, or that it has none |
//! | dropped the oldest entries before their time | a checkpoint that was kept elsewhere |
//! | wrote all later links anew, or cut off the end | a checkpoint that was kept elsewhere |
//! | signed checkpoints with another key, or with one that was replaced | the successions of the cluster's keys from `--cluster-key` on |
//!
//! Not here: entries that have gone because of their age, or that a restored backup did not have; checkpoints of them are only counted.

use std::collections::{BTreeMap, BTreeSet};

use model::audit_chain::{AUDIT_CHAIN_START, AuditCheckpoint, audit_link};
use model::{KeyFingerprint, Timestamp};
use serde_json::Value;

use super::key_lineage::KeyLineage;
use crate::client::Row;

/// So many entries are kept, however young.
const MOST_ENTRIES: usize = 500_000;

/// A checkpoint whose signature is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptCheckpoint {
    head: AuditCheckpoint,
    signed_by: KeyFingerprint,
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
    /// Checkpoints of entries that have gone because of their age.
    pub(super) older: usize,
    /// Checkpoints of entries that a restored backup did not have.
    pub(super) lost: usize,
    pub(super) signed_by: BTreeSet<KeyFingerprint>,
}

impl KeptCheckpoint {
    /// Opens a row; the key that it names must have signed it.
    pub(super) fn open(row: &Row) -> Result<Self, String> {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
        let decoded = |name: &str| {
            let bytes = model::hex::decode(text(name));
            bytes.ok_or_else(|| format!("a checkpoint's {name} is not in hexadecimal digits"))
        };
        let (signed, key) = (decoded("signed")?, decoded("signed_by")?);
        let signed_by = KeyFingerprint::of(&key);
        match AuditCheckpoint::open(&signed, &key) {
            Ok(head) => Ok(Self { head, signed_by }),
            Err(error) => Err(format!(
                "the checkpoint of entry {} at {} is not signed by {signed_by}: {error}",
                row.get("id").unwrap_or(&Value::Null),
                text("ts")
            )),
        }
    }

    /// Refuses one of a key that is none of these, or that ends at its entry or before.
    fn require_key(&self, ends: &BTreeMap<KeyFingerprint, u64>) -> Result<(), String> {
        let Self { head, signed_by } = self;
        let who = format!(
            "the checkpoint of entry {} at {} is signed by {signed_by}",
            head.id, head.ts
        );
        match ends.get(signed_by) {
            None => Err(format!(
                "{who}, which no chain of successions links with the cluster's key"
            )),
            Some(end) if head.id >= *end => Err(format!(
                "{who}, which was replaced: from entry {end} on only somebody who kept the old key can have signed with it"
            )),
            Some(_) => Ok(()),
        }
    }
}

/// Checks entries, the oldest first, and checkpoints of them, which these keys may sign. Entries from before `expired` may have gone because of
/// their age.
pub(super) fn verify_log(
    entries: &[Row],
    (checkpoints, keys): (&[KeptCheckpoint], &KeyLineage),
    expired: Timestamp,
) -> Result<LogVerdict, String> {
    if let Some(forged) = entries
        .iter()
        .find(|entry| link(entry).is_none() && !is_sighting(entry))
    {
        let id = id(forged).unwrap_or_default();
        return Err(format!(
            "entry {id} has no link, and only sightings have none: it was inserted"
        ));
    }
    let linked: Vec<_> = entries.iter().filter(|entry| link(entry).is_some()).collect();
    if let Some(first) = linked.first().filter(|first| id(first) == Some(1)) {
        follows(AUDIT_CHAIN_START, first)?;
    }
    for pair in linked.windows(2) {
        if let [previous, entry] = pair {
            follows(link(previous).unwrap_or_default(), entry)?;
        }
    }
    let ends = keys.ends(&linked);
    let (mut met, mut older, mut lost) = (0, 0, 0);
    for kept in checkpoints {
        let head = &kept.head;
        let next = linked.partition_point(|entry| id(entry) < Some(head.id));
        match linked.get(next) {
            Some(entry) if id(entry) == Some(head.id) && link(entry) == Some(&head.chain) => {
                kept.require_key(&ends)?;
                met += 1;
            }
            Some(entry) if id(entry) == Some(head.id) => {
                return Err(format!(
                    "entry {} is another one than the checkpoint of {} signed",
                    head.id, head.ts
                ));
            }
            Some(_) if next == 0 && head.ts < expired => older += 1,
            Some(_) if next == 0 && linked.len() >= MOST_ENTRIES => {
                return Err(format!(
                    "entry {} is gone, which the checkpoint of {} signed: the log has {MOST_ENTRIES} entries, the most that it keeps, so newer ones \
                     pushed it out before its time",
                    head.id, head.ts
                ));
            }
            Some(entry) if next > 0 && entry.get("kind").is_some_and(|kind| kind == "backup_restored") => lost += 1,
            _ => {
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
        lost,
        signed_by: checkpoints.iter().map(|kept| kept.signed_by).collect(),
    })
}

/// Whether nobody decided it.
fn is_sighting(entry: &Row) -> bool {
    let kind = entry.get("kind").and_then(Value::as_str);
    kind.is_some_and(|kind| ["rack_offline", "rack_online"].contains(&kind))
}

fn link(entry: &Row) -> Option<&str> {
    entry.get("chain").and_then(Value::as_str)
}

pub(super) fn id(entry: &Row) -> Option<u64> {
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
    use model::ClusterId;
    use serde_json::json;

    use super::super::key_lineage::tests::{answer, print};
    use super::*;

    /// Nothing is old enough to have gone.
    const NEVER: Timestamp = Timestamp::MIN;

    fn log() -> Vec<Row> {
        log_with(|_| ())
    }

    /// Entries that are changed like this before they are recorded.
    fn log_with(change: impl Fn(&mut Value)) -> Vec<Row> {
        let mut previous = AUDIT_CHAIN_START.to_owned();
        let entries = (1..=5).map(|id| {
            let ts = format!("2026-11-28T00:00:0{id}Z");
            let kind = if id == 3 { "rack_offline" } else { "rack_labels" };
            let mut entry = json!({ "id": id, "ts": ts, "kind": kind, "why": null, "chain": null });
            change(&mut entry);
            if id != 3 {
                previous = audit_link(&previous, entry.as_object().unwrap());
                entry["chain"] = previous.clone().into();
            }
            entry.as_object().unwrap().clone()
        });
        entries.collect()
    }

    fn key(byte: u8) -> SigningKey {
        SigningKey::from_bytes(&[byte; 32])
    }

    fn lineage(keys: &[SigningKey]) -> KeyLineage {
        KeyLineage::open(answer(keys), None).unwrap()
    }

    fn verify(entries: &[Row], checkpoints: &[KeptCheckpoint], expired: Timestamp) -> Result<LogVerdict, String> {
        verify_log(entries, (checkpoints, &lineage(&[key(7)])), expired)
    }

    fn checkpoint(entry: &Row) -> Row {
        checkpoint_by(&key(7), entry)
    }

    fn checkpoint_by(key: &SigningKey, entry: &Row) -> Row {
        let head = AuditCheckpoint {
            cluster_id: ClusterId::at(Timestamp::from_micros(1), [3; 10]),
            ts: Timestamp::from_micros(9),
            id: id(entry).unwrap(),
            chain: link(entry).unwrap().to_owned(),
        };
        let signed = model::hex::encode(&head.sign(key).unwrap());
        let signed_by = model::hex::encode(key.verifying_key().as_bytes());
        let row = json!({ "id": head.id, "signed": signed, "signed_by": signed_by });
        row.as_object().unwrap().clone()
    }

    fn kept(row: &Row) -> KeptCheckpoint {
        KeptCheckpoint::open(row).unwrap()
    }

    #[test]
    fn a_log_as_it_was_recorded_passes_whole_or_without_its_oldest_entries() {
        let log = log();
        let checkpoints = [kept(&checkpoint(&log[0])), kept(&checkpoint(&log[4]))];
        let verdict = verify(&log, &checkpoints, NEVER).unwrap();
        assert_eq!((verdict.entries, verdict.met, verdict.older), (4, 2, 0));
        assert_eq!(verdict.last, Some(json!("2026-11-28T00:00:05Z")));
        let verdict = verify(&log[1..], &checkpoints, Timestamp::from_micros(10)).unwrap();
        assert_eq!((verdict.entries, verdict.met, verdict.older), (3, 1, 1));
        assert_eq!(verify(&[], &[], NEVER).unwrap().entries, 0);
    }

    #[test]
    fn what_was_changed_dropped_inserted_or_cut_off_is_seen() {
        let log = log();
        let newest = [kept(&checkpoint(&log[4]))];
        let refused = |change: &dyn Fn(&mut Vec<Row>), checkpoints: &[KeptCheckpoint]| {
            let mut changed = log.clone();
            change(&mut changed);
            verify(&changed, checkpoints, NEVER).unwrap_err()
        };
        let changed = refused(&|log| log[1]["kind"] = "rack_online".into(), &[]);
        assert!(changed.contains("entry 2 of 2026-11-28T00:00:02Z"), "{changed}");
        assert!(refused(&|log| drop(log.remove(1)), &[]).contains("entry 4"));
        assert!(refused(&|log| log.insert(1, log[0].clone()), &[]).contains("entry 1"));
        assert!(refused(&|log| log[0]["why"] = "x".into(), &[]).contains("entry 1"));
        assert!(refused(&|log| log.truncate(4), &newest).contains("entry 5 is missing"));
        let oldest = [kept(&checkpoint(&log[0]))];
        assert!(refused(&|log| drop(log.remove(0)), &oldest).contains("entry 1 is missing"));
        let mut forged = log[1].clone();
        forged["chain"] = Value::Null;
        assert!(refused(&|log| log.insert(2, forged.clone()), &newest).contains("entry 2 has no link"));
        let anew = |log: &mut Vec<Row>| {
            log[4]["why"] = "x".into();
            log[4]["chain"] = audit_link(link(&log[3]).unwrap(), &log[4]).into();
        };
        assert!(refused(&anew, &newest).contains("entry 5 is another one"));
    }

    #[test]
    fn checkpoints_of_what_a_restored_backup_did_not_have_are_counted() {
        let (whole, mut log) = (log(), log());
        log.truncate(2);
        let mut restored =
            json!({ "id": 1_000_003, "ts": "2026-11-28T00:01:00Z", "kind": "backup_restored", "chain": null });
        let fields = restored.as_object().unwrap();
        restored["chain"] = audit_link(link(&log[1]).unwrap(), fields).into();
        log.push(restored.as_object().unwrap().clone());
        let verdict = verify(
            &log,
            &[kept(&checkpoint(&whole[4])), kept(&checkpoint(&whole[1]))],
            NEVER,
        )
        .unwrap();
        assert_eq!((verdict.entries, verdict.met, verdict.lost), (3, 1, 1));
    }

    #[test]
    fn a_checkpoint_of_another_key_is_refused() {
        let (log, other) = (log(), key(8));
        let foreign = kept(&checkpoint_by(&other, &log[4]));
        let refused = verify(&log, &[foreign], NEVER).unwrap_err();
        assert!(
            refused.contains(&print(&other).to_string()) && refused.contains("no chain of successions"),
            "{refused}"
        );
        let mut forged = checkpoint(&log[4]);
        forged["signed_by"] = model::hex::encode(other.verifying_key().as_bytes()).into();
        let refused = KeptCheckpoint::open(&forged).unwrap_err();
        assert!(
            refused.contains(&format!("is not signed by {}", print(&other))),
            "{refused}"
        );
        forged["signed"] = "00".into();
        assert!(KeptCheckpoint::open(&forged).unwrap_err().contains("entry 5"));
    }

    #[test]
    fn a_key_signs_no_entry_after_its_rotation() {
        let keys = [key(7), key(8), key(9)];
        let rotated = |entry: &mut Value, [old, new]: [&SigningKey; 2]| {
            entry["kind"] = "cluster_key_rotated".into();
            (entry["from"], entry["to"]) = (json!(print(old)), json!(print(new)));
        };
        // The second key signs from entry 2 on, the third from entry 5 on.
        let log = log_with(|entry| match entry["id"].as_u64() {
            Some(2) => rotated(entry, [&keys[0], &keys[1]]),
            Some(5) => rotated(entry, [&keys[1], &keys[2]]),
            _ => {}
        });
        let lineage = lineage(&keys);
        let by = |key: &SigningKey, place: usize| kept(&checkpoint_by(key, &log[place]));
        let verify = |log: &[Row], checkpoint| verify_log(log, (&[checkpoint], &lineage), Timestamp::from_micros(10));
        for (key, place) in [(&keys[0], 0), (&keys[1], 1), (&keys[1], 3), (&keys[2], 4)] {
            assert_eq!(verify(&log, by(key, place)).unwrap().met, 1);
        }
        for (key, place, end) in [(&keys[0], 1, 2), (&keys[0], 4, 2), (&keys[1], 4, 5)] {
            let refused = verify(&log, by(key, place)).unwrap_err();
            assert!(
                refused.contains(&format!("{}, which was replaced: from entry {end} on", print(key))),
                "{refused}"
            );
        }
        // The entry of its rotation has gone because of its age.
        let young = &log[3..];
        assert_eq!(verify(young, by(&keys[0], 0)).unwrap().older, 1);
        let refused = verify(young, by(&keys[0], 4)).unwrap_err();
        assert!(refused.contains("from entry 4 on"), "{refused}");
    }
}
