//! Specs of business messages: taken while messages flow, changed, refused; their files as DuckDB and SQL see them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use harness::{Failure, Random, TestBus, TestMixer, TestRack, binary, duckdb, eventually, gear_files, process};
use model::message::Message;
use model::{Attributes, FluxId, MessageId, Timestamp};
use serde_json::{Value, json};

use crate::first_light::mixer_with;
use crate::kill9::setting;
use crate::readme::{page, project, shell_of};

const SOON: Duration = Duration::from_secs(60);

fn spec(version: u32, fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().fold(String::new(), |mut text, (name, kind)| {
        let _ = writeln!(text, "  - {{ name: {name}, path: /{name}, type: {kind} }}");
        text
    });
    format!("name: order\nversion: {version}\nmatch: {{ msg_type: order }}\nprefix: ord\nfields:\n{fields}")
}

/// An order as a gear sends it.
pub(crate) fn order(number: u8, data: Value) -> Vec<u8> {
    order_at(Timestamp::from(std::time::SystemTime::now()), number, data)
}

/// The same, of a time.
pub(crate) fn order_at(ts: Timestamp, number: u8, data: Value) -> Vec<u8> {
    let message = Message {
        id: MessageId::at(ts, [number; 10]),
        ts,
        raw: Vec::new(),
        data,
        hops: 1,
        meta: Attributes::new().with("msg.type", "order"),
        parent: None,
        flux_id: FluxId::at(ts, [number; 10]),
        sampled: true,
        span_id: "b7ad6b7169203331".parse().unwrap(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        trace_state: None,
    };
    message.to_cbor().unwrap()
}

fn send(bus: &TestBus, numbers: std::ops::Range<u8>, data: impl Fn(u8) -> Value) -> Result<(), Failure> {
    for number in numbers {
        bus.publish("flux.msg.shop.intake.out", order(number, data(number)))?;
    }
    Ok(())
}

/// The specs as the API shows them.
fn specs(mixer: &TestMixer) -> Option<Value> {
    Some(mixer.api.get("/api/v1/specs").ok()?.json["data"].clone())
}

fn in_force(mixer: &TestMixer, version: u32) -> Result<Value, Failure> {
    eventually("the spec in force", SOON, || {
        let found = specs(mixer)?;
        let of = found["specs"].as_array()?.first()?.clone();
        (of["version"] == version && of["state"] == "active").then_some(of)
    })
}

/// A value of the DuckDB that has loaded the views of the store.
fn in_views(mixer: &TestMixer, what: &str) -> Option<String> {
    let views = mixer.path().join("data/platform.sql");
    let views = std::fs::read_to_string(views).ok()?;
    duckdb::scalar(&format!("{views}\nselect {what}"), mixer.path()).ok()
}

fn sql(mixer: &TestMixer, query: &str) -> Result<Value, Failure> {
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query }))?;
    if answer.status == 200 {
        Ok(answer.json)
    } else {
        Err(format!("{query}: {}", answer.json).into())
    }
}

#[test]
fn a_spec_that_comes_while_messages_flow_gets_them_with_their_columns() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("store.specs_dir", "\"kinds\"")], &[])?;
    let folder = mixer.path().join("data/kinds");
    std::fs::create_dir(&folder)?;
    let bus = mixer.bus()?;
    send(&bus, 0..10, |n| json!({ "amount": n }))?;
    eventually("messages of no spec", SOON, || {
        (in_views(&mixer, "count(*) from messages")? == "10").then_some(())
    })?;

    std::fs::write(
        folder.join("order.yaml"),
        spec(1, &[("amount", "int"), ("city", "string")]),
    )?;
    let shown = in_force(&mixer, 1)?;
    assert_eq!(
        (&shown["table"], &shown["prefix"]),
        (&json!("messages_order"), &json!("ord"))
    );
    // One value is not of its type: the message is stored all the same.
    send(&bus, 10..60, |n| match n {
        59 => json!({ "amount": "much", "city": "Ulm" }),
        _ => json!({ "amount": u32::from(n) * 10, "city": format!("city-{}", n % 3) }),
    })?;
    eventually("orders in files of their own", SOON, || {
        (in_views(&mixer, "count(*) from messages_order")? == "50").then_some(())
    })?;
    let typed = "typeof(any_value(amount)) || ' ' || sum(amount) || ' ' || count(amount) from messages_order where amount > 100";
    let sum: u32 = (11..59).map(|n| n * 10).sum();
    assert_eq!(in_views(&mixer, typed), Some(format!("BIGINT {sum} 48")));
    let names = format!(
        "count(*) > 0 and count(*) = count(distinct parse_dirpath(file)) from glob('{}/data/messages/fluxSpec/order/*/*/*/*/ord_*.parquet')",
        mixer.path().display()
    );
    assert_eq!(in_views(&mixer, &names).as_deref(), Some("true"), "one file an hour");
    let answer = sql(&mixer, "SELECT count(*) AS n FROM messages_order WHERE amount > 100")?;
    assert_eq!(answer["data"][0]["n"], 48);
    let answer = sql(&mixer, "SELECT count(*) AS n FROM messages")?;
    assert_eq!(answer["data"][0]["n"], 60);
    let shown = in_force(&mixer, 1)?;
    assert_eq!((&shown["messages"], &shown["failed_values"]), (&json!(50), &json!(1)));

    // A mistake changes nothing, and is told.
    std::fs::write(folder.join("order.yaml"), spec(2, &[("amount", "string")]))?;
    let refused = eventually("the refusal", SOON, || {
        specs(&mixer)?["refused"].as_array()?.first().cloned()
    })?;
    assert!(refused.to_string().contains("give the field a new name"), "{refused}");
    assert_eq!(mixer.api.metric("platform_specs_refused_files"), Some(1.0));
    send(&bus, 60..70, |n| json!({ "amount": n, "city": "Ulm" }))?;
    eventually("orders as before", SOON, || {
        (in_views(&mixer, "count(amount) from messages_order")? == "59").then_some(())
    })?;

    // Old files stay readable beside the new one, and are not read where their bounds say so.
    std::fs::write(
        folder.join("order.yaml"),
        spec(2, &[("amount", "float"), ("city", "string"), ("coupon", "bool")]),
    )?;
    in_force(&mixer, 2)?;
    send(
        &bus,
        70..90,
        |n| json!({ "amount": f64::from(n) * 100.0 + 0.5, "city": "Ulm", "coupon": true }),
    )?;
    eventually("orders of both versions", SOON, || {
        (in_views(
            &mixer,
            "count(*) || ' ' || count(coupon) from messages_order where amount > 100",
        )? == "68 20")
            .then_some(())
    })?;
    let answer = sql(&mixer, "SELECT count(*) AS n FROM messages_order WHERE amount > 5000")?;
    assert_eq!(answer["data"][0]["n"], 20);
    // More files than two where an hour ends meanwhile.
    let stats = ["files_considered", "files_read"].map(|name| answer["stats"][name].as_u64());
    assert!(
        matches!(stats, [Some(all @ 2..), Some(read)] if read < all),
        "{stats:?}"
    );
    let both = sql(
        &mixer,
        "SELECT count(coupon) AS coupons, min(amount) AS least FROM messages_order",
    )?;
    assert_eq!(
        (&both["data"][0]["coupons"], &both["data"][0]["least"]),
        (&json!(20), &json!(60.0))
    );
    assert_eq!(mixer.api.metric("platform_specs_refused_files"), Some(0.0));
    Ok(())
}

/// Lines of JSON on a Rack become messages over the bus.
fn scenario(file: &Path) -> String {
    format!(
        "meta: {{ name: orders, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n  \
         - {{ name: read, type: codec_json, deploy: rack-a, config: {{ direction: decode }} }}\n  \
         - {{ name: sink, type: log_sink, deploy: rack-a }}\nwires:\n  - {{ from: tail.out, to: read.in }}\n  \
         - {{ from: read.out, to: sink.in, lane: guaranteed }}\n",
        file.display().to_string()
    )
}

#[test]
fn every_order_is_in_the_files_of_its_spec_once_through_kill_9_and_changes_of_the_spec() -> Result<(), Failure> {
    let kills = setting("PLATFORM_TEST_SPEC_KILLS", 4);
    let mut random = Random::for_test("every_order_is_in_the_files_of_its_spec_once");
    let logs = gear_files()?;
    let file = logs.path().join("orders.json");
    let (mut mixer, _scenario) = mixer_with(&scenario(&file))?;
    let folder = mixer.path().join("data/specs");
    std::fs::create_dir(&folder)?;
    let write_spec = |version: u32, fields: &[(&str, &str)]| {
        let text = spec(version, fields).replace("msg_type: order", "gear: read");
        std::fs::write(folder.join("order.yaml"), text)
    };
    write_spec(1, &[("n", "int")])?;
    in_force(&mixer, 1)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let mut written = 0_u64;
    let mut write = |count: u64| -> Result<u64, Failure> {
        let lines = (written..written + count).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "{{\"n\": {n}, \"city\": \"city-{}\"}}", n % 7);
            text
        });
        std::io::Write::write_all(&mut process::append_to(&file)?, lines.as_bytes())?;
        written += count;
        Ok(written)
    };
    write(200)?;
    for kill in 0..kills {
        write(150)?;
        std::thread::sleep(Duration::from_millis(random.below(1_200)));
        if kill == 1 {
            write_spec(2, &[("n", "float"), ("city", "string")])?;
        }
        mixer.kill9()?;
        write(50)?;
        mixer.restart()?;
    }
    in_force(&mixer, 2)?;
    let all = write(100)?;
    let archived = "count(*) || ' ' || count(distinct n) || ' ' || max(n)::bigint from messages_order where n >= 0";
    let wanted = format!("{all} {all} {}", all - 1);
    let mut last = None;
    eventually("every order once", Duration::from_secs(120), || {
        last = in_views(&mixer, archived);
        (last.as_ref()? == &wanted).then_some(())
    })
    .map_err(|error| format!("{error}: {last:?}, wanted {wanted}; rack-a:\n{}", rack.log()))?;
    let answer = sql(
        &mixer,
        "SELECT count(*) AS n, count(DISTINCT n) AS d FROM messages_order",
    )?;
    assert_eq!(
        (&answer["data"][0]["n"], &answer["data"][0]["d"]),
        (&json!(all), &json!(all))
    );
    Ok(())
}

/// Every command of `docs/specs.md`, in its order, in the folder of a Mixer.
#[test]
fn the_commands_of_the_page_work_as_they_are_written() -> Result<(), Failure> {
    let page = page("specs.md")?;
    let blocks = page
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("sh\n"));
    let commands: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    let mixer = TestMixer::start("")?;
    let examples = project().join("examples").canonicalize()?;
    std::os::unix::fs::symlink(examples, mixer.path().join("examples"))?;
    let mut shell = shell_of(&mixer)?;
    for line in commands {
        let (code, printed) = shell.run(line, SOON)?;
        assert_eq!(code, 0, "{line}: {printed}{}", shell.errors());
        if line.starts_with("cp ") {
            in_force(&mixer, 1)?;
        }
    }
    Ok(())
}

#[test]
fn spec_files_are_checked_on_the_command_line_and_listed_from_the_mixer() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let folder = mixer.path().join("data/specs");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("order.yaml"), spec(1, &[("amount", "int")]))?;
    let platform = binary("platform")?;
    let run = |args: &[&str]| process::run(&platform, args, mixer.path(), &[]);
    let good = run(&["spec", "validate", "data/specs"])?;
    assert_eq!((good.code, good.err.as_str()), (Some(0), ""));
    assert!(
        good.out.contains("order, version 1, is valid: 1 fields"),
        "{}",
        good.out
    );
    std::fs::write(
        folder.join("other.yaml"),
        format!("{}  - {{ name: ts }}\n", spec(1, &[])),
    )?;
    std::fs::write(folder.join("same.yaml"), spec(1, &[]))?;
    let bad = run(&["spec", "validate", "data/specs"])?;
    assert_eq!(bad.code, Some(65));
    assert!(bad.err.contains("other.yaml:6:"), "{}", bad.err);
    assert!(bad.err.contains("already defines the spec order"), "{}", bad.err);
    let twin = mixer.path().join("twins");
    std::fs::create_dir(&twin)?;
    std::fs::write(twin.join("a.yaml"), spec(1, &[]))?;
    std::fs::write(twin.join("b.yaml"), spec(1, &[]).replace("name: order", "name: ORDER"))?;
    let twins = run(&["spec", "validate", "twins"])?;
    assert_eq!(twins.code, Some(65));
    assert!(
        twins.err.contains(
            "b.yaml:1:1: twins/a.yaml is the spec order, and DuckDB cannot distinguish messages_ORDER from messages_order"
        ),
        "{}",
        twins.err
    );
    in_force(&mixer, 1)?;
    eventually("both mistakes", SOON, || {
        (specs(&mixer)?["refused"].as_array()?.len() == 2).then_some(())
    })?;
    let listed = run(&["spec", "list", "--api-url", &mixer.api.base])?;
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    assert!(listed.out.contains("messages_order"), "{}", listed.out);
    assert!(listed.err.contains("same.yaml:1:1"), "{}", listed.err);
    Ok(())
}
