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
//! refused. A pattern with `%Y` and the like is that of `chrono`.
//!
//! # Invariants
//!
//! - A call is one expression however long its pattern is, and evaluates its time once: calls within calls do not multiply.
//! - A pattern has at most [`LONGEST`] bytes, so a text has at most a few times as many.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::TimestampMicrosecondType;
use arrow_schema::{DataType, TimeUnit};
use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Utc};
use datafusion::common::{DFSchema, exec_datafusion_err, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable as _, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};

/// The longest pattern, in bytes.
const LONGEST: usize = 256;
/// What names are filled up to, in letters.
const NAME_WIDTH: usize = 9;

/// How the letters of a name are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NameCase {
    AsTheyAre,
    Upper,
    Lower,
}

/// What a part of a pattern is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PatternPart {
    /// A format of `chrono`.
    Format(String),
    /// A name, which may be filled up with blanks.
    Name {
        format: &'static str,
        letters: NameCase,
        filled: bool,
    },
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
const NAMES: [(&str, &str, NameCase, bool); 12] = [
    ("MONTH", "%B", NameCase::Upper, true),
    ("Month", "%B", NameCase::AsTheyAre, true),
    ("month", "%B", NameCase::Lower, true),
    ("MON", "%b", NameCase::Upper, false),
    ("Mon", "%b", NameCase::AsTheyAre, false),
    ("mon", "%b", NameCase::Lower, false),
    ("DAY", "%A", NameCase::Upper, true),
    ("Day", "%A", NameCase::AsTheyAre, true),
    ("day", "%A", NameCase::Lower, true),
    ("DY", "%a", NameCase::Upper, false),
    ("Dy", "%a", NameCase::AsTheyAre, false),
    ("dy", "%a", NameCase::Lower, false),
];

/// What is written; `None` if that is to be done as DataFusion does it.
pub(super) fn rewrite_to_char(args: &[Expr], schema: &DFSchema) -> Result<Option<Expr>> {
    let [at, pattern] = args else {
        return Ok(None);
    };
    let Expr::Literal(pattern, _) = pattern else {
        return plan_err!("the pattern of to_char must be written as a text, such as 'YYYY-MM-DD HH24:MI'");
    };
    let Some(pattern) = pattern.try_as_str().flatten() else {
        return Ok(None);
    };
    if pattern.len() > LONGEST {
        return plan_err!(
            "a pattern of to_char has at most {LONGEST} bytes, not {}",
            pattern.len()
        );
    }
    let kind = at.get_type(schema)?;
    let (at, zone) = match kind {
        DataType::Duration(_) | DataType::Interval(_) => {
            return match pattern.to_ascii_lowercase().as_str() {
                "pretty" | "iso8601" => Ok(None),
                _ => plan_err!("to_char writes moments: take what you need of a difference with extract(… FROM a - b)"),
            };
        }
        DataType::Timestamp(_, Some(zone)) if !["UTC", "+00:00"].contains(&zone.as_ref()) => {
            return plan_err!("to_char writes times in UTC, not in {zone}");
        }
        DataType::Timestamp(_, zone) => (at.clone(), zone.map(|_| "UTC")),
        DataType::Time32(_) | DataType::Time64(_) => {
            let micros = cast(at.clone(), DataType::Time64(TimeUnit::Microsecond));
            (cast(micros, DataType::Int64), None)
        }
        _ => (at.clone(), None),
    };
    let parts = if is_of_chrono(pattern) {
        vec![PatternPart::Format(pattern.to_owned())]
    } else {
        parts(pattern, zone)?
    };
    for part in &parts {
        part.items()?;
    }
    let writer = ScalarUDF::new_from_impl(TimestampWriter {
        parts,
        signature: Signature::exact(vec![moments()], Volatility::Immutable),
    });
    Ok(Some(writer.call(vec![cast(at, moments())])))
}

/// Microseconds since 1970.
const fn moments() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

impl PatternPart {
    /// What `chrono` writes for it.
    fn items(&self) -> Result<Vec<Item<'_>>> {
        let format = match self {
            Self::Format(format) => format,
            Self::Name { format, .. } => *format,
        };
        let items = StrftimeItems::new(format).parse();
        items.map_err(|_| exec_datafusion_err!("'{format}' is not a pattern of to_char"))
    }

    fn write(&self, items: &[Item<'_>], at: DateTime<Utc>, text: &mut String) -> std::fmt::Result {
        let begin = text.len();
        write!(text, "{}", at.format_with_items(items.iter()))?;
        let Self::Name { letters, filled, .. } = self else {
            return Ok(());
        };
        let name = text.split_off(begin);
        let name = match letters {
            NameCase::AsTheyAre => name,
            NameCase::Upper => name.to_uppercase(),
            NameCase::Lower => name.to_lowercase(),
        };
        let width = if *filled { NAME_WIDTH } else { 0 };
        write!(text, "{name:<width$}")
    }
}

/// The function that writes times by one pattern.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimestampWriter {
    parts: Vec<PatternPart>,
    signature: Signature,
}

impl ScalarUDFImpl for TimestampWriter {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times] = args.args.as_slice() else {
            return exec_err!("one time was expected");
        };
        let times = times.to_array(args.number_rows)?;
        let parts: Vec<_> = self
            .parts
            .iter()
            .map(|part| Ok((part, part.items()?)))
            .collect::<Result<_>>()?;
        let (mut texts, mut text) = (StringBuilder::new(), String::new());
        for micros in times.as_primitive::<TimestampMicrosecondType>() {
            let Some(micros) = micros else {
                texts.append_null();
                continue;
            };
            let Some(at) = DateTime::from_timestamp_micros(micros) else {
                return exec_err!("the time {micros} µs from 1970 is too far away to be written");
            };
            text.clear();
            for (part, items) in &parts {
                if part.write(items, at, &mut text).is_err() {
                    return exec_err!("a pattern of to_char asks for what a time has not");
                }
            }
            texts.append_value(&text);
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}

/// Whether a pattern has `%Y` and the like.
fn is_of_chrono(pattern: &str) -> bool {
    let mut letters = pattern.split('%').skip(1).filter_map(|after| after.chars().next());
    letters.any(|letter| letter.is_ascii_alphanumeric() || "-_.:+#".contains(letter))
}

fn parts(pattern: &str, zone: Option<&str>) -> Result<Vec<PatternPart>> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let Some((text, after)) = rest.get(1..).and_then(|rest| rest.split_once('"')) else {
                return plan_err!("a text in the pattern '{pattern}' of to_char has no end");
            };
            push(&mut parts, PatternPart::Format(text.replace('%', "%%")));
            rest = after;
            continue;
        }
        let bare = rest.get(..2).is_some_and(|fill| fill.eq_ignore_ascii_case("FM"));
        let found = if bare { rest.get(2..).unwrap_or_default() } else { rest };
        if let Some((part, length)) = known(found, bare, zone) {
            push(&mut parts, part);
            rest = found.get(length..).unwrap_or_default();
        } else if first.is_alphanumeric() {
            return plan_err!(
                "'{}' in the pattern '{pattern}' of to_char is not supported: text that stands for itself is put in \"…\"",
                word(rest)
            );
        } else {
            let text = if first == '%' {
                "%%".to_owned()
            } else {
                first.to_string()
            };
            push(&mut parts, PatternPart::Format(text));
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
fn push(parts: &mut Vec<PatternPart>, part: PatternPart) {
    match (parts.last_mut(), part) {
        (Some(PatternPart::Format(before)), PatternPart::Format(format)) => before.push_str(&format),
        (_, part) => parts.push(part),
    }
}

/// The part that a text begins with, and its length.
fn known(text: &str, bare: bool, zone: Option<&str>) -> Option<(PatternPart, usize)> {
    let names = NAMES.iter().find(|(name, ..)| text.starts_with(name));
    if let Some((name, format, letters, filled)) = names {
        let part = PatternPart::Name {
            format,
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
        "TZ" if is_lower => PatternPart::Format(zone.unwrap_or_default().to_ascii_lowercase()),
        "TZ" => PatternPart::Format(zone.unwrap_or_default().to_owned()),
        "OF" => PatternPart::Format("+00".to_owned()),
        "AM" | "PM" if is_lower => PatternPart::Format("%P".to_owned()),
        _ => PatternPart::Format(if bare { as_it_is } else { filled }.to_owned()),
    };
    Some((part, name.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn format(text: &str) -> PatternPart {
        PatternPart::Format(text.to_owned())
    }

    #[test]
    fn patterns_of_postgresql_are_told_apart() {
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", vec![format("%Y-%m-%d %H:%M:%S.%6f")]),
            ("yyyymmdd", vec![format("%Y%m%d")]),
            ("IYYY-\"W\"IW", vec![format("%G-W%V")]),
            ("FMDD.FMMM. HH12:MI am", vec![format("%-d.%-m. %I:%M %P")]),
            ("YYYY-MM-DD\"T\"HH24 TZ", vec![format("%Y-%m-%dT%H UTC")]),
            (
                "FMMonth DDD",
                vec![
                    PatternPart::Name {
                        format: "%B",
                        letters: NameCase::AsTheyAre,
                        filled: false,
                    },
                    format(" %j"),
                ],
            ),
            (
                "DY",
                vec![PatternPart::Name {
                    format: "%a",
                    letters: NameCase::Upper,
                    filled: false,
                }],
            ),
            ("%", vec![format("%%")]),
            ("", vec![]),
        ] {
            assert_eq!(parts(pattern, Some("UTC")).unwrap(), expected, "{pattern}");
        }
        for bad in [
            "YYYY-MM-DDTHH24",
            "SSSSS",
            "CC",
            "Q",
            "TZH",
            "day_x",
            "\"open",
            "FMx",
            "J",
        ] {
            assert!(parts(bad, None).is_err(), "{bad}");
        }
        assert!(is_of_chrono("%Y-%m") && !is_of_chrono("YYYY") && !is_of_chrono("MM %"));
    }
}
