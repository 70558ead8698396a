//! Where messages of `mqtt_out` go: one topic, or what an expression says.

use model::message::Message;
use serde_json::Value;

use crate::gears::Fault;
use crate::gears::expression::{Expression, Scope};
use crate::gears::mqtt::{MAX_TEXT, is_text};

/// Where messages go.
pub(super) enum Topic {
    Fixed(String),
    Computed(Expression),
}

impl Topic {
    /// The topic of a message.
    pub(super) fn of(&self, message: &Message) -> Result<String, Fault> {
        let expression = match self {
            Self::Fixed(topic) => return Ok(topic.clone()),
            Self::Computed(expression) => expression,
        };
        match expression.value(&Scope::of(message))? {
            Value::String(topic) => {
                check_topic("topic_expression", &topic).map_err(Fault::Rejected)?;
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
                Err(Fault::Rejected(format!(
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
