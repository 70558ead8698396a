//! Attributes of a row as they are collected, and the flat JSON text that is stored of them: dotted keys, sorted, unique, the last
//! of equals.
//!
//! # Invariants
//!
//! - The text is that of [`crate::Attributes`] for the same pairs.
//! - What many rows share (the attributes of a resource) is sorted and written as JSON once: [`AttributeBuffer::share`]. A row's own
//!   value goes before it.

use std::cmp::Ordering;
use std::ops::Range;

use serde::Serialize;

use crate::record::{FlattenError, largest_flat};

/// One row's attributes; its memory is used again for the next row.
#[derive(Debug, Default)]
pub struct AttributeBuffer {
    keys: String,
    /// JSON texts, `"key":value`, one after another.
    texts: Vec<u8>,
    leaves: Vec<AttributeLeaf>,
    /// The end of what all rows have: in keys, texts and leaves.
    shared: (usize, usize, usize),
}

#[derive(Debug, Clone)]
struct AttributeLeaf {
    key: Range<usize>,
    text: Range<usize>,
    /// Where its value begins in the texts.
    value: usize,
}

impl AttributeBuffer {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.shared = (0, 0, 0);
        self.start_row();
    }

    /// Forgets what is not shared.
    pub fn start_row(&mut self) {
        let (keys, texts, leaves) = self.shared;
        self.keys.truncate(keys);
        self.texts.truncate(texts);
        self.leaves.truncate(leaves);
    }

    /// What is here so far is every row's.
    pub fn share(&mut self) {
        sort(&self.keys, &mut self.leaves, 0);
        self.shared = (self.keys.len(), self.texts.len(), self.leaves.len());
    }

    /// The bytes of the text, with a comma behind each attribute.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.texts.len() + self.leaves.len()
    }

    /// Whether a row's own attributes are what those of a record of so many bytes may become: a long key over many small values
    /// would multiply.
    ///
    /// # Errors
    /// How many bytes they may have.
    pub fn check(&self, record: usize) -> Result<(), String> {
        let (_, texts, leaves) = self.shared;
        let most = largest_flat(record);
        if self.bytes() - (texts + leaves) > most {
            return Err(FlattenError { most }.to_string());
        }
        Ok(())
    }

    /// Sets the attribute whose key is `prefix` and `key` to a value that is no JSON object; NaN and infinity become null.
    pub fn set<T: Serialize + ?Sized>(&mut self, prefix: &str, key: &str, value: &T) {
        self.set_with(prefix, key, |to| write_json(to, value));
    }

    /// The same with a value that is written as JSON, and is no object.
    pub fn set_with(&mut self, prefix: &str, key: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let (start, from) = (self.keys.len(), self.texts.len());
        self.keys.push_str(prefix);
        self.keys.push_str(key);
        write_json(&mut self.texts, self.keys.get(start..).unwrap_or_default());
        self.texts.push(b':');
        let value = self.texts.len();
        write(&mut self.texts);
        self.leaves.push(AttributeLeaf {
            key: start..self.keys.len(),
            text: from..self.texts.len(),
            value,
        });
    }

    /// The JSON text of the last value with a key; those that are shared are looked at last.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        let found = self
            .leaves
            .iter()
            .rev()
            .find(|leaf| self.keys.get(leaf.key.clone()) == Some(key));
        found.and_then(|leaf| self.texts.get(leaf.value..leaf.text.end))
    }

    /// Appends the flat text.
    pub fn write(&mut self, to: &mut Vec<u8>) {
        let shared = self.shared.2;
        sort(&self.keys, &mut self.leaves, shared);
        let (mut shared, mut own) = self.leaves.split_at(shared.min(self.leaves.len()));
        let mut before = b'{';
        loop {
            let leaf = match (shared.split_first(), own.split_first()) {
                (None, None) => break,
                (Some((leaf, rest)), None) => {
                    shared = rest;
                    leaf
                }
                (None, Some((leaf, rest))) => {
                    own = rest;
                    leaf
                }
                (Some((ours, others)), Some((leaf, rest))) => match key(&self.keys, ours).cmp(key(&self.keys, leaf)) {
                    Ordering::Less => {
                        shared = others;
                        ours
                    }
                    Ordering::Equal => {
                        (shared, own) = (others, rest);
                        leaf
                    }
                    Ordering::Greater => {
                        own = rest;
                        leaf
                    }
                },
            };
            to.push(before);
            to.extend_from_slice(self.texts.get(leaf.text.clone()).unwrap_or_default());
            before = b',';
        }
        if before == b'{' {
            to.push(b'{');
        }
        to.push(b'}');
    }
}

fn key<'a>(keys: &'a str, leaf: &AttributeLeaf) -> &'a str {
    keys.get(leaf.key.clone()).unwrap_or_default()
}

/// Orders the leaves from one on by their keys; of equal keys the last one stays.
fn sort(keys: &str, leaves: &mut Vec<AttributeLeaf>, from: usize) {
    let own = leaves.get_mut(from..).unwrap_or_default();
    if own.is_sorted_by(|a, b| key(keys, a) < key(keys, b)) {
        return;
    }
    // Stable: of equal keys the last one set comes last.
    own.sort_by(|a, b| key(keys, a).cmp(key(keys, b)));
    let mut kept = from;
    for at in from..leaves.len() {
        let is_last = leaves
            .get(at + 1)
            .is_none_or(|next| key(keys, next) != key(keys, &leaves[at]));
        if is_last {
            leaves.swap(kept, at);
            kept += 1;
        }
    }
    leaves.truncate(kept);
}

/// Writing a text, a number or a list of them to memory does not fail.
fn write_json<T: Serialize + ?Sized>(to: &mut Vec<u8>, value: &T) {
    let start = to.len();
    if serde_json::to_writer(&mut *to, value).is_err() {
        to.truncate(start);
        to.extend_from_slice(b"null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(buffer: &mut AttributeBuffer) -> String {
        let mut to = Vec::new();
        buffer.write(&mut to);
        String::from_utf8(to).unwrap_or_default()
    }

    #[test]
    fn shared_attributes_are_in_every_row_and_a_rows_own_go_before_them() {
        let mut buffer = AttributeBuffer::default();
        buffer.set("resource.", "z", "shared");
        buffer.set("resource.", "a", &1);
        buffer.set("resource.", "a", &2);
        buffer.share();
        buffer.set("", "x", &true);
        buffer.set("", "b", "own");
        buffer.set("", "x", &false);
        assert_eq!(
            text(&mut buffer),
            r#"{"b":"own","resource.a":2,"resource.z":"shared","x":false}"#
        );
        buffer.start_row();
        buffer.set("", "resource.a", &3);
        assert_eq!(text(&mut buffer), r#"{"resource.a":3,"resource.z":"shared"}"#);
        assert_eq!(buffer.get("resource.z"), Some(&b"\"shared\""[..]));
        buffer.clear();
        assert_eq!((text(&mut buffer).as_str(), buffer.bytes()), ("{}", 0));
        // A key is a text as any other.
        buffer.set("", "a\"\n", "\"");
        buffer.share();
        assert_eq!(text(&mut buffer), r#"{"a\"\n":"\""}"#);
        assert_eq!(buffer.get("a\"\n"), Some(&br#""\"""#[..]));
    }

    #[test]
    fn of_equal_keys_the_last_one_stays_wherever_it_was_set() {
        for keys in ["aba", "aab", "baa", "abab", "cabcab", "a", ""] {
            let mut buffer = AttributeBuffer::default();
            let mut expected = std::collections::BTreeMap::new();
            for (at, key) in keys.chars().enumerate() {
                buffer.set("", &key.to_string(), &at);
                expected.insert(key.to_string(), at);
            }
            let json = serde_json::to_string(&expected).unwrap_or_default();
            assert_eq!(text(&mut buffer), json, "{keys}");
        }
    }
}
