//! The session with the broker: keeps a connection open and sends what waits.
//!
//! # Invariants
//!
//! - The first connection of a life begins a new session: one of before may know identifiers that are used again, and would take a new
//!   message for one that it has.
//! - Only QoS 2 needs the session later.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use model::{HumanDuration, Level};
use tokio::sync::mpsc;

use super::publish_window::{OutgoingPublish, PublishWindow};
use crate::deadline::sleep_until_deadline;
use crate::gears::GearContext;
use crate::gears::mqtt::{
    BrokerConnection, BrokerEndpoint, BrokerPacket, ConnectionEnd, MqttVersion, QosLevel, SessionOptions,
};

/// The most bytes of a message that comes; none is wanted.
const MAX_MESSAGE: usize = 64 * 1024;

/// What sends messages to one broker.
pub(super) struct PublisherSession {
    cx: Arc<GearContext>,
    endpoint: BrokerEndpoint,
    qos: QosLevel,
    retain: bool,
    waiting: mpsc::UnboundedReceiver<OutgoingPublish>,
    window: PublishWindow,
    /// Whether this life has a session at the broker.
    has_begun: bool,
}

impl PublisherSession {
    pub(super) fn new(
        cx: Arc<GearContext>,
        endpoint: BrokerEndpoint,
        (qos, retain): (QosLevel, bool),
        (waiting, window): (mpsc::UnboundedReceiver<OutgoingPublish>, PublishWindow),
    ) -> Self {
        Self {
            window,
            cx,
            endpoint,
            qos,
            retain,
            waiting,
            has_begun: false,
        }
    }

    /// Connects again and again until the gear's life ends.
    pub(super) async fn run(mut self) {
        let mut backoff = self.endpoint.backoff();
        loop {
            let born = Instant::now();
            let Err(why) = self.run_connection().await;
            self.window.end(&why);
            self.report_ended();
            let pause = backoff.after(born.elapsed());
            self.cx
                .error(format!("{why}; trying again in {}", HumanDuration::from(pause)));
            tokio::time::sleep(pause).await;
        }
    }

    /// One connection, until it ends.
    async fn run_connection(&mut self) -> Result<Infallible, ConnectionEnd> {
        let mut connection = self.open().await?;
        if let Some(lack) = connection.connected.lacks(self.qos, self.retain) {
            return Err(lack.into());
        }
        self.cx
            .log(Level::Info, format!("connected to {}", self.endpoint.address));
        let mut keep_alive = connection.keep_alive();
        let mut out = Vec::new();
        self.window.begin(&connection.connected, &mut out);
        loop {
            self.take_waiting();
            self.window.send(tokio::time::Instant::now(), &mut out);
            if !out.is_empty() {
                connection.send(&out).await?;
                out.clear();
                self.window.written();
            }
            self.report_ended();
            tokio::select! {
                packets = connection.next() => {
                    keep_alive.heard();
                    for packet in packets? {
                        self.take(packet, &mut out)?;
                    }
                }
                Some(outgoing) = self.waiting.recv(), if self.window.has_room() => self.window.push(outgoing),
                () = sleep_until_deadline(self.window.hold_until()), if self.window.hold_until().is_some() => {}
                () = keep_alive.ping_due() => keep_alive.ping(&mut out)?,
                // What the broker says is heard between two turns.
                () = std::future::ready(()), if self.window.has_more() => {}
            }
        }
    }

    /// Opens a connection, to a session that has nothing of an earlier life.
    async fn open(&mut self) -> Result<BrokerConnection, String> {
        let is_kept = self.qos == QosLevel::ExactlyOnce && self.endpoint.session_expiry > 0;
        let mut options = SessionOptions {
            is_clean: !self.has_begun || !is_kept,
            session_expiry: if is_kept { self.endpoint.session_expiry } else { 0 },
            receive_maximum: 1,
            max_message: MAX_MESSAGE,
        };
        let mut connection = BrokerConnection::open(&self.endpoint, options).await?;
        if self.endpoint.version == MqttVersion::V3 && is_kept && options.is_clean {
            // In 3.1.1 a session that begins anew is not kept: it takes another connection.
            connection.close().await;
            options.is_clean = false;
            connection = BrokerConnection::open(&self.endpoint, options).await?;
        }
        self.has_begun = true;
        Ok(connection)
    }

    /// Takes in what waits, as far as there is room.
    fn take_waiting(&mut self) {
        while self.window.has_room() {
            let Ok(outgoing) = self.waiting.try_recv() else {
                return;
            };
            self.window.push(outgoing);
        }
    }

    fn take(&mut self, packet: BrokerPacket, out: &mut Vec<u8>) -> Result<(), ConnectionEnd> {
        match packet {
            BrokerPacket::Acknowledged { kind, id, refusal } => {
                let now = tokio::time::Instant::now();
                Ok(self.window.answered((kind, id), refusal.as_ref(), now, out)?)
            }
            BrokerPacket::Disconnected(why) => Err(ConnectionEnd::Disconnected(why)),
            BrokerPacket::Connected(_) => Err("the broker accepts the connection a second time".to_owned().into()),
            // Nothing was subscribed to; what another client of this name did is not this gear's.
            BrokerPacket::Publish(_)
            | BrokerPacket::TooLong { .. }
            | BrokerPacket::Subscribed { .. }
            | BrokerPacket::Pong => Ok(()),
        }
    }

    /// Says what became of messages.
    fn report_ended(&mut self) {
        for (outgoing, result) in self.window.take_ended() {
            match (outgoing.done, result) {
                (Some(done), result) => drop(done.send(result)),
                (None, Err(rejection)) => outgoing.signal.in_scope(|| self.cx.reject(&rejection.reason)),
                (None, Ok(())) => {}
            }
        }
    }
}

impl Drop for PublisherSession {
    /// What does not come again is lost.
    fn drop(&mut self) {
        self.waiting.close();
        let waiting = std::iter::from_fn(|| self.waiting.try_recv().ok());
        let lost = self
            .window
            .drain()
            .chain(waiting)
            .filter(|outgoing| outgoing.done.is_none())
            .count();
        if lost > 0 {
            let why = format!("{lost} not acknowledged by the broker when the gear ended");
            self.cx.count_lost(u64::try_from(lost).unwrap_or(u64::MAX), &why);
        }
    }
}
