//! The SQL shell: a read-eval-print loop at a terminal.
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
use tokio::signal::unix::{SignalKind, signal};

use super::error_caret::error_caret;
use super::history::HistoryFile;
use super::line_editor::LineEditor;
use super::shell_commands::{HELP, ShellAction, ShellCommand};
use super::{ask, statement_splitter};
use crate::args::{GlobalArgs, SqlArgs};
use crate::client::{ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::RowPrinter;

const PROMPT: &str = "sql> ";

/// Reads statements until the user exits.
pub(super) fn run(global: &GlobalArgs, args: &SqlArgs) -> Result<(), Error> {
    // Its worker hears an interrupt when it comes: one that was meant for a pager is over before the next statement listens.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let shell = SqlShell {
        args,
        printer: RowPrinter::from(&args.api).exact(),
        is_timed: false,
        runtime,
    };
    let url = without_credentials(ApiClient::new(&args.api).base()?);
    say(&format!(
        "SQL at {url}: a statement ends with ;   \\? shows help   Ctrl-D exits"
    ));
    shell.read(LineEditor::open(&args.api, HistoryFile::find(global))?)
}

struct SqlShell<'a> {
    args: &'a SqlArgs,
    printer: RowPrinter,
    is_timed: bool,
    runtime: Runtime,
}

impl SqlShell<'_> {
    fn read(mut self, mut editor: LineEditor) -> Result<(), Error> {
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
            match ShellCommand::of(&text) {
                Ok(Some(ShellCommand::Leave)) => return Ok(()),
                Ok(Some(ShellCommand::Do(act))) => self.execute_action(act),
                Ok(None) => self.run_statements(&text),
                Err(reason) => say(&reason),
            }
        }
    }

    fn execute_action(&mut self, act: ShellAction) {
        match act {
            ShellAction::Help => say(HELP),
            ShellAction::Timing(wanted) => {
                self.is_timed = wanted.unwrap_or(!self.is_timed);
                say(if self.is_timed { "timing is on" } else { "timing is off" });
            }
            ShellAction::Output(wanted) => {
                self.printer.format = wanted.unwrap_or(self.printer.format);
                say(&format!("answers are printed as {}", self.printer.format));
            }
            ShellAction::Describe(what) => {
                self.answer(what.into_query());
            }
        }
    }

    /// Carries out statements in order, up to the first that fails.
    fn run_statements(&self, text: &str) {
        for statement in statement_splitter::split(text).statements {
            let given = self.args.parameters.iter();
            let meant = given.filter(|(name, _)| statement_splitter::has_parameter(statement, name));
            let asked = ShellQuery {
                text: statement.to_owned(),
                parameters: meant.cloned().collect(),
                limit: self.args.limit,
                missing: None,
            };
            if !self.answer(asked) {
                break;
            }
        }
    }

    /// Asks and prints; whether there was an answer.
    fn answer(&self, asked: ShellQuery) -> bool {
        let work = Arc::new(StatementRun {
            client: ApiClient::new(&self.args.api),
            asked,
            printer: self.printer,
            is_timed: self.is_timed,
            is_stopped: AtomicBool::new(false),
        });
        match self.run(&work) {
            Ok(()) => true,
            Err(StatementAbort::Stopped) => {
                say("cancelled");
                false
            }
            Err(StatementAbort::Failed(error)) => {
                error.report();
                if let Some(lines) = error_caret(&error, &work.asked.text) {
                    say(&lines);
                }
                false
            }
        }
    }

    /// Does the work; an interrupt stops it.
    fn run(&self, work: &Arc<StatementRun>) -> Result<(), StatementAbort> {
        self.runtime.block_on(async {
            let interrupts = signal(SignalKind::interrupt());
            let mut interrupts = interrupts.map_err(|error| StatementAbort::Failed(error.into()))?;
            let mut working = {
                let work = Arc::clone(work);
                tokio::task::spawn_blocking(move || work.run())
            };
            let ended = loop {
                tokio::select! {
                    ended = &mut working => break ended,
                    _ = interrupts.recv() => work.stop(),
                }
            };
            ended.unwrap_or_else(|died| Err(StatementAbort::Failed(Error::Answer(died.to_string()))))
        })
    }
}

/// How a statement came to no proper end.
enum StatementAbort {
    /// By an interrupt, before all of it was printed.
    Stopped,
    Failed(Error),
}

/// What the Mixer is asked.
pub(super) struct ShellQuery {
    pub(super) text: String,
    pub(super) parameters: Row,
    pub(super) limit: Option<u64>,
    /// What it means if there are no rows, should that be an error.
    pub(super) missing: Option<String>,
}

/// One statement, from the question to the printed answer.
struct StatementRun {
    client: ApiClient,
    asked: ShellQuery,
    printer: RowPrinter,
    is_timed: bool,
    is_stopped: AtomicBool,
}

impl StatementRun {
    fn run(&self) -> Result<(), StatementAbort> {
        let began = Instant::now();
        let asked = &self.asked;
        let answer = ask(&self.client, &asked.text, asked.parameters.clone(), asked.limit);
        let mut answer = match answer {
            Err(_) if self.is_stopped() => return Err(StatementAbort::Stopped),
            answer => answer.map_err(StatementAbort::Failed)?,
        };
        let took = began.elapsed();
        if let (true, Some(missing)) = (answer.rows.is_empty(), &asked.missing) {
            return Err(StatementAbort::Failed(Error::NotFound(missing.clone())));
        }
        let (printer, names) = answer.prepare(self.printer);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let printed = printer.rows_until(&answer.rows, &names, || self.is_stopped());
        if !printed.map_err(|error| StatementAbort::Failed(error.into()))? {
            return Err(StatementAbort::Stopped);
        }
        if let Err(partial) = answer.notes(asked.limit) {
            partial.report();
        }
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

/// Says something to whoever sits there.
fn say(text: &str) {
    let lines: Vec<_> = text.lines().map(escape_controls).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_both_ends() {
        assert_eq!(
            timing(Duration::from_micros(12_340), Some(4), 1),
            "1 row, 12.3 ms, 4 ms of it at the Mixer"
        );
        assert_eq!(timing(Duration::from_secs(1), None, 0), "0 rows, 1000.0 ms");
    }
}
