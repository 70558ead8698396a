//! The file of the next segment, made on a thread of its own before it is needed: to fill and sync one takes a hundred
//! milliseconds, in which nothing would be acknowledged.
//!
//! # Invariants
//!
//! - There is one at most, and it counts against the cap from its beginning.
//! - What the log waits for is not filled to the end if the log comes faster than its zeros: the rest is only reserved. A sync of a
//!   group of megabytes hides the journal commit that unwritten blocks cost it; zeros would take the disk from them.
//! - Nothing in it counts: it has the name of a file being prepared until a switch takes it, and goes when the log closes.
//! - A failure to make it costs nothing: a switch without it makes its file itself and says what stands in the way.
//!
//! # Not here
//!
//! When it is begun and taken: [`super::segment_pool`].

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::directory::WalDirectory;
use crate::io_pacing::write_back;
use crate::{Error, thread_priority};

/// What is written in one go, at most.
pub(super) const PIECE: u64 = 1 << 20;
/// … and while nobody waits for the file: some hundredths of a millisecond of a disk that appends wait for.
const GENTLE_PIECE: u64 = 64 << 10;
/// The pause between two of those: appends sync in between.
const PAUSE: Duration = Duration::from_micros(125);

const GENTLE: u8 = 0;
const HURRIED: u8 = 1;
const RESERVED: u8 = 2;
const STOPPED: u8 = 3;

/// How a file is filled: piece by piece with syncs and pauses, at once, no further, or not at all.
#[derive(Debug)]
pub(super) struct FillPace {
    how: AtomicU8,
    filled: AtomicU64,
}

impl FillPace {
    /// Without pauses.
    pub(super) const fn at_once() -> Self {
        Self::new(HURRIED)
    }

    /// Only reserved.
    #[cfg(test)]
    pub(super) const fn reserved() -> Self {
        Self::new(RESERVED)
    }

    const fn new(how: u8) -> Self {
        Self {
            how: AtomicU8::new(how),
            filled: AtomicU64::new(0),
        }
    }

    /// The bytes of the next piece, at most; 0 if the rest is only reserved.
    pub(super) fn piece(&self) -> u64 {
        match self.how.load(Ordering::Relaxed) {
            GENTLE => GENTLE_PIECE,
            RESERVED => 0,
            _ => PIECE,
        }
    }

    /// What to do after a piece of a file.
    pub(super) fn rest(&self, file: &File, at: u64, length: u64) -> std::io::Result<()> {
        self.filled.store(at + length, Ordering::Relaxed);
        match self.how.load(Ordering::Relaxed) {
            GENTLE => {
                write_back(file, at, length)?;
                std::thread::sleep(PAUSE);
                Ok(())
            }
            HURRIED | RESERVED => Ok(()),
            _ => Err(std::io::ErrorKind::Interrupted.into()),
        }
    }
}

/// A file being made.
#[derive(Debug)]
pub(super) struct SegmentPreallocation {
    pub(super) name: String,
    pub(super) capacity: u64,
    /// Where the log was in its segment when this was begun.
    since: u64,
    pace: Arc<FillPace>,
    making: Option<JoinHandle<Result<File, Error>>>,
    disk: WalDirectory,
}

impl SegmentPreallocation {
    /// Begins to make a file; the log's segment has so many bytes in use.
    pub(super) fn begin(disk: &WalDirectory, name: String, capacity: u64, used: u64) -> Option<Self> {
        let pace = Arc::new(FillPace::new(GENTLE));
        let (its_disk, its_pace, its_name) = (disk.share().ok()?, Arc::clone(&pace), name.clone());
        let make = move || {
            thread_priority::lower_thread_priority(thread_priority::ThreadNiceness::Background);
            its_disk.create(&its_name, capacity, &its_pace)
        };
        let making = std::thread::Builder::new().name("engine-log".to_owned()).spawn(make);
        Some(Self {
            name,
            capacity,
            since: used,
            pace,
            making: Some(making.ok()?),
            disk: disk.share().ok()?,
        })
    }

    /// The file, as soon as it is ready; `None` if it could not be made. The log's segment has so many bytes in use.
    pub(super) fn take(mut self, used: u64) -> Option<File> {
        let came = used.saturating_sub(self.since);
        let is_outrun = self.pace.filled.load(Ordering::Relaxed) < came;
        self.end(if is_outrun { RESERVED } else { HURRIED })
    }

    /// Waits until it is ready, without haste.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        while self.making.as_ref().is_some_and(|making| !making.is_finished()) {
            std::thread::yield_now();
        }
    }

    fn end(&mut self, pace: u8) -> Option<File> {
        self.pace.how.store(pace, Ordering::Relaxed);
        self.making.take()?.join().ok()?.ok()
    }
}

impl Drop for SegmentPreallocation {
    fn drop(&mut self) {
        if self.end(STOPPED).is_some() {
            // What is left is cleared away at the next start.
            let _ = self.disk.unlink(&self.name);
        }
    }
}
