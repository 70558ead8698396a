//! The shell: statements typed at a terminal, carried out one after the other, until it is left.
//!
//! # Invariants
//!
//! - An error ends no shell. An interrupt ends what is running (the connection breaks off, so that the Mixer ends it too),
//!   or empties the line.
//! - Answers go to standard output, through the pager in every format; everything else goes to standard error.
//!
//! # Not here
//!
//! Whether a statement is right, and what it may do: the Mixer decides.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chassis::config::without_credentials;
use rustyline::error::ReadlineError;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::commands::{Command, HELP};
use super::editor::Editor;
use super::history::History;
use super::{ask, statements};
use crate::args::{Global, SqlArgs};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output::{Printer, safe};
use crate::screen::{Screen, text_width};

const PROMPT: &str = "sql> ";

/// Asks for statements until somebody leaves.
pub(super) fn run(global: &Global, args: &SqlArgs) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let interrupts = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    let shell = Shell {
        args,
        printer: Printer::from(&args.api),
        is_timed: false,
        runtime,
        interrupts,
    };
    let url = without_credentials(&args.api.api_url);
    say(&format!(
        "SQL at {url}: a statement ends with ;   \\? helps   Ctrl-D leaves"
    ));
    shell.read(Editor::open(&args.api, History::find(global))?)
}

struct Shell<'a> {
    args: &'a SqlArgs,
    printer: Printer,
    is_timed: bool,
    runtime: Runtime,
    interrupts: Signal,
}

impl Shell<'_> {
    fn read(mut self, mut editor: Editor) -> Result<(), Error> {
        loop {
            let text = match editor.line(PROMPT) {
                Ok(text) => text,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => {
                    return Err(Error::Read {
                        path: "the terminal".into(),
                        source: io::Error::other(error),
                    });
                }
            };
            match Command::of(&text) {
                Ok(Some(Command::Leave)) => return Ok(()),
                Ok(Some(command)) => self.obey(command),
                Ok(None) => self.carry_out(&text),
                Err(reason) => say(&reason),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Leave => {}
            Command::Help => say(HELP),
            Command::Timing(wanted) => {
                self.is_timed = wanted.unwrap_or(!self.is_timed);
                say(if self.is_timed { "timing is on" } else { "timing is off" });
            }
            Command::Output(Some(format)) => self.printer.format = format,
            Command::Output(None) => say(&format!("answers are printed as {}", self.printer.format)),
            Command::Describe(what) => {
                let (text, parameters) = what.statement();
                let _ = self.carry_out_one(text, parameters, None);
            }
        }
    }

    /// Carries out statements in order, up to the first that fails.
    fn carry_out(&mut self, text: &str) {
        for statement in statements::split(text).statements {
            let given = self.args.parameters.iter();
            let meant = given.filter(|(name, _)| statements::has_parameter(statement, name));
            if !self.carry_out_one(statement, meant.cloned().collect(), self.args.limit) {
                break;
            }
        }
    }

    /// Whether the statement was answered.
    fn carry_out_one(&mut self, text: &str, parameters: Row, limit: Option<u64>) -> bool {
        let began = Instant::now();
        let work = Work {
            client: Client::new(&self.args.api),
            text: text.to_owned(),
            parameters,
            limit,
            printer: self.printer,
            is_timed: self.is_timed,
            began,
            is_stopped: AtomicBool::new(false),
        };
        match self.run(Arc::new(work)) {
            Ok(()) => true,
            Err(Ended::Stopped) => {
                say("cancelled");
                false
            }
            Err(Ended::Failed(error)) => {
                error.complain();
                if let Error::Refused {
                    position: Some(position),
                    ..
                } = error
                {
                    point(text, position);
                }
                false
            }
        }
    }

    /// Does the work; an interrupt stops it.
    fn run(&mut self, work: Arc<Work>) -> Result<(), Ended> {
        let interrupts = &mut self.interrupts;
        self.runtime.block_on(async {
            let mut working = {
                let work = Arc::clone(&work);
                tokio::task::spawn_blocking(move || work.run())
            };
            let ended = loop {
                tokio::select! {
                    ended = &mut working => break ended,
                    _ = interrupts.recv() => work.stop(),
                }
            };
            ended.unwrap_or_else(|died| Err(Ended::Failed(Error::Answer(died.to_string()))))
        })
    }
}

/// How a statement came to no proper end.
enum Ended {
    /// By an interrupt, before it was answered.
    Stopped,
    Failed(Error),
}

/// One statement, from the question to the printed answer.
struct Work {
    client: Client,
    text: String,
    parameters: Row,
    limit: Option<u64>,
    printer: Printer,
    is_timed: bool,
    began: Instant,
    is_stopped: AtomicBool,
}

impl Work {
    fn run(&self) -> Result<(), Ended> {
        let answer = ask(&self.client, &self.text, self.parameters.clone(), self.limit);
        let mut answer = match answer {
            Err(_) if self.is_stopped() => return Err(Ended::Stopped),
            answer => answer.map_err(Ended::Failed)?,
        };
        let took = self.began.elapsed();
        let names = answer.prepare(self.printer);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let printed = self.printer.rows_until(&answer.rows, &names, || self.is_stopped());
        printed.map_err(|error| Ended::Failed(error.into()))?;
        answer.notes();
        if self.is_timed {
            say(&timing(took, answer.ms, answer.rows.len()));
        }
        Ok(())
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.client.close();
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

fn timing(took: Duration, mixer: Option<u64>, rows: usize) -> String {
    let mixer = mixer.map_or_else(String::new, |ms| format!(", {ms} ms of it at the Mixer"));
    let rows = if rows == 1 {
        "1 row".to_owned()
    } else {
        format!("{rows} rows")
    };
    format!("{rows}, {:.1} ms{mixer}", took.as_secs_f64() * 1e3)
}

/// Shows the line of a statement that went wrong, and where.
fn point(text: &str, position: (usize, usize)) {
    let width = Screen::of_stdout().map_or(usize::MAX, |screen| screen.width);
    if let Some(lines) = pointer(text, position, width) {
        say(&lines);
    }
}

/// The line and, below, a mark; a line too long begins where the mark is in its middle.
fn pointer(text: &str, (line, column): (usize, usize), width: usize) -> Option<String> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let before = column.checked_sub(1).filter(|before| *before <= line.chars().count())?;
    let cells = |from: usize, count: usize| -> String { line.chars().skip(from).take(count).map(shown).collect() };
    let from = if text_width(&cells(0, usize::MAX)) < width {
        0
    } else {
        before.saturating_sub(width / 2)
    };
    let head = cells(from, before - from);
    let mut shown = head.clone();
    for c in line.chars().skip(before).map(self::shown) {
        if text_width(&shown) + text_width(&c) >= width {
            break;
        }
        shown.push_str(&c);
    }
    Some(format!("{shown}\n{}^", " ".repeat(text_width(&head))))
}

/// A character of a line; a tab is a space.
fn shown(c: char) -> String {
    if c == '\t' {
        " ".to_owned()
    } else {
        safe(c.encode_utf8(&mut [0; 4])).into_owned()
    }
}

/// Says something to whoever sits there.
fn say(text: &str) {
    let lines: Vec<_> = text.lines().map(safe).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::output::is_bad;

    #[test]
    fn the_mark_stands_below_what_is_wrong() {
        assert_eq!(pointer("SELECT x", (1, 8), 80).as_deref(), Some("SELECT x\n       ^"));
        assert_eq!(
            pointer("SELECT\n\t'温', x", (2, 7), 80).as_deref(),
            Some(" '温', x\n       ^")
        );
        assert_eq!(pointer("SELECT", (1, 7), 80).as_deref(), Some("SELECT\n      ^"));
        assert_eq!(
            pointer("abcdefghijklmnopqrstuvwxyz", (1, 14), 10).as_deref(),
            Some("ijklmnopq\n     ^")
        );
        for nowhere in [(0, 1), (1, 0), (1, 9), (2, 1)] {
            assert_eq!(pointer("SELECT", nowhere, 80), None, "{nowhere:?}");
        }
    }

    #[test]
    fn times_are_those_of_both_ends() {
        assert_eq!(
            timing(Duration::from_micros(12_340), Some(4), 1),
            "1 row, 12.3 ms, 4 ms of it at the Mixer"
        );
        assert_eq!(timing(Duration::from_secs(1), None, 0), "0 rows, 1000.0 ms");
    }

    proptest! {
        #[test]
        fn a_mark_needs_two_lines_that_a_terminal_only_shows(
            text in crate::hostile::text(), line in 0usize..3, column in 0usize..20, width in 20usize..60,
        ) {
            if let Some(shown) = pointer(&text, (line, column), width) {
                prop_assert_eq!(shown.lines().count(), 2);
                prop_assert!(!shown.replace('\n', "").contains(is_bad), "{:?}", shown);
            }
        }
    }
}
