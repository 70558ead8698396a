//! `exec` with real programs in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use chassis::config::schema_check::load_from;
use model::message::Message;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Command;

use super::*;
use crate::config::{RackConfig, SCHEMA};
use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{fill, outbox, spec, surroundings, taken_from};
use crate::gears::testing::{Bench, Flow, push};

const SH: &str = "/bin/sh";
const SINK: &str = "\n  - { name: sink, type: log_sink, deploy: rack-a }";

/// A gear `run` that runs a shell's script, before a sink.
fn gears(script: &str, config: &str) -> String {
    let command = json!([SH, "-c", script]);
    format!("\n  - {{ name: run, type: exec, deploy: rack-a, config: {{ command: {command}, {config} }} }}{SINK}")
}

async fn start(script: &str, config: &str) -> Flow {
    Flow::start_allowing(&[SH], &gears(script, config), "{ from: run.out, to: sink.in }").await
}

/// A pipe that programs hold open as long as they live.
fn pipe_in(folder: &Path) -> PathBuf {
    let pipe = folder.join("alive");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    pipe
}

/// Its end that hears of that, which does not wait for them to open theirs.
fn hearing(pipe: &Path) -> File {
    let flags = OFlag::O_NONBLOCK.bits();
    let end = OpenOptions::new().read(true).custom_flags(flags).open(pipe).unwrap();
    fcntl(&end, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    end
}

/// Waits until none of them has it open.
async fn closed(mut end: File) {
    let read = move || end.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(tokio::task::spawn_blocking(read).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_is_a_message_the_last_one_without_a_line_feed_too_and_a_long_one_is_cut() {
    let mut flow = start("echo one; echo; echo 0123456789; printf end", "every: 1h, max_line: 8").await;
    flow.reach("sink", 4).await;
    flow.stop().await;
    let rows = flow.rows("sink");
    let lines: Vec<_> = rows
        .iter()
        .map(|row| (row["message"].as_str().unwrap(), &row["attributes"]["truncated"]))
        .collect();
    assert_eq!(
        lines,
        [
            ("one", &Value::Null),
            ("", &Value::Null),
            ("01234567", &json!(true)),
            ("end", &Value::Null)
        ]
    );
    assert!(rows.iter().all(|row| row["attributes"]["exec.run"] == 0), "{rows:?}");
    assert_eq!(flow.counter("run", "gear.errors"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_output_has_the_exit_code_what_is_said_on_stderr_is_logged_and_a_failure_is_counted() {
    let script = "echo a; echo b; echo 'ERROR no paper' >&2; echo tray 2 >&2; exit 3";
    let mut flow = start(script, "every: 1h, framing: whole, max_output: 3").await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    let row = &flow.rows("sink")[0];
    assert_eq!(row["message"], "a\nb");
    assert_eq!(
        (&row["attributes"]["process.exit.code"], &row["attributes"]["truncated"]),
        (&json!(3), &json!(true))
    );
    assert!(flow.says("run", "ERROR no paper") && flow.says("run", "tray 2"));
    assert!(flow.says("run", "/bin/sh ended with exit code 3"));
    assert_eq!(flow.counter("run", "gear.errors"), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_gears_exec_allow_does_not_list_is_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::open(folder.path());
    let wires = "{ from: run.out, to: sink.in }";
    let apply = async |bench: &Bench, config: &str| {
        let gears = format!("\n  - {{ name: run, type: exec, deploy: rack-a, config: {{ {config} }} }}{SINK}");
        let mut runtime = bench.runtime();
        let error = runtime.apply(&push("h", &gears, wires)).await.error;
        runtime.close().await;
        error
    };
    let error = apply(&bench, "command: [/bin/true]").await.unwrap();
    assert!(
        error.contains("/bin/true is not allowed on this Rack")
            && error.contains("[gears.exec] allow = [\"/bin/true\"]"),
        "{error}"
    );
    let settings = load_from(&SCHEMA, "[gears.exec]\nallow = [\"/bin/true\"]\n", &[]).unwrap();
    bench.programs = ProgramAllowList::new(&RackConfig::of(&settings).unwrap().gears_exec.allow);
    // Another way to it is another program.
    for way in ["/bin/../bin/true", "/bin//true"] {
        let error = apply(&bench, &format!("command: [{way}]")).await.unwrap();
        assert!(error.contains("is not allowed"), "{error}");
    }
    let error = apply(&bench, "command: [/bin/true], env: [NO_SUCH_VARIABLE]")
        .await
        .unwrap();
    assert!(
        error.contains("NO_SUCH_VARIABLE is not set in the environment of this Rack"),
        "{error}"
    );
    assert_eq!(apply(&bench, "command: [/bin/true]").await, None);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_has_no_environment_but_what_is_listed_and_runs_in_its_folder() {
    const ENV: &str = "/usr/bin/env";
    let gears = format!(
        "\n  - {{ name: run, type: exec, deploy: rack-a, config: {{ command: [{ENV}], env: [CARGO_PKG_NAME], every: 1h, framing: whole }} }}
  - {{ name: where, type: exec, deploy: rack-a, config: {{ command: [/bin/pwd], folder: /proc, every: 1h }} }}{SINK}"
    );
    let wires = "{ from: run.out, to: sink.in }, { from: where.out, to: sink.in }";
    let mut flow = Flow::start_allowing(&[ENV, "/bin/pwd"], &gears, wires).await;
    flow.reach("sink", 2).await;
    flow.stop().await;
    assert_eq!(flow.texts("sink"), ["/proc", "CARGO_PKG_NAME=platform-rack\n"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_takes_too_long_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe_in(folder.path());
    let end = hearing(&pipe);
    let script = format!("exec 3> {}; trap '' TERM; sleep infinity & wait", pipe.display());
    let mut flow = start(&script, "every: 1h, timeout: 200ms, framing: whole, env: [PATH]").await;
    flow.hears("run", "/bin/sh did not end within 200ms and is killed")
        .await;
    closed(end).await;
    flow.stop().await;
    assert_eq!((flow.rows("sink").len(), flow.counter("run", "gear.errors")), (0, 1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_its_program_though_another_that_has_left_the_group_writes_on() {
    let folder = tempfile::tempdir().unwrap();
    let gate = pipe_in(folder.path());
    // It has left the group when it opens the gate.
    let script = format!("setsid sh -c 'echo x > {0}; exec yes' & read x < {0}", gate.display());
    let mut flow = start(
        &script,
        "every: 1h, timeout: 1h, framing: whole, max_output: 4, env: [PATH]",
    )
    .await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    assert_eq!(flow.rows("sink")[0]["attributes"]["process.exit.code"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_standard_error_beyond_the_rate_are_counted_and_reported() {
    let script = "i=0; while [ $i -lt 3000 ]; do echo oops $i; i=$((i+1)); done >&2; echo done";
    let mut flow = start(script, "every: 1h, framing: whole").await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    let said = flow.logs("run");
    let count = |text: &str| text.split(' ').next().unwrap().parse::<usize>().unwrap();
    let told = said
        .iter()
        .filter(|text| text.contains("lines of standard error were left out"));
    let left_out: usize = told.map(|text| count(text)).sum();
    let lines = said.iter().filter(|text| text.starts_with("oops")).count();
    assert_eq!(
        (lines + left_out, lines >= 1000, left_out > 0),
        (3000, true, true),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standard_error_is_bounded_over_all_runs_and_of_a_line_the_beginning_is_kept() {
    let script =
        "printf '%20000d\\n' 7 >&2; i=0; while [ $i -lt 600 ]; do echo oops $i; i=$((i+1)); done >&2; echo done";
    let mut flow = start(script, "every: 10ms, framing: whole").await;
    flow.reach("sink", 20).await;
    flow.stop().await;
    let said = flow.logs("run");
    let lines = said.iter().filter(|text| text.starts_with("oops")).count();
    assert!((600..6_000).contains(&lines), "{lines} of 12,000");
    let long = said.iter().map(String::len).max();
    assert_eq!(long, Some(8 << 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_that_stops_leaves_no_process_and_marks_the_line_that_was_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe_in(folder.path());
    let end = hearing(&pipe);
    let script = format!(
        "exec 3> {}; trap '' TERM; printf 'ready\\nhalf'; sleep infinity & wait",
        pipe.display()
    );
    let mut flow = start(&script, "mode: streaming, env: [PATH]").await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    closed(end).await;
    let rows = flow.rows("sink");
    let lines = rows
        .iter()
        .map(|row| (&row["message"], &row["attributes"]["truncated"]));
    let wanted = [(&json!("ready"), &Value::Null), (&json!("half"), &json!(true))];
    assert!(lines.eq(wanted), "{rows:?}");
    assert!(flow.says("run", "the gear stopped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streaming_program_that_ends_is_started_again() {
    let mut flow = start("echo once; kill -9 $$", "mode: streaming, restart_after: 10ms").await;
    flow.reach("sink", 3).await;
    flow.stop().await;
    let runs: Vec<_> = flow
        .rows("sink")
        .iter()
        .map(|row| row["attributes"]["exec.run"].clone())
        .collect();
    assert_eq!(runs[..3], [0, 1, 2]);
    assert!(flow.says("run", "/bin/sh was ended by signal 9"));
    assert!(flow.says("run", "it is started again in 20ms"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_be_run_is_an_error_of_each_run() {
    let gears = format!(
        "\n  - {{ name: run, type: exec, deploy: rack-a, config: {{ command: [/no/such], every: 5ms }} }}{SINK}"
    );
    let mut flow = Flow::start_allowing(&["/no/such"], &gears, "{ from: run.out, to: sink.in }").await;
    flow.hears("run", "cannot run /no/such: No such file").await;
    flow.stop().await;
    assert!(flow.counter("run", "gear.errors") >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_waits_while_the_outbox_is_full_and_each_of_its_lines_leaves_once_and_in_order() {
    const LINES: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::open(folder.path());
    bench.programs = ProgramAllowList::new(&[SH.into()]);
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    fill(&outbox).await;
    let script = format!("i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); done");
    let spec = spec(
        "exec",
        &json!({ "command": [SH, "-c", script], "every": "1h", "timeout": "1h" }),
        &["out"],
    );
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, None));
    let letters = taken_from(&outbox, LINES + 1).await;
    let lines: Vec<String> = letters[1..]
        .iter()
        .map(|letter| String::from_utf8(Message::from_cbor(letter.body()).unwrap().raw).unwrap())
        .collect();
    assert_eq!(lines, (0..LINES).map(|line| line.to_string()).collect::<Vec<_>>());
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

const OWNER: &str = "gears::exec::tests::owner_of_a_program_until_it_is_killed";
const PIPE: &str = "PLATFORM_TEST_EXEC_PIPE";

/// Run as a process of its own by the test below; alone it does nothing.
#[tokio::test]
#[ignore = "a helper process of a_program_does_not_outlive_a_rack_that_is_killed"]
async fn owner_of_a_program_until_it_is_killed() {
    let Some(pipe) = std::env::var_os(PIPE) else { return };
    let script = format!(
        "exec > {}; echo begun; trap '' TERM; while true; do sleep 1; done",
        Path::new(&pipe).display()
    );
    let _flow = start(&script, "mode: streaming, env: [PATH]").await;
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_program_does_not_outlive_a_rack_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe_in(folder.path());
    // Open both ways, it neither waits for the program nor takes its absence for the end.
    let mut begun = pipe::OpenOptions::new().read_write(true).open_receiver(&pipe).unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", OWNER, "--ignored", "--nocapture"])
        .env(PIPE, &pipe)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    tokio::select! {
        read = begun.read_exact(&mut line) => drop(read.unwrap()),
        ended = owner.wait() => panic!("the Rack ended before its program began: {ended:?}"),
    }
    assert_eq!(&line, b"begun\n");
    let mut written = pipe::OpenOptions::new().open_receiver(&pipe).unwrap();
    drop(begun);
    owner.kill().await.unwrap();
    // The end of the stream: the program has ended, and so its last sleep.
    let mut rest = Vec::new();
    written.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}
