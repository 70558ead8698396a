//! A receiver of OTLP over HTTP/1.1 that fails, and remembers what it accepted and what of that it answered.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use harness::{Failure, Random};

/// What stands before the number of a row.
pub(super) const MARK: &str = "row-";
const DIGITS: usize = 9;

/// A request that was accepted.
#[derive(Debug, Clone)]
pub(super) struct AcceptedRequest {
    pub(super) rows: Vec<u64>,
    /// Whether the sender must know it: the answer was sent, and another request came over the same connection after it.
    pub(super) is_known: bool,
}

#[derive(Debug, Default)]
struct ReceiverState {
    accepted: Mutex<Vec<AcceptedRequest>>,
    /// The heads of all requests.
    heads: Mutex<Vec<String>>,
    open: Mutex<Vec<TcpStream>>,
    /// Of a hundred requests.
    percent: AtomicU64,
    /// So many requests are refused for good.
    refused: AtomicU64,
    is_away: AtomicBool,
    is_over: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct TestReceiver {
    pub(super) address: SocketAddr,
    state: Arc<ReceiverState>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestReceiver {
    pub(super) fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::<ReceiverState>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                if shared.is_away.load(Ordering::Relaxed) {
                    continue;
                }
                lock(&shared.open).extend(stream.try_clone());
                let state = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // A connection that ends is what this is about.
                    let _ = serve(&stream, &state);
                });
            }
        });
        Ok(Self { address, state })
    }

    /// So many of a hundred requests fail, in one way or another.
    pub(super) fn set_faults(&self, percent: u64) {
        self.state.percent.store(percent, Ordering::Relaxed);
    }

    /// The next request is refused for good.
    pub(super) fn refuse_one(&self) {
        self.state.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends as a process does that is killed: every connection is cut, and new ones are, too, while it is away.
    pub(super) fn kill(&self) {
        self.state.is_away.store(true, Ordering::Relaxed);
        for stream in lock(&self.state.open).drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(super) fn revive(&self) {
        self.state.is_away.store(false, Ordering::Relaxed);
    }

    pub(super) fn accepted(&self) -> Vec<AcceptedRequest> {
        lock(&self.state.accepted).clone()
    }

    pub(super) fn heads(&self) -> Vec<String> {
        lock(&self.state.heads).clone()
    }
}

impl Drop for TestReceiver {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        self.kill();
        // The listener sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

/// What becomes of a request.
enum RequestFate {
    Answer,
    /// Accepted, and the connection ends.
    Cut,
    /// Not now.
    Refuse,
    /// Never.
    Reject,
    /// Neither accepted nor answered.
    Lose,
}

fn fate(state: &ReceiverState, random: &mut Random) -> RequestFate {
    let one_less = |refused: u64| refused.checked_sub(1);
    let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
    if state.refused.fetch_update(set, read, one_less).is_ok() {
        return RequestFate::Reject;
    }
    if random.below(100) >= state.percent.load(Ordering::Relaxed) {
        return RequestFate::Answer;
    }
    match random.below(3) {
        0 => RequestFate::Cut,
        1 => RequestFate::Refuse,
        _ => RequestFate::Lose,
    }
}

fn serve(stream: &TcpStream, state: &ReceiverState) -> Result<(), Failure> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut random = Random::seeded("receiver", u64::from(stream.peer_addr()?.port()));
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut before: Option<usize> = None;
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let lower = line.to_ascii_lowercase();
            if let Some(bytes) = lower.strip_prefix("content-length:") {
                length = bytes.trim().parse()?;
            }
            head.push_str(&lower);
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        // Who asks again over this connection has read the answer before.
        if let Some(known) = before.take() {
            lock(&state.accepted)[known].is_known = true;
        }
        lock(&state.heads).push(head);
        let answer = |status: &str, more: &str| {
            let mut stream = stream;
            stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n{more}\r\n").as_bytes())
        };
        let accept = || {
            let mut accepted = lock(&state.accepted);
            accepted.push(AcceptedRequest {
                rows: rows_of(&body),
                is_known: false,
            });
            accepted.len() - 1
        };
        match fate(state, &mut random) {
            RequestFate::Answer => {
                before = Some(accept());
                answer("200 OK", "content-type: application/x-protobuf\r\n")?;
            }
            RequestFate::Refuse => answer("503 Service Unavailable", "retry-after: 0\r\n")?,
            RequestFate::Reject => answer("500 Internal Server Error", "")?,
            RequestFate::Cut => {
                accept();
                return Ok(stream.shutdown(std::net::Shutdown::Both)?);
            }
            RequestFate::Lose => return Ok(stream.shutdown(std::net::Shutdown::Both)?),
        }
    }
}

/// The numbers of the rows in a request that is not packed: each stands once in its text.
fn rows_of(body: &[u8]) -> Vec<u64> {
    let mark = MARK.as_bytes();
    let found = body
        .windows(mark.len() + DIGITS)
        .filter(|window| window.starts_with(mark));
    let number = |window: &[u8]| std::str::from_utf8(&window[mark.len()..]).ok()?.parse().ok();
    found.filter_map(number).collect()
}

/// The text of a row.
pub(super) fn row_text(number: u64) -> String {
    format!("{MARK}{number:09}")
}
