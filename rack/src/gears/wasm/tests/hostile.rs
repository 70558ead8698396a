//! Modules that mean harm: each is contained, its message is refused with the reason, and whatever else runs goes on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::super::testing::held::{outbox, spec, surroundings};
use super::super::super::testing::{Bench, message, push};
use super::super::guest::{GuestLimits, GuestModule};
use super::super::host::GuestOutput;
use super::super::instance::{GuestInstance, SLICE};
use super::*;
use crate::runtime::DRAIN_BOUND;

/// Why a scenario with this gear does not start.
pub(super) async fn refused(config: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let error = runtime.apply(&push("h", &gears(config, &json!([])), WIRES)).await.error;
    runtime.close().await;
    bench.close().await;
    error.unwrap_or_default()
}

/// A module that does this for each message, without ever ending.
fn forever(work: &str) -> String {
    module(&format!("(loop $again {work} (br $again))"))
}

/// What a module with too little fuel comes to.
const BURNT: &str = "it has used all of its fuel, 300000";

/// Modules by name, and what is said of each.
fn cases() -> Vec<(&'static str, String, &'static str)> {
    let call = |function: &str, values: [i64; 3]| {
        let values = values.map(|value| format!("(i32.const {value})")).concat();
        module(&format!("(call ${function} {values})"))
    };
    let alloc = |gives: &str| module("").replace("(i32.const 1024)", gives);
    let table = "(table $t 1 funcref) (func (export \"alloc\")";
    let grows =
        forever("(drop (table.grow $t (ref.null func) (i32.const 100000)))").replace("(func (export \"alloc\")", table);
    let calls_itself = module("(call $deep (i32.const 1))").replace(
        "(func (export \"alloc\")",
        "(func $deep (param i32) (call $deep (i32.add (local.get 0) (i32.const 1)))) (func (export \"alloc\")",
    );
    let given_up = module("(if (i32.eq (memory.grow (i32.const 65000)) (i32.const -1)) (then unreachable))");
    vec![
        ("loops", forever(""), BURNT),
        (
            "loops-in-alloc",
            alloc("(loop $again (br $again)) (i32.const 8)"),
            BURNT,
        ),
        // It goes on when it gets no more: as much as it may have, and then fuel.
        ("memory-bomb", forever("(drop (memory.grow (i32.const 16)))"), BURNT),
        ("no-memory", given_up, "it trapped (unreachable)"),
        (
            "fills",
            forever("(memory.fill (i32.const 0) (i32.const 7) (i32.const 131072))"),
            BURNT,
        ),
        ("table-bomb", grows, BURNT),
        ("nests", calls_itself, "its calls are nested too deeply"),
        (
            "outside",
            module("(drop (i32.load (i32.const 131070)))"),
            "it has reached outside of its memory",
        ),
        (
            "divides",
            module("(drop (i32.div_u (i32.const 1) (i32.const 0)))"),
            "integer divide by zero",
        ),
        (
            "emit-outside",
            call("emit", [0, 131_072, 1]),
            "emit: 1 bytes at 131072 are outside of its memory of 131072 bytes",
        ),
        (
            "emit-wraps",
            call("emit", [0, -1, 2_000_000]),
            "emit: 2000000 bytes at 4294967295 are outside",
        ),
        (
            "emit-long",
            call("emit", [0, 0, -1]),
            "emit: 4294967295 bytes; max_payload_size allows 2097152",
        ),
        (
            "emit-nowhere",
            call("emit", [5, 0, 1]),
            "emit: there is no port 5; 0 is out, 1 to 4 are a to d",
        ),
        ("log-loud", call("log", [4, 0, 1]), "log: a level is 0 (debug) to 3"),
        ("log-outside", call("log", [1, -9, 9]), "log: 9 bytes at 4294967287"),
        (
            "reject-outside",
            module("(call $reject (i32.const -9) (i32.const 9))"),
            "reject: 9 bytes at 4294967287",
        ),
        (
            "alloc-outside",
            alloc("(i32.const 131072)"),
            "alloc gave 3 bytes at 131072, outside of its memory of 131072",
        ),
        (
            "alloc-negative",
            alloc("(i32.const -2)"),
            "alloc gave 3 bytes at 4294967294",
        ),
        ("alloc-full", alloc("(i32.const 0)"), "alloc has no room for 3 bytes"),
        (
            "emits-small",
            forever("(call $emit (i32.const 0) (i32.const 0) (i32.const 0))"),
            BURNT,
        ),
        (
            "emits-large",
            forever("(call $emit (i32.const 0) (i32.const 0) (i32.const 131072))"),
            BURNT,
        ),
        (
            "logs",
            forever("(call $log (i32.const 1) (i32.const 0) (i32.const 8))"),
            BURNT,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_misbehave_is_refused_with_its_reason() {
    let cases = cases();
    let gear = |name: &str, kind: &str, config: Value| json!({ "name": name, "type": kind, "deploy": "rack-a", "config": config });
    let messages = json!({ "messages": [{ "raw": "bad" }, { "raw": "bad" }] });
    let mut all = vec![
        gear("feed", "test_feed", messages),
        gear("witness", "log_sink", json!({})),
    ];
    let mut wires = vec![json!({ "from": "feed.out", "to": "witness.in" })];
    for (name, code, _) in &cases {
        all.push(gear(
            name,
            "wasm",
            json!({ "code": code, "fuel": 300_000, "memory": 4_194_304 }),
        ));
        wires.push(json!({ "from": "feed.out", "to": format!("{name}.in") }));
        wires.push(json!({ "from": format!("{name}.out"), "to": "witness.in" }));
    }
    let wires = json!(wires).to_string();
    let flow = Flow::run(&json!(all).to_string(), wires.trim_matches(['[', ']'])).await;
    assert_eq!(flow.texts("witness"), ["bad", "bad"]);
    for (name, _, says) in &cases {
        assert!(
            flow.says(name, &format!("a message was refused: the module failed: {says}")),
            "{name}: {says}"
        );
        assert!(
            (flow.counter(name, "gear.messages.dropped") - 2.0).abs() < f64::EPSILON,
            "{name}"
        );
    }
    assert!(flow.says("logs", "more log lines of the module are left out"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_does_not_begin_keeps_its_scenario_from_being_applied() {
    let with =
        |field: &str| module("").replace("(func (export \"alloc\")", &format!("{field} (func (export \"alloc\")"));
    let fuel = "gear guest (wasm) cannot start: the module cannot begin: it has used all of its fuel, 3000000";
    for (code, says) in [
        (with("(func $s (loop $again (br $again))) (start $s)"), fuel),
        (with("(func (export \"_initialize\") (loop $again (br $again)))"), fuel),
        (with("(func $s unreachable) (start $s)"), "cannot begin: it trapped"),
        (
            with("(func $s (call $emit (i32.const 0) (i32.const 0) (i32.const 1))) (start $s)"),
            "cannot begin: emit: there is no message while an instance begins",
        ),
        (with("(data (i32.const 131070) \"xyz\")"), "cannot begin:"),
        (with("(table 2000000 funcref)"), "cannot begin:"),
    ] {
        let error = refused(&json!({ "code": code, "fuel": 3_000_000 })).await;
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[tokio::test]
async fn a_module_at_work_keeps_neither_other_gears_of_its_thread_nor_the_end_of_its_own_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::open(folder.path());
    bench.drain = DRAIN_BOUND;
    let mut runtime = bench.runtime();
    let gears = json!([
        { "name": "feed", "type": "test_feed", "deploy": "rack-a", "config": { "messages": [{ "raw": "x" }] } },
        { "name": "guest", "type": "wasm", "deploy": "rack-a", "config": { "code": forever(""), "fuel": 10_000_000_000_u64 } },
        { "name": "numbers", "type": "generator", "deploy": "rack-a", "config": { "rate": 100, "count": 50 } },
        { "name": "sink", "type": "log_sink", "deploy": "rack-a" },
    ]);
    let wires = "{ from: feed.out, to: guest.in }, { from: numbers.out, to: sink.in }";
    assert_eq!(runtime.apply(&push("h", &gears.to_string(), wires)).await.error, None);
    bench.records("sink", 50).await;
    assert!(
        !bench.logs("guest").iter().any(|log| log.contains("fuel")),
        "it is at work still"
    );
    let asked = Instant::now();
    runtime.close().await;
    assert!(asked.elapsed() < DRAIN_BOUND * 10, "{:?}", asked.elapsed());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_module_makes_does_not_depend_on_where_its_fuel_is_cut() {
    // Sums in every kind of register, over calls, growing memory, copies and calls of the host.
    let work = "(local $i i32) (local $f f32) (local $d f64) (local $l i64)
        (loop $again
          (local.set $d (f64.add (local.get $d) (f64.sqrt (f64.convert_i32_u (local.get $i)))))
          (local.set $f (f32.add (local.get $f) (f32.convert_i32_u (local.get $i))))
          (local.set $l (i64.add (i64.mul (local.get $l) (i64.const 31)) (call $fib (i32.rem_u (local.get $i) (i32.const 12)))))
          (if (i32.eqz (i32.rem_u (local.get $i) (i32.const 50)))
            (then (drop (memory.grow (i32.const 1)))
                  (drop (table.grow $t (ref.null func) (i32.const 9)))
                  (memory.fill (i32.const 4096) (local.get $i) (i32.const 50000))
                  (memory.copy (i32.const 4096) (i32.const 70000) (i32.const 50000))
                  (call $log (i32.const 0) (i32.const 0) (i32.const 5000))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $i) (i32.const 400))))
        (f64.store (i32.const 0) (local.get $d)) (f32.store (i32.const 8) (local.get $f))
        (i64.store (i32.const 12) (local.get $l)) (i32.store (i32.const 20) (memory.size))
        (i32.store (i32.const 24) (table.size $t))
        (call $emit (i32.const 0) (i32.const 0) (i32.const 28))";
    let fib = "(table $t 1 funcref) (func $fib (param i32) (result i64)
        (if (result i64) (i32.lt_u (local.get 0) (i32.const 2))
          (then (i64.extend_i32_u (local.get 0)))
          (else (i64.add (call $fib (i32.sub (local.get 0) (i32.const 1))) (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
        (func (export \"alloc\")";
    let code = module(work).replace("(func (export \"alloc\")", fib);
    let guest = GuestModule::read(
        code.as_bytes(),
        GuestLimits {
            memory: 1 << 22,
            fuel: 100_000_000,
        },
    )
    .unwrap();
    let mut made = Vec::new();
    for slice in [u64::MAX, SLICE, 20_011, 1_009, 101, 7, 1] {
        let mut instance = GuestInstance::new(&guest, slice).unwrap();
        let done = instance
            .handle(b"x", GuestOutput::new(GuestMessageFormat::Body, 1 << 20, 1 << 20, 0))
            .await
            .unwrap();
        made.push(done.emitted);
    }
    assert_eq!(made[0][0].1.raw.len(), 28);
    let table = &made[0][0].1.raw[24..];
    assert_eq!(table, [1, 0, 0, 0], "tables do not grow while messages are handled");
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]), "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_emitted_of_one_message_leaves_whole_or_not_at_all() {
    // Three of 900,000 bytes each are within the memory, the fourth is not; the message is tried twice and nothing leaves.
    let emits = |count: usize| {
        let one = "(call $emit (i32.const 0) (i32.const 0) (i32.const 900000))";
        module(&one.repeat(count)).replace("(export \"memory\") 2", "(export \"memory\") 20")
    };
    for (count, arrive) in [(3, 3), (4, 0)] {
        let flow = run(
            json!({ "code": emits(count), "memory": 3_000_000 }),
            json!([{ "raw": "x" }]),
        )
        .await;
        assert_eq!(flow.rows("out").len(), arrive, "{count}");
    }
    // Facts count for each message that carries them.
    let facts = json!([{ "raw": "x", "meta": { "long": "y".repeat(500_000) } }]);
    let flow = run(json!({ "code": module(&COUNTS.repeat(7)), "memory": 3_000_000 }), facts).await;
    assert!(flow.rows("out").is_empty() && flow.says("guest", "it emits more of one message than memory allows"));
}

#[tokio::test]
async fn many_small_messages_of_a_large_one_give_way_to_other_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let (cx, _stop) = surroundings(&spec("wasm", &json!({}), &[]), &bench, &outbox);
    let of = message(1, Value::Null, &vec![b'x'; 2_000_000]);
    let emitted = vec![("b", MessageContent::default()); 10_000];
    let mut turns = 0;
    {
        let mut leaving = std::pin::pin!(send_emitted(&cx, of, emitted));
        let left = std::future::poll_fn(|task| {
            turns += 1;
            leaving.as_mut().poll(task)
        });
        left.await.unwrap();
    }
    assert!(turns > 50, "{turns}");
    drop(cx);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_makes_no_more_than_ten_thousand_messages_of_one() {
    let emits = "(loop $again (call $emit (i32.const 2) (i32.const 0) (i32.const 0)) (br $again))";
    let flow = run(json!({ "code": module(emits) }), json!([{ "raw": "x" }])).await;
    assert!(flow.says("guest", "it emits more than 10000 messages of one"));
    assert_eq!(flow.counter("guest", "gear.messages.dropped"), 1.0);
}
