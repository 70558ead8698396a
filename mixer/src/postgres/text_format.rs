//! Text format of values, as PostgreSQL writes them.

use std::fmt::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use bytes::{BufMut, BytesMut};
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
            let midnight = query::text_of_time(days.saturating_mul(DAY_MICROS), "");
            out.write_str(midnight.trim_end_matches(" 00:00:00"))
        }
        ScalarType::Time => {
            let micros = column.as_primitive::<Time64MicrosecondType>().value(row);
            let on_some_day = query::text_of_time(micros.rem_euclid(DAY_MICROS), "");
            // The end of a day is a time of its own.
            let clock = if micros == DAY_MICROS {
                "24:00:00"
            } else {
                on_some_day.trim_start_matches("1970-01-01 ")
            };
            out.write_str(clock)
        }
        ScalarType::Timestamp | ScalarType::Timestamptz => {
            let zone = if scalar == ScalarType::Timestamp { "" } else { "+00" };
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            out.write_str(&query::text_of_time(micros, zone))
        }
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
