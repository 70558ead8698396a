//! Whether what came is what was expected, and where it differs.
//!
//! # Invariants
//!
//! - An expected object is a part of the one that came, unless `exactly` says that it is all of it; lists are as long as expected.
//! - Numbers are equal by value: 1 is 1.0.

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
        let mut reasons = of_messages(expected, seen);
        let more = reasons.len().saturating_sub(MOST_TOLD);
        reasons.truncate(MOST_TOLD);
        if more > 0 {
            reasons.push(format!("{more} more differences"));
        }
        let told = reasons.into_iter().map(|reason| format!("{}: {reason}", expected.port));
        told.collect::<Vec<_>>()
    };
    case.expect.iter().flat_map(of_one).collect()
}

fn of_messages(expected: &ExpectedMessages, seen: &[Message]) -> Vec<String> {
    let mut reasons = Vec::new();
    let wanted = expected.messages.as_ref().map(Vec::len).or(expected.count);
    match wanted {
        Some(wanted) if wanted != seen.len() => {
            reasons.push(format!("expected {}, got {}", messages(wanted), seen.len()))
        }
        None if seen.is_empty() => reasons.push("expected messages, got none".to_owned()),
        _ => {}
    }
    if let Some(patterns) = &expected.messages {
        for (number, (pattern, message)) in patterns.iter().zip(seen).enumerate() {
            let mut found = DifferenceList::new(expected.exactly);
            found.compare(pattern, message);
            let told = found.told.into_iter();
            reasons.extend(told.map(|difference| format!("message {}: {difference}", number + 1)));
        }
        for (number, message) in seen.iter().enumerate().skip(patterns.len()) {
            reasons.push(format!("message {}: not expected: {}", number + 1, body(message)));
        }
        for (number, pattern) in patterns.iter().enumerate().skip(seen.len()) {
            reasons.push(format!("message {}: missing: {}", number + 1, wanted_body(pattern)));
        }
    }
    if let Some(text) = &expected.condition {
        reasons.extend(of_condition(text, seen));
    }
    reasons
}

fn messages(count: usize) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// Messages for which an expression is not true.
fn of_condition(text: &str, seen: &[Message]) -> Vec<String> {
    let condition = match MessageCondition::compile(text) {
        Ok(condition) => condition,
        Err(reason) => return vec![reason],
    };
    let judged = seen.iter().enumerate().filter_map(|(number, message)| {
        let why = match condition.is_true(message) {
            Ok(true) => return None,
            Ok(false) => format!("where is not true: {text}"),
            Err(reason) => reason,
        };
        Some(format!("message {}: {why}; it is {}", number + 1, body(message)))
    });
    judged.collect()
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

/// Bytes as text, or in hexadecimal.
fn bytes(raw: &[u8]) -> String {
    match std::str::from_utf8(raw) {
        Ok(text) => shown(&format!("{text:?}")),
        Err(_) => shown(&raw.iter().fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))),
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Where a message differs from what is expected.
struct DifferenceList {
    exactly: bool,
    told: Vec<String>,
}

impl DifferenceList {
    const fn new(exactly: bool) -> Self {
        Self {
            exactly,
            told: Vec::new(),
        }
    }

    fn compare(&mut self, pattern: &MessagePattern, message: &Message) {
        if let Some(data) = &pattern.data {
            self.values("data", data, &message.data);
        }
        if let Some(raw) = pattern.raw().filter(|raw| *raw != message.raw) {
            self.told
                .push(format!("expected {}, got {}", bytes(raw), bytes(&message.raw)));
        }
        // Gears add facts of their own: those that are not named never differ.
        for (key, value) in &pattern.meta {
            match message.meta.get(key) {
                Some(found) => self.values(&format!("meta.{key}"), value, found),
                None => self.told.push(format!(
                    "meta.{key}: expected {}, it is missing",
                    shown(&value.to_string())
                )),
            }
        }
    }

    fn values(&mut self, at: &str, expected: &Value, found: &Value) {
        match (expected, found) {
            (Value::Object(expected), Value::Object(found)) => {
                for (key, value) in expected {
                    let at = format!("{at}.{key}");
                    match found.get(key) {
                        Some(found) => self.values(&at, value, found),
                        None => self
                            .told
                            .push(format!("{at}: expected {}, it is missing", shown(&value.to_string()))),
                    }
                }
                let more = found
                    .iter()
                    .filter(|(key, _)| self.exactly && !expected.contains_key(*key));
                let more: Vec<_> = more
                    .map(|(key, value)| format!("{at}.{key}: not expected: {}", shown(&value.to_string())))
                    .collect();
                self.told.extend(more);
            }
            (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
                for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
                    self.values(&format!("{at}[{number}]"), expected, found);
                }
            }
            _ if are_equal(expected, found) => {}
            _ => self.told.push(format!(
                "{at}: expected {}, got {}",
                shown(&expected.to_string()),
                shown(&found.to_string())
            )),
        }
    }
}

fn are_equal(expected: &Value, found: &Value) -> bool {
    let numbers = expected.as_f64().zip(found.as_f64());
    let is_whole = |value: &Value| value.is_i64() || value.is_u64();
    match numbers {
        // Whole numbers beyond 2^53 are told apart.
        Some((expected_number, found_number)) if !(is_whole(expected) && is_whole(found)) => {
            expected_number.total_cmp(&found_number).is_eq()
        }
        _ => expected == found,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{Attributes, FluxId, MessageId, Timestamp};
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
            meta: Attributes::new().with("from", "here"),
            parent: None,
            flux_id: FluxId::at(ts, [1; 10]),
            sampled: false,
            span_id: "b7ad6b7169203331".parse().unwrap(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
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
    fn an_object_is_a_part_of_what_came_unless_it_is_to_be_all_of_it() {
        let seen = || {
            vec![message(
                json!({ "a": { "n": 1, "m": 2.0 }, "l": [1, { "x": 1, "y": 2 }] }),
                b"raw",
            )]
        };
        for same in [
            "{ from: g.out, messages: [ { data: { a: { n: 1.0, m: 2 } } } ] }",
            "{ from: g.out, messages: [ { data: { l: [ 1, { y: 2 } ] }, text: raw, meta: { from: here } } ] }",
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
    }
}
