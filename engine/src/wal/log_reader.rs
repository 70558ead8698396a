//! Log reader: returns the durable frames of a log that is being written, in the order of their LSNs, from a position on.
//!
//! ```text
//! segments ─ their headers ─> the one that begins last before the position ─> frame after frame ─> the segment behind it
//! ```
//!
//! # Invariants
//!
//! - Only frames are returned that the caller says are durable. Each is checked by the checksum of its segment, so what an
//!   earlier life of a recycled file left is never taken for a frame.
//! - A frame that should be there and cannot be read is an error, never passed over. The next start's recovery judges it, and what
//!   it reports as lost is passed.
//! - Segments with frames from the position on are not released meanwhile: the caller holds the log's low water there.
//! - Of a segment one window is held, and one frame if it is larger.
//!
//! # Not here
//!
//! What frames mean, and who waits for them: [`crate::LogFollower`].

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use uuid::Uuid;

use super::frame::{FRAME_HEADER, WalFrame, parse};
use super::segment::{HEADER_BLOCK, SegmentHeader, SegmentIdentity, WalFileRole, parse_name};
use crate::Error;

/// So many bytes are read at once, at first …
const WINDOW: usize = 64 << 10;
/// … and at most, while frame follows frame.
const LARGE_WINDOW: usize = 1 << 20;

/// Reads a log beside its writer.
#[derive(Debug)]
pub(crate) struct LogReader {
    dir: PathBuf,
    store: Uuid,
    /// Every frame up to this LSN was returned, or is not wanted.
    last: u64,
    /// Recovery has reported that frames are lost among these.
    lost: Vec<RangeInclusive<u64>>,
    /// How often the log began behind the next frame.
    gaps: u64,
    /// Gaps that end before this LSN were told of.
    told_to: u64,
    segment: Option<OpenSegment>,
}

/// The segment that is being read.
#[derive(Debug)]
struct OpenSegment {
    path: PathBuf,
    file: File,
    len: u64,
    header: SegmentHeader,
    identity: SegmentIdentity,
    /// Where the next frame begins.
    at: u64,
    /// LSN of the last frame read here; 0 before the first.
    last: u64,
    /// Bytes from `begin` on.
    window: Bytes,
    begin: u64,
    size: usize,
}

impl LogReader {
    /// A reader of the frames above the LSN `last`, but for those that recovery found to be lost.
    pub(crate) fn new(dir: &Path, store: Uuid, last: u64, lost: &[RangeInclusive<u64>]) -> Self {
        Self {
            dir: dir.to_owned(),
            store,
            last,
            lost: lost.to_vec(),
            gaps: 0,
            told_to: 0,
            segment: None,
        }
    }

    /// The next frame with an LSN of at most `durable`, all of which are in the log and synced.
    pub(crate) fn next(&mut self, durable: u64) -> Result<Option<WalFrame>, Error> {
        while self.last < durable {
            if self.segment.is_none() {
                self.segment = Some(self.find()?);
            }
            let Some(segment) = &mut self.segment else { break };
            match segment.next()? {
                Some(frame) if frame.lsn <= self.last => {}
                Some(frame) if frame.lsn <= durable => {
                    self.last = frame.lsn;
                    return Ok(Some(frame));
                }
                // It is written and not synced yet: it is read again.
                Some(_) => {
                    self.segment = None;
                    break;
                }
                None => self.segment = Some(self.successor()?),
            }
        }
        Ok(None)
    }

    /// How often the log began behind the next frame, since this was asked last.
    pub(crate) fn take_gaps(&mut self) -> u64 {
        std::mem::take(&mut self.gaps)
    }

    /// Begins again with the frames above the LSN `last`, and tells of no gap again.
    pub(crate) fn rewind(&mut self, last: u64) {
        (self.last, self.segment) = (last, None);
    }

    /// The segments of this store, in the order of their frames.
    fn segments(&self) -> Result<Vec<(SegmentHeader, PathBuf)>, Error> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(Error::io("list", &self.dir))? {
            let path = entry.map_err(Error::io("list", &self.dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !matches!(parse_name(&name), Some((WalFileRole::Log, _))) {
                continue;
            }
            // One that goes meanwhile has nothing that is wanted.
            let Some(file) = durable_fs::open_if_there(&path)? else {
                continue;
            };
            let mut block = [0; HEADER_BLOCK];
            file.read_exact_at(&mut block, 0).map_err(Error::io("read", &path))?;
            match SegmentHeader::decode(&block) {
                Ok(header) if header.store == self.store => found.push((header, path)),
                _ => {}
            }
        }
        found.sort_by_key(|(header, _)| (header.first, header.number));
        Ok(found)
    }

    /// The segment that the next frame is in, or the first one behind it.
    fn find(&mut self) -> Result<OpenSegment, Error> {
        let segments = self.segments()?;
        let behind = segments.partition_point(|(header, _)| header.first <= self.last.saturating_add(1));
        if behind == 0
            && let Some((header, _)) = segments.first()
            && header.first > self.told_to
        {
            self.gaps += 1;
            self.told_to = header.first;
            tracing::error!(
                from = self.last + 1,
                to = header.first - 1,
                "the log does not have these batches any more: they cannot be exported"
            );
        }
        let found = segments.into_iter().nth(behind.saturating_sub(1));
        let (header, path) = found.ok_or_else(|| self.lost("no segment is there"))?;
        OpenSegment::open(header, path)
    }

    /// The segment behind the present one, which has no more frames.
    fn successor(&self) -> Result<OpenSegment, Error> {
        let here = self.segment.as_ref().map(|segment| segment.header);
        let here = here.map_or((0, 0), |header| (header.first, header.number));
        let mut segments = self.segments()?.into_iter();
        let next = segments.find(|(header, _)| (header.first, header.number) > here);
        let (header, path) = next.ok_or_else(|| self.lost("no frame follows there"))?;
        let is_lost = self.lost.iter().any(|lost| lost.contains(&header.before));
        if header.before > self.last && !is_lost {
            return Err(self.lost(&format!(
                "{} says that frame {} precedes it",
                path.display(),
                header.before
            )));
        }
        if let Some(segment) = &self.segment {
            // What was read takes no memory from what is read more than once.
            let _ = posix_fadvise(&segment.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        OpenSegment::open(header, path)
    }

    /// For a durable frame that cannot be read.
    fn lost(&self, reason: &str) -> Error {
        let path = self.segment.as_ref().map_or(&self.dir, |segment| &segment.path);
        Error::damaged(
            path,
            format!(
                "the frame behind {} cannot be read: {reason}; a restart recovers the log",
                self.last
            ),
        )
    }
}

impl OpenSegment {
    fn open(header: SegmentHeader, path: PathBuf) -> Result<Self, Error> {
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let len = file.metadata().map_err(Error::io("read", &path))?.len();
        Ok(Self {
            identity: SegmentIdentity::new(header.store, header.number),
            file,
            len,
            header,
            at: HEADER_BLOCK as u64,
            last: 0,
            window: Bytes::new(),
            begin: 0,
            size: WINDOW,
            path,
        })
    }

    /// The next frame that is there.
    fn next(&mut self) -> Result<Option<WalFrame>, Error> {
        if let Some(frame) = self.take() {
            return Ok(Some(frame));
        }
        if let Some(frame) = self.read()? {
            return Ok(Some(frame));
        }
        // The writer passes the page cache by: what was cached may be older than what the disk has.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        self.read()
    }

    /// Reads on at the present place: a window, and all of a frame that is larger.
    fn read(&mut self) -> Result<Option<WalFrame>, Error> {
        // What the window ends with may be half a frame, or was written since.
        self.fill(self.size)?;
        if let Some(frame) = self.take() {
            self.size = (2 * self.size).min(LARGE_WINDOW);
            return Ok(Some(frame));
        }
        self.size = WINDOW;
        let Some(claimed) = self.claimed() else {
            return Ok(None);
        };
        self.fill(claimed)?;
        Ok(self.take())
    }

    /// The frame at the present place, if the window has all of it.
    fn take(&mut self) -> Option<WalFrame> {
        let at = usize::try_from(self.at.checked_sub(self.begin)?).ok()?;
        let found = parse(&self.identity, &self.window, at, self.last)?;
        self.at = self.begin + found.end as u64;
        self.last = found.lsn;
        Some(found.frame(&self.window))
    }

    /// The bytes to read for what may be a frame at the present place, beyond a window.
    fn claimed(&self) -> Option<usize> {
        let at = usize::try_from(self.at.checked_sub(self.begin)?).ok()?;
        let len = self.window.get(at..at.checked_add(4)?)?;
        let len = u32::from_le_bytes(len.try_into().ok()?);
        let fits = u64::from(len) <= self.len.saturating_sub(self.at) && len as usize >= FRAME_HEADER;
        fits.then(|| (len as usize).max(WINDOW))
    }

    /// Reads a window from the present place on.
    fn fill(&mut self, size: usize) -> Result<(), Error> {
        let left = self.len.saturating_sub(self.at);
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut window = vec![0; size];
        self.file
            .read_exact_at(&mut window, self.at)
            .map_err(Error::io("read", &self.path))?;
        self.window = window.into();
        self.begin = self.at;
        Ok(())
    }
}
