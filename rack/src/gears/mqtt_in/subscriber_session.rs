//! The session of `mqtt_in` at the broker, over its connections.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gear_spec::mqtt_in::MqttInConfig;
use model::trace_context::RemoteContext;
use model::{Attributes, HumanDuration, Level};

use super::packet_batch::{PacketBatch, SubscribeAnswer};
use super::packet_ids::ReceivedPacketIds;
use crate::deadline::sleep_until_deadline;
use crate::gears::mqtt::{
    BrokerConnection, BrokerEndpoint, BrokerPacket, BrokerRefusal, KeepAlive, PublishPacket, QosLevel, SessionOptions,
    TopicSubscription, is_refusal, subscribe,
};
use crate::gears::{GearContext, GearSendError};
use crate::spool::SourceCheckpoint;

/// How long what has arrived may take to become durable when the gear stops.
const GRACE: Duration = Duration::from_millis(500);
/// The packet identifier of the subscriptions.
const SUBSCRIBE_ID: u16 = 1;
/// The longest content type that is carried along.
const MAX_CONTENT_TYPE: usize = 256;
/// Why a connection ends whose messages are not acknowledged.
const NOT_KEPT: &str = "received messages could not be stored and will be redelivered";

/// See the module.
pub(super) struct SubscriberSession<'a> {
    cx: &'a Arc<GearContext>,
    config: &'a MqttInConfig,
    endpoint: &'a BrokerEndpoint,
    ids: ReceivedPacketIds,
    /// Until when the broker may send nothing before it answers the subscriptions.
    subscribe_deadline: Option<tokio::time::Instant>,
}

impl<'a> SubscriberSession<'a> {
    pub(super) const fn new(
        cx: &'a Arc<GearContext>,
        config: &'a MqttInConfig,
        endpoint: &'a BrokerEndpoint,
        ids: ReceivedPacketIds,
    ) -> Self {
        Self {
            cx,
            config,
            endpoint,
            ids,
            subscribe_deadline: None,
        }
    }

    /// Connects again and again until the gear stops.
    pub(super) async fn run(&mut self) {
        let mut backoff = self.endpoint.backoff();
        loop {
            let born = Instant::now();
            let Err(why) = self.run_connection().await else {
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
    async fn run_connection(&mut self) -> Result<(), String> {
        let mut connection = tokio::select! {
            opened = self.open() => opened?,
            () = self.cx.stopping() => return Ok(()),
        };
        if connection.connected.session_present {
            self.ids.resume();
        } else {
            self.forget().await?;
        }
        let mut keep_alive = connection.keep_alive();
        let mut out = Vec::new();
        let topics = self.config.topics.iter().map(|topic| TopicSubscription {
            filter: &topic.filter,
            qos: topic.qos,
        });
        subscribe(self.endpoint.version, SUBSCRIBE_ID, topics, &mut out);
        connection.send(&out).await?;
        let within = self.endpoint.connect_timeout;
        self.subscribe_deadline = Some(tokio::time::Instant::now() + within);
        loop {
            let packets = tokio::select! {
                packets = connection.next() => packets?,
                () = keep_alive.ping_due() => {
                    out.clear();
                    keep_alive.ping(&mut out)?;
                    connection.send(&out).await?;
                    continue;
                }
                () = sleep_until_deadline(self.subscribe_deadline) => {
                    return Err(format!("the broker does not answer the subscriptions within {within:?}"));
                }
                () = self.cx.stopping() => {
                    connection.close().await;
                    return Ok(());
                }
            };
            keep_alive.heard();
            self.take(packets, &mut connection, &mut keep_alive).await?;
            // The answer may have waited behind what was passed on.
            let again = self.subscribe_deadline.map(|_| tokio::time::Instant::now() + within);
            self.subscribe_deadline = again;
        }
    }

    async fn open(&self) -> Result<BrokerConnection, String> {
        let options = SessionOptions {
            is_clean: self.endpoint.session_expiry == 0,
            session_expiry: self.endpoint.session_expiry,
            receive_maximum: self.config.receive_maximum,
            max_message: self.cx.limits().max_payload_size(),
        };
        let connection = BrokerConnection::open(self.endpoint, options).await?;
        let session = if connection.connected.session_present {
            "its session was resumed"
        } else {
            "a new session was started"
        };
        self.cx.log(
            Level::Info,
            format!("connected to {}, {session}", self.endpoint.address),
        );
        Ok(connection)
    }

    /// Forgets the identifiers durably: they mean nothing in a new session, and none are noted while the port is hot.
    pub(super) async fn forget(&mut self) -> Result<(), String> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let mut ids = self.ids.clone();
        ids.clear();
        let note = ids.has_note(self.cx).then(|| ids.note());
        if !self.cx.commit_together(note, std::future::ready(())).await {
            return Err(NOT_KEPT.to_owned());
        }
        self.ids = ids;
        Ok(())
    }

    /// Passes on what has come and acknowledges it.
    async fn take(
        &mut self,
        packets: Vec<BrokerPacket>,
        connection: &mut BrokerConnection,
        keep_alive: &mut KeepAlive,
    ) -> Result<(), String> {
        // Until all of it is durable, it has not arrived.
        let mut ids = self.ids.clone();
        let batch = PacketBatch::sort(packets, &mut ids);
        let mut granted = Ok(());
        if let Some(answer) = &batch.subscribed {
            granted = self.check_granted(answer);
            self.subscribe_deadline = None;
        }
        for lost in &batch.too_long {
            let most = self.cx.limits().max_payload_size();
            self.cx
                .count_lost(1, &format!("{lost}, more than max_payload_size allows here, {most}"));
        }
        let is_noted = self.cx.is_published("out") && !ids.has_same_ids(&self.ids);
        let note = is_noted.then(|| ids.note());
        let once = batch
            .arrived
            .iter()
            .filter(|message| message.qos == QosLevel::AtMostOnce);
        let once = u64::try_from(once.count()).unwrap_or(u64::MAX);
        let (is_kept, pinged) = self.pass_on(batch.arrived, note, connection, keep_alive).await;
        if !is_kept {
            if once > 0 {
                self.cx
                    .count_lost(once, "messages of QoS 0 could not be kept, and do not come again");
            }
            return Err(NOT_KEPT.to_owned());
        }
        self.ids = ids;
        pinged?;
        if !batch.answers.is_empty() {
            connection.send(&batch.answers).await?;
        }
        granted?;
        batch.end.map_or(Ok(()), Err)
    }

    /// Lets messages leave; true once they and the note are durable. Signs of life go on meanwhile; in words why they cannot.
    async fn pass_on(
        &self,
        arrived: Vec<PublishPacket>,
        note: Option<SourceCheckpoint>,
        connection: &mut BrokerConnection,
        keep_alive: &mut KeepAlive,
    ) -> (bool, Result<(), String>) {
        let mut is_kept = true;
        let sending = async {
            for message in arrived {
                is_kept = is_kept && self.emit(message).await;
            }
        };
        let mut pinged = Ok(());
        let is_durable = {
            let mut leaving = pin!(self.cx.commit_received("out", note, sending));
            let mut pinging = pin!(keep_pinging(connection, keep_alive));
            loop {
                tokio::select! {
                    biased;
                    is_durable = &mut leaving => break is_durable,
                    () = self.cx.stopping() => {
                        break tokio::time::timeout(GRACE, leaving).await.unwrap_or(false);
                    }
                    // What is on its way becomes durable all the same.
                    why = &mut pinging, if pinged.is_ok() => pinged = Err(why),
                }
            }
        };
        keep_alive.heard();
        (is_durable && is_kept, pinged)
    }

    /// Sends a message on; false if it could not be kept. Another refusal has been counted and reported, and the next one may pass.
    async fn emit(&self, message: PublishPacket) -> bool {
        let began = Instant::now();
        let properties = &message.properties;
        let caller = RemoteContext::read(|name| {
            let values = properties.user.iter().filter(|(key, _)| key == name);
            let values: Vec<_> = values.map(|(_, value)| value.as_bytes()).collect();
            values.into_iter()
        });
        let meta = facts(&message);
        let made = self.cx.make(caller.as_ref(), meta, message.payload);
        let parent = caller.map(|caller| caller.parent.span_id);
        let span = self.cx.open_span(&made, parent, began);
        span.set_messaging("mqtt", "consumer", &message.topic);
        let sent = span.scope(self.cx.send("out", made)).await;
        span.set_outcome(&sent);
        !matches!(sent, Err(GearSendError::NotKept))
    }

    /// Whether the broker granted what was asked for.
    fn check_granted(&self, answer: &SubscribeAnswer) -> Result<(), String> {
        let topics = &self.config.topics;
        if answer.id != SUBSCRIBE_ID || answer.codes.len() != topics.len() {
            return Err("the broker answers other subscriptions than there are".to_owned());
        }
        for (topic, &code) in topics.iter().zip(&answer.codes) {
            let filter = &topic.filter;
            if is_refusal(code) {
                let text = answer.text.clone();
                let refusal = BrokerRefusal { code, text };
                return Err(format!("the broker refuses the subscription to {filter:?}: {refusal}"));
            }
            if code < u8::from(topic.qos) {
                let text = format!("the broker grants only QoS {code} for {filter:?}");
                self.cx.log(Level::Warn, text);
            }
        }
        self.cx
            .log(Level::Info, format!("subscribed to {} topics", topics.len()));
        Ok(())
    }
}

/// Sends signs of life while nothing is read; in words why no more.
async fn keep_pinging(connection: &mut BrokerConnection, keep_alive: &mut KeepAlive) -> String {
    let mut out = Vec::new();
    loop {
        keep_alive.ping_due().await;
        // Whether the broker lives is seen when something is read.
        keep_alive.heard();
        out.clear();
        if let Err(why) = keep_alive.ping(&mut out) {
            return why;
        }
        if let Err(end) = connection.send(&out).await {
            return end.to_string();
        }
    }
}

/// What is known of a message.
fn facts(message: &PublishPacket) -> Attributes {
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
