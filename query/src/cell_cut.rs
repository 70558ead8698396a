//! Cuts long cells of lists: a page of a thousand rows does not bring a megabyte for one of them.
//!
//! | cell | what is left |
//! |---|---|
//! | text | its beginning, up to the last whole character |
//! | bytes | the first ones |
//! | object of JSON | an object: short members first; one that does not fit is the beginning of its text, or of its JSON; others go |
//!
//! # Invariants
//!
//! - A cell that is left has no more bytes than were asked for, and one that had no more is untouched.
//! - The column `cut` has, for each row with a cut cell, an object with the whole sizes of those cells, in bytes.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, BinaryArray, StringArray};
use arrow_schema::DataType;
use model::filter::{MAX_CELL, MIN_CELL};
use serde_json::{Map, Value};

use crate::Error;
use crate::columns::SqlColumn;
use crate::query_result::ListAnswer;

/// The column that says what was cut.
const CUT: &str = "cut";

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

/// A list whose cells have no more bytes than these, if a number is given.
pub(crate) fn cut_cells(list: ListAnswer, most: Option<usize>) -> Result<ListAnswer, Error> {
    let Some(most) = most else {
        return Ok(list);
    };
    let mut sizes = vec![Map::new(); list.rows().num_rows()];
    let list = list.map_columns(|(column, cells)| cut_column(column, cells, most, &mut sizes))?;
    let cut = sizes
        .into_iter()
        .map(|sizes| (!sizes.is_empty()).then(|| Value::Object(sizes).to_string()));
    let list = list.with_json_column(CUT, Arc::new(cut.collect::<StringArray>()))?;
    Ok(list.with_sparse(vec![CUT]))
}

/// A column with its long cells cut, whose sizes are noted.
fn cut_column(column: &SqlColumn, cells: &ArrayRef, most: usize, sizes: &mut [Map<String, Value>]) -> ArrayRef {
    let lengths: Vec<Option<usize>> = match cells.data_type() {
        DataType::Utf8 => cells.as_string::<i32>().iter().map(|text| text.map(str::len)).collect(),
        DataType::Binary => cells
            .as_binary::<i32>()
            .iter()
            .map(|bytes| bytes.map(<[u8]>::len))
            .collect(),
        _ => Vec::new(),
    };
    let mut is_cut = false;
    for (length, sizes) in lengths.into_iter().zip(sizes) {
        if let Some(length) = length.filter(|length| *length > most) {
            sizes.insert(column.name.clone(), length.into());
            is_cut = true;
        }
    }
    if !is_cut {
        return Arc::clone(cells);
    }
    if *cells.data_type() == DataType::Binary {
        let bytes = cells.as_binary::<i32>().iter();
        let bytes = bytes.map(|bytes| bytes.map(|bytes| bytes.get(..most).unwrap_or(bytes)));
        return Arc::new(bytes.collect::<BinaryArray>());
    }
    let is_json = column.kind == "json";
    let texts = cells.as_string::<i32>().iter();
    let texts = texts.map(|text| text.map(|text| cut_text(text, is_json, most)));
    Arc::new(texts.collect::<StringArray>())
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
    let members: Map<String, Value> = serde_json::from_str(text).ok()?;
    let written = members
        .iter()
        .map(|(key, value)| (Value::from(key.as_str()).to_string(), value.to_string(), value));
    let mut written: Vec<_> = written.enumerate().collect();
    written.sort_by_key(|(_, (key, json, _))| key.len() + json.len());
    let mut room = most.saturating_sub(2);
    let mut shown = Vec::with_capacity(written.len());
    for (place, (key, json, value)) in written {
        // A colon and a comma.
        let Some(left) = room.checked_sub(key.len() + 2) else {
            break;
        };
        let json = if json.len() <= left {
            Some(json)
        } else {
            beginning(value, left)
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
fn beginning(value: &Value, most: usize) -> Option<String> {
    let text = match value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        other => Cow::Owned(other.to_string()),
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
    use serde_json::json;

    use super::*;

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
