//! A socket that gears take connections from.
//!
//! # Invariants
//!
//! - At most a given number of connections at a time; more wait in the listener's backlog.
//! - Every connection's task is joined before [`GearListener::serve`] returns; what is not finished [`GRACE`] after the stop is cut
//!   off.

use std::net::SocketAddr;
use std::time::Duration;

use model::{Attributes, Level};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{GearContext, GearError};

/// How long connections may take to finish what they began when the gear stops.
const GRACE: Duration = Duration::from_millis(500);
/// The pause after the system refused a connection, which happens when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens.
pub(super) struct GearListener(TcpListener);

impl GearListener {
    /// Takes the address and says so, as `<scheme>://<address><path>`.
    pub(super) async fn bind(
        cx: &GearContext,
        address: SocketAddr,
        scheme: &str,
        path: &str,
    ) -> Result<Self, GearError> {
        admit(cx, address)?;
        let failed = |reason| GearError::Listen { address, reason };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        announce(cx, listener.local_addr().map_err(failed)?, scheme, path);
        Ok(Self(listener))
    }

    /// Gives connections to `serve` until the gear stops. The token tells them of the stop.
    pub(super) async fn serve<F>(
        &self,
        cx: &GearContext,
        max: usize,
        serve: impl Fn(TcpStream, SocketAddr, CancellationToken) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let mut connections = JoinSet::new();
        loop {
            let room = connections.len() < max;
            tokio::select! {
                () = cx.stopping() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.0.accept(), if room => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(serve(stream, peer, stop.clone()));
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
