//! Configuration errors: every problem with its place, the key and the fix.

use std::fmt;
use std::path::PathBuf;

/// Where a value stands or came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// A line of a file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A command-line flag.
    Flag,
    /// The table of defaults.
    Default,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag => f.write_str("flag"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigProblem {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        reason: String,
    },
    /// The file is not TOML.
    #[error("{place}: not valid TOML: {reason}")]
    Syntax {
        /// Where.
        place: ValueOrigin,
        /// The parser's words.
        reason: String,
    },
    /// No such key.
    #[error("{place}: unknown key {key}; the nearest known key is {nearest}")]
    UnknownKey {
        /// Where.
        place: ValueOrigin,
        /// The key as written.
        key: String,
        /// A known key.
        nearest: &'static str,
    },
    /// No such section.
    #[error("{place}: unknown section [{key}]; the nearest known section is [{nearest}]")]
    UnknownSection {
        /// Where.
        place: ValueOrigin,
        /// The section as written.
        key: String,
        /// A known section.
        nearest: String,
    },
    /// A key of an earlier version.
    #[error("{place}: {key} is no longer a key: {instead}")]
    Removed {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: String,
        /// What replaced it.
        instead: &'static str,
    },
    /// A value of another type.
    #[error("{place}: {key} must be {wanted}, not {found}")]
    WrongType {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: String,
        /// What is wanted.
        wanted: String,
        /// What stands there.
        found: String,
    },
    /// A value of the right type that is not allowed.
    #[error("{place}: {key} = {value} is not allowed: it must be {wanted}")]
    BadValue {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wanted.
        wanted: String,
    },
    /// A key that stands there twice, in sections that differ in case only.
    #[error("{place}: {key} is given twice; section names are case-insensitive")]
    Twice {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: &'static str,
    },
    /// A secret in a file.
    #[error("{place}: {key} is a secret and must not be in a file: {fix}")]
    PlainSecret {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: String,
        /// What to do instead, with the name of the variable.
        fix: String,
    },
    /// A reference to a variable that is not set.
    #[error("{place}: {key} refers to the environment variable {name}, which is not set")]
    UnsetReference {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: String,
        /// The variable.
        name: String,
    },
    /// A switch that exists in the environment only.
    #[error("{place}: {key} cannot be set in a file; set the environment variable {env}")]
    EnvOnly {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: &'static str,
        /// The variable.
        env: String,
    },
    /// Values that do not go together.
    #[error("{place}: {key}: {sentence}")]
    Conflict {
        /// Where.
        place: ValueOrigin,
        /// The key.
        key: &'static str,
        /// What is wrong and what to do.
        sentence: String,
    },
}

/// Everything that is wrong with a configuration; never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigErrors {
    problems: Vec<ConfigProblem>,
}

impl ConfigErrors {
    /// The problems, or `Ok` if there are none.
    ///
    /// # Errors
    /// If there are any.
    pub fn unless_empty(problems: Vec<ConfigProblem>) -> Result<(), Self> {
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Self { problems })
        }
    }

    /// The problems, in the order of the sources.
    #[must_use]
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }
}

impl From<ConfigProblem> for ConfigErrors {
    fn from(problem: ConfigProblem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
