//! A child process in a process group of its own: how it begins, what it writes, and how it ends.
//!
//! ```text
//! start ─▶ runs ─┬─ ends by itself ────────────────────────▶ what is left of its group is killed
//!                └─ asked: SIGTERM ─▶ ends, or GRACE passes ─▶ SIGKILL, to the whole group ─▶ ends, or is told to be stuck
//! ```
//!
//! # Invariants
//!
//! - Nothing of the group is left when the child has ended, when this is dropped, or when the gear is cut off.
//! - The child itself is killed with the Rack, whatever kills that ([`chassis::child_spawner`]); what it has started itself then ends by
//!   its closed pipes, or not at all. A set-user-ID program, such as `sudo`, is not killed.
//! - What has left the group and writes on holds up nothing: behind the end of the child at most [`MOST_LEFT`] is read of an output.
//! - Its environment is empty but for what is given to it.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use chassis::child_spawner::ChildSpawner;
use gear_spec::exec::ExecConfig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a child may take to end when it is asked to.
const GRACE: Duration = Duration::from_millis(300);
/// How long a child that got SIGKILL may take to end before that is told: within the time that the Rack gives gears to stop.
const KILL_BOUND: Duration = Duration::from_millis(500);
/// How long the end of an output is waited for when the child has ended: somebody else may have it open.
const DRAIN_BOUND: Duration = Duration::from_millis(200);
/// The most that is read of an output when the child has ended, in bytes: what the largest pipe holds.
const MOST_LEFT: usize = 1 << 20;
/// What a read asks for, in bytes: what a pipe holds.
const READ: usize = 64 * 1024;

/// What runs.
#[derive(Debug, Clone)]
pub(in crate::gears) struct ProgramCall {
    pub(in crate::gears) program: String,
    pub(in crate::gears) arguments: Vec<String>,
    pub(in crate::gears) environment: Vec<(String, String)>,
    pub(in crate::gears) folder: Option<PathBuf>,
}

impl ProgramCall {
    /// What a configuration means, with its environment.
    pub(in crate::gears) fn of(config: &ExecConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let environment = config.env.iter().map(|name| {
            let value = variable(name);
            let value = value.ok_or_else(|| {
                format!("env: {name} is not set in the environment of this Rack: set it there, or leave it out")
            });
            Ok((name.clone(), value?))
        });
        Ok(Self {
            program: config.program().to_owned(),
            arguments: config.command.iter().skip(1).cloned().collect(),
            environment: environment.collect::<Result<_, String>>()?,
            folder: config.folder.clone(),
        })
    }
}

/// A child that runs.
pub(in crate::gears) struct ChildProcess {
    child: Child,
    group: ProcessGroup,
    ended: CancellationToken,
    grace: Duration,
    kill_bound: Duration,
}

/// One of its outputs.
pub(in crate::gears) struct OutputReader<R> {
    from: R,
    buffer: Vec<u8>,
    ended: CancellationToken,
    /// When the child has ended: until when, and how many bytes, are read still.
    rest: Option<(Instant, usize)>,
}

/// What is read of a child.
pub(in crate::gears) struct ChildOutputs {
    pub(in crate::gears) out: Option<OutputReader<ChildStdout>>,
    pub(in crate::gears) err: Option<OutputReader<ChildStderr>>,
}

impl ProgramCall {
    /// Starts the program.
    pub(in crate::gears) async fn start(&self, keeper: &ChildSpawner) -> io::Result<(ChildProcess, ChildOutputs)> {
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
        let child = ChildProcess {
            child,
            group,
            ended,
            grace: GRACE,
            kill_bound: KILL_BOUND,
        };
        Ok((child, outputs))
    }
}

impl ChildProcess {
    /// Waits for the end, which is forced where `asked` comes first; whether it was. `stuck` is told that it cannot be forced.
    pub(in crate::gears) async fn end(
        &mut self,
        asked: impl Future<Output = ()>,
        stuck: impl FnOnce(),
    ) -> io::Result<(ExitStatus, bool)> {
        let ended = tokio::select! {
            biased;
            status = self.child.wait() => status.map(|status| (status, false)),
            () = asked => self.stop(stuck).await.map(|status| (status, true)),
        };
        self.group.kill();
        self.ended.cancel();
        ended
    }

    async fn stop(&mut self, stuck: impl FnOnce()) -> io::Result<ExitStatus> {
        for (signal, bound) in [(Signal::SIGTERM, self.grace), (Signal::SIGKILL, self.kill_bound)] {
            self.group.signal(signal);
            if let Ok(status) = tokio::time::timeout(bound, self.child.wait()).await {
                return status;
            }
        }
        stuck();
        self.child.wait().await
    }
}

impl<R: AsyncRead + Unpin> OutputReader<R> {
    fn new(from: R, ended: &CancellationToken) -> Self {
        Self {
            from,
            buffer: vec![0; READ],
            ended: ended.clone(),
            rest: None,
        }
    }

    /// The next bytes; none at the end.
    pub(in crate::gears) async fn next(&mut self) -> Option<&[u8]> {
        let running = async {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => None,
                count = self.from.read(&mut self.buffer) => Some(count.unwrap_or(0)),
            }
        };
        let count = match running.await {
            Some(count) => count,
            None => self.read_rest().await,
        };
        self.buffer.get(..count).filter(|bytes| !bytes.is_empty())
    }

    /// Reads what a child has left that has ended; none at the end, or when it has been waited for or read long enough.
    async fn read_rest(&mut self) -> usize {
        let rest = self
            .rest
            .get_or_insert_with(|| (Instant::now() + DRAIN_BOUND, MOST_LEFT));
        let room = self.buffer.len().min(rest.1);
        let read = self.from.read(self.buffer.get_mut(..room).unwrap_or_default());
        let count = tokio::select! {
            biased;
            count = read => count.unwrap_or(0),
            () = tokio::time::sleep_until(rest.0) => 0,
        };
        rest.1 -= count;
        count
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::future::{pending, ready};
    use std::os::unix::process::ExitStatusExt;

    use nix::sys::signal::kill;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn sleeper() -> (ChildSpawner, ChildProcess) {
        let keeper = ChildSpawner::start("test-keeper", Signal::SIGKILL).unwrap();
        let call = ProgramCall {
            program: "/bin/sleep".to_owned(),
            arguments: vec!["infinity".to_owned()],
            environment: Vec::new(),
            folder: None,
        };
        let (child, _) = call.start(&keeper).await.unwrap();
        (keeper, child)
    }

    #[tokio::test]
    async fn a_child_that_shall_end_is_asked_to_before_it_is_killed() {
        let (_keeper, mut child) = sleeper().await;
        child.grace = HOUR;
        let (status, was_stopped) = child.end(ready(()), || panic!("it ends")).await.unwrap();
        assert_eq!((status.signal(), was_stopped), (Some(15), true));
    }

    #[tokio::test]
    async fn an_unkillable_child_is_logged_once_and_waited_for() {
        let (_keeper, mut child) = sleeper().await;
        (child.grace, child.kill_bound) = (Duration::ZERO, Duration::ZERO);
        let Some(leader) = child.group.0.take() else {
            unreachable!()
        };
        let stuck = || kill(leader, Signal::SIGINT).unwrap();
        let (status, was_stopped) = child.end(ready(()), stuck).await.unwrap();
        assert_eq!((status.signal(), was_stopped), (Some(2), true));
    }

    #[tokio::test]
    async fn what_others_write_behind_the_end_of_a_child_is_read_to_a_bound() {
        let ended = CancellationToken::new();
        ended.cancel();
        let mut endless = OutputReader::new(tokio::io::repeat(b'x'), &ended);
        let mut count = 0;
        while let Some(bytes) = endless.next().await {
            count += bytes.len();
        }
        assert_eq!(count, MOST_LEFT);
        let (silent, _open) = tokio::io::duplex(1);
        assert_eq!(OutputReader::new(silent, &ended).next().await, None);
    }

    #[tokio::test]
    async fn a_child_that_ends_by_itself_was_not_stopped() {
        let (_keeper, mut child) = sleeper().await;
        child.group.signal(Signal::SIGHUP);
        let (status, was_stopped) = child.end(pending(), || panic!("it ends")).await.unwrap();
        assert_eq!((status.signal(), was_stopped), (Some(1), false));
    }
}
