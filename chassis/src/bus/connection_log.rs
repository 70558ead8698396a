//! Connection log: logs each state change of a bus connection once.
//!
//! # Invariants
//!
//! - An outage is one warning at its start and one line with its length at its end; the attempts between are detail.
//! - What an attempt is refused with (credentials, encryption) is told once per outage: it does not heal by waiting.
//! - Before the first connection, the first failed attempt is the start of an outage.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{ClientError, ConnectErrorKind, Event, ServerError};
use model::HumanDuration;
use tokio::sync::watch;

use super::BusState;

/// Texts remembered per outage; what comes after so many different ones is detail.
const TOLD: usize = 8;

/// Handles the events of one connection: logs them, and notifies the watchers of its state.
#[derive(Debug)]
pub(super) struct ConnectionObserver {
    url: String,
    tell: watch::Sender<BusState>,
    outage: Mutex<Option<BusOutage>>,
}

#[derive(Debug)]
struct BusOutage {
    since: Instant,
    told: Vec<String>,
}

impl BusOutage {
    fn starts() -> Self {
        Self {
            since: Instant::now(),
            told: Vec::new(),
        }
    }

    /// Whether this is the first time.
    fn insert_message(&mut self, text: &str) -> bool {
        let is_new = self.told.len() < TOLD && !self.told.iter().any(|told| told == text);
        if is_new {
            self.told.push(text.to_owned());
        }
        is_new
    }
}

impl ConnectionObserver {
    /// For an address without credentials.
    pub(super) fn new(url: String, tell: watch::Sender<BusState>) -> Self {
        Self {
            url,
            tell,
            outage: Mutex::new(None),
        }
    }

    pub(super) fn on_event(&self, event: &Event) {
        let bus = self.url.as_str();
        match event {
            Event::Connected => {
                self.connected();
                self.tell.send_replace(BusState::Connected);
            }
            Event::Disconnected => {
                tracing::warn!(bus, "bus lost; reconnecting");
                *self.outage() = Some(BusOutage::starts());
                self.tell.send_replace(BusState::Disconnected);
            }
            Event::Closed => {
                tracing::debug!(bus, "bus connection closed");
                self.tell.send_replace(BusState::Closed);
            }
            Event::SlowConsumer(subscription) => {
                tracing::error!(bus, subscription, "slow consumer: a subscription lost messages");
            }
            Event::ServerError(error) => self.server_error(error),
            Event::ClientError(error) => self.client_error(error),
            Event::LameDuckMode => tracing::warn!(bus, "the bus server is shutting down"),
            Event::Draining => tracing::debug!(bus, "bus connection draining"),
        }
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Option<BusOutage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self) {
        let bus = self.url.as_str();
        match self.outage().take() {
            Some(outage) => {
                let millis = u64::try_from(outage.since.elapsed().as_millis()).unwrap_or(u64::MAX);
                let after = HumanDuration::from(Duration::from_millis(millis));
                tracing::info!(bus, %after, "bus connected again");
            }
            None => tracing::info!(bus, "bus connected"),
        }
    }

    fn server_error(&self, error: &ServerError) {
        let bus = self.url.as_str();
        let text = error.to_string();
        if !self.outage().as_mut().is_none_or(|outage| outage.insert_message(&text)) {
            tracing::debug!(bus, %error, "the bus reports an error");
        } else if matches!(error, ServerError::AuthorizationViolation) {
            tracing::error!(bus, "the bus refuses our credentials");
        } else {
            tracing::error!(bus, %error, "the bus reports an error");
        }
    }

    fn client_error(&self, error: &ClientError) {
        let bus = self.url.as_str();
        let is_connected = *self.tell.borrow() == BusState::Connected;
        if !is_connected {
            // What the last attempt met.
            let met = if is_refusal(error) {
                BusState::Refused
            } else {
                BusState::Disconnected
            };
            self.tell
                .send_if_modified(|state| *state != BusState::Closed && std::mem::replace(state, met) != met);
        }
        if is_connected {
            tracing::warn!(bus, %error, "bus client");
            return;
        }
        let mut outage = self.outage();
        let first = outage.is_none();
        let is_new = outage
            .get_or_insert_with(BusOutage::starts)
            .insert_message(&error.to_string());
        drop(outage);
        if first {
            tracing::warn!(bus, %error, "cannot reach the bus yet; retrying");
        } else if is_new && !is_absence(error) {
            tracing::warn!(bus, %error, "the bus rejects our credentials; retrying");
        } else {
            tracing::debug!(bus, %error, "not connected yet");
        }
    }
}

/// Whether the server does not know us.
fn is_refusal(error: &ClientError) -> bool {
    let refusals = [
        ConnectErrorKind::AuthorizationViolation,
        ConnectErrorKind::Authentication,
    ];
    matches!(error, ClientError::Other(text) if refusals.iter().any(|kind| kind.to_string() == *text))
}

/// Whether an attempt failed because nothing answered there, which is what an outage is.
fn is_absence(error: &ClientError) -> bool {
    let absences = [ConnectErrorKind::Io, ConnectErrorKind::TimedOut, ConnectErrorKind::Dns];
    matches!(error, ClientError::Other(text) if absences.iter().any(|kind| kind.to_string() == *text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io;
    use std::sync::Arc;

    use super::*;

    /// Takes what is logged.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines logged from info up while a connection sees these events.
    fn lines(events: &[Event]) -> Vec<String> {
        let heard = Heard::default();
        let to = heard.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let observer = ConnectionObserver::new("nats://here".to_owned(), watch::channel(BusState::Disconnected).0);
            events.iter().for_each(|event| observer.on_event(event));
        });
        let bytes = heard.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn failed(kind: ConnectErrorKind) -> Event {
        Event::ClientError(ClientError::Other(kind.to_string()))
    }

    #[test]
    fn an_outage_is_logged_when_it_starts_and_when_it_ends() {
        let mut events = vec![Event::Connected, Event::Disconnected];
        events.extend((0..50).map(|_| failed(ConnectErrorKind::Io)));
        events.extend([failed(ConnectErrorKind::TimedOut), Event::Connected]);
        let lines = lines(&events);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(
            lines[0].trim_start().starts_with("INFO bus connected bus="),
            "{lines:#?}"
        );
        assert!(lines[1].contains("WARN bus lost; reconnecting"), "{lines:#?}");
        assert!(
            lines[2].contains("INFO bus connected again") && lines[2].contains("after="),
            "{lines:#?}"
        );
    }

    #[test]
    fn an_unreachable_bus_is_logged_once() {
        let lines = lines(&[
            failed(ConnectErrorKind::Io),
            failed(ConnectErrorKind::Io),
            failed(ConnectErrorKind::Dns),
            Event::Connected,
        ]);
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].contains("WARN") && lines[0].contains("IO error"), "{lines:#?}");
    }

    #[test]
    fn a_refusal_during_an_outage_is_logged_once() {
        let refused = || failed(ConnectErrorKind::AuthorizationViolation);
        let outage = || [Event::Disconnected, failed(ConnectErrorKind::Io), refused(), refused()];
        let told = |events: &[Event]| {
            let lines = lines(events);
            lines.iter().filter(|line| line.contains("authorization")).count()
        };
        assert_eq!(told(&[&[Event::Connected], outage().as_slice()].concat()), 1);
        let twice = [
            &[Event::Connected],
            outage().as_slice(),
            &[Event::Connected],
            outage().as_slice(),
        ]
        .concat();
        assert_eq!(told(&twice), 2);
    }

    #[test]
    fn rejected_credentials_are_distinguished_from_an_unreachable_server() {
        let (tell, state) = watch::channel(BusState::Disconnected);
        let observer = ConnectionObserver::new("nats://here".to_owned(), tell);
        for (event, met) in [
            (failed(ConnectErrorKind::AuthorizationViolation), BusState::Refused),
            (failed(ConnectErrorKind::Io), BusState::Disconnected),
            (Event::Connected, BusState::Connected),
            (failed(ConnectErrorKind::AuthorizationViolation), BusState::Connected),
            (Event::Disconnected, BusState::Disconnected),
            (failed(ConnectErrorKind::AuthorizationViolation), BusState::Refused),
        ] {
            observer.on_event(&event);
            assert_eq!(*state.borrow(), met, "{event}");
        }
    }

    #[test]
    fn each_error_of_an_open_connection_is_logged() {
        let error = || Event::ClientError(ClientError::Other("payload".to_owned()));
        assert_eq!(lines(&[Event::Connected, error(), error()]).len(), 3);
    }
}
