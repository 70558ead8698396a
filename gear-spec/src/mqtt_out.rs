//! `mqtt_out` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::CelExpression;
use crate::mqtt::{BrokerConfig, MAX_TEXT, MqttVersion, QosLevel, is_text};

/// The most that `in_flight` may be.
const MAX_IN_FLIGHT: u16 = 1024;
/// The same of QoS 2 in version 3.1.1, where no broker says what it takes.
const MAX_IN_FLIGHT_V3: u16 = 20;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "mqtt_out",
    summary: "publishes each message to a topic of an MQTT broker",
    inputs: &["in"],
    outputs: &[],
    doc: "MQTT 3.1.1 and 5. A message is done when the broker has acknowledged it: QoS 1 PUBACK, QoS 2 PUBCOMP; QoS 0 when it is written, so that one at which the connection breaks is written again. Messages wait while there is no broker. \
          With version 5 a message that the broker refuses for good (not authorized, invalid topic or payload, too large, …) is rejected, and one that it refuses for now (quota, busy, …) is sent again, 16 times at most; \
          `content_type`, if it has no control character, and the trace, as user properties `traceparent` and `tracestate`, are sent along. Version 3.1.1 has no refusals. QoS 2 is exactly once as long as the Rack and this gear run and the broker keeps the session; \
          else a message can be published a second time.",
    example: include_str!("../../examples/gears/mqtt_out.yaml"),
    schema: gear_manifest::schema::<MqttOutConfig>,
    check: gear_manifest::check::<MqttOutConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `mqtt_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttOutConfig {
    /// The broker.
    pub broker: BrokerConfig,
    /// The topic of all messages; either this or `topic_expression`.
    #[serde(default)]
    topic: Option<String>,
    /// An expression whose text is the topic of a message, such as `'plant/' + meta['line']`.
    #[serde(default)]
    topic_expression: Option<String>,
    /// How surely messages are delivered: 0 at most once, 1 at least once, 2 exactly once.
    #[serde(default = "default_qos")]
    #[schemars(with = "u8")]
    pub qos: QosLevel,
    /// Whether the broker keeps the last message of a topic for those who subscribe later.
    #[serde(default)]
    pub retain: bool,
    /// How many messages may be sent and not acknowledged, 1 to 1024; so many more wait for them in memory, at most 16 MiB of both or one
    /// message. A broker of version 5 says how many it takes, and no more are sent. In version 3.1.1 it must be within what the broker takes:
    /// mosquitto takes 20 (`max_inflight_messages`) and acknowledges more of QoS 2 without keeping them, so more than 20 are refused here.
    #[serde(default = "default_in_flight")]
    pub in_flight: u16,
}

const fn default_qos() -> QosLevel {
    QosLevel::AtLeastOnce
}

const fn default_in_flight() -> u16 {
    16
}

/// Where messages go.
#[derive(Debug)]
pub enum TopicSelector {
    /// To this topic.
    Fixed(String),
    /// To the topic that an expression gives.
    Computed(CelExpression),
}

/// Says what is wrong with a topic under this key.
///
/// # Errors
/// A sentence that names the key.
pub fn check_topic(key: &str, topic: &str) -> Result<(), String> {
    if topic.is_empty() || !is_text(topic) {
        return Err(format!(
            "{key}: a topic has 1 to {MAX_TEXT} bytes and no control character or noncharacter"
        ));
    }
    if topic.contains(['+', '#']) {
        return Err(format!(
            "{key}: the topic {topic:?} has a wildcard; messages go to one topic"
        ));
    }
    Ok(())
}

impl MqttOutConfig {
    /// Where messages go.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn topic(&self) -> Result<TopicSelector, String> {
        match (&self.topic, &self.topic_expression) {
            (Some(topic), None) => {
                check_topic("topic", topic)?;
                Ok(TopicSelector::Fixed(topic.clone()))
            }
            (None, Some(text)) => CelExpression::compile("topic_expression", text).map(TopicSelector::Computed),
            _ => Err("either topic or topic_expression must be set".into()),
        }
    }
}

impl GearConfig for MqttOutConfig {
    fn validate(&self) -> Result<(), String> {
        self.broker.validate()?;
        self.topic()?;
        if self.in_flight == 0 || self.in_flight > MAX_IN_FLIGHT {
            return Err(format!("in_flight must be between 1 and {MAX_IN_FLIGHT}"));
        }
        if self.broker.version == MqttVersion::V3
            && self.qos == QosLevel::ExactlyOnce
            && self.in_flight > MAX_IN_FLIGHT_V3
        {
            return Err(format!(
                "in_flight must be at most {MAX_IN_FLIGHT_V3} with version 3.1.1 and QoS 2: brokers acknowledge more without keeping them"
            ));
        }
        Ok(())
    }
}
