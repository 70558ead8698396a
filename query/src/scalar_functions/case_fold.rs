//! Substring search that ignores letter case.

use arrow_array::{Array, BooleanArray, StringArray};
use datafusion::arrow::array::BooleanBufferBuilder;
use memchr::memmem::Finder;
use model::fold_into;

use super::text_columns::TextIterator;

/// A text to look for, ignoring case.
pub(super) struct CaseFoldFinder(Finder<'static>);

impl CaseFoldFinder {
    pub(super) fn new(text: &str) -> Self {
        let mut folded = String::new();
        fold_into(text, &mut folded);
        Self(Finder::new(&folded).into_owned())
    }

    pub(super) fn found_in(&self, text: &str, scratch: &mut String) -> bool {
        scratch.clear();
        fold_into(text, scratch);
        self.0.find(scratch.as_bytes()).is_some()
    }

    /// Which texts it is in, searched as the one text that they are in memory; `None` where letters are not ASCII's alone.
    pub(super) fn find_in_each(&self, texts: &StringArray) -> Option<BooleanArray> {
        let (offsets, width) = (texts.value_offsets(), self.0.needle().len());
        let (first, last) = (*offsets.first()?, *offsets.last()?);
        let bytes = texts
            .value_data()
            .get(usize::try_from(first).ok()?..usize::try_from(last).ok()?)?;
        if width == 0 || !bytes.is_ascii() {
            return None;
        }
        let folded = bytes.to_ascii_lowercase();
        let mut found = BooleanBufferBuilder::new(texts.len());
        found.append_n(texts.len(), false);
        let mut from = 0;
        while let Some(at) = folded.get(from..).and_then(|rest| self.0.find(rest)) {
            let at = from + at;
            let begins = first + i32::try_from(at).ok()?;
            let row = offsets.partition_point(|offset| *offset <= begins) - 1;
            let end = usize::try_from(offsets.get(row + 1)? - first).ok()?;
            // What begins in one text and ends in the next is in neither.
            let is_within = at + width <= end;
            if is_within {
                found.set_bit(row, true);
            }
            from = if is_within { end } else { at + 1 };
        }
        Some(BooleanArray::new(found.finish(), texts.nulls().cloned()))
    }
}

/// Which texts contain the part of their row.
pub(super) fn contained(texts: TextIterator<'_>, parts: TextIterator<'_>) -> BooleanArray {
    let mut scratch = String::new();
    let mut needle: Option<(&str, CaseFoldFinder)> = None;
    let found = texts.zip(parts).map(|(text, part)| {
        let (text, part) = (text?, part?);
        if needle.as_ref().is_none_or(|(known, _)| *known != part) {
            needle = Some((part, CaseFoldFinder::new(part)));
        }
        needle.as_ref().map(|(_, needle)| needle.found_in(text, &mut scratch))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, needle: &str) -> bool {
        CaseFoldFinder::new(needle).found_in(text, &mut String::new())
    }

    #[test]
    fn texts_that_lie_together_are_searched_each_for_itself() {
        let texts = StringArray::from(vec![
            Some("aab"),
            Some(""),
            Some("AB aab"),
            None,
            Some("ba"),
            Some("a"),
            Some(""),
            Some("b"),
            Some("bAaB"),
        ]);
        for part in ["a", "ab", "aab", "b", "ba", "bb", "abab", "x", " "] {
            let needle = CaseFoldFinder::new(part);
            for texts in [texts.clone(), texts.slice(2, 6)] {
                let each = texts
                    .iter()
                    .map(|text| Some(needle.found_in(text?, &mut String::new())));
                assert_eq!(needle.find_in_each(&texts), Some(each.collect()), "{part}");
            }
        }
        assert_eq!(CaseFoldFinder::new("").find_in_each(&texts), None);
        assert_eq!(
            CaseFoldFinder::new("a").find_in_each(&StringArray::from(vec!["a", "Ä"])),
            None
        );
    }

    #[test]
    fn letter_case_does_not_matter_in_any_script_and_nothing_is_a_wildcard() {
        assert!(found("Disk FULL on sda", "full ON"));
        assert!(found("ÄRGER Straße", "ärger stra"));
        assert!(found("ΟΔΟΣ", "οδοσ") && found("\u{212a}elvin", "kelvin"));
        assert!(!found("abc", "a.c") && !found("abc", "a%") && !found("abc", "a_c") && found("50%_x", "%_"));
        assert!(found("", "") && !found("", "a"));
    }
}
