//! Flattens a nested JSON object into the text that is stored: dotted keys, sorted, unique, the last of equals.
//!
//! # Invariants
//!
//! - The text is that of [`crate::Attributes`] for the same object.
//! - Keys and values together stay within [`largest_flat`]: a long key over many small values would multiply otherwise.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attribute_buffer::AttributeBuffer;
use crate::record::{FlattenError, largest_flat};

/// One object's leaves; its memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct JsonFlattener {
    /// Where the present object is: `a.b.`
    path: String,
    leaves: AttributeBuffer,
    most: usize,
}

impl JsonFlattener {
    /// Reads an object of a record of so many bytes in the place of the one before.
    pub(super) fn read<'de, A: MapAccess<'de>>(&mut self, map: A, record: usize) -> Result<(), A::Error> {
        self.most = largest_flat(record);
        self.path.clear();
        self.leaves.clear();
        self.object(map)
    }

    /// Appends the flat text.
    pub(super) fn write(&mut self, to: &mut Vec<u8>) {
        self.leaves.write(to);
    }

    fn object<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let depth = self.path.len();
        while map.next_key_seed(KeySeed(&mut self.path))?.is_some() {
            map.next_value_seed(LeafSeed(self))?;
            self.path.truncate(depth);
            if self.leaves.bytes() > self.most {
                return Err(A::Error::custom(FlattenError { most: self.most }));
            }
        }
        Ok(())
    }

    fn leaf<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.leaves.set("", &self.path, value);
    }
}

/// Appends a key to the path.
struct KeySeed<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.0.push_str(key);
        Ok(())
    }
}

/// A value under the path: a leaf, or an object of more of them.
struct LeafSeed<'a>(&'a mut JsonFlattener);

impl<'de> DeserializeSeed<'de> for LeafSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LeafSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.leaf(&value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.leaf(&value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.leaf(&value);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.leaf(&value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.leaf(value);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.leaf(&());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        self.0.leaf(&Value::deserialize(SeqAccessDeserializer::new(seq))?);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.path.push('.');
        self.0.object(map)
    }
}
