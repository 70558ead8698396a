//! A log file that is rotated by size. Owned by the writer thread.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::config::LoggingConfig;
use crate::files::folder;

/// Bytes after which the file's name is checked again: somebody may have moved the file away.
const CHECK_EVERY: u64 = 64 << 10;

/// When a file is rotated and what is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rotation {
    /// Bytes.
    pub(super) max_size: u64,
    pub(super) max_backups: usize,
    pub(super) compress: bool,
}

impl Rotation {
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
    rotation: Rotation,
    /// `None` after a failure to open; the next line tries again.
    file: Option<File>,
    size: u64,
    unchecked: u64,
    gzip: Option<Gzip>,
}

#[derive(Debug)]
struct Gzip {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl RotatingFile {
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        fs::create_dir_all(folder(path))?;
        let (file, size) = open(path)?;
        let mut this = Self {
            path: path.to_owned(),
            rotation,
            file: Some(file),
            size,
            unchecked: 0,
            gzip: None,
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
            self.idle();
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
    pub(super) fn idle(&mut self) {
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
        fs::create_dir_all(folder(&self.path))?;
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
        if self.gzip.as_ref().is_some_and(|gzip| !gzip.thread.is_finished()) {
            // It looks for more work itself before it ends.
            return;
        }
        if let Some(done) = self.gzip.take() {
            let _ = done.thread.join();
        }
        let (path, rotation) = (self.path.clone(), self.rotation);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("log-gzip".to_owned())
            .spawn(move || tidy(&path, rotation, &stopped));
        self.gzip = thread.ok().map(|thread| Gzip { stop, thread });
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
struct Backup {
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
    folder(path).join(format!("{stem}-{number:06}{extension}"))
}

/// The rotated files, oldest first.
fn backups(path: &Path) -> Vec<Backup> {
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
    let entries = fs::read_dir(folder(path)).into_iter().flatten().flatten();
    let mut found: Vec<Backup> = entries
        .filter_map(|entry| {
            let (number, compressed) = parse(entry.file_name().to_str()?)?;
            Some(Backup {
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
fn tidy(path: &Path, rotation: Rotation, stop: &AtomicBool) {
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

/// Writes the compressed form beside the file, then removes the file.
fn compress(path: &Path, stop: &AtomicBool) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let dir = folder(path);
    let staged = dir.join(format!(".{name}.gz.tmp"));
    let written = compress_to(path, &staged, stop)
        .and_then(|()| fs::rename(&staged, dir.join(format!("{name}.gz"))))
        .and_then(|()| File::open(dir)?.sync_all());
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
