//! The session of `mqtt_in` at the broker, over its connections.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Attributes, HumanDuration, Level};

use super::batch::Batch;
use super::config::{MqttIn, Topic};
use super::receipts::Receipts;
use crate::gears::mqtt::{Connection, Endpoint, KeepAlive, Packet, Publish, Start, is_refusal, said, subscribe};
use crate::gears::traceparent::TraceParent;
use crate::gears::{Context, Refused};
use crate::telemetry::Checkpoint;

/// How long what has arrived may take to become durable when the gear stops.
const GRACE: Duration = Duration::from_millis(500);
/// The longest content type that is carried along.
const MAX_CONTENT_TYPE: usize = 256;
/// The user property that has the trace, as the header of HTTP.
const TRACEPARENT: &str = "traceparent";
/// Why a connection ends whose messages are not acknowledged.
const NOT_KEPT: &str = "what has come could not be kept and comes again";

/// See the module.
pub(super) struct Session<'a> {
    cx: &'a Arc<Context>,
    config: &'a MqttIn,
    endpoint: &'a Endpoint,
    receipts: Receipts,
}

impl<'a> Session<'a> {
    pub(super) const fn new(
        cx: &'a Arc<Context>,
        config: &'a MqttIn,
        endpoint: &'a Endpoint,
        receipts: Receipts,
    ) -> Self {
        Self {
            cx,
            config,
            endpoint,
            receipts,
        }
    }

    /// Connects again and again until the gear stops.
    pub(super) async fn keep_up(&mut self) {
        let mut backoff = self.endpoint.backoff();
        loop {
            let born = Instant::now();
            let Err(why) = self.converse().await else {
                return;
            };
            if self.cx.is_stopping() {
                return;
            }
            let pause = backoff.after(born.elapsed());
            self.cx
                .error(format!("{why}; trying again in {}", HumanDuration::from(pause)));
            tokio::select! {
                () = self.cx.stopping() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One connection, until the gear stops; in words what else has ended it.
    async fn converse(&mut self) -> Result<(), String> {
        let mut connection = tokio::select! {
            opened = self.open() => opened?,
            () = self.cx.stopping() => return Ok(()),
        };
        if !connection.connected.session_present {
            self.forget().await?;
        }
        let mut keep_alive = connection.keep_alive();
        let mut out = Vec::new();
        let topics = self.config.topics.iter().map(Topic::subscription);
        subscribe(self.endpoint.version, 1, topics, &mut out);
        connection.send(&out).await?;
        loop {
            let packets = tokio::select! {
                packets = connection.next() => packets?,
                () = keep_alive.due() => {
                    out.clear();
                    keep_alive.beat(&mut out)?;
                    connection.send(&out).await?;
                    continue;
                }
                () = self.cx.stopping() => {
                    connection.close().await;
                    return Ok(());
                }
            };
            keep_alive.heard();
            self.take(packets, &mut connection, &mut keep_alive).await?;
        }
    }

    async fn open(&self) -> Result<Connection, String> {
        let start = Start {
            is_clean: self.endpoint.session_expiry == 0,
            session_expiry: self.endpoint.session_expiry,
            receive_maximum: self.config.receive_maximum,
            max_message: self.cx.limits().max_payload_size(),
        };
        let connection = Connection::open(self.endpoint, start).await?;
        let session = if connection.connected.session_present {
            "its session goes on"
        } else {
            "a new session begins"
        };
        self.cx.log(
            Level::Info,
            format!("connected to {}, {session}", self.endpoint.address),
        );
        Ok(connection)
    }

    /// A new session has begun: the identifiers of the old one mean nothing any more.
    async fn forget(&mut self) -> Result<(), String> {
        if self.receipts.is_empty() {
            return Ok(());
        }
        let mut receipts = self.receipts.clone();
        receipts.clear();
        let note = self.cx.is_published("out").then(|| receipts.note(self.cx));
        if !self.cx.leave_together(note, std::future::ready(())).await {
            return Err(NOT_KEPT.to_owned());
        }
        self.receipts = receipts;
        Ok(())
    }

    /// Passes on what has come and acknowledges it.
    async fn take(
        &mut self,
        packets: Vec<Packet>,
        connection: &mut Connection,
        keep_alive: &mut KeepAlive,
    ) -> Result<(), String> {
        // Until all of it is durable, it has not arrived.
        let mut receipts = self.receipts.clone();
        let batch = Batch::sort(packets, &mut receipts)?;
        if let Some(codes) = &batch.subscribed {
            self.judge(codes)?;
        }
        for lost in &batch.too_long {
            let most = self.cx.limits().max_payload_size();
            self.cx
                .lost(1, &format!("{lost}, more than max_payload_size allows here, {most}"));
        }
        let is_noted = self.cx.is_published("out") && receipts != self.receipts;
        let note = is_noted.then(|| receipts.note(self.cx));
        if !self.pass_on(batch.arrived, note, connection, keep_alive).await {
            return Err(NOT_KEPT.to_owned());
        }
        self.receipts = receipts;
        if !batch.answers.is_empty() {
            connection.send(&batch.answers).await?;
        }
        batch.disconnected.map_or(Ok(()), Err)
    }

    /// Lets messages leave; true once they and the note are durable.
    async fn pass_on(
        &self,
        arrived: Vec<Publish>,
        note: Option<Checkpoint>,
        connection: &mut Connection,
        keep_alive: &mut KeepAlive,
    ) -> bool {
        let mut is_kept = true;
        let sending = async {
            for message in arrived {
                is_kept = is_kept && self.emit(message).await;
            }
        };
        let is_durable = {
            let mut leaving = pin!(self.cx.leave_arrived("out", note, sending));
            loop {
                tokio::select! {
                    biased;
                    is_durable = &mut leaving => break is_durable,
                    () = self.cx.stopping() => {
                        break tokio::time::timeout(GRACE, leaving).await.unwrap_or(false);
                    }
                    () = keep_alive.due() => {
                        // Whether the broker lives is seen when something is read.
                        keep_alive.heard();
                        let mut out = Vec::new();
                        if keep_alive.beat(&mut out).is_ok() {
                            connection.send(&out).await.ok();
                        }
                    }
                }
            }
        };
        keep_alive.heard();
        is_durable && is_kept
    }

    /// Sends a message on; false if it could not be kept. Another refusal has been counted and reported, and the next one may pass.
    async fn emit(&self, message: Publish) -> bool {
        let began = Instant::now();
        let properties = &message.properties;
        let trace = properties.user.iter().find(|(name, _)| name == TRACEPARENT);
        let parent = trace.and_then(|(_, value)| TraceParent::parse(value));
        let meta = facts(&message);
        let made = self.cx.make(parent, meta, message.payload);
        let sent = self
            .cx
            .emit("out", made, parent.map(|parent| parent.span_id), began)
            .await;
        !matches!(sent, Err(Refused::NotKept))
    }

    /// Whether the broker granted what was asked for.
    fn judge(&self, codes: &[u8]) -> Result<(), String> {
        for (topic, code) in self.config.topics.iter().zip(codes) {
            let filter = &topic.filter;
            if is_refusal(*code) {
                return Err(format!(
                    "the broker refuses the subscription to {filter:?}: {}",
                    said(*code)
                ));
            }
            if *code < u8::from(topic.qos) {
                let text = format!("the broker grants only QoS {code} for {filter:?}");
                self.cx.log(Level::Warn, text);
            }
        }
        self.cx
            .log(Level::Info, format!("subscribed to {} topics", codes.len()));
        Ok(())
    }
}

/// What is known of a message.
fn facts(message: &Publish) -> Attributes {
    let mut meta = Attributes::new()
        .with("mqtt.topic", message.topic.as_str())
        .with("mqtt.qos", u8::from(message.qos))
        .with("mqtt.retain", message.retain);
    let content_type = message.properties.content_type.as_deref();
    if let Some(content_type) = content_type.filter(|text| text.len() <= MAX_CONTENT_TYPE) {
        meta.set("content_type", content_type);
    }
    for (name, value) in &message.properties.user {
        meta.set(&format!("mqtt.property.{name}"), value.as_str());
    }
    meta
}
