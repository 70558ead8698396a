//! Detects external readers: when they last opened something in a folder, as the kernel tells.
//!
//! # Limits
//!
//! - Only readers on this machine are seen; where the kernel has no more watches, none.
//! - Looking a file up without opening it is not seen.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// A folder that is watched.
pub(crate) type InotifyWatch = WatchDescriptor;

/// Watches folders.
#[derive(Debug, Default)]
pub(crate) struct ExternalReaders {
    inotify: Option<Inotify>,
    /// The counter when something in a folder, or the folder, was last seen to be opened.
    seen: HashMap<InotifyWatch, Duration>,
    /// The counter when it was last not told what was opened: that may have been anything.
    unknown: Option<Duration>,
}

impl ExternalReaders {
    /// From now on it is known who opens the folder or something in it. `None` if that cannot be had.
    pub(crate) fn watch(&mut self, folder: &Path) -> Option<InotifyWatch> {
        if self.inotify.is_none() {
            self.inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok();
        }
        let flags = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_ONLYDIR;
        let watch = self.inotify.as_ref()?.add_watch(folder, flags);
        watch
            .inspect_err(|error| tracing::debug!(%error, "cannot detect readers of an expired partition"))
            .ok()
    }

    /// Takes note of what was opened up to now, by the counter.
    pub(crate) fn look(&mut self, now: Duration) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        // An error says that there is nothing more.
        while let Ok(events) = inotify.read_events() {
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_OPEN) {
                    self.seen.insert(event.wd, now);
                } else if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    self.unknown = Some(now);
                }
            }
        }
    }

    /// When something was last opened there, by the counter.
    pub(crate) fn last(&self, watch: InotifyWatch) -> Option<Duration> {
        self.seen.get(&watch).copied().max(self.unknown)
    }

    /// No longer watches a folder.
    pub(crate) fn forget(&mut self, watch: InotifyWatch) {
        self.seen.remove(&watch);
        if let Some(inotify) = &self.inotify {
            // It may have gone with its folder.
            let _ = inotify.rm_watch(watch);
        }
    }
}
