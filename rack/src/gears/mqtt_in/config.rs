//! The configuration of `mqtt_in`.

use model::gear_manifest::GearConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gears::mqtt::{BrokerConfig, QosLevel, TopicSubscription, is_text};

/// The most topic filters.
const MAX_TOPICS: usize = 256;
/// The most identifiers that a note can hold, with room to spare.
const MAX_RECEIVE_MAXIMUM: u16 = 4096;

/// Configuration of `mqtt_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MqttInConfig {
    /// The broker.
    pub(super) broker: BrokerConfig,
    /// The topics to subscribe to, 1 to 256. The broker's session keeps those of an earlier configuration: to be rid of one, change `client_id`
    /// or let the session expire.
    pub(super) topics: Vec<TopicConfig>,
    /// How many messages of QoS 1 and 2 may be under way and not acknowledged, 1 to 4096; a broker of version 5 is told. In version 3.1.1
    /// a broker that has more of QoS 2 under way is given those first, over another connection.
    #[serde(default = "default_receive_maximum")]
    pub(super) receive_maximum: u16,
}

/// Topics to subscribe to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicConfig {
    /// The topic filter, with `+` for one level and `#` for all that follow; `$share/<group>/<filter>` shares the messages among the clients of
    /// a group.
    pub(super) filter: String,
    /// The most that is asked for: 0 at most once, 1 at least once, 2 exactly once.
    #[serde(default = "default_qos")]
    #[schemars(with = "u8")]
    pub(super) qos: QosLevel,
}

const fn default_receive_maximum() -> u16 {
    256
}

const fn default_qos() -> QosLevel {
    QosLevel::AtLeastOnce
}

impl TopicConfig {
    pub(super) fn subscription(&self) -> TopicSubscription<'_> {
        TopicSubscription {
            filter: &self.filter,
            qos: self.qos,
        }
    }

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
