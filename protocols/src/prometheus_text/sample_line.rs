//! One line with a sample: its name, labels, value, time and exemplar.
//!
//! ```text
//! name { label = "value" , … } value [time] [ # { label = "value" , … } value [time] ]
//! ```
//!
//! # Invariants
//!
//! - A sample has at most [`MOST_LABELS`] labels.

use std::borrow::Cow;

use model::Timestamp;

use super::{PrometheusFormat, seconds};

/// The most labels of a sample.
const MOST_LABELS: usize = 128;

/// Names and values of labels, as they stand.
pub(super) type LabelList<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// A sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SampleLine<'a> {
    pub(super) name: &'a str,
    pub(super) labels: LabelList<'a>,
    pub(super) value: f64,
    pub(super) ts: Option<Timestamp>,
    pub(super) exemplar: Option<ExemplarText<'a>>,
}

/// An example of what a sample counts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExemplarText<'a> {
    pub(super) labels: LabelList<'a>,
    pub(super) value: f64,
    pub(super) ts: Option<Timestamp>,
}

impl<'a> SampleLine<'a> {
    /// Reads a line that begins with a name.
    pub(super) fn parse(line: &'a str, format: PrometheusFormat) -> Result<Self, String> {
        let mut cursor = LineCursor(line);
        let name = cursor.name(":")?;
        cursor.skip_blanks();
        let labels = if cursor.eat('{') { cursor.labels()? } else { Vec::new() };
        let (value, ts) = cursor.value_and_time(format)?;
        let exemplar = if cursor.eat('#') {
            cursor.skip_blanks();
            if !cursor.eat('{') {
                return Err("an exemplar does not begin with {".to_owned());
            }
            let labels = cursor.labels()?;
            let (value, ts) = cursor.value_and_time(format)?;
            Some(ExemplarText { labels, value, ts })
        } else {
            None
        };
        if !cursor.0.is_empty() {
            return Err(format!("nothing should stand behind the sample: {:?}", shown(cursor.0)));
        }
        Ok(Self {
            name,
            labels,
            value,
            ts,
            exemplar,
        })
    }
}

/// What is left of a line.
#[derive(Debug)]
struct LineCursor<'a>(&'a str);

impl<'a> LineCursor<'a> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// Takes a character, if it is next.
    fn eat(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes what ends before a place.
    fn split(&mut self, at: usize) -> &'a str {
        let (taken, rest) = self.0.split_at_checked(at).unwrap_or((self.0, ""));
        self.0 = rest;
        taken
    }

    /// A name; `more` are characters that it may have beside letters, digits and underscores.
    fn name(&mut self, more: &str) -> Result<&'a str, String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || more.contains(c);
        let end = self.0.find(|c: char| !is_part(c)).unwrap_or(self.0.len());
        if end == 0 || self.0.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("there is no name at {:?}", shown(self.0)));
        }
        Ok(self.split(end))
    }

    /// Labels, behind their opening brace.
    fn labels(&mut self) -> Result<LabelList<'a>, String> {
        let mut labels = Vec::new();
        loop {
            self.skip_blanks();
            if self.eat('}') {
                return Ok(labels);
            }
            if labels.len() == MOST_LABELS {
                return Err(format!("the sample has more than {MOST_LABELS} labels"));
            }
            let name = self.name("")?;
            self.skip_blanks();
            if !self.eat('=') {
                return Err(format!("the label {:?} has no =", shown(name)));
            }
            self.skip_blanks();
            labels.push((name, self.quoted()?));
            self.skip_blanks();
            if !self.eat(',') && !self.0.starts_with('}') {
                return Err(format!("neither , nor }} follows the label {:?}", shown(name)));
            }
        }
    }

    /// A text in quotes, with the escapes `\\`, `\"` and `\n`.
    fn quoted(&mut self) -> Result<Cow<'a, str>, String> {
        if !self.eat('"') {
            return Err("a label's value does not begin with a quote".to_owned());
        }
        let (mut is_escaped, mut has_escapes) = (false, false);
        let end = self.0.find(|c: char| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            has_escapes |= is_escaped;
            is_end
        });
        let end = end.ok_or("a label's value does not end with a quote")?;
        let text = self.split(end);
        self.eat('"');
        Ok(if has_escapes {
            Cow::Owned(unescaped(text))
        } else {
            Cow::Borrowed(text)
        })
    }

    /// A value, and a time if there is one.
    fn value_and_time(&mut self, format: PrometheusFormat) -> Result<(f64, Option<Timestamp>), String> {
        self.skip_blanks();
        let text = self.token();
        let value = text
            .parse::<f64>()
            .map_err(|_| format!("{:?} is no value of a sample", shown(text)))?;
        self.skip_blanks();
        if self.0.is_empty() || self.0.starts_with('#') {
            return Ok((value, None));
        }
        let text = self.token();
        let ts = time(text, format).ok_or_else(|| format!("{:?} is no time of a sample", shown(text)))?;
        self.skip_blanks();
        Ok((value, Some(ts)))
    }

    fn token(&mut self) -> &'a str {
        let end = self.0.find([' ', '\t']).unwrap_or(self.0.len());
        self.split(end)
    }
}

/// A time: milliseconds in the text format, seconds in OpenMetrics.
fn time(text: &str, format: PrometheusFormat) -> Option<Timestamp> {
    match format {
        PrometheusFormat::Text => {
            let millis: i64 = text.parse().ok()?;
            Some(Timestamp::from_micros(millis.checked_mul(1_000)?))
        }
        PrometheusFormat::OpenMetrics => seconds(text.parse().ok()?),
    }
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        match escaped {
            Some('n') => plain.push('\n'),
            Some(other @ ('\\' | '"')) => plain.push(other),
            // What is no escape stands for itself.
            other => plain.extend(std::iter::once(c).chain(other)),
        }
    }
    plain
}

/// The beginning of a text, for people.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
