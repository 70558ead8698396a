//! Where messages of `mqtt_out` go: one topic, or what an expression says.

use gear_spec::expression::MessageVariables;
use gear_spec::mqtt_out::{TopicSelector, check_topic};
use model::message::Message;
use serde_json::Value;

use crate::gears::GearError;

/// The topic of a message.
pub(super) fn topic_of(selector: &TopicSelector, message: &Message) -> Result<String, GearError> {
    let expression = match selector {
        TopicSelector::Fixed(topic) => return Ok(topic.clone()),
        TopicSelector::Computed(expression) => expression,
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
