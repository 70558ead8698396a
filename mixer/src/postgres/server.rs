//! The accept loop: bounded connections, bounded waiting, a graceful end; and who may cancel what.
//!
//! # Invariants
//!
//! - Beyond `MAX_CONNECTIONS` a client is told so when it has said who it is; beyond `SPARE` more than that, the system's queue
//!   holds it. Requests to cancel come in beyond the first bound too.
//! - A wrong cancel key delays the close of its connection by `WRONG_KEY_TIME`: so many keys may be tried in that time as there are places.
//! - [`PostgresServer::close`] lets running statements finish for `GRACE`, then drops them; it returns when all are gone.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chassis::tls_server::ServerTls;
use model::Entropy;
use query::QueryEngine;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::framing::{self, BackendWriter, FrontendReader};
use super::pg_error::PgError;
use super::rows::PgReplyError;
use super::sasl;
use super::session::{PgSession, SessionStep};
use super::session_settings::SessionSettings;
use super::startup::{self, PgEncryption, StartupRequest};
use crate::api::next_connection;
use crate::authentication::{ApiAuthenticator, ConnectionEnds};
use crate::quotas::QuotaPlaces;

/// So many clients at once.
pub(crate) const MAX_CONNECTIONS: usize = 100;
/// So many more are heard, to be told that there is no place or to cancel.
const SPARE: usize = 32;
/// A client that has not said who it is for so long, all messages and the TLS handshake together, is let go.
pub(super) const STARTUP_TIME: Duration = Duration::from_secs(15);
/// A client that asks nothing for so long is let go.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(30 * 60);
const GRACE: Duration = Duration::from_secs(3);
/// A wrong cancel key delays the close of its connection by so much.
const WRONG_KEY_TIME: Duration = Duration::from_secs(1);

/// The running server.
#[derive(Debug)]
pub struct PostgresServer {
    addr: SocketAddr,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    connections: TaskTracker,
}

impl PostgresServer {
    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops accepting, lets running statements finish, returns when every connection is gone.
    pub async fn close(self) {
        self.stop.cancel();
        if let Err(error) = self.accepting.await {
            tracing::error!(%error, "the accept loop for PostgreSQL clients failed");
        }
        self.connections.close();
        self.connections.wait().await;
    }
}

/// Serves clients on a bound listener until [`PostgresServer::close`].
///
/// # Errors
/// If the listener has no address.
pub(crate) fn serve(
    (querier, authenticator, tls): (Arc<QueryEngine>, Arc<ApiAuthenticator>, Option<Arc<ServerTls>>),
    listener: TcpListener,
    entropy: Entropy,
) -> io::Result<PostgresServer> {
    let addr = listener.local_addr()?;
    let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
    let host = Arc::new(SessionManager {
        querier,
        authenticator,
        tls,
        entropy,
        places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        numbers: AtomicI32::new(1),
        slots: Mutex::new(HashMap::new()),
        stop: stop.clone(),
    });
    let accepting = tokio::spawn(accept(listener, host, connections.clone()));
    Ok(PostgresServer {
        addr,
        stop,
        accepting,
        connections,
    })
}

/// What all connections share.
struct SessionManager {
    querier: Arc<QueryEngine>,
    authenticator: Arc<ApiAuthenticator>,
    /// Without it nothing is encrypted.
    tls: Option<Arc<ServerTls>>,
    entropy: Entropy,
    places: Arc<Semaphore>,
    numbers: AtomicI32,
    /// The sessions by number, with what only their clients know.
    slots: Mutex<HashMap<i32, (i32, Arc<CancelHandle>)>>,
    stop: CancellationToken,
}

/// What a request to cancel finds: the statement that runs.
#[derive(Debug, Default)]
pub(super) struct CancelHandle(Mutex<CancellationToken>);

impl CancelHandle {
    /// A statement begins; what would have cancelled the one before has no effect on it.
    pub(super) fn begin(&self) -> CancellationToken {
        let fresh = CancellationToken::new();
        *held(&self.0) = fresh.clone();
        fresh
    }

    fn cancel(&self) {
        held(&self.0).cancel();
    }
}

/// A session's place among those that can be cancelled; it goes with the session.
struct SessionRegistration<'a> {
    host: &'a SessionManager,
    number: i32,
    secret: i32,
    slot: Arc<CancelHandle>,
}

impl SessionManager {
    fn register(&self) -> SessionRegistration<'_> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let (secret, slot) = (
            i32::from_be_bytes(self.entropy.bytes()),
            Arc::new(CancelHandle::default()),
        );
        held(&self.slots).insert(number, (secret, Arc::clone(&slot)));
        SessionRegistration {
            host: self,
            number,
            secret,
            slot,
        }
    }

    /// Cancels what a session does; `false` if the key is no session's.
    fn cancel(&self, number: i32, secret: i32) -> bool {
        let found = held(&self.slots).get(&number).cloned();
        let found = found.filter(|(known, _)| *known == secret);
        found.inspect(|(_, slot)| slot.cancel()).is_some()
    }
}

impl Drop for SessionRegistration<'_> {
    fn drop(&mut self) {
        held(&self.host.slots).remove(&self.number);
    }
}

/// Nothing is left half-done under these locks.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, host: Arc<SessionManager>, connections: TaskTracker) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS + SPARE));
    while let Some((stream, place)) = next_connection(&listener, &places, &host.stop).await {
        connections.spawn(connection(stream, Arc::clone(&host), place));
    }
}

async fn connection(stream: TcpStream, host: Arc<SessionManager>, _heard: OwnedSemaphorePermit) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection has gone already");
        return;
    }
    let Ok(ends) = ConnectionEnds::of(&stream) else { return };
    let login_by = Instant::now() + STARTUP_TIME;
    let (mut incoming, mut out) = framing::split(stream);
    let mut begun = started((&host, login_by), &mut incoming, &mut out, offered(&host)).await;
    let mut is_encrypted = false;
    if let (Ok(StartupRequest::Encryption), Some(tls)) = (&begun, &host.tls) {
        let encrypted = tokio::select! {
            biased;
            () = host.stop.cancelled() => return,
            encrypted = framing::encrypt((incoming, out), tls, login_by.duration_since(Instant::now())) => encrypted,
        };
        match encrypted {
            Ok(halves) => (incoming, out) = halves,
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake of a PostgreSQL client failed");
                return;
            }
        }
        is_encrypted = true;
        begun = started((&host, login_by), &mut incoming, &mut out, PgEncryption::NotOffered).await;
    }
    let ended = match begun {
        Ok(StartupRequest::Session { .. })
            if host.tls.is_some() && !is_encrypted && !ends.peer.ip().to_canonical().is_loopback() =>
        {
            Err(PgError::fatal(
                "28000",
                "the connection must be encrypted: use sslmode=require or better",
            )
            .into())
        }
        Ok(purpose) => served((&host, login_by), (purpose, ends), &mut incoming, &mut out).await,
        Err(error) => Err(error),
    };
    if let Err(PgReplyError::Fault(fault)) = ended {
        tracing::debug!(code = fault.code, "dropping a PostgreSQL client: {}", fault.message);
        out.fault(&fault);
        // It may have gone, or read nothing.
        let _ = tokio::time::timeout(GRACE, out.send()).await;
    }
}

fn offered(host: &SessionManager) -> PgEncryption {
    match host.tls {
        Some(_) => PgEncryption::Offered,
        None => PgEncryption::NotOffered,
    }
}

/// What a client connects for.
async fn started(
    (host, login_by): (&SessionManager, Instant),
    incoming: &mut FrontendReader,
    out: &mut BackendWriter,
    encryption: PgEncryption,
) -> Result<StartupRequest, PgReplyError> {
    tokio::select! {
        biased;
        () = host.stop.cancelled() => Err(stopping().into()),
        purpose = tokio::time::timeout_at(login_by, startup::purpose(incoming, out, encryption)) => match purpose {
            Ok(purpose) => purpose,
            Err(_) => Err(PgError::protocol("the first message did not come in time").into()),
        },
    }
}

async fn served(
    (host, login_by): (&SessionManager, Instant),
    (purpose, ends): (StartupRequest, ConnectionEnds),
    incoming: &mut FrontendReader,
    out: &mut BackendWriter,
) -> Result<(), PgReplyError> {
    let settings = match purpose {
        StartupRequest::Session { settings } => settings,
        StartupRequest::Cancel { number, secret } => {
            if !host.cancel(number, secret) {
                tracing::debug!("a request to cancel names no session");
                let stopped = host.stop.cancelled();
                // Either is the end of it.
                let _ = tokio::time::timeout(WRONG_KEY_TIME, stopped).await;
            }
            return Ok(());
        }
        StartupRequest::Encryption | StartupRequest::Nothing => return Ok(()),
    };
    let user = settings.iter().find(|(name, _)| name == "user");
    let user = user.map_or("", |(_, user)| user.as_str());
    let authenticated = sasl::authenticate(&host.authenticator, (user, ends), incoming, out);
    let caller = tokio::select! {
        biased;
        () = host.stop.cancelled() => return Err(stopping().into()),
        caller = tokio::time::timeout_at(login_by, authenticated) => match caller {
            Ok(caller) => caller?,
            Err(_) => return Err(PgError::protocol("the password did not come in time").into()),
        },
    };
    let Ok(_place) = Arc::clone(&host.places).try_acquire_owned() else {
        let message = format!("sorry, too many clients already: {MAX_CONNECTIONS} are connected");
        return Err(PgError::fatal("53300", message).into());
    };
    let own = caller.usage.as_ref().map(|usage| usage.place(QuotaPlaces::Sessions));
    if own.as_ref().is_some_and(Option::is_none) {
        let message = format!(
            "this caller has {} connections, half of what there may be: close some",
            MAX_CONNECTIONS / 2
        );
        return Err(PgError::fatal("53300", message).into());
    }
    let registered = host.register();
    let (settings, refused) = SessionSettings::new(&settings);
    startup::welcome(out, (registered.number, registered.secret), &refused).await?;
    let slot = Arc::clone(&registered.slot);
    let mut session = PgSession::new((Arc::clone(&caller), &host.querier), slot, settings);
    loop {
        let frame = tokio::select! {
            biased;
            () = host.stop.cancelled() => return Err(stopping().into()),
            frame = tokio::time::timeout(IDLE_TIME, incoming.next()) => match frame {
                Ok(frame) => frame?,
                Err(_) => return Err(PgError::fatal("57P05", "the connection was idle for too long").into()),
            },
            () = session.give_up_late_portals() => continue,
            () = caller.revoked.cancelled() => return Err(sasl::revoked().into()),
        };
        let Some(frame) = frame else { return Ok(()) };
        sasl::still_known(&host.authenticator, &caller)?;
        let late = async {
            host.stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            answered = session.answer(frame, out) => if answered? == SessionStep::End {
                return Ok(());
            },
            () = incoming.gone() => return Ok(()),
            () = caller.revoked.cancelled() => return Err(sasl::revoked().into()),
            () = late => return Err(stopping().into()),
        }
    }
}

fn stopping() -> PgError {
    PgError::fatal("57P01", "the Mixer is shutting down")
}
