//! Type ids of columns and the encoding of their values.
//!
//! | column | type | |
//! |---|---|---|
//! | ids (16 bytes) | `uuid` | |
//! | times with a zone | `timestamptz` | microseconds, shown in UTC |
//! | texts, JSON columns, what has no type of its own | `text` | JSON as its text |
//! | whole numbers | `int2`, `int4`, `int8` | without sign the next larger, at last `numeric` |
//! | `Float32`, `Float64` | `float4`, `float8` | |
//! | decimals | `numeric` | |
//! | lists of the above | arrays | within lists: JSON as text |

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, IntervalMonthDayNanoArray, StringArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, IntervalUnit, TimeUnit};
use bytes::{BufMut, BytesMut};

use super::{numeric, text_format};

/// Microseconds and days from 1970 to 2000, from which PostgreSQL counts.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i32 = 10_957;
const DAY_MICROS: i64 = 86_400_000_000;

/// A type of a column that is no array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarType {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
}

use ScalarType::{
    Bool, Bytea, Date, Float4, Float8, Int2, Int4, Int8, Interval, Numeric, Text, Time, Timestamp, Timestamptz, Uuid,
};

/// Every scalar with its id, that of its array, and its size.
const SCALARS: [(ScalarType, u32, u32, i16); 15] = [
    (Bool, 16, 1000, 1),
    (Int2, 21, 1005, 2),
    (Int4, 23, 1007, 4),
    (Int8, 20, 1016, 8),
    (Float4, 700, 1021, 4),
    (Float8, 701, 1022, 8),
    (Numeric, 1700, 1231, -1),
    (Text, 25, 1009, -1),
    (Bytea, 17, 1001, -1),
    (Uuid, 2950, 2951, 16),
    (Date, 1082, 1182, 4),
    (Time, 1083, 1183, 8),
    (Timestamp, 1114, 1115, 8),
    (Timestamptz, 1184, 1185, 8),
    (Interval, 1186, 1187, 16),
];

/// A type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PgType {
    One(ScalarType),
    Array(ScalarType),
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatCode {
    Text,
    Binary,
}

impl ScalarType {
    fn of(kind: &DataType) -> Option<Self> {
        Some(match kind {
            DataType::Boolean => Bool,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => Int2,
            DataType::Int32 | DataType::UInt16 => Int4,
            DataType::Int64 | DataType::UInt32 => Int8,
            DataType::Float16 | DataType::Float32 => Float4,
            DataType::Float64 => Float8,
            DataType::UInt64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => Numeric,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => Text,
            DataType::FixedSizeBinary(16) => Uuid,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Bytea,
            DataType::Date32 | DataType::Date64 => Date,
            DataType::Time32(_) | DataType::Time64(_) => Time,
            DataType::Timestamp(_, None) => Timestamp,
            DataType::Timestamp(_, Some(_)) => Timestamptz,
            DataType::Interval(_) | DataType::Duration(_) => Interval,
            DataType::Dictionary(_, values) => return Self::of(values),
            _ => return None,
        })
    }

    /// The scalar with an id, or the one that stands for it in parameters.
    pub(super) fn of_oid(oid: u32) -> Option<Self> {
        match oid {
            // varchar, bpchar, name, json, jsonb, "char", unknown
            1043 | 1042 | 19 | 114 | 3802 | 18 | 705 => Some(Text),
            // oid, regclass and the like
            26 | 2205 | 2206 | 4089 => Some(Int4),
            _ => SCALARS.iter().find(|known| known.1 == oid).map(|known| known.0),
        }
    }

    /// The one form of columns whose values are written here.
    fn canonical(self) -> DataType {
        match self {
            Bool => DataType::Boolean,
            Int2 => DataType::Int16,
            Int4 => DataType::Int32,
            Int8 => DataType::Int64,
            Float4 => DataType::Float32,
            Float8 => DataType::Float64,
            // Its digits.
            Numeric | Text => DataType::Utf8,
            Bytea => DataType::Binary,
            Uuid => DataType::FixedSizeBinary(16),
            Date => DataType::Date32,
            Time => DataType::Time64(TimeUnit::Microsecond),
            Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        }
    }
}

impl PgType {
    pub(super) fn of(kind: &DataType) -> Self {
        if let Some(scalar) = ScalarType::of(kind) {
            return Self::One(scalar);
        }
        let item = match kind {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                ScalarType::of(item.data_type())
            }
            _ => None,
        };
        item.map_or(Self::One(Text), Self::Array)
    }

    fn known(self) -> (u32, i16) {
        let (Self::One(scalar) | Self::Array(scalar)) = self;
        let known = SCALARS.iter().find(|known| known.0 == scalar);
        let (one, array, size) = known.map_or((25, 1009, -1), |known| (known.1, known.2, known.3));
        match self {
            Self::One(_) => (one, size),
            Self::Array(_) => (array, -1),
        }
    }

    /// The type with an id, or the one that stands for it in parameters.
    pub(super) fn of_oid(oid: u32) -> Option<Self> {
        let scalar = ScalarType::of_oid(oid).map(Self::One);
        scalar.or_else(|| match oid {
            // Lists of varchar, bpchar, name, json, jsonb, "char"
            1015 | 1014 | 1003 | 199 | 3807 | 1002 => Some(Self::Array(Text)),
            // of oid
            1028 => Some(Self::Array(Int4)),
            _ => SCALARS
                .iter()
                .find(|known| known.2 == oid)
                .map(|known| Self::Array(known.0)),
        })
    }

    pub(super) fn oid(self) -> u32 {
        self.known().0
    }

    /// Its size in bytes, -1 if it has none.
    pub(super) fn size(self) -> i16 {
        self.known().1
    }

    /// What the planner is told of a parameter of this type; nothing of those that are texts for it.
    pub(super) fn declared(self) -> Option<DataType> {
        let is_text = matches!(self, Self::One(Text | Numeric) | Self::Array(Numeric | Uuid | Bytea));
        (!is_text).then(|| self.wanted())
    }

    /// The one form of columns of this type.
    fn wanted(self) -> DataType {
        match self {
            Self::One(scalar) => scalar.canonical(),
            Self::Array(scalar) => DataType::List(Arc::new(Field::new("item", scalar.canonical(), true))),
        }
    }

    /// A column as values of this type are written from.
    pub(super) fn canonical(self, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let wanted = self.wanted();
        if *column.data_type() == wanted {
            return Ok(Arc::clone(column));
        }
        if matches!(column.data_type(), DataType::Duration(_)) {
            return days_and_time(column);
        }
        match cast(column, &wanted) {
            Ok(column) => Ok(column),
            Err(_) if wanted == DataType::Utf8 => as_json(column),
            Err(error) => Err(error),
        }
    }
}

/// Differences of times as PostgreSQL has them.
fn days_and_time(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let micros = cast(
        &cast(column, &DataType::Duration(TimeUnit::Microsecond))?,
        &DataType::Int64,
    )?;
    let interval = |micros: i64| {
        let days = i32::try_from(micros / DAY_MICROS).unwrap_or(i32::MAX);
        IntervalMonthDayNano::new(0, days, micros % DAY_MICROS * 1_000)
    };
    let intervals: IntervalMonthDayNanoArray = micros.as_primitive::<Int64Type>().unary(interval);
    Ok(Arc::new(intervals))
}

/// Values that have no other form.
fn as_json(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let json = (0..column.len()).map(|row| {
        let json = || query::json_of(column, row).map_err(|error| ArrowError::ExternalError(Box::new(error)));
        column.is_valid(row).then(json).transpose()
    });
    let json: Vec<Option<String>> = json.collect::<Result<_, _>>()?;
    Ok(Arc::new(StringArray::from(json)))
}

/// Writes one value of a canonical column, with its length before it.
pub(super) fn put(out: &mut BytesMut, kind: PgType, form: FormatCode, column: &dyn Array, row: usize) {
    if column.is_null(row) {
        out.put_i32(-1);
        return;
    }
    let at = out.len();
    out.put_i32(0);
    match kind {
        PgType::One(scalar) => one(out, scalar, form, column, row),
        PgType::Array(scalar) => array(out, scalar, form, &column.as_list::<i32>().value(row)),
    }
    let length = i32::try_from(out.len() - at - 4).unwrap_or(i32::MAX);
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

fn one(out: &mut BytesMut, scalar: ScalarType, form: FormatCode, column: &dyn Array, row: usize) {
    match form {
        FormatCode::Text => text_format::put(out, scalar, column, row),
        FormatCode::Binary => binary(out, scalar, column, row),
    }
}

fn binary(out: &mut BytesMut, scalar: ScalarType, column: &dyn Array, row: usize) {
    match scalar {
        Bool => out.put_u8(column.as_boolean().value(row).into()),
        Int2 => out.put_i16(column.as_primitive::<Int16Type>().value(row)),
        Int4 => out.put_i32(column.as_primitive::<Int32Type>().value(row)),
        Int8 => out.put_i64(column.as_primitive::<Int64Type>().value(row)),
        Float4 => out.put_f32(column.as_primitive::<Float32Type>().value(row)),
        Float8 => out.put_f64(column.as_primitive::<Float64Type>().value(row)),
        Numeric => numeric::put(out, column.as_string::<i32>().value(row)),
        Text => out.put_slice(column.as_string::<i32>().value(row).as_bytes()),
        Bytea => out.put_slice(column.as_binary::<i32>().value(row)),
        Uuid => out.put_slice(column.as_fixed_size_binary().value(row)),
        Date => out.put_i32(
            column
                .as_primitive::<Date32Type>()
                .value(row)
                .saturating_sub(EPOCH_DAYS),
        ),
        Time => out.put_i64(column.as_primitive::<Time64MicrosecondType>().value(row)),
        Timestamp | Timestamptz => {
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            out.put_i64(micros.saturating_sub(EPOCH_MICROS));
        }
        Interval => {
            let interval = column.as_primitive::<IntervalMonthDayNanoType>().value(row);
            out.put_i64(interval.nanoseconds / 1_000);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
    }
}

fn array(out: &mut BytesMut, scalar: ScalarType, form: FormatCode, items: &ArrayRef) {
    if form == FormatCode::Text {
        return text_format::put_array(out, scalar, items);
    }
    let length = i32::try_from(items.len()).unwrap_or(i32::MAX);
    out.put_i32(i32::from(length > 0));
    out.put_i32(i32::from(items.null_count() > 0));
    out.put_u32(PgType::One(scalar).oid());
    if length > 0 {
        out.put_i32(length);
        out.put_i32(1);
    }
    for row in 0..items.len() {
        put(out, PgType::One(scalar), form, items, row);
    }
}

/// Microseconds since 1970 of a binary time.
pub(super) fn micros_since_1970(binary: i64) -> i64 {
    binary.saturating_add(EPOCH_MICROS)
}

/// Days since 1970 of a binary date.
pub(super) fn days_since_1970(binary: i32) -> i32 {
    binary.saturating_add(EPOCH_DAYS)
}
