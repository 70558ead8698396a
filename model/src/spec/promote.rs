//! Promotion: what a spec extracts from a message.

use serde_json::{Number, Value};
use uuid::Uuid;

use super::{FieldType, Spec};
use crate::{Attributes, Timestamp};

/// The longest text that is promoted, in bytes: columns are for what is asked for.
pub const MOST_TEXT: usize = 8 << 10;
/// Whole numbers up to here are exact as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What was promoted of one message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromotionResult {
    /// The values by their fields' names.
    pub values: Attributes,
    /// So many values were there and not of their field's type: they are missing.
    pub failed: u64,
}

impl Spec {
    /// The fields' values in a message's data. What is missing or null is left out.
    #[must_use]
    pub fn promote(&self, data: &Value) -> PromotionResult {
        let mut promoted = PromotionResult::default();
        for field in &self.fields {
            match data.pointer(&field.path) {
                None | Some(Value::Null) => {}
                Some(value) => match of_type(field.kind, value) {
                    Some(value) => promoted.values.set(&field.name, value),
                    None => promoted.failed += 1,
                },
            }
        }
        promoted
    }
}

/// A value in the form in which its type is promoted; `None` if it is of another type.
pub(super) fn of_type(kind: FieldType, value: &Value) -> Option<Value> {
    match (kind, value) {
        (FieldType::String, Value::String(text)) => (text.len() <= MOST_TEXT).then(|| value.clone()),
        (FieldType::Int, Value::Number(number)) => whole(number).map(Value::from),
        (FieldType::Float, Value::Number(number)) => {
            // 0.0 of −0.0, see `crate::batch::conform`.
            number
                .as_f64()
                .filter(|float| float.is_finite())
                .map(|float| Value::from(float + 0.0))
        }
        (FieldType::Bool, Value::Bool(_)) => Some(value.clone()),
        (FieldType::Timestamp, Value::String(text)) => {
            let at: Timestamp = text.parse().ok()?;
            Some(at.to_string().into())
        }
        (FieldType::Uuid, Value::String(text)) => Some(Uuid::try_parse(text).ok()?.to_string().into()),
        _ => None,
    }
}

/// A whole number, also one that a codec made a float of.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|_| number.is_f64())?;
        (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
    })
}
