//! Whether what came is what was expected, and where it differs.
//!
//! # Invariants
//!
//! - An expected object is a part of the one that came, unless `exactly` says that it is all of it; lists are as long as expected.
//! - Numbers are equal by value: 1 is 1.0.

use std::cmp::Ordering;

use model::Attributes;
use model::message::Message;
use model::scenario_test::{ExpectedMessages, MessagePattern, ScenarioTestCase};
use rack::scenario_test::{MessageCondition, ScenarioTestReport};
use serde_json::Value;

/// How many differences of one expectation are told.
const MOST_TOLD: usize = 10;
/// How much of a value is told, in characters.
const MOST_SHOWN: usize = 200;

/// Why a case failed: nothing if it did not.
pub(super) fn reasons(case: &ScenarioTestCase, report: &ScenarioTestReport) -> Vec<String> {
    let of_one = |expected: &ExpectedMessages| {
        let seen = report.seen.get(&expected.port).map_or(&[][..], Vec::as_slice);
        let DifferenceList { told, more, .. } = of_messages(expected, seen);
        let rest = (more > 0).then(|| format!("{more} more differences"));
        let told = told.into_iter().chain(rest);
        told.map(|reason| format!("{}: {reason}", expected.port))
            .collect::<Vec<_>>()
    };
    let failures = report.failures.iter().cloned();
    failures.chain(case.expect.iter().flat_map(of_one)).collect()
}

fn of_messages(expected: &ExpectedMessages, seen: &[Message]) -> DifferenceList {
    let mut found = DifferenceList::new(expected.exactly);
    let wanted = expected.messages.as_ref().map(Vec::len).or(expected.count);
    match wanted {
        Some(wanted) if wanted != seen.len() => {
            found.add(|| format!("expected {}, got {}", messages(wanted), seen.len()));
        }
        None if seen.is_empty() => found.add(|| "expected messages, got none".to_owned()),
        _ => {}
    }
    if let Some(patterns) = &expected.messages {
        for (number, (pattern, message)) in patterns.iter().zip(seen).enumerate() {
            found.compare(&format!("message {}: ", number + 1), pattern, message);
        }
        for (number, message) in seen.iter().enumerate().skip(patterns.len()) {
            found.add(|| format!("message {}: not expected: {}", number + 1, body(message)));
        }
        for (number, pattern) in patterns.iter().enumerate().skip(seen.len()) {
            found.add(|| format!("message {}: missing: {}", number + 1, wanted_body(pattern)));
        }
    }
    if let Some(text) = &expected.condition {
        found.judge(text, seen);
    }
    found
}

fn messages(count: usize) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// A message's body for people.
fn body(message: &Message) -> String {
    match message.data.is_null() {
        true => bytes(&message.raw),
        false => shown(&message.data.to_string()),
    }
}

fn wanted_body(pattern: &MessagePattern) -> String {
    match (&pattern.data, pattern.raw()) {
        (Some(data), _) => shown(&data.to_string()),
        (None, Some(raw)) => bytes(raw),
        (None, None) => "any body".to_owned(),
    }
}

/// Bytes as text, or in hexadecimal, as far as they are shown.
fn bytes(raw: &[u8]) -> String {
    match std::str::from_utf8(raw) {
        Ok(text) => shown(&format!("{:?}", text.chars().take(MOST_SHOWN).collect::<String>())),
        Err(_) => {
            let digits = raw.iter().take(MOST_SHOWN).map(|byte| format!("{byte:02x}"));
            shown(&format!("0x{}", digits.collect::<String>()))
        }
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Where messages differ from what is expected. Those beyond [`MOST_TOLD`] are counted, and not described.
struct DifferenceList {
    exactly: bool,
    told: Vec<String>,
    more: usize,
}

impl DifferenceList {
    const fn new(exactly: bool) -> Self {
        Self {
            exactly,
            told: Vec::new(),
            more: 0,
        }
    }

    fn add(&mut self, describe: impl FnOnce() -> String) {
        if self.told.len() < MOST_TOLD {
            self.told.push(describe());
        } else {
            self.more += 1;
        }
    }

    /// Messages for which an expression is not true.
    fn judge(&mut self, text: &str, seen: &[Message]) {
        let condition = match MessageCondition::compile(text) {
            Ok(condition) => condition,
            Err(reason) => return self.add(|| reason),
        };
        for (number, message) in seen.iter().enumerate() {
            let why = match condition.is_true(message) {
                Ok(true) => continue,
                Ok(false) => format!("where is not true: {text}"),
                Err(reason) => reason,
            };
            self.add(|| format!("message {}: {why}; it is {}", number + 1, body(message)));
        }
    }

    fn compare(&mut self, at: &str, pattern: &MessagePattern, message: &Message) {
        if let Some(data) = &pattern.data {
            self.values(&format!("{at}data"), data, &message.data);
        }
        if let Some(raw) = pattern.raw().filter(|raw| *raw != message.raw) {
            self.add(|| format!("{at}expected {}, got {}", bytes(raw), bytes(&message.raw)));
        }
        // Gears add facts of their own: those that are not named never differ.
        for (key, value) in Attributes::flatten(pattern.meta.clone()).as_map() {
            self.member(&format!("{at}meta.{key}"), value, message.meta.get(key));
        }
    }

    fn member(&mut self, at: &str, expected: &Value, found: Option<&Value>) {
        match found {
            Some(found) => self.values(at, expected, found),
            None => self.add(|| format!("{at}: expected {}, it is missing", shown(&expected.to_string()))),
        }
    }

    fn values(&mut self, at: &str, expected: &Value, found: &Value) {
        match (expected, found) {
            (Value::Object(expected), Value::Object(found)) => {
                for (key, value) in expected {
                    self.member(&format!("{at}.{key}"), value, found.get(key));
                }
                if self.exactly {
                    for (key, value) in found.iter().filter(|(key, _)| !expected.contains_key(*key)) {
                        self.add(|| format!("{at}.{key}: not expected: {}", shown(&value.to_string())));
                    }
                }
            }
            (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
                for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
                    self.values(&format!("{at}[{number}]"), expected, found);
                }
            }
            _ if are_equal(expected, found) => {}
            _ => self.add(|| {
                let (expected, found) = (expected.to_string(), found.to_string());
                format!("{at}: expected {}, got {}", shown(&expected), shown(&found))
            }),
        }
    }
}

fn are_equal(expected: &Value, found: &Value) -> bool {
    let numbers = expected.as_f64().zip(found.as_f64());
    let is_whole = |value: &Value| value.is_i64() || value.is_u64();
    match numbers {
        // Whole numbers beyond 2^53 are told apart.
        Some((expected_number, found_number)) if !(is_whole(expected) && is_whole(found)) => {
            expected_number.partial_cmp(&found_number) == Some(Ordering::Equal)
        }
        _ => expected == found,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{FluxId, MessageId, Timestamp};
    use serde_json::json;

    use super::*;

    fn message(data: Value, raw: &[u8]) -> Message {
        let ts = Timestamp::from_micros(1);
        Message {
            id: MessageId::at(ts, [1; 10]),
            ts,
            raw: raw.to_vec(),
            data,
            hops: 1,
            meta: Attributes::new().with("from", "here").with("net.peer", "x"),
            parent: None,
            flux_id: FluxId::at(ts, [1; 10]),
            sampled: false,
            span_id: "b7ad6b7169203331".parse().unwrap(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
            trace_state: None,
        }
    }

    fn judged(expect: &str, seen: Vec<Message>) -> Vec<String> {
        let file = format!("scenario: x\ncases: [ {{ name: a, expect: [ {expect} ] }} ]");
        let case = model::scenario_test::parse(&file).unwrap().cases.remove(0);
        let mut report = ScenarioTestReport::default();
        report.seen.insert(case.expect[0].port.clone(), seen);
        reasons(&case, &report)
    }

    #[test]
    fn an_expected_object_matches_a_part_unless_exactly_is_set() {
        let seen = || {
            vec![message(
                json!({ "a": { "n": 1, "m": 2.0 }, "l": [1, { "x": 1, "y": 2 }] }),
                b"raw",
            )]
        };
        for same in [
            "{ from: g.out, messages: [ { data: { a: { n: 1.0, m: 2 } } } ] }",
            "{ from: g.out, messages: [ { data: { l: [ 1, { y: 2 } ] }, text: raw, meta: { from: here } } ] }",
            "{ from: g.out, messages: [ { meta: { net: { peer: x } } } ] }",
            "{ from: g.out, messages: [ {} ], exactly: true }",
            "{ from: g.out, messages: [ { data: { a: { n: 1, m: 2 }, l: [ 1, { x: 1, y: 2 } ] } } ], exactly: true }",
            "{ from: g.out, where: data.a.n == 1 }",
            "{ from: g.out, count: 1, where: text == 'raw' }",
        ] {
            assert_eq!(judged(same, seen()), Vec::<String>::new(), "{same}");
        }
        for (other, says) in [
            (
                "{ from: g.out, messages: [ { data: { a: { n: 2 } } } ] }",
                "g.out: message 1: data.a.n: expected 2, got 1",
            ),
            (
                "{ from: g.out, messages: [ { data: { b: 1 } } ] }",
                "g.out: message 1: data.b: expected 1, it is missing",
            ),
            (
                "{ from: g.out, messages: [ { data: { l: [ 1 ] } } ] }",
                "data.l: expected [1], got [1,",
            ),
            (
                "{ from: g.out, messages: [ { data: { a: { n: 1 } } } ], exactly: true }",
                "data.a.m: not expected: 2.0",
            ),
            (
                "{ from: g.out, messages: [ { data: { l: [ 1, { x: 1 } ] } } ], exactly: true }",
                "data.l[1].y: not expected: 2",
            ),
            (
                "{ from: g.out, messages: [ { text: r } ] }",
                "expected \"r\", got \"raw\"",
            ),
            (
                "{ from: g.out, messages: [ { hex: ff } ] }",
                "expected 0xff, got \"raw\"",
            ),
            (
                "{ from: g.out, messages: [ { meta: { from: there } } ] }",
                "meta.from: expected \"there\", got \"here\"",
            ),
            (
                "{ from: g.out, where: data.a.n == 2 }",
                "where is not true: data.a.n == 2; it is {\"a\"",
            ),
            (
                "{ from: g.out, messages: [ { data: null } ] }",
                "message 1: data: expected null, got {\"a\"",
            ),
            ("{ from: g.out, where: data.z == 2 }", "No such key: z"),
            ("{ from: g.out, count: 2 }", "g.out: expected 2 messages, got 1"),
        ] {
            let reasons = judged(other, seen());
            assert!(
                reasons.iter().any(|reason| reason.contains(says)),
                "{other}: {reasons:?}"
            );
        }
    }

    #[test]
    fn messages_that_are_missing_and_messages_too_many_are_shown() {
        let patterns = "{ from: g.out, messages: [ { data: 1 }, { data: 2 }, { text: x } ] }";
        let seen = vec![message(json!(1), b"")];
        let missing = [
            "g.out: expected 3 messages, got 1",
            "g.out: message 2: missing: 2",
            "g.out: message 3: missing: \"x\"",
        ];
        assert_eq!(judged(patterns, seen), missing);
        let seen = vec![message(json!(1), b""), message(Value::Null, b"\xff")];
        let more = [
            "g.out: expected 1 message, got 2",
            "g.out: message 2: not expected: 0xff",
        ];
        assert_eq!(judged("{ from: g.out, messages: [ { data: 1 } ] }", seen), more);
        let zero = || vec![message(json!(-0.0), b"")];
        assert_eq!(judged("{ from: g.out, messages: [ { data: 0 } ] }", zero()), [""; 0]);
        let hung = ScenarioTestReport {
            failures: vec!["gear it was cut off".to_owned()],
            ..ScenarioTestReport::default()
        };
        let file = "scenario: x\ncases: [ { name: a, expect: [ { from: g.out, count: 0 } ] } ]";
        let cases = model::scenario_test::parse(file).unwrap().cases;
        assert_eq!(reasons(&cases[0], &hung), ["gear it was cut off"]);
        assert_eq!(
            judged("{ from: g.out, where: 'true' }", Vec::new()),
            ["g.out: expected messages, got none"]
        );
        let many: Vec<_> = (0..30).map(|number| message(json!(number), b"")).collect();
        let reasons = judged("{ from: g.out, count: 30, where: data < 0 }", many);
        assert_eq!(
            (reasons.len(), &reasons[MOST_TOLD][..]),
            (11, "g.out: 20 more differences")
        );
        let mut full = DifferenceList::new(false);
        full.told = vec![String::new(); MOST_TOLD];
        full.add(|| unreachable!("it is not told"));
    }
}
