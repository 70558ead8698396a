//! Counts the values of a JSON or CBOR text without building any: each becomes tens of bytes while it is read, an object
//! hundreds, however few bytes of text it is.

use std::fmt;

use serde::de::{
    Deserialize, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use crate::message::DEPTH;

/// The most values of a record, keys not counted.
const MOST: u64 = 1 << 16;
/// A JSON text of so many bytes has no more.
const SHORT: usize = 2 * MOST as usize;

/// About the most bytes that the values of a CBOR message, or of a sequence of them, take while they are read. What cannot be read may
/// take as much before that shows.
#[must_use]
pub fn value_bytes(mut messages: &[u8]) -> u64 {
    // An object has memory for eleven keys and values.
    const OBJECT: u64 = 640;
    const VALUE: u64 = 64;
    let mut bytes = 0;
    while !messages.is_empty() {
        let length = messages.len() as u64;
        bytes += match ciborium::de::from_reader_with_recursion_limit::<ValueCount, _>(&mut messages, DEPTH) {
            Ok(count) => count.values * VALUE + count.objects * OBJECT,
            Err(_) => return bytes + length * (VALUE + OBJECT) / 3,
        };
    }
    bytes
}

/// Refuses a JSON record of very many values, before they are built.
///
/// # Errors
/// How many there are, or why it is not JSON.
pub fn check_value_count(text: &[u8]) -> Result<(), String> {
    ValueCount::check_json(text)
}

/// The values of a text, all levels together.
pub(super) struct ValueCount {
    values: u64,
    objects: u64,
}

impl ValueCount {
    /// Refuses a JSON record of very many values.
    pub(super) fn check_json(text: &[u8]) -> Result<(), String> {
        if text.len() <= SHORT {
            return Ok(());
        }
        let count: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        count.check()
    }

    fn add(&mut self, more: &Self) {
        self.values += more.values;
        self.objects += more.objects;
    }

    /// Refuses very many values.
    pub(super) fn check(&self) -> Result<(), String> {
        let values = self.values;
        if values > MOST {
            return Err(format!(
                "the record has {values} values, more than {MOST}: send several records, or a list as a text"
            ));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for ValueCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self { values: 1, objects: 0 })
    }
}

impl<'de> Visitor<'de> for ValueCount {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_none<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self, A::Error> {
        while let Some(more) = seq.next_element()? {
            self.add(&more);
        }
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        self.objects += 1;
        while let Some((_, more)) = map.next_entry::<IgnoredAny, _>()? {
            self.add(&more);
        }
        Ok(self)
    }

    /// A tag of CBOR.
    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Self, A::Error> {
        let (_, tagged) = data.variant::<IgnoredAny>()?;
        tagged.tuple_variant(2, self)
    }
}
