//! System calls that fail: strace refuses the N-th call of a kind, in each thread, and writes down which calls that were.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::disk::Lacking;

/// A call to refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The system call.
    pub call: &'static str,
    /// What it says.
    pub errno: &'static str,
    /// Which one, counted from 1 in each thread.
    pub at: u32,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.call, self.errno, self.at)
    }
}

/// Whether strace can refuse calls here.
///
/// # Errors
/// Why it cannot.
pub fn available() -> Result<(), Lacking> {
    let arguments = [
        "-f",
        "--seccomp-bpf",
        "-e",
        "trace=getppid",
        "-e",
        "inject=getppid:retval=7",
        "true",
    ];
    let done = Command::new("strace").args(arguments).output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(Lacking(format!(
            "strace: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))),
        Err(error) => Err(Lacking(format!(
            "strace: {error}; install it with: apt-get install strace"
        ))),
    }
}

/// The words before the program that make it be traced, with the trace in `log`.
#[must_use]
pub fn wrapper(calls: &[&str], refusal: Option<&Refusal>, log: &Path) -> Vec<String> {
    let mut words: Vec<String> = ["strace", "-f", "--seccomp-bpf", "-y", "-qq", "-s", "0", "-o"]
        .map(str::to_owned)
        .to_vec();
    words.push(log.display().to_string());
    words.extend(["-e".to_owned(), format!("trace={}", calls.join(","))]);
    if let Some(Refusal { call, errno, at }) = refusal {
        words.extend(["-e".to_owned(), format!("inject={call}:error={errno}:when={at}")]);
    }
    words
}

/// What a trace says.
#[derive(Debug, Default)]
pub struct Trace {
    /// The refused calls on files below the folder.
    pub ours: Vec<String>,
    /// All refused calls.
    pub refused: usize,
    /// The highest number of calls of one kind in one thread that concern the folder, by kind.
    pub calls: std::collections::BTreeMap<String, u32>,
}

/// Reads a trace; `folder` tells the calls that matter from those of the loader and the runtime.
///
/// # Errors
/// If there is none.
pub fn read(log: &Path, folder: &Path) -> Result<Trace, Failure> {
    let folder: PathBuf = folder.to_owned();
    let folder = folder.display().to_string();
    let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    let mut trace = Trace::default();
    let mut counted: std::collections::BTreeMap<(String, String), u32> = std::collections::BTreeMap::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        if call.contains("(INJECTED)") {
            trace.refused += 1;
            // An unfinished call's first line has the path; its refusal is on a line of its own only when it was resumed.
            if call.contains(&folder) || call.starts_with("<...") {
                trace.ours.push(call.to_owned());
            }
        }
        let Some((name, _)) = call.split_once('(') else {
            continue;
        };
        let count = counted.entry((thread.to_owned(), name.to_owned())).or_default();
        *count += 1;
        if call.contains(&folder) {
            let most = trace.calls.entry(name.to_owned()).or_default();
            *most = (*most).max(*count);
        }
    }
    Ok(trace)
}
