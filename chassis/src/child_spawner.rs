//! A thread that spawns child processes which do not outlive this process.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process. A child of a runtime's worker or of a
//! short-lived thread would be killed at a random moment; a child of this thread lives until the keeper is dropped or this process
//! dies, whatever kills it. The kernel clears the signal of a program that is set-user-ID, set-group-ID or has capabilities
//! (`sudo`): such a child outlives this process.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct SpawnRequest {
    command: Command,
    answer: oneshot::Sender<io::Result<Child>>,
}

/// The thread; it ends when this is dropped, and its children with it. Nobody waits for that: a spawn may hang with a mount.
#[derive(Debug)]
pub struct ChildSpawner {
    orders: SyncSender<SpawnRequest>,
    at_death: Signal,
}

impl ChildSpawner {
    /// Starts a thread of this name, whose children get a signal when it ends. Called within a Tokio runtime.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(name: &str, at_death: Signal) -> io::Result<Self> {
        let (orders, incoming) = sync_channel(1);
        let runtime = Handle::current();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || serve(&incoming, &runtime))?;
        Ok(Self { orders, at_death })
    }

    /// Spawns a process; the caller owns it.
    ///
    /// # Errors
    /// If it cannot be spawned, or others are being spawned just now.
    pub async fn spawn(&self, mut command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the child spawner thread has exited or is busy");
        die_with_us(&mut command, self.at_death);
        let (answer, answered) = oneshot::channel();
        self.orders
            .try_send(SpawnRequest { command, answer })
            .map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn serve(incoming: &Receiver<SpawnRequest>, runtime: &Handle) {
    let _inside = runtime.enter();
    while let Ok(SpawnRequest { mut command, answer }) = incoming.recv() {
        // Where nobody waits any more, the child is dropped; `kill_on_drop` is the caller's to set.
        answer.send(command.spawn()).ok();
    }
}

#[allow(
    unsafe_code,
    reason = "the parent-death signal can only be asked for between fork and exec"
)]
fn die_with_us(command: &mut Command, signal: Signal) {
    let us = nix::unistd::getpid();
    let prepare = move || {
        nix::sys::prctl::set_pdeathsig(signal)?;
        // Killed before the line above: the signal will never come.
        if getppid() == us {
            Ok(())
        } else {
            Err(Errno::ESRCH.into())
        }
    };
    // SAFETY: after fork the closure makes two system calls (prctl, getppid) on copied integers; it allocates nothing,
    // takes no lock and touches no memory of other threads.
    unsafe {
        command.pre_exec(prepare);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[tokio::test]
    async fn a_child_lives_as_long_as_its_keeper_and_no_longer() {
        let keeper = ChildSpawner::start("test-keeper", Signal::SIGKILL).unwrap();
        let mut forever = Command::new("/bin/sleep");
        forever.arg("infinity").kill_on_drop(true);
        let mut child = keeper.spawn(forever).await.unwrap();
        assert!(child.try_wait().unwrap().is_none());
        drop(keeper);
        assert_eq!(child.wait().await.unwrap().signal(), Some(9));
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_an_error() {
        let keeper = ChildSpawner::start("test-keeper", Signal::SIGKILL).unwrap();
        let error = keeper.spawn(Command::new("/no/such/program")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
