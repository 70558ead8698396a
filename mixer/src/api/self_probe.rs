//! Liveness probe of the API: a request to its own listener, through the accept loop, a connection and a worker thread.
//!
//! # Invariants
//!
//! - Every answer is one: a status, an error of TLS, a connection that is refused or closed. Who asks in TLS nobody looks at: the request is not encrypted, and a
//!   server of TLS says so.
//! - A server that has no place for another connection is at work: that is an answer too.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
/// How often is looked whether there are places left, while there is no answer.
const LOOK: Duration = Duration::from_secs(1);

/// Asks the API for a sign of life.
#[derive(Debug, Clone)]
pub(crate) struct ApiProbe {
    addr: SocketAddr,
    /// Those of connections to the API.
    places: Arc<Semaphore>,
}

impl ApiProbe {
    pub(super) const fn new(addr: SocketAddr, places: Arc<Semaphore>) -> Self {
        Self { addr, places }
    }

    /// Returns when there is an answer, and not before. It blocks.
    pub(crate) fn wait_for_answer(&self) {
        let mut stream = loop {
            match self.ask() {
                Ok(stream) => break stream,
                Err(error) if self.is_silence(&error) => {}
                Err(_) => return,
            }
        };
        while let Err(error) = stream.read(&mut [0]) {
            if !self.is_silence(&error) {
                return;
            }
        }
    }

    fn ask(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.addr, LOOK)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        stream.write_all(REQUEST)?;
        Ok(stream)
    }

    /// Whether an error means that nothing was heard of a server that has places.
    fn is_silence(&self, error: &io::Error) -> bool {
        let is_late = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        is_late && self.places.available_permits() > 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_unless_it_has_no_place() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let answers = Arc::new(AtomicBool::new(false));
        let probe = ApiProbe::new(addr, Arc::new(Semaphore::new(1)));
        let known = Arc::clone(&answers);
        let asking = std::thread::spawn(move || {
            probe.wait_for_answer();
            known.load(Ordering::SeqCst)
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 12];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"GET /healthz");
        answers.store(true, Ordering::SeqCst);
        drop(stream);
        assert!(asking.join().unwrap(), "it came back before there was an answer");

        ApiProbe::new(addr, Arc::new(Semaphore::new(0))).wait_for_answer();
        drop(listener);
        // Nobody listens: that is known at once.
        ApiProbe::new(addr, Arc::new(Semaphore::new(1))).wait_for_answer();
    }
}
