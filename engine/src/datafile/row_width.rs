//! Row width: what a merge must hold of a row group at least, one row and its page.
//!
//! Kept as one letter per row group, the power of two that no row passes, in memory and in the footer of an open file
//! (`platform.widest`), so that a restart knows it too.
//!
//! # Not here
//!
//! How many rows a cursor decodes at once: [`super::row_group_merge`].

use parquet::file::metadata::{KeyValue, ParquetMetaData, RowGroupMetaData};

const KEY: &str = "platform.widest";
/// What a letter is a digit of.
const RADIX: u32 = 36;
/// A cursor holds a wide row this many times: compressed, as a page, decoded, in the chunk that is put together.
const COPIES: u64 = 4;

/// The widths of an open file's row groups, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RowWidths(String);

impl RowWidths {
    /// Adds a row group of which no row has more than `bytes`.
    pub(super) fn push(&mut self, bytes: u64) {
        let power = bytes.max(1).checked_next_power_of_two().map_or(63, u64::trailing_zeros);
        self.0.extend(char::from_digit(power.min(RADIX - 1), RADIX));
    }

    /// A bound for the rows of the group at `at`.
    pub(super) fn at(&self, at: usize) -> Option<u64> {
        let letter = self.0.as_bytes().get(at)?;
        Some(1 << char::from(*letter).to_digit(RADIX)?)
    }

    /// What the cursors of a merge hold of all groups at least.
    pub(super) fn merge_bytes(&self) -> u64 {
        let bytes = |at| self.at(at).unwrap_or(0).saturating_mul(COPIES);
        (0..self.0.len()).map(bytes).fold(0, u64::saturating_add)
    }

    /// For the footer.
    pub(super) fn key_value(&self) -> KeyValue {
        KeyValue::new(KEY.to_owned(), self.0.clone())
    }

    /// From a footer. Where it does not say it: twice the average row.
    pub(super) fn of(metadata: &ParquetMetaData) -> Self {
        let groups = metadata.row_groups();
        let mut pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
        let said = pairs
            .find(|pair| pair.key == KEY)
            .and_then(|pair| pair.value.as_deref());
        let known = |said: &&str| said.len() == groups.len() && said.chars().all(|letter| letter.is_digit(RADIX));
        if let Some(said) = said.filter(known) {
            return Self(said.to_owned());
        }
        let mut widths = Self::default();
        groups.iter().for_each(|group| widths.push(2 * average(group)));
        widths
    }
}

/// The bytes of a row of the group, on average.
pub(super) fn average(group: &RowGroupMetaData) -> u64 {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
    u64::try_from(group.total_byte_size()).unwrap_or(0) / rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_never_less_than_what_was_given() {
        let mut widths = RowWidths::default();
        let given = [0, 1, 2, 3, 200, 65_537, 2 << 20, (2 << 20) + 1];
        given.iter().for_each(|bytes| widths.push(*bytes));
        for (at, bytes) in given.iter().enumerate() {
            let kept = widths.at(at).unwrap_or(0);
            assert!(kept >= *bytes && kept <= (2 * bytes).max(1), "{bytes} became {kept}");
        }
        assert_eq!(widths.at(given.len()), None);
    }
}
