//! The errors of a command, and the exit code of each (sysexits).

use std::io::{self, Write};
use std::path::PathBuf;

use chassis::ExitReason;
use model::KeyFingerprint;
use model::scenario::SourceDiagnostic;

use crate::control_chars::escape_controls;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot reach the Mixer's API at {url}: {reason}; is platform-mixer running? (--api-url names another)")]
    Unreachable { url: String, reason: String },
    #[error(
        "the Mixer's API at {url} did not answer completely in time ({reason}): ask for fewer rows or a shorter time \
         range, or try again later; a requested change may have been made"
    )]
    Slow { url: String, reason: String },
    #[error("{title}: {detail}")]
    Refused {
        status: u16,
        title: String,
        detail: String,
        /// Line and column of a statement, from 1.
        position: Option<(usize, usize)>,
    },
    #[error("the Mixer's answer cannot be read: {0}")]
    Answer(String),
    /// Somebody changed it.
    #[error("the audit log is not as it was recorded: {0}")]
    AuditLog(String),
    /// Nobody can say whether anybody changed it: the key that is known is not of this cluster.
    #[error(
        "no chain of successions leads from {known} to {present}, the key that the Mixer has now: one of the two is of another \
         cluster"
    )]
    NoSuccession {
        known: KeyFingerprint,
        present: KeyFingerprint,
    },
    #[error("{0}")]
    NotFound(String),
    /// What came is printed, and is not all that was asked for.
    #[error("the answer is partial: {0}")]
    Partial(String),
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {reason}")]
    Data { path: PathBuf, reason: String },
    /// Everything that is wrong with a scenario, a line each.
    #[error("{}", faults.iter().map(|fault| format!("{origin}:{fault}")).collect::<Vec<_>>().join("\n"))]
    Scenario {
        origin: String,
        faults: Vec<SourceDiagnostic>,
    },
    /// Everything that is wrong with some files, a line each.
    #[error("{}", .0.join("\n"))]
    Files(Vec<String>),
    /// Warnings that are told already, where none may be.
    #[error("{count} {}: {spared}", if *count == 1 { "warning" } else { "warnings" })]
    Warned { count: usize, spared: &'static str },
    /// An activation that not every Rack follows.
    #[error(
        "{count} of {all} Racks do not run it: {behind}; platform scenario status shows their progress, rollback \
         reverts"
    )]
    Behind { behind: String, count: usize, all: usize },
    /// A change that was not made: it waits.
    #[error(
        "nothing was changed yet: a second person must give the same command, with another token, before {until} (request {id}; \
         platform requests list shows what waits)"
    )]
    SecondPerson { id: u64, until: String },
    /// Cases of a test file that are told already.
    #[error("{failed} of {all} cases failed")]
    Failed { failed: usize, all: usize },
    /// Somebody ended it before it was done.
    #[error("interrupted")]
    Interrupted,
    /// A stream that was to go on.
    #[error("the stream has ended: {0}")]
    Ended(String),
    /// Letters that are not what was asked for.
    #[error(
        "of {matched} letters {refused} were refused and {waiting} wait for their gear; platform dlq show ID says why, \
         waiting ones are replayed when their Rack accepts them"
    )]
    Letters { matched: u64, refused: u64, waiting: u64 },
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    Usage(String),
    /// What `platform doctor` says at its end.
    #[error("{failed} of {all} checks failed; beside each stands what to do")]
    Unwell {
        failed: usize,
        all: usize,
        exit: ExitReason,
    },
    #[error("cannot write {path}")]
    WriteFile { path: PathBuf, source: io::Error },
    /// The agent or a log file.
    #[error("{reason}")]
    Process { reason: String, exit: ExitReason },
    #[error("cannot write the answer")]
    Write(#[from] io::Error),
}

impl Error {
    /// That an answer is partial, if there are reasons for it.
    pub(crate) fn if_partial(reasons: impl IntoIterator<Item = String>) -> Result<(), Self> {
        let reasons: Vec<_> = reasons.into_iter().collect();
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Self::Partial(reasons.join("; ")))
    }

    /// The sysexits code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } | Self::Slow { .. } | Self::Ended(_) => 69,
            Self::Refused { status, .. } => match status {
                404 => 1,
                401 | 403 => 77,
                429 => 69,
                400..=499 => 64,
                _ => 69,
            },
            Self::NotFound(_) | Self::Failed { .. } => 1,
            Self::Partial(_) => ExitReason::Data.code(),
            Self::Answer(_)
            | Self::AuditLog(_)
            | Self::NoSuccession { .. }
            | Self::Data { .. }
            | Self::Scenario { .. }
            | Self::Warned { .. }
            | Self::Files(_) => 65,
            Self::Letters { refused: 0, .. } | Self::Behind { .. } | Self::SecondPerson { .. } => 69,
            Self::Letters { .. } => 65,
            Self::Read { .. } | Self::Write(_) | Self::WriteFile { .. } => 74,
            Self::Interrupted => 130,
            Self::Config(_) => 78,
            Self::Usage(_) => 64,
            Self::Process { exit, .. } | Self::Unwell { exit, .. } => exit.code(),
        }
    }

    /// Whether asking again at once may help. What took too long would again.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_transient() && !matches!(self, Self::Slow { .. })
    }

    /// Whether the same request may succeed later without anybody doing anything.
    pub(crate) fn is_transient(&self) -> bool {
        self.exit_code() == ExitReason::Unavailable.code() && !matches!(self, Self::SecondPerson { .. })
    }

    /// Whether the reader of our output is gone: not an error of ours.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Says on standard error what went wrong.
    pub(crate) fn report(&self) {
        // A reason may quote what was stored; only its line breaks are ours.
        let chain = self.chain();
        let lines: Vec<_> = chain.lines().map(escape_controls).collect();
        let _ = writeln!(io::stderr(), "platform: {}", lines.join("\n"));
    }

    /// The message and its causes.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl From<chassis::Error> for Error {
    fn from(error: chassis::Error) -> Self {
        Self::Process {
            exit: error.exit(),
            reason: error.to_string(),
        }
    }
}
