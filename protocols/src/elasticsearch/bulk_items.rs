//! The items of a bulk request, and how each is answered.

use std::ops::Range;
use std::sync::Arc;

use model::{extend_stable_hash, stable_hash};
use serde::Deserialize;
use serde_json::{Value, json};

use super::BulkError;

/// The most items of a request: each has its line in the answer.
pub const MAX_ITEMS: usize = 1 << 17;

/// The most bytes of the line of an action, and of all names of indexes and ids together.
const MAX_LINE: usize = 8 << 10;
const MAX_TEXTS: usize = 8 << 20;

/// The most bytes that the items of a body take while they are read.
#[must_use]
pub fn items_bytes(body: &[u8]) -> usize {
    // An action and a document have at least so many bytes.
    const SHORTEST: usize = 13;
    let items = MAX_ITEMS.min(body.len() / SHORTEST) * size_of::<BulkItem>();
    2 * (items + MAX_TEXTS.min(body.len()) + MAX_LINE)
}

/// The items of a request.
#[derive(Debug, Clone)]
pub struct BulkItems(Arc<ItemList>);

#[derive(Debug, Default)]
struct ItemList {
    items: Vec<BulkItem>,
    /// The names of indexes and the ids that actions have, one after another.
    texts: String,
    /// The index of what names none.
    index: String,
}

/// One item: places in the body and in the texts.
#[derive(Debug, Clone, Copy)]
struct BulkItem {
    action: BulkAction,
    document: (u32, u32),
    /// Where its texts begin, where the index ends, where the id ends.
    texts: [u32; 3],
}

/// What is to be done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BulkAction {
    Index,
    Create,
    Update,
    Delete,
}

/// A line that says what to do.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionLine {
    Index(ActionTarget),
    Create(ActionTarget),
    Update(ActionTarget),
    Delete(ActionTarget),
}

#[derive(Deserialize)]
struct ActionTarget {
    #[serde(rename = "_index", default)]
    index: Option<String>,
    #[serde(rename = "_id", default)]
    id: Option<Value>,
}

impl BulkAction {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Why it cannot be done.
    pub(super) const fn fault(self) -> Option<&'static str> {
        match self {
            Self::Index | Self::Create => None,
            Self::Update | Self::Delete => {
                Some("what is stored is never changed: only [index] and [create] are supported")
            }
        }
    }
}

impl BulkItems {
    /// Reads the lines of actions, and past the documents.
    pub(super) fn read(body: &[u8], index: String) -> Result<Self, BulkError> {
        let mut lines = BulkLines { body, at: 0, number: 0 };
        let mut list = ItemList {
            index,
            ..ItemList::default()
        };
        while let Some(line) = lines.next() {
            if list.items.len() == MAX_ITEMS || list.texts.len() > MAX_TEXTS {
                return Err(BulkError::TooMany);
            }
            let text = body.get(line.clone()).unwrap_or_default();
            let malformed = |reason: String| BulkError::Action {
                line: lines.number,
                reason,
            };
            if text.len() > MAX_LINE {
                return Err(malformed(format!("it has {} bytes, more than {MAX_LINE}", text.len())));
            }
            let parsed: ActionLine = serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
            let (action, target) = match parsed {
                ActionLine::Index(target) => (BulkAction::Index, target),
                ActionLine::Create(target) => (BulkAction::Create, target),
                ActionLine::Update(target) => (BulkAction::Update, target),
                ActionLine::Delete(target) => (BulkAction::Delete, target),
            };
            let action_line = lines.number;
            let document = match action {
                BulkAction::Delete => line,
                _ => lines.next().ok_or(BulkError::NoDocument(action_line))?,
            };
            list.push(action, document, &target);
        }
        if list.items.is_empty() {
            return Err(BulkError::Empty);
        }
        Ok(Self(Arc::new(list)))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Whether there is none, which no request has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.items.is_empty()
    }

    /// Stands for the index of what names none, and that of the first item.
    pub(super) fn sender(&self) -> u64 {
        extend_stable_hash(stable_hash(self.0.index.as_bytes()), Some(self.target(0).0.as_bytes()))
    }

    /// The bytes of the documents, each with its index and id.
    pub(super) fn expanded(&self) -> u64 {
        let bytes = |item: &BulkItem| {
            let [start, _, end] = item.texts;
            u64::from(item.document.1 - item.document.0) + u64::from(end - start) + self.0.index.len() as u64
        };
        self.0.items.iter().map(bytes).sum()
    }

    /// The bytes that they take.
    pub(super) fn held(&self) -> usize {
        self.0.items.capacity() * size_of::<BulkItem>() + self.0.texts.capacity()
    }

    /// What is to be done with an item, and where its document is.
    pub(super) fn item(&self, at: usize) -> Option<(BulkAction, Range<usize>)> {
        let item = self.0.items.get(at)?;
        Some((item.action, item.document.0 as usize..item.document.1 as usize))
    }

    /// The index of an item, and its id if it has one.
    pub(super) fn target(&self, at: usize) -> (&str, Option<&str>) {
        let list = &*self.0;
        let [start, index, id] = list.items.get(at).map_or([0; 3], |item| item.texts);
        let text = |from: u32, to: u32| {
            list.texts
                .get(from as usize..to as usize)
                .filter(|text| !text.is_empty())
        };
        (text(start, index).unwrap_or(&list.index), text(index, id))
    }

    /// The answer to an item: stored, or why it was not. `generated` is the id of one that has none.
    #[must_use]
    pub fn answer(&self, at: usize, generated: &str, refusal: Option<&str>) -> Value {
        let action = self.0.items.get(at).map_or(BulkAction::Index, |item| item.action);
        let (index, id) = self.target(at);
        let mut answer = json!({ "_index": index, "_id": id.unwrap_or(generated) });
        match refusal {
            None => {
                answer["_version"] = 1.into();
                answer["result"] = "created".into();
                answer["status"] = 201.into();
            }
            Some(reason) => {
                let kind = match action.fault() {
                    Some(_) => "illegal_argument_exception",
                    None => "document_parsing_exception",
                };
                answer["status"] = 400.into();
                answer["error"] = json!({ "type": kind, "reason": reason });
            }
        }
        json!({ action.as_str(): answer })
    }
}

impl ItemList {
    fn push(&mut self, action: BulkAction, document: Range<usize>, target: &ActionTarget) {
        let start = place(self.texts.len());
        self.texts.push_str(target.index.as_deref().unwrap_or_default());
        let index = place(self.texts.len());
        match &target.id {
            Some(Value::String(id)) => self.texts.push_str(id),
            Some(id @ Value::Number(_)) => self.texts.push_str(&id.to_string()),
            _ => {}
        }
        let id = place(self.texts.len());
        self.items.push(BulkItem {
            action,
            document: (place(document.start), place(document.end)),
            texts: [start, index, id],
        });
    }
}

/// A place in a body or in texts of it, which are smaller than 4 GiB.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The lines of a body that are not blank.
struct BulkLines<'a> {
    body: &'a [u8],
    at: usize,
    /// Of the line that was read last, from 1.
    number: u64,
}

impl BulkLines<'_> {
    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let rest = self.body.get(self.at..).filter(|rest| !rest.is_empty())?;
            let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = self.at..self.at + length;
            self.at = line.end + 1;
            self.number += 1;
            if !rest.get(..length)?.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}
