//! `mqtt_in` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mqtt::{BrokerConfig, QosLevel, is_text};

/// The most topic filters.
const MAX_TOPICS: usize = 256;
/// The most identifiers that a note can hold, with room to spare.
const MAX_RECEIVE_MAXIMUM: u16 = 4096;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "mqtt_in",
    summary: "subscribes to topics of an MQTT broker; each message of them becomes a message",
    inputs: &[],
    outputs: &["out"],
    doc: "MQTT 3.1.1 and 5. Messages have `mqtt.topic`, `mqtt.qos` and `mqtt.retain` in their meta; those of version 5 also `content_type` and \
          `mqtt.property.<name>`, up to 32 user properties. User properties `traceparent` and `tracestate` are obeyed. A message of QoS 1 or 2 is acknowledged once it is durable on a guaranteed wire, or has reached the next gear on a hot one. \
          What was not acknowledged comes again as long as the broker keeps the session: QoS 1 is at least once. QoS 2 is exactly once, also over a crash of the Rack, where `out` has guaranteed wires only and the broker keeps \
          the session and what it has released in it; else it is at least once too. mosquitto 2.0 can send a released message again when it is restarted. \
          At each connection the topics are subscribed to again: in version 3.1.1 their retained messages come again then. \
          A message that is larger than the Rack takes is acknowledged, counted as lost and logged.",
    example: include_str!("../../examples/gears/mqtt_in.yaml"),
    schema: gear_manifest::schema::<MqttInConfig>,
    check: gear_manifest::check::<MqttInConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `mqtt_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttInConfig {
    /// The broker.
    pub broker: BrokerConfig,
    /// The topics to subscribe to, 1 to 256. The broker's session keeps those of an earlier configuration: to be rid of one, change `client_id`
    /// or let the session expire.
    pub topics: Vec<TopicConfig>,
    /// How many messages of QoS 1 and 2 may be under way and not acknowledged, 1 to 4096; a broker of version 5 gets the limit. In version 3.1.1
    /// a broker that has more of QoS 2 under way is given those first, over another connection.
    #[serde(default = "default_receive_maximum")]
    pub receive_maximum: u16,
}

/// Topics to subscribe to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicConfig {
    /// The topic filter, with `+` for one level and `#` for all that follow; `$share/<group>/<filter>` shares the messages among the clients of
    /// a group.
    pub filter: String,
    /// The most that is asked for: 0 at most once, 1 at least once, 2 exactly once.
    #[serde(default = "default_qos")]
    #[schemars(with = "u8")]
    pub qos: QosLevel,
}

const fn default_receive_maximum() -> u16 {
    256
}

const fn default_qos() -> QosLevel {
    QosLevel::AtLeastOnce
}

impl TopicConfig {
    fn check(&self) -> Result<(), &'static str> {
        let filter = match self.filter.strip_prefix("$share/") {
            Some(shared) => {
                let (group, filter) = shared.split_once('/').ok_or("has no filter behind the group")?;
                if group.is_empty() || group.contains(['+', '#']) {
                    return Err("has a group that is empty or has a wildcard");
                }
                filter
            }
            None => &self.filter,
        };
        let levels: Vec<_> = filter.split('/').collect();
        let is_wild = |level: &str| level.contains(['+', '#']);
        if filter.is_empty() || !is_text(&self.filter) {
            return Err("is empty, too long, or has a control character or noncharacter");
        }
        if levels.iter().any(|level| is_wild(level) && level.len() > 1) {
            return Err("has + or # beside other characters of a level");
        }
        if levels.iter().rev().skip(1).any(|level| *level == "#") {
            return Err("has # before its last level");
        }
        Ok(())
    }
}

impl GearConfig for MqttInConfig {
    fn validate(&self) -> Result<(), String> {
        self.broker.validate()?;
        if self.topics.is_empty() || self.topics.len() > MAX_TOPICS {
            return Err(format!(
                "topics must have 1 to {MAX_TOPICS} entries, it has {}",
                self.topics.len()
            ));
        }
        for (index, topic) in self.topics.iter().enumerate() {
            let wrong = |why| format!("topics[{index}].filter {:?} {why}", topic.filter);
            topic.check().map_err(wrong)?;
        }
        if self.receive_maximum == 0 || self.receive_maximum > MAX_RECEIVE_MAXIMUM {
            return Err(format!("receive_maximum must be between 1 and {MAX_RECEIVE_MAXIMUM}"));
        }
        Ok(())
    }
}
