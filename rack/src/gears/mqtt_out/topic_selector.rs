//! Where messages of `mqtt_out` go: one topic, or what an expression says.

use model::message::Message;
use serde_json::Value;

use crate::gears::GearError;
use crate::gears::expression::{CelExpression, MessageVariables};
use crate::gears::mqtt::{MAX_TEXT, is_text};

/// Where messages go.
pub(super) enum TopicSelector {
    Fixed(String),
    Computed(CelExpression),
}

impl TopicSelector {
    /// The topic of a message.
    pub(super) fn of(&self, message: &Message) -> Result<String, GearError> {
        let expression = match self {
            Self::Fixed(topic) => return Ok(topic.clone()),
            Self::Computed(expression) => expression,
        };
        match expression.value(&MessageVariables::of(message))? {
            Value::String(topic) => {
                check_topic("topic_expression", &topic).map_err(GearError::Rejected)?;
                Ok(topic)
            }
            other => {
                let kind = match other {
                    Value::Null => "null",
                    Value::Bool(_) => "bool",
                    Value::Number(_) => "a number",
                    Value::Array(_) => "a list",
                    _ => "a map",
                };
                Err(GearError::Rejected(format!(
                    "topic_expression: the result is {kind}, not a text"
                )))
            }
        }
    }
}

/// Says what is wrong with a topic under this key.
pub(super) fn check_topic(key: &str, topic: &str) -> Result<(), String> {
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
