//! Matches the constant regular expressions of a statement.
//!
//! ```text
//! message ~ 'declined by (visa|alice)'  ─>  matches(message)   regex, compiled once
//!                                                              needle "declined by ", looked for in all values of a batch at once
//! ```
//!
//! DataFusion compiles a pattern for every batch and begins it anew for every row. Most rows have not even the letters that each
//! match has: those are found in the bytes of a whole column, end to end, and only rows that have them are matched.
//!
//! # Invariants
//!
//! - A row matches if the pattern alone says so; the needle is in every match.
//! - What is asked of indexes ([`crate::scan`]) is asked of [`RegexMatcher::pattern`].
//! - A pattern that becomes known only while a plan is made or run ([`RowRegexMatcher`]) means the same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow_schema::DataType;
use datafusion::common::{plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use memchr::memmem::Finder;
use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Texts of one stretch of a pattern that are told apart.
const MOST_TEXTS: usize = 16;
/// Compiled patterns that are kept of one batch.
const MOST_PATTERNS: usize = 16;

/// Whether a pattern tells upper case from lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LetterCase {
    Kept,
    Ignored,
}

/// Whether values of a type can be matched: texts, however they are held.
pub(crate) fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    }
}

fn compiled(pattern: &str, letter_case: LetterCase, most: usize) -> Result<Regex> {
    let built = RegexBuilder::new(pattern)
        .size_limit(most)
        // What a search keeps beside it, on each thread.
        .dfa_size_limit(most.min(2 << 20))
        .case_insensitive(letter_case == LetterCase::Ignored)
        .build();
    built.map_err(|error| {
        // The lines before the last show the pattern.
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        plan_datafusion_err!("'{pattern}' is not a regular expression: {reason}")
    })
}

/// A text column matched with one pattern.
#[derive(Debug)]
pub(crate) struct RegexMatcher {
    pattern: String,
    letter_case: LetterCase,
    regex: Regex,
    needle: Option<Finder<'static>>,
    signature: Signature,
}

impl RegexMatcher {
    /// The call; the compiled pattern may need so many bytes.
    ///
    /// # Errors
    /// If the pattern is none that the library understands, or needs more.
    pub(crate) fn call(text: Expr, pattern: &str, letter_case: LetterCase, most: usize) -> Result<Expr> {
        let matches = Self::of(pattern, letter_case, most)?;
        Ok(ScalarUDF::new_from_impl(matches).call(vec![text]))
    }

    fn of(pattern: &str, letter_case: LetterCase, most: usize) -> Result<Self> {
        let mut parser = ParserBuilder::new()
            .case_insensitive(letter_case == LetterCase::Ignored)
            .build();
        let needle = parser.parse(pattern).ok().and_then(|hir| needle(&hir));
        Ok(Self {
            pattern: pattern.to_owned(),
            letter_case,
            regex: compiled(pattern, letter_case, most)?,
            needle: needle.map(|needle| Finder::new(&needle).into_owned()),
            signature: Signature::user_defined(Volatility::Immutable),
        })
    }

    /// What is matched.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// How it is matched.
    pub(crate) const fn letter_case(&self) -> LetterCase {
        self.letter_case
    }

    fn matched(&self, texts: &StringArray) -> BooleanArray {
        let bits = match &self.needle {
            Some(needle) => self.match_by_needle(needle, texts),
            None => (0..texts.len())
                .map(|row| self.regex.is_match(texts.value(row)))
                .collect(),
        };
        BooleanArray::new(bits, texts.nulls().cloned())
    }

    /// The rows that match, by a walk from needle to needle.
    fn match_by_needle(&self, needle: &Finder<'_>, texts: &StringArray) -> arrow_buffer::BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(texts.len());
        bits.append_n(texts.len(), false);
        let ends = texts.value_offsets().get(1..).unwrap_or_default();
        let bytes = texts.value_data();
        let place = |offset: &i32| usize::try_from(*offset).unwrap_or(usize::MAX);
        let mut row = 0;
        let mut from = texts.value_offsets().first().map_or(0, place);
        let last = ends.last().map_or(0, place);
        while let Some(found) = bytes.get(from..last).and_then(|left| needle.find(left)) {
            let found = from + found;
            row += ends
                .get(row..)
                .unwrap_or_default()
                .partition_point(|end| place(end) <= found);
            let Some(end) = ends.get(row).map(place) else { break };
            if found + needle.needle().len() > end {
                // It began in one value and ended in another.
                from = found + 1;
                continue;
            }
            if self.regex.is_match(texts.value(row)) {
                bits.set_bit(row, true);
            }
            from = end;
        }
        bits.finish()
    }
}

impl PartialEq for RegexMatcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.pattern, self.letter_case) == (&other.pattern, other.letter_case)
    }
}

impl Eq for RegexMatcher {}

impl std::hash::Hash for RegexMatcher {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.pattern, self.letter_case).hash(state);
    }
}

impl ScalarUDFImpl for RegexMatcher {
    fn name(&self) -> &str {
        "matches"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if is_text(kind) || kind.is_null() => Ok(vec![DataType::Utf8]),
            _ => plan_err!("a text was expected, and not {types:?}"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let matched = |texts: &[ArrayRef]| -> Result<ArrayRef> {
            match texts.first().and_then(|texts| texts.as_string_opt::<i32>()) {
                Some(texts) => Ok(Arc::new(self.matched(texts))),
                None => plan_err!("a text was expected"),
            }
        };
        make_scalar_function(matched, Vec::new())(&args.args)
    }
}

/// A text column matched with a pattern of each row; it becomes [`RegexMatcher`] if planning finds that all rows have one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowRegexMatcher {
    letter_case: LetterCase,
    /// What a compiled pattern may need.
    most: usize,
    signature: Signature,
}

impl RowRegexMatcher {
    /// The call; a compiled pattern may need so many bytes.
    pub(crate) fn call(text: Expr, pattern: Expr, letter_case: LetterCase, most: usize) -> Expr {
        let matches = Self {
            letter_case,
            most,
            signature: Signature::user_defined(Volatility::Immutable),
        };
        ScalarUDF::new_from_impl(matches).call(vec![text, pattern])
    }

    fn matched(&self, texts: &StringArray, patterns: &StringArray) -> Result<BooleanArray> {
        let mut known: HashMap<&str, Regex> = HashMap::new();
        let rows = texts
            .iter()
            .zip(patterns.iter())
            .map(|(text, pattern)| -> Result<Option<bool>> {
                let (Some(text), Some(pattern)) = (text, pattern) else {
                    return Ok(None);
                };
                if known.len() >= MOST_PATTERNS {
                    known.clear();
                }
                let regex = match known.entry(pattern) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(compiled(pattern, self.letter_case, self.most / MOST_PATTERNS)?),
                };
                Ok(Some(regex.is_match(text)))
            });
        rows.collect()
    }
}

impl ScalarUDFImpl for RowRegexMatcher {
    fn name(&self) -> &str {
        "matches_each"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [text, pattern] if [text, pattern].iter().all(|kind| is_text(kind) || kind.is_null()) => {
                Ok(vec![DataType::Utf8, DataType::Utf8])
            }
            _ => plan_err!("a text and a pattern were expected, and not {types:?}"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if let [text, Expr::Literal(pattern, _)] = args.as_slice()
            && let Some(Some(pattern)) = pattern.try_as_str()
        {
            let call = RegexMatcher::call(text.clone(), pattern, self.letter_case, self.most)?;
            return Ok(ExprSimplifyResult::Simplified(call));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let matched = |columns: &[ArrayRef]| -> Result<ArrayRef> {
            let texts = columns.first().and_then(|texts| texts.as_string_opt::<i32>());
            let patterns = columns.get(1).and_then(|patterns| patterns.as_string_opt::<i32>());
            match (texts, patterns) {
                (Some(texts), Some(patterns)) => Ok(Arc::new(self.matched(texts, patterns)?)),
                _ => plan_err!("a text and a pattern were expected"),
            }
        };
        make_scalar_function(matched, Vec::new())(&args.args)
    }
}

/// The longest text that is found to be in every match.
fn needle(hir: &Hir) -> Option<String> {
    let one = |texts: Vec<String>| <[String; 1]>::try_from(texts).ok().map(|[text]| text);
    if let Some(text) = texts(hir).and_then(one) {
        return Some(text).filter(|text| !text.is_empty());
    }
    match hir.kind() {
        HirKind::Capture(capture) => needle(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => needle(&repetition.sub),
        HirKind::Concat(parts) => {
            let mut found = vec![String::new()];
            for part in parts {
                match (texts(part).and_then(one), found.last_mut()) {
                    (Some(text), Some(stretch)) => stretch.push_str(&text),
                    _ => found.extend([needle(part).unwrap_or_default(), String::new()]),
                }
            }
            found
                .into_iter()
                .max_by_key(String::len)
                .filter(|text| !text.is_empty())
        }
        _ => None,
    }
}

/// All texts that a part of a pattern matches, if they are few.
pub(crate) fn texts(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        // Where it is, is looked at; nothing is between its neighbours.
        HirKind::Empty | HirKind::Look(_) => Some(vec![String::new()]),
        HirKind::Literal(text) => Some(vec![String::from_utf8(text.0.to_vec()).ok()?]),
        HirKind::Capture(capture) => texts(&capture.sub),
        HirKind::Class(Class::Unicode(class)) => {
            let mut letters = class.iter().flat_map(|range| range.start()..=range.end());
            let few: Vec<_> = letters.by_ref().take(MOST_TEXTS).map(String::from).collect();
            letters.next().is_none().then_some(few)
        }
        HirKind::Concat(parts) => {
            let none = vec![String::new()];
            parts
                .iter()
                .try_fold(none, |so_far, part| cross_concat(&so_far, &texts(part)?))
        }
        HirKind::Alternation(parts) => {
            let of_parts: Option<Vec<_>> = parts.iter().map(texts).collect();
            let texts = of_parts?.concat();
            (texts.len() <= MOST_TEXTS).then_some(texts)
        }
        HirKind::Class(_) | HirKind::Repetition(_) => None,
    }
}

/// Each text of the first with each of the second after it, if they are few enough.
pub(crate) fn cross_concat(first: &[String], second: &[String]) -> Option<Vec<String>> {
    let joined = first.iter().flat_map(|a| second.iter().map(move |b| format!("{a}{b}")));
    (first.len() * second.len() <= MOST_TEXTS).then(|| joined.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn needle_of(pattern: &str) -> Option<String> {
        needle(&regex_syntax::parse(pattern).unwrap())
    }

    #[test]
    fn the_needle_of_a_pattern_is_in_every_match() {
        for (pattern, wanted) in [
            ("declined by (visa|alice): code 4[0-9]+", "declined by "),
            ("^disk full$", "disk full"),
            ("(full)+", "full"),
            ("a(bc|de)f[0-9]*ghi", "ghi"),
            ("x{2,}yz", "yz"),
        ] {
            assert_eq!(needle_of(pattern).as_deref(), Some(wanted), "{pattern}");
        }
        for pattern in ["", "(full)?", "a*", "[a-z]+", "full|empty", "(?i)full", "^$"] {
            assert_eq!(needle_of(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn rows_match_as_each_alone_does() {
        let rows = [
            Some("ab"),
            Some("cab"),
            None,
            Some(""),
            Some("abcabc"),
            Some("xab"),
            Some("cabx"),
            Some("ca"),
            Some("b"),
        ];
        let all = StringArray::from(rows.to_vec());
        for pattern in [
            "ab", "ab$", "^ab", "cab", "bc", "abx?$", "a.*b", "(ab|ca)", "", "b^c", "[ab]+c",
        ] {
            let regex = Regex::new(pattern).unwrap();
            let matches = RegexMatcher::of(pattern, LetterCase::Kept, 10 << 20).unwrap();
            for (from, count) in [(0, 9), (1, 7), (4, 1), (9, 0), (2, 2)] {
                let part = all.slice(from, count);
                let wanted: BooleanArray = part.iter().map(|row| row.map(|row| regex.is_match(row))).collect();
                assert_eq!(matches.matched(&part), wanted, "{pattern} in {from}, {count}");
            }
        }
        assert!(RegexMatcher::of("(", LetterCase::Kept, 10 << 20).is_err());
    }
}
