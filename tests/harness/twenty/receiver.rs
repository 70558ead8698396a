//! Who gets what the scenario sends over TCP.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::numbers;
use crate::Failure;

/// A line's number and version, and when it came.
pub(super) type Got = ((u64, u64), Instant);

/// Takes what `push` sends.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    /// How many there were.
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) got: Arc<Mutex<Vec<Got>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(super) fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (connections, got, over) = (
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<Got>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (counted, lines, ended) = (Arc::clone(&connections), Arc::clone(&got), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                // One after the other: a second connection is a fault that is counted, not a stream to be merged.
                take(stream, &lines, &ended);
            }
        });
        Ok(Self {
            address,
            connections,
            got,
            over,
            thread: Some(thread),
        })
    }
}

fn take(stream: TcpStream, lines: &Mutex<Vec<Got>>, over: &AtomicBool) {
    // Who is gone without a word shall not keep the thread.
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    while !over.load(Ordering::Relaxed) {
        match reader.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => {
                if let Some(pair) = numbers(&line) {
                    lines
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((pair, Instant::now()));
                }
                line.clear();
            }
            // What was read of a line stays in it.
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(_) => return,
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes who accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
