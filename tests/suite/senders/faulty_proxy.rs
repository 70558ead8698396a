//! A proxy that loses three of ten requests: before they are there, or their answers; over HTTP/1.1 it also refuses some.
//!
//! # Invariants
//!
//! - What becomes of a request depends on its number alone; no two faults follow one another, so a sender that repeats comes through.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use harness::Failure;

/// What is spoken through the proxy.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProxiedProtocol {
    /// HTTP/1.1.
    Http,
    /// gRPC on HTTP/2.
    Grpc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyFault {
    LostRequest,
    LostAnswer,
    /// 503; of gRPC it is lost instead.
    Refusal,
}

/// What requests met.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MetFaults {
    pub(super) requests: usize,
    pub(super) lost_requests: usize,
    pub(super) lost_answers: usize,
    pub(super) refusals: usize,
}

impl MetFaults {
    pub(super) const fn faults(&self) -> usize {
        self.lost_requests + self.lost_answers + self.refusals
    }
}

#[derive(Debug, Default)]
struct ProxyState {
    met: Mutex<MetFaults>,
    next: AtomicUsize,
}

/// What becomes of a request.
const fn fault_of(number: usize) -> Option<ProxyFault> {
    match number % 10 {
        1 => Some(ProxyFault::LostAnswer),
        4 => Some(ProxyFault::LostRequest),
        7 => Some(ProxyFault::Refusal),
        _ => None,
    }
}

impl ProxyState {
    /// What becomes of the next request.
    fn fault(&self) -> Option<ProxyFault> {
        let fault = fault_of(self.next.fetch_add(1, SeqCst));
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.requests += 1;
        match fault {
            Some(ProxyFault::LostRequest) => met.lost_requests += 1,
            Some(ProxyFault::LostAnswer) => met.lost_answers += 1,
            Some(ProxyFault::Refusal) => met.refusals += 1,
            None => {}
        }
        fault
    }
}

/// The running proxy; it takes no more connections once it is dropped.
#[derive(Debug)]
pub(super) struct FaultyProxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    is_over: Arc<AtomicBool>,
}

impl FaultyProxy {
    /// Begins to forward connections.
    pub(super) fn start(to: SocketAddr, protocol: ProxiedProtocol) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Self {
            address: listener.local_addr()?,
            state: Arc::default(),
            is_over: Arc::default(),
        };
        let (state, is_over) = (Arc::clone(&proxy.state), Arc::clone(&proxy.is_over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let state = Arc::clone(&state);
                // A connection that breaks is what the sender has to live with.
                std::thread::spawn(move || match protocol {
                    ProxiedProtocol::Http => http(&stream, to, &state).ok(),
                    ProxiedProtocol::Grpc => grpc(stream, to, state).ok(),
                });
            }
        });
        Ok(proxy)
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a request arrives, whatever becomes of its answer.
    pub(super) const fn forwards(number: usize) -> bool {
        matches!(fault_of(number), None | Some(ProxyFault::LostAnswer))
    }

    pub(super) fn met(&self) -> MetFaults {
        *self.state.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        // Wakes who accepts.
        TcpStream::connect(self.address).ok();
    }
}

/// Requests of HTTP/1.1 one after another, each over a connection of its own to the Mixer.
fn http(client: &TcpStream, to: SocketAddr, state: &ProxyState) -> Result<(), Failure> {
    let (mut requests, mut answers) = (BufReader::new(client), client);
    while let Some(request) = message(&mut requests)? {
        let fault = state.fault();
        match fault {
            Some(ProxyFault::LostRequest) => return Ok(client.shutdown(Shutdown::Both)?),
            Some(ProxyFault::Refusal) => {
                let refusal = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
                answers.write_all(refusal)?;
                continue;
            }
            Some(ProxyFault::LostAnswer) | None => {}
        }
        let server = TcpStream::connect(to)?;
        (&server).write_all(&request)?;
        let answer = message(&mut BufReader::new(&server))?.ok_or("no answer")?;
        if fault.is_some() {
            return Ok(client.shutdown(Shutdown::Both)?);
        }
        answers.write_all(&answer)?;
    }
    Ok(())
}

/// A message of HTTP/1.1 as it came; none at the end.
fn message(from: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let (mut whole, mut length, mut is_chunked) = (Vec::new(), 0, false);
    loop {
        let start = whole.len();
        if from.read_until(b'\n', &mut whole)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&whole[start..]).to_ascii_lowercase();
        if line.trim().is_empty() {
            break;
        }
        match line.trim().split_once(": ") {
            Some(("content-length", value)) => length = value.parse()?,
            Some(("transfer-encoding", "chunked")) => is_chunked = true,
            _ => {}
        }
    }
    if !is_chunked {
        take(from, length, &mut whole)?;
        return Ok(Some(whole));
    }
    loop {
        let start = whole.len();
        from.read_until(b'\n', &mut whole)?;
        let size = String::from_utf8_lossy(&whole[start..]).trim().to_owned();
        let size = u64::from_str_radix(&size, 16)?;
        // With the end of the line behind it.
        take(from, size + 2, &mut whole)?;
        if size == 0 {
            return Ok(Some(whole));
        }
    }
}

fn take(from: &mut impl BufRead, bytes: u64, to: &mut Vec<u8>) -> Result<(), Failure> {
    if from.take(bytes).read_to_end(to)? as u64 == bytes {
        Ok(())
    } else {
        Err("a message was cut off".into())
    }
}

/// What HTTP/2 says of a frame.
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
/// What a client says before its first frame.
const PREFACE: usize = 24;

/// A connection of HTTP/2, frame by frame: a request ends with the last frame of its data, its answer begins with headers.
fn grpc(client: TcpStream, to: SocketAddr, state: Arc<ProxyState>) -> Result<(), Failure> {
    let server = TcpStream::connect(to)?;
    let loses_answer = Arc::new(AtomicBool::new(false));
    let (from_server, to_client) = (server.try_clone()?, client.try_clone()?);
    let is_lost = Arc::clone(&loses_answer);
    std::thread::spawn(move || {
        frames(&from_server, &to_client, |kind, _| {
            kind != HEADERS || !is_lost.load(SeqCst)
        })
        .ok();
        from_server.shutdown(Shutdown::Both).ok();
        to_client.shutdown(Shutdown::Both).ok();
    });
    let mut preface = [0; PREFACE];
    (&client).read_exact(&mut preface)?;
    (&server).write_all(&preface)?;
    let forwarded = frames(&client, &server, |kind, flags| {
        if kind != DATA || flags & END_STREAM == 0 {
            return true;
        }
        match state.fault() {
            None => true,
            Some(ProxyFault::LostAnswer) => {
                loses_answer.store(true, SeqCst);
                true
            }
            Some(ProxyFault::LostRequest | ProxyFault::Refusal) => false,
        }
    });
    client.shutdown(Shutdown::Both).ok();
    server.shutdown(Shutdown::Both).ok();
    forwarded
}

/// Forwards frames until one, by its type and flags, is not to be.
fn frames(from: &TcpStream, to: &TcpStream, mut is_forwarded: impl FnMut(u8, u8) -> bool) -> Result<(), Failure> {
    let (mut from, mut to) = (from, to);
    loop {
        let mut head = [0; FRAME_HEAD];
        from.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ..] = head;
        if !is_forwarded(kind, flags) {
            return Ok(());
        }
        let mut frame = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut frame)?;
        to.write_all(&head)?;
        to.write_all(&frame)?;
    }
}
