//! `platform sql` at a terminal: what is typed, what is shown, what is kept.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Instant;

use harness::{Failure, TestMixer};
use serde_json::json;
use tempfile::TempDir;

use super::screen::on_terminal;
use super::{Desk, SOON};

const PROMPT: &str = "sql> ";
/// A statement with its answer, which is not in its text.
const ASK: &str = "SELECT 40 + 2 AS answer;\r";
const ANSWER: &str = "ANSWER\r\n42\r\n";
const BUSY: &str = "try again in a moment";
const INTERRUPT: &str = "\u{3}";
const END: &str = "\u{4}";
const UP: &str = "\u{1b}[A";

/// A folder with the configuration of somebody who has a state folder.
fn home() -> Result<TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("platform.toml"), "[base]\nstate_dir = \"state\"\n")?;
    std::fs::create_dir(folder.path().join("state"))?;
    Ok(folder)
}

fn history(home: &TempDir) -> PathBuf {
    home.path().join("state/sql_history")
}

/// A shell at a terminal, with somebody who types and reads.
struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    reader: Option<JoinHandle<()>>,
    /// What has come and was not waited for yet.
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts a shell and waits for it.
    fn open(desk: &Desk, home: &Path, args: &str, envs: &[(&str, &str)]) -> Result<Self, Failure> {
        let mut child = on_terminal(&desk.mixer.api.base, &format!("sql {args}"), envs)?
            .current_dir(home)
            .env("XDG_STATE_HOME", home.join("own"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let keys = child.stdin.take();
        let mut out = child.stdout.take().ok_or("no output")?;
        let (sender, output) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut part) {
                if sender.send(part[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut terminal = Self {
            child,
            keys,
            output,
            reader: Some(reader),
            bytes: Vec::new(),
        };
        terminal.until(PROMPT)?;
        Ok(terminal)
    }

    fn keys(&mut self, keys: &str) -> Result<(), Failure> {
        let input = self.keys.as_mut().ok_or("no input")?;
        input.write_all(keys.as_bytes())?;
        Ok(input.flush()?)
    }

    /// What is shown up to this, and with it.
    fn until(&mut self, wanted: &str) -> Result<String, Failure> {
        self.until_any(&[wanted])
    }

    /// What is shown up to one of these, and with it.
    fn until_any(&mut self, wanted: &[&str]) -> Result<String, Failure> {
        let deadline = Instant::now() + SOON;
        loop {
            let end = |text: &&str| {
                let at = self.bytes.windows(text.len()).position(|at| at == text.as_bytes())?;
                Some(at + text.len())
            };
            if let Some(end) = wanted.iter().filter_map(end).min() {
                let rest = self.bytes.split_off(end);
                return Ok(String::from_utf8(std::mem::replace(&mut self.bytes, rest))?);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let part = self.output.recv_timeout(left);
            let part = part.map_err(|error| {
                let shown = String::from_utf8_lossy(&self.bytes);
                format!("{wanted:?} is not shown, {error}: {shown:?}")
            })?;
            self.bytes.extend(part);
        }
    }

    /// Types, and gives what is shown up to the next prompt behind this.
    fn ask(&mut self, keys: &str, wanted: &str) -> Result<String, Failure> {
        self.keys(keys)?;
        let mut shown = self.until(wanted)?;
        shown.push_str(&self.until(PROMPT)?);
        Ok(shown)
    }

    /// Asks, and again while another statement has the only place.
    fn ask_until_answered(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + SOON;
        loop {
            self.keys(ASK)?;
            let shown = self.until_any(&[ANSWER, BUSY])?;
            self.until(PROMPT)?;
            if shown.ends_with(ANSWER) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the other statement never ended: {shown}").into());
            }
        }
    }

    /// Leaves; the shell must end well.
    fn leave(mut self, keys: &str) -> Result<(), Failure> {
        self.keys(keys)?;
        let ended = self.child.wait()?;
        assert!(ended.success(), "{ended:?} {:?}", String::from_utf8_lossy(&self.bytes));
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Without input the terminal ends, and the shell with it.
        drop(self.keys.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

#[test]
fn a_statement_of_many_lines_is_answered_kept_for_its_user_alone_and_found_again() -> Result<(), Failure> {
    let (desk, home) = (Desk::open()?, home()?);
    let mut terminal = Terminal::open(&desk, home.path(), "", &[])?;
    terminal.ask("SELECT 40 + 2 -- not yet;\r  AS answer\r;\r", ANSWER)?;
    let kept = std::fs::read_to_string(history(&home))?;
    assert!(
        kept.ends_with("SELECT 40 + 2 -- not yet;\\n  AS answer\\n;\n"),
        "{kept}"
    );
    assert_eq!(history(&home).metadata()?.permissions().mode() & 0o777, 0o600);
    terminal.leave(END)?;
    let mut terminal = Terminal::open(&desk, home.path(), "", &[])?;
    terminal.ask(&format!("{UP}\r"), ANSWER)?;
    // As a terminal gives what is pasted.
    terminal.ask("\u{1b}[200~SELECT\n\t40 + 2\nAS answer;\u{1b}[201~\r", ANSWER)?;
    terminal.leave("\\q\r")?;
    assert!(!home.path().join("own").exists(), "one place is enough");
    // Without a state folder it is the user's own.
    let elsewhere = tempfile::tempdir()?;
    let mut terminal = Terminal::open(&desk, elsewhere.path(), "", &[])?;
    terminal.ask(ASK, ANSWER)?;
    terminal.leave("exit;\r")?;
    let own = elsewhere.path().join("own/platform/sql_history");
    assert_eq!(own.metadata()?.permissions().mode() & 0o777, 0o600);
    Ok(())
}

#[test]
fn a_terminal_that_can_do_nothing_is_enough() -> Result<(), Failure> {
    let (desk, home) = (Desk::open()?, home()?);
    let mut terminal = Terminal::open(&desk, home.path(), "", &[("TERM", "dumb")])?;
    terminal.ask("SELECT 40 + 2\nAS answer;\n", ANSWER)?;
    terminal.ask("\\o json\n", "printed as json")?;
    terminal.leave(END)
}

#[test]
fn columns_and_tables_are_completed_as_the_mixer_has_them() -> Result<(), Failure> {
    let (desk, home) = (Desk::open()?, home()?);
    desk.seed(
        "logs",
        "press",
        &json!([{ "ts": desk.ago(60), "level": "error", "message": "x" }]),
    )?;
    let mut terminal = Terminal::open(&desk, home.path(), "", &[])?;
    terminal.ask(
        "SELECT entity_n\t AS who, lev\t AS how FROM lo\tg\t;\r",
        "WHO    HOW\r\npress  error\r\n",
    )?;
    let tables = terminal.ask("\\d\r", "TABLE_NAME  COLUMNS\r\n")?;
    assert!(tables.contains("logs ") && tables.contains("traces "), "{tables}");
    let columns = terminal.ask("\\d lo\t\r", "COLUMN_NAME  DATA_TYPE")?;
    assert!(
        columns.contains("\r\nmessage ") && !columns.contains("span_name"),
        "{columns}"
    );
    terminal.ask("\\d nowhere\r", "there is no table nowhere")?;
    terminal.leave(END)
}

#[test]
fn an_error_points_at_its_place_and_ends_no_shell() -> Result<(), Failure> {
    let (desk, home) = (Desk::open()?, home()?);
    let mut terminal = Terminal::open(&desk, home.path(), "-p n=2 --limit 1", &[])?;
    let shown = terminal.ask(
        "SELECT 1; SELECT\r  levl FROM logs;\r",
        "\r\n  levl FROM logs\r\n  ^\r\n",
    )?;
    assert!(shown.contains("line 2, column 3") && shown.contains("levl"), "{shown}");
    terminal.ask("DELETE FROM logs;\r", "DELETE is refused")?;
    terminal.ask("\\nothing\r", "unknown command \\nothing")?;
    terminal.ask("SELECT 40 + $n AS answer;\r", ANSWER)?;
    let shown = terminal.ask("SELECT column_name FROM information_schema.columns;\r", "more rows")?;
    assert!(shown.contains("COLUMN_NAME\r\n"), "{shown}");
    let shown = terminal.ask(ASK, ANSWER)?;
    assert!(!shown.contains(" ms"), "{shown}");
    terminal.ask("\\timing\r", "timing is on")?;
    terminal.ask(ASK, "1 row, ")?;
    terminal.ask("\\o csv\r", "printed as csv\r\n")?;
    terminal.ask(ASK, "answer\r\n42\r\n")?;
    terminal.leave(END)
}

#[test]
fn an_interrupt_ends_the_statement_at_the_mixer_too_or_empties_the_line() -> Result<(), Failure> {
    let desk = Desk {
        mixer: TestMixer::with(&[("query.max_concurrent", "1"), ("query.timeout", "\"1h\"")], &[])?,
        now: model::Timestamp::from(std::time::SystemTime::now()),
    };
    let home = home()?;
    let mut terminal = Terminal::open(&desk, home.path(), "", &[])?;
    terminal.keys("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t;\r")?;
    terminal.until("waiting for the Mixer")?;
    terminal.ask(INTERRUPT, "cancelled")?;
    // The Mixer carries out one statement at a time, and that one has no end. How soon it is gone is not this test's: a busy
    // machine's is later.
    terminal.ask_until_answered()?;
    terminal.keys("SELECT nonsense")?;
    terminal.ask(INTERRUPT, "\r\n")?;
    terminal.ask(ASK, ANSWER)?;
    terminal.leave(END)
}

#[test]
fn stored_control_characters_never_reach_the_terminal() -> Result<(), Failure> {
    let (desk, home) = (Desk::open()?, home()?);
    let stored = "a\u{1b}[2J\u{7}\u{9b}31m\u{202e}b\rc\nd";
    desk.seed(
        "logs",
        "press",
        &json!([{ "ts": desk.ago(60), "level": "info", "message": stored }]),
    )?;
    let mut terminal = Terminal::open(&desk, home.path(), "", &[])?;
    for (format, shown) in [
        ("table", "a\\u{1b}[2J"),
        ("json", "a\\u001b[2J"),
        ("ndjson", "a\\u001b[2J"),
        ("csv", "a\\u{1b}[2J"),
    ] {
        terminal.ask(&format!("\\o {format}\r"), &format!("printed as {format}\r\n"))?;
        terminal.keys("SELECT message, message AS \"é\" FROM logs;\r")?;
        // What the editor does to the line that is typed is behind us then.
        terminal.until("\u{1b}[?2004l")?;
        let answer = terminal.until("\u{1b}[?2004h")?;
        let answer = answer.trim_end_matches("\u{1b}[?2004h").replace("\r\n", "\n");
        assert!(answer.contains(shown), "{format}: {answer:?}");
        let is_harmful = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
        assert!(!answer.contains(is_harmful), "{format}: {answer:?}");
        terminal.until(PROMPT)?;
    }
    terminal.leave(END)
}

#[test]
fn a_long_answer_goes_through_the_pager_in_every_format_and_an_interrupt_is_the_pagers() -> Result<(), Failure> {
    let (desk, home) = (Desk::open()?, home()?);
    let long = "SELECT column_name FROM information_schema.columns LIMIT 30;\r";
    let mut terminal = Terminal::open(&desk, home.path(), "", &[("PAGER", "sed s/^/paged:/")])?;
    let table = terminal.ask(long, "paged:COLUMN_NAME")?;
    assert_eq!(table.matches("\npaged:").count(), 31, "{table}");
    terminal.ask("\\o ndjson\r", "printed as ndjson")?;
    assert_eq!(terminal.ask(long, "paged:")?.matches("paged:").count(), 30);
    let short = terminal.ask(ASK, "{\"answer\":42}\r\n")?;
    assert!(!short.contains("paged:"), "{short}");
    terminal.leave(END)?;

    // It goes on until it is interrupted, and says so.
    let pager = "trap 'gone=1' INT; cat > /dev/null; echo paging; while [ -z \"$gone\" ]; do sleep 0.05; done; echo interrupted";
    let mut terminal = Terminal::open(&desk, home.path(), "", &[("PAGER", pager)])?;
    terminal.keys(long)?;
    terminal.until("paging\r\n")?;
    terminal.ask(INTERRUPT, "interrupted\r\n")?;
    terminal.ask(ASK, ANSWER)?;
    terminal.leave(END)?;

    let mut terminal = Terminal::open(&desk, home.path(), "--no-pager", &[("PAGER", pager)])?;
    terminal.ask(long, "COLUMN_NAME\r\n")?;
    terminal.leave(END)
}
