//! Pattern matching operators, with PostgreSQL's semantics.
//!
//! | written | planned as |
//! |---|---|
//! | `text ~ 'pattern'`, `~*`, `!~`, `!~*`, `regexp_like(text, 'pattern')`, with the flag `i` too | [`RegexMatcher`] |
//! | the same with a pattern that is computed | [`RowRegexMatcher`] |
//! | `regexp_replace(text, 'pattern', '[\1]')` | the same with a replacement in which `$` stands for itself, `\&` for what is found |
//! | `text SIMILAR TO 'pattern'` | [`RegexMatcher`] of the pattern as a regular expression that the whole text matches |
//!
//! DataFusion must not see the operators: it makes `LIKE` of patterns that are mostly text, and takes their backslashes for escapes.
//! Other flags of `regexp_like` have no operator, so they are left to it.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable as _, Operator, lit};

use crate::regex_matcher::{LetterCase, RegexMatcher, RowRegexMatcher, is_text};

/// See the module; each compiled pattern may need so many bytes.
pub(super) fn rewrite_pattern(expr: Expr, schema: &DFSchema, most: usize) -> Result<Transformed<Expr>> {
    let matched =
        |text: &Expr, pattern: &Expr, letter_case, schema| matched(text, pattern, (letter_case, most), schema);
    let replaced = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::RegexMatch => matched(left, right, LetterCase::Kept, schema)?,
            Operator::RegexIMatch => matched(left, right, LetterCase::Ignored, schema)?,
            Operator::RegexNotMatch => negated(matched(left, right, LetterCase::Kept, schema)?),
            Operator::RegexNotIMatch => negated(matched(left, right, LetterCase::Ignored, schema)?),
            _ => None,
        },
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "regexp_like" => match args.as_slice() {
            [text, pattern] => matched(text, pattern, LetterCase::Kept, schema)?,
            [text, pattern, Expr::Literal(flags, _)] => match flags.try_as_str().flatten() {
                Some("") => matched(text, pattern, LetterCase::Kept, schema)?,
                Some("i") => matched(text, pattern, LetterCase::Ignored, schema)?,
                _ => None,
            },
            [_, _, _] => return plan_err!("the flags of regexp_like must be written as a text, such as 'i'"),
            _ => None,
        },
        Expr::ScalarFunction(call) if call.func.name() == "regexp_replace" => replacement(call)?,
        Expr::SimilarTo(like) => Some(similar(like, most)?),
        _ => None,
    };
    Ok(replaced.map_or_else(|| Transformed::no(expr), Transformed::yes))
}

/// `regexp_replace` with a replacement as the planner reads it.
fn replacement(call: &ScalarFunction) -> Result<Option<Expr>> {
    let Some(Expr::Literal(written, _)) = call.args.get(2) else {
        return plan_err!("the replacement of regexp_replace must be written as a text");
    };
    let Some(text) = written.try_as_str().flatten() else {
        return Ok(None);
    };
    let mut made = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => made.push_str("$$"),
            '\\' => match letters.next() {
                Some('&') => made.push_str("${0}"),
                Some(group @ '1'..='9') => made.extend(['$', '{', group, '}']),
                Some('\\') | None => made.push('\\'),
                Some(other) => made.extend(['\\', other]),
            },
            other => made.push(other),
        }
    }
    if made == text {
        return Ok(None);
    }
    let mut call = call.clone();
    if let Some(replacement) = call.args.get_mut(2) {
        *replacement = lit(made);
    }
    Ok(Some(Expr::ScalarFunction(call)))
}

fn negated(matched: Option<Expr>) -> Option<Expr> {
    matched.map(|matched| Expr::Not(Box::new(matched)))
}

fn matched(
    text: &Expr,
    pattern: &Expr,
    (letter_case, most): (LetterCase, usize),
    schema: &DFSchema,
) -> Result<Option<Expr>> {
    let is_text = |expr: &Expr| expr.get_type(schema).is_ok_and(|kind| is_text(&kind));
    if !is_text(text) || !is_text(pattern) {
        return Ok(None);
    }
    Ok(match pattern {
        Expr::Literal(pattern, _) => match pattern.try_as_str().flatten() {
            Some(pattern) => Some(RegexMatcher::call(text.clone(), pattern, letter_case, most)?),
            None => None,
        },
        computed => Some(RowRegexMatcher::call(text.clone(), computed.clone(), letter_case, most)),
    })
}

fn similar(like: &Like, most: usize) -> Result<Expr> {
    let Expr::Literal(pattern, _) = like.pattern.as_ref() else {
        return plan_err!("SIMILAR TO takes a pattern that is written as a text: match a computed one with ~");
    };
    let Some(pattern) = pattern.try_as_str().flatten() else {
        return Ok(lit(ScalarValue::Boolean(None)));
    };
    let pattern = regular(pattern, like.escape_char.unwrap_or('\\'))?;
    let matches = RegexMatcher::call(like.expr.as_ref().clone(), &pattern, LetterCase::Kept, most)?;
    Ok(if like.negated {
        Expr::Not(Box::new(matches))
    } else {
        matches
    })
}

/// The regular expression of a pattern of SQL: `%` and `_` are wildcards, `.`, `^` and `$` are not, and all of the text is matched.
fn regular(pattern: &str, escape: char) -> Result<String> {
    let mut regular = String::from(r"\A(?s:");
    let mut letters = pattern.chars().peekable();
    // Whether the letters are those of a set, and whether they are its first.
    let (mut in_set, mut is_first) = (false, false);
    while let Some(letter) = letters.next() {
        let was_first = std::mem::take(&mut is_first);
        if letter == escape {
            match letters.next() {
                Some(escaped) if escaped != '"' => regular.push_str(&regex::escape(&escaped.to_string())),
                _ => return plan_err!("'{pattern}' is not a pattern of SIMILAR TO: {escape} escapes nothing there"),
            }
            continue;
        }
        match letter {
            '[' if in_set && letters.peek() == Some(&':') => {
                // A class such as [:digit:], up to its end.
                regular.push('[');
                for letter in letters.by_ref() {
                    regular.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            ']' if in_set && !was_first => {
                in_set = false;
                regular.push(']');
            }
            '^' if was_first => {
                is_first = regular.ends_with('[');
                regular.push('^');
            }
            '[' | ']' | '&' | '~' | '\\' if in_set => regular.extend(['\\', letter]),
            letter if in_set => regular.push(letter),
            '[' => {
                (in_set, is_first) = (true, true);
                regular.push('[');
            }
            '%' => regular.push_str(".*"),
            '_' => regular.push('.'),
            '(' => regular.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => regular.push(letter),
            letter => regular.push_str(&regex::escape(&letter.to_string())),
        }
    }
    regular.push_str(r")\z");
    Ok(regular)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_pattern_of_sql_becomes_a_regular_expression_of_the_whole_text() {
        for (pattern, matched, others) in [
            ("%b%", &["abc", "b", "a\nb"][..], &["ac"][..]),
            ("b", &["b"], &["abc", "b\n"]),
            ("(a|b)_", &["ax", "b."], &["a", "cx"]),
            ("a.c$", &["a.c$"], &["abc$", "a.c"]),
            (r"100\%", &["100%"], &["1000"]),
            ("[a-c]{2}", &["ab"], &["a", "ad"]),
            ("[^]a]", &["b"], &["]", "a"]),
            ("[[:digit:]&]+", &["5&5"], &["a"]),
            ("[a^]", &["^", "a"], &["b"]),
        ] {
            let regex = regex::Regex::new(&regular(pattern, '\\').unwrap()).unwrap();
            assert!(matched.iter().all(|text| regex.is_match(text)), "{pattern}: {regex}");
            assert!(!others.iter().any(|text| regex.is_match(text)), "{pattern}: {regex}");
        }
        assert_eq!(regular("50#%", '#').unwrap(), r"\A(?s:50%)\z");
        assert!(regular("a\\", '\\').is_err());
    }
}
