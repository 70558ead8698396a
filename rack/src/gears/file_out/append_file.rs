//! The file that lines are appended to, and the old ones beside it.
//!
//! # Invariants
//!
//! - A file has more bytes than `max_size` only where it has one line.
//! - An append that fails leaves the file as long as it was; the file is opened anew before the next one.
//! - Opening waits for nobody: a named pipe, whose reader would be awaited, is refused.
//! - Files are opened and renamed beneath a root of the policy ([`FileRoots`]).
//! - Rotation renames from the oldest file to the youngest: one that is interrupted loses none but the oldest.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use durable_fs::parent_of;
use model::Timestamp;

use crate::policy::FileRoots;

/// Where the file is and when a new one is begun.
#[derive(Debug, Clone)]
pub(super) struct AppendFileOptions {
    pub(super) path: PathBuf,
    pub(super) fsync: bool,
    pub(super) max_size: Option<u64>,
    pub(super) every: Option<Duration>,
    pub(super) keep: u16,
}

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct AppendFile {
    files: FileRoots,
    rules: AppendFileOptions,
    open: Option<AppendHandle>,
}

#[derive(Debug)]
struct AppendHandle {
    file: fs::File,
    size: u64,
    /// When it was written to last.
    written: Timestamp,
}

impl AppendFile {
    pub(super) fn new(rules: AppendFileOptions, files: FileRoots) -> Self {
        Self {
            files,
            rules,
            open: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.rules.path
    }

    /// Appends whole lines, each to the file that it belongs to; how many bytes of them are there, also where the next ones failed.
    pub(super) fn append(&mut self, lines: &[u8], now: Timestamp) -> (usize, io::Result<()>) {
        let mut written = 0;
        loop {
            let left = lines.get(written..).unwrap_or_default();
            match self.append_some(left, now) {
                Ok(count) => written += count,
                Err(error) => {
                    self.open = None;
                    return (written, Err(error));
                }
            }
            if written >= lines.len() {
                return (written, Ok(()));
            }
        }
    }

    /// Appends what goes into one file, and says how many bytes that is.
    fn append_some(&mut self, lines: &[u8], now: Timestamp) -> io::Result<usize> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.rules.open(&self.files, now)?,
        };
        if open.size > 0 && !lines.is_empty() && self.rules.needs_rotation(&open, first_line(lines), now) {
            drop(open);
            self.rules.rotate(&self.files)?;
            open = self.rules.open(&self.files, now)?;
        }
        let fitting = self.rules.fitting(&open, lines);
        open.append(fitting, self.rules.fsync)?;
        open.written = now;
        self.open = Some(open);
        Ok(fitting.len())
    }
}

/// Writes all, and says how many bytes are written, also where the next ones failed.
fn write(to: &mut impl Write, mut bytes: &[u8]) -> (u64, io::Result<()>) {
    let mut written = 0;
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count as u64;
                bytes = bytes.get(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// The first of some lines, with its end.
fn first_line(lines: &[u8]) -> &[u8] {
    let end = lines.iter().position(|byte| *byte == b'\n');
    end.and_then(|end| lines.get(..=end)).unwrap_or(lines)
}

impl AppendHandle {
    fn append(&mut self, lines: &[u8], fsync: bool) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let (written, mut result) = write(&mut self.file, lines);
        if fsync && result.is_ok() {
            result = self.file.sync_data();
        }
        if result.is_ok() {
            self.size += lines.len() as u64;
        } else {
            self.cut_off(written);
        }
        result
    }

    /// Cuts off what was written of lines that failed, if nobody has written behind it: a gear that was replaced while the disk was
    /// slow must not cut off what its successor wrote. What cannot be cut off is a half line, and the error is told anyway.
    fn cut_off(&self, written: u64) {
        let is_last = |facts: fs::Metadata| facts.len() == self.size + written;
        if self.file.metadata().is_ok_and(is_last) {
            self.file.set_len(self.size).ok();
        }
    }
}

impl AppendFileOptions {
    fn open(&self, files: &FileRoots, now: Timestamp) -> io::Result<AppendHandle> {
        let opened = files.open_to_append(&self.path);
        let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
        let is_pipe = |facts: &fs::Metadata| facts.file_type().is_fifo();
        let (facts, file) = match opened {
            // Without a reader, a pipe cannot be opened.
            Err(_) if files.metadata(&self.path).is_ok_and(|facts| is_pipe(&facts)) => return Err(pipe()),
            Ok((facts, _)) if is_pipe(&facts) => return Err(pipe()),
            opened => opened?,
        };
        let written = facts.modified().map_or(now, Timestamp::from);
        Ok(AppendHandle {
            file,
            size: facts.len(),
            written,
        })
    }

    /// The lines for which the file has room, at least one.
    fn fitting<'a>(&self, open: &AppendHandle, lines: &'a [u8]) -> &'a [u8] {
        let room = self.max_size.map_or(u64::MAX, |max| max.saturating_sub(open.size));
        if lines.len() as u64 <= room {
            return lines;
        }
        let head = usize::try_from(room)
            .ok()
            .and_then(|room| lines.get(..room))
            .unwrap_or(lines);
        let end = head.iter().rposition(|byte| *byte == b'\n');
        end.and_then(|end| lines.get(..=end))
            .unwrap_or_else(|| first_line(lines))
    }

    /// Whether a line belongs into a new file.
    fn needs_rotation(&self, open: &AppendHandle, line: &[u8], now: Timestamp) -> bool {
        let too_large = self.max_size.is_some_and(|max| open.size + line.len() as u64 > max);
        let too_old = self.every.is_some_and(|every| {
            let micros = i64::try_from(every.as_micros()).unwrap_or(i64::MAX).max(1);
            let period = |at: Timestamp| at.micros().div_euclid(micros);
            period(now) > period(open.written)
        });
        too_large || too_old
    }

    fn rotate(&self, files: &FileRoots) -> io::Result<()> {
        let folder = files.open_folder(parent_of(&self.path))?;
        // The name at the end is replaced, which drops the oldest file.
        for number in (1..self.keep).rev() {
            folder.rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        folder.rename(self.name(), &self.numbered(1))?;
        if self.fsync { folder.sync() } else { Ok(()) }
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn numbered(&self, number: u16) -> OsString {
        let mut name = self.name().to_owned();
        name.push(format!(".{number}"));
        name
    }
}

fn pipe() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is a named pipe; path must name a file")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::OpenOptionsExt;

    use nix::fcntl::OFlag;

    use super::*;
    use crate::policy::RackPolicy;

    fn append_file(rules: AppendFileOptions) -> AppendFile {
        AppendFile::new(rules, RackPolicy::for_tests().writable().clone())
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn rules(folder: &Path) -> AppendFileOptions {
        AppendFileOptions {
            path: folder.join("out.log"),
            fsync: true,
            max_size: None,
            every: None,
            keep: 2,
        }
    }

    fn read(folder: &Path, name: &str) -> Option<String> {
        fs::read_to_string(folder.join(name)).ok()
    }

    #[test]
    fn a_file_is_rotated_before_it_is_too_large_and_old_ones_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = append_file(AppendFileOptions {
            max_size: Some(6),
            ..rules(folder.path())
        });
        let now = at("2026-11-22T10:00:00Z");
        for lines in ["a\n", "bb\n", "ccc\n", "d\n", "eeeeeeeeee\n", "f\n"] {
            file.append(lines.as_bytes(), now).1.unwrap();
        }
        let read = |name| read(folder.path(), name);
        assert_eq!(read("out.log").unwrap(), "f\n");
        assert_eq!(read("out.log.1").unwrap(), "eeeeeeeeee\n");
        assert_eq!(read("out.log.2").unwrap(), "ccc\nd\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn lines_that_are_written_at_once_go_into_as_many_files_as_they_need() {
        let folder = tempfile::tempdir().unwrap();
        let rules = AppendFileOptions {
            max_size: Some(6),
            keep: 9,
            ..rules(folder.path())
        };
        let mut file = append_file(rules);
        let lines = b"aaa\nbbb\nccc\nd\nlonger than that\ne\nf\n";
        assert_eq!(file.append(lines, at("2026-11-22T10:00:00Z")).0, lines.len());
        let names = ["out.log.4", "out.log.3", "out.log.2", "out.log.1", "out.log"];
        let files = names.map(|name| read(folder.path(), name).unwrap());
        assert_eq!(files, ["aaa\n", "bbb\n", "ccc\nd\n", "longer than that\n", "e\nf\n"]);
    }

    #[test]
    fn what_was_written_before_a_failure_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = rules(folder.path());
        (rules.max_size, rules.keep) = (Some(6), 1);
        // The old file cannot be replaced: a folder has its name.
        fs::create_dir(folder.path().join(rules.numbered(1))).unwrap();
        let (written, failed) = append_file(rules).append(b"aaa\nbbb\n", at("2026-11-22T10:00:00Z"));
        assert!(written == 4 && failed.is_err(), "{written} {failed:?}");
        assert_eq!(read(folder.path(), "out.log").unwrap(), "aaa\n");
    }

    #[test]
    fn a_period_that_ended_rotates_the_file_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let rules = AppendFileOptions {
            every: Some(Duration::from_secs(3600)),
            ..rules(folder.path())
        };
        let mut file = append_file(rules.clone());
        file.append(b"old\n", at("2026-11-22T10:59:59Z")).1.unwrap();
        file.append(b"new\n", at("2026-11-22T11:00:00Z")).1.unwrap();
        file.append(b"new too\n", at("2026-11-22T11:59:59Z")).1.unwrap();
        // A clock that is set back begins no new file.
        file.append(b"back\n", at("2026-11-22T09:00:00Z")).1.unwrap();
        assert_eq!(read(folder.path(), "out.log").unwrap(), "new\nnew too\nback\n");
        assert_eq!(read(folder.path(), "out.log.1").unwrap(), "old\n");
        // When the file was written to last is what the file system says.
        let hour = fs::metadata(&rules.path).unwrap().modified().unwrap() + Duration::from_secs(3600);
        append_file(rules).append(b"later\n", hour.into()).1.unwrap();
        assert_eq!(read(folder.path(), "out.log").unwrap(), "later\n");
    }

    #[test]
    fn a_pipe_is_refused_at_once_with_and_without_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let rules = rules(folder.path());
        nix::unistd::mkfifo(&rules.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let now = at("2026-11-22T10:00:00Z");
        for is_read in [false, true] {
            let mut reader = fs::OpenOptions::new();
            reader.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
            let reader = is_read.then(|| reader.open(&rules.path).unwrap());
            let (ends, ended) = std::sync::mpsc::channel();
            let rules = rules.clone();
            // Where the pipe is waited for, the thread stays there.
            std::thread::spawn(move || ends.send(append_file(rules).append(b"x\n", now).1));
            let error = ended.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err();
            assert!(error.to_string().contains("named pipe"), "{error}");
            drop(reader);
        }
    }

    #[test]
    fn a_write_that_fails_leaves_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let rules = rules(folder.path());
        fs::write(&rules.path, b"whole\n").unwrap();
        let mut open = rules
            .open(RackPolicy::for_tests().writable(), at("2026-11-22T10:00:00Z"))
            .unwrap();
        // Reading is allowed, writing is not: the system refuses the lines as a full disk would.
        open.file = fs::File::open(&rules.path).unwrap();
        assert!(open.append(b"more\n", false).is_err());
        assert_eq!(
            (read(folder.path(), "out.log").unwrap(), open.size),
            ("whole\n".to_owned(), 6)
        );
    }
}
