//! Rotation of a log file by size. Owned by the writer thread.
//!
//! | name | content |
//! |---|---|
//! | `mixer.log` | being written |
//! | `mixer-000007.log` | rotated; the number grows with every rotation |
//! | `mixer-000006.log.gz` | rotated and compressed |
//! | `.mixer-000006.log.gz.tmp` | being compressed; thrown away at the next start |
//!
//! # Invariants
//!
//! - A rotated file is removed only after its compressed form is whole, synced and under its own name.
//! - A file that somebody else moved away is left alone and a new one is begun.
//! - Compression runs beside the writing, and an end of the process does not wait for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use durable_fs::parent_of;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::config::LoggingConfig;

/// Bytes after which the file's name is checked again: somebody may have moved the file away.
const CHECK_EVERY: u64 = 64 << 10;

/// When a file is rotated and what is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogRotationPolicy {
    /// Bytes.
    pub(super) max_size: u64,
    pub(super) max_backups: usize,
    pub(super) compress: bool,
}

impl LogRotationPolicy {
    pub(super) fn of(config: &LoggingConfig) -> Self {
        Self {
            max_size: config.max_size.get(),
            max_backups: config.max_backups,
            compress: config.compress,
        }
    }
}

#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: LogRotationPolicy,
    /// `None` after a failure to open; the next line tries again.
    file: Option<File>,
    size: u64,
    unchecked: u64,
    gzip: Option<CompressionWorker>,
    work: Arc<CompressionTrigger>,
}

/// What the compressing thread is to do: an order that comes while it ends is neither lost nor given to two.
#[derive(Debug, Default)]
struct CompressionTrigger(Mutex<CompressionFlags>);

#[derive(Debug, Default)]
struct CompressionFlags {
    wanted: bool,
    running: bool,
}

impl CompressionTrigger {
    /// Asks for a look at the files. Whether a thread must be started for it.
    fn request(&self) -> bool {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orders.wanted = true;
        !std::mem::replace(&mut orders.running, true)
    }

    /// Takes the order; `false` if there is none, and then nobody runs.
    fn take_request(&self) -> bool {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orders.running = orders.wanted;
        std::mem::take(&mut orders.wanted)
    }
}

#[derive(Debug)]
struct CompressionWorker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl RotatingFile {
    pub(super) fn open(path: &Path, rotation: LogRotationPolicy) -> io::Result<Self> {
        fs::create_dir_all(parent_of(path))?;
        let (file, size) = open(path)?;
        let mut this = Self {
            path: path.to_owned(),
            rotation,
            file: Some(file),
            size,
            unchecked: 0,
            gzip: None,
            work: Arc::default(),
        };
        if is_regular(path) {
            this.tidy();
        }
        Ok(this)
    }

    /// Writes a line; `false` if it is lost.
    pub(super) fn append(&mut self, line: &[u8]) -> bool {
        let length = line.len() as u64;
        if self.size > 0 && self.size + length > self.rotation.max_size {
            self.rotate();
        } else if self.unchecked > CHECK_EVERY {
            self.reopen_if_moved();
        }
        if self.file.is_none() && self.reopen().is_err() {
            return false;
        }
        let Some(file) = &mut self.file else { return false };
        match file.write_all(line) {
            Ok(()) => {
                self.size += length;
                self.unchecked += length;
                true
            }
            Err(_) => {
                // A part may be written: end that line, so that the next one stands alone.
                let _ = file.write_all(b"\n");
                false
            }
        }
    }

    /// Begins a new file if somebody moved ours away.
    pub(super) fn reopen_if_moved(&mut self) {
        self.unchecked = 0;
        if !self.is_ours() {
            self.file = None;
            let _ = self.reopen();
        }
    }

    /// Ends the compression where it is; the next start takes it up again.
    pub(super) fn close(mut self) {
        if let Some(gzip) = self.gzip.take() {
            gzip.stop.store(true, Ordering::Relaxed);
            let _ = gzip.thread.join();
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        fs::create_dir_all(parent_of(&self.path))?;
        let (file, size) = open(&self.path)?;
        (self.file, self.size) = (Some(file), size);
        Ok(())
    }

    fn is_ours(&self) -> bool {
        let ours = self.file.as_ref().and_then(|file| file.metadata().ok());
        match (ours, fs::metadata(&self.path)) {
            (Some(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
            _ => false,
        }
    }

    fn rotate(&mut self) {
        if is_regular(&self.path) && self.is_ours() {
            let next = backups(&self.path).last().map_or(1, |backup| backup.number + 1);
            if fs::rename(&self.path, backup_path(&self.path, next)).is_err() {
                // Better too large a file than a lost line; the next line tries again.
                return;
            }
        }
        self.file = None;
        let _ = self.reopen();
        self.tidy();
    }

    /// Removes what is too old, and starts compressing what is not compressed yet.
    fn tidy(&mut self) {
        if !self.work.request() {
            return;
        }
        if let Some(done) = self.gzip.take() {
            let _ = done.thread.join();
        }
        let (path, rotation) = (self.path.clone(), self.rotation);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, work) = (Arc::clone(&stop), Arc::clone(&self.work));
        let thread = std::thread::Builder::new().name("log-gzip".to_owned()).spawn(move || {
            while work.take_request() {
                tidy(&path, rotation, &stopped);
            }
        });
        if thread.is_err() {
            // The order waits for the next rotation.
            self.work.0.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        }
        self.gzip = thread.ok().map(|thread| CompressionWorker { stop, thread });
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn is_regular(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// A rotated file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LogBackup {
    number: u64,
    path: PathBuf,
    compressed: bool,
}

/// `mixer` and `.log` of `mixer.log`.
fn name_parts(path: &Path) -> (String, String) {
    let part = |part: Option<&std::ffi::OsStr>| part.map(|text| text.to_string_lossy().into_owned());
    let stem = part(path.file_stem()).unwrap_or_default();
    let extension = part(path.extension())
        .map(|text| format!(".{text}"))
        .unwrap_or_default();
    (stem, extension)
}

fn backup_path(path: &Path, number: u64) -> PathBuf {
    let (stem, extension) = name_parts(path);
    parent_of(path).join(format!("{stem}-{number:06}{extension}"))
}

/// The rotated files, oldest first.
fn backups(path: &Path) -> Vec<LogBackup> {
    let (stem, extension) = name_parts(path);
    let parse = |name: &str| {
        let rest = name.strip_prefix(&stem)?.strip_prefix('-')?;
        let (rest, compressed) = match rest.strip_suffix(".gz") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let digits = rest.strip_suffix(&extension)?;
        let plain = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        Some((digits.parse().ok().filter(|_| plain)?, compressed))
    };
    let entries = fs::read_dir(parent_of(path)).into_iter().flatten().flatten();
    let mut found: Vec<LogBackup> = entries
        .filter_map(|entry| {
            let (number, compressed) = parse(entry.file_name().to_str()?)?;
            Some(LogBackup {
                number,
                path: entry.path(),
                compressed,
            })
        })
        .collect();
    found.sort();
    found
}

/// Until nothing is left to do: removes the oldest files above the limit, compresses the newest uncompressed one.
fn tidy(path: &Path, rotation: LogRotationPolicy, stop: &AtomicBool) {
    for leftover in staged(path) {
        let _ = fs::remove_file(leftover);
    }
    loop {
        let mut found = backups(path);
        // A crash between the rename and the removal leaves both forms; the compressed one is whole.
        let twins: Vec<PathBuf> = found
            .windows(2)
            .filter(|pair| pair[0].number == pair[1].number)
            .map(|pair| {
                if pair[0].compressed {
                    pair[1].path.clone()
                } else {
                    pair[0].path.clone()
                }
            })
            .collect();
        found.retain(|backup| !twins.contains(&backup.path));
        let excess = found.len().saturating_sub(rotation.max_backups);
        for old in twins.iter().chain(
            found
                .drain(..excess)
                .map(|backup| backup.path)
                .collect::<Vec<_>>()
                .iter(),
        ) {
            let _ = fs::remove_file(old);
        }
        let Some(next) = found.into_iter().rev().find(|backup| !backup.compressed) else {
            return;
        };
        if !rotation.compress || stop.load(Ordering::Relaxed) || compress(&next.path, stop).is_err() {
            return;
        }
    }
}

/// What a crash left of a compression.
fn staged(path: &Path) -> Vec<PathBuf> {
    let start = format!(".{}-", name_parts(path).0);
    let is_ours = |name: &str| name.starts_with(&start) && name.ends_with(".gz.tmp");
    let entries = fs::read_dir(parent_of(path)).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_ours))
        .map(|entry| entry.path())
        .collect()
}

/// Writes the compressed form beside the file, then removes the file.
fn compress(path: &Path, stop: &AtomicBool) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let dir = parent_of(path);
    let staged = dir.join(format!(".{name}.gz.tmp"));
    let written = compress_to(path, &staged, stop)
        .and_then(|()| Ok(durable_fs::rename_durably(&staged, &dir.join(format!("{name}.gz")))?));
    if written.is_err() {
        let _ = fs::remove_file(&staged);
        return written;
    }
    fs::remove_file(path)
}

fn compress_to(path: &Path, staged: &Path, stop: &AtomicBool) -> io::Result<()> {
    let mut from = File::open(path)?;
    let mut to = GzEncoder::new(File::create(staged)?, Compression::default());
    let mut chunk = vec![0; 128 << 10];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = from.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        to.write_all(&chunk[..length])?;
    }
    to.finish()?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn an_order_that_comes_while_the_thread_ends_is_taken_by_exactly_one() {
        let work = CompressionTrigger::default();
        assert!(work.request() && !work.request(), "one thread is started");
        assert!(work.take_request(), "both orders are one look");
        assert!(!work.request(), "the thread is still there …");
        assert!(work.take_request() && !work.take_request(), "… takes it, and ends");
        assert!(work.request(), "the next order starts another");
    }

    fn rotation(max_size: u64, max_backups: usize, compress: bool) -> LogRotationPolicy {
        LogRotationPolicy {
            max_size,
            max_backups,
            compress,
        }
    }

    /// Writes `lines` numbered lines of 16 bytes and waits for the compression.
    fn write(path: &Path, rotation: LogRotationPolicy, lines: std::ops::Range<usize>) {
        let mut file = RotatingFile::open(path, rotation).unwrap();
        for i in lines {
            assert!(file.append(format!("line {i:010}\n").as_bytes()));
        }
        finish(file);
    }

    /// Lets the compression end by itself, unlike `close`.
    fn finish(mut file: RotatingFile) {
        while let Some(gzip) = file.gzip.take() {
            gzip.thread.join().unwrap();
            if backups(&file.path)
                .iter()
                .any(|backup| file.rotation.compress && !backup.compressed)
            {
                file.tidy();
            }
        }
    }

    fn content(path: &Path) -> String {
        let mut text = String::new();
        if path.extension().is_some_and(|extension| extension == "gz") {
            GzDecoder::new(File::open(path).unwrap())
                .read_to_string(&mut text)
                .unwrap();
        } else {
            text = fs::read_to_string(path).unwrap();
        }
        text
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn no_line_is_lost_or_torn_by_rotation_and_no_file_is_larger_than_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        write(&path, rotation(160, 1_000, true), 0..1_000);
        let mut lines = BTreeSet::new();
        for backup in backups(&path) {
            assert!(backup.compressed, "{}", backup.path.display());
            let text = content(&backup.path);
            assert!(text.len() <= 160 && text.ends_with('\n'));
            lines.extend(text.lines().map(str::to_owned));
        }
        lines.extend(content(&path).lines().map(str::to_owned));
        assert_eq!(lines, (0..1_000).map(|i| format!("line {i:010}")).collect());
    }

    #[test]
    fn only_the_newest_backups_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        write(&path, rotation(160, 2, false), 0..100);
        assert_eq!(names(dir.path()), ["x-000008.log", "x-000009.log", "x.log"]);
        assert!(content(&dir.path().join("x-000009.log")).ends_with("line 0000000089\n"));
        write(&path, rotation(160, 0, false), 100..101);
        assert_eq!(names(dir.path()), ["x.log"]);
    }

    #[test]
    fn numbers_go_on_after_a_restart_and_the_file_is_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        write(&path, rotation(160, 9, false), 0..15);
        write(&path, rotation(160, 9, false), 15..25);
        assert_eq!(names(dir.path()), ["x-000001.log", "x-000002.log", "x.log"]);
        assert!(content(&dir.path().join("x-000002.log")).starts_with("line 0000000010\n"));
        assert!(content(&dir.path().join("x-000002.log")).ends_with("line 0000000019\n"));
    }

    #[test]
    fn a_compression_that_was_cut_off_is_taken_up_again_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        fs::write(dir.path().join("x-000001.log"), "old\n").unwrap();
        fs::write(dir.path().join(".x-000001.log.gz.tmp"), "half").unwrap();
        fs::write(dir.path().join("x-000002.log"), "both\n").unwrap();
        compress_to(
            &dir.path().join("x-000002.log"),
            &dir.path().join("x-000002.log.gz"),
            &AtomicBool::new(false),
        )
        .unwrap();
        fs::write(dir.path().join(".x-000000.log.gz.tmp"), "of a file long gone").unwrap();
        write(&path, rotation(160, 9, true), 0..1);
        assert_eq!(names(dir.path()), ["x-000001.log.gz", "x-000002.log.gz", "x.log"]);
        assert_eq!(content(&dir.path().join("x-000001.log.gz")), "old\n");
        assert_eq!(content(&dir.path().join("x-000002.log.gz")), "both\n");
    }

    #[test]
    fn a_stopped_compression_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x-000001.log");
        fs::write(&path, "kept\n").unwrap();
        assert!(compress(&path, &AtomicBool::new(true)).is_err());
        assert_eq!(names(dir.path()), ["x-000001.log"]);
    }

    #[test]
    fn a_file_moved_away_by_somebody_else_is_left_alone_and_a_new_one_begun() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let mut file = RotatingFile::open(&path, rotation(1_000, 3, false)).unwrap();
        assert!(file.append(b"one\n"));
        fs::rename(&path, dir.path().join("theirs")).unwrap();
        file.reopen_if_moved();
        assert!(file.append(b"two\n"));
        assert_eq!(
            (content(&dir.path().join("theirs")), content(&path)),
            ("one\n".to_owned(), "two\n".to_owned())
        );
        finish(file);
    }

    #[test]
    fn files_of_others_in_the_folder_are_never_touched() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "x-1.log",
            "x-old.log",
            "y-000001.log",
            "x-000001.log.bak",
            "xx-000001.log",
        ] {
            fs::write(dir.path().join(name), "theirs").unwrap();
        }
        let path = dir.path().join("x.log");
        write(&path, rotation(160, 0, true), 0..50);
        assert_eq!(names(dir.path()).len(), 6);
    }
}
