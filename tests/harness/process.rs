//! A child process with its output in a file and its first line awaited.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Failure, eventually};

/// A running program. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    reader: Option<std::thread::JoinHandle<()>>,
    /// Where its standard error goes; appended to by every start.
    pub log: PathBuf,
}

impl Process {
    /// Starts a program in a folder; standard error goes to `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, args: &[&str], folder: &Path, log: &Path) -> Result<Self, Failure> {
        Self::start_with(program, args, folder, log, &[])
    }

    /// The same with more environment variables.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_with(
        program: &Path,
        args: &[&str],
        folder: &Path,
        log: &Path,
        envs: &[(String, String)],
    ) -> Result<Self, Failure> {
        let errors = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors);
        for (name, _) in std::env::vars().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        command.envs(envs.iter().map(|(name, value)| (name, value)));
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
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
            lines,
            reader: Some(reader),
            log: log.to_owned(),
        })
    }

    /// The first line of output that begins with `prefix`, without it.
    ///
    /// # Errors
    /// If the program ends or is silent too long; with the end of its log.
    pub fn line(&mut self, prefix: &str, within: Duration) -> Result<String, Failure> {
        let deadline = std::time::Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(prefix) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(error) => {
                    let ended = self.child.try_wait()?;
                    return Err(format!("no line {prefix:?} ({error}, exit {ended:?}):\n{}", self.log_tail()).into());
                }
            }
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it with -9 and waits for its end.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill9(&mut self) -> Result<(), Failure> {
        let _ = self.child.kill();
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// If it takes longer than `within`; it is killed then.
    pub fn terminate(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        kill(self.pid(), Signal::SIGTERM)?;
        self.wait(within)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it takes longer than `within`.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        eventually("the end of a process", within, || self.child.try_wait().ok().flatten())
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

/// Settings of the machine must not leak into the programs under test.
fn is_ours(name: &str) -> bool {
    name.starts_with("PLATFORM_")
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Runs a program to its end and gives its exit code, output and errors.
///
/// # Errors
/// If it cannot be started.
pub fn run(program: &Path, args: &[&str], folder: &Path, envs: &[(&str, &str)]) -> Result<Finished, Failure> {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    let output = command.envs(envs.iter().copied()).output()?;
    Ok(Finished {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// The children of a process whose command line names `program`.
#[must_use]
pub fn children_of(parent: Pid, program: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let ppid = stat
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            ppid == Some(parent.as_raw()) && name.trim() == program
        })
        .map(Pid::from_raw)
        .collect()
}

/// The memory of a process in bytes, by a field of its `/proc/PID/status`: `VmRSS` is what it has, `VmHWM` the most that it ever had.
///
/// # Errors
/// If there is no such process, or no such field of it.
pub fn memory_of(pid: Pid, field: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let said = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = said.and_then(|said| said.split_whitespace().next());
    Ok(kib.ok_or_else(|| format!("no {field}"))?.parse::<u64>()? << 10)
}

/// Kills a process that one of ours started, with -9.
///
/// # Errors
/// If there is no such process.
pub fn kill9(pid: Pid) -> Result<(), Failure> {
    Ok(kill(pid, Signal::SIGKILL)?)
}

/// Opens a file for appending lines, as a logging program would.
///
/// # Errors
/// If it cannot be opened.
pub fn append_to(path: &Path) -> Result<File, Failure> {
    Ok(OpenOptions::new().create(true).append(true).open(path)?)
}
