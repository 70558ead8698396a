//! Follows a path through rotation and truncation: which file is read next, and from where.
//!
//! ```text
//! app.log.2 ── renamed, read to its end, still watched for a while  ┐
//! app.log.1 ── born between two looks, found beside the path        ├─ files, oldest first
//! app.log   ── at the path now                                      ┘
//! ```
//!
//! # Invariants
//!
//! - Records and the [`TailPosition`] behind them leave together ([`TailPollResult`]); from that position a new tailer gives exactly the
//!   records that come after.
//! - A renamed file is read to its end before the next one, and watched [`LINGER`] longer for a writer that still has it open.
//!   A block of a newer file is handed out only after every older file has been found at its end *after* the block was read.
//! - Files that were born and renamed between two looks are found beside the path: named `<name>.<something with a digit>` (or
//!   `.old`, `.bak`), not compressed, born between the file we had and the one we found.
//! - What a writer truncates before it was read is lost, as with every tail: copy-then-truncate leaves no trace of it.
//!
//! # Not here
//!
//! Rows, durability, timers ([`super`]).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gear_spec::file_tail::TailStart;

use super::record_assembler::{RecordRules, TailRecord};
use super::tail_position::{FINGERPRINT, FileFingerprint, FileProgress, TailPosition};
use super::tailed_file::{FileId, TailedFile, born, head_of, open};
use crate::policy::FileRoots;

/// How long a renamed file is watched after its last byte.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// How many finished files are remembered.
pub(super) const MAX_DONE: usize = 16;
/// How many unfinished files a position holds; further ones are found again beside the path.
pub(super) const MAX_MARKS: usize = 16;

/// How much one harvest may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct TailPollLimit {
    pub(super) records: usize,
    pub(super) bytes: usize,
    /// What a record takes beside its text.
    pub(super) overhead: usize,
}

/// Records up to a [`TailPollLimit`]; the last one may exceed the bytes.
struct TailRecordBuffer {
    limit: TailPollLimit,
    bytes: usize,
    records: Vec<TailRecord>,
}

impl TailRecordBuffer {
    fn put(&mut self, record: TailRecord) {
        self.bytes += record.text.len() + self.limit.overhead;
        self.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.limit.records || self.bytes >= self.limit.bytes
    }
}

/// What one look brought.
#[derive(Debug)]
pub(super) struct TailPollResult {
    pub(super) records: Vec<TailRecord>,
    /// Where to go on once the records are stored.
    pub(super) position: TailPosition,
    pub(super) notices: Vec<TailEvent>,
    /// Whether there is nothing more to read right now.
    pub(super) idle: bool,
}

/// Something to tell people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TailEvent {
    /// There is no file yet.
    Missing,
    /// A file is followed from this offset.
    Follows { offset: u64 },
    /// The file was renamed; its rest is read, then the next file.
    Rotated,
    /// The file was emptied or written anew.
    Truncated,
    /// A file that was not finished is gone.
    Lost { offset: u64 },
    /// The file cannot be read; it is tried again.
    Unreadable { reason: String },
}

/// What a path was last known to be, so that every change is told once.
#[derive(Debug, PartialEq, Eq)]
enum PathState {
    Unknown,
    Missing,
    Unreadable,
    Open,
}

/// A file that was at the path between two looks.
struct MissedFile {
    file: File,
    metadata: Metadata,
    name: OsString,
}

impl MissedFile {
    /// Sorts the older file first: by birth, by last write, and, where the clock was too coarse to tell, by the number of
    /// renames that the name counts.
    fn age(&self) -> (u64, i64, i64, Reverse<u64>) {
        let name = self.name.to_string_lossy();
        let renames = name
            .rsplit(['.', '-', '_'])
            .next()
            .and_then(|number| number.parse().ok());
        let metadata = &self.metadata;
        (
            born(metadata),
            metadata.mtime(),
            metadata.mtime_nsec(),
            Reverse(renames.unwrap_or(0)),
        )
    }
}

/// A path that is followed.
#[derive(Debug)]
pub(super) struct FileTailer {
    /// Where files may be.
    roots: FileRoots,
    path: PathBuf,
    rules: RecordRules,
    /// Oldest first; the last was found at the path.
    files: VecDeque<TailedFile>,
    done: VecDeque<FileFingerprint>,
    /// Where the first file of all begins to be read.
    from: TailStart,
    /// What was read of files that were written anew meanwhile: it exists nowhere else.
    saved: VecDeque<TailRecord>,
    /// The birth of the newest file that we had, once it is gone: what was born after it is unread.
    newest: Option<u64>,
    state: PathState,
    notices: Vec<TailEvent>,
}

impl FileTailer {
    /// Goes on where a position says, or begins.
    pub(super) fn new(
        (roots, path): (FileRoots, PathBuf),
        rules: RecordRules,
        from: TailStart,
        position: Option<TailPosition>,
        now: Instant,
    ) -> Self {
        let mut tailer = Self {
            roots,
            path,
            rules,
            files: VecDeque::new(),
            done: VecDeque::new(),
            // A file that appears after the first look was written after it, from its first byte on.
            from: if position.is_some() { TailStart::Start } else { from },
            saved: VecDeque::new(),
            newest: None,
            state: PathState::Unknown,
            notices: Vec::new(),
        };
        if let Some(position) = position {
            tailer.resume(&position, now);
        }
        tailer
    }

    /// Looks at the path and takes what is there, within a limit.
    pub(super) fn poll(&mut self, limit: TailPollLimit, now: Instant) -> TailPollResult {
        self.look(now);
        let mut basket = TailRecordBuffer {
            limit,
            bytes: 0,
            records: Vec::new(),
        };
        self.take(now, &mut basket);
        let idle = basket.records.is_empty() && !self.retire(now, &mut basket);
        TailPollResult {
            idle: idle || !(basket.is_full() || basket.records.is_empty()),
            records: basket.records,
            position: self.position(),
            notices: std::mem::take(&mut self.notices),
        }
    }

    fn position(&self) -> TailPosition {
        TailPosition {
            files: self.files.iter().take(MAX_MARKS).map(TailedFile::mark).collect(),
            newest: self.newest,
            done: self.done.iter().copied().collect(),
        }
    }

    // ---- taking records

    /// Fills the basket, oldest file first.
    fn take(&mut self, now: Instant, basket: &mut TailRecordBuffer) {
        let mut at = 0;
        while at < self.files.len() && !basket.is_full() {
            if let Some(record) = self.saved.pop_front() {
                basket.put(record);
                continue;
            }
            let Some(file) = self.files.get_mut(at) else { return };
            if let Some(record) = file.lines.next(&self.rules, now) {
                basket.put(record);
                continue;
            }
            match file.read(now) {
                Ok(0) => match file.lines.next_stale(&self.rules, now) {
                    Some(record) => basket.put(record),
                    None => at += 1,
                },
                // An older file may have got bytes before these were written: they come first.
                Ok(_) => at = 0,
                Err(error) => {
                    self.unreadable(&error);
                    at += 1;
                }
            }
        }
    }

    /// Lets go of files that get nothing more: renamed or deleted, and quiet for a while. What is left of one is given out
    /// first. Asked only when nothing else is to be given out. True if something happened.
    fn retire(&mut self, now: Instant, basket: &mut TailRecordBuffer) -> bool {
        let only = self.files.len() == 1;
        let Some(file) = self.files.front_mut() else {
            return false;
        };
        let over = !only || (self.state == PathState::Missing && file.is_deleted());
        if !over || now.saturating_duration_since(file.active) < LINGER {
            return false;
        }
        if let Some(record) = file.lines.next_rest(&self.rules) {
            basket.put(record);
            return true;
        }
        let (known, born) = (file.known(), file.born);
        self.files.pop_front();
        self.remember(known);
        self.newest = Some(born);
        true
    }

    fn remember(&mut self, known: FileFingerprint) {
        if self.done.len() >= MAX_DONE {
            self.done.pop_front();
        }
        self.done.push_back(known);
    }

    // ---- looking at the path

    fn look(&mut self, now: Instant) {
        self.look_for_rewrites(now);
        match self.roots.metadata(&self.path) {
            Ok(metadata) if self.files.back().is_some_and(|file| file.id == FileId::of(&metadata)) => {
                self.state = PathState::Open;
            }
            Ok(_) => match open(&self.roots, &self.path) {
                Ok((file, metadata)) => self.found(file, &metadata, now),
                Err(error) => self.failed(&error, now),
            },
            Err(error) => self.failed(&error, now),
        }
    }

    fn failed(&mut self, error: &io::Error, now: Instant) {
        if error.kind() == io::ErrorKind::NotFound {
            if let Some(before) = self.newest_birth() {
                self.find_missed(before, None, now);
            }
            if self.state != PathState::Missing && self.files.is_empty() {
                self.notices.push(TailEvent::Missing);
            }
            self.state = PathState::Missing;
            // The first look has been: whatever appears later is new.
            self.from = TailStart::Start;
        } else {
            self.unreadable(error);
        }
    }

    fn unreadable(&mut self, error: &io::Error) {
        if self.state != PathState::Unreadable {
            self.state = PathState::Unreadable;
            self.notices.push(TailEvent::Unreadable {
                reason: error.to_string(),
            });
        }
    }

    fn look_for_rewrites(&mut self, now: Instant) {
        for at in 0..self.files.len() {
            let Some(file) = self.files.get_mut(at) else { return };
            // A file that cannot be looked at cannot be read either, and reading reports it.
            if file.detect_rewrite().unwrap_or(false) {
                let known = file.known();
                let mut lines = file.restart();
                let complete = std::iter::from_fn(|| lines.next(&self.rules, now));
                self.saved.extend(complete);
                self.saved.extend(std::iter::from_fn(|| lines.next_rest(&self.rules)));
                self.remember(known);
                self.notices.push(TailEvent::Truncated);
            }
        }
    }

    /// Another file is at the path.
    fn found(&mut self, file: File, metadata: &Metadata, now: Instant) {
        let id = FileId::of(metadata);
        self.state = PathState::Open;
        if let Some(at) = self.files.iter().position(|file| file.id == id) {
            // An older file was renamed back.
            let file = self.files.remove(at);
            self.files.extend(file);
            return;
        }
        if let Some(before) = self.newest_birth() {
            self.notices.push(TailEvent::Rotated);
            self.files.iter_mut().for_each(|file| file.active = now);
            self.find_missed(before, Some(metadata), now);
        }
        let offset = if self.from == TailStart::End { metadata.len() } else { 0 };
        self.from = TailStart::Start;
        self.follow(file, metadata, offset, now);
        self.notices.push(TailEvent::Follows { offset });
    }

    fn follow(&mut self, file: File, metadata: &Metadata, offset: u64, now: Instant) {
        match TailedFile::new(file, metadata, offset, false, now) {
            Ok(file) => self.files.push_back(file),
            Err(error) => self.unreadable(&error),
        }
    }

    /// The birth of the newest file we know of.
    fn newest_birth(&self) -> Option<u64> {
        self.files.back().map(|file| file.born).or(self.newest)
    }

    /// Follows files that were at the path between two looks: born after `before`, renamed since, not younger than what is
    /// at the path now.
    fn find_missed(&mut self, before: u64, current: Option<&Metadata>, now: Instant) {
        let latest = current.map_or(u64::MAX, born);
        let mut missed: Vec<MissedFile> = Vec::new();
        // Renames go on while we look; two passes that see the same have seen all.
        for _ in 0..4 {
            let seen = missed.len();
            for name in self.siblings().into_iter().filter(|name| self.is_rotated_name(name)) {
                let Ok((file, metadata)) = open(&self.roots, &self.path.with_file_name(&name)) else {
                    continue;
                };
                let id = FileId::of(&metadata);
                let age = born(&metadata);
                let held = self.files.iter().any(|file| file.id == id)
                    || missed.iter().any(|other| FileId::of(&other.metadata) == id)
                    || current.is_some_and(|current| id == FileId::of(current));
                if !held && (before..=latest).contains(&age) && !self.is_done(&file, &metadata) {
                    missed.push(MissedFile { file, metadata, name });
                }
            }
            if missed.len() == seen {
                break;
            }
        }
        missed.sort_by_key(|missed| missed.age());
        for missed in missed {
            self.follow(missed.file, &missed.metadata, 0, now);
        }
    }

    fn is_done(&self, file: &File, metadata: &Metadata) -> bool {
        let head = head_of(file, FINGERPRINT).unwrap_or_default();
        // By its first bytes alone, as a copy is, only if there are enough of them to tell files apart.
        let told_apart =
            |known: &FileFingerprint| usize::from(known.length) == FINGERPRINT || known.inode == metadata.ino();
        self.done
            .iter()
            .any(|known| known.length > 0 && told_apart(known) && known.begins(&head))
    }

    /// The names in the folder of the path.
    fn siblings(&self) -> Vec<OsString> {
        let names = self.roots.names_in(durable_fs::parent_of(&self.path));
        names.unwrap_or_default()
    }

    fn is_rotated_name(&self, name: &OsStr) -> bool {
        let Some(base) = self.path.file_name() else {
            return false;
        };
        let Some(rest) = name.as_bytes().strip_prefix(base.as_bytes()) else {
            return false;
        };
        let compressed = [".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip"];
        matches!(rest.first(), Some(b'.' | b'-' | b'_'))
            && !compressed.iter().any(|end| rest.ends_with(end.as_bytes()))
            && (rest.iter().any(u8::is_ascii_digit) || [&b".old"[..], b".bak"].contains(&rest))
    }

    // ---- going on from a position

    fn resume(&mut self, position: &TailPosition, now: Instant) {
        self.done = position.done.iter().copied().collect();
        self.newest = position.newest;
        for mark in &position.files {
            match self.find(mark) {
                Some((file, metadata)) => match TailedFile::new(file, &metadata, mark.offset, mark.skipping, now) {
                    Ok(mut file) => {
                        file.born = mark.born;
                        self.files.push_back(file);
                    }
                    Err(error) => self.unreadable(&error),
                },
                None => self.missing(mark),
            }
            self.newest = Some(mark.born);
        }
        if let Some(file) = self.files.back() {
            self.notices.push(TailEvent::Follows {
                offset: file.lines.fed_to(),
            });
        }
    }

    /// The file of a mark is no more what it was.
    fn missing(&mut self, mark: &FileProgress) {
        let same = |found: Metadata| found.ino() == mark.known.inode && born(&found) == mark.born;
        if self.roots.metadata(&self.path).is_ok_and(same) {
            self.remember(mark.known);
            self.notices.push(TailEvent::Truncated);
        } else {
            self.notices.push(TailEvent::Lost { offset: mark.offset });
        }
    }

    /// The file of a mark, at the path or under any name beside it.
    fn find(&self, mark: &FileProgress) -> Option<(File, Metadata)> {
        let here = std::iter::once(self.path.clone());
        let beside = self.siblings().into_iter().map(|name| self.path.with_file_name(name));
        here.chain(beside).find_map(|path| {
            let is_it = self
                .roots
                .metadata(&path)
                .is_ok_and(|found| found.ino() == mark.known.inode);
            let (file, metadata) = if is_it {
                open(&self.roots, &path).ok()?
            } else {
                return None;
            };
            let whole = metadata.ino() == mark.known.inode && metadata.len() >= mark.offset;
            let same = whole && mark.known.begins(&head_of(&file, FINGERPRINT).ok()?);
            same.then_some((file, metadata))
        })
    }
}
