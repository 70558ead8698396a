//! Text format of values, as PostgreSQL writes them.

use std::fmt::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use bytes::{BufMut, BytesMut};
use chrono::DateTime;
use uuid::Uuid;

use super::pg_types::ScalarType;

const DAY_MICROS: i64 = 86_400_000_000;

/// Writes one value of a canonical column.
pub(super) fn put(out: &mut BytesMut, scalar: ScalarType, column: &dyn Array, row: usize) {
    // Writing into memory does not fail.
    let _ = match scalar {
        ScalarType::Bool => out.write_char(if column.as_boolean().value(row) { 't' } else { 'f' }),
        ScalarType::Int2 => write!(out, "{}", column.as_primitive::<Int16Type>().value(row)),
        ScalarType::Int4 => write!(out, "{}", column.as_primitive::<Int32Type>().value(row)),
        ScalarType::Int8 => write!(out, "{}", column.as_primitive::<Int64Type>().value(row)),
        ScalarType::Float4 => {
            let value = column.as_primitive::<Float32Type>().value(row);
            out.write_str(&query::text_of_real(value))
        }
        ScalarType::Float8 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            out.write_str(&query::text_of_double(value))
        }
        ScalarType::Numeric | ScalarType::Text => out.write_str(column.as_string::<i32>().value(row)),
        ScalarType::Bytea => bytes(out, column.as_binary::<i32>().value(row)),
        ScalarType::Uuid => {
            let id = Uuid::from_slice(column.as_fixed_size_binary().value(row)).unwrap_or_default();
            write!(out, "{}", id.hyphenated())
        }
        ScalarType::Date => {
            let days = i64::from(column.as_primitive::<Date32Type>().value(row));
            date(out, days.saturating_mul(DAY_MICROS))
        }
        ScalarType::Time => clock(out, column.as_primitive::<Time64MicrosecondType>().value(row)),
        ScalarType::Timestamp => moment(out, column.as_primitive::<TimestampMicrosecondType>().value(row), ""),
        ScalarType::Timestamptz => moment(out, column.as_primitive::<TimestampMicrosecondType>().value(row), "+00"),
        ScalarType::Interval => {
            let value = column.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let micros = value.nanoseconds / 1_000;
            out.write_str(&query::text_of_interval(value.months, value.days.into(), micros))
        }
    };
}

/// Writes a list of values: `{a,"b c",NULL}`.
pub(super) fn put_array(out: &mut BytesMut, scalar: ScalarType, items: &ArrayRef) {
    out.put_u8(b'{');
    for row in 0..items.len() {
        if row > 0 {
            out.put_u8(b',');
        }
        if items.is_null(row) {
            out.put_slice(b"NULL");
            continue;
        }
        let mut item = BytesMut::new();
        put(&mut item, scalar, items, row);
        let plain = |byte: &u8| !byte.is_ascii_whitespace() && *byte != b'\x0b' && !b"{},\"\\".contains(byte);
        if !item.is_empty() && item.iter().all(plain) && !item.eq_ignore_ascii_case(b"null") {
            out.put_slice(&item);
            continue;
        }
        out.put_u8(b'"');
        for byte in item {
            if byte == b'"' || byte == b'\\' {
                out.put_u8(b'\\');
            }
            out.put_u8(byte);
        }
        out.put_u8(b'"');
    }
    out.put_u8(b'}');
}

fn bytes(out: &mut BytesMut, bytes: &[u8]) -> std::fmt::Result {
    out.write_str("\\x")?;
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

fn date(out: &mut BytesMut, micros: i64) -> std::fmt::Result {
    match DateTime::from_timestamp_micros(micros) {
        Some(at) => write!(out, "{}", at.format("%Y-%m-%d")),
        None => endless(out, micros),
    }
}

fn moment(out: &mut BytesMut, micros: i64, zone: &str) -> std::fmt::Result {
    if DateTime::from_timestamp_micros(micros).is_none() {
        return endless(out, micros);
    }
    date(out, micros)?;
    out.write_char(' ')?;
    clock(out, micros.rem_euclid(DAY_MICROS))?;
    out.write_str(zone)
}

/// A time that no calendar has.
fn endless(out: &mut BytesMut, micros: i64) -> std::fmt::Result {
    out.write_str(if micros < 0 { "-infinity" } else { "infinity" })
}

/// Hours, minutes, seconds, and as much of microseconds as there is.
fn clock(out: &mut BytesMut, micros: i64) -> std::fmt::Result {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    write!(out, "{hours:02}:{minutes:02}:{:02}", seconds % 60)?;
    if fraction == 0 {
        return Ok(());
    }
    out.write_str(format!(".{fraction:06}").trim_end_matches('0'))
}
