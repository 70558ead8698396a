//! How commands end: exit codes, messages, waiting, the log of what was asked; and what they change.

use std::path::Path;
use std::process::{Command, Stdio};

use harness::process::run;
use harness::{Failure, TestMixer, TestRack, binary};
use model::Timestamp;
use serde_json::json;

use super::{Desk, SOON, TRACE, json_rows};

#[test]
fn exit_codes_say_what_went_wrong_and_messages_name_it() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let folder = desk.mixer.path();
    std::fs::write(folder.join("bad.yaml"), "meta: [")?;
    std::fs::write(folder.join("bad.toml"), "[base]\nnme = \"x\"\n")?;
    for (args, code, says) in [
        (vec!["logs"], 0, "no rows in this window"),
        (vec!["dead-letters"], 0, "no dead letters"),
        (vec!["racks", "list"], 0, "platform racks invite"),
        (vec!["racks", "invites"], 0, "platform racks invite"),
        (vec!["scenario", "list"], 0, "platform scenario import"),
        (vec!["wires"], 0, "no wires"),
        (vec!["requests", "list"], 0, "second person"),
        (vec!["token", "revoke", "nobody"], 1, "there is no token nobody"),
        (vec!["trace", TRACE], 1, TRACE),
        (vec!["racks", "show", "nobody"], 1, "nobody"),
        (vec!["racks", "approve", "nobody"], 1, "nobody"),
        (vec!["racks", "show", "a/../b"], 64, "a/../b"),
        (vec!["logs", "--sinse", "1h"], 64, "--since"),
        (vec!["logs", "--since", "yesterday"], 64, "yesterday"),
        (vec!["logs", "--min-level", "loud"], 64, "debug, info, warn"),
        (vec!["logs", "--min-level", "wrn"], 64, "'warn'"),
        (vec!["dlq", "list", "--state", "opn"], 64, "'open'"),
        (vec!["logs", "--not-level", "wrn"], 64, "'warn'"),
        (vec!["logs", "top", "levl"], 64, "did you mean level?"),
        (vec!["logs", "--all"], 64, "--output csv"),
        (vec!["logs", "--all", "--limit", "3"], 64, "--limit"),
        (
            vec!["audit", "--kind", "rack_approvd"],
            0,
            "did you mean --kind rack_approved?",
        ),
        (vec!["gears", "doc", "filtr"], 1, "did you mean filter?"),
        (vec!["token", "create", "x", "--role", "reder"], 64, "'reader'"),
        (vec!["metrics", "--agg", "agv"], 64, "avg, sum"),
        (vec!["metrics", "--agg", "counts"], 64, "did you mean count?"),
        (vec!["logs", "--limit", "10001"], 64, "1..=10000"),
        (vec!["logs", "--output", "xml"], 64, "ndjson"),
        (vec!["metrics", "--interval", "0s"], 64, "interval"),
        (vec!["metrics", "--agg", "mean"], 64, "avg"),
        (vec!["trace", "xyz"], 64, "32 hex digits"),
        (vec!["tracez"], 64, "trace"),
        (vec!["scenario", "validate", "bad.yaml"], 65, "bad.yaml"),
        (vec!["scenario", "validate", "none.yaml"], 74, "none.yaml"),
        (vec!["config", "show", "-c", "bad.toml"], 78, "base.name"),
        (vec!["config", "show", "-c", "none.toml"], 78, "none.toml"),
    ] {
        let done = desk.ask(&args)?;
        assert_eq!(done.code, Some(code), "{args:?}: {}", done.err);
        assert!(done.err.contains(says), "{args:?}: {}", done.err);
        assert!(
            code == 0 || done.out.is_empty(),
            "{args:?} prints no data: {}",
            done.out
        );
    }
    Ok(())
}

#[test]
fn a_partial_answer_is_printed_reported_on_stderr_and_exits_with_65() -> Result<(), Failure> {
    let mut desk = Desk::open()?;
    let row = json!([{ "ts": desk.ago(60), "level": "info", "message": "lost" }]);
    desk.seed("logs", "press", &row)?;
    let span = json!([{
        "ts": desk.ago(60), "trace_id": TRACE, "span_id": "00000000000000a1", "span_name": "order", "duration_ms": 1.0, "status": "ok",
    }]);
    desk.seed("traces", "press", &span)?;
    desk.mixer.lose_a_file("logs")?;
    for args in [
        vec!["logs"],
        vec!["logs", "--histogram"],
        vec!["traces"],
        vec!["trace", TRACE],
        vec!["metrics"],
        vec!["messages"],
        vec!["messages", "--trace-id", TRACE],
        vec!["dead-letters"],
        vec!["dlq", "list"],
        vec!["dlq", "replay", "--gear", "nobody"],
        vec!["dlq", "drop", "--gear", "nobody", "--yes"],
        vec!["sql", "SELECT count(*) AS n FROM logs"],
    ] {
        for format in ["table", "csv", "ndjson"] {
            let all: Vec<&str> = args.iter().chain(&["-o", format]).copied().collect();
            let done = desk.ask(&all)?;
            assert_eq!(done.code, Some(65), "{all:?}: {}", done.err);
            let told = done.err.matches("platform: the answer is partial: ").count();
            assert_eq!(told, 1, "{all:?}: {}", done.err);
            let has_rows = ["trace", "traces", "sql"].contains(&args[0]);
            assert!(!has_rows || !done.out.is_empty(), "{all:?} prints what there is");
        }
    }
    assert_eq!(
        desk.ask(&["sql", "SELECT 1 AS n"])?.code,
        Some(0),
        "it asks for no rows"
    );
    Ok(())
}

#[test]
fn a_mixer_that_is_not_there_is_named_with_the_flag_that_names_another() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let nobody = harness::free_address()?;
    let url = format!("http://me:s3cret@{nobody}");
    for command in ["logs", "metrics", "traces", "storage"] {
        let done = run(&binary("platform")?, &[command, "--api-url", &url], folder.path(), &[])?;
        assert_eq!(done.code, Some(69), "{}", done.err);
        assert!(
            done.err.contains(&nobody.to_string()) && done.err.contains("--api-url"),
            "{}",
            done.err
        );
        assert!(!done.err.contains("s3cret") && done.out.is_empty(), "{}", done.err);
    }
    let done = run(&binary("platform")?, &["logs", "--wait", "soon"], folder.path(), &[])?;
    assert_eq!(done.code, Some(64), "{}", done.err);
    Ok(())
}

#[test]
fn racks_are_approved_under_a_name_suspended_resumed_and_removed() -> Result<(), Failure> {
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let now = Timestamp::from(std::time::SystemTime::now());
    let desk = Desk { mixer, now };
    let mut rack = TestRack::new("rack-a", &desk.mixer.bus_url, "")?;
    rack.spawn()?;
    let waits = rack.process()?.line("pending ", SOON)?;
    let (_, key) = waits.split_once("key=").ok_or("it prints no key")?;
    let list = desk.answer(&["racks", "list"])?;
    let cells: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((cells[0], cells[2]), ("rack-a", "pending"), "{list}");
    let state = |args: &[&str]| -> Result<(String, String), Failure> {
        let all: Vec<&str> = ["racks"].iter().chain(args).chain(&["-o", "json"]).copied().collect();
        let rack = json_rows(&desk.answer(&all)?)?.remove(0);
        let text = |key: &str| rack[key].as_str().unwrap_or_default().to_owned();
        Ok((text("name"), text("state")))
    };
    let is = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let keyless = desk.ask(&["racks", "approve", cells[1]])?;
    assert!(keyless.code == Some(64) && keyless.err.contains(key), "{}", keyless.err);
    assert_eq!(
        state(&["approve", cells[1], "--key", key, "--name", "press"])?,
        is("press", "active")
    );
    assert!(rack.process()?.line("ready ", SOON)?.contains("name=press "));
    assert_eq!(state(&["suspend", "press"])?, is("press", "suspended"));
    assert_eq!(state(&["show", "press"])?, is("press", "suspended"));
    assert_eq!(state(&["resume", cells[1]])?, is("press", "active"));
    let again = desk.ask(&["racks", "resume", "press"])?;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert!(
        again.err.contains("press was active already: nothing changed"),
        "{}",
        again.err
    );
    desk.answer(&["racks", "label", "press", "line=1"])?;
    let again = desk.ask(&["racks", "label", "press", "line=1"])?;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert!(
        again.err.contains("press has these labels already: nothing changed"),
        "{}",
        again.err
    );
    let unsure = desk.ask(&["racks", "remove", "press"])?;
    assert_eq!(unsure.code, Some(64), "{}", unsure.err);
    assert!(
        unsure.err.contains("press (active) would be removed for ever") && unsure.err.contains("--yes"),
        "{}",
        unsure.err
    );
    assert_eq!(state(&["show", "press"])?, is("press", "active"));
    assert_eq!(state(&["remove", "press", "--yes"])?.1, "removed");
    let again = desk.ask(&["racks", "resume", cells[1]])?;
    assert!(
        matches!(again.code, Some(1 | 64)) && !again.err.is_empty(),
        "{:?} {}",
        again.code,
        again.err
    );
    Ok(())
}

#[test]
fn wait_outlasts_the_start_of_the_mixer_and_the_coming_of_the_first_row() -> Result<(), Failure> {
    let mut desk = Desk::open()?;
    desk.mixer.kill9()?;
    let url = desk.mixer.api.base.clone();
    let child = Command::new(binary("platform")?)
        .args(["logs", "--wait", "60s", "-o", "ndjson", "--api-url", &url])
        .current_dir(desk.mixer.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    desk.mixer.restart()?;
    desk.seed(
        "logs",
        "press",
        &json!([{ "ts": desk.ago(60), "level": "info", "message": "at last" }]),
    )?;
    let done = child.wait_with_output()?;
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && out.contains("at last"), "{done:?}");
    assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The lines of the command's log.
fn command_log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("logs/platform-cli.log")).unwrap_or_default()
}

#[test]
fn a_command_writes_a_log_only_if_it_is_told_to_by_flag_or_environment() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let folder = desk.mixer.path();
    let url = desk.mixer.api.base.as_str();
    let program = binary("platform")?;
    desk.answer(&["logs"])?;
    assert!(
        !folder.join("logs/platform-cli.log").exists(),
        "not without being told to"
    );

    desk.answer(&["logs", "--limit", "7", "--log"])?;
    let log = command_log(folder);
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(log.contains("command=\"logs --limit 7 --log\""), "{log}");
    assert!(log.lines().nth(1).unwrap().contains("done exit=0 "), "{log}");

    let env = [
        ("PLATFORM_CLI_LOG", "true"),
        ("PLATFORM_API_URL", url),
        ("PLATFORM_LEVEL", "debug"),
    ];
    let done = run(&program, &["trace", TRACE], folder, &env)?;
    assert_eq!(done.code, Some(1));
    assert_eq!(
        done.err.lines().count(),
        1,
        "the terminal sees nothing of the log: {}",
        done.err
    );
    let log = command_log(folder);
    assert!(log.contains("failed exit=1 ") && log.contains("status=404"), "{log}");

    let off = [("PLATFORM_CLI_LOG", "false"), ("PLATFORM_API_URL", url)];
    assert_eq!(run(&program, &["logs"], folder, &off)?.code, Some(0));
    assert_eq!(command_log(folder), log, "told not to");

    std::fs::write(
        folder.join("platform.toml"),
        "[logging]\nfilename = \"elsewhere/rack.log\"\nlevel = \"error\"\n",
    )?;
    let done = run(
        &program,
        &["--log", "logs", "--api-url", "http://me:s3cret@127.0.0.1:1"],
        folder,
        &[],
    )?;
    assert_eq!(done.code, Some(69), "{}", done.err);
    let log = std::fs::read_to_string(folder.join("elsewhere/platform-cli.log"))?;
    assert!(
        log.lines().count() == 1 && log.contains("failed exit=69") && !log.contains("s3cret"),
        "{log}"
    );

    std::fs::write(folder.join("taken"), "a file")?;
    std::fs::write(
        folder.join("platform.toml"),
        "[logging]\nfilename = \"taken/rack.log\"\n",
    )?;
    let done = run(&program, &["--log", "logs", "--api-url", url], folder, &[])?;
    assert!(
        done.code != Some(0) && done.err.contains("taken"),
        "{:?} {}",
        done.code,
        done.err
    );
    Ok(())
}
