//! Numbers that never fall, one per row group or frame, as text in a footer: the first, then how much each is above the
//! one before.
//!
//! Log positions of row groups are kept so (`platform.group_lsns`: of its partition, everything up to a group's position is in
//! the groups up to it), and where the frames of a file of lines begin (`platform.frames`).

use std::fmt::Write;

/// The numbers as text.
pub(super) fn to_text(numbers: &[u64]) -> String {
    let (mut text, mut before) = (String::new(), 0);
    for number in numbers {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing into memory does not fail.
        let _ = write!(text, "{comma}{}", number.saturating_sub(before));
        before = before.max(*number);
    }
    text
}

/// The numbers of such a text; `None` where it is none.
pub(super) fn from_text(text: &str) -> Option<Vec<u64>> {
    let mut number = 0u64;
    let steps = text.split(',').filter(|step| !step.is_empty());
    let numbers = steps.map(|step| {
        number = number.checked_add(step.parse().ok()?)?;
        Some(number)
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for numbers in [vec![], vec![0], vec![7, 7, 9, u64::MAX], vec![0, 1, 4_000_000_000]] {
            assert_eq!(from_text(&to_text(&numbers)), Some(numbers));
        }
        assert_eq!(from_text("18446744073709551615,1"), None);
        assert_eq!(from_text("1,-1"), None);
    }
}
