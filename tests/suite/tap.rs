//! Taps: what leaves an output port is shown while it flows, and costs the flow nothing.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use harness::process::{Process, append_to, run};
use harness::tail::{Event, Tail};
use harness::{Failure, TestMixer, TestRack, binary, eventually, gear_files};
use serde_json::{Value, json};

use crate::racks::free_port;

const SOON: Duration = Duration::from_secs(60);

/// Lines of a file on rack-a go over a guaranteed wire to rack-b, and there over a hot one into another file.
fn scenario(folder: &Path) -> String {
    format!(
        "meta: {{ name: tapped, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n  \
         - {{ name: pass, type: filter, deploy: rack-b, config: {{ where: 'true' }} }}\n  \
         - {{ name: sink, type: file_out, deploy: rack-b, config: {{ path: {:?} }} }}\nwires:\n  \
         - {{ from: tail.out, to: pass.in, lane: guaranteed }}\n  - {{ from: pass.out, to: sink.in, lane: hot }}\n",
        folder.join("in.log").display().to_string(),
        folder.join("out.log").display().to_string(),
    )
}

/// A Mixer at ports that stay, and two Racks that run the scenario.
fn flowing(folder: &Path) -> Result<(TestMixer, TestRack, TestRack), Failure> {
    let file = folder.join("flow.yaml");
    std::fs::write(&file, scenario(folder))?;
    let (api, bus, scenario) = (free_port()?, free_port()?, format!("{:?}", file.display().to_string()));
    let mixer = TestMixer::with(
        &[
            ("snake.port", &bus),
            ("api.port", &api),
            ("mixer.startup_scenario", &scenario),
        ],
        &[],
    )?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    for (rack, port) in [("rack-a", "tail.out"), ("rack-b", "pass.out")] {
        eventually("a port to watch", SOON, || tap(&mixer, rack, port).ok().map(drop))?;
    }
    Ok((mixer, a, b))
}

fn tap(mixer: &TestMixer, rack: &str, port: &str) -> Result<Tail, Failure> {
    Tail::at(&mixer.api, &format!("/api/v1/racks/{rack}/tap?port={port}"), None)
}

/// Adds numbered lines to the file that is followed.
fn write(folder: &Path, numbers: std::ops::Range<u64>, padding: usize) -> Result<(), Failure> {
    let mut file = append_to(&folder.join("in.log"))?;
    let padding = "x".repeat(padding);
    for number in numbers {
        writeln!(file, "line {number:09} {padding}")?;
    }
    Ok(())
}

fn number(line: &str) -> Option<u64> {
    line.get(5..14)?.parse().ok()
}

fn arrived(folder: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(folder.join("out.log")).unwrap_or_default();
    text.lines().filter_map(number).collect()
}

/// The next event that is no comment.
fn next(tail: &mut Tail) -> Result<Event, Failure> {
    loop {
        let event = tail.next_event()?;
        if !event.data.is_null() {
            return Ok(event);
        }
    }
}

#[test]
fn messages_of_both_lanes_are_shown_and_a_watcher_that_takes_nothing_slows_nobody() -> Result<(), Failure> {
    const FEW: u64 = 50;
    const ALL: u64 = 6_000;
    let folder = gear_files()?;
    let folder = folder.path();
    let (mixer, a, b) = flowing(folder)?;
    let mut slow = tap(&mixer, "rack-b", "pass.out")?;
    let mut guaranteed = tap(&mixer, "rack-a", "tail.out")?;
    let url = [("PLATFORM_API_URL".to_owned(), mixer.api.base.clone())];
    let watch = |args: &[&str]| {
        let log = mixer.path().join(format!("tap-{}.log", args.len()));
        Process::start_with(
            &binary("platform")?,
            &[&["tap"], args].concat(),
            mixer.path(),
            &log,
            &url,
        )
    };
    let mut rows = watch(&["rack-a.tail.out", "--count", "50", "-o", "csv"])?;
    rows.line("ts,", SOON)?;
    write(folder, 0..FEW, 0)?;
    for wanted in 0..FEW {
        let event = next(&mut guaranteed)?;
        let body = event.data["body"].as_str().ok_or("no text")?;
        assert_eq!((&event.name[..], number(body)), ("", Some(wanted)), "{event:?}");
        assert_eq!(
            (&event.data["encoding"], &event.data["cut"]),
            (&json!("text"), &json!(false))
        );
        assert!(
            event.data["flux_id"].is_string() && event.data["meta"].is_object(),
            "{event:?}"
        );
        assert!(rows.line("", SOON)?.contains(body), "{body}");
    }
    assert_eq!(rows.wait(SOON)?.code(), Some(0), "{}", rows.log_tail());

    // More than what the slow one's socket and queue hold, and than a tap shows in that time.
    write(folder, FEW..ALL, 3_000)?;
    eventually("every line at the other end", SOON, || {
        (arrived(folder).len() as u64 >= ALL).then_some(())
    })
    .map_err(|error| format!("{error}: {}\n{}\n{}", arrived(folder).len(), a.log(), b.log()))?;
    assert_eq!(arrived(folder), (0..ALL).collect::<Vec<_>>(), "in order, each once");
    let (mut passed, mut missed) = (0, 0);
    while passed < ALL {
        let event = next(&mut slow)?;
        if event.name == "lagged" {
            let count = event.data["missed"].as_u64().ok_or("no number")?;
            (passed, missed) = (passed + count, missed + count);
        } else {
            let body = event.data["body"].as_str().ok_or("no text")?;
            assert_eq!(number(body), Some(passed), "after {missed}");
            passed += 1;
        }
    }
    assert_eq!(passed, ALL);
    assert!(missed > 0 && missed < ALL - FEW, "{missed}");

    // For people a message is a line, for programs an object.
    let mut line = watch(&["rack-b.pass.out", "--for", "10m", "--count", "1"])?;
    let mut object = watch(&["rack-b.pass.out", "--json", "--count", "1", "--utc"])?;
    let mut next_number = ALL;
    eventually("one message each", SOON, || {
        write(folder, next_number..next_number + 1, 0).ok()?;
        next_number += 1;
        let running = [&mut line, &mut object].map(Process::is_running);
        (running == [false, false]).then_some(())
    })?;
    assert!(line.line("", SOON)?.contains("line 00000"), "{}", line.log_tail());
    let row: Value = serde_json::from_str(&object.line("", SOON)?)?;
    assert!(
        row["body"].as_str().is_some_and(|body| body.starts_with("line ")),
        "{row}"
    );
    for process in [&mut line, &mut object] {
        assert_eq!(process.wait(SOON)?.code(), Some(0), "{}", process.log_tail());
    }
    for rack in [&a, &b] {
        assert!(!rack.log().contains("ermissions violation"), "{}", rack.log());
    }
    Ok(())
}

/// Status, code and text of an answer.
fn asked(mixer: &TestMixer, path: &str) -> Result<(u16, String, String), Failure> {
    let answer = mixer.api.get(&format!("/api/v1/racks/{path}"))?;
    let code = answer.json["code"].as_str().unwrap_or_default().to_owned();
    Ok((answer.status, code, answer.text))
}

#[test]
fn what_cannot_be_watched_is_answered_with_what_can_and_taps_end_with_their_watchers() -> Result<(), Failure> {
    let folder = gear_files()?;
    let (mut mixer, mut a, mut b) = flowing(folder.path())?;
    for (path, status, code, says) in [
        ("rack-x/tap?port=pass.out", 404, "unknown_rack", "rack-x"),
        (
            "rack-b/tap?port=tail.out",
            404,
            "unknown_port",
            "gears with outputs: pass",
        ),
        (
            "rack-b/tap?port=pass.oops",
            404,
            "unknown_port",
            "outputs of that gear: out",
        ),
        (
            "rack-b/tap?port=sink.out",
            404,
            "unknown_port",
            "it has no outputs of that gear",
        ),
        ("rack-b/tap", 400, "bad_parameter", "port=gear.port"),
        ("rack-b/tap?port=out", 400, "bad_parameter", "out"),
        (
            "rack-b/tap?port=rack-b.pass.out",
            400,
            "bad_parameter",
            "port=gear.port",
        ),
        ("rack-b/tap?port=pass.out&limit=1", 400, "unknown_parameter", "limit"),
    ] {
        let (found, word, text) = asked(&mixer, path)?;
        assert_eq!((found, &word[..]), (status, code), "{path}: {text}");
        assert!(text.contains(says), "{path}: {text}");
    }
    let command = |mixer: &TestMixer, args: &[&str]| {
        let all = [&["tap", "--api-url", &mixer.api.base], args].concat();
        run(&binary("platform")?, &all, mixer.path(), &[])
    };
    for (args, exit, says) in [
        (&["rack-b.tail.out"][..], 1, "gears with outputs: pass"),
        (&["pass.out"], 64, "RACK.GEAR.PORT"),
        (&["rack-b.pass.out", "-o", "json"], 64, "--json"),
        (&["rack-b.pass.out", "--count", "0"], 64, "--count"),
        (&["rack-b.pass.out", "--for", "200ms"], 0, ""),
    ] {
        let done = command(&mixer, args)?;
        assert_eq!(done.code, Some(exit), "{args:?}: {}", done.err);
        assert!(done.err.contains(says), "{args:?}: {}", done.err);
    }

    // As many as a Rack shows: one more is refused until one has left.
    let all = |mixer: &TestMixer| {
        let mut taps = Vec::new();
        while taps.len() < 8 {
            taps.push(eventually("a place for a tap", SOON, || {
                tap(mixer, "rack-b", "pass.out").ok()
            })?);
        }
        Ok::<_, Failure>(taps)
    };
    let mut taps = all(&mixer)?;
    let (status, code, text) = asked(&mixer, "rack-b/tap?port=pass.out")?;
    assert_eq!((status, &code[..]), (429, "too_many"), "{text}");
    taps.pop();
    let one = eventually("the place of the one that left", SOON, || {
        tap(&mixer, "rack-b", "pass.out").ok()
    })?;
    // A Mixer that is killed tells nobody: the leases run out.
    mixer.kill9()?;
    drop((taps, one));
    mixer.restart()?;
    let mut taps = all(&mixer)?;

    // A Rack that is killed and comes back counts anew: that is no longer the same tap.
    let mut tapped = tap(&mixer, "rack-a", "tail.out")?;
    a.kill9()?;
    a.start()?;
    let ended = next(&mut tapped)?;
    let reason = ended.data["detail"].as_str().unwrap_or_default();
    assert!(ended.name == "error" && reason.contains("it restarted"), "{ended:?}");

    b.kill9()?;
    let ended = next(taps.first_mut().ok_or("no tap")?)?;
    assert_eq!(ended.name, "error", "{ended:?}");
    assert!(
        ended.data["detail"]
            .as_str()
            .is_some_and(|text| text.contains("rack-b")),
        "{ended:?}"
    );
    drop(taps);
    let (status, code, text) = asked(&mixer, "rack-b/tap?port=pass.out")?;
    assert_eq!((status, &code[..]), (503, "rack_silent"), "{text}");
    assert_eq!(command(&mixer, &["rack-b.pass.out"])?.code, Some(69));
    let suspended = mixer.api.post("/api/v1/racks/rack-a/suspend", &json!({}))?;
    assert_eq!(suspended.status, 200, "{}", suspended.text);
    let (status, code, text) = asked(&mixer, "rack-a/tap?port=tail.out")?;
    assert_eq!((status, &code[..]), (409, "wrong_state"), "{text}");
    assert!(text.contains("platform racks resume"), "{text}");
    Ok(())
}
