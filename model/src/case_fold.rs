//! Case folding: what a condition on a text compares, and what an index of texts holds.
//!
//! Each character is replaced by Unicode's lower case of it, without regard to its neighbours or to a language: `Σ` matches
//! `σ` and not a final `ς`, `İ` matches `i` followed by a combining dot.
//!
//! # Invariants
//!
//! - A part of a text, folded, is a part of the folded text.

/// Appends a text, case-folded, to another.
pub fn fold_into(text: &str, folded: &mut String) {
    if text.is_ascii() {
        let start = folded.len();
        folded.push_str(text);
        if let Some(added) = folded.get_mut(start..) {
            added.make_ascii_lowercase();
        }
    } else {
        folded.extend(text.chars().flat_map(char::to_lowercase));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut folded = String::new();
        fold_into(text, &mut folded);
        folded
    }

    #[test]
    fn each_part_is_folded_as_it_is_alone() {
        let text = "Disk FULL: ÄRGER ΟΔΟΣ \u{212a}elvin İ ẞ \u{17f}\0";
        for (at, _) in text.char_indices() {
            let (before, after) = text.split_at(at);
            assert_eq!(folded(text), folded(before) + &folded(after));
            let mut joined = folded(before);
            fold_into(after, &mut joined);
            assert_eq!(folded(text), joined, "what was there stays");
        }
    }
}
