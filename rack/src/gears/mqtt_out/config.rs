//! The configuration of `mqtt_out`.

use model::gear_manifest::GearConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::topic_selector::{TopicSelector, check_topic};
use crate::gears::expression::CelExpression;
use crate::gears::mqtt::{BrokerConfig, QosLevel, MqttVersion};

/// The most that `in_flight` may be.
const MAX_IN_FLIGHT: u16 = 1024;
/// The same of QoS 2 in version 3.1.1, where no broker says what it takes.
const MAX_IN_FLIGHT_V3: u16 = 20;

/// Configuration of `mqtt_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MqttOutConfig {
    /// The broker.
    pub(super) broker: BrokerConfig,
    /// The topic of all messages; either this or `topic_expression`.
    #[serde(default)]
    topic: Option<String>,
    /// An expression whose text is the topic of a message, such as `'plant/' + meta['line']`.
    #[serde(default)]
    topic_expression: Option<String>,
    /// How surely messages are delivered: 0 at most once, 1 at least once, 2 exactly once.
    #[serde(default = "default_qos")]
    #[schemars(with = "u8")]
    pub(super) qos: QosLevel,
    /// Whether the broker keeps the last message of a topic for those who subscribe later.
    #[serde(default)]
    pub(super) retain: bool,
    /// How many messages may be sent and not acknowledged, 1 to 1024; so many more wait for them in memory, at most 16 MiB of both or one
    /// message. A broker of version 5 says how many it takes, and no more are sent. In version 3.1.1 it must be within what the broker takes:
    /// mosquitto takes 20 (`max_inflight_messages`) and acknowledges more of QoS 2 without keeping them, so more than 20 are refused here.
    #[serde(default = "default_in_flight")]
    pub(super) in_flight: u16,
}

const fn default_qos() -> QosLevel {
    QosLevel::AtLeastOnce
}

const fn default_in_flight() -> u16 {
    16
}

impl MqttOutConfig {
    pub(super) fn topic(&self) -> Result<TopicSelector, String> {
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
        if self.broker.version == MqttVersion::V3 && self.qos == QosLevel::ExactlyOnce && self.in_flight > MAX_IN_FLIGHT_V3 {
            return Err(format!(
                "in_flight must be at most {MAX_IN_FLIGHT_V3} with version 3.1.1 and QoS 2: brokers acknowledge more without keeping them"
            ));
        }
        Ok(())
    }
}
