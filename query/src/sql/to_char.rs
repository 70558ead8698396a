//! `to_char(ts, pattern)` by PostgreSQL's patterns.
//!
//! | | |
//! |---|---|
//! | year | `YYYY`, `YY`, `IYYY` |
//! | month | `MM`, `MONTH`, `Month`, `month`, `MON`, `Mon`, `mon` |
//! | day | `DD`, `DDD`, `DAY`, `Day`, `day`, `DY`, `Dy`, `dy`, `ID`; week `IW` |
//! | time | `HH24`, `HH12`, `HH`, `MI`, `SS`, `MS`, `US`, `AM`, `PM`, `am`, `pm`, `TZ`, `tz`, `OF` |
//!
//! `FM` before one leaves out what fills it up. What is in `"…"`, and all but letters and digits, stands for itself; other letters are
//! refused. A pattern with `%Y` and the like is that of DataFusion.

use arrow_schema::DataType;
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::functions::{datetime, string, unicode};
use datafusion::logical_expr::{Expr, ExprSchemable as _, Operator, binary_expr, lit};

/// How the letters of a name are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letters {
    AsTheyAre,
    Upper,
    Lower,
}

/// What a part of a pattern is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// A format of `chrono`.
    Format(String),
    /// A name, which is filled up to nine letters unless it is `bare`.
    Name {
        format: &'static str,
        letters: Letters,
        filled: bool,
    },
    /// The name of the zone.
    Zone(Letters),
    /// How far the zone is from UTC.
    Offset,
}

/// Numbers: they may be written in either case.
const NUMBERS: [(&str, &str, &str); 17] = [
    ("IYYY", "%G", "%-G"),
    ("YYYY", "%Y", "%-Y"),
    ("HH24", "%H", "%-H"),
    ("HH12", "%I", "%-I"),
    ("DDD", "%j", "%-j"),
    ("HH", "%I", "%-I"),
    ("YY", "%y", "%-y"),
    ("MM", "%m", "%-m"),
    ("MI", "%M", "%-M"),
    ("SS", "%S", "%-S"),
    ("MS", "%3f", "%3f"),
    ("US", "%6f", "%6f"),
    ("DD", "%d", "%-d"),
    ("ID", "%u", "%u"),
    ("IW", "%V", "%-V"),
    ("AM", "%p", "%p"),
    ("PM", "%p", "%p"),
];

/// Names, with whether they are filled up.
const NAMES: [(&str, &str, Letters, bool); 12] = [
    ("MONTH", "%B", Letters::Upper, true),
    ("Month", "%B", Letters::AsTheyAre, true),
    ("month", "%B", Letters::Lower, true),
    ("MON", "%b", Letters::Upper, false),
    ("Mon", "%b", Letters::AsTheyAre, false),
    ("mon", "%b", Letters::Lower, false),
    ("DAY", "%A", Letters::Upper, true),
    ("Day", "%A", Letters::AsTheyAre, true),
    ("day", "%A", Letters::Lower, true),
    ("DY", "%a", Letters::Upper, false),
    ("Dy", "%a", Letters::AsTheyAre, false),
    ("dy", "%a", Letters::Lower, false),
];

/// What is written; `None` if that is to be done as DataFusion does it.
pub(super) fn written(args: &[Expr], schema: &DFSchema) -> Result<Option<Expr>> {
    let [at, pattern] = args else {
        return Ok(None);
    };
    let Expr::Literal(pattern, _) = pattern else {
        return plan_err!("the pattern of to_char must be written as a text, such as 'YYYY-MM-DD HH24:MI'");
    };
    let Some(pattern) = pattern.try_as_str().flatten() else {
        return Ok(None);
    };
    let kind = at.get_type(schema)?;
    if matches!(kind, DataType::Duration(_) | DataType::Interval(_)) {
        return match pattern.to_ascii_lowercase().as_str() {
            "pretty" | "iso8601" => Ok(None),
            _ => plan_err!("to_char writes moments: take what you need of a difference with extract(… FROM a - b)"),
        };
    }
    if is_of_chrono(pattern) {
        return Ok(None);
    }
    let text = parts(pattern)?.into_iter().try_fold(None, |text, part| {
        let part = expression(part, at, &kind)?;
        Ok::<_, datafusion::error::DataFusionError>(Some(match text {
            None => part,
            Some(text) => binary_expr(text, Operator::StringConcat, part),
        }))
    })?;
    Ok(text)
}

/// Whether a pattern has `%Y` and the like.
fn is_of_chrono(pattern: &str) -> bool {
    let mut letters = pattern.split('%').skip(1).filter_map(|after| after.chars().next());
    letters.any(|letter| letter.is_ascii_alphanumeric() || "-_.:+#".contains(letter))
}

fn parts(pattern: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let Some((text, after)) = rest.get(1..).and_then(|rest| rest.split_once('"')) else {
                return plan_err!("a text in the pattern '{pattern}' of to_char has no end");
            };
            push(&mut parts, Part::Format(text.replace('%', "%%")));
            rest = after;
            continue;
        }
        let bare = rest.get(..2).is_some_and(|fill| fill.eq_ignore_ascii_case("FM"));
        let found = if bare { rest.get(2..).unwrap_or_default() } else { rest };
        if let Some((part, length)) = known(found, bare) {
            push(&mut parts, part);
            rest = found.get(length..).unwrap_or_default();
        } else if first.is_alphanumeric() {
            return plan_err!(
                "'{}' in the pattern '{pattern}' of to_char is not offered: text that stands for itself is put in \"…\"",
                word(rest)
            );
        } else {
            let text = if first == '%' {
                "%%".to_owned()
            } else {
                first.to_string()
            };
            push(&mut parts, Part::Format(text));
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    Ok(parts)
}

/// The letters and digits at the beginning.
fn word(text: &str) -> &str {
    let end = text
        .find(|letter: char| !letter.is_alphanumeric())
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Formats that follow each other are one.
fn push(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), part) {
        (Some(Part::Format(before)), Part::Format(format)) => before.push_str(&format),
        (_, part) => parts.push(part),
    }
}

/// The part that a text begins with, and its length.
fn known(text: &str, bare: bool) -> Option<(Part, usize)> {
    let names = NAMES.iter().find(|(name, ..)| text.starts_with(name));
    if let Some((name, format, letters, filled)) = names {
        let part = Part::Name {
            format: *format,
            letters: *letters,
            filled: *filled && !bare,
        };
        return Some((part, name.len()));
    }
    let begins = |name: &str| {
        text.get(..name.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(name))
    };
    if begins("SSSS") || begins("IDDD") {
        return None;
    }
    let (name, filled, as_it_is) = NUMBERS.iter().find(|(name, ..)| begins(name)).copied().or_else(|| {
        let zone = ["TZ", "OF"].into_iter().find(|name| begins(name))?;
        Some((zone, "", ""))
    })?;
    let is_lower = text.starts_with(|first: char| first.is_ascii_lowercase());
    let part = match name {
        "TZ" if text
            .get(2..3)
            .is_some_and(|next| next.eq_ignore_ascii_case("H") || next.eq_ignore_ascii_case("M")) =>
        {
            return None;
        }
        "TZ" => Part::Zone(if is_lower { Letters::Lower } else { Letters::Upper }),
        "OF" => Part::Offset,
        "AM" | "PM" if is_lower => Part::Format("%P".to_owned()),
        _ => Part::Format(if bare { as_it_is } else { filled }.to_owned()),
    };
    Some((part, name.len()))
}

fn expression(part: Part, at: &Expr, kind: &DataType) -> Result<Expr> {
    let format = |format: &str| datetime::to_char().call(vec![at.clone(), lit(format)]);
    let is_utc = match kind {
        DataType::Timestamp(_, Some(zone)) if ["UTC", "+00:00"].contains(&zone.as_ref()) => true,
        DataType::Timestamp(_, Some(zone)) => return plan_err!("to_char writes times in UTC, not in {zone}"),
        _ => false,
    };
    Ok(match part {
        Part::Format(text) => format(&text),
        Part::Zone(_) if !is_utc => format(""),
        Part::Zone(Letters::Lower) => format("utc"),
        Part::Zone(_) => format("UTC"),
        Part::Offset => format("+00"),
        Part::Name {
            format: name,
            letters,
            filled,
        } => {
            let name = format(name);
            let name = match letters {
                Letters::AsTheyAre => name,
                Letters::Upper => string::upper().call(vec![name]),
                Letters::Lower => string::lower().call(vec![name]),
            };
            if filled {
                unicode::rpad().call(vec![name, lit(9_i64), lit(" ")])
            } else {
                name
            }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn format(text: &str) -> Part {
        Part::Format(text.to_owned())
    }

    #[test]
    fn patterns_of_postgresql_are_told_apart() {
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", vec![format("%Y-%m-%d %H:%M:%S.%6f")]),
            ("yyyymmdd", vec![format("%Y%m%d")]),
            ("IYYY-\"W\"IW", vec![format("%G-W%V")]),
            ("FMDD.FMMM. HH12:MI am", vec![format("%-d.%-m. %I:%M %P")]),
            (
                "YYYY-MM-DD\"T\"HH24 TZ",
                vec![format("%Y-%m-%dT%H "), Part::Zone(Letters::Upper)],
            ),
            (
                "FMMonth DDD",
                vec![
                    Part::Name {
                        format: "%B",
                        letters: Letters::AsTheyAre,
                        filled: false,
                    },
                    format(" %j"),
                ],
            ),
            (
                "DY",
                vec![Part::Name {
                    format: "%a",
                    letters: Letters::Upper,
                    filled: false,
                }],
            ),
            ("%", vec![format("%%")]),
            ("", vec![]),
        ] {
            assert_eq!(parts(pattern).unwrap(), expected, "{pattern}");
        }
        for bad in [
            "YYYY-MM-DDTHH24",
            "SSSSS",
            "CC",
            "Q",
            "TZH",
            "day_of",
            "\"open",
            "FMx",
            "J",
        ] {
            assert!(parts(bad).is_err(), "{bad}");
        }
        assert!(is_of_chrono("%Y-%m") && !is_of_chrono("YYYY") && !is_of_chrono("MM %"));
    }
}
