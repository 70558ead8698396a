//! The spool on real files, against a plain list of what must be in it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod full;
mod standstill;
mod version;

use std::fs;
use std::os::unix::fs::FileExt as _;

use model::{EntityId, Table};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::segment_log::SpoolLog;
use super::*;
use crate::spool::SourceCheckpoint;

fn clock_at(micros: i64) -> Clock {
    Clock::new(move || Timestamp::from_micros(micros))
}

fn small(max_bytes: u64, when_full: SpoolFullPolicy) -> SpoolLimits {
    SpoolLimits {
        max_bytes,
        segment_bytes: max_bytes / 4,
        when_full,
    }
}

fn roomy() -> SpoolLimits {
    SpoolLimits {
        max_bytes: 1 << 30,
        segment_bytes: 2_000,
        when_full: SpoolFullPolicy::DropOldest,
    }
}

fn rack() -> EntityId {
    EntityId::for_name("rack-a")
}

fn batch(payload: &[u8], note: Option<(&str, &[u8])>) -> SpoolBatch {
    SpoolBatch {
        entity: rack(),
        table: Table::Logs,
        rows: 10,
        payload: payload.to_vec(),
        checkpoints: note
            .into_iter()
            .map(|(key, value)| SourceCheckpoint {
                key: key.to_owned(),
                value: value.to_vec(),
            })
            .collect(),
        is_part: false,
    }
}

/// Everything that would be sent, oldest first: run, sequence, payload; `None` for a lost one.
fn sent(spool: &SpoolLog) -> Vec<(u64, u64, Option<Vec<u8>>)> {
    let reader = SpoolReader::new(spool.index());
    let (mut cursor, mut all) = (SpoolCursor::default(), Vec::new());
    loop {
        let some = reader.read(&mut cursor, 4_096).unwrap();
        if some.is_empty() {
            return all;
        }
        for outgoing in some {
            match outgoing {
                SpoolItem::Batch(kept) => all.push((kept.run.epoch, kept.seq, Some(kept.payload.to_vec()))),
                SpoolItem::Lost { run, first, last } => all.extend((first..=last).map(|seq| (run.epoch, seq, None))),
            }
        }
    }
}

fn floor(epoch: u64, seq: u64) -> DurableFloor {
    DurableFloor {
        entity_id: rack(),
        boot_epoch: epoch,
        seq,
        on_disk: 0,
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    paths.sort();
    paths
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

#[test]
fn a_spool_is_the_list_of_what_was_appended_and_not_settled_over_restarts_and_torn_tails() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
        let mut model: Vec<(u64, u64, Option<Vec<u8>>)> = Vec::new();
        let (mut appended, mut note, mut seq) = (Vec::new(), None, 0);
        for step in 0..60u32 {
            match rng.random_range(0..10) {
                0..6 => {
                    let group: Vec<SpoolBatch> = (0..rng.random_range(1..5))
                        .map(|_| {
                            let payload: Vec<u8> = (0..rng.random_range(1..900)).map(|_| rng.random()).collect();
                            seq += 1;
                            model.push((spool.epoch(), seq, Some(payload.clone())));
                            appended.extend(model.last().cloned());
                            note = Some(step.to_le_bytes().to_vec());
                            batch(&payload, Some(("tail", &step.to_le_bytes())))
                        })
                        .collect();
                    spool.append(&group).map_err(|_| "append").unwrap();
                }
                6..9 if !model.is_empty() => {
                    let upto = model[rng.random_range(0..model.len())].clone();
                    spool.apply_floors(&[floor(upto.0, upto.1)]);
                    model.retain(|kept| kept.0 != upto.0 || kept.1 > upto.1);
                }
                _ => {
                    drop(spool);
                    let torn = rng.random_range(0..200);
                    let newest = segments(dir.path()).pop().unwrap();
                    let file = fs::OpenOptions::new().write(true).open(&newest).unwrap();
                    let end = file.metadata().unwrap().len();
                    file.write_all_at(&beginning(&newest, &mut rng, torn), end).unwrap();
                    let found;
                    (spool, found) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
                    assert_eq!((found.torn_bytes, found.damaged.len()), (torn as u64, 0), "seed {seed}");
                    // Floors are the Mixer's to repeat: what is still here is sent again until it does.
                    let again: Vec<_> = sent(&spool);
                    assert!(model.iter().all(|kept| again.contains(kept)), "seed {seed} step {step}");
                    assert!(
                        again.iter().all(|kept| appended.contains(kept)),
                        "seed {seed} step {step}"
                    );
                    model = again;
                    seq = 0;
                }
            }
            assert_eq!(sent(&spool), model, "seed {seed} step {step}");
            let kept = spool.index().lock().checkpoints.get("tail").cloned();
            assert_eq!(kept, note, "seed {seed} step {step}");
        }
    }
}

#[test]
fn a_spool_cut_at_any_byte_holds_exactly_the_batches_before_the_cut_and_their_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
    let mut ends = Vec::new();
    let newest = segments(dir.path()).pop().unwrap();
    for n in 0..4u8 {
        spool
            .append(&[batch(&[n; 20], Some(("tail", &[n])))])
            .map_err(|_| "append")
            .unwrap();
        ends.push(fs::metadata(&newest).unwrap().len());
    }
    drop(spool);
    for cut in 0..=*ends.last().unwrap() {
        let copy = copy(dir.path());
        let file = copy.path().join(newest.file_name().unwrap());
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let (spool, found) = SpoolLog::open(copy.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let payloads: Vec<_> = sent(&spool)
            .into_iter()
            .map(|(_, seq, payload)| (seq, payload))
            .collect();
        let wanted: Vec<_> = (0..whole).map(|n| (n as u64 + 1, Some(vec![n as u8; 20]))).collect();
        assert_eq!(payloads, wanted, "cut at {cut}");
        let note = spool.index().lock().checkpoints.get("tail").cloned();
        assert_eq!(note, whole.checked_sub(1).map(|n| vec![n as u8]), "cut at {cut}");
        assert!(found.damaged.is_empty(), "a cut is no damage: {cut}");
    }
}

#[test]
fn a_damaged_finished_segment_is_quarantined_and_its_lost_sequences_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
    for n in 0..30u8 {
        spool
            .append(&[batch(&[n; 200], Some(("tail", &[n])))])
            .map_err(|_| "append")
            .unwrap();
    }
    drop(spool);
    let files = segments(dir.path());
    assert!(files.len() > 3);
    let victim = &files[1];
    let len = fs::metadata(victim).unwrap().len();
    for at in (0..len).step_by(37) {
        let copy = copy(dir.path());
        let path = copy.path().join(victim.file_name().unwrap());
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        let (spool, found) = SpoolLog::open(copy.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
        assert_eq!(found.damaged.len(), 1, "byte {at}");
        assert_eq!(fs::metadata(&found.damaged[0]).unwrap().len(), len, "the copy is whole");
        let all = sent(&spool);
        assert_eq!(
            all.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>(),
            (1..=30).collect::<Vec<_>>(),
            "byte {at}"
        );
        assert!(all.iter().any(|(_, _, payload)| payload.is_none()), "byte {at}");
        for (_, seq, payload) in all {
            assert!(
                payload.is_none_or(|payload| payload == vec![seq as u8 - 1; 200]),
                "byte {at}"
            );
        }
        assert_eq!(
            spool.index().lock().checkpoints.get("tail"),
            Some(&vec![29]),
            "byte {at}"
        );
    }
}

/// What a crash leaves of a write to a segment: the beginning of a record, or zeros.
fn beginning(segment: &Path, rng: &mut StdRng, bytes: usize) -> Vec<u8> {
    if rng.random() {
        return vec![0; bytes];
    }
    let id = segment.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let payload: Vec<u8> = (0..bytes).map(|_| rng.random()).collect();
    let mut record = Vec::new();
    segment::encode(
        &mut record,
        id,
        segment_log::record_header(segment::SpoolRecordKind::Batch, nobody()),
        &[],
        &payload,
    );
    record.truncate(bytes);
    record
}

fn nobody() -> ProducerRun {
    let entity = EntityId::from_bytes([0; 16]);
    ProducerRun { entity, epoch: 0 }
}

#[test]
fn a_flipped_byte_anywhere_in_what_was_durable_last_is_damage_and_no_torn_write() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Messages).unwrap();
    let newest = segments(dir.path()).pop().unwrap();
    let mut ends = Vec::new();
    for n in 0..4u8 {
        spool.append(&[batch(&[n; 20], Some(("tail", &[n])))]).unwrap();
        ends.push(fs::metadata(&newest).unwrap().len());
    }
    drop(spool);
    // All of the last two records, and the head of the one before.
    let heads = (ends[0]..ends[0] + segment::RECORD_HEADER as u64).chain(ends[1]..ends[3]);
    for (at, flip) in heads.flat_map(|at| [0x01, 0x10, 0x80].map(|flip| (at, flip))) {
        let copy = copy(dir.path());
        let path = copy.path().join(newest.file_name().unwrap());
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ flip], at).unwrap();
        let (spool, found) = SpoolLog::open(copy.path(), roomy(), clock_at(1), SpoolKind::Messages).unwrap();
        assert_eq!((found.damaged.len(), found.torn_bytes), (1, 0), "byte {at} ^ {flip}");
        let before = ends.iter().filter(|end| **end <= at).count();
        assert_eq!(sent(&spool).len(), before, "byte {at} ^ {flip}");
    }
}

#[test]
fn the_boot_epoch_grows_even_if_the_clock_or_the_epoch_file_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let open = |micros| {
        SpoolLog::open(dir.path(), roomy(), clock_at(micros), SpoolKind::Telemetry)
            .unwrap()
            .0
    };
    let mut first = open(5_000_000);
    assert_eq!(first.epoch(), 5_000_000);
    first.append(&[batch(&[0], None)]).map_err(|_| "append").unwrap();
    drop(first);
    assert_eq!(open(7).epoch(), 5_000_002);
    fs::remove_file(dir.path().join("epoch")).unwrap();
    assert_eq!(open(7).epoch(), 5_000_002, "from the segment of the first run");
    assert_eq!(open(9_000_000).epoch(), 9_000_000);
}

#[test]
fn a_checkpoint_survives_that_every_batch_is_settled_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
    spool
        .append(&[batch(&[0; 10], Some(("a", b"1")))])
        .map_err(|_| "append")
        .unwrap();
    for _ in 0..20 {
        spool.append(&[batch(&[0; 1_000], None)]).map_err(|_| "append").unwrap();
    }
    spool.apply_floors(&[floor(spool.epoch(), 21)]);
    assert_eq!(segments(dir.path()).len(), 1);
    drop(spool);
    let (spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
    assert_eq!(spool.index().lock().checkpoints.get("a"), Some(&b"1".to_vec()));
}

#[test]
fn large_notes_neither_begin_a_segment_for_each_group_nor_outgrow_a_record_and_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Messages).unwrap();
    let key = |number: u8| format!("page {number}");
    let pages = (0..40_u8).map(|number| {
        let note = batch(&[], Some((&key(number), &[number; 60_000])));
        SpoolBatch { rows: 0, ..note }
    });
    let pages: Vec<_> = pages.collect();
    spool.append(&pages).unwrap();
    spool.roll().unwrap();
    let before = segments(dir.path()).len();
    for number in 0..40 {
        spool.append(&[batch(&[number; 100], None)]).unwrap();
    }
    assert_eq!(segments(dir.path()).len(), before);
    let gone = batch(&[], Some((&key(7), b"")));
    spool.append(&[SpoolBatch { rows: 0, ..gone }]).unwrap();
    for number in 2..4 {
        drop(spool);
        let found;
        (spool, found) = SpoolLog::open(dir.path(), roomy(), clock_at(number), SpoolKind::Messages).unwrap();
        assert!(found.damaged.is_empty() && found.torn_bytes == 0);
        let index = spool.index();
        let index = index.lock();
        for number in 0..40_u8 {
            let kept = (number != 7).then(|| vec![number; 60_000]);
            assert_eq!(index.checkpoints.get(&key(number)), kept.as_ref(), "{number}");
        }
    }
}

#[test]
fn damage_met_while_sending_loses_only_what_is_behind_it_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Telemetry).unwrap();
    for n in 0..30u8 {
        spool.append(&[batch(&[n; 200], None)]).map_err(|_| "append").unwrap();
    }
    let victim = segments(dir.path())[1].clone();
    let file = fs::OpenOptions::new().write(true).open(&victim).unwrap();
    file.write_all_at(&[0xff; 8], fs::metadata(&victim).unwrap().len() / 2)
        .unwrap();
    let all = sent(&spool);
    assert_eq!(
        all.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>(),
        (1..=30).collect::<Vec<_>>()
    );
    let lost = all.iter().filter(|(_, _, payload)| payload.is_none()).count();
    assert!((1..9).contains(&lost), "{lost}");
    assert!(victim.with_extension("seg.damaged").exists());
}

/// Batches that count together, with their checkpoint at the end.
fn whole(first: &[u8], second: &[u8]) -> [SpoolBatch; 3] {
    let part = |payload| SpoolBatch {
        is_part: true,
        ..batch(payload, None)
    };
    let end = SpoolBatch {
        rows: 0,
        payload: Vec::new(),
        ..batch(&[], Some(("taken", first)))
    };
    [part(first), part(second), end]
}

#[test]
fn a_torn_atomic_group_is_dropped_and_the_one_before_it_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Messages).unwrap();
    let epoch = spool.epoch();
    assert_eq!(epoch % 2, 1, "epochs of messages are odd");
    spool.append(&whole(b"one", b"two")).unwrap();
    let path = super::recovery::segment_path(dir.path(), 1);
    let before = fs::metadata(&path).unwrap().len();
    spool.append(&whole(b"three", b"four")).unwrap();
    let after = fs::metadata(&path).unwrap().len();
    drop(spool);
    let wanted = |count: usize| -> Vec<_> {
        let all = [b"one".to_vec(), b"two".to_vec(), b"three".to_vec(), b"four".to_vec()];
        (1..)
            .zip(all.into_iter().take(count))
            .map(|(seq, body)| (epoch, seq, Some(body)))
            .collect()
    };
    for cut in before..=after {
        let copy = tempfile::tempdir().unwrap();
        let target = super::recovery::segment_path(copy.path(), 1);
        fs::copy(&path, &target).unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(&target)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let (spool, found) = SpoolLog::open(copy.path(), roomy(), clock_at(1), SpoolKind::Messages).unwrap();
        let (count, note): (usize, &[u8]) = if cut == after { (4, b"three") } else { (2, b"one") };
        assert_eq!(sent(&spool), wanted(count), "cut at {cut} of {before}..{after}");
        let index = spool.index();
        assert_eq!(index.lock().checkpoints.get("taken").map(Vec::as_slice), Some(note));
        assert_eq!((found.batches, found.damaged.len()), (count as u64, 0));
        assert_eq!(found.torn_bytes, if cut == after { 0 } else { cut - before });
    }
}

#[test]
fn epochs_of_telemetry_and_of_messages_never_meet_whatever_the_clock_says() {
    let dir = tempfile::tempdir().unwrap();
    for micros in [5, 6, 1, 1_000, 3] {
        for (lane, parity) in [(SpoolKind::Telemetry, 0), (SpoolKind::Messages, 1)] {
            let folder = dir.path().join(format!("{lane:?}"));
            let (spool, _) = SpoolLog::open(&folder, roomy(), clock_at(micros), lane).unwrap();
            assert_eq!(spool.epoch() % 2, parity);
        }
    }
}
