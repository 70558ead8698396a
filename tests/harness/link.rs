//! A TCP link that can go silent: what is sent meanwhile arrives when it is healed, as it does where packets were lost. It can be a long one,
//! on which every byte takes its time, and one that is recorded, as somebody on the way sees it.
//!
//! # Invariants
//!
//! - While the link is cut no byte passes, in either direction, and nobody is told.
//! - Its threads end with it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Failure;

#[derive(Debug, Default)]
struct State {
    cut: bool,
    over: bool,
    streams: Vec<TcpStream>,
    /// What passed, each connection and direction for itself.
    recorded: Option<Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits while the link is cut; false when it is over.
    fn pass(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |state| state.cut && !state.over)
            .unwrap_or_else(PoisonError::into_inner);
        !state.over
    }

    /// A place for what passes in one direction of a connection, where that is recorded.
    fn record(&self) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = state.recorded.as_mut()?;
        recorded.push(Vec::new());
        Some(recorded.len() - 1)
    }

    fn add_to_record(&self, place: Option<usize>, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(place), Some(recorded)) = (place, state.recorded.as_mut()) {
            recorded[place].extend_from_slice(bytes);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Link {
    /// A link to an address, `host:port` behind an optional `scheme://`.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn to(target: &str) -> Result<Self, Failure> {
        Self::with_delay(target, Duration::ZERO)
    }

    /// The same; every byte takes this long, in each direction.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn with_delay(target: &str, delay: Duration) -> Result<Self, Failure> {
        Self::start(target, delay, State::default())
    }

    /// The same, without a delay; what passes is recorded.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn recording(target: &str) -> Result<Self, Failure> {
        let recorded = Some(Vec::new());
        let state = State {
            recorded,
            ..State::default()
        };
        Self::start(target, Duration::ZERO, state)
    }

    fn start(target: &str, delay: Duration, state: State) -> Result<Self, Failure> {
        let target = target.rsplit('/').next().unwrap_or(target).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut pumps = Vec::new();
            for near in listener.incoming().map_while(Result::ok) {
                if !accepting.pass() {
                    break;
                }
                let Ok(far) = TcpStream::connect(&target) else { continue };
                for (from, to) in [(near.try_clone(), far.try_clone()), (far.try_clone(), near.try_clone())] {
                    if let (Ok(from), Ok(to)) = (from, to) {
                        let shared = Arc::clone(&accepting);
                        pumps.push(std::thread::spawn(move || pump(from, to, &shared, delay)));
                    }
                }
                accepting.change(|state| state.streams.extend([near, far]));
            }
            for pump in pumps {
                let _ = pump.join();
            }
        });
        Ok(Self {
            address,
            shared,
            threads: vec![thread],
        })
    }

    /// Where it listens, as a URL of the bus.
    #[must_use]
    pub fn bus_url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What has passed, each connection and direction for itself; nothing where it is not recorded.
    #[must_use]
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.recorded.clone().unwrap_or_default()
    }

    /// From now on it is silent.
    pub fn cut(&self) {
        self.shared.change(|state| state.cut = true);
    }

    /// From now on everything passes, what came meanwhile first.
    pub fn heal(&self) {
        self.shared.change(|state| state.cut = false);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.over = true;
            for stream in &state.streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        // Wakes who accepts.
        let _ = TcpStream::connect(self.address);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn pump(from: TcpStream, mut to: TcpStream, shared: &Shared, delay: Duration) {
    let place = shared.record();
    std::thread::scope(|scope| {
        // What is on its way, and when it arrives; nothing is where that takes no time.
        let most = if delay.is_zero() { 0 } else { 4096 };
        let (sent, under_way) = std::sync::mpsc::sync_channel::<(Instant, Vec<u8>)>(most);
        let mut reading = from.try_clone();
        scope.spawn(move || {
            let (Ok(from), mut buffer) = (&mut reading, vec![0; 64 << 10]) else {
                return;
            };
            while let Ok(read) = from.read(&mut buffer) {
                if read == 0 || sent.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                    break;
                }
            }
        });
        for (due, bytes) in under_way {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            shared.add_to_record(place, &bytes);
            if !shared.pass() || to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}
