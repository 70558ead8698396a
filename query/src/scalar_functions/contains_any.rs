//! Multi-pattern substring search that ignores letter case: one Aho-Corasick automaton, built once per plan.
//!
//! # Invariants
//!
//! - A text is looked at once, however many parts there are.
//! - Of the automata the smallest is built: about a dozen bytes for each byte of the parts.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};
use arrow_array::BooleanArray;
use arrow_schema::DataType;
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use model::fold_into;

use super::text_columns::{TextIterator, texts};

/// Whether a text contains one of the parts, letter case aside.
pub(crate) fn contains_any_fold<'a>(text: Expr, parts: impl IntoIterator<Item = &'a String>) -> Expr {
    let folded = parts.into_iter().map(|part| {
        let mut folded = String::new();
        fold_into(part, &mut folded);
        folded
    });
    ScalarUDF::new_from_impl(ContainsAnyFunction::of(folded.collect())).call(vec![text])
}

/// The function of the parts that it has.
#[derive(Debug)]
struct ContainsAnyFunction {
    /// Folded; what the function is compared by.
    parts: Vec<String>,
    automaton: Result<AhoCorasick, BuildError>,
    signature: Signature,
}

impl ContainsAnyFunction {
    fn of(parts: Vec<String>) -> Self {
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        Self {
            automaton: AhoCorasick::builder().kind(kind).build(&parts),
            parts,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl PartialEq for ContainsAnyFunction {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for ContainsAnyFunction {}

impl Hash for ContainsAnyFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
    }
}

impl ScalarUDFImpl for ContainsAnyFunction {
    fn name(&self) -> &str {
        "contains_any_fold"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(column) = args.args.first() else {
            return exec_err!("contains_any_fold(text) was expected");
        };
        let automaton = self.automaton.as_ref();
        let automaton = automaton.map_err(|error| DataFusionError::External(Box::new(error.clone())))?;
        let column = column.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(containing(texts(&column)?, automaton))))
    }
}

/// Which texts contain one of the parts.
fn containing(texts: TextIterator<'_>, parts: &AhoCorasick) -> BooleanArray {
    let mut scratch = String::new();
    let found = texts.map(|text| {
        scratch.clear();
        fold_into(text?, &mut scratch);
        Some(parts.is_match(&scratch))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use datafusion::logical_expr::ident;

    use super::*;
    use crate::scalar_functions::case_fold::CaseFoldFinder;

    #[test]
    fn a_text_contains_one_of_the_parts_if_it_contains_any_of_them_alone() {
        let texts = [
            Some("Disk FULL"),
            Some("ΟΔΟΣ"),
            None,
            Some(""),
            Some("ab"),
            Some("abcd"),
        ];
        let needles = ["full", "οδοσ", "b", "bcx", "x", ""];
        for parts in [&needles[..], &needles[..2], &needles[2..5], &needles[4..5], &[]] {
            let folded = parts.iter().map(|part| (*part).to_owned()).collect();
            let function = ContainsAnyFunction::of(folded);
            let finders: Vec<_> = parts.iter().map(|part| CaseFoldFinder::new(part)).collect();
            let each = texts.map(|text| {
                let text = text?;
                let mut scratch = String::new();
                Some(finders.iter().any(|part| part.found_in(text, &mut scratch)))
            });
            let all = containing(Box::new(texts.into_iter()), function.automaton.as_ref().unwrap());
            assert_eq!(all, BooleanArray::from(each.to_vec()), "{parts:?}");
        }
    }

    #[test]
    fn functions_are_the_same_if_their_parts_are() {
        let of = |part: &str| contains_any_fold(ident("a"), &[part.to_owned()]);
        assert_eq!(of("FULL"), of("full"));
        assert_ne!(of("full"), of("empty"));
    }
}
