//! The recovered frames, handed out one segment at a time.
//!
//! # Invariants
//!
//! - Reads only segments that recovery wrote and synced; a difference from what it wrote is an error, never a shorter log.
//! - Holds the bytes of one segment, and of those whose frames the caller still holds.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::vec;

use bytes::Bytes;

use super::frame::{Found, Frame, Scan};
use super::segment::Identity;
use crate::Error;

/// A segment that recovery wrote.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) identity: Identity,
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Where its frames start and end.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) frames: usize,
}

/// The recovered frames in LSN order. To be read to its end before anything is released.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    copies: VecDeque<Copy>,
    bytes: Bytes,
    found: vec::IntoIter<Found>,
}

impl Replay {
    pub(super) fn new(copies: VecDeque<Copy>) -> Self {
        Self {
            copies,
            ..Self::default()
        }
    }

    fn load(&mut self, copy: &Copy) -> Result<(), Error> {
        let len = usize::try_from(copy.end - copy.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        copy.file
            .read_exact_at(&mut bytes, copy.start)
            .map_err(Error::io("read", &copy.path))?;
        let scan = Scan::run(&copy.identity, &bytes, 0);
        if scan.prefix.len() != copy.frames {
            return Err(Error::Damaged {
                path: copy.path.clone(),
                reason: format!(
                    "{} of {} frames just written could be read back",
                    scan.prefix.len(),
                    copy.frames
                ),
            });
        }
        self.bytes = bytes.into();
        self.found = scan.prefix.into_iter();
        Ok(())
    }
}

impl Iterator for Replay {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.found.next() {
                return Some(Ok(found.frame(&self.bytes)));
            }
            self.bytes = Bytes::new();
            let copy = self.copies.pop_front()?;
            if let Err(error) = self.load(&copy) {
                self.copies.clear();
                return Some(Err(error));
            }
        }
    }
}
