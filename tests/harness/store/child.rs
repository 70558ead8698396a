//! The driver as a child process, and what it says.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::process::memory_of;
use crate::{Failure, binary, eventually};

/// What was heard from drivers of one store.
#[derive(Debug, Default, Clone)]
pub struct Heard {
    /// Batches that were acknowledged.
    pub acknowledged: BTreeSet<u64>,
    /// Rotation has begun.
    pub rotating: bool,
    /// Rotation has ended, and said that every closed partition went.
    pub rotated: bool,
    /// Its process id.
    pub pid: Option<i32>,
    /// The steps that ended well, and what went wrong.
    pub notes: Vec<String>,
}

/// One line of a driver.
#[derive(Debug)]
pub enum Told {
    /// A batch is durable.
    Acknowledged(u64),
    /// Rotation begins.
    Rotating,
    /// Rotation has removed all closed partitions.
    Rotated,
    /// Its process id.
    Pid(u32),
    /// Anything else.
    Note(String),
}

impl Told {
    /// The line that says it.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Acknowledged(seq) => format!("a {seq}\n"),
            Self::Rotating => "rotating\n".to_owned(),
            Self::Rotated => "rotated\n".to_owned(),
            Self::Pid(pid) => format!("pid {pid}\n"),
            Self::Note(text) => format!("{}\n", text.replace('\n', " ")),
        }
    }
}

impl Heard {
    fn take(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("a", seq)) => self.acknowledged.extend(seq.parse::<u64>().ok()),
            Some(("pid", pid)) => self.pid = pid.parse().ok(),
            _ if line == "rotating" => self.rotating = true,
            _ if line == "rotated" => self.rotated = true,
            _ => self.notes.push(line.to_owned()),
        }
    }

    /// The first batch that was not acknowledged.
    #[must_use]
    pub fn next(&self) -> u64 {
        let mut next = 1;
        for seq in &self.acknowledged {
            if *seq != next {
                break;
            }
            next += 1;
        }
        next
    }

    /// Adds what another driver of the store said.
    pub fn join(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.rotating |= other.rotating;
        self.rotated |= other.rotated;
        self.notes.extend(other.notes);
    }
}

/// A running driver. Dropped, it is killed.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
    heard: Arc<Mutex<Heard>>,
}

impl Driver {
    /// Starts `wrapper store-driver <arguments> <address>`; the wrapper may be empty. Errors go to `errors`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(wrapper: &[String], arguments: &[String], errors: &Path) -> Result<Self, Failure> {
        let socket = TcpListener::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?;
        let program: PathBuf = binary("store-driver")?;
        let mut words = wrapper.iter().cloned();
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
            None => Command::new(program),
        };
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(errors)?;
        command
            .args(arguments)
            .arg(address.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        let child = command.spawn()?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let hears = Arc::clone(&heard);
        let listener = std::thread::spawn(move || {
            // An ended driver that never called is woken up by whoever waits for this thread.
            let Ok((stream, _)) = socket.accept() else { return };
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                hears.lock().unwrap_or_else(PoisonError::into_inner).take(&line);
            }
        });
        Ok(Self {
            child,
            address,
            listener: Some(listener),
            heard,
        })
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the wrapper and the driver itself, which would outlive it.
    fn kill(&mut self) -> Result<(), Failure> {
        let driver = self.heard().pid.map(Pid::from_raw);
        // Either may have ended already.
        if let Some(driver) = driver.filter(|_| matches!(self.child.try_wait(), Ok(None))) {
            let _ = nix::sys::signal::kill(driver, Signal::SIGKILL);
        }
        let _ = self.child.kill();
        self.child.wait()?;
        Ok(())
    }

    /// How many batches were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.heard().acknowledged.len()
    }

    /// The memory that it has in use, in bytes; 0 once it has ended.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let pid = Pid::from_raw(self.heard().pid.unwrap_or(0));
        memory_of(pid, "VmRSS").unwrap_or(0)
    }

    /// Waits until so many batches were acknowledged.
    ///
    /// # Errors
    /// If it takes longer than a minute, or the driver ends before.
    pub fn wait_for(&mut self, batches: usize) -> Result<(), Failure> {
        let heard = Arc::clone(&self.heard);
        let child = &mut self.child;
        eventually("acknowledged batches", Duration::from_secs(60), || {
            let ended = child.try_wait().ok().flatten().is_some();
            let enough = heard.lock().is_ok_and(|heard| heard.acknowledged.len() >= batches);
            (enough || ended).then_some(())
        })
    }

    /// Kills it with -9.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill9(mut self) -> Result<Heard, Failure> {
        self.kill()?;
        Ok(self.listen_to_the_end())
    }

    /// Waits for its end; `None` if it had to be killed after `within`.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn finish(mut self, within: Duration) -> Result<(Option<ExitStatus>, Heard), Failure> {
        let end = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > end {
                self.kill()?;
                break None;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        };
        Ok((status, self.listen_to_the_end()))
    }

    fn listen_to_the_end(&mut self) -> Heard {
        if let Some(listener) = self.listener.take() {
            // Harmless where the driver has called: the listener took one connection only.
            drop(TcpStream::connect(self.address));
            let _ = listener.join();
        }
        std::mem::take(&mut *self.heard())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.kill();
        self.listen_to_the_end();
    }
}
