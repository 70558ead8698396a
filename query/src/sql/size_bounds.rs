//! Upper bounds of the bytes of a function's value, known before the value is made.
//!
//! Bytes of lists count eight for each element beside its own. Letters of a text are at most as many as its bytes.

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array, FixedSizeListArray, GenericListArray, OffsetSizeTrait};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use memchr::memmem::find_iter;

use super::function_allowlist::is_one_of;

/// What an element of a list has beside its bytes.
pub(super) const ELEMENT: u64 = 8;
/// The longest text of a number in a list.
const NUMBER: u64 = 340;
/// A text that is so large at most is not looked at for its real size.
const SMALL: u64 = 64 << 10;

/// An argument of a function for a batch of rows, and the bytes of its values.
#[derive(Debug)]
pub(super) struct SizedArgument<'a> {
    value: &'a ColumnarValue,
    /// One for all rows, or one for each.
    bytes: Vec<u64>,
}

impl<'a> SizedArgument<'a> {
    pub(super) fn of(value: &'a ColumnarValue) -> Result<Self> {
        let bytes = match value {
            ColumnarValue::Array(array) => bytes_of(array.as_ref()),
            ColumnarValue::Scalar(scalar) => bytes_of(scalar.to_array()?.as_ref()),
        };
        Ok(Self { value, bytes })
    }
}

/// The arguments of a function in one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArgumentRow<'a> {
    pub(super) arguments: &'a [SizedArgument<'a>],
    pub(super) row: usize,
}

impl ArgumentRow<'_> {
    /// The bytes of an argument; 0 if there is none.
    fn bytes(&self, index: usize) -> u64 {
        self.arguments.get(index).map_or(0, |argument| self.bytes_in(argument))
    }

    fn bytes_in(&self, argument: &SizedArgument<'_>) -> u64 {
        let bytes = argument.bytes.get(self.row).or_else(|| argument.bytes.first());
        bytes.copied().unwrap_or(0)
    }

    /// The bytes of all arguments together.
    fn all(&self) -> u64 {
        let bytes = self.arguments.iter().map(|argument| self.bytes_in(argument));
        bytes.fold(0, u64::saturating_add)
    }

    /// The bytes of the largest argument.
    pub(super) fn largest(&self) -> u64 {
        let bytes = self.arguments.iter().map(|argument| self.bytes_in(argument));
        bytes.max().unwrap_or(0)
    }

    fn count(&self) -> u64 {
        self.arguments.len() as u64
    }

    fn text(&self, index: usize) -> Option<&str> {
        match self.arguments.get(index)?.value {
            ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten(),
            ColumnarValue::Array(array) if array.is_null(self.row) => None,
            ColumnarValue::Array(array) => match array.data_type() {
                DataType::Utf8 => Some(array.as_string::<i32>().value(self.row)),
                DataType::LargeUtf8 => Some(array.as_string::<i64>().value(self.row)),
                DataType::Utf8View => Some(array.as_string_view().value(self.row)),
                _ => None,
            },
        }
    }

    /// A number of letters or times; 0 for one below.
    fn number(&self, index: usize) -> u64 {
        let number = match self.arguments.get(index).map(|argument| argument.value) {
            Some(ColumnarValue::Scalar(ScalarValue::Int64(number))) => number.unwrap_or(0),
            Some(ColumnarValue::Array(array)) => match array.as_primitive_opt::<Int64Type>() {
                Some(numbers) if numbers.is_valid(self.row) => numbers.value(self.row),
                Some(_) => 0,
                None => i64::MAX,
            },
            Some(ColumnarValue::Scalar(other)) if other.is_null() => 0,
            Some(ColumnarValue::Scalar(_)) => i64::MAX,
            None => 0,
        };
        u64::try_from(number).unwrap_or(0)
    }

    /// The bytes of the first argument, which has so many times as many in other letters.
    fn cased(&self, times: u64) -> u64 {
        let times = if self.text(0).is_some_and(str::is_ascii) {
            1
        } else {
            times
        };
        self.bytes(0).saturating_mul(times)
    }

    /// How often a letter of ASCII is in a text; as often as it can be where the text is not known.
    fn letters(&self, index: usize, letters: &[u8]) -> u64 {
        let count = |text: &str| text.bytes().filter(|byte| letters.contains(byte)).count() as u64;
        self.text(index).map_or_else(|| self.bytes(index), count)
    }
}

/// The most bytes that a function makes of the arguments of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum SizeBound {
    /// A copy of what it is given, or of parts of that.
    Copy,
    /// So many.
    UpTo(fn(&ArgumentRow<'_>) -> u64),
}

/// Functions whose values are not larger than what they are given, and copies of it.
const COPYING: [&str; 4] = [
    "btrim decode greatest least left ltrim nullif reverse right rtrim split_part substr substr_index",
    "array_any_value array_distinct array_element array_except array_intersect array_max array_min array_pop_back",
    "array_pop_front array_remove array_remove_all array_remove_n array_reverse array_slice array_sort flatten",
    "json_get json_keys json_text",
];

/// The bound of a function whose values are texts, bytes or lists; `None` for all others.
pub(super) fn size_bound(function: &str) -> Option<SizeBound> {
    if is_one_of(&COPYING, function) {
        return Some(SizeBound::Copy);
    }
    Some(SizeBound::UpTo(match function {
        // `ΐ` has two bytes, and six as capitals; `İ` has two, and three as a small letter.
        "initcap" | "upper" => |row| row.cased(3),
        "lower" => |row| row.cased(2),
        "concat" | "||" => |row| row.all(),
        "concat_ws" => |row| row.all().saturating_add(row.bytes(0).saturating_mul(row.count())),
        "encode" | "quote_ident" => |row| row.bytes(0).saturating_mul(2).saturating_add(4),
        "translate" => |row| row.bytes(0).saturating_mul(4),
        "overlay" => |row| row.bytes(0).saturating_mul(2).saturating_add(row.bytes(1)),
        "repeat" => |row| row.bytes(0).saturating_mul(row.number(1)),
        "lpad" | "rpad" => |row| row.bytes(0).saturating_add(row.number(1).saturating_mul(4)),
        "replace" => replaced,
        "regexp_replace" => |row| {
            // What is in brackets comes again for each word of the replacement that stands for it.
            let kept = row.bytes(0).saturating_mul(1 + row.letters(2, b"$\\"));
            let everywhere = row.arguments.get(3).is_some() && row.letters(3, b"g") > 0;
            let times = if everywhere { row.bytes(0) + 1 } else { 1 };
            kept.saturating_add(row.bytes(2).saturating_mul(times))
        },
        "regexp_count" | "regexp_instr" => |_| ELEMENT,
        "regexp_match" => |row| (row.bytes(0) + ELEMENT).saturating_mul(1 + row.letters(1, b"(")),
        "to_char" => |row| row.bytes(1).saturating_mul(16).saturating_add(64),
        "array_append" | "array_concat" | "array_prepend" | "array_union" | "make_array" => {
            |row| row.all().saturating_add(row.count().saturating_mul(ELEMENT))
        }
        "array_to_string" => |row| {
            let between = row.bytes(1).saturating_add(row.bytes(2)).saturating_add(NUMBER);
            let elements = row.bytes(0) / ELEMENT;
            row.bytes(0).saturating_add(elements.saturating_mul(between))
        },
        "string_to_array" | "parse_ident" => |row| {
            let elements = row.bytes(0) / row.bytes(1).max(1) + 1;
            row.bytes(0).saturating_add(elements.saturating_mul(ELEMENT))
        },
        _ => return None,
    }))
}

/// `replace(text, from, to)`: counted where it might be large.
fn replaced(row: &ArgumentRow<'_>) -> u64 {
    let (text, from, to) = (row.bytes(0), row.bytes(1), row.bytes(2));
    let after = |times: u64| text.saturating_add(times.saturating_mul(to.saturating_sub(from)));
    let times = text.checked_div(from).unwrap_or_else(|| text.saturating_add(1));
    let most = after(times);
    if most <= SMALL || from == 0 {
        return most;
    }
    match (row.text(0), row.text(1)) {
        (Some(text), Some(from)) => after(find_iter(text.as_bytes(), from.as_bytes()).count() as u64),
        _ => most,
    }
}

/// The bytes of each value.
pub(super) fn bytes_of(array: &dyn Array) -> Vec<u64> {
    match array.data_type() {
        DataType::Utf8 => between(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => between(array.as_string::<i64>().value_offsets()),
        DataType::Binary => between(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => between(array.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => {
            let texts = array.as_string_view().iter();
            texts.map(|text| text.map_or(0, str::len) as u64).collect()
        }
        DataType::BinaryView => {
            let values = array.as_binary_view().iter();
            values.map(|value| value.map_or(0, <[u8]>::len) as u64).collect()
        }
        DataType::List(_) => of_lists(array.as_list::<i32>()),
        DataType::LargeList(_) => of_lists(array.as_list::<i64>()),
        DataType::FixedSizeList(..) => of_fixed_lists(array.as_fixed_size_list()),
        DataType::Struct(_) => {
            let mut all = vec![0_u64; array.len()];
            for column in array.as_struct().columns() {
                for (sum, bytes) in all.iter_mut().zip(bytes_of(column.as_ref())) {
                    *sum = sum.saturating_add(bytes);
                }
            }
            all
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = bytes_of(dictionary.values().as_ref());
            // Keys of nulls alone have no value to be one of.
            if values.is_empty() {
                return vec![0; array.len()];
            }
            let keys = dictionary.normalized_keys().into_iter();
            keys.map(|key| values.get(key).copied().unwrap_or(0)).collect()
        }
        DataType::Null => vec![0; array.len()],
        DataType::FixedSizeBinary(width) => vec![u64::try_from(*width).unwrap_or(0); array.len()],
        other => vec![other.primitive_width().unwrap_or(16) as u64; array.len()],
    }
}

fn between<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<u64> {
    let pairs = offsets.iter().zip(offsets.iter().skip(1));
    pairs
        .map(|(from, to)| (to.as_usize() - from.as_usize()) as u64)
        .collect()
}

/// The bytes of all elements before each one.
fn sums(elements: &dyn Array) -> Vec<u64> {
    let mut sum = 0_u64;
    let sums = bytes_of(elements).into_iter().map(|bytes| {
        sum = sum.saturating_add(bytes.saturating_add(ELEMENT));
        sum
    });
    std::iter::once(0).chain(sums).collect()
}

fn of_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Vec<u64> {
    let sums = sums(lists.values().as_ref());
    let at = |offset: &O| sums.get(offset.as_usize()).copied().unwrap_or(u64::MAX);
    let offsets = lists.value_offsets();
    let pairs = offsets.iter().zip(offsets.iter().skip(1));
    pairs.map(|(from, to)| at(to).saturating_sub(at(from))).collect()
}

fn of_fixed_lists(lists: &FixedSizeListArray) -> Vec<u64> {
    let sums = sums(lists.values().as_ref());
    let at = |offset: i32| {
        let sum = usize::try_from(offset).ok().and_then(|offset| sums.get(offset));
        sum.copied().unwrap_or(u64::MAX)
    };
    let rows = 0..lists.len();
    rows.map(|row| {
        let from = lists.value_offset(row);
        at(from.saturating_add(lists.value_length())).saturating_sub(at(from))
    })
    .collect()
}
