//! `mqtt_out`: publishes each message to a topic of an MQTT broker.
//!
//! ```text
//! in ─▶ topic, packet ─▶ queue ─▶ session ── PUBLISH, several ──▶ broker
//!  ▲                                 │
//!  └──── flush: taken, or refused ◀──┴── PUBACK, PUBCOMP ◀──────── broker
//! ```
//!
//! # Invariants
//!
//! - A message is taken when the broker has acknowledged it: PUBACK for QoS 1, PUBCOMP for QoS 2; QoS 0 when it is written, so that one
//!   at which the connection breaks may be written twice.
//! - A gear that stops waits once for [`LAST`]. What it could not send and what was not acknowledged comes again, or is counted as lost.
//! - Messages are sent in their order, several at a time ([`publish_window`]). While there is no broker they wait, however long.
//! - A message that the broker refuses for good is rejected. One that it refuses for now is sent again after a pause; so may those be that
//!   were already under way behind it, which overtake it then.
//! - A message can reach the broker twice where the Rack or this gear ends before it was acknowledged. A connection that breaks makes no second
//!   one of QoS 2, as long as the broker keeps the session.
//!
//! # Not here
//!
//! The protocol ([`super::mqtt`]). The connection ([`publisher_session`]). Refusals in version 3.1.1: it has none, and brokers drop such a message or end the connection.

mod publish_window;
mod publisher_session;
#[cfg(test)]
mod tests;
mod topic_selector;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::mqtt::{MqttVersion, is_text};
use gear_spec::mqtt_out::{MqttOutConfig, TopicSelector};
use model::MessageId;
use model::dead_letter::PortSide;
use model::gear_manifest;
use model::message::Message;
use model::trace_context::{TRACEPARENT, TRACESTATE, TraceParent};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot, oneshot::error::TryRecvError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::mqtt::{BrokerEndpoint, PacketProperties, PublishPacket};
use super::output_transaction::DeliveryGuarantee;
use super::trace_context::TraceContext;
use super::{Gear, GearContext, GearError, GearFuture, OpenSpan, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use publish_window::{OutgoingPublish, PublishRejection, PublishWindow};
use publisher_session::PublisherSession;
use topic_selector::topic_of;

/// How often it is asked what became of messages.
const HEAR_EVERY: Duration = Duration::from_millis(10);
/// How long the last acknowledgements of a life may take.
const LAST: Duration = Duration::from_millis(300);
/// The most bytes of messages that have not ended, unless one alone has more.
const MAX_BYTES: u32 = 16 << 20;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: MqttOutConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(MqttPublisher {
        topic: config.topic()?,
        config,
        endpoint: None,
        session: None,
        unheard: VecDeque::new(),
        asked: Instant::now(),
        end: None,
    })))
}

struct MqttPublisher {
    config: MqttOutConfig,
    topic: TopicSelector,
    /// Until the session begins.
    endpoint: Option<BrokerEndpoint>,
    session: Option<PublisherSessionHandle>,
    /// Messages of guaranteed wires, until it is heard what became of them.
    unheard: VecDeque<UnconfirmedPublish>,
    /// When that was asked last.
    asked: Instant,
    /// Until when a gear that stops waits for acknowledgements.
    end: Option<Instant>,
}

/// The session, which ends with this life of the gear.
struct PublisherSessionHandle {
    queue: mpsc::UnboundedSender<OutgoingPublish>,
    /// For messages that have not ended: as many as may be under way, and so many that wait.
    room: Arc<Semaphore>,
    most: u32,
    /// For their bytes.
    bytes: Arc<Semaphore>,
    _task: JoinSet<()>,
}

struct UnconfirmedPublish {
    port: &'static str,
    message: Box<Message>,
    heard: oneshot::Receiver<Result<(), PublishRejection>>,
}

impl PassiveGear for MqttPublisher {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let (broker, rack, policy) = (self.config.broker.clone(), cx.rack(), cx.policy().clone());
            let endpoint =
                tokio::task::spawn_blocking(move || BrokerEndpoint::of(&broker, rack.as_ref(), &policy)).await?;
            self.endpoint = Some(endpoint.map_err(GearError::Config)?);
            Ok(())
        }
        .boxed()
    }

    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            self.begin(cx);
            let InputMessage { port, message } = delivery;
            let packet = self.packet(&message)?;
            OpenSpan::current().set_messaging("mqtt", "producer", &packet.topic);
            let mut outgoing = OutgoingPublish::new(packet, TraceContext::of(&message));
            let heard = (DeliveryGuarantee::current() == DeliveryGuarantee::Again).then(|| outgoing.completion());
            self.queue(cx, outgoing).await?;
            let message = Box::new(message);
            self.unheard
                .extend(heard.map(|heard| UnconfirmedPublish { port, message, heard }));
            Ok(())
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let last = self.drain_deadline(cx);
            while let Some(UnconfirmedPublish { heard, .. }) = self.unheard.front_mut() {
                let heard = match heard.try_recv() {
                    Err(TryRecvError::Empty) if cx.is_draining() => match tokio::time::timeout_at(last, heard).await {
                        Ok(Ok(heard)) => heard,
                        // It comes again, to the next life or to the Rack's next run.
                        Ok(Err(_)) | Err(_) => break,
                    },
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Closed) => return Err(outside("the session ended")),
                    Ok(heard) => heard,
                };
                let Some(UnconfirmedPublish { port, message, .. }) = self.unheard.pop_front() else {
                    break;
                };
                if let Err(PublishRejection { reason, attempts }) = heard {
                    let text = format!("a message became a dead letter: {reason}");
                    TraceContext::of(&message).in_scope(|| {
                        cx.reject(&reason);
                        cx.error(text);
                    });
                    let buried = cx.dead_letter((port, PortSide::In), &message, (reason, attempts));
                    cx.commit_for(message.id, buried).await;
                }
            }
            if cx.is_draining() {
                self.drain(last).await;
            }
            self.asked = Instant::now();
            Ok(())
        }
        .boxed()
    }

    fn unfinished(&self) -> Option<MessageId> {
        Some(self.unheard.front()?.message.id)
    }

    fn wake_at(&self) -> Option<Instant> {
        let is_idle = self.session.is_some() && self.unheard.is_empty();
        (!is_idle).then(|| self.asked + HEAR_EVERY)
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        // What it is woken for is the flush, and the connection, which is there before the first message.
        self.begin(cx);
        self.asked = Instant::now();
        futures::future::ready(Ok(())).boxed()
    }
}

impl MqttPublisher {
    /// Begins the session. Not before the gear runs: the one that it replaces may have the same client identifier.
    fn begin(&mut self, cx: &Arc<GearContext>) {
        let Some(endpoint) = self.endpoint.take() else {
            return;
        };
        let (queue, waiting) = mpsc::unbounded_channel();
        let window = PublishWindow::new(endpoint.version, usize::from(self.config.in_flight));
        let session = PublisherSession::new(
            Arc::clone(cx),
            endpoint,
            (self.config.qos, self.config.retain),
            (waiting, window),
        );
        let mut task = JoinSet::new();
        task.spawn(session.run());
        let most = u32::from(self.config.in_flight) * 2;
        self.session = Some(PublisherSessionHandle {
            queue,
            room: Arc::new(Semaphore::new(most as usize)),
            most,
            bytes: Arc::new(Semaphore::new(MAX_BYTES as usize)),
            _task: task,
        });
    }

    /// The packet that a message becomes.
    fn packet(&self, message: &Message) -> Result<PublishPacket, GearError> {
        let topic = topic_of(&self.topic, message)?;
        let payload = message.body().into_owned();
        if payload.len() > MAX_PAYLOAD {
            return Err(GearError::Rejected(format!(
                "the body has {} bytes; MQTT takes at most {MAX_PAYLOAD}",
                payload.len()
            )));
        }
        let properties = match self.config.broker.version {
            MqttVersion::V3 => PacketProperties::default(),
            MqttVersion::V5 => properties(message),
        };
        Ok(PublishPacket {
            topic,
            qos: self.config.qos,
            retain: self.config.retain,
            dup: false,
            id: 0,
            properties,
            payload,
        })
    }

    /// Hands a message to the session, waiting where it has enough.
    async fn queue(&mut self, cx: &GearContext, mut outgoing: OutgoingPublish) -> Result<(), GearError> {
        let Some(session) = &self.session else {
            return Err(outside("the session has not begun"));
        };
        let size = u32::try_from(outgoing.packet.payload.len()).unwrap_or(MAX_BYTES);
        let room = async {
            let place = Arc::clone(&session.room).acquire_owned().await.ok()?;
            let bytes = Arc::clone(&session.bytes).acquire_many_owned(size.min(MAX_BYTES));
            Some([place, bytes.await.ok()?])
        };
        let end = &mut self.end;
        outgoing.room = tokio::select! {
            biased;
            room = room => room,
            // It comes again, or the session counts it as lost.
            () = async {
                cx.stopping().await;
                let end = *end.get_or_insert_with(|| Instant::now() + LAST);
                tokio::time::sleep_until(end).await;
            } => None,
        };
        session.queue.send(outgoing).map_err(|_| outside("the session ended"))
    }

    /// Until when a gear that stops waits; the same whenever it is asked.
    fn drain_deadline(&mut self, cx: &GearContext) -> Instant {
        let last = Instant::now() + LAST;
        if cx.is_stopping() {
            *self.end.get_or_insert(last)
        } else {
            last
        }
    }

    /// Waits until all has ended, also what comes no second time.
    async fn drain(&self, last: Instant) {
        let Some(session) = &self.session else { return };
        let all = session.room.acquire_many(session.most);
        tokio::time::timeout_at(last, all).await.ok();
    }
}

fn outside(reason: &str) -> GearError {
    GearError::Outside {
        what: "publish a message".to_owned(),
        reason: io::Error::other(reason.to_owned()),
    }
}

/// The most bytes of a body, short of what MQTT can say, with room for what is around it.
const MAX_PAYLOAD: usize = (256 << 20) - (256 << 10);

/// What is sent along with a message.
fn properties(message: &Message) -> PacketProperties {
    let content_type = match message.meta.get("content_type").and_then(Value::as_str) {
        None if !message.data.is_null() => Some("application/json"),
        known => known,
    };
    let trace = TraceParent {
        trace_id: message.trace_id,
        span_id: message.span_id,
        sampled: message.sampled,
    };
    let state = message.trace_state.as_ref();
    PacketProperties {
        content_type: content_type.filter(|text| is_text(text)).map(ToOwned::to_owned),
        user: std::iter::once((TRACEPARENT.to_owned(), trace.to_string()))
            .chain(state.map(|state| (TRACESTATE.to_owned(), state.as_str().to_owned())))
            .collect(),
        ..PacketProperties::default()
    }
}
