//! `mqtt_in`: subscribes to topics of an MQTT broker; each message of them becomes a message.
//!
//! ```text
//! broker ── PUBLISH, several ──▶ out ─▶ durable, with one sync ─▶ PUBACK, PUBREC ──▶ broker
//!        ── PUBREL ───────────────────▶ forgotten, durably ─────▶ PUBCOMP ─────────▶
//! ```
//!
//! # Invariants
//!
//! - A message of QoS 1 or 2 is acknowledged once what became of it is durable, or where the next gear of this Rack has it: a broker
//!   that keeps the session sends again what was not acknowledged. The order stays.
//! - QoS 1 is at least once: a crash between the two brings the message again.
//! - QoS 2 is exactly once where the port has guaranteed wires only and the broker keeps the session and what was released in it: which
//!   identifiers have arrived and were not released is durable together with the messages ([`packet_ids`]), so that a message which comes
//!   again after a crash is acknowledged and is no second one. Else it is at least once: with a hot wire a crash between the message and
//!   that note brings it again; a broker that ends may send again what it has released, as mosquitto 2.0 does where it was
//!   restarted before it heard of that (PUBCOMP).
//! - What has come together leaves together. Meanwhile nothing is read: the broker waits, and signs of life go on.
//! - A message that is larger than the Rack takes is acknowledged, counted as lost and logged: it would come again for ever.
//!
//! # Not here
//!
//! The protocol ([`super::mqtt`]). One subscriber_session ([`subscriber_session`]). Subscriptions of an earlier configuration, which a subscriber_session keeps: see the key `topics` ([`gear_spec::mqtt_in`]).

mod packet_batch;
mod packet_ids;
mod subscriber_session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::FutureExt;
use gear_spec::mqtt_in::MqttInConfig;
use model::gear_manifest;

use super::mqtt::BrokerEndpoint;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, GearSendError, RawConfig};
use packet_ids::ReceivedPacketIds;
use subscriber_session::SubscriberSession;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(MqttSubscriber {
        config: gear_manifest::config(config)?,
        endpoint: None,
    })))
}

struct MqttSubscriber {
    config: MqttInConfig,
    endpoint: Option<BrokerEndpoint>,
}

impl ActiveGear for MqttSubscriber {
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

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let Some(endpoint) = &self.endpoint else {
                return Ok(());
            };
            if !cx.is_wired("out") {
                cx.error(GearSendError::Unwired { port: "out" }.to_string());
                cx.stopping().await;
                return Ok(());
            }
            // What a life before this one has handed to the outbox counts.
            let is_settled = tokio::select! {
                is_settled = cx.wait_until_durable() => is_settled,
                () = cx.stopping() => false,
            };
            if is_settled {
                let ids = ReceivedPacketIds::load(cx, endpoint, self.config.receive_maximum);
                let mut session = SubscriberSession::new(cx, &self.config, endpoint, ids);
                // A note that is not kept up would be wrong when the port is guaranteed again.
                if !cx.is_published("out") && session.forget().await.is_err() {
                    return Ok(());
                }
                session.run().await;
            }
            Ok(())
        }
        .boxed()
    }
}
