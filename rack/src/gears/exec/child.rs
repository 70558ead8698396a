//! A child process in a process group of its own: how it begins, what it writes, and how it ends.
//!
//! ```text
//! start ─▶ runs ─┬─ ends by itself ────────────────────────▶ what is left of its group is killed
//!                └─ asked: SIGTERM ─▶ ends, or GRACE passes ─▶ SIGKILL, to the whole group
//! ```
//!
//! # Invariants
//!
//! - Nothing of the group is left when the child has ended, when this is dropped, or when the gear is cut off.
//! - The child itself is killed with the Rack, whatever kills that ([`chassis::child_keeper`]); what it has started itself then ends by
//!   its closed pipes, or not at all.
//! - Its environment is empty but for what is given to it.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use chassis::child_keeper::ChildKeeper;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

/// How long a child may take to end when it is asked to.
const GRACE: Duration = Duration::from_millis(300);
/// How long an output of a child that has ended may be silent: somebody else has it open.
const QUIET: Duration = Duration::from_millis(200);
/// What a read asks for, in bytes: what a pipe holds.
const READ: usize = 64 * 1024;

/// What runs.
#[derive(Debug, Clone)]
pub(super) struct ProgramCall {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) folder: Option<PathBuf>,
}

/// A child that runs.
pub(super) struct ChildProcess {
    child: Child,
    group: ProcessGroup,
    ended: CancellationToken,
}

/// One of its outputs.
pub(super) struct OutputReader<R> {
    from: R,
    buffer: Vec<u8>,
    ended: CancellationToken,
}

/// What is read of a child.
pub(super) struct ChildOutputs {
    pub(super) out: Option<OutputReader<ChildStdout>>,
    pub(super) err: Option<OutputReader<ChildStderr>>,
}

impl ProgramCall {
    /// Starts the program.
    pub(super) async fn start(&self, keeper: &ChildKeeper) -> io::Result<(ChildProcess, ChildOutputs)> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let mut child = keeper.spawn(command).await?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        let ended = CancellationToken::new();
        let outputs = ChildOutputs {
            out: child.stdout.take().map(|from| OutputReader::new(from, &ended)),
            err: child.stderr.take().map(|from| OutputReader::new(from, &ended)),
        };
        let group = ProcessGroup(leader.map(Pid::from_raw));
        Ok((ChildProcess { child, group, ended }, outputs))
    }
}

impl ChildProcess {
    /// Waits for the end, which is forced where `asked` comes first; what that said is given back.
    pub(super) async fn end<T>(&mut self, asked: impl Future<Output = T>) -> io::Result<(ExitStatus, Option<T>)> {
        let ended = tokio::select! {
            biased;
            status = self.child.wait() => status.map(|status| (status, None)),
            why = asked => self.stop().await.map(|status| (status, Some(why))),
        };
        self.group.kill();
        self.ended.cancel();
        ended
    }

    async fn stop(&mut self) -> io::Result<ExitStatus> {
        self.group.signal(Signal::SIGTERM);
        if let Ok(status) = tokio::time::timeout(GRACE, self.child.wait()).await {
            return status;
        }
        self.group.signal(Signal::SIGKILL);
        self.child.wait().await
    }
}

impl<R: AsyncRead + Unpin> OutputReader<R> {
    fn new(from: R, ended: &CancellationToken) -> Self {
        Self {
            from,
            buffer: vec![0; READ],
            ended: ended.clone(),
        }
    }

    /// The next bytes; none at the end.
    pub(super) async fn next(&mut self) -> Option<&[u8]> {
        let ended = &self.ended;
        let quiet = async {
            ended.cancelled().await;
            tokio::time::sleep(QUIET).await;
        };
        let count = tokio::select! {
            biased;
            count = self.from.read(&mut self.buffer) => count.unwrap_or(0),
            () = quiet => 0,
        };
        self.buffer.get(..count).filter(|bytes| !bytes.is_empty())
    }
}

/// The group that the child leads.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0 {
            // A group that is gone needs no signal.
            killpg(leader, signal).ok();
        }
    }

    /// Kills what is left, once: the number may be another's later.
    fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
