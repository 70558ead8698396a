//! Flattens a nested JSON object into the text that is stored: dotted keys, sorted, unique, the last of equals.
//!
//! # Invariants
//!
//! - The text is that of [`crate::Attributes`] for the same object.
//! - Keys and values together stay within [`largest_flat`]: a long key over many small values would multiply otherwise.

use std::fmt;
use std::ops::Range;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{FlattenError, largest_flat};

/// Quotes, a colon and a comma.
const LEAF: usize = 4;

/// One object's leaves; its memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct JsonFlattener {
    /// Where the present object is: `a.b.`
    path: String,
    keys: String,
    /// JSON texts, one after another.
    values: Vec<u8>,
    leaves: Vec<(Range<usize>, Range<usize>)>,
    most: usize,
}

impl JsonFlattener {
    /// Reads an object of a record of so many bytes in the place of the one before.
    pub(super) fn read<'de, A: MapAccess<'de>>(&mut self, map: A, record: usize) -> Result<(), A::Error> {
        self.most = largest_flat(record);
        self.path.clear();
        self.keys.clear();
        self.values.clear();
        self.leaves.clear();
        self.object(map)?;
        let ordered = self
            .leaves
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if self.keys[a.0.clone()] < self.keys[b.0.clone()]));
        if !ordered {
            // Stable: of equal keys the last one read comes last, and is the one to keep.
            let keys = &self.keys;
            self.leaves.sort_by(|a, b| keys[a.0.clone()].cmp(&keys[b.0.clone()]));
            self.leaves.reverse();
            self.leaves
                .dedup_by(|later, kept| keys[later.0.clone()] == keys[kept.0.clone()]);
            self.leaves.reverse();
        }
        Ok(())
    }

    /// Appends the flat text.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let mut before = b'{';
        for (key, value) in &self.leaves {
            to.push(before);
            write_json(to, &self.keys[key.clone()]);
            to.push(b':');
            to.extend_from_slice(&self.values[value.clone()]);
            before = b',';
        }
        if before == b'{' {
            to.push(b'{');
        }
        to.push(b'}');
    }

    fn object<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let depth = self.path.len();
        while map.next_key_seed(KeySeed(&mut self.path))?.is_some() {
            map.next_value_seed(LeafSeed(self))?;
            self.path.truncate(depth);
            if self.keys.len() + self.values.len() + LEAF * self.leaves.len() > self.most {
                return Err(A::Error::custom(FlattenError { most: self.most }));
            }
        }
        Ok(())
    }

    fn leaf<T: Serialize + ?Sized>(&mut self, value: &T) {
        let (key, start) = (self.keys.len(), self.values.len());
        self.keys.push_str(&self.path);
        write_json(&mut self.values, value);
        self.leaves.push((key..self.keys.len(), start..self.values.len()));
    }
}

/// Writing a text, a number or a JSON value to memory does not fail.
fn write_json<T: Serialize + ?Sized>(to: &mut Vec<u8>, value: &T) {
    let start = to.len();
    if serde_json::to_writer(&mut *to, value).is_err() {
        to.truncate(start);
        to.extend_from_slice(b"null");
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
