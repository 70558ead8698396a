//! Line editor of the SQL shell: end of a statement, completion, history.
//!
//! # Invariants
//!
//! - A line is a command, or statements up to a `;`; until then it goes on.
//! - What is typed is kept as soon as it is entered. A history that cannot be kept is no reason to stop.

use std::cell::RefCell;
use std::time::Duration;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Helper};

use super::completion::{CompletionSchema, complete};
use super::history::HistoryFile;
use super::shell_commands::is_command;
use super::statement_splitter::split;
use crate::args::ApiArgs;
use crate::client::ApiClient;
use crate::error::Error;

/// The longest that somebody who completes a word waits for the tables.
const PATIENCE: Duration = Duration::from_millis(800);
/// Statements that are kept.
const KEPT: usize = 1_000;

/// Reads lines.
pub(super) struct LineEditor {
    inner: rustyline::Editor<EditorHelper, DefaultHistory>,
    history: HistoryFile,
}

impl LineEditor {
    pub(super) fn open(api: &ApiArgs, history: HistoryFile) -> Result<Self, Error> {
        let failed = |error: ReadlineError| Error::Read {
            path: "the terminal".into(),
            source: std::io::Error::other(error),
        };
        let config = Config::builder()
            .max_history_size(KEPT)
            .map_err(failed)?
            .completion_type(CompletionType::List)
            .build();
        let mut inner = rustyline::Editor::with_config(config).map_err(failed)?;
        inner.set_helper(Some(EditorHelper {
            client: ApiClient::within(api, PATIENCE),
            known: RefCell::default(),
        }));
        if let Some(path) = history.path() {
            let _ = inner.load_history(path);
        }
        Ok(Self { inner, history })
    }

    /// The next line that is not empty.
    pub(super) fn line(&mut self, prompt: &str) -> Result<String, ReadlineError> {
        loop {
            let line = self.inner.readline(prompt)?;
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if self.inner.add_history_entry(line)?
                && let Some(path) = self.history.path()
            {
                let _ = self.inner.append_history(path);
            }
            return Ok(line.to_owned());
        }
    }
}

/// What the editor asks about a line.
struct EditorHelper {
    client: ApiClient,
    /// The tables, once somebody wanted to know.
    known: RefCell<Option<CompletionSchema>>,
}

impl Helper for EditorHelper {}
impl Highlighter for EditorHelper {}
impl Hinter for EditorHelper {
    type Hint = String;
}

impl Validator for EditorHelper {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let line = context.input().trim();
        Ok(if is_command(line) || split(line).rest.is_empty() {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Completer for EditorHelper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let mut known = self.known.borrow_mut();
        if known.is_none() {
            *known = CompletionSchema::ask(&self.client).ok();
        }
        Ok(complete(
            line,
            at,
            known.as_ref().unwrap_or(&CompletionSchema::default()),
        ))
    }
}
