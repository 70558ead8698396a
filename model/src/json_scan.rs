//! JSON text, read in place: eight bytes at a time, without a tree, a copy or an allocation.
//!
//! # Invariants
//!
//! - What it takes is JSON, and serde_json reads the same in it. What it gives up (`None`) may be JSON all the same: rare forms
//!   such as exponents and `\u` are left to the general way, as is every fault and its message.
//! - Bytes above 127 are passed over: whoever takes texts out checks that they are UTF-8 ([`JsonScanner::has_high_bytes`]).
//!
//! # Not here
//!
//! What the texts mean.

use std::ops::Range;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;

/// A string's place between its quotes.
#[derive(Debug, Clone)]
pub(crate) struct StringToken {
    pub(crate) range: Range<usize>,
    /// Whether something in it is escaped.
    pub(crate) escaped: bool,
    /// Whether serde_json would write it the same way.
    pub(crate) canonical: bool,
}

/// A number without an exponent.
#[derive(Debug, Clone)]
pub(crate) struct NumberToken {
    pub(crate) range: Range<usize>,
    pub(crate) negative: bool,
    /// Its digits as one number; meaningless beyond [`NumberToken::EXACT`] digits.
    pub(crate) significand: u64,
    pub(crate) digits: usize,
    /// Digits behind the point; `None` without a point.
    pub(crate) decimals: Option<usize>,
}

impl NumberToken {
    /// So many digits fit a signed number of 64 bits.
    pub(crate) const EXACT: usize = 18;
    /// So many digits are the same again after a way through an `f64`.
    pub(crate) const FLOAT_DIGITS: usize = 15;

    /// Whether serde_json would write it the same way: what is not sure is not.
    fn is_canonical(&self, text: &[u8]) -> bool {
        match self.decimals {
            None => self.digits <= Self::EXACT && !(self.negative && self.significand == 0),
            Some(decimals) => {
                // Small numbers are written with an exponent.
                let plain = self.significand >= 10u64.pow(decimals.saturating_sub(4).min(18) as u32);
                let last = text.get(self.range.end - 1);
                self.digits <= Self::FLOAT_DIGITS
                    && (decimals == 1 && (plain || self.significand == 0) || plain && last != Some(&b'0'))
            }
        }
    }
}

/// A place in a JSON text.
#[derive(Debug)]
pub(crate) struct JsonScanner<'a> {
    text: &'a [u8],
    pub(crate) at: usize,
    high: u64,
}

/// Marks bytes that are a quote, a backslash or a control character; the lowest mark is exact.
const fn special(word: u64) -> u64 {
    let (quote, slash) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
    (quote.wrapping_sub(ONES) & !quote | slash.wrapping_sub(ONES) & !slash | word.wrapping_sub(ONES * 0x20) & !word)
        & HIGHS
}

impl<'a> JsonScanner<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, high: 0 }
    }

    /// Whether a byte above 127 was passed so far.
    pub(crate) const fn has_high_bytes(&self) -> bool {
        self.high & HIGHS != 0
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &'a [u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// The next byte behind white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                other => return Some(*other),
            }
        }
    }

    /// Passes the byte, and white space before it, if it comes next.
    pub(crate) fn consume_byte(&mut self, byte: u8) -> bool {
        let comes = self.peek() == Some(byte);
        self.at += usize::from(comes);
        comes
    }

    /// Whether nothing but white space is left.
    pub(crate) fn consume_end(&mut self) -> bool {
        self.peek().is_none()
    }

    pub(crate) fn literal(&mut self, word: &[u8]) -> Option<Range<usize>> {
        let range = self.at..self.at + word.len();
        (self.text.get(range.clone())? == word).then(|| {
            self.at = range.end;
            range
        })
    }

    /// A string that begins here, with its opening quote.
    pub(crate) fn text(&mut self) -> Option<StringToken> {
        if self.text.get(self.at) != Some(&b'"') {
            return None;
        }
        let start = self.at + 1;
        let (mut at, mut escaped, mut canonical) = (start, false, true);
        loop {
            if let Some(word) = self.text.get(at..)?.first_chunk::<8>() {
                let word = u64::from_le_bytes(*word);
                let marks = special(word);
                let before = if marks == 0 { 8 } else { marks.trailing_zeros() / 8 };
                self.high |= if before == 8 {
                    word
                } else {
                    word & ((1 << (8 * before)) - 1)
                };
                at += before as usize;
                if before == 8 {
                    continue;
                }
            }
            match *self.text.get(at)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    match self.text.get(at + 1)? {
                        b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        b'/' => canonical = false,
                        _ => return None,
                    }
                    at += 2;
                }
                0..0x20 => return None,
                byte => {
                    self.high |= u64::from(byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Some(StringToken {
            range: start..at,
            escaped,
            canonical,
        })
    }

    /// A number that begins here.
    pub(crate) fn number(&mut self) -> Option<NumberToken> {
        let start = self.at;
        let mut at = start;
        let negative = self.text.get(at) == Some(&b'-');
        at += usize::from(negative);
        let mut significand = 0u64;
        let mut run = |at: &mut usize| {
            let first = *at;
            while let Some(digit) = self
                .text
                .get(*at)
                .map(|byte| byte.wrapping_sub(b'0'))
                .filter(|digit| *digit < 10)
            {
                significand = significand.wrapping_mul(10).wrapping_add(u64::from(digit));
                *at += 1;
            }
            *at - first
        };
        let first = at;
        let mut digits = run(&mut at);
        if digits == 0 || (digits > 1 && self.text.get(first) == Some(&b'0')) {
            return None;
        }
        let mut decimals = None;
        if self.text.get(at) == Some(&b'.') {
            at += 1;
            let count = run(&mut at);
            if count == 0 {
                return None;
            }
            digits += count;
            decimals = Some(count);
        }
        if matches!(self.text.get(at), Some(b'e' | b'E')) {
            return None;
        }
        self.at = at;
        Some(NumberToken {
            range: start..at,
            negative,
            significand,
            digits,
            decimals,
        })
    }

    /// A text, number, literal, or array of them without white space; whether serde_json would write it the same way.
    fn leaf(&mut self) -> Option<(Range<usize>, bool)> {
        if self.peek()? != b'[' {
            return self.scalar();
        }
        let start = self.at;
        self.at += 1;
        let mut canonical = true;
        if self.text.get(self.at) == Some(&b']') {
            self.at += 1;
            return Some((start..self.at, true));
        }
        loop {
            canonical &= self.scalar()?.1;
            self.at += 1;
            match self.text.get(self.at - 1)? {
                b',' => {}
                b']' => return Some((start..self.at, canonical)),
                _ => return None,
            }
        }
    }

    fn scalar(&mut self) -> Option<(Range<usize>, bool)> {
        match self.text.get(self.at)? {
            b'"' => {
                let text = self.text()?;
                Some((text.range.start - 1..text.range.end + 1, text.canonical))
            }
            b't' => Some((self.literal(b"true")?, true)),
            b'f' => Some((self.literal(b"false")?, true)),
            b'n' => Some((self.literal(b"null")?, true)),
            _ => {
                let number = self.number()?;
                let canonical = number.is_canonical(self.text);
                Some((number.range, canonical))
            }
        }
    }

    /// An object without objects in it, that begins here; each of its keys and values, and whether both are as serde_json
    /// would write them.
    pub(crate) fn read_flat_object(
        &mut self,
        mut each: impl FnMut(StringToken, Range<usize>, bool) -> Option<()>,
    ) -> Option<()> {
        if !self.consume_byte(b'{') {
            return None;
        }
        if self.consume_byte(b'}') {
            return Some(());
        }
        loop {
            self.peek()?;
            let key = self.text()?;
            if !self.consume_byte(b':') {
                return None;
            }
            let (value, canonical) = self.leaf()?;
            each(key, value, canonical)?;
            if !self.consume_byte(b',') {
                return self.consume_byte(b'}').then_some(());
            }
        }
    }
}

/// Whether a text is surely a flat JSON object; if not, the general way decides.
pub(crate) fn is_flat(text: &str) -> bool {
    let mut scan = JsonScanner::new(text.as_bytes());
    scan.read_flat_object(|_, _, _| Some(())).is_some() && scan.consume_end()
}

/// Appends what an escaped string of [`JsonScanner::text`] stands for.
pub(crate) fn unescape(text: &[u8], to: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        to.extend_from_slice(rest.get(..at).unwrap_or_default());
        to.push(match rest.get(at + 1) {
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(other) => *other,
            None => b'\\',
        });
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    to.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::flat_json::FlatObject;

    fn text_of(json: &str) -> Option<String> {
        let mut scan = JsonScanner::new(json.as_bytes());
        let text = scan.text().filter(|_| scan.consume_end())?;
        let mut bytes = Vec::new();
        unescape(scan.bytes(text.range), &mut bytes);
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn usual_forms_are_taken_and_objects_in_objects_are_not() {
        for good in [
            "{}",
            r#" { "a" : 1 , "b":[1,"x",null] } "#,
            r#"{"a":"\n\"é","b":-0.5,"c":true}"#,
        ] {
            assert!(is_flat(good), "{good}");
        }
        for bad in [
            "[]",
            r#"{"a":{}}"#,
            r#"{"a":1,}"#,
            r#"{"a":01}"#,
            r#"{"a":"x}"#,
            r#"{"a":1}x"#,
            r#"{"a":"\x"}"#,
        ] {
            assert!(!is_flat(bad), "{bad}");
        }
        assert_eq!(text_of(r#""a\\b\/c""#).unwrap(), r"a\b/c");
    }

    #[test]
    fn what_is_called_canonical_is_what_serde_json_writes() {
        for whole in [
            "0",
            "7",
            "10",
            "123456",
            "12345678901234",
            "999999999999999999",
            "-5",
            "-0",
        ] {
            for decimals in [
                "",
                ".0",
                ".00",
                ".5",
                ".50",
                ".0001",
                ".00001",
                ".000001",
                ".123456789",
                ".999999999999999",
            ] {
                canonical(&format!("{whole}{decimals}"));
            }
        }
    }

    fn canonical(json: &str) {
        let mut scan = JsonScanner::new(json.as_bytes());
        if let Some((range, true)) = scan.scalar()
            && range.end == json.len()
        {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(value.to_string(), json);
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_is_json_of_the_same_meaning(json in prop_oneof![
            r#"\{("[a-c\\/"u0]{0,9}" ?: ?(-?[0-9.e]{1,20}|"[a-z\\"nté]{0,12}"|true|nul{1,2}|\[([0-9],?){0,3}\]|\{\}),? ?){0,4}\}"#,
            r#""([a-z é]{0,9}(\\[nrtbf/"\\u])?){0,4}""#,
            r"-?[0-9]{1,17}(\.[0-9]{1,9})?",
        ]) {
            if is_flat(&json) {
                prop_assert!(serde_json::from_str::<FlatObject>(&json).is_ok(), "{}", json);
            }
            if let Some(text) = text_of(&json) {
                prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            }
            canonical(&json);
        }
    }
}
