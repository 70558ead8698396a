//! One shell, kept open, as a user at a terminal keeps it: lines go in one by one, background jobs stay.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::{Failure, eventually};

/// Ends the output of a line; nothing of ours prints it.
const MARK: &str = "--the-line-is-done--";

/// A shell in a process group of its own. Dropped, the whole group is ended.
#[derive(Debug)]
pub struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    reader: Option<std::thread::JoinHandle<()>>,
    errors: PathBuf,
}

impl Shell {
    /// Starts `bash` in a folder; standard error goes to `errors`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(folder: &Path, envs: &[(&str, String)], errors: &Path) -> Result<Self, Failure> {
        let mut command = Command::new("bash");
        command
            .args(["--norc", "--noprofile"])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(errors)?)
            .process_group(0);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PLATFORM_")) {
            command.env_remove(name);
        }
        for (name, value) in envs {
            command.env(name, value);
        }
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let input = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            input,
            lines,
            reader: Some(reader),
            errors: errors.to_owned(),
        })
    }

    /// Runs one line: its exit code, and what was printed until it was done (by jobs in the background too).
    ///
    /// # Errors
    /// If it takes longer than `within`; with what was printed on standard error so far.
    pub fn run(&mut self, line: &str, within: Duration) -> Result<(i32, String), Failure> {
        let input = self.input.as_mut().ok_or("the shell is closed")?;
        writeln!(input, "{line}\nprintf '\\n%s %s\\n' {MARK} $?")?;
        input.flush()?;
        let deadline = Instant::now() + within;
        let mut printed = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(next) = self.lines.recv_timeout(left) else {
                return Err(format!("{line}: not done within {within:?}:\n{printed}\n{}", self.errors()).into());
            };
            if let Some(code) = next.strip_prefix(MARK) {
                return Ok((code.trim().parse()?, printed));
            }
            printed.push_str(&next);
            printed.push('\n');
        }
    }

    /// What was printed on standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.input.take());
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX));
        let _ = killpg(group, Signal::SIGTERM);
        // The output is closed when the last program of the group has ended.
        let reader = self.reader.take();
        let ended = || {
            reader
                .as_ref()
                .is_none_or(std::thread::JoinHandle::is_finished)
                .then_some(())
        };
        if eventually("the end of the group", Duration::from_secs(10), ended).is_err() {
            let _ = killpg(group, Signal::SIGKILL);
        }
        let _ = self.child.wait();
        if let Some(reader) = reader {
            let _ = reader.join();
        }
    }
}
