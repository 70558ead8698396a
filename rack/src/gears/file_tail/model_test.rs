//! The tailer against a model: whatever happens to the file and to us, the lines stored are the lines written, once each,
//! in order.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gear_spec::file_tail::TailStart;
use proptest::prelude::*;
use tempfile::TempDir;

use super::file_tailer::{FileTailer, LINGER, TailEvent, TailPollLimit};
use super::record_assembler::RecordRules;
use super::tail_position::TailPosition;
use crate::policy::{FileRoots, RackPolicy};

const LIMIT: TailPollLimit = TailPollLimit {
    records: 7,
    bytes: 400,
    overhead: 10,
};

fn files(path: PathBuf) -> (FileRoots, PathBuf) {
    (RackPolicy::for_tests().readable().clone(), path)
}

fn rules() -> RecordRules {
    RecordRules {
        max: 100,
        start: None,
        patience: Duration::from_secs(1),
    }
}

/// A writer and its file, a tailer, and what the tailer's spool holds.
struct TailerModel {
    folder: TempDir,
    writer: Option<File>,
    number: u32,
    written: Vec<String>,
    half: String,
    tailer: Option<FileTailer>,
    /// What is on disk: rows and position, always together.
    stored: Vec<String>,
    position: Option<TailPosition>,
    notices: Vec<TailEvent>,
    now: Instant,
}

impl TailerModel {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            writer: None,
            number: 0,
            written: Vec::new(),
            half: String::new(),
            tailer: None,
            stored: Vec::new(),
            position: None,
            notices: Vec::new(),
            now: Instant::now(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("app.log")
    }

    fn rotated(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("app.log.{number}"))
    }

    fn open(path: &Path) -> File {
        OpenOptions::new().append(true).create(true).open(path).unwrap()
    }

    fn put(&mut self, text: &str) {
        let path = self.path();
        let writer = self.writer.get_or_insert_with(|| Self::open(&path));
        writer.write_all(text.as_bytes()).unwrap();
    }

    fn write(&mut self, lines: u32) {
        for _ in 0..lines {
            self.number += 1;
            let rest = format!("{} is line {}", "x".repeat(self.number as usize % 50), self.number);
            self.put(&format!("{rest}\n"));
            self.written.push(std::mem::take(&mut self.half) + &rest);
        }
    }

    fn write_half(&mut self) {
        self.put("half ");
        self.half.push_str("half ");
    }

    /// Renames the chain. The writer keeps its file open: what it writes next still goes to the renamed one.
    fn rename(&mut self) {
        if !self.path().exists() {
            return;
        }
        let last = (1..).find(|number| !self.rotated(*number).exists()).unwrap();
        for number in (1..last).rev() {
            fs::rename(self.rotated(number), self.rotated(number + 1)).unwrap();
        }
        fs::rename(self.path(), self.rotated(1)).unwrap();
    }

    fn complete(&mut self) {
        if !self.half.is_empty() {
            self.write(1);
        }
    }

    /// One look; its result reaches the disk unless we are killed first.
    fn harvest(&mut self, killed: bool) -> bool {
        let (path, position, now) = (self.path(), self.position.clone(), self.now);
        let tailer = self
            .tailer
            .get_or_insert_with(|| FileTailer::new(files(path), rules(), TailStart::Start, position, now));
        let harvest = tailer.poll(LIMIT, now);
        assert!(harvest.records.len() <= LIMIT.records);
        if killed {
            self.tailer = None;
            return true;
        }
        self.notices.extend(harvest.notices);
        self.stored
            .extend(harvest.records.into_iter().map(|record| record.text));
        self.position = Some(TailPosition::from_bytes(&harvest.position.to_bytes()).unwrap());
        harvest.idle
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            if self.harvest(false) {
                return;
            }
        }
        panic!("the tailer never comes to rest");
    }

    /// Looks until every renamed file has been let go.
    fn drain_all(&mut self) {
        for _ in 0..3 {
            self.drain();
            self.now += LINGER;
        }
        self.drain();
    }

    fn check(&self) {
        let same = self
            .stored
            .iter()
            .zip(&self.written)
            .take_while(|(stored, written)| stored == written)
            .count();
        let next = |lines: &[String]| lines.get(same).cloned();
        let (stored, written) = (next(&self.stored), next(&self.written));
        assert!(
            stored.is_none() && written.is_none(),
            "after {same} lines: stored {stored:?}, written {written:?}"
        );
    }
}

#[derive(Debug, Clone)]
enum TailerStep {
    Write(u32),
    Half,
    Rename,
    Reopen,
    RenameAndReopen,
    TruncateAfterDrain,
    Harvest,
    Drain,
    Kill,
    Wait,
}

fn step() -> impl Strategy<Value = TailerStep> {
    prop_oneof![
        4 => (1u32..30).prop_map(TailerStep::Write),
        1 => Just(TailerStep::Half),
        1 => Just(TailerStep::Rename),
        1 => Just(TailerStep::Reopen),
        2 => Just(TailerStep::RenameAndReopen),
        1 => Just(TailerStep::TruncateAfterDrain),
        4 => Just(TailerStep::Harvest),
        1 => Just(TailerStep::Drain),
        2 => Just(TailerStep::Kill),
        1 => Just(TailerStep::Wait),
    ]
}

impl TailerModel {
    fn take(&mut self, step: &TailerStep) {
        match step {
            TailerStep::Write(lines) => self.write(*lines),
            TailerStep::Half => self.write_half(),
            TailerStep::Rename => self.rename(),
            TailerStep::Reopen => {
                self.complete();
                self.writer = Some(Self::open(&self.path()));
            }
            TailerStep::RenameAndReopen => {
                self.complete();
                self.rename();
                self.writer = Some(Self::open(&self.path()));
            }
            TailerStep::TruncateAfterDrain => {
                self.complete();
                self.drain();
                if let Some(writer) = &self.writer {
                    writer.set_len(0).unwrap();
                }
            }
            TailerStep::Harvest => drop(self.harvest(false)),
            TailerStep::Drain => self.drain(),
            TailerStep::Kill => drop(self.harvest(true)),
            TailerStep::Wait => self.now += LINGER / 2,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_stored_are_lines_written_once_each_and_in_order(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = TailerModel::new();
        // What was rotated away before the first look nobody asked for.
        world.write(1);
        world.harvest(false);
        for step in &steps {
            world.take(step);
        }
        world.complete();
        // A writer that never opened the new file leaves the path without one.
        world.drain_all();
        world.check();
    }
}

#[test]
fn a_restart_after_several_rotations_reads_every_file_in_order() {
    let mut world = TailerModel::new();
    world.write(20);
    world.harvest(false);
    world.tailer = None;
    for _ in 0..4 {
        world.write(20);
        world.rename();
        world.writer = None;
    }
    world.write(5);
    world.drain_all();
    world.check();
    assert!(
        !world
            .notices
            .iter()
            .any(|notice| matches!(notice, TailEvent::Lost { .. }))
    );
}

#[test]
fn what_was_rotated_before_the_first_look_is_not_read() {
    let mut world = TailerModel::new();
    world.write(3);
    world.rename();
    world.writer = None;
    world.written.clear();
    world.write(3);
    world.drain_all();
    world.check();
}

#[test]
fn a_file_that_was_finished_and_compressed_is_not_read_again() {
    let mut world = TailerModel::new();
    world.write(10);
    world.drain();
    world.rename();
    world.writer = None;
    world.write(10);
    world.drain_all();
    fs::rename(world.rotated(1), world.folder.path().join("app.log.1.gz")).unwrap();
    world.tailer = None;
    world.rename();
    world.writer = None;
    world.write(10);
    world.drain_all();
    world.check();
}

#[test]
fn a_half_line_in_a_renamed_file_is_given_out_when_nobody_completes_it() {
    let mut world = TailerModel::new();
    world.write(2);
    world.write_half();
    world.drain();
    world.check();
    world.rename();
    world.writer = None;
    let half = std::mem::take(&mut world.half);
    world.write(2);
    world.drain();
    assert_eq!(world.stored, world.written);
    world.drain_all();
    world.written.push(half);
    world.check();
}

#[test]
fn the_rest_of_a_file_that_was_deleted_while_held_open_is_read() {
    let mut world = TailerModel::new();
    world.write(50);
    world.harvest(false);
    fs::remove_file(world.path()).unwrap();
    world.write(5);
    world.drain_all();
    world.writer = None;
    world.write(5);
    world.drain_all();
    world.check();
    assert_eq!(world.position.as_ref().unwrap().files.len(), 1);
}

#[test]
fn a_truncation_is_seen_even_if_the_file_has_grown_past_where_we_were() {
    let mut world = TailerModel::new();
    world.write(5);
    world.drain();
    world.writer.as_ref().unwrap().set_len(0).unwrap();
    world.write(50);
    world.drain();
    world.check();
    assert_eq!(
        world
            .notices
            .iter()
            .filter(|notice| **notice == TailEvent::Truncated)
            .count(),
        1
    );
    world.tailer = None;
    world.writer.as_ref().unwrap().set_len(0).unwrap();
    world.write(3);
    world.drain();
    world.check();
}

#[test]
fn lines_that_were_read_before_a_truncation_are_kept_even_if_not_given_out() {
    let mut world = TailerModel::new();
    world.write(40);
    world.harvest(false);
    assert!(world.stored.len() < 10);
    world.writer.as_ref().unwrap().set_len(0).unwrap();
    world.write(4);
    world.drain();
    world.check();
}

#[test]
fn from_the_end_means_only_lines_written_after_the_first_look_also_after_a_restart() {
    let mut world = TailerModel::new();
    let tail = |position| FileTailer::new(files(world.path()), rules(), TailStart::End, position, world.now);
    let mut tailer = tail(None);
    let harvest = tailer.poll(LIMIT, world.now);
    assert_eq!(harvest.notices, [TailEvent::Missing]);
    fs::write(world.path(), "new\n").unwrap();
    let harvest = tail(Some(harvest.position)).poll(LIMIT, world.now);
    assert_eq!(harvest.records[0].text, "new");
    let other = world.folder.path().join("other.log");
    fs::write(&other, "old\n").unwrap();
    let tail = |position| FileTailer::new(files(other.clone()), rules(), TailStart::End, position, world.now);
    let harvest = tail(None).poll(LIMIT, world.now);
    assert_eq!(
        (harvest.records.len(), harvest.notices),
        (0, vec![TailEvent::Follows { offset: 4 }])
    );
    fs::write(&other, "old\nnew\n").unwrap();
    let harvest = tail(Some(harvest.position)).poll(LIMIT, world.now);
    assert_eq!(harvest.records[0].text, "new");
    world.number += 1;
}

#[test]
fn an_unreadable_path_is_logged_once_and_followed_when_readable() {
    let mut world = TailerModel::new();
    fs::create_dir(world.path()).unwrap();
    for _ in 0..3 {
        assert!(world.harvest(false));
    }
    assert!(matches!(&world.notices[..], [TailEvent::Unreadable { reason }] if reason.contains("not a regular file")));
    fs::remove_dir(world.path()).unwrap();
    world.write(3);
    world.drain();
    world.check();
}

#[test]
fn a_file_that_disappeared_unfinished_is_logged() {
    let mut world = TailerModel::new();
    world.write(40);
    world.harvest(false);
    world.tailer = None;
    let offset = world.position.as_ref().unwrap().files[0].offset;
    fs::remove_file(world.path()).unwrap();
    world.writer = None;
    world.written.truncate(world.stored.len());
    world.write(2);
    world.drain();
    world.check();
    assert!(world.notices.contains(&TailEvent::Lost { offset }));
}
