//! Progress line on standard error: seconds waited, and bytes received.
//!
//! It appears after [`PATIENCE`] and is gone before anything else is written. Not on a terminal, it never appears.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::ByteSize;

/// Answers that come sooner need no word.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two looks at how much has come.
const TICK: Duration = Duration::from_millis(250);
/// Back to the line's start, and empty it.
const CLEAR: &str = "\r\u{1b}[K";

/// A wait. Dropped, its line is gone.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    bytes: Arc<AtomicU64>,
    shown: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl ProgressLine {
    /// Starts to wait; the line appears later, if ever.
    pub(crate) fn start() -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let shown = io::stderr().is_terminal().then(|| {
            let (stop, stopped) = mpsc::sync_channel(0);
            let bytes = Arc::clone(&bytes);
            let thread = std::thread::Builder::new().name("progress".to_owned());
            thread
                .spawn(move || show(&mut io::stderr(), &stopped, &bytes))
                .map(|thread| (stop, thread))
        });
        Self {
            bytes,
            // Without the thread the answer comes as well.
            shown: shown.and_then(Result::ok),
        }
    }

    /// Counts what is read.
    pub(crate) fn counted<R: Read>(&self, reader: R) -> CountingReader<R> {
        self.bytes.store(0, Ordering::Relaxed);
        CountingReader {
            reader,
            bytes: Arc::clone(&self.bytes),
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// A reader that says how much it has read.
#[derive(Debug)]
pub(crate) struct CountingReader<R> {
    reader: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(into)?;
        self.bytes
            .fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(count)
    }
}

fn show(out: &mut impl Write, stopped: &Receiver<()>, bytes: &AtomicU64) {
    let start = Instant::now();
    let mut wait = PATIENCE;
    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let line = line(start.elapsed(), bytes.load(Ordering::Relaxed));
        let _ = write!(out, "{CLEAR}{line}").and_then(|()| out.flush());
        wait = TICK;
    }
    if wait == TICK {
        let _ = write!(out, "{CLEAR}").and_then(|()| out.flush());
    }
}

fn line(waited: Duration, bytes: u64) -> String {
    let seconds = waited.as_secs();
    if bytes == 0 {
        format!("platform: waiting for the Mixer, {seconds} s")
    } else {
        format!("platform: reading the answer, {seconds} s, {}", ByteSize::bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_waited_for() {
        assert_eq!(
            line(Duration::from_millis(2_900), 0),
            "platform: waiting for the Mixer, 2 s"
        );
        assert_eq!(
            line(Duration::from_secs(7), 3 << 20),
            "platform: reading the answer, 7 s, 3.0 MiB"
        );
    }

    #[test]
    fn an_answer_that_comes_soon_leaves_no_trace() {
        let (stop, stopped) = mpsc::sync_channel::<()>(0);
        drop(stop);
        let mut out = Vec::new();
        show(&mut out, &stopped, &AtomicU64::new(0));
        assert!(out.is_empty());
    }

    #[test]
    fn what_is_read_is_counted_and_not_changed() -> io::Result<()> {
        let progress = ProgressLine::start();
        let mut text = String::new();
        progress.counted("twelve bytes".as_bytes()).read_to_string(&mut text)?;
        assert_eq!(
            (text.as_str(), progress.bytes.load(Ordering::Relaxed)),
            ("twelve bytes", 12)
        );
        Ok(())
    }
}
