//! Regex literals: the texts that each match of a regular expression has.
//!
//! ```text
//! declined by (visa|alice): code 4[0-9]+   ─>   "declined by visa: code 4" or "declined by alice: code 4"
//! ```
//!
//! # Invariants
//!
//! - A message that matches has what is asked: what is not understood asks for nothing.

use regex_syntax::hir::{Hir, HirKind};

use super::{NgramPredicate, all, one};
use crate::regex_matcher::{cross_concat, texts};

/// What each match of a pattern has, if `ask` says what a text asks for.
pub(super) fn asked(pattern: &str, ask: impl Fn(&str) -> Option<NgramPredicate>) -> Option<NgramPredicate> {
    let pattern = regex_syntax::parse(pattern).ok()?;
    required(&pattern, &ask)
}

/// The same where case is of no matter. What classes leave out of others depends on case: such patterns ask for nothing.
pub(super) fn asked_folded(pattern: &str) -> Option<NgramPredicate> {
    let leaves_out = ["&&", "--", "~~"].iter().any(|operator| pattern.contains(operator));
    (!leaves_out).then(|| asked(pattern, folded_pieces))?
}

/// The pieces of a text between letters that match more than themselves where case is of no matter; see the module above.
fn folded_pieces(text: &str) -> Option<NgramPredicate> {
    let ends = |letter: char| !letter.is_ascii() || matches!(letter, 's' | 'S');
    all(text.split(ends).filter_map(one))
}

fn required(hir: &Hir, ask: &impl Fn(&str) -> Option<NgramPredicate>) -> Option<NgramPredicate> {
    if let Some(texts) = texts(hir) {
        return any(&texts, ask);
    }
    match hir.kind() {
        HirKind::Capture(capture) => required(&capture.sub, ask),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub, ask),
        HirKind::Alternation(parts) => {
            let parts = parts.iter().map(|part| required(part, ask));
            Some(NgramPredicate::Any(parts.collect::<Option<_>>()?))
        }
        HirKind::Concat(parts) => in_turn(parts, ask),
        _ => None,
    }
}

/// What the parts ask for that follow each other: neighbours that are texts are one.
fn in_turn(parts: &[Hir], ask: &impl Fn(&str) -> Option<NgramPredicate>) -> Option<NgramPredicate> {
    let mut found = Vec::new();
    let mut stretch = vec![String::new()];
    for part in parts {
        let texts = texts(part);
        if let Some(longer) = texts.as_ref().and_then(|texts| cross_concat(&stretch, texts)) {
            stretch = longer;
            continue;
        }
        found.extend(any(&stretch, ask));
        found.extend(texts.is_none().then(|| required(part, ask)).flatten());
        stretch = texts.unwrap_or_else(|| vec![String::new()]);
    }
    found.extend(any(&stretch, ask));
    all(found.into_iter())
}

fn any(texts: &[String], ask: &impl Fn(&str) -> Option<NgramPredicate>) -> Option<NgramPredicate> {
    let texts = texts.iter().map(|text| ask(text));
    let mut texts: Vec<_> = texts.collect::<Option<_>>()?;
    match texts.len() {
        1 => texts.pop(),
        _ => Some(NgramPredicate::Any(texts)),
    }
}

#[cfg(test)]
mod tests {
    use engine::NgramQuery;

    use super::*;

    fn of(texts: &[&str]) -> Option<NgramPredicate> {
        let mut texts: Vec<_> = texts
            .iter()
            .map(|text| NgramPredicate::One(NgramQuery::of(text).unwrap()))
            .collect();
        if texts.len() == 1 {
            texts.pop()
        } else {
            Some(NgramPredicate::Any(texts))
        }
    }

    #[test]
    fn a_pattern_asks_for_the_texts_that_every_match_has() {
        for (pattern, texts) in [
            (
                "declined by (visa|alice): code 4[0-9]+",
                &["declined by visa: code 4", "declined by alice: code 4"][..],
            ),
            ("^disk full$", &["disk full"]),
            (r"\bdisk\b.*", &["disk"]),
            ("(?:failed)+", &["failed"]),
            ("disk [ab]", &["disk a", "disk b"]),
        ] {
            assert_eq!(asked(pattern, one), of(texts), "{pattern}");
        }
    }

    #[test]
    fn classes_that_leave_letters_out_ask_for_nothing_where_case_is_of_no_matter() {
        for pattern in ["error [ab&&Ab]", "error [a-c--A]", "error [ab~~B]"] {
            assert_eq!(asked_folded(pattern), None, "{pattern}");
        }
        assert!(asked_folded("disk full").is_some());
    }

    #[test]
    fn an_alternative_asks_for_all_that_it_has() {
        let ends = NgramPredicate::All(vec![of(&["other "]).unwrap(), of(&[" words"]).unwrap()]);
        let either = NgramPredicate::Any(vec![of(&["one text"]).unwrap(), ends]);
        assert_eq!(asked("(one text|other [0-9]{9} words)", one), Some(either));
    }

    #[test]
    fn parts_between_what_varies_must_all_be_there() {
        let both = NgramPredicate::All(vec![of(&["payment"]).unwrap(), of(&["declined"]).unwrap()]);
        assert_eq!(asked("payment.*declined", one), Some(both.clone()));
        assert_eq!(asked("payment[0-9]*declined", one), Some(both));
    }

    #[test]
    fn what_a_match_need_not_have_is_not_asked_for() {
        for pattern in [
            "(declined)?",
            "(declined)*",
            "declined|.*",
            "[a-z]+",
            "abc",
            "",
            "(",
            "(?i)declined|x",
            "(declined|abc)",
        ] {
            assert_eq!(asked(pattern, one), None, "{pattern}");
        }
    }

    #[test]
    fn without_regard_to_case_letters_that_match_others_are_left_out() {
        assert_eq!(
            folded_pieces("the disk failed"),
            Some(NgramPredicate::All(vec![
                of(&["the di"]).unwrap(),
                of(&["k failed"]).unwrap()
            ]))
        );
        assert_eq!(folded_pieces("größe"), None);
    }
}
