//! Column metrics: how many values and nulls a column of a file has, and its least and greatest value, as Iceberg serializes them.
//!
//! | type | bound |
//! |---|---|
//! | `timestamptz`, `long` | eight bytes, little-endian |
//! | `float`, `double` | four or eight bytes, little-endian; NaN is not counted in |
//! | `boolean` | one byte |
//! | `string` | UTF-8 of 16 characters at most: the lower one cut, the upper one cut and made larger |
//! | `uuid`, `binary` | none |
//!
//! # Invariants
//!
//! - No value is below the lower or above the upper bound: where a footer does not say enough, there is no bound.
//! - Ids have none. Iceberg's own Java library compares them as signed numbers (before 1.11), and ClickHouse reads them in another
//!   byte order: either would skip files that have the row. The footers and filters of the files still prune by ids.
//!
//! # Not here
//!
//! Which columns a file has: [`crate::schema`].

use std::ops::Neg;

use model::Timestamp;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};

use crate::schema::IcebergType;

/// Characters of a text in a bound, at most.
const TEXT_CHARACTERS: usize = 16;

/// What is known of a column of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnMetrics {
    /// Values, nulls among them.
    pub(crate) values: i64,
    /// Nulls, if all row groups say so.
    pub(crate) nulls: Option<i64>,
    /// No value is less.
    pub(crate) lower: Option<Vec<u8>>,
    /// No value is greater.
    pub(crate) upper: Option<Vec<u8>>,
}

impl ColumnMetrics {
    /// Of a column that has these chunks, one in each row group.
    pub(crate) fn of(kind: IcebergType, chunks: &[&ColumnChunkMetaData]) -> Self {
        let (lower, upper) = bounds(kind, chunks);
        let add = |sum: i64, chunk: &&ColumnChunkMetaData| sum.checked_add(nulls(chunk)?);
        Self {
            values: chunks
                .iter()
                .fold(0, |sum, chunk| i64::saturating_add(sum, chunk.num_values())),
            nulls: chunks.iter().try_fold(0, add),
            lower,
            upper,
        }
    }
}

/// A moment as a bound.
pub(crate) fn of_timestamp(at: Timestamp) -> Vec<u8> {
    at.micros().to_le_bytes().to_vec()
}

fn nulls(chunk: &ColumnChunkMetaData) -> Option<i64> {
    if chunk.column_descr().max_def_level() == 0 {
        return Some(0);
    }
    i64::try_from(chunk.statistics()?.null_count_opt()?).ok()
}

fn bounds(kind: IcebergType, chunks: &[&ColumnChunkMetaData]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let found = match kind {
        IcebergType::Timestamptz | IcebergType::Long => extremes(chunks, |statistics| match statistics {
            Statistics::Int64(values) => pair(values),
            _ => None,
        })
        .map(|(least, most)| (least.to_le_bytes().to_vec(), most.to_le_bytes().to_vec())),
        IcebergType::Float => fractions(chunks, |statistics| match statistics {
            Statistics::Float(values) => pair(values),
            _ => None,
        })
        .map(|(least, most): (f32, f32)| (least.to_le_bytes().to_vec(), most.to_le_bytes().to_vec())),
        IcebergType::Double => fractions(chunks, |statistics| match statistics {
            Statistics::Double(values) => pair(values),
            _ => None,
        })
        .map(|(least, most): (f64, f64)| (least.to_le_bytes().to_vec(), most.to_le_bytes().to_vec())),
        IcebergType::Boolean => extremes(chunks, |statistics| match statistics {
            Statistics::Boolean(values) => pair(values),
            _ => None,
        })
        .map(|(least, most)| (vec![u8::from(least)], vec![u8::from(most)])),
        IcebergType::String => {
            let found = extremes(chunks, |statistics| match statistics {
                Statistics::ByteArray(_) => Some((
                    statistics.min_bytes_opt()?.to_vec(),
                    statistics.max_bytes_opt()?.to_vec(),
                )),
                _ => None,
            });
            return found.map_or((None, None), |(least, most)| {
                (Some(lower_text(&least)), upper_text(&most))
            });
        }
        IcebergType::Uuid | IcebergType::Binary => None,
    };
    found.unzip()
}

/// As [`extremes`], none if NaN is among them. Iceberg has minus zero before zero; statistics need not tell them apart.
fn fractions<T: Copy + Default + PartialOrd + Neg<Output = T>>(
    chunks: &[&ColumnChunkMetaData],
    range: impl Fn(&Statistics) -> Option<(T, T)>,
) -> Option<(T, T)> {
    let is_ordered = |(least, most): &(T, T)| least.partial_cmp(most).is_some();
    let (least, most) = extremes(chunks, |statistics| range(statistics).filter(is_ordered))?;
    let zero = T::default();
    Some((
        if least == zero { -zero } else { least },
        if most == zero { zero } else { most },
    ))
}

fn pair<T: Clone>(values: &ValueStatistics<T>) -> Option<(T, T)> {
    Some((values.min_opt()?.clone(), values.max_opt()?.clone()))
}

/// The least and the greatest value of all chunks; none if one of them has values and does not say. Statistics may be cut, then they
/// lie outside; those of the deprecated form are in an order that the file does not tell.
fn extremes<T: PartialOrd>(
    chunks: &[&ColumnChunkMetaData],
    range: impl Fn(&Statistics) -> Option<(T, T)>,
) -> Option<(T, T)> {
    let mut found: Option<(T, T)> = None;
    for chunk in chunks {
        if nulls(chunk) == Some(chunk.num_values()) {
            continue;
        }
        let statistics = chunk.statistics().filter(|known| !known.is_min_max_deprecated())?;
        let (low, high) = range(statistics)?;
        found = Some(match found {
            Some((least, most)) => (
                if low < least { low } else { least },
                if high > most { high } else { most },
            ),
            None => (low, high),
        });
    }
    found
}

/// The beginning of a text, which is not greater. A text that was cut within a character ends before it.
fn lower_text(least: &[u8]) -> Vec<u8> {
    let text = match std::str::from_utf8(least) {
        Ok(text) => text,
        Err(error) => least
            .get(..error.valid_up_to())
            .and_then(|valid| std::str::from_utf8(valid).ok())
            .unwrap_or_default(),
    };
    text.chars().take(TEXT_CHARACTERS).collect::<String>().into_bytes()
}

/// A text that is not less: as it is, or cut and its last character replaced by the next one, or without that character if there is
/// no next one. None if there is no such text.
fn upper_text(most: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(most).ok()?;
    let mut cut: Vec<char> = text.chars().take(TEXT_CHARACTERS + 1).collect();
    if cut.len() <= TEXT_CHARACTERS {
        return Some(most.to_vec());
    }
    cut.truncate(TEXT_CHARACTERS);
    while let Some(last) = cut.pop() {
        // Ranges of characters know that surrogates are none.
        if let Some(next) = (last..=char::MAX).nth(1) {
            cut.push(next);
            return Some(cut.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper(text: &str) -> Option<String> {
        upper_text(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn long_texts_are_cut_to_sixteen_characters_that_bound_them() {
        for text in ["", "short", "exactly sixteen!", "Größe in Straßen"] {
            assert_eq!(lower_text(text.as_bytes()), text.as_bytes());
            assert_eq!(upper(text).as_deref(), Some(text));
        }
        let long = "entity-0000000001-of-many";
        assert_eq!(lower_text(long.as_bytes()), b"entity-000000000");
        assert_eq!(upper(long).as_deref(), Some("entity-000000001"));
        let wide = "ä".repeat(40);
        assert_eq!(lower_text(wide.as_bytes()), "ä".repeat(16).as_bytes());
        assert_eq!(upper(&wide).unwrap(), format!("{}å", "ä".repeat(15)));
        assert!(upper(&wide).unwrap() > wide);
    }

    #[test]
    fn a_last_character_without_a_next_one_is_dropped() {
        let last = char::MAX;
        let before = format!("a{}", String::from(last).repeat(30));
        assert_eq!(upper(&before).as_deref(), Some("b"));
        assert_eq!(upper(&String::from(last).repeat(17)), None);
        let surrogate = format!("{}\u{d7ff}tail", "x".repeat(15));
        assert_eq!(upper(&surrogate).unwrap(), format!("{}\u{e000}", "x".repeat(15)));
    }

    #[test]
    fn bytes_that_are_no_text_bound_nothing_that_they_do_not() {
        assert_eq!(lower_text(b"ab\xff"), b"ab");
        assert_eq!(lower_text("aé".as_bytes().get(..2).unwrap()), b"a");
        assert_eq!(upper_text(b"ab\xff"), None);
    }

    #[test]
    fn a_moment_is_eight_bytes_little_endian() {
        assert_eq!(
            of_timestamp(Timestamp::from_micros(-2)),
            [0xfe, 255, 255, 255, 255, 255, 255, 255]
        );
        assert_eq!(of_timestamp(Timestamp::from_micros(0x0102)), [2, 1, 0, 0, 0, 0, 0, 0]);
    }
}
