//! `exec` as data: its manifest and its configuration.

use std::path::{Path, PathBuf};

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::poll_interval::check_interval;

/// The most bytes that may be asked to be kept of a line or of an output.
const MOST: u32 = 64 << 20;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "exec",
    summary: "runs a program at an interval, or keeps one running; what it writes becomes messages",
    inputs: &[],
    outputs: &["out"],
    doc: "The operator of a Rack allows each program by its path in `gears.exec.allow` of `platform.toml`; none is allowed unless they do. \
          One that the Rack's user can write, or replace in its folder, is refused: a scenario could write it with `file_out`. A Rack that runs as root can write any. \
          The arguments and the folder are the scenario's, and so is the content of any file that the Rack can write: allow no program that is dangerous \
          with any of them, such as one that runs what a file says. Messages have `exec.run`, the number of the run, in their meta, \
          and with `framing: whole` `process.exit.code`, or `exec.signal` where a signal ended the program. \
          What it writes to standard error becomes log records: 1000 lines at once and 100 a second beyond, of each the first 8 KiB. An exit code that is not 0 counts as an error. When the inbox behind is full, the program waits. \
          When the gear stops, the program gets SIGTERM and shortly after SIGKILL, with all of its process group; when the Rack is killed, it is killed too, \
          unless it is a set-user-ID program such as sudo.",
    example: include_str!("../../examples/gears/exec.yaml"),
    schema: gear_manifest::schema::<ExecConfig>,
    check: gear_manifest::check::<ExecConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// The program, by an absolute path that `gears.exec.allow` of the Rack has, and its arguments; there is no shell.
    pub command: Vec<String>,
    /// `interval`: the program runs again and again and ends by itself; `streaming`: it goes on, and is started again when it ends.
    #[serde(default)]
    pub mode: ExecMode,
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
    pub framing: OutputFraming,
    /// The most bytes of a line; the rest of a longer one is cut and the message marked `truncated`.
    #[serde(default = "default_max_line")]
    pub max_line: u32,
    /// The most bytes of an output that is a message with `framing: whole`; the rest is cut and the message marked `truncated`.
    #[serde(default = "default_max_output")]
    pub max_output: u32,
    /// Variables of the Rack's own environment that the program gets, which its `policy.env` must allow; it has no other.
    #[serde(default)]
    #[schemars(extend("x-access" = "variables"))]
    pub env: Vec<String>,
    /// The folder in which the program runs; that of the Rack unless given.
    #[serde(default)]
    #[schemars(extend("x-access" = "unchecked"))]
    pub folder: Option<PathBuf>,
}

/// When the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecMode {
    /// Again and again.
    #[default]
    Interval,
    /// All the time.
    Streaming,
}

/// What of the output is a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFraming {
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
    /// The time from one start to the next.
    #[must_use]
    pub fn every(&self) -> HumanDuration {
        self.every.unwrap_or(HumanDuration::from_secs(60))
    }

    /// How long a run may take.
    #[must_use]
    pub fn timeout(&self) -> HumanDuration {
        self.timeout.unwrap_or(HumanDuration::from_secs(30))
    }

    /// The shortest pause before the program is started again.
    #[must_use]
    pub fn restart_after(&self) -> HumanDuration {
        self.restart_after.unwrap_or(HumanDuration::from_secs(1))
    }

    /// The program's path.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused_with_the_fix() {
        for (config, says) in [
            (json!({ "command": [] }), "absolute path"),
            (json!({ "command": ["date"] }), "absolute path"),
            (json!({ "command": ["/bin/date", "a\u{0}"] }), "zero byte"),
            (
                json!({ "command": ["/bin/date"], "every": "0s" }),
                "every must be between",
            ),
            (
                json!({ "command": ["/bin/date"], "mode": "streaming", "timeout": "5s" }),
                "timeout means nothing with mode: streaming",
            ),
            (
                json!({ "command": ["/bin/date"], "restart_after": "5s" }),
                "restart_after means nothing with mode: interval",
            ),
            (
                json!({ "command": ["/bin/date"], "mode": "streaming", "framing": "whole" }),
                "use lines",
            ),
            (
                json!({ "command": ["/bin/date"], "max_line": 0 }),
                "max_line must be between",
            ),
            (
                json!({ "command": ["/bin/date"], "env": ["A=b"] }),
                "not a variable's name",
            ),
            (
                json!({ "command": ["/bin/date"], "env": ["PLATFORM_SNAKE_TOKEN"] }),
                "not given away",
            ),
        ] {
            let error = gear_manifest::config::<ExecConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
