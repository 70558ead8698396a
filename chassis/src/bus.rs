//! The connection to the bus: bounded first connect, endless reconnects, a preflight that says what is wrong, and
//! requests whose answers are judged.
//!
//! # Invariants
//!
//! - A connection that was up once is never given up; its state is a watch channel.
//! - What only arrives as an event of the client (refused subjects, slow consumers) is logged, once (`outage`).
//! - Addresses are shown without credentials.
//! - A question is asked over a connection that stands, or not at all ([`BusConnection::ask`]): the client would keep it for the next one,
//!   and who gets it then cannot tell it from a copy. Only what may come late is kept ([`BusConnection::ask_over_outages`]).
//!
//! # Not here
//!
//! The server process and the streams (`mixer`), what is published (`rack`), what is consumed (`ingest`).

mod bus_trust;
mod connect_attempts;
mod connection_log;
pub mod fast_batch;
mod preflight;
pub mod sealed_reply;
mod user_jwt;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr, StatusCode};
use futures::StreamExt;
use model::HumanDuration;
use tokio::sync::watch;

pub use self::bus_trust::BusTrust;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use self::bus_trust::fuzz_chain;
pub use self::connect_attempts::AttemptHold;
use self::connect_attempts::ConnectAttempts;
use self::connection_log::ConnectionObserver;
pub use self::user_jwt::UserJwt;
use crate::Error;
use crate::config::{SecretString, bus_urls, without_credentials};

/// How to connect.
#[derive(Clone)]
pub struct BusOptions {
    /// The address; more than one, comma separated, for a cluster.
    pub url: String,
    /// The domain of the persistent streams.
    pub domain: String,
    /// Who we are, for the server's own listings.
    pub name: String,
    /// The token presented to the server.
    pub token: Option<SecretString>,
    /// The seed of the key with which the server may know us; one that asks for none takes no notice.
    pub nkey: Option<SecretString>,
    /// The JWT that goes with that key, where a server in operator mode asks for one.
    pub jwt: UserJwt,
    /// The user that we are without a key, with the password that `token` is.
    pub user: Option<String>,
    /// Whom TLS trusts; none for a connection without it, unless the address or the server asks for it.
    pub trust: Option<BusTrust>,
    /// The time one attempt to connect may take.
    pub connect_timeout: Duration,
    /// The time before the second attempt to reconnect; later ones wait longer.
    pub reconnect_wait: Duration,
    /// The prefix of the subjects replies come to; `None` takes the client's.
    pub inbox_prefix: Option<String>,
    /// Acknowledgements of published messages that may be outstanding.
    pub max_acks_pending: usize,
}

impl std::fmt::Debug for BusOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusOptions")
            .field("url", &without_credentials(&self.url))
            .field("domain", &self.domain)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl BusOptions {
    /// The usual options for an address and a domain.
    #[must_use]
    pub fn new(url: impl Into<String>, domain: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            domain: domain.into(),
            name: name.into(),
            token: None,
            nkey: None,
            jwt: UserJwt::default(),
            user: None,
            trust: None,
            connect_timeout: Duration::from_secs(10),
            reconnect_wait: Duration::from_secs(1),
            inbox_prefix: None,
            max_acks_pending: 256,
        }
    }
}

/// Whether the bus is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusState {
    /// Not yet, or not any more; attempts go on.
    Disconnected,
    /// It is there and does not know us, or not any more; attempts go on.
    Refused,
    /// Yes.
    Connected,
    /// Not any more, on our own wish.
    Closed,
}

/// A connection to the bus. Clones share it.
#[derive(Debug, Clone)]
pub struct BusConnection {
    /// The client, for subjects outside every stream.
    pub client: Client,
    /// The persistent streams of our domain.
    pub js: jetstream::Context,
    options: Arc<BusOptions>,
    attempts: ConnectAttempts,
    state: watch::Receiver<BusState>,
}

impl BusConnection {
    /// Connects; the first attempt must succeed within `connect_timeout`, later ones go on for ever.
    ///
    /// # Errors
    /// If the bus cannot be reached or refuses us.
    pub async fn connect(options: BusOptions) -> Result<Self, Error> {
        let within = options.connect_timeout;
        let url = without_credentials(&options.url);
        let attempts = ConnectAttempts::new(options.reconnect_wait);
        match tokio::time::timeout(within, Self::open(options, false, attempts)).await {
            Ok(result) => result,
            Err(_) => Err(Error::BusUnreachable {
                url,
                reason: format!("no answer within {}", HumanDuration::from(within)),
            }),
        }
    }

    /// Returns at once and connects in the background, for ever. Await [`BusConnection::wait_connected`] before the first use.
    ///
    /// # Errors
    /// If the address does not parse.
    pub async fn connect_forever(options: BusOptions) -> Result<Self, Error> {
        let attempts = ConnectAttempts::new(options.reconnect_wait);
        Self::open(options, true, attempts).await
    }

    /// The same, but no attempt is made before the hold is dropped.
    ///
    /// # Errors
    /// If the address does not parse.
    pub async fn connect_later(options: BusOptions) -> Result<(Self, AttemptHold), Error> {
        let attempts = ConnectAttempts::new(options.reconnect_wait);
        let hold = attempts.hold();
        Ok((Self::open(options, true, attempts).await?, hold))
    }

    async fn open(options: BusOptions, forever: bool, attempts: ConnectAttempts) -> Result<Self, Error> {
        let options = Arc::new(options);
        let (tell, state) = watch::channel(BusState::Disconnected);
        let addresses = addresses(&options)?;
        let mut connect = connect_options(Arc::clone(&options), attempts.clone(), tell.clone());
        if addresses.iter().all(ServerAddr::tls_required) {
            connect = connect.require_tls(true);
        }
        if forever {
            connect = connect.retry_on_initial_connect();
        }
        let client = connect
            .connect(addresses)
            .await
            .map_err(|error| connect_error(&options, &error))?;
        if !forever {
            // The event of the first connect is on its way; what is known already must be visible now.
            tell.send_replace(BusState::Connected);
        }
        let js = jetstream::context::ContextBuilder::new()
            .domain(&options.domain)
            .timeout(Duration::from_secs(10))
            .ack_timeout(Duration::from_secs(30))
            .max_ack_inflight(options.max_acks_pending)
            .backpressure_on_inflight(true)
            .build(client.clone());
        Ok(Self {
            client,
            js,
            options,
            attempts,
            state,
        })
    }

    /// What the connection was made with.
    #[must_use]
    pub fn options(&self) -> &BusOptions {
        &self.options
    }

    /// The state now and at every change.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<BusState> {
        self.state.clone()
    }

    /// Whether the bus tells its users apart by their keys, as of its last greeting.
    #[must_use]
    pub fn knows_users(&self) -> bool {
        !self.client.server_info().nonce.is_empty()
    }

    /// Waits until the bus is there.
    pub async fn wait_connected(&self) {
        let mut state = self.state.clone();
        // The sender lives in the client's event callback, as long as the client.
        let _ = state.wait_for(|state| *state == BusState::Connected).await;
    }

    /// Waits until the bus is there. False if it does not know us.
    pub async fn wait_connected_or_refused(&self) -> bool {
        let mut state = self.state.clone();
        let decided = state.wait_for(|state| matches!(state, BusState::Connected | BusState::Refused));
        decided.await.is_ok_and(|state| *state == BusState::Connected)
    }

    /// Waits until the bus does not know us any more.
    pub async fn wait_refused(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| *state == BusState::Refused).await.is_err() {
            std::future::pending().await
        }
    }

    /// Holds back attempts to connect while it is known that the bus would refuse them; the next one comes as soon as the hold is dropped.
    pub fn hold_attempts(&self) -> AttemptHold {
        self.attempts.hold()
    }

    /// Connects anew, to show the JWT that we hold now; returns when the bus has decided, or after this time.
    pub async fn show_jwt(&self, within: Duration) {
        let mut state = self.state.clone();
        state.mark_unchanged();
        let shown = async {
            if self.client.force_reconnect().await.is_ok() && state.changed().await.is_ok() {
                self.wait_connected_or_refused().await;
            }
        };
        // Later attempts go on by themselves.
        let _ = tokio::time::timeout(within, shown).await;
    }

    /// Asks the bus whether our domain's persistent streams are there.
    ///
    /// # Errors
    /// [`Error::NoStreams`], [`Error::DomainMismatch`], [`Error::BusDenied`], [`Error::BusUnreachable`], or
    /// [`Error::BusFault`] with the server's words.
    pub async fn preflight(&self) -> Result<(), Error> {
        preflight::run(self).await
    }

    /// The same for those whom a bus that knows its users does not let ask for streams yet: as far as its greeting says.
    ///
    /// # Errors
    /// If the server has another domain.
    pub fn check_greeting(&self) -> Result<(), Error> {
        preflight::check_greeting(self)
    }

    /// Sends a request and waits for an answer that `accept` takes. Others are ignored: anyone who receives a request can answer it.
    ///
    /// # Errors
    /// If the bus is not there or goes away, nobody listens, or no such answer comes in time.
    pub async fn ask<R>(
        &self,
        subject: &str,
        question: Vec<u8>,
        within: Duration,
        accept: impl FnMut(&[u8]) -> Option<R>,
    ) -> Result<R, Error> {
        let mut state = self.state.clone();
        let asked = async {
            // A connection that broke unheard is noticed here, before the client keeps the question for the next one.
            let flushed = self.client.flush().await;
            flushed.map_err(|error| Error::Request {
                subject: subject.to_owned(),
                reason: error.to_string(),
            })?;
            self.exchange(subject, question, accept).await
        };
        tokio::select! {
            biased;
            _ = state.wait_for(|state| *state != BusState::Connected) => Err(Error::NotConnected {
                subject: subject.to_owned(),
            }),
            answered = in_time(subject, within, asked) => answered,
        }
    }

    /// The same for a request that may be delivered late: where the connection is lost it waits for the next one.
    ///
    /// # Errors
    /// If nobody listens, or no such answer comes in time.
    pub async fn ask_over_outages<R>(
        &self,
        subject: &str,
        question: Vec<u8>,
        within: Duration,
        accept: impl FnMut(&[u8]) -> Option<R>,
    ) -> Result<R, Error> {
        in_time(subject, within, self.exchange(subject, question, accept)).await
    }

    async fn exchange<R>(
        &self,
        subject: &str,
        question: Vec<u8>,
        mut accept: impl FnMut(&[u8]) -> Option<R>,
    ) -> Result<R, Error> {
        let cannot = |reason: String| Error::Request {
            subject: subject.to_owned(),
            reason,
        };
        let inbox = self.client.new_inbox();
        let answers = self.client.subscribe(inbox.clone()).await;
        let mut answers = answers.map_err(|error| cannot(error.to_string()))?;
        let sent = self
            .client
            .publish_with_reply(subject.to_owned(), inbox, question.into());
        sent.await.map_err(|error| cannot(error.to_string()))?;
        while let Some(answer) = answers.next().await {
            if answer.status == Some(StatusCode::NO_RESPONDERS) {
                return Err(Error::NoResponder {
                    subject: subject.to_owned(),
                });
            }
            if let Some(taken) = accept(&answer.payload) {
                return Ok(taken);
            }
        }
        Err(cannot("the connection was closed".to_owned()))
    }

    /// Sends what is buffered and closes the connection. Waits at most `within`; an unreachable bus cannot be notified.
    pub async fn close(&self, within: Duration) {
        let drain = async {
            if self.client.drain().await.is_ok() {
                let mut state = self.state.clone();
                let _ = state.wait_for(|state| *state == BusState::Closed).await;
            }
        };
        let _ = tokio::time::timeout(within, drain).await;
    }
}

async fn in_time<R>(
    subject: &str,
    within: Duration,
    answer: impl Future<Output = Result<R, Error>>,
) -> Result<R, Error> {
    tokio::time::timeout(within, answer).await.unwrap_or_else(|_| {
        Err(Error::NoReply {
            subject: subject.to_owned(),
            within: within.into(),
        })
    })
}

fn addresses(options: &BusOptions) -> Result<Vec<ServerAddr>, Error> {
    let parsed: Result<Vec<ServerAddr>, _> = bus_urls(&options.url).map(str::parse).collect();
    match parsed {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        _ => Err(Error::BusUrl {
            url: without_credentials(&options.url),
        }),
    }
}

/// Who we are, for the server.
fn authentication(options: Arc<BusOptions>) -> ConnectOptions {
    if let Some(seed) = options.nkey.clone() {
        return ConnectOptions::with_auth_callback(move |nonce| {
            std::future::ready(user_jwt::authenticate(&options, seed.expose(), &nonce))
        });
    }
    let token = options.token.as_ref().map(|token| token.expose().to_owned());
    match (&options.user, token) {
        (Some(user), Some(token)) => ConnectOptions::with_user_and_password(user.clone(), token),
        (None, Some(token)) => ConnectOptions::with_token(token),
        (_, None) => ConnectOptions::new(),
    }
}

fn connect_options(
    options: Arc<BusOptions>,
    attempts: ConnectAttempts,
    tell: watch::Sender<BusState>,
) -> ConnectOptions {
    let (jwt, due) = (options.jwt.clone(), attempts.clone());
    let observer = Arc::new(ConnectionObserver::new(without_credentials(&options.url), tell));
    let mut connect = authentication(Arc::clone(&options))
        .name(&options.name)
        .connection_timeout(options.connect_timeout)
        .request_timeout(Some(Duration::from_secs(10)))
        .ping_interval(Duration::from_secs(20))
        .max_reconnects(None)
        // They come in a greeting that anybody on the way may change, and are dialled in clear text.
        .ignore_discovered_servers()
        // The client chooses the servers, and goes through all of them.
        .reconnect_delay_callback(|_| Duration::ZERO)
        .reconnect_to_server_callback(move |_, _| {
            let due = due.clone().due();
            async move {
                due.await;
                None
            }
        })
        .event_callback(move |event| {
            if matches!(event, Event::Connected) {
                jwt.accepted();
                attempts.succeeded();
            }
            observer.on_event(&event);
            std::future::ready(())
        });
    if let Some(trust) = &options.trust {
        connect = trust.secure(connect);
    }
    if let Some(prefix) = &options.inbox_prefix {
        connect = connect.custom_inbox_prefix(prefix);
    }
    connect
}

fn connect_error(options: &BusOptions, error: &async_nats::ConnectError) -> Error {
    let url = without_credentials(&options.url);
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => Error::BusDenied { url },
        ConnectErrorKind::ServerParse => Error::BusUrl { url },
        _ => Error::BusUnreachable {
            url,
            reason: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod offline {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_bus_that_is_not_there_is_named_without_its_credentials() {
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut options = BusOptions::new(format!("nats://me:secret@{free}"), "flux", "test");
        options.connect_timeout = Duration::from_secs(5);
        let error = BusConnection::connect(options).await.unwrap_err();
        assert!(matches!(error, Error::BusUnreachable { .. }));
        let text = error.to_string();
        assert!(
            text.contains(&free.to_string()) && text.contains("snake.url") && !text.contains("secret"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up_within_the_timeout() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut options = BusOptions::new(format!("nats://{}", silent.local_addr().unwrap()), "flux", "test");
        options.connect_timeout = Duration::from_millis(100);
        let error = BusConnection::connect(options).await.unwrap_err();
        assert!(matches!(error, Error::BusUnreachable { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_bad_address_is_refused_before_any_attempt() {
        let error = BusConnection::connect_forever(BusOptions::new("", "flux", "test"))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::BusUrl { .. }));
    }
}
