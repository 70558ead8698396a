//! Modbus values: numbers in 16-bit registers, scaled.
//!
//! | type | registers |
//! |---|---|
//! | `bool`, `u16`, `i16` | 1 |
//! | `u32`, `i32`, `f32` | 2 |
//! | `u64`, `i64`, `f64` | 4 |
//!
//! # Invariants
//!
//! - A register is big-endian, as the protocol has it; `word_order` is the order of registers in a value.
//! - What stands for a value is `register · scale + offset`. A whole number that is not scaled keeps all its digits.
//! - A value that does not fit its registers is refused, never cut.

use gear_spec::modbus::{ModbusEntry, ValueType, WordOrder};
use serde_json::Value;

/// What stands in registers, and what it means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ValueFormat {
    pub(super) value_type: ValueType,
    pub(super) order: WordOrder,
    pub(super) scale: f64,
    pub(super) offset: f64,
}

/// The least and the greatest of whole numbers.
fn whole_range(value_type: ValueType) -> Option<(i128, i128)> {
    Some(match value_type {
        ValueType::U16 => (0, u16::MAX.into()),
        ValueType::I16 => (i16::MIN.into(), i16::MAX.into()),
        ValueType::U32 => (0, u32::MAX.into()),
        ValueType::I32 => (i32::MIN.into(), i32::MAX.into()),
        ValueType::U64 => (0, u64::MAX.into()),
        ValueType::I64 => (i64::MIN.into(), i64::MAX.into()),
        ValueType::Bool | ValueType::F32 | ValueType::F64 => return None,
    })
}

impl ValueFormat {
    /// What an entry of a configuration means.
    pub(super) fn of(entry: &ModbusEntry) -> Self {
        Self {
            value_type: entry.value_type(),
            order: entry.word_order,
            scale: entry.scale,
            offset: entry.offset,
        }
    }

    /// The value of registers; in words why they have none.
    pub(super) fn decode(&self, registers: &[u16]) -> Result<Value, String> {
        let add = |bits: u64, word: &u16| (bits << 16) | u64::from(*word);
        let bits = match self.order {
            WordOrder::Big => registers.iter().fold(0, add),
            WordOrder::Little => registers.iter().rev().fold(0, add),
        };
        let whole = match self.value_type {
            ValueType::Bool => return Ok(Value::Bool(bits != 0)),
            ValueType::F32 => return self.scaled(f32::from_bits(low_half(bits)).into()),
            ValueType::F64 => return self.scaled(f64::from_bits(bits)),
            ValueType::U16 | ValueType::U32 | ValueType::U64 => i128::from(bits),
            ValueType::I16 => i128::from(
                low_half(bits).to_be_bytes()[2..]
                    .iter()
                    .fold(0, |n, byte| (n << 8) | i16::from(*byte)),
            ),
            ValueType::I32 => i128::from(low_half(bits).cast_signed()),
            ValueType::I64 => i128::from(bits.cast_signed()),
        };
        if self.is_plain() {
            return Ok(u64::try_from(whole)
                .map_or_else(|_| Value::from(i64::try_from(whole).unwrap_or_default()), Value::from));
        }
        #[allow(clippy::cast_precision_loss, reason = "a scaled value is a floating point number")]
        self.scaled(whole as f64)
    }

    /// The registers of a value; in words why it has none.
    pub(super) fn encode(&self, value: &Value) -> Result<Vec<u16>, String> {
        let bits = match (self.value_type, value) {
            (ValueType::Bool, Value::Bool(is_set)) => u64::from(*is_set),
            (ValueType::Bool, other) => return Err(format!("{other} is not true or false")),
            (ValueType::F32, _) => {
                let wide = self.unscaled(value)?;
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "checked: what is too large becomes infinite"
                )]
                let narrow = wide as f32;
                if narrow.is_infinite() {
                    return Err(format!("{value} is too large for f32"));
                }
                u64::from(narrow.to_bits())
            }
            (ValueType::F64, _) => self.unscaled(value)?.to_bits(),
            (whole, _) => {
                let number = self.whole(value)?;
                let (least, greatest) = whole_range(whole).unwrap_or_default();
                if !(least..=greatest).contains(&number) {
                    return Err(format!(
                        "{value} is {number} in its registers, which take {least} to {greatest}"
                    ));
                }
                u64::try_from(number).unwrap_or_else(|_| i64::try_from(number).unwrap_or_default().cast_unsigned())
            }
        };
        let words = bits.to_be_bytes();
        let words = words
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |word, byte| (word << 8) | u16::from(*byte)));
        let mut registers: Vec<u16> = words.skip(4 - usize::from(self.value_type.registers())).collect();
        if self.order == WordOrder::Little {
            registers.reverse();
        }
        Ok(registers)
    }

    #[allow(
        clippy::float_cmp,
        reason = "what the configuration says, or what it says by default"
    )]
    fn is_plain(&self) -> bool {
        self.scale == 1.0 && self.offset == 0.0
    }

    fn scaled(&self, number: f64) -> Result<Value, String> {
        let number = number * self.scale + self.offset;
        let value = serde_json::Number::from_f64(number).map(Value::Number);
        value.ok_or_else(|| format!("its registers hold {number}, which is not a number"))
    }

    fn unscaled(&self, value: &Value) -> Result<f64, String> {
        let number = value.as_f64().ok_or_else(|| format!("{value} is not a number"))?;
        let number = (number - self.offset) / self.scale;
        let is_finite = number.is_finite().then_some(number);
        is_finite.ok_or_else(|| format!("{value} is too large with this scale and offset"))
    }

    /// The nearest whole number.
    fn whole(&self, value: &Value) -> Result<i128, String> {
        let digits = value
            .as_u64()
            .map(i128::from)
            .or_else(|| value.as_i64().map(i128::from));
        match digits {
            Some(digits) if self.is_plain() => Ok(digits),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "saturates, and is held against the range then"
            )]
            _ => Ok(self.unscaled(value)?.round() as i128),
        }
    }
}

/// The low 32 bits.
fn low_half(bits: u64) -> u32 {
    let [.., a, b, c, d] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const TYPES: [ValueType; 8] = [
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    fn plain(value_type: ValueType, order: WordOrder) -> ValueFormat {
        ValueFormat {
            value_type,
            order,
            scale: 1.0,
            offset: 0.0,
        }
    }

    proptest! {
        #[test]
        fn registers_that_have_a_value_are_those_of_that_value(words in proptest::array::uniform4(any::<u16>())) {
            for (value_type, order) in TYPES.into_iter().flat_map(|of| [(of, WordOrder::Big), (of, WordOrder::Little)]) {
                let format = plain(value_type, order);
                let registers = &words[..usize::from(value_type.registers())];
                if let Ok(value) = format.decode(registers) {
                    prop_assert_eq!(format.encode(&value).unwrap(), registers, "{:?} {}", value_type, value);
                }
            }
        }
    }

    #[test]
    fn a_value_is_scaled_both_ways_and_rounded_to_the_nearest_register() {
        let format = ValueFormat {
            scale: 0.1,
            offset: -40.0,
            ..plain(ValueType::I16, WordOrder::Big)
        };
        assert_eq!(format.decode(&[615]).unwrap(), json!(21.5));
        assert_eq!(format.encode(&json!(21.5)).unwrap(), [615]);
        assert_eq!(format.encode(&json!(21.54)).unwrap(), [615]);
        assert_eq!(format.encode(&json!(-50)).unwrap(), [(-100_i16).cast_unsigned()]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let encode = |value_type, value: Value| plain(value_type, WordOrder::Big).encode(&value).unwrap_err();
        for (value_type, value, says) in [
            (ValueType::U16, json!(65_536), "which take 0 to 65535"),
            (ValueType::U16, json!(-1), "which take 0 to 65535"),
            (ValueType::I64, json!(1e300), "which take -9223372036854775808"),
            (ValueType::F32, json!(1e300), "too large for f32"),
            (ValueType::U16, json!("7"), "not a number"),
            (ValueType::U16, json!(true), "not a number"),
            (ValueType::Bool, json!(1), "not true or false"),
        ] {
            let error = encode(value_type, value);
            assert!(error.contains(says), "{error}");
        }
        for value_type in [ValueType::F64, ValueType::U64] {
            let scaled = ValueFormat {
                scale: 1e-300,
                ..plain(value_type, WordOrder::Big)
            };
            let error = scaled.encode(&json!(1e300)).unwrap_err();
            assert!(error.contains("too large with this scale"), "{error}");
        }
        let error = plain(ValueType::F32, WordOrder::Big).decode(&[0x7fc0, 0]).unwrap_err();
        assert!(error.contains("not a number"), "{error}");
    }
}
