//! The thread from which every server process is spawned.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process. A child of a runtime's worker or of a
//! short-lived thread would be killed at a random moment; a child of this thread lives until the Mixer closes or dies.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::BusError;

/// One process to spawn.
pub(super) struct Order {
    /// The executable.
    pub(super) binary: PathBuf,
    /// Its configuration.
    pub(super) conf: PathBuf,
    /// The store's lock; becomes the child's standard input, and so its own.
    pub(super) lock: File,
}

type Request = (Order, oneshot::Sender<std::io::Result<Child>>);

/// The thread; it ends when this is closed or dropped, and takes its child with it.
#[derive(Debug)]
pub(super) struct Keeper {
    orders: SyncSender<Request>,
    thread: JoinHandle<()>,
}

impl Keeper {
    pub(super) fn start() -> Result<Self, BusError> {
        let (orders, requests) = sync_channel(1);
        let runtime = tokio::runtime::Handle::current();
        let thread = std::thread::Builder::new()
            .name("bus-keeper".to_owned())
            .spawn(move || serve(&requests, &runtime))
            .map_err(BusError::Thread)?;
        Ok(Self { orders, thread })
    }

    /// Spawns a process; the caller owns it.
    pub(super) async fn spawn(&self, order: Order) -> std::io::Result<Child> {
        let gone = || std::io::Error::other("the bus keeper thread has ended");
        let (answer, answered) = oneshot::channel();
        self.orders.try_send((order, answer)).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// Ends the thread. Call it after the child has ended.
    pub(super) fn close(self) {
        drop(self.orders);
        if self.thread.join().is_err() {
            tracing::error!("the bus keeper thread panicked");
        }
    }
}

fn serve(requests: &Receiver<Request>, runtime: &tokio::runtime::Handle) {
    let _inside = runtime.enter();
    while let Ok((order, answer)) = requests.recv() {
        // Nobody waits any more: the child is dropped, which kills it.
        let _ = answer.send(spawn(order));
    }
}

fn spawn(order: Order) -> std::io::Result<Child> {
    let mut command = Command::new(&order.binary);
    command
        .arg("-c")
        .arg(&order.conf)
        .env("GOMEMLIMIT", "512MiB")
        .stdin(Stdio::from(order.lock))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // A terminal's ^C is for the Mixer, which stops the server after its consumers.
        .process_group(0)
        .kill_on_drop(true);
    die_with_us(&mut command);
    command.spawn()
}

#[allow(
    unsafe_code,
    reason = "the parent-death signal can only be asked for between fork and exec"
)]
fn die_with_us(command: &mut Command) {
    let us = nix::unistd::getpid();
    let prepare = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
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
