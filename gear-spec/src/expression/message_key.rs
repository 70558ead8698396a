//! Keys: what an expression says messages have in common, as a text.

use model::message::Message;
use serde_json::Value;

use super::{CelExpression, ExpressionError, MessageVariables};

/// The longest key in bytes.
const MAX_KEY: usize = 1024;

impl CelExpression {
    /// The key of a message: a text, or what is written as one.
    ///
    /// # Errors
    /// [`ExpressionError`] where there is no value, or it is no key.
    pub fn key_of(&self, message: &Message) -> Result<String, ExpressionError> {
        let rejected = |reason: &str| ExpressionError(format!("{}: {reason}", self.key));
        let key = match self.value(&MessageVariables::of(message))? {
            Value::String(text) => text,
            scalar @ (Value::Number(_) | Value::Bool(_)) => scalar.to_string(),
            _ => return Err(rejected("the result is neither a text nor a number nor a bool")),
        };
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(rejected(&format!(
                "the key has {} bytes; it has 1 to {MAX_KEY}",
                key.len()
            )));
        }
        Ok(key)
    }
}

/// The key of a message by an expression that need not be there: without one, all messages have the same.
///
/// # Errors
/// [`ExpressionError`] where the expression gives no key.
pub fn key_or_one(expression: Option<&CelExpression>, message: &Message) -> Result<String, ExpressionError> {
    expression.map_or_else(|| Ok(String::new()), |expression| expression.key_of(message))
}

/// Reads the expression that a configuration may have under `key`.
///
/// # Errors
/// What is wrong, and where.
pub fn compile_if_any(key: &str, text: Option<&String>) -> Result<Option<CelExpression>, String> {
    text.map(|text| CelExpression::compile(key, text)).transpose()
}
