//! The writer thread: takes lines from a bounded queue, so that no caller ever waits for a disk.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::rotation::{LogRotationPolicy, RotatingFile};
use crate::Error;

/// Lines that may wait for the disk.
const QUEUE: usize = 8_192;
/// The writer looks after the file when it was idle this long.
const IDLE: Duration = Duration::from_millis(500);

enum WriterCommand {
    Line(Vec<u8>),
    Close,
}

/// The thread and the way to it.
#[derive(Debug)]
pub(super) struct LogWriter {
    sink: LogLineSender,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Where layers write: one call of `write` is one line.
#[derive(Debug, Clone)]
pub(super) struct LogLineSender {
    orders: SyncSender<WriterCommand>,
    dropped: Arc<AtomicU64>,
}

impl LogWriter {
    pub(super) fn start(path: &Path, rotation: LogRotationPolicy) -> Result<Self, Error> {
        let file = RotatingFile::open(path, rotation).map_err(|source| Error::LogFile {
            path: path.to_owned(),
            source,
        })?;
        let (orders, queue) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(file, &queue, &counter))
            .map_err(|source| Error::Thread { name: "log", source })?;
        Ok(Self {
            sink: LogLineSender { orders, dropped },
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn sink(&self) -> LogLineSender {
        self.sink.clone()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.sink.dropped.load(Ordering::Relaxed)
    }

    /// Ends the thread after what is queued is written.
    pub(super) fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A full queue empties: the thread is alive until it reads this, or already gone.
            let _ = self.sink.orders.send(WriterCommand::Close);
            let _ = thread.join();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl<'a> MakeWriter<'a> for LogLineSender {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for LogLineSender {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.orders.try_send(WriterCommand::Line(one_line(line))) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of an event as one line: control characters inside are escaped.
fn one_line(event: &[u8]) -> Vec<u8> {
    let body = event.strip_suffix(b"\n").unwrap_or(event);
    let mut line = Vec::with_capacity(body.len() + 1);
    for byte in body {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.push(b'\t'),
            0..0x20 | 0x7f => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            _ => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

fn write_all(mut file: RotatingFile, queue: &Receiver<WriterCommand>, dropped: &AtomicU64) {
    let mut told = 0;
    loop {
        match queue.recv_timeout(IDLE) {
            Ok(WriterCommand::Line(line)) => {
                if !file.append(&line) {
                    dropped.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                tell(&mut file, dropped, &mut told);
            }
            Err(RecvTimeoutError::Timeout) => {
                tell(&mut file, dropped, &mut told);
                file.reopen_if_moved();
            }
            Ok(WriterCommand::Close) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // Lines queued behind the order to close by other threads.
    while let Ok(WriterCommand::Line(line)) = queue.try_recv() {
        if !file.append(&line) {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    tell(&mut file, dropped, &mut told);
    file.close();
}

/// Says in the file how many lines are missing from it, once it can be written again.
fn tell(file: &mut RotatingFile, dropped: &AtomicU64, told: &mut u64) {
    let now = dropped.load(Ordering::Relaxed);
    if now > *told
        && file.append(format!("-- {} log lines were lost here: queue or disk full --\n", now - *told).as_bytes())
    {
        *told = now;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rotation() -> LogRotationPolicy {
        LogRotationPolicy {
            max_size: 1 << 20,
            max_backups: 3,
            compress: false,
        }
    }

    #[test]
    fn a_closed_log_holds_every_accepted_line_of_every_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/x.log");
        let writer = LogWriter::start(&path, rotation()).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let mut sink = writer.sink();
                std::thread::spawn(move || {
                    for i in 0..1_000 {
                        sink.write_all(format!("{thread} {i}\n").as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let lost = writer.dropped();
        writer.close();
        let lines = std::fs::read_to_string(&path).unwrap();
        let kept = lines.lines().filter(|line| !line.starts_with("--")).count();
        assert_eq!(kept as u64 + lost, 4_000);
        assert_eq!(lost > 0, lines.contains("log lines were lost here"));
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_its_message() {
        assert_eq!(one_line(b"a\nb\x1b[31m\tc\r\n"), b"a\\nb\\x1b[31m\tc\\r\n");
    }

    #[test]
    fn a_full_disk_loses_lines_counts_them_and_nothing_else() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let writer = LogWriter::start(full, rotation()).unwrap();
        let mut sink = writer.sink();
        for _ in 0..10 {
            sink.write_all(b"line\n").unwrap();
        }
        writer.close();
        assert_eq!(writer.dropped(), 10);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_the_key_to_change() {
        let error = LogWriter::start(Path::new("/proc/none/x.log"), rotation())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/proc/none/x.log") && error.contains("logging.filename"),
            "{error}"
        );
    }
}
