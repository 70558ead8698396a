//! A socket that gears take connections from, with TLS or without it.
//!
//! # Invariants
//!
//! - At most a given number of connections at a time; more wait in the listener's backlog.
//! - Every connection's task is joined before [`GearListener::serve`] returns; what is not finished [`GRACE`] after the stop is cut
//!   off.
//! - A handshake of TLS has a bound and holds up no other connection. Certificates are read beneath the read roots of the policy, again
//!   whenever they change.
//! - A write that makes no progress for its time ends the connection, also with TLS.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chassis::tls_server::{FileSource, ServerStream, ServerTls, ServerTlsFiles};
use chassis::write_timeout::WriteTimeoutStream;
use gear_spec::tls_options::ListenerTlsConfig;
use model::{Attributes, Level};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{GearContext, GearError};
use crate::policy::FileRoots;

/// How long connections may take to finish what they began when the gear stops.
const GRACE: Duration = Duration::from_millis(500);
/// The pause after the system refused a connection, which happens when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a peer may take nothing of what is written to it.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection, with TLS or without it.
pub(super) type GearStream = ServerStream<WriteTimeoutStream<TcpStream>>;

/// Where a gear listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListenerAddress<'a> {
    pub(super) listen: SocketAddr,
    pub(super) tls: Option<&'a ListenerTlsConfig>,
    /// How the address is announced without TLS, and with it.
    pub(super) schemes: [&'static str; 2],
    pub(super) path: &'a str,
}

/// A socket that listens.
pub(super) struct GearListener {
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
}

impl FileSource for FileRoots {
    fn open(&self, path: &Path) -> io::Result<File> {
        self.open_to_read(path)
    }
}

/// A connection that was accepted and has not shaken hands.
pub(super) struct IncomingStream {
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
    cx: Arc<GearContext>,
    pub(super) peer: SocketAddr,
    /// Tells of the stop.
    pub(super) stop: CancellationToken,
}

impl IncomingStream {
    /// The connection, once both sides agree on it; `None` at the stop or where they do not, which is logged.
    pub(super) async fn accept(self) -> Option<GearStream> {
        self.accept_protocol(b"").await
    }

    /// The same, for a protocol that clients of TLS may name (ALPN) unless it is empty.
    pub(super) async fn accept_protocol(self, protocol: &[u8]) -> Option<GearStream> {
        // Below TLS, which takes what the peer does not.
        let stream = WriteTimeoutStream::new(self.stream, WRITE_TIMEOUT);
        let Some(tls) = self.tls else {
            return Some(ServerStream::Right(stream));
        };
        let accepted = tokio::select! {
            () = self.stop.cancelled() => return None,
            accepted = tls.accept_protocol(stream, HANDSHAKE, protocol) => accepted,
        };
        let failed = |error| {
            let text = format!(
                "the connection from {} is closed: its TLS handshake failed: {error}",
                self.peer
            );
            self.cx.log(Level::Warn, text);
        };
        accepted.map_err(failed).ok().map(ServerStream::Left)
    }
}

impl GearListener {
    /// Takes the address and says so, as `<scheme>://<address><path>`; reads the certificate.
    pub(super) async fn bind(cx: &GearContext, at: ListenerAddress<'_>) -> Result<Self, GearError> {
        let address = at.listen;
        admit(cx, address)?;
        let tls = match at.tls.cloned() {
            None => None,
            Some(config) => {
                let files = cx.policy().readable().clone();
                let opened = tokio::task::spawn_blocking(move || server_tls(files, config)).await?;
                Some(Arc::new(opened.map_err(GearError::Config)?))
            }
        };
        let failed = |reason| GearError::Listen { address, reason };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let [plain, encrypted] = at.schemes;
        let scheme = if tls.is_some() { encrypted } else { plain };
        announce(cx, listener.local_addr().map_err(failed)?, scheme, at.path);
        Ok(Self { listener, tls })
    }

    /// Gives connections to `serve` until the gear stops.
    pub(super) async fn serve<F>(&self, cx: &Arc<GearContext>, max: usize, serve: impl Fn(IncomingStream) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let mut connections = JoinSet::new();
        loop {
            let room = connections.len() < max;
            tokio::select! {
                () = cx.stopping() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept(), if room => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(serve(IncomingStream {
                            stream,
                            tls: self.tls.clone(),
                            cx: Arc::clone(cx),
                            peer,
                            stop: stop.clone(),
                        }));
                    }
                    Err(error) => {
                        cx.error(format!("cannot accept a connection: {error}"));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        stop.cancel();
        let finished = async { while connections.join_next().await.is_some() {} };
        // What is not finished by then is cut off: a message that was not acknowledged is the sender's to repeat.
        tokio::time::timeout(GRACE, finished).await.ok();
        connections.shutdown().await;
    }
}

fn server_tls(files: FileRoots, config: ListenerTlsConfig) -> Result<ServerTls, String> {
    let paths = ServerTlsFiles {
        certificate: config.certificate_file,
        key: config.key_file,
        client_ca: config.client_ca_file,
    };
    ServerTls::open_from(Box::new(files), paths).map_err(|error| format!("tls: {error}"))
}

/// Refuses an address that the policy of the Rack does not allow.
pub(super) fn admit(cx: &GearContext, address: SocketAddr) -> Result<(), GearError> {
    let admitted = cx.policy().check_listen(address);
    admitted.map_err(|refusal| GearError::Config(refusal.to_string()))
}

/// Says where the gear listens.
pub(super) fn announce(cx: &GearContext, bound: SocketAddr, scheme: &str, path: &str) {
    let attributes = Attributes::new()
        .with("server.address", bound.ip().to_string())
        .with("server.port", bound.port());
    let text = format!("listening on {scheme}://{bound}{path}");
    cx.recorder().log(Level::Info, text, attributes, None);
}

#[cfg(test)]
mod tests;
