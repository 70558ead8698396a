//! What a terminal gets that a pipe does not: a pager, drawings, a word while one waits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use harness::process::run;
use harness::{Failure, binary};
use serde_json::{Value, json};

use super::{Desk, SOON, TRACE};

/// A pager that shows that it was here.
const PAGER: (&str, &str) = ("PAGER", "sed s/^/paged:/");

/// The command on a terminal of 12 lines with 100 cells: `script` gives it one.
pub(super) fn on_terminal(url: &str, args: &str, envs: &[(&str, &str)]) -> Result<Command, Failure> {
    let line = format!("stty rows 12 cols 100; exec {} {args}", binary("platform")?.display());
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_remove("PAGER")
        .envs([
            ("PLATFORM_API_URL", url),
            ("TZ", "UTC"),
            ("NO_COLOR", "1"),
            ("TERM", "xterm"),
            ("LESS", ""),
        ])
        .envs(envs.iter().copied())
        .stdin(Stdio::null());
    Ok(command)
}

/// What a terminal showed, of a command that must succeed.
fn shown(desk: &Desk, args: &str, envs: &[(&str, &str)]) -> Result<String, Failure> {
    let done = on_terminal(&desk.mixer.api.base, args, envs)?
        .current_dir(desk.mixer.path())
        .output()?;
    let text = String::from_utf8(done.stdout)?.replace("\r\n", "\n");
    assert!(done.status.success(), "{args}: {:?} {text}", done.status);
    Ok(text)
}

fn thirty_logs(desk: &Desk) -> Result<(), Failure> {
    let row = |n: u64| json!({ "ts": desk.ago(n), "level": "info", "message": format!("line {n}.") });
    desk.seed("logs", "press", &Value::from((1..=30).map(row).collect::<Vec<_>>()))
}

#[test]
fn a_table_longer_than_the_terminal_goes_through_the_pager_and_nothing_else_does() -> Result<(), Failure> {
    let desk = Desk::open()?;
    thirty_logs(&desk)?;
    let paged = shown(&desk, "logs", &[PAGER])?;
    assert_eq!(paged.matches("paged:").count(), 30, "{paged}");
    for (args, envs) in [
        ("logs --limit 11", vec![PAGER]),
        ("logs --no-pager", vec![PAGER]),
        ("logs -o json", vec![PAGER]),
        ("logs -o ndjson", vec![PAGER]),
        ("logs -o csv", vec![PAGER]),
        ("logs", vec![PAGER, ("TERM", "dumb")]),
        ("logs", vec![("PAGER", "")]),
        ("logs", vec![("PAGER", "cat")]),
        ("logs", vec![("PAGER", "no-such-pager-here 2>/dev/null")]),
    ] {
        let text = shown(&desk, args, &envs)?;
        assert!(
            !text.contains("paged:") && text.contains("line 1."),
            "{args} {envs:?}: {text}"
        );
    }
    let url = ("PLATFORM_API_URL", desk.mixer.api.base.as_str());
    let piped = run(&binary("platform")?, &["logs"], desk.mixer.path(), &[url, PAGER])?;
    assert!(
        piped.out.lines().count() == 30 && !piped.out.contains("paged:"),
        "{}",
        piped.out
    );
    Ok(())
}

#[test]
fn a_table_fits_the_terminal_and_is_whole_elsewhere_or_when_it_is_wished() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let span = json!([{
        "ts": desk.ago(100), "trace_id": TRACE, "span_id": "00000000000000a1", "span_name": "n".repeat(60), "duration_ms": 1.5,
        "status": "ok",
    }]);
    desk.seed("traces", "press", &span)?;
    let fitted = shown(&desk, "traces --entity press --no-pager", &[])?;
    let (header, row) = (
        fitted.lines().next().unwrap_or_default(),
        fitted.lines().nth(1).unwrap_or_default(),
    );
    assert!(header.contains("TRACE_ID") && !header.contains("FLUX_ID"), "{fitted}");
    assert!(
        row.contains(TRACE) && row.contains("nnn…") && row.contains("1.5"),
        "{fitted}"
    );
    assert!(fitted.contains("--wide"), "it says what is not there: {fitted}");
    assert!(
        fitted.lines().take(2).all(|line| line.chars().count() <= 100),
        "{fitted}"
    );
    let whole = desk.answer(&["traces", "--entity", "press"])?;
    assert!(whole.contains("SPAN_ID") && whole.contains(&"n".repeat(60)), "{whole}");
    assert_eq!(shown(&desk, "traces --entity press --no-pager --wide", &[])?, whole);
    Ok(())
}

#[test]
fn a_pager_that_is_left_early_ends_the_command_quietly() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let row = |n: u64| json!({ "ts": desk.ago(n), "level": "info", "message": "x".repeat(500) });
    desk.seed("logs", "press", &Value::from((1..=900).map(row).collect::<Vec<_>>()))?;
    let text = shown(&desk, "logs --limit 900", &[("PAGER", "head -n 1")])?;
    assert_eq!(text.lines().count(), 1, "{text}");
    Ok(())
}

#[test]
fn an_interrupt_is_the_pagers_and_the_command_outlives_it() -> Result<(), Failure> {
    let desk = Desk::open()?;
    thirty_logs(&desk)?;
    // It says that it is there, waits for a line of the terminal, and ends in its own time.
    let pager = "trap 'echo interrupted' INT; cat > /dev/null; echo paging; head -n 1 < /dev/tty; echo done";
    let mut child = on_terminal(&desk.mixer.api.base, "logs", &[("PAGER", pager)])?
        .current_dir(desk.mixer.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut keys = child.stdin.take().ok_or("no input")?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut text = String::new();
    while !text.contains("paging") {
        assert!(out.read_line(&mut text)? > 0, "it ended: {text}");
    }
    keys.write_all(b"\x03")?;
    keys.flush()?;
    while !text.contains("interrupted") {
        // The line it waits for, should the interrupt have come before it waited.
        keys.write_all(b"\n")?;
        assert!(out.read_line(&mut text)? > 0, "it ended: {text}");
    }
    out.read_to_string(&mut text)?;
    let ended = child.wait()?;
    assert!(ended.success() && text.contains("done"), "{ended:?} {text}");
    Ok(())
}

#[test]
fn buckets_and_spans_are_drawn_on_a_terminal_or_where_it_is_wished() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let point = |n: u64| json!({ "ts": desk.ago(600 + n * 60), "name": "temp", "type": "gauge", "value": n });
    desk.seed("metrics", "press", &Value::from((0..8).map(point).collect::<Vec<_>>()))?;
    let span = |id: &str, parent: Option<&str>, ms: f64, status: &str| {
        json!({ "ts": desk.ago(100), "trace_id": TRACE, "span_id": id, "parent_span_id": parent, "span_name": "step",
                "duration_ms": ms, "status": status })
    };
    let spans = [
        span("00000000000000a1", None, 8.0, "ok"),
        span("00000000000000b1", Some("00000000000000a1"), 2.0, "error"),
    ];
    desk.seed("traces", "press", &json!(spans))?;
    let metrics = "metrics --name temp --interval 1m --no-pager";
    let trace = format!("trace {TRACE}");
    let is_drawn = |text: &str| text.contains('█');
    for (args, is_wished) in [
        (metrics.to_owned(), true),
        (format!("{metrics} --chart never"), false),
        (format!("{metrics} -o json"), false),
        ("metrics --name temp --no-pager".to_owned(), false),
        (trace.clone(), true),
        (format!("{trace} --chart never"), false),
        (format!("{trace} -o ndjson --chart always"), false),
    ] {
        let text = shown(&desk, &args, &[])?;
        assert_eq!(is_drawn(&text), is_wished, "{args}: {text}");
    }
    for command in [metrics, &trace] {
        let args: Vec<&str> = command.split(' ').collect();
        assert!(!is_drawn(&desk.answer(&args)?), "a pipe gets no drawing");
        let always: Vec<&str> = args.iter().copied().chain(["--chart", "always"]).collect();
        let drawn = desk.answer(&always)?;
        assert!(
            is_drawn(&drawn) && drawn.lines().all(|line| line.chars().count() < 120),
            "{drawn}"
        );
    }
    let drawn = shown(&desk, metrics, &[])?;
    let (head, rest) = drawn.split_once('\n').ok_or("one line only")?;
    assert!(head.ends_with(":00.000000Z, 8 buckets of 1m"), "{drawn}");
    assert!(rest.starts_with("temp  0 to 7, last 0  █▇▆▅▄▃▂▁\n"), "{drawn}");
    let drawn = shown(&desk, &trace, &[])?;
    assert!(
        drawn.contains("\n  ✗ step") && drawn.contains("2.000 ms  error\n"),
        "{drawn}"
    );
    Ok(())
}

#[test]
fn a_terminal_shows_progress_and_only_the_answer_in_the_end() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let (go, wait) = mpsc::channel::<()>();
    // The Mixer of this test answers when it is told to.
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let head = BufReader::new(stream.try_clone()?);
        head.lines().map_while(Result::ok).find(String::is_empty);
        let _ = wait.recv_timeout(SOON);
        let body = r#"{"data": [{"ts": "2026-11-21T10:00:00.000000Z", "level": "info", "message": "at last"}], "next_cursor": null}"#;
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    });
    let folder = tempfile::tempdir()?;
    let mut child = on_terminal(&url, "logs", &[])?
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = child.stdout.take().ok_or("no output")?;
    let mut seen = Vec::new();
    let mut part = [0; 256];
    while !String::from_utf8_lossy(&seen).contains("waiting for the Mixer, 1 s") {
        let count = out.read(&mut part)?;
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&part[..count]);
    }
    go.send(())?;
    out.read_to_end(&mut seen)?;
    assert!(child.wait()?.success());
    server.join().map_err(|_| "the server died")??;
    let text = String::from_utf8(seen)?;
    let last = text.rsplit("\u{1b}[K").next().unwrap_or_default();
    assert_eq!(
        last, "2026-11-21T10:00:00.000000Z info   at last \r\n",
        "the line is gone: {text:?}"
    );
    Ok(())
}
