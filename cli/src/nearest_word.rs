//! Nearest word: the known one that a mistyped one may be meant to be, by edit distance.

/// The known word that differs least, if so little that it may be meant: in a third of its letters.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    let close = known.filter(|known| known.len().abs_diff(word.len()) <= 4 * most);
    let ranked = close.map(|known| (strsim::levenshtein(word, known), known));
    let near = ranked.filter(|(edits, _)| *edits <= most);
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_leads_to_the_word_and_another_word_to_none() {
        let known = ["system.memory.usage", "system.memory.utilization", "load"];
        let meant = |word: &str| nearest(word, known.into_iter());
        assert_eq!(meant("system.memory.usag"), Some("system.memory.usage"));
        assert_eq!(meant("laod"), None, "half of it differs");
        assert_eq!(meant("loads"), Some("load"));
        assert_eq!(meant("orders"), None);
        assert_eq!(meant(""), None);
    }
}
