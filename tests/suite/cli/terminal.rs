//! What reaches a terminal, and what happens when nobody reads any more.

use std::process::{Command, Stdio};

use harness::{Failure, binary, eventually};
use serde_json::{Value, json};

use super::{Desk, SOON, TRACE, json_rows, publish};

/// What a hostile program may log: it clears a screen, rings, sets a title, reorders a line, forges a line.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\u{202e}b\rc\nd";

/// Whether a text could make a terminal do something, besides going to the next line.
fn is_harmful(text: &str) -> bool {
    let bidirectional = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().any(|c| (c.is_control() && c != '\n') || bidirectional(c))
}

#[test]
fn stored_control_characters_are_never_written_as_they_are_in_any_format() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let ts = desk.ago(60);
    let attributes = json!({ "note": HOSTILE });
    desk.seed(
        "logs",
        "press",
        &json!([{ "ts": ts, "level": "info", "message": HOSTILE, "attributes": attributes }]),
    )?;
    desk.seed(
        "metrics",
        "press",
        &json!([{ "ts": ts, "name": "temp", "type": "gauge", "value": 1.0, "labels": attributes }]),
    )?;
    desk.seed(
        "traces",
        "press",
        &json!([{ "ts": ts, "trace_id": TRACE, "span_id": "00000000000000a1", "span_name": HOSTILE, "duration_ms": 1.0,
                  "status": "ok", "attributes": attributes }]),
    )?;
    publish(
        &desk.mixer,
        "flux.telemetry.logs.press",
        "text/\u{9b}31m",
        "?".to_owned(),
    )?;
    eventually("the dead letter", SOON, || {
        (desk.mixer.api.rows("/api/v1/telemetry/dead_letters").ok()?.len() == 1).then_some(())
    })?;
    for format in ["table", "json", "ndjson", "csv"] {
        for command in [
            vec!["logs"],
            vec!["metrics"],
            vec!["metrics", "--interval", "1h", "--group-by", "note"],
            vec!["metrics", "--interval", "1h", "--group-by", "note", "--chart", "always"],
            vec!["traces"],
            vec!["trace", TRACE],
            vec!["trace", TRACE, "--chart", "always"],
            vec!["dead-letters"],
        ] {
            let args: Vec<&str> = command.iter().copied().chain(["-o", format]).collect();
            let out = desk.answer(&args)?;
            assert!(out.contains('1'), "{args:?} shows nothing: {out:?}");
            assert!(!is_harmful(&out), "{args:?}: {out:?}");
        }
    }
    let table = desk.answer(&["logs"])?;
    assert_eq!(table.lines().count(), 1, "a stored line break makes no line: {table:?}");
    assert!(table.contains("a\\u{1b}[2J"), "it is shown: {table:?}");
    let rows = json_rows(&desk.answer(&["logs", "-o", "json"])?)?;
    assert_eq!(rows[0]["message"], HOSTILE, "programs get back what was stored");
    Ok(())
}

#[test]
fn colours_appear_on_a_terminal_only_and_never_with_no_color() -> Result<(), Failure> {
    let desk = Desk::open()?;
    desk.seed(
        "logs",
        "press",
        &json!([{ "ts": desk.ago(60), "level": "error", "message": HOSTILE }]),
    )?;
    let command = format!("{} logs", binary("platform")?.display());
    // `script` gives the command a terminal.
    let on_terminal = |no_color: &str| -> Result<String, Failure> {
        let done = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(desk.mixer.path())
            .env("PLATFORM_API_URL", &desk.mixer.api.base)
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output()?;
        assert!(done.status.success(), "{done:?}");
        Ok(String::from_utf8(done.stdout)?.replace("\r\n", "\n"))
    };
    let painted = on_terminal("")?;
    assert!(painted.contains("\u{1b}[1m\u{1b}[31merror\u{1b}[0m"), "{painted:?}");
    let ours = ["\u{1b}[1m", "\u{1b}[31m", "\u{1b}[2m", "\u{1b}[0m"];
    let rest = ours.iter().fold(painted, |text, code| text.replace(code, ""));
    assert!(!is_harmful(&rest), "{rest:?}");
    let plain = on_terminal("1")?;
    assert!(plain.contains(" error press ") && !is_harmful(&plain), "{plain:?}");
    assert!(!is_harmful(&desk.answer(&["logs"])?));
    Ok(())
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let row = |n: u64| json!({ "ts": desk.ago(n), "level": "info", "message": "x".repeat(500) });
    desk.seed("logs", "press", &Value::from((1..=900).map(row).collect::<Vec<_>>()))?;
    for format in ["table", "json", "ndjson", "csv"] {
        let mut child = Command::new(binary("platform")?)
            .args([
                "logs",
                "--limit",
                "900",
                "-o",
                format,
                "--api-url",
                &desk.mixer.api.base,
            ])
            .current_dir(desk.mixer.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        drop(child.stdout.take());
        let done = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success() && said.is_empty(),
            "{format}: {:?} {said}",
            done.status
        );
    }
    Ok(())
}
