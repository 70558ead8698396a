//! Crashes at every call, power cuts, failed syncs: many lives of one log against a book of what was promised.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::*;
use crate::wal::directory::DiskOperation;
use crate::wal::fault_injection::DiskFaultPlan;

/// What the log's user knows: what it wrote, what was promised, what is stored elsewhere.
#[derive(Default)]
struct Book {
    written: BTreeMap<u64, WalFrame>,
    promised: u64,
    low_water: u64,
    life: u64,
}

/// How a life ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The process dies; what it wrote is in the kernel's cache.
    Kill,
    /// The machine dies.
    Power,
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<usize>),
    Sync,
    Release(u64),
}

#[derive(Debug, Clone)]
struct Life {
    steps: Vec<Step>,
    fault: Option<DiskFaultPlan>,
    /// The fault strikes while recovering, too.
    early: bool,
    end: End,
}

fn plan() -> impl Strategy<Value = DiskFaultPlan> {
    let op = prop_oneof![
        4 => Just(None),
        1 => Just(Some(DiskOperation::SyncFile)),
        1 => Just(Some(DiskOperation::SyncDir)),
        1 => Just(Some(DiskOperation::Write)),
        1 => Just(Some(DiskOperation::Rename)),
        1 => Just(Some(DiskOperation::Create)),
        1 => Just(Some(DiskOperation::Unlink)),
    ];
    let errno = prop_oneof![Just(libc::EIO), Just(libc::ENOSPC)];
    (0usize..60, op, any::<bool>(), errno).prop_map(|(at, op, on, errno)| DiskFaultPlan {
        at: if op.is_some() { at / 4 } else { at },
        op,
        on,
        errno,
    })
}

fn life() -> impl Strategy<Value = Life> {
    let size = prop_oneof![6 => 0usize..2_000, 2 => 2_000usize..9_000, 1 => 12_000usize..50_000];
    let step = prop_oneof![
        5 => proptest::collection::vec(size, 1..4).prop_map(Step::Append),
        4 => Just(Step::Sync),
        1 => (0u64..30).prop_map(Step::Release),
    ];
    let end = prop_oneof![Just(End::Kill), Just(End::Power)];
    let steps = proptest::collection::vec(step, 1..40);
    (steps, proptest::option::weighted(0.7, plan()), any::<bool>(), end).prop_map(|(steps, fault, early, end)| Life {
        steps,
        fault,
        early,
        end,
    })
}

impl Book {
    /// Checks what a start handed out, and takes it as promised from now on.
    fn check(&mut self, recovered: Recovered) {
        assert_eq!(recovered.damage, [], "a crash is no damage");
        let next = recovered.next_lsn;
        let found: BTreeMap<u64, WalFrame> = frames(recovered).into_iter().map(|frame| (frame.lsn, frame)).collect();
        for (lsn, frame) in &found {
            assert!(
                self.written.get(lsn) == Some(frame),
                "frame {lsn} is not what was written last"
            );
            assert!(*lsn >= self.low_water && *lsn < next);
        }
        let (low, promised) = (self.low_water, self.promised);
        for lsn in self.written.keys().filter(|lsn| (low..=promised).contains(*lsn)) {
            assert!(
                found.contains_key(lsn),
                "frame {lsn} was promised; low water {low}, promised {promised}"
            );
        }
        assert!(next > self.promised);
        self.promised = self.promised.max(found.keys().last().copied().unwrap_or(0));
        self.written
            .retain(|lsn, _| found.contains_key(lsn) || *lsn < self.low_water);
    }

    /// Does the steps until they end or the log is poisoned.
    fn live(&mut self, wal: &mut WriteAheadLog, steps: &[Step]) {
        for step in steps {
            let done = match step {
                Step::Append(sizes) => {
                    let first = wal.next_lsn();
                    self.life += 1;
                    let group: Vec<WalFrame> = (first..)
                        .zip(sizes)
                        .map(|(lsn, len)| frame_of(lsn, *len, self.life))
                        .collect();
                    let bytes = group.iter().map(WalFrame::encoded_len).sum();
                    let fits = wal.would_fit(bytes);
                    let done = wal.append(&group);
                    assert!(fits || done.is_err());
                    // After a poisoning failure a part of the group may have been written.
                    if done.is_ok() || wal.poisoned().is_some() {
                        self.written.extend(group.into_iter().map(|frame| (frame.lsn, frame)));
                    }
                    done
                }
                Step::Sync => wal.sync().inspect(|()| {
                    self.promised = wal.next_lsn() - 1;
                }),
                Step::Release(keep) => {
                    self.low_water = self.low_water.max((self.promised + 1).saturating_sub(*keep));
                    wal.release(self.low_water)
                }
            };
            match done {
                Ok(()) | Err(Error::LogFull { .. } | Error::NoSpace { .. }) => {}
                Err(Error::Io { .. }) if wal.poisoned().is_none() => {}
                Err(_) => break,
            }
            assert!(wal.disk_bytes() <= wal.options.max_bytes || wal.used_bytes() > wal.options.max_bytes);
        }
    }
}

fn run(lives: &[Life], seed: [u8; 32]) {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut pick = |choices: usize| random.random_range(0..choices);
    let mut book = Book::default();
    let mut place = Place::new();
    let mut faults = DiskFaultInjector::model(&place.log());
    for life in lives.iter().chain([&Life {
        steps: Vec::new(),
        fault: None,
        early: false,
        end: End::Kill,
    }]) {
        faults.plan(life.fault.filter(|_| life.early));
        let options = WalOptions {
            low_water: book.low_water,
            replay_from: book.low_water,
            ..place.options()
        };
        match place.open_with(options, &faults) {
            Ok((mut wal, recovered)) => {
                book.check(recovered);
                if !life.early {
                    faults.plan(life.fault);
                }
                book.live(&mut wal, &life.steps);
            }
            Err(error) => assert!(faults.failed().is_some(), "{error}"),
        }
        if let End::Power = life.end {
            let next = Place::new();
            faults.power_cut(&next.log(), &mut pick);
            place = next;
            faults = DiskFaultInjector::model(&place.log());
        }
    }
}

proptest! {
    #[test]
    fn what_was_promised_survives_every_sequence_of_faults_and_crashes(
        lives in proptest::collection::vec(life(), 1..7),
        seed in any::<[u8; 32]>(),
    ) {
        run(&lives, seed);
    }
}

/// Every call of a recovery fails once, or from then on; after a kill and after a power cut everything is still there.
#[test]
fn a_crash_at_any_call_of_a_recovery_is_recovered_from() {
    let steps: Vec<Step> = (0..12)
        .flat_map(|_| [Step::Append(vec![1500, 900]), Step::Sync])
        .collect();
    let write = Life {
        steps,
        fault: None,
        early: false,
        end: End::Kill,
    };
    let mut struck = 0;
    for at in 0.. {
        let fault = |on| DiskFaultPlan {
            at,
            op: None,
            on,
            errno: if at % 2 == 0 { libc::EIO } else { libc::ENOSPC },
        };
        for (on, end) in [(false, End::Kill), (true, End::Kill), (true, End::Power)] {
            let recover = Life {
                steps: Vec::new(),
                fault: Some(fault(on)),
                early: true,
                end,
            };
            run(
                &[write.clone(), recover.clone(), recover, write.clone()],
                [u8::try_from(at).unwrap(); 32],
            );
        }
        if !strikes(&write, fault(true)) {
            break;
        }
        struck += 1;
    }
    assert!(struck > 20, "{struck} calls");
}

/// Whether the fault strikes while the log written by `write` is recovered.
fn strikes(write: &Life, fault: DiskFaultPlan) -> bool {
    let place = Place::new();
    let (mut wal, _) = place.open();
    Book::default().live(&mut wal, &write.steps);
    drop(wal);
    let faults = DiskFaultInjector::default();
    faults.plan(Some(fault));
    let _ = place.open_with(place.options(), &faults);
    faults.failed().is_some()
}

/// The trap of failed syncs: the next process reads the data from the cache, and the disk never gets it.
#[test]
fn what_a_start_hands_out_after_a_failed_sync_survives_a_power_cut() {
    for fault in 0..4 {
        let place = Place::new();
        let faults = DiskFaultInjector::model(&place.log());
        let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
        for lsn in 1..=fault {
            fill(&mut wal, &[&[frame(lsn, 700)]]);
        }
        faults.plan(Some(DiskFaultPlan {
            at: 0,
            op: Some(DiskOperation::SyncFile),
            on: false,
            errno: libc::EIO,
        }));
        wal.append(&[frame(fault + 1, 3000)]).unwrap();
        wal.sync().unwrap_err();
        drop(wal);
        let (_, recovered) = place.open_with(place.options(), &faults).unwrap();
        let handed_out = frames(recovered);
        assert_eq!(handed_out.len() as u64, fault + 1, "the cache still has it");
        let after = Place::new();
        faults.power_cut(&after.log(), |_| 0);
        assert_eq!(frames(after.open().1), handed_out);
    }
}

/// A copy that was never finished may be on the disk, in a file that is still called a spare, under a number that is not
/// used up. When file and number meet again, its frames must stay foreign.
#[test]
fn frames_of_an_unfinished_copy_never_come_back_under_its_number() {
    for seed in 0..=255 {
        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut pick = |choices: usize| random.random_range(0..choices);
        let mut place = Place::new();
        let (mut wal, _) = place.open();
        fill(&mut wal, &[&[frame(1, 10_000)], &[frame(2, 10_000)]]);
        drop(wal);
        let above = |place: &Place| WalOptions {
            low_water: 3,
            replay_from: 3,
            ..place.options()
        };
        let (mut wal, _) = place.open_above(3);
        fill(&mut wal, &[&[frame(3, 900)]]);
        drop(wal);
        let faults = DiskFaultInjector::model(&place.log());
        let (mut wal, _) = place.open_with(above(&place), &faults).unwrap();
        wal.append(&[frame(4, 900), frame(5, 900)]).unwrap();
        drop(wal);
        faults.plan(Some(DiskFaultPlan {
            at: 1,
            op: Some(DiskOperation::Write),
            on: true,
            errno: libc::EIO,
        }));
        place.open_with(above(&place), &faults).unwrap_err();
        let next = Place::new();
        faults.power_cut(&next.log(), &mut pick);
        place = next;
        let (mut wal, recovered) = place.open_above(3);
        let mut book = frames(recovered);
        let again = frame_of(wal.next_lsn(), 900, 1);
        fill(&mut wal, &[std::slice::from_ref(&again)]);
        book.push(again);
        drop(wal);
        assert_eq!(frames(place.open_above(3).1), book, "seed {seed}");
    }
}

/// A spare whose name is not durable yet has a header that is half overwritten: nothing was lost, so nothing is reported.
#[test]
fn a_power_cut_while_a_released_segment_is_made_new_is_no_damage() {
    for seed in 0..=255 {
        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let place = Place::new();
        let faults = DiskFaultInjector::model(&place.log());
        let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
        let written = [frame(1, 10_000), frame(2, 10_000)];
        fill(&mut wal, &[&written[..1], &written[1..]]);
        wal.release(2).unwrap();
        faults.plan(Some(DiskFaultPlan {
            at: 0,
            op: Some(DiskOperation::Write),
            on: true,
            errno: libc::EIO,
        }));
        wal.append(&[frame(3, 10_000)]).unwrap_err();
        let next = Place::new();
        faults.power_cut(&next.log(), |choices| random.random_range(0..choices));
        let (_, recovered) = next.open_above(2);
        assert_eq!(recovered.damage, [], "seed {seed}");
        assert_eq!(frames(recovered), written[1..], "seed {seed}");
    }
}
