//! The configuration of `exec`: what it may say, and the call that it means.

use std::path::{Path, PathBuf};

use model::HumanDuration;
use model::gear_manifest::GearConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::poll_schedule::check_interval;
use super::child_process::ProgramCall;

/// The most bytes that may be asked to be kept of a line or of an output.
const MOST: u32 = 64 << 20;

/// Configuration of `exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecConfig {
    /// The program, by an absolute path that `gears.exec.allow` of the Rack has, and its arguments; there is no shell.
    command: Vec<String>,
    /// `interval`: the program runs again and again and ends by itself; `streaming`: it goes on, and is started again when it ends.
    #[serde(default)]
    pub(super) mode: ExecMode,
    /// The time from one start to the next with `mode: interval`, 1m unless given; a run that takes longer leaves out starts.
    #[serde(default)]
    every: Option<HumanDuration>,
    /// How long a run may take with `mode: interval`, 30s unless given, the time included that it waits for its output to be taken; then it is killed.
    #[serde(default)]
    timeout: Option<HumanDuration>,
    /// The pause before the program is started again with `mode: streaming`, 1s unless given; it doubles up to a minute until a run lasts that long.
    #[serde(default)]
    restart_after: Option<HumanDuration>,
    /// `lines`: each line of standard output is a message; `whole`: all of it is one, when the run has ended.
    #[serde(default)]
    pub(super) framing: OutputFraming,
    /// The most bytes of a line; the rest of a longer one is cut and the message marked `truncated`.
    #[serde(default = "default_max_line")]
    pub(super) max_line: u32,
    /// The most bytes of an output that is a message with `framing: whole`; the rest is cut and the message marked `truncated`.
    #[serde(default = "default_max_output")]
    pub(super) max_output: u32,
    /// Variables of the Rack's own environment that the program gets; it has no other.
    #[serde(default)]
    env: Vec<String>,
    /// The folder in which the program runs; that of the Rack unless given.
    #[serde(default)]
    folder: Option<PathBuf>,
}

/// When the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExecMode {
    /// Again and again.
    #[default]
    Interval,
    /// All the time.
    Streaming,
}

/// What of the output is a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OutputFraming {
    /// A line.
    #[default]
    Lines,
    /// All of it.
    Whole,
}

const fn default_max_line() -> u32 {
    64 * 1024
}

const fn default_max_output() -> u32 {
    1024 * 1024
}

impl ExecConfig {
    pub(super) fn every(&self) -> HumanDuration {
        self.every.unwrap_or(HumanDuration::from_secs(60))
    }

    pub(super) fn timeout(&self) -> HumanDuration {
        self.timeout.unwrap_or(HumanDuration::from_secs(30))
    }

    pub(super) fn restart_after(&self) -> HumanDuration {
        self.restart_after.unwrap_or(HumanDuration::from_secs(1))
    }

    /// The program's path.
    pub(super) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// What runs, with its environment.
    pub(super) fn call(&self, variable: impl Fn(&str) -> Option<String>) -> Result<ProgramCall, String> {
        let environment = self.env.iter().map(|name| {
            let value = variable(name);
            let value = value.ok_or_else(|| {
                format!("env: {name} is not set in the environment of this Rack: set it there, or leave it out")
            });
            Ok((name.clone(), value?))
        });
        Ok(ProgramCall {
            program: self.program().to_owned(),
            arguments: self.command.iter().skip(1).cloned().collect(),
            environment: environment.collect::<Result<_, String>>()?,
            folder: self.folder.clone(),
        })
    }

    /// The keys of the other mode that are given.
    fn misplaced(&self) -> Option<String> {
        let (given, mode) = match self.mode {
            ExecMode::Interval => (vec![("restart_after", self.restart_after)], "interval"),
            ExecMode::Streaming => (vec![("every", self.every), ("timeout", self.timeout)], "streaming"),
        };
        let (key, _) = given.into_iter().find(|(_, value)| value.is_some())?;
        Some(format!("{key} means nothing with mode: {mode}: leave it out"))
    }
}

impl GearConfig for ExecConfig {
    fn validate(&self) -> Result<(), String> {
        if !Path::new(self.program()).is_absolute() {
            return Err("command must begin with the absolute path of a program, such as [/usr/bin/uptime]".into());
        }
        if self.command.iter().any(|part| part.contains('\0')) {
            return Err("command must not have a zero byte in it".into());
        }
        if let Some(misplaced) = self.misplaced() {
            return Err(misplaced);
        }
        for (key, span) in [
            ("every", self.every()),
            ("timeout", self.timeout()),
            ("restart_after", self.restart_after()),
        ] {
            check_interval(key, span)?;
        }
        if self.mode == ExecMode::Streaming && self.framing == OutputFraming::Whole {
            return Err(
                "framing: whole means nothing with mode: streaming, whose output does not end: use lines".into(),
            );
        }
        for (key, bytes) in [("max_line", self.max_line), ("max_output", self.max_output)] {
            if !(1..=MOST).contains(&bytes) {
                return Err(format!("{key} must be between 1 and {MOST}"));
            }
        }
        for name in &self.env {
            check_variable(name)?;
        }
        Ok(())
    }
}

fn check_variable(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!(
            "env: {name:?} is not a variable's name; values come from the environment of the Rack"
        ));
    }
    if name.starts_with("PLATFORM_") {
        return Err(format!(
            "env: {name} is a setting of the Rack itself and is not given away; use another variable"
        ));
    }
    Ok(())
}
