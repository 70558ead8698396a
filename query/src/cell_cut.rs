//! Cuts long cells of lists: a page of a thousand rows does not bring a megabyte for one of them.
//!
//! | cell | what is left |
//! |---|---|
//! | text | its beginning, up to the last whole character |
//! | bytes | the first ones; in base64 whole groups of four digits, which can be read |
//! | object of JSON | an object: short members first; one that does not fit is the beginning of its text, or of its JSON; others go |
//!
//! # Invariants
//!
//! - A cell that is left has no more bytes than were asked for, and one that had no more is untouched.
//! - The column `cut` has, for each row with a cut cell, an object with the whole sizes of those cells, in bytes.
//! - What is made is counted as memory of queries before it is made. Others have their turn after each slice of bytes, or after the one
//!   cell that has more.
//! - Of an object the keys and the places of its values are held, not the values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, BinaryArray, StringArray};
use arrow_schema::DataType;
use datafusion::execution::memory_pool::MemoryReservation;
use model::each_key;
use model::filter::{MAX_CELL, MIN_CELL};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Error;
use crate::message_rendering::RAW;
use crate::query_result::ListAnswer;

/// The column that says what was cut.
const CUT: &str = "cut";
/// The bytes of cells that are cut before others have their turn.
const SLICE_BYTES: usize = 256 << 10;
/// About what a member of an object takes beside its key while the object is cut.
const BESIDE_KEY: usize = 128;
/// About what is said of the cells of a row.
const SIZES: usize = 64;

/// The bytes of a cell that a request allows.
pub(crate) fn cell_size(cells: Option<u32>) -> Result<Option<usize>, Error> {
    match cells {
        Some(bytes) if !(MIN_CELL..=MAX_CELL).contains(&bytes) => Err(Error::parameter(
            "cells",
            format!("{bytes} is not between {MIN_CELL} and {MAX_CELL}"),
        )),
        cells => Ok(cells.map(|bytes| bytes as usize)),
    }
}

/// A list whose cells have no more bytes than these, if a number is given. The list and what is made of it count in `memory`.
pub(crate) async fn cut_cells(
    list: ListAnswer,
    most: Option<usize>,
    memory: &MemoryReservation,
) -> Result<ListAnswer, Error> {
    let Some(most) = most else {
        return Ok(list);
    };
    let rows = list.rows().num_rows();
    memory.try_grow(list.rows().get_array_memory_size() + rows * SIZES)?;
    let mut sizes = vec![String::new(); rows];
    let mut columns = Vec::new();
    for (column, cells) in list.columns() {
        let lengths = lengths(cells);
        note_sizes(&column.name, &lengths, most, &mut sizes);
        let is_long = lengths.iter().any(|length| *length > most);
        columns.push(match cells.data_type() {
            DataType::Utf8 if is_long => {
                let is_json = column.kind == "json";
                let is_base64 = column.name == RAW && !is_json;
                let most = if is_base64 { most / 4 * 4 } else { most };
                cut_texts(cells.as_string(), is_json, most, memory).await?
            }
            DataType::Binary if is_long => cut_bytes(cells.as_binary(), most, memory).await?,
            _ => Arc::clone(cells),
        });
    }
    let list = list.with_cells(columns)?;
    let cut = sizes
        .into_iter()
        .map(|sizes| (!sizes.is_empty()).then(|| format!("{{{sizes}}}")));
    let list = list.with_json_column(CUT, Arc::new(cut.collect::<StringArray>()))?;
    Ok(list.with_sparse(vec![CUT]))
}

/// The bytes of each cell of a column that may be cut; none of another column.
fn lengths(cells: &ArrayRef) -> Vec<usize> {
    match cells.data_type() {
        DataType::Utf8 => {
            let texts = cells.as_string::<i32>().iter();
            texts.map(|text| text.map_or(0, str::len)).collect()
        }
        DataType::Binary => {
            let bytes = cells.as_binary::<i32>().iter();
            bytes.map(|bytes| bytes.map_or(0, <[u8]>::len)).collect()
        }
        _ => Vec::new(),
    }
}

/// Adds a member for each long cell of a column to what is said of its row.
fn note_sizes(column: &str, lengths: &[usize], most: usize, sizes: &mut [String]) {
    let name = Value::from(column);
    for (length, sizes) in lengths.iter().zip(sizes).filter(|(length, _)| **length > most) {
        let comma = if sizes.is_empty() { "" } else { "," };
        sizes.push_str(&format!("{comma}{name}:{length}"));
    }
}

/// Gives others their turn after each slice of bytes that were looked at.
#[derive(Default)]
struct WorkPacer(usize);

impl WorkPacer {
    async fn add(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= SLICE_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

async fn cut_texts(
    texts: &StringArray,
    is_json: bool,
    most: usize,
    memory: &MemoryReservation,
) -> Result<ArrayRef, Error> {
    let (mut cut, mut pacer) = (StringBuilder::new(), WorkPacer::default());
    for row in 0..texts.len() {
        let text = texts.is_valid(row).then(|| texts.value(row));
        let length = text.map_or(0, str::len);
        let meanwhile = match text {
            Some(text) if is_json && length > most => bytes_to_cut(text),
            _ => 0,
        };
        // A builder doubles what it has.
        memory.try_grow(meanwhile + 2 * length.min(most))?;
        cut.append_option(text.map(|text| cut_text(text, is_json, most)));
        memory.shrink(meanwhile);
        pacer.add(length).await;
    }
    Ok(Arc::new(cut.finish()))
}

async fn cut_bytes(cells: &BinaryArray, most: usize, memory: &MemoryReservation) -> Result<ArrayRef, Error> {
    let (mut cut, mut pacer) = (BinaryBuilder::new(), WorkPacer::default());
    for row in 0..cells.len() {
        let bytes = cells.is_valid(row).then(|| cells.value(row));
        let bytes = bytes.map(|bytes| bytes.get(..most).unwrap_or(bytes));
        let length = bytes.map_or(0, <[u8]>::len);
        memory.try_grow(2 * length)?;
        cut.append_option(bytes);
        pacer.add(length).await;
    }
    Ok(Arc::new(cut.finish()))
}

/// About the bytes that are needed while an object is cut.
fn bytes_to_cut(object: &str) -> usize {
    let mut bytes = object.len();
    each_key(object, |key| bytes += 2 * key.len() + BESIDE_KEY);
    bytes
}

fn cut_text(text: &str, is_json: bool, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    match is_json.then(|| cut_object(text, most)).flatten() {
        Some(object) => Cow::Owned(object),
        None => Cow::Borrowed(text.get(..text.floor_char_boundary(most)).unwrap_or_default()),
    }
}

/// An object with as much of another one as there is room for; `None` of what is no object.
fn cut_object(text: &str, most: usize) -> Option<String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let written = members.iter().map(|(key, value)| (key.as_str(), value.get()));
    let mut written: Vec<_> = written.enumerate().collect();
    written.sort_by_key(|(_, (key, json))| key.len() + json.len());
    let mut room = most.saturating_sub(2);
    let mut shown = Vec::new();
    for (place, (key, json)) in written {
        let key = Value::from(key).to_string();
        // A colon and a comma.
        let Some(left) = room.checked_sub(key.len() + 2) else {
            break;
        };
        let json = if json.len() <= left {
            Some(Cow::Borrowed(json))
        } else {
            beginning(json, left).map(Cow::Owned)
        };
        let Some(json) = json else {
            break;
        };
        room = left - json.len();
        shown.push((place, format!("{key}:{json}")));
    }
    shown.sort_unstable();
    let members: Vec<String> = shown.into_iter().map(|(_, member)| member).collect();
    Some(format!("{{{}}}", members.join(",")))
}

/// The beginning of a text, or of the JSON of another value, as JSON of so many bytes; `None` if there is no room for any.
fn beginning(json: &str, most: usize) -> Option<String> {
    let text = match serde_json::from_str::<String>(json) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(json),
    };
    let mut end = text.floor_char_boundary(most);
    loop {
        let json = Value::from(text.get(..end).unwrap_or_default()).to_string();
        let over = json.len().saturating_sub(most);
        if over == 0 {
            return Some(json);
        }
        if end == 0 {
            return None;
        }
        // What is escaped takes more bytes than it has: half of it at the worst turn.
        end = text.floor_char_boundary(end.saturating_sub(over).max(end / 2));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use arrow_array::RecordBatch;
    use arrow_schema::{Field, Schema};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use futures::FutureExt as _;
    use serde_json::{Map, json};

    use super::*;
    use crate::query_result::QueryStats;

    /// Memory of a pool that has so many bytes.
    fn memory(bytes: usize) -> MemoryReservation {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        MemoryConsumer::new("cells").register(&pool)
    }

    #[tokio::test]
    async fn many_long_cells_are_cut_in_slices_and_within_the_memory_of_queries() {
        let columns: [(&str, ArrayRef); 3] = [
            ("message", Arc::new(StringArray::from(vec!["x".repeat(10_000); 100]))),
            ("raw", Arc::new(BinaryArray::from_iter_values(vec![[7_u8; 100]; 100]))),
            (RAW, Arc::new(StringArray::from(vec!["AAAA".repeat(25); 100]))),
        ];
        let fields = columns
            .iter()
            .map(|(name, cells)| Field::new(*name, cells.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let rows = RecordBatch::try_new(schema, columns.map(|(_, cells)| cells).to_vec()).unwrap();
        let list = || ListAnswer::new(&rows, None, QueryStats::default()).unwrap();
        let size = rows.get_array_memory_size();

        let enough = memory(size + 100_000);
        let cutting = cut_cells(list(), Some(99), &enough);
        assert!(cutting.now_or_never().is_none(), "it holds its thread");
        let cut = cut_cells(list(), Some(99), &memory(size + 100_000)).await.unwrap();
        let cells = cut.rows().column_by_name("message").unwrap().as_string::<i32>();
        assert!(cells.iter().all(|text| text == Some("x".repeat(99).as_str())));
        // Base64 that can be read.
        let raw = cut.rows().column_by_name(RAW).unwrap().as_string::<i32>();
        assert!(raw.iter().all(|text| text.is_some_and(|text| text.len() == 96)));
        let said = cut.rows().column_by_name(CUT).unwrap().as_string::<i32>();
        assert!(
            said.iter()
                .all(|text| text == Some(r#"{"message":10000,"raw":100,"raw_msg":100}"#))
        );
        for few in [size - 1, size + 10_000] {
            let refused = cut_cells(list(), Some(99), &memory(few)).await.unwrap_err();
            assert!(refused.lacks_memory(), "{few}: {refused}");
        }
        let same = cut_cells(list(), None, &memory(0)).await.unwrap();
        assert_eq!(same.rows(), list().rows());
    }

    #[test]
    fn what_cutting_an_object_takes_grows_with_its_members_and_not_with_what_is_in_them() {
        let nested = json!({ "a": vec![0; 100_000] }).to_string();
        assert!(bytes_to_cut(&nested) < nested.len() + 200);
        let members: Map<String, Value> = (0..1_000).map(|key| (format!("k{key}"), 0.into())).collect();
        assert!(bytes_to_cut(&json!(members).to_string()) > 1_000 * BESIDE_KEY);
    }

    #[test]
    fn a_text_ends_with_a_whole_character() {
        let text = "ä".repeat(50);
        assert_eq!(cut_text(&text, false, 99), "ä".repeat(49));
        assert_eq!(cut_text(&text, false, 100), text);
    }

    #[test]
    fn an_object_stays_one_with_its_short_members_and_the_beginning_of_a_long_one() {
        let trace = "at \"x\"\n".repeat(100_000);
        let whole = json!({ "exception.stacktrace": trace, "http.status": 500, "z": null, "list": [1, 2] }).to_string();
        for most in [64, 100, 1_000, 65_536] {
            let cut = cut_text(&whole, true, most);
            assert!(cut.len() <= most && cut.len() > most / 2, "{most}: {}", cut.len());
            let object: Value = serde_json::from_str(&cut).unwrap();
            assert_eq!(
                (&object["http.status"], &object["list"], &object["z"]),
                (&json!(500), &json!([1, 2]), &Value::Null)
            );
            if let Some(text) = object["exception.stacktrace"].as_str() {
                assert!(trace.starts_with(text));
            }
        }
        assert!(cut_text(&whole, true, 1_000).contains("exception.stacktrace"));
    }

    #[test]
    fn whatever_is_in_an_object_it_fits_and_can_be_read() {
        let nasty = "\u{1}ä\"\\".repeat(500);
        for whole in [
            json!({ "a": nasty, "b": nasty, "c": { "d": nasty } }),
            json!({ (nasty.clone()): 1 }),
            json!({ "only": [nasty, nasty] }),
        ] {
            let whole = whole.to_string();
            for most in 64..400 {
                let cut = cut_text(&whole, true, most);
                assert!(cut.len() <= most, "{most}: {cut}");
                assert!(serde_json::from_str::<Map<String, Value>>(&cut).is_ok(), "{cut}");
            }
        }
    }

    #[test]
    fn what_is_no_object_is_cut_as_a_text() {
        let list = format!("[{}0]", "1,".repeat(100));
        assert_eq!(cut_text(&list, true, 64), list[..64]);
        assert!(cell_size(Some(63)).is_err() && cell_size(Some((1 << 20) + 1)).is_err());
        assert_eq!(
            (cell_size(None).unwrap(), cell_size(Some(64)).unwrap()),
            (None, Some(64))
        );
    }
}
