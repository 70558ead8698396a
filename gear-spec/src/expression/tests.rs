//! Expressions: what they give, what they refuse and where, and that no text makes them panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use model::{Attributes, FluxId, MessageId, Timestamp};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::*;

/// A message of a known time, with three hops behind it.
fn message(data: Value, raw: &[u8]) -> Message {
    let ts = Timestamp::from_micros(1_763_728_200_000_000);
    Message {
        id: MessageId::at(ts, [3; 10]),
        ts,
        raw: raw.to_vec(),
        data,
        hops: 3,
        meta: Attributes::new().with("content_type", "text/plain").with("size", 7),
        parent: None,
        flux_id: FluxId::at(ts, [3; 10]),
        sampled: true,
        span_id: "b7ad6b7169203331".parse().unwrap(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        trace_state: None,
    }
}

fn eval(text: &str, message: &Message) -> Result<Value, String> {
    let expression = CelExpression::compile("where", text)?;
    expression
        .value(&MessageVariables::of(message))
        .map_err(|fault| fault.to_string())
}

#[test]
fn an_expression_sees_the_message() {
    let order =
        json!({"id": 7, "big": u64::MAX, "price": 2.5, "tags": ["a", "b"], "user": {"name": "Grüße"}, "none": null});
    let message = message(order.clone(), b"raw text");
    for (text, wanted) in [
        ("data", order),
        ("data.price * 2.0", json!(5.0)),
        ("data.id + 1", json!(8)),
        ("data.big", json!(u64::MAX)),
        ("data.user.name + '!'", json!("Grüße!")),
        ("data.none", json!(null)),
        ("has(data.user.mail) ? data.user.mail : 'none'", json!("none")),
        ("text", json!("raw text")),
        ("size(text)", json!(8)),
        ("meta['content_type'].startsWith('text/')", json!(true)),
        ("meta.size + hops", json!(10)),
        ("ts > timestamp('2025-01-01T00:00:00Z')", json!(true)),
        ("ts", json!("2025-11-21T12:30:00Z")),
        ("ts.getHours()", json!(12)),
        ("duration('1500ms')", json!("1.5s")),
        ("duration('-2s')", json!("-2s")),
        ("size(flux_id)", json!(36)),
        ("type(data.id) == int", json!(true)),
        ("type(data.id)", json!("int")),
        (
            "{'tags': data.tags.map(t, t.upperAscii()), 'n': size(data.tags)}",
            json!({"tags": ["A", "B"], "n": 2}),
        ),
        (
            "data.tags.exists(t, t == 'b') && !data.tags.all(t, t == 'b')",
            json!(true),
        ),
        ("data.tags.exists_one(t, t == 'b')", json!(true)),
        ("data.tags.filter(t, t != 'a')", json!(["b"])),
        ("data.tags.map(t, t == 'a', t + t)", json!(["aa"])),
        ("'b' in data.tags && 'id' in data", json!(true)),
        ("data == 1 || true", json!(true)),
        ("'a-b-c'.split('-')", json!(["a", "b", "c"])),
        ("'äb'.split('')", json!(["ä", "b"])),
        ("['x', 'y'].join(', ')", json!("x, y")),
        ("' Ab '.trim().lowerAscii()", json!("ab")),
        ("'aXbX'.replace('X', '--')", json!("a--b--")),
        ("'grüße'.substring(2, 4) + 'grüße'.substring(4)", json!("üße")),
        ("'grüße'.indexOf('ß') + 'x'.indexOf('y')", json!(2)),
        ("text.matches('^raw') && matches(text, 't$')", json!(true)),
    ] {
        assert_eq!(eval(text, &message), Ok(wanted), "{text}");
    }
}

#[test]
fn data_is_the_text_where_there_is_no_value_and_text_is_null_where_the_body_is_none() {
    assert_eq!(eval("data", &message(Value::Null, b"hello")), Ok(json!("hello")));
    assert_eq!(eval("data", &message(Value::Null, b"\xff")), Ok(json!(null)));
    assert_eq!(eval("[text, data]", &message(json!(1), b"\xff")), Ok(json!([null, 1])));
}

#[test]
fn what_cannot_be_compiled_names_the_key_and_the_place() {
    for (text, says) in [
        ("data.a >", "where: at 1:9: mismatched input '<EOF>'"),
        (
            "data.a\n  + dat.b",
            "where: at 2:5: there is no variable dat; there are data, text, meta",
        ),
        (
            "data.map(x, x + y)",
            "where: at 1:17: there is no variable y; there are data, text, meta, hops, ts, flux_id, x",
        ),
        ("lower(text)", "there is no function lower"),
        ("text.lower()", "there is no function lower"),
        ("text.matches('(')", "\"(\" is not a pattern"),
        ("text.matches('a{1000}{1000}')", "is not a pattern"),
        ("optional.of(1)", "there is no function of"),
        ("data.?a", "unsupported syntax"),
        ("Order{id: 1}", "there are no types of that kind"),
        ("'open", "where: at 1:1"),
        ("", "where: at 1:1"),
    ] {
        let error = CelExpression::compile("where", text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
    let long = format!("'{}'", "x".repeat(MAX_TEXT));
    assert!(
        CelExpression::compile("where", &long)
            .unwrap_err()
            .contains("at most 16384")
    );
    let longest = format!("'{}'", "x".repeat(MAX_TEXT - 2));
    assert!(CelExpression::compile("where", &longest).is_ok());
}

#[test]
fn the_longest_expressions_of_every_shape_are_read_or_refused() {
    let fill = |begin: &str, unit: &str, end: &str| {
        let room = (MAX_TEXT - begin.len()) / (unit.len() + end.len());
        format!("{}{begin}{}", unit.repeat(room), end.repeat(room))
    };
    for (begin, unit, end) in [
        ("1", "(", ")"),
        ("1", "[", "]"),
        ("1", "-", ""),
        ("true", "!", ""),
        ("", "data.", ""),
        ("data", "", ".a"),
        ("1", "1+", ""),
        ("1", "1==", ""),
        ("true", "true||", ""),
        ("data", "", "[0]"),
        ("data", "", ".size()"),
        ("1", "true?1:", ""),
        ("1", "{1:", "}"),
        ("1", "[1].map(x,", ")"),
        ("", "a b ) (", ""),
        ("", "'", ""),
        ("", "size(", ""),
        ("1", "[1,", "]"),
    ] {
        let text = fill(begin, unit, end);
        if let Ok(expression) = CelExpression::compile("where", &text) {
            drop(expression.value(&MessageVariables::of(&message(json!({"a": 1}), b""))));
        }
    }
}

#[test]
fn the_deepest_expression_that_is_taken_runs_on_the_stack_of_a_gear() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let sums = |depth: usize| format!("1{}", " + 1".repeat(depth));
    let loops = |depth: usize| format!("{}1{}", "[1].map(x, ".repeat(depth), ")".repeat(depth));
    let calls = |depth: usize| format!("{}1{}", "int(".repeat(depth), ")".repeat(depth));
    let message = message(json!(1), b"");
    for text in [&nested as &dyn Fn(usize) -> String, &sums, &loops, &calls] {
        let deepest = (1..=MAX_NESTING_TRIED)
            .rev()
            .find_map(|depth| CelExpression::compile("where", &text(depth)).ok());
        assert!(deepest.unwrap().value(&MessageVariables::of(&message)).is_ok());
        let error = CelExpression::compile("where", &text(MAX_NESTING_TRIED)).unwrap_err();
        assert!(error.contains("nested"), "{error}");
    }
}

const MAX_NESTING_TRIED: usize = static_check::MAX_NESTING + 1;

#[test]
fn a_message_on_which_it_fails_is_rejected_with_the_reason() {
    let message = message(json!({"id": 7, "text": "x".repeat(100_000)}), b"");
    for (text, says) in [
        ("data.nothing", "where: No such key: nothing"),
        ("data.id + 'x'", "where: "),
        ("1 / 0", "zero"),
        ("9223372036854775807 + 1", "verflow"),
        ("int('x')", "where: "),
        ("b'bytes'", "type bytes, which has no form in JSON"),
        ("0.0 / 0.0", "NaN, not a number in JSON"),
        ("data.text - 1", "…"),
        ("'abc'.substring(4)", "no position 4 in a text of 3 characters"),
        ("'abc'.substring(2, 1)", "the end is before the begin"),
        ("[1].join('')", "item 0 is of type int"),
        ("'a'.matches(data.text + '(')", "is not a pattern"),
    ] {
        let error = eval(text, &message).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
        assert!(error.len() < 2 * MAX_REASON && !error.contains('\n'), "{text}: {error}");
    }
    let number = CelExpression::compile("where", "data.id").unwrap();
    let fault = number.is_true(&MessageVariables::of(&message)).unwrap_err();
    assert_eq!(fault.to_string(), "where: the result is of type int, not bool");
    let deep = eval(
        "[[[data]]]",
        &super::tests::message((0..127).fold(json!(1), |inner, _| json!([inner])), b""),
    );
    assert!(deep.unwrap_err().contains("nested more than 128 deep"));
}

#[test]
fn loops_within_loops_and_growing_texts_end_at_the_budget() {
    let items: Vec<u32> = (0..20_000).collect();
    let message = message(json!({"items": items, "long": "x".repeat(1 << 20)}), b"");
    let doubled = "data.long + data.long".to_owned() + &" + data.long".repeat(60);
    for text in [
        "data.items.map(x, data.items.map(y, x * y))",
        "data.items.all(x, data.items.all(y, x < y || true))",
        "data.items.exists(x, data.items.exists(y, data.items.exists(z, false)))",
        "[data.items, data.items].map(x, x.map(y, x.map(z, z)))",
        "data.items.map(x, data)",
        "data.items.map(x, data.long + 'x')",
        "data.items.map(x, [x, data.items])",
        "data.items.map(x, {'a': data.long})",
        "data.items.filter(x, data.long.contains('y'))",
        "data.items.filter(x, data.long.matches('y'))",
        "data.items.filter(x, data.items == data.items)",
        "data.items.exists(x, x in data.items.filter(y, false))",
        "data.long.replace('x', data.long)",
        "data.long.replace('', data.long)",
        "data.items.map(x, '').join(data.long)",
        "data.items.map(x, data.long.split(''))",
        "data.items.exists(x, data.items.exists(y, 'a' + 1 == 2)) || true",
        &doubled,
    ] {
        let began = std::time::Instant::now();
        let error = eval(text, &message).unwrap_err();
        assert!(error.contains("it takes more than 1000000 steps"), "{text}: {error}");
        assert!(began.elapsed().as_secs() < 10, "{text}: {:?}", began.elapsed());
    }
    // What one pass does is far below it.
    for text in [
        "size(data.items.map(x, {'x': x, 'double': x * 2}))",
        "size(data.long.split('y'))",
        "data.items.all(x, x >= 0)",
    ] {
        assert!(eval(text, &message).is_ok(), "{text}: {:?}", eval(text, &message));
    }
}

/// What random expressions are made of.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "data", "text", "meta", "hops", "ts", "flux_id", "x", "y", ".a", ".map(", ".filter(", ".all(", ".exists(", "has(",
    "size(", "int(", "uint(", "double(", "string(", "bytes(", "timestamp(", "duration(", "type(", "dyn(", "matches(",
    ".matches(", ".split(", ".join(", ".replace(", ".substring(", ".indexOf(", ".getHours()", ".trim()", "(", ")",
    "[", "]", "{", "}", ",", ":", "?", "+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "!", " in ", "1",
    "0", "-9223372036854775808", "9223372036854775807", "18446744073709551615u", "0xff", "1.5", "1e308", "'a'",
    "\"\"", "b'\\xff'", "r'\\d+'", "'\\u00e9'", "'''", "true", "false", "null", " ", "\n", "`a`", ".?a", "@",
    "'1970-01-01T00:00:00Z'", "'-1h'", "ß", "\u{10ffff}", "//",
];

#[test]
fn ten_thousand_random_texts_panic_nowhere() {
    let messages = [
        message(json!({"a": [1, 2.5, "x", null, {"a": u64::MAX}]}), b"text"),
        message(json!([1, 2, 3]), b"\xff\xfe"),
        message(Value::Null, b"12"),
    ];
    let mut rng = SmallRng::seed_from_u64(20_261_122);
    let (mut read, mut valued) = (0, 0);
    for _ in 0..10_000 {
        let text: String = if rng.random_range(0..10) == 0 {
            (0..rng.random_range(0..60))
                .map(|_| char::from(rng.random_range(1..127_u8)))
                .collect()
        } else {
            (0..rng.random_range(1..12))
                .map(|_| *PARTS.choose(&mut rng).unwrap())
                .collect()
        };
        let said = match CelExpression::compile("where", &text) {
            Err(error) => error,
            Ok(expression) => {
                read += 1;
                let scope = MessageVariables::of(messages.choose(&mut rng).unwrap());
                match expression.value(&scope) {
                    Ok(_) => {
                        valued += 1;
                        continue;
                    }
                    Err(fault) => fault.to_string(),
                }
            }
        };
        assert!(said.starts_with("where: "), "{text:?}: {said}");
    }
    assert!(read > 300 && valued > 100, "{read} were read, {valued} had a value");
}
