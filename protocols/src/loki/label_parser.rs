//! Labels as Loki writes them: `{name="value", other="…"}`.
//!
//! ```text
//! labels = "{" [ pair { "," pair } [ "," ] ] "}"      pair = ( name | text ) "=" text      text = "…" with Go's escapes | `…`
//! ```
//!
//! Source: `ParseLabels` of Loki, which is Prometheus' parser of selectors; `strconv.Unquote` of Go.

use std::collections::BTreeMap;

/// Tells of each label.
pub(super) fn parse(labels: &str, mut each: impl FnMut(&str, &str) -> Result<(), String>) -> Result<(), String> {
    let mut text = LabelText { labels, at: 0 };
    let mut value = String::new();
    let mut quoted = String::new();
    text.expect('{')?;
    while !text.take('}') {
        let name = match text.peek() {
            Some('"' | '`') => {
                text.quoted(&mut quoted)?;
                quoted.as_str()
            }
            _ => text.name()?,
        };
        text.expect('=')?;
        text.quoted(&mut value)?;
        each(name, &value)?;
        if !text.take(',') {
            text.expect('}')?;
            break;
        }
    }
    match text.peek() {
        None => Ok(()),
        Some(_) => Err(text.fault("nothing")),
    }
}

/// Labels in a form that [`parse`] reads.
pub(super) fn written(labels: &BTreeMap<String, String>) -> String {
    let mut text = String::from("{");
    for (name, value) in labels {
        for (part, end) in [(name, '='), (value, ',')] {
            text.push('"');
            for character in part.chars() {
                match character {
                    '"' | '\\' => text.extend(['\\', character]),
                    // Go has no line break in quotes.
                    '\n' => text.push_str("\\n"),
                    other => text.push(other),
                }
            }
            text.extend(['"', end]);
        }
    }
    text.push('}');
    text
}

/// The labels, and what of them is read.
struct LabelText<'a> {
    labels: &'a str,
    at: usize,
}

impl<'a> LabelText<'a> {
    fn rest(&self) -> &'a str {
        self.labels.get(self.at..).unwrap_or_default()
    }

    /// The next character that is no blank.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.take(wanted) {
            return Ok(());
        }
        Err(self.fault(&format!("{wanted:?}")))
    }

    fn fault(&self, wanted: &str) -> String {
        let found: String = self.rest().chars().take(20).collect();
        format!("labels: {wanted} belongs at byte {}, not {found:?}", self.at)
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.')));
        let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if name.is_empty() {
            return Err(self.fault("a name"));
        }
        self.at += name.len();
        Ok(name)
    }

    /// Reads a text in quotes into `to`.
    fn quoted(&mut self, to: &mut String) -> Result<(), String> {
        to.clear();
        let start = self.at;
        let quote = match self.peek() {
            Some(quote @ ('"' | '`')) => quote,
            _ => return Err(self.fault("a text in quotes")),
        };
        self.at += 1;
        let mut characters = self.rest().char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.at += at + 1;
                    return Ok(());
                }
                '\\' if quote == '"' => {
                    let escaped = escape(&mut characters);
                    to.push(
                        escaped.ok_or_else(|| format!("labels: there is no such escape at byte {}", self.at + at))?,
                    );
                }
                '\n' if quote == '"' => break,
                other => to.push(other),
            }
        }
        Err(format!("labels: the text that begins at byte {start} does not end"))
    }
}

/// The character that an escape stands for, behind its backslash. Bytes (`\xff`, `\377`) are taken as characters.
fn escape(characters: &mut std::str::CharIndices<'_>) -> Option<char> {
    let (_, kind) = characters.next()?;
    let (first, digits, radix) = match kind {
        'a' => return Some('\u{7}'),
        'b' => return Some('\u{8}'),
        'f' => return Some('\u{c}'),
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        't' => return Some('\t'),
        'v' => return Some('\u{b}'),
        '\\' | '"' | '\'' => return Some(kind),
        'x' => (0, 2, 16),
        'u' => (0, 4, 16),
        'U' => (0, 8, 16),
        octal => (octal.to_digit(8)?, 2, 8),
    };
    let mut code = first;
    for _ in 0..digits {
        let (_, digit) = characters.next()?;
        code = code.checked_mul(radix)?.checked_add(digit.to_digit(radix)?)?;
    }
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn parsed(labels: &str) -> Result<Vec<(String, String)>, String> {
        let mut pairs = Vec::new();
        parse(labels, |name, value| {
            pairs.push((name.to_owned(), value.to_owned()));
            Ok(())
        })?;
        Ok(pairs)
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn labels_are_read_with_blanks_escapes_and_a_comma_at_the_end() {
        for (labels, expected) in [
            ("{}", &[][..]),
            (" { } ", &[]),
            (r#"{job="app"}"#, &[("job", "app")]),
            (r#"{ a = "b" , c_1="" , }"#, &[("a", "b"), ("c_1", "")]),
            (r#"{"with space"="x",`b`=`\n`}"#, &[("with space", "x"), ("b", "\\n")]),
            (r#"{a="\"\\\n\t\x41\u00e9\U0001F600\101"}"#, &[("a", "\"\\\n\tAé😀A")]),
            (r#"{a="ü}=,{"}"#, &[("a", "ü}=,{")]),
        ] {
            assert_eq!(parsed(labels), Ok(pairs(expected)), "{labels}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let labels = BTreeMap::from([
            ("host".to_owned(), "a\"b\\c\nd\te".to_owned()),
            ("two words".to_owned(), "ü".to_owned()),
        ]);
        let expected: Vec<_> = labels.clone().into_iter().collect();
        assert_eq!(parsed(&written(&labels)).unwrap(), expected);
    }

    #[test]
    fn a_syntax_error_names_the_place() {
        for (labels, reason) in [
            ("", "labels: '{' belongs at byte 0"),
            ("job=\"a\"", "labels: '{' belongs at byte 0"),
            ("{job}", "labels: '=' belongs at byte 4"),
            ("{job=}", "labels: a text in quotes belongs at byte 5"),
            ("{job=a}", "labels: a text in quotes belongs at byte 5"),
            ("{job=\"a\"", "labels: '}' belongs at byte 8"),
            ("{job=\"a\" b=\"c\"}", "labels: '}' belongs at byte 9"),
            ("{,}", "labels: a name belongs at byte 1"),
            ("{=\"a\"}", "labels: a name belongs at byte 1"),
            ("{job=\"a", "labels: the text that begins at byte 5 does not end"),
            ("{job=\"a\n\"}", "labels: the text that begins at byte 5 does not end"),
            ("{job=\"\\q\"}", "labels: there is no such escape at byte 6"),
            ("{job=\"\\ud800\"}", "labels: there is no such escape at byte 6"),
            ("{job=\"\\x4", "labels: there is no such escape at byte 6"),
            ("{} x", "labels: nothing belongs at byte 3"),
            ("{a!=\"b\"}", "labels: '=' belongs at byte 2"),
        ] {
            let error = parsed(labels).unwrap_err();
            assert!(error.starts_with(reason), "{labels}: {error}");
        }
    }
}
