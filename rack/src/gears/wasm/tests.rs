//! Modules at work in a real runtime, written in the text format. Hostile ones are in [`hostile`].

#![allow(clippy::unwrap_used, reason = "tests")]

mod documented;
mod hostile;

use serde_json::{Value, json};

use super::super::testing::Flow;
use super::*;

const WIRES: &str = "{ from: feed.out, to: guest.in }, { from: guest.out, to: out.in }, { from: guest.a, to: a.in }";

/// Counts the messages and emits the number, one digit.
const COUNTS: &str = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
    (i32.store8 (i32.const 8) (i32.add (i32.const 48) (global.get $count)))
    (call $emit (i32.const 0) (i32.const 8) (i32.const 1))";

/// A module whose messages lie at 1024, with this work for each.
fn module(process: &str) -> String {
    format!(
        r#"(module
  (import "flux" "emit" (func $emit (param i32 i32 i32)))
  (import "flux" "log" (func $log (param i32 i32 i32)))
  (import "flux" "reject" (func $reject (param i32 i32)))
  (memory (export "memory") 2)
  (global $count (mut i32) (i32.const 0))
  (data (i32.const 16) "not today")
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "process") (param $at i32) (param $len i32) {process}))"#
    )
}

/// Gears: a feed of messages, the guest, and a sink at each of its first two outputs.
fn gears(config: &Value, messages: &Value) -> String {
    json!([
        { "name": "feed", "type": "test_feed", "deploy": "rack-a", "config": { "messages": messages } },
        { "name": "guest", "type": "wasm", "deploy": "rack-a", "config": config },
        { "name": "out", "type": "log_sink", "deploy": "rack-a" },
        { "name": "a", "type": "log_sink", "deploy": "rack-a" },
    ])
    .to_string()
}

async fn run(config: Value, messages: Value) -> Flow {
    Flow::run(&gears(&config, &messages), WIRES).await
}

/// The texts of a sink, in the order in which they came.
fn in_order(flow: &Flow, sink: &str) -> Vec<String> {
    let rows = flow.rows(sink).into_iter();
    rows.map(|row| row["message"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_leave_by_the_port_that_the_module_names_with_metadata_and_trace() {
    // By out, and if the first byte is an x by a, too.
    let code = module(
        "(call $emit (i32.const 0) (local.get $at) (local.get $len))
        (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 120))
          (then (call $emit (i32.const 1) (i32.add (local.get $at) (i32.const 1)) (i32.sub (local.get $len) (i32.const 1)))))
        (call $emit (i32.const 4) (i32.const 16) (i32.const 9))",
    );
    let messages = json!([{ "raw": "xyz", "meta": { "kind": "k" } }, { "data": { "n": 1 } }]);
    let flow = run(json!({ "code": code }), messages).await;
    assert_eq!(in_order(&flow, "out"), ["xyz", r#"{"n":1}"#]);
    assert_eq!(in_order(&flow, "a"), ["yz"]);
    let row = flow.rows("a").remove(0);
    assert_eq!(
        (&row["attributes"]["kind"], &row["flux_id"]),
        (&json!("k"), &flow.rows("out")[0]["flux_id"])
    );
    let spans = flow.spans(row["flux_id"].as_str().unwrap());
    assert_eq!(spans[..2], ["test_feed feed", "wasm guest"]);
    // Nothing listens to d: both are counted.
    assert!((flow.counter("guest", "gear.messages.dropped") - 2.0).abs() < f64::EPSILON);
    assert!((flow.counter("guest", "gear.messages.out") - 3.0).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envelope_comes_and_goes_as_cbor_and_ids_trace_and_hops_are_not_the_modules() {
    let same = module("(call $emit (i32.const 0) (local.get $at) (local.get $len))");
    // {"raw": "hi", "flux_id": "x", "hops": 63, "meta": {"kind": "new"}}
    let bytes = r"\a4\63raw\42hi\67flux_id\61x\64hops\18\3f\64meta\a1\64kind\63new";
    let made = module("(call $emit (i32.const 0) (i32.const 16) (i32.const 40))").replace("not today", bytes);
    let bad = module("(call $emit (i32.const 0) (i32.const 16) (i32.const 9))");
    let messages = json!([{ "data": { "n": [1, "x"] }, "meta": { "kind": "k" } }]);
    let run = |code: String| run(json!({ "code": code, "message": "envelope" }), messages.clone());
    let (same, made, bad) = (run(same).await, run(made).await, run(bad).await);
    let row = same.rows("out").remove(0);
    assert_eq!(
        (&row["message"], &row["attributes"]["kind"]),
        (&json!(r#"{"n":[1,"x"]}"#), &json!("k"))
    );
    assert_eq!(
        same.spans(row["flux_id"].as_str().unwrap()),
        ["test_feed feed", "wasm guest", "log_sink out"]
    );
    let row = made.rows("out").remove(0);
    assert_eq!(
        (&row["message"], &row["attributes"]["kind"]),
        (&json!("hi"), &json!("new"))
    );
    assert_eq!(
        made.spans(row["flux_id"].as_str().unwrap()),
        ["test_feed feed", "wasm guest", "log_sink out"]
    );
    assert!(bad.rows("out").is_empty() && bad.says("guest", "what it emits is not a CBOR map of raw, data and meta"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reused_instance_remembers_and_a_fresh_one_does_not() {
    let messages = json!([{ "raw": "a" }, { "raw": "b" }, { "raw": "c" }]);
    for (instance, numbers) in [("reuse", ["1", "2", "3"]), ("fresh", ["1", "1", "1"])] {
        let flow = run(
            json!({ "code": module(COUNTS), "instance": instance }),
            messages.clone(),
        )
        .await;
        assert_eq!(in_order(&flow, "out"), numbers, "{instance}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_module_fails_at_is_refused_and_the_next_one_meets_a_new_instance() {
    // Emits before it fails: nothing of that leaves.
    let fails = "(if (i32.eq (i32.load8_u (local.get $at)) (i32.const 120)) (then unreachable))";
    let messages = json!([{ "raw": "a" }, { "raw": "b" }, { "raw": "x" }, { "raw": "c" }]);
    let flow = run(json!({ "code": module(&format!("{COUNTS} {fails}")) }), messages).await;
    assert_eq!(in_order(&flow, "out"), ["1", "2", "1"]);
    assert!(flow.says(
        "guest",
        "a message was refused: the module failed: it trapped (unreachable)"
    ));
    assert!((flow.counter("guest", "gear.messages.dropped") - 1.0).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_which_only_a_used_instance_fails_is_not_refused() {
    let wears_out = "(if (i32.eq (global.get $count) (i32.const 3)) (then unreachable))";
    let messages = json!([{ "raw": "a" }, { "raw": "b" }, { "raw": "c" }, { "raw": "d" }]);
    let flow = run(json!({ "code": module(&format!("{COUNTS} {wears_out}")) }), messages).await;
    assert_eq!(in_order(&flow, "out"), ["1", "2", "1", "2"]);
    assert!(flow.says("guest", "a new instance tries the message once more"));
    assert!((flow.counter("guest", "gear.errors")).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_module_says_is_a_record_of_its_message_and_a_rejection_has_its_reason() {
    let code = module(
        "(call $log (i32.const 2) (i32.const 16) (i32.const 9))
        (call $emit (i32.const 0) (local.get $at) (local.get $len))
        (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 120))
          (then (call $reject (i32.const 20) (i32.const 5))))",
    );
    let flow = run(json!({ "code": code }), json!([{ "raw": "a" }, { "raw": "x" }])).await;
    assert_eq!(in_order(&flow, "out"), ["a"]);
    assert!(flow.says("guest", "a message was refused: the module rejects it: today"));
    let flux = flow.rows("out")[0]["flux_id"].clone();
    let said = flow
        .rows("guest")
        .into_iter()
        .find(|row| row["flux_id"] == flux)
        .unwrap();
    assert_eq!(
        (&said["message"], &said["level"]),
        (&json!("not today"), &json!("warn"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_is_read_from_a_file_in_either_form_and_held_against_its_digest() {
    let folder = tempfile::tempdir().unwrap();
    let text = module("(call $emit (i32.const 0) (local.get $at) (local.get $len))");
    let binary = wat::parse_str(&text).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let (text, good) = (write("a.wat", text.as_bytes()), write("a.wasm", &binary));
    let cut = write("cut.wasm", &binary[..binary.len() - 1]);
    let digest = format!("{:X}", Sha256::digest(&binary));
    for config in [json!({ "module": text }), json!({ "module": good, "sha256": digest })] {
        let flow = run(config, json!([{ "raw": "a" }])).await;
        assert_eq!(in_order(&flow, "out"), ["a"]);
    }
    for (config, says) in [
        (json!({ "module": text, "sha256": digest }), "a.wat has the SHA-256"),
        (json!({ "module": cut }), "cut.wasm: the module is not valid"),
        (
            json!({ "module": folder.path().join("none.wasm") }),
            "cannot read module",
        ),
        (json!({ "module": folder.path() }), "it is not a file"),
        (
            json!({ "module": write("long", &vec![b' '; MAX_MODULE + 1]) }),
            "it has 16777216 at most",
        ),
    ] {
        let error = hostile::refused(&config).await;
        assert!(error.contains(says), "{config}: {error}");
    }
}
