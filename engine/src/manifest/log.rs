//! The catalogue's log: records one after another behind a checkpoint ([`super::checkpoint`]).
//!
//! ```text
//! log:     magic 8 │ record │ mark │ record │ mark │ …
//! record:  len u32 │ crc32c u32 │ CBOR
//! mark:    0xffff_ffff │ crc32c u32 │ where its record begins u64
//! ```
//!
//! A checksum covers the store's id, the generation and the length too, so bytes of another file are not taken for ours. A
//! later version changes the digit at the end of the magic and how its checksums begin: that tells it from a flipped bit.
//!
//! # Torn or damaged
//!
//! A record whose checksum does not match may be an interrupted write, which nobody was told of, or damage to one that
//! counted. The mark tells them apart: it is written when the record's sync has returned, before anybody relies on the
//! record. It is not synced itself: a killed process leaves it to the kernel, and the next record's sync takes it along.
//!
//! | at the end of a log | it is |
//! |---|---|
//! | bytes that are no record, no mark behind them | an interrupted write: cut, counted |
//! | bytes that are no record, and a mark, a record, or a later log that goes on after it | damage |
//! | a record with a broken mark, or none | whole |
//!
//! So one case stays undecided, and counts as interrupted: the power fails before the mark is on the disk, and the record,
//! synced, is damaged as well. Its publish is adopted from the tree or replayed from the log; where neither has it, the
//! log's own headers say that it is gone.
//!
//! # Invariants
//!
//! - Records that were acknowledged are read back all, or the start is refused with the file's name.
//! - A generation's log exists, durably, before the checkpoint that names it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::state::{ManifestRecord, ManifestState};
use super::{LoadedManifest, checkpoint};
use crate::Error;

const LOG_MAGIC: &[u8; 8] = b"FLUXCAT1";
/// The magic without its version, one digit.
const LOG_KIND: &[u8; 7] = b"FLUXCAT";
/// The latest version known here.
const LOG_VERSION: u32 = 1;
/// Length and checksum before a record.
const RECORD_HEAD: usize = 8;
/// What a mark has where a record has its length.
const MARK: u32 = u32::MAX;
const MARK_BYTES: usize = 16;

/// The log being written.
#[derive(Debug)]
pub(super) struct ManifestLog {
    pub(super) number: u64,
    store: Uuid,
    file: File,
    path: PathBuf,
    /// Its length.
    bytes: u64,
}

pub(super) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("catalogue_{number:010}.log"))
}

pub(super) fn checksum(store: Uuid, number: u64, len: u64, body: &[u8]) -> u32 {
    let crc = crc32c::crc32c(store.as_bytes());
    let crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &len.to_le_bytes());
    crc32c::crc32c_append(crc, body)
}

/// The mark of the record that begins at `start`.
fn mark(store: Uuid, number: u64, start: u64) -> [u8; MARK_BYTES] {
    let start = start.to_le_bytes();
    let crc = checksum(store, number, u64::from(MARK), &start);
    let mut mark = [0; MARK_BYTES];
    mark[..4].copy_from_slice(&MARK.to_le_bytes());
    mark[4..8].copy_from_slice(&crc.to_le_bytes());
    mark[8..].copy_from_slice(&start);
    mark
}

impl ManifestLog {
    /// Creates the log `number` and the checkpoint of `state` that names it. Returns the checkpoint's size too.
    pub(super) fn begin(dir: &Path, number: u64, state: &ManifestState) -> Result<(Self, u64), Error> {
        let path = log_path(dir, number);
        durable_fs::write_durably(&path, LOG_MAGIC)?;
        let file = File::options().append(true).open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        let written = checkpoint::write(dir, number, state)?;
        let log = Self {
            number,
            store: state.store,
            file,
            path,
            bytes: LOG_MAGIC.len() as u64,
        };
        Ok((log, written))
    }

    /// Appends a record, syncs, and marks it as synced. Returns the log's length. After an error the file must not be
    /// written again.
    pub(super) fn append(&mut self, record: &ManifestRecord) -> Result<u64, Error> {
        let mut bytes = vec![0; RECORD_HEAD];
        let unfit = |reason: String| Error::damaged(&self.path, format!("a record cannot be written: {reason}"));
        ciborium::into_writer(record, &mut bytes).map_err(|error| unfit(error.to_string()))?;
        let len = u32::try_from(bytes.len() - RECORD_HEAD).ok().filter(|len| *len < MARK);
        let len = len.ok_or_else(|| unfit("it is over 4 GiB".to_owned()))?;
        let crc = checksum(self.store, self.number, u64::from(len), &bytes[RECORD_HEAD..]);
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..RECORD_HEAD].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all(&bytes).map_err(Error::io("write", &self.path))?;
        durable_fs::sync_file(&self.file, &self.path)?;
        let mark = mark(self.store, self.number, self.bytes);
        self.file.write_all(&mark).map_err(Error::io("write", &self.path))?;
        self.bytes += (bytes.len() + mark.len()) as u64;
        Ok(self.bytes)
    }
}

#[cfg(test)]
impl ManifestLog {
    /// Makes every later write fail.
    pub(super) fn read_only(&mut self) {
        if let Ok(file) = File::open(&self.path) {
            self.file = file;
        }
    }
}

/// The generations that have a file in `dir`, by kind.
#[derive(Debug, Default)]
pub(super) struct ManifestFiles {
    pub(super) logs: Vec<u64>,
    pub(super) checkpoints: Vec<u64>,
    /// Staged checkpoints of processes that were killed.
    unfinished: Vec<String>,
}

impl ManifestFiles {
    /// The highest generation that any file belongs to.
    pub(super) fn newest(&self) -> u64 {
        self.logs.iter().chain(&self.checkpoints).copied().max().unwrap_or(0)
    }

    /// All of them, checkpoints first, with their generations.
    pub(super) fn paths(&self, dir: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
        let checkpoints = self.checkpoints.iter().map(|n| (*n, checkpoint::path(dir, *n)));
        checkpoints.chain(self.logs.iter().map(|n| (*n, log_path(dir, *n))))
    }

    /// The newest checkpoint that is whole, with its generation, or why none is.
    pub(super) fn start(&self, dir: &Path, store: Uuid) -> Result<Result<(u64, ManifestState), Option<Error>>, Error> {
        let mut unreadable = None;
        for number in self.checkpoints.iter().rev() {
            match checkpoint::read(dir, *number, store) {
                Ok(state) => return Ok(Ok((*number, state))),
                Err(error @ Error::Damaged { .. }) => unreadable = unreadable.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(Err(unreadable))
    }
}

pub(super) fn list(dir: &Path) -> Result<ManifestFiles, Error> {
    let mut files = ManifestFiles::default();
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let name = entry.map_err(Error::io("list", dir))?.file_name();
        let name = name.to_string_lossy();
        let number = |prefix: &str, suffix: &str| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok();
        if let Some(number) = number("catalogue_", ".log") {
            files.logs.push(number);
        } else if let Some(number) = number("checkpoint_", "") {
            files.checkpoints.push(number);
        } else if name.starts_with(".checkpoint_") && name.ends_with(".tmp") {
            files.unfinished.push(name.into_owned());
        }
    }
    files.logs.sort_unstable();
    files.checkpoints.sort_unstable();
    Ok(files)
}

/// Whether `dir` holds files of a catalogue, whatever is in them.
pub(crate) fn has_manifest(dir: &Path) -> Result<bool, Error> {
    let files = list(dir)?;
    Ok(!files.checkpoints.is_empty() || !files.logs.is_empty())
}

/// Removes the files of generations before `keep`, and checkpoints that a process did not finish. The caller stages none meanwhile.
pub(crate) fn remove_before(dir: &Path, keep: u64) -> Result<(), Error> {
    let files = list(dir)?;
    let old = files
        .paths(dir)
        .filter(|(number, _)| *number < keep)
        .map(|(_, path)| path);
    for path in old.chain(files.unfinished.iter().map(|name| dir.join(name))) {
        durable_fs::remove_if_there(&path)?;
    }
    Ok(())
}

/// The state that the files of `dir` describe.
pub(super) fn load(dir: &Path, store: Uuid) -> Result<LoadedManifest, Error> {
    let files = list(dir)?;
    let newest = files.newest();
    let (first, mut state) = match files.start(dir, store)? {
        Ok(start) => start,
        Err(Some(error)) => return Err(error),
        // A store's first checkpoint follows its first log: a log without records and without checkpoint is a new store.
        Err(None)
            if files
                .logs
                .iter()
                .all(|number| is_without_records(&log_path(dir, *number))) =>
        {
            return Ok(LoadedManifest::anew(dir, ManifestState::new(store), newest));
        }
        Err(None) => {
            return Err(Error::damaged(dir, "it has catalogue logs but no checkpoint"));
        }
    };
    if !files.logs.contains(&first) {
        return Err(Error::damaged(
            &log_path(dir, first),
            "it is missing beside its checkpoint",
        ));
    }
    let mut torn = 0;
    for number in files.logs.iter().filter(|number| **number >= first) {
        torn += read_log(dir, *number, store, &mut state)?;
    }
    Ok(LoadedManifest {
        torn,
        ..LoadedManifest::anew(dir, state, newest)
    })
}

/// Refuses what another version of this program wrote. What is `whole` by the checksums of this one is of no other one:
/// a bit of its magic flipped.
pub(super) fn refuse_newer(bytes: &[u8], kind: &[u8; 7], known: u32, whole: bool, path: &Path) -> Result<(), Error> {
    let version = bytes
        .strip_prefix(kind)
        .and_then(|rest| char::from(*rest.first()?).to_digit(10));
    match version {
        Some(found) if found != known && !whole => Err(Error::newer(path, found, known)),
        _ => Ok(()),
    }
}

fn is_without_records(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.len() <= LOG_MAGIC.len() as u64)
}

/// The record at the start of `bytes` and the bytes it takes.
pub(super) fn parse(bytes: &[u8], store: Uuid, number: u64) -> Option<(ManifestRecord, usize)> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len);
    let body = rest.get(..usize::try_from(len).ok()?)?;
    if body.is_empty() || checksum(store, number, u64::from(len), body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let record = ciborium::from_reader(body).ok()?;
    Some((record, RECORD_HEAD + body.len()))
}

/// Where the record begins whose mark is at the start of `bytes`.
fn parse_mark(bytes: &[u8], store: Uuid, number: u64) -> Option<u64> {
    let found = bytes.first_chunk::<MARK_BYTES>()?;
    let start = u64::from_le_bytes(*found.last_chunk()?);
    (*found == mark(store, number, start)).then_some(start)
}

/// Applies a log's records to `state`; returns the bytes of interrupted writes in it.
fn read_log(dir: &Path, number: u64, store: Uuid, state: &mut ManifestState) -> Result<u64, Error> {
    let path = log_path(dir, number);
    let bytes = std::fs::read(&path).map_err(Error::io("read", &path))?;
    let damaged = |reason: String| Error::damaged(&path, reason);
    let mut at = LOG_MAGIC.len();
    if bytes.len() < at {
        // Its creation was interrupted. Had it been finished, the checkpoint or the next log's first record would show it.
        return Ok(bytes.len() as u64);
    }
    let whole = bytes.len() == at || parse(&bytes[at..], store, number).is_some();
    refuse_newer(&bytes, LOG_KIND, LOG_VERSION, whole, &path)?;
    if !bytes.starts_with(LOG_MAGIC) {
        return Err(damaged("it does not begin like a catalogue log".to_owned()));
    }
    let first = at;
    while let Some((record, taken)) = parse(&bytes[at..], store, number) {
        // A record whose sync failed may stand at the end of one log and again, completed, at the start of the next. One
        // that is missing here shows as a gap.
        if record.version > state.version + 1 {
            return Err(damaged(format!(
                "record {} follows record {}",
                record.version, state.version
            )));
        }
        if record.version <= state.version && at != first {
            return Err(damaged(format!("record {} is there twice", record.version)));
        }
        state.apply(record);
        at += taken;
        let behind = bytes.get(at..at + MARK_BYTES);
        // A broken mark costs nothing where its record and the next one are whole.
        if behind.is_some_and(|mark| {
            parse_mark(mark, store, number).is_some() || parse(&bytes[at + MARK_BYTES..], store, number).is_some()
        }) {
            at += MARK_BYTES;
        }
    }
    let counted = |from: &usize| {
        let rest = &bytes[*from..];
        parse(rest, store, number).is_some() || parse_mark(rest, store, number).is_some_and(|start| start >= at as u64)
    };
    if let Some(later) = (at..bytes.len()).find(counted) {
        return Err(damaged(format!(
            "bytes {at} to {later} are not the record that was written there"
        )));
    }
    Ok((bytes.len() - at) as u64)
}

/// Reads bytes as a log of generation 1 would be read, from every place that could be a record or a mark; whether there is a record.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_log(bytes: &[u8], store: Uuid) -> bool {
    let mut has_records = false;
    let mut state = ManifestState::new(store);
    let mut at = LOG_MAGIC.len();
    while at < bytes.len() {
        match parse(&bytes[at..], store, 1) {
            Some((record, taken)) => {
                state.apply(record);
                at += taken;
                has_records = true;
            }
            None if parse_mark(&bytes[at..], store, 1).is_some() => at += MARK_BYTES,
            None => at += 1,
        }
    }
    has_records
}

/// Reads the body of a record and applies it; whether it is one.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_record(bytes: &[u8]) -> bool {
    ciborium::from_reader::<ManifestRecord, _>(bytes).is_ok_and(|record| {
        let mut state = ManifestState::new(Uuid::nil());
        state.apply(record);
        let _ = state.encode();
        true
    })
}
