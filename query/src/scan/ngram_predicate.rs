//! N-gram predicates: what conditions ask of the texts of messages, as indexes answer it.
//!
//! | condition | asks for |
//! |---|---|
//! | `contains_fold`, `contains`, `starts_with`, `ends_with`, `strpos(…) > 0` | the text |
//! | `=`, `IN` | the whole, or one of them |
//! | `LIKE`, `ILIKE` | each piece between wildcards |
//! | `~`, `~*` | what every match has, see [`regex_literals`] |
//! | `AND`, `OR` | both, one of them |
//!
//! Of `ILIKE` and `~*`, pieces end at letters that match more than [`model::fold_into`] makes the same: regular expressions take `ſ` for an
//! `s`. Any other condition, and a text too short to have a gram, asks for nothing.
//!
//! # Invariants
//!
//! - A message that meets the conditions has what they ask for.

mod regex_literals;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use engine::{BlockSelection, NgramQuery};
use model::Table;

use crate::regex_matcher::{LetterCase, RegexMatcher};
use crate::scalar_functions::CONTAINS_FOLD;

/// Of more texts than this each index would be asked longer than reading takes.
const MOST_TEXTS: usize = 100;

/// What a message must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NgramPredicate {
    /// This text.
    One(NgramQuery),
    /// Each of these.
    All(Vec<Self>),
    /// One of these.
    Any(Vec<Self>),
}

/// What the conditions ask of messages, all together; `None` if nothing that an index knows.
pub(super) fn texts(table: Table, conditions: &[Expr]) -> Option<NgramPredicate> {
    if table != Table::Logs {
        return None;
    }
    let texts = all(conditions.iter().filter_map(text_predicate))?;
    (texts.count() <= MOST_TEXTS).then_some(texts)
}

impl NgramPredicate {
    /// The blocks that can have it, if `ask` says which can have a text.
    pub(super) fn blocks(&self, ask: &mut impl FnMut(&NgramQuery) -> BlockSelection) -> BlockSelection {
        match self {
            Self::One(grams) => ask(grams),
            Self::All(texts) => texts.iter().fold(BlockSelection::All, |left, text| {
                if left.is_none() {
                    left
                } else {
                    left.and(text.blocks(ask))
                }
            }),
            Self::Any(texts) => texts.iter().fold(BlockSelection::NONE, |met, text| {
                if met == BlockSelection::All {
                    met
                } else {
                    met.or(text.blocks(ask))
                }
            }),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::All(texts) | Self::Any(texts) => texts.iter().map(Self::count).sum(),
        }
    }
}

/// What is asked by all of some that must hold together.
fn all(texts: impl Iterator<Item = NgramPredicate>) -> Option<NgramPredicate> {
    let mut texts: Vec<_> = texts.collect();
    match texts.len() {
        0 | 1 => texts.pop(),
        _ => Some(NgramPredicate::All(texts)),
    }
}

fn text_predicate(condition: &Expr) -> Option<NgramPredicate> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => all([left, right].into_iter().filter_map(|side| text_predicate(side))),
            Operator::Or => Some(NgramPredicate::Any(vec![text_predicate(left)?, text_predicate(right)?])),
            Operator::Eq if is_message(left) => one(text(right)?),
            Operator::Eq if is_message(right) => one(text(left)?),
            Operator::RegexMatch if is_message(left) => regex_literals::asked(text(right)?, one),
            Operator::RegexIMatch if is_message(left) => regex_literals::asked_folded(text(right)?),
            _ => found_at(left, *op, right),
        },
        Expr::InList(list) if !list.negated && is_message(&list.expr) => {
            let texts = list.list.iter().map(|item| one(text(item)?));
            Some(NgramPredicate::Any(texts.collect::<Option<_>>()?))
        }
        Expr::Like(like) if !like.negated && is_message(&like.expr) => pieces(like),
        Expr::ScalarFunction(ScalarFunction { func, args })
            if let (Some(matches), [of]) = (func.inner().downcast_ref::<RegexMatcher>(), args.as_slice()) =>
        {
            is_message(of).then(|| match matches.letter_case() {
                LetterCase::Kept => regex_literals::asked(matches.pattern(), one),
                LetterCase::Ignored => regex_literals::asked_folded(matches.pattern()),
            })?
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            (CONTAINS_FOLD | "contains" | "starts_with" | "ends_with", [of, part]) if is_message(of) => {
                one(text(part)?)
            }
            _ => None,
        },
        Expr::IsTrue(condition) => text_predicate(condition),
        _ => None,
    }
}

fn one(text: &str) -> Option<NgramPredicate> {
    NgramQuery::of(text).map(NgramPredicate::One)
}

/// A text that is found at a place, so that it is there.
fn found_at(place: &Expr, op: Operator, at: &Expr) -> Option<NgramPredicate> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = inner(place) else {
        return None;
    };
    let at = match inner(at) {
        Expr::Literal(ScalarValue::Int32(Some(at)), _) => i64::from(*at),
        Expr::Literal(ScalarValue::Int64(Some(at)), _) => *at,
        _ => return None,
    };
    // Where it is not, the place is 0.
    let is_found = match op {
        Operator::Gt => at >= 0,
        Operator::GtEq | Operator::Eq => at > 0,
        Operator::NotEq => at == 0,
        _ => false,
    };
    match args.as_slice() {
        [of, part] if is_found && func.name() == "strpos" && is_message(of) => one(text(part)?),
        _ => None,
    }
}

fn inner(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => inner(expr),
        other => other,
    }
}

/// The column of messages, in whatever form of a text.
fn is_message(of: &Expr) -> bool {
    match of {
        Expr::Column(column) => column.name == "message",
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            field.data_type().is_string() && is_message(expr)
        }
        _ => false,
    }
}

fn text(value: &Expr) -> Option<&str> {
    match value {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// The pieces of a pattern, each of which must be there.
fn pieces(like: &Like) -> Option<NgramPredicate> {
    if like.escape_char.is_some_and(|escape| escape != '\\') {
        return None;
    }
    let ends_piece = |letter: char| like.case_insensitive && (!letter.is_ascii() || matches!(letter, 's' | 'S'));
    let mut pieces = vec![String::new()];
    let mut letters = text(&like.pattern)?.chars();
    while let Some(letter) = letters.next() {
        let literal = match letter {
            '%' | '_' => None,
            '\\' => letters.next().filter(|escaped| matches!(escaped, '%' | '_' | '\\')),
            letter => Some(letter),
        };
        match (literal.filter(|letter| !ends_piece(*letter)), pieces.last_mut()) {
            (Some(letter), Some(piece)) => piece.push(letter),
            _ => pieces.push(String::new()),
        }
    }
    all(pieces.iter().filter_map(|piece| one(piece)))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{ident, lit};

    use super::*;
    use crate::scalar_functions::contains_fold;

    fn of(text: &str) -> NgramPredicate {
        NgramPredicate::One(NgramQuery::of(text).unwrap())
    }

    fn found(condition: Expr) -> Option<NgramPredicate> {
        texts(Table::Logs, &[condition])
    }

    #[test]
    fn what_needs_a_text_asks_for_it_and_nothing_else_does() {
        let message = || ident("message");
        let like = |pattern: &str| found(message().like(lit(pattern)));
        assert_eq!(found(contains_fold(message(), "Disk")), Some(of("disk")));
        assert_eq!(found(message().eq(lit("whole"))), Some(of("whole")));
        assert_eq!(found(lit("whole").eq(message())), Some(of("whole")));
        assert_eq!(
            like("%block%lost_then%"),
            Some(NgramPredicate::All(vec![of("block"), of("lost"), of("then")]))
        );
        assert_eq!(like(r"100\%\_of\\all%"), Some(of(r"100%_of\all")));
        assert_eq!(
            like(r"part\nother"),
            Some(NgramPredicate::All(vec![of("part"), of("other")]))
        );
        assert_eq!(found(message().ilike(lit("%Disk full%"))), Some(of("k full")));
        assert_eq!(found(message().ilike(lit("%wäre da%"))), Some(of("re da")));
        assert_eq!(found(message().ilike(lit("%größe%"))), None);
        let any = NgramPredicate::Any(vec![of("full"), of("lost")]);
        let listed = vec![lit("full"), lit("lost")];
        assert_eq!(found(message().in_list(listed.clone(), false)), Some(any.clone()));
        assert_eq!(
            found(message().like(lit("%full")).or(message().eq(lit("lost")))),
            Some(any.clone())
        );
        assert_eq!(
            found(message().like(lit("%full")).and(ident("level").eq(lit("warn")))),
            Some(of("full"))
        );
        let other = || ident("entity_name").like(lit("%full%"));
        for nothing in [
            message().not_like(lit("%full%")),
            message().not_eq(lit("full")),
            message().in_list(listed, true),
            message().gt(lit("full")),
            message().eq(lit("abc")),
            message().like(lit("%a%b%")),
            message().like(lit("%full%")).or(other()),
            other(),
        ] {
            assert_eq!(found(nothing.clone()), None, "{nothing}");
        }
        assert_eq!(texts(Table::Traces, &[contains_fold(message(), "disk")]), None);
    }

    #[test]
    fn of_more_texts_than_an_index_is_asked_for_none_is() {
        let listed = |count: usize| (0..count).map(|n| lit(format!("text {n}"))).collect();
        let asks = |count| found(ident("message").in_list(listed(count), false)).is_some();
        assert!(asks(MOST_TEXTS) && !asks(MOST_TEXTS + 1));
    }

    #[test]
    fn blocks_are_those_of_all_or_of_any() {
        let blocks = |texts: &NgramPredicate| {
            texts.blocks(&mut |grams| {
                let first = u32::from(*grams == NgramQuery::of("lost").unwrap());
                BlockSelection::Some(vec![first, 2])
            })
        };
        let both = vec![of("full"), of("lost")];
        assert_eq!(
            blocks(&NgramPredicate::All(both.clone())),
            BlockSelection::Some(vec![2])
        );
        assert_eq!(blocks(&NgramPredicate::Any(both)), BlockSelection::Some(vec![0, 1, 2]));
    }
}
