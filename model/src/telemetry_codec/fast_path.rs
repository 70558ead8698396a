//! The quick way of a JSON record into columns: the usual forms, read in place.
//!
//! # Invariants
//!
//! - What it takes ends up byte by byte as by the general way ([`super::batch_builder`]). A record it is not sure of is given back whole, and
//!   the general way reads it anew, names what is wrong, or stores it.
//!
//! # Not here
//!
//! What a record lacks: [`super::batch_builder`] completes it either way.

use std::ops::Range;

use super::column_buffer::ColumnBuffer;
use crate::batch::allowed_words;
use crate::json_scan::{JsonScanner, NumberToken, unescape};
use crate::{ColumnType, Table, TableColumn, Timestamp};

/// What is used again from record to record.
#[derive(Debug, Default)]
pub(super) struct JsonFastPath {
    /// Keys and values of the present object, with their quotes.
    leaves: Vec<(Range<usize>, Range<usize>)>,
}

/// Where a record goes.
pub(super) struct ColumnTarget<'a> {
    pub(super) table: Table,
    pub(super) columns: &'static [TableColumn],
    pub(super) cells: &'a mut [ColumnBuffer],
    pub(super) valid: &'a mut [Vec<bool>],
}

impl JsonFastPath {
    /// Reads a record; a bit for each column that it has. After `None` columns may have a cell too many.
    pub(super) fn record(&mut self, text: &[u8], mut to: ColumnTarget<'_>) -> Option<u32> {
        let mut scan = JsonScanner::new(text);
        if !scan.consume_byte(b'{') {
            return None;
        }
        let (mut seen, mut likely) = (0u32, 0);
        loop {
            scan.peek()?;
            let key = scan.text()?;
            let name = scan.bytes(key.range);
            let is_named = |column: &TableColumn| column.name.as_bytes() == name;
            let at = if to.columns.get(likely).is_some_and(is_named) {
                likely
            } else {
                to.columns.iter().position(is_named)?
            };
            if seen & (1 << at) != 0 || !scan.consume_byte(b':') {
                return None;
            }
            scan.peek()?;
            self.value(&mut scan, &mut to, at)?;
            seen |= 1 << at;
            likely = at + 1;
            if !scan.consume_byte(b',') {
                break;
            }
        }
        let is_whole = scan.consume_byte(b'}') && scan.consume_end();
        // Outside of texts no high byte is passed over.
        (is_whole && (!scan.has_high_bytes() || std::str::from_utf8(text).is_ok())).then_some(seen)
    }

    fn value(&mut self, scan: &mut JsonScanner<'_>, to: &mut ColumnTarget<'_>, at: usize) -> Option<()> {
        let column = to.columns.get(at)?;
        let cells = to.cells.get_mut(at)?;
        if column.nullable {
            let is_there = scan.peek() != Some(b'n');
            to.valid.get_mut(at)?.push(is_there);
            if !is_there {
                scan.literal(b"null")?;
                cells.push_nothing();
                return Some(());
            }
        }
        match column.kind {
            ColumnType::Json => return self.object(scan, cells),
            ColumnType::Float | ColumnType::Double => return number(scan, cells),
            _ => {}
        }
        let text = scan.text()?;
        let bytes = scan.bytes(text.range);
        match (column.kind, cells) {
            (ColumnType::Time, ColumnBuffer::Times(cells)) => {
                cells.push(std::str::from_utf8(bytes).ok()?.parse::<Timestamp>().ok()?.micros());
            }
            (ColumnType::Uuid, cells) => cells.push_uuid(uuid::Uuid::try_parse_ascii(bytes).ok()?.as_bytes()),
            (ColumnType::Text, cells) if column.name.ends_with("_id") => {
                let length = if column.name == "trace_id" { 32 } else { 16 };
                let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                let is_id = bytes.len() == length && bytes.iter().all(is_hex) && bytes.iter().any(|byte| *byte != b'0');
                is_id.then(|| cells.push_text(bytes))?;
            }
            (ColumnType::Word, cells) => {
                let allowed = allowed_words(to.table, column.name);
                if text.escaped || allowed.is_some_and(|allowed| !allowed.iter().any(|word| word.as_bytes() == bytes)) {
                    return None;
                }
                cells.push_text(bytes);
            }
            (_, ColumnBuffer::Texts { bytes: all, ends }) if text.escaped => {
                unescape(bytes, all);
                ends.push(i32::try_from(all.len()).unwrap_or(i32::MAX));
            }
            (_, cells) => cells.push_text(bytes),
        }
        Some(())
    }

    /// A flat object whose parts are as they would be stored: copied, its keys in order.
    fn object(&mut self, scan: &mut JsonScanner<'_>, cells: &mut ColumnBuffer) -> Option<()> {
        let ColumnBuffer::Texts { bytes: to, ends } = cells else {
            return None;
        };
        let leaves = &mut self.leaves;
        leaves.clear();
        let start = scan.at;
        scan.read_flat_object(|key, value, canonical| {
            leaves.push((key.range, value));
            (canonical && !key.escaped).then_some(())
        })?;
        let key = |leaf: &(Range<usize>, Range<usize>)| scan.bytes(leaf.0.clone());
        if !leaves.is_sorted_by(|a, b| key(a) < key(b)) {
            // Stable: of equal keys the last one read comes last, and is the one to keep.
            leaves.sort_by(|a, b| key(a).cmp(key(b)));
            leaves.reverse();
            leaves.dedup_by(|later, kept| key(later) == key(kept));
            leaves.reverse();
        }
        // A brace or comma, two quotes and a colon for each, and the closing brace.
        let bytes: usize = leaves.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
        let whole = scan.bytes(start..scan.at);
        if whole.len() == bytes + 1 && leaves.is_sorted_by_key(|(key, _)| key.start) {
            to.extend_from_slice(whole);
        } else {
            let mut before = b'{';
            for (key, value) in leaves.iter() {
                to.extend_from_slice(&[before, b'"']);
                to.extend_from_slice(scan.bytes(key.clone()));
                to.extend_from_slice(b"\":");
                to.extend_from_slice(scan.bytes(value.clone()));
                before = b',';
            }
            to.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
        }
        ends.push(i32::try_from(to.len()).unwrap_or(i32::MAX));
        Some(())
    }
}

/// A number as serde would cast it.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "as serde casts numbers to floats"
)]
fn number(scan: &mut JsonScanner<'_>, cells: &mut ColumnBuffer) -> Option<()> {
    let number = scan.number()?;
    let is_zero = number.significand == 0;
    let (wide, narrow) = match number.decimals {
        None if number.digits <= NumberToken::EXACT && !(number.negative && is_zero) => {
            let sign = if number.negative { -1 } else { 1 };
            let whole = sign * number.significand as i64;
            (whole as f64, whole as f32)
        }
        // Both are exact, so their quotient is the nearest there is.
        Some(decimals) if number.digits <= NumberToken::FLOAT_DIGITS => {
            let size = number.significand as f64 / 10f64.powi(decimals as i32);
            let wide = if number.negative { -size } else { size };
            (wide, wide as f32)
        }
        _ => {
            let wide: f64 = serde_json::from_slice(scan.bytes(number.range)).ok()?;
            (wide, wide as f32)
        }
    };
    match cells {
        // The general way says what is wrong with the others.
        ColumnBuffer::Floats(cells) if narrow.is_finite() => cells.push(narrow + 0.0),
        ColumnBuffer::Doubles(cells) if wide.is_finite() => cells.push(wide + 0.0),
        _ => return None,
    }
    Some(())
}
