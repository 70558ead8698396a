//! `exec`: runs a program at an interval, or keeps one running; what it writes becomes messages.
//!
//! ```text
//! stdout ─▶ lines, or all of it ─▶ out      meta: exec.run, and process.exit.code with all of it
//! stderr ─▶ lines ─▶ log records of the gear, as many as [`error_log`] admits
//! ```
//!
//! | the program | what becomes of it |
//! |---|---|
//! | ends with 0 | started again: at the next tick of the rhythm, or after a pause |
//! | ends with another code, by a signal, or cannot be started | the same, counted as an error |
//! | runs longer than `timeout` | killed, counted as an error; no message of the whole output, a line without its end marked `truncated` |
//! | cannot be killed | told, and waited for |
//! | runs when the gear stops | killed |
//!
//! # Invariants
//!
//! - Only programs that the Rack's own configuration lists, and that a scenario cannot have written, are run ([`allow_list`]), without a shell.
//! - Lines that were read together are durable, where they leave the Rack, before more are read: a full inbox or outbox holds up the
//!   program, which waits to write.
//! - Runs do not overlap.
//!
//! # Not here
//!
//! Processes and their end ([`child_process`]), what may be configured ([`gear_spec::exec`]).

mod allow_list;
pub(super) mod child_process;
mod error_log;
mod line_splitter;
#[cfg(test)]
mod tests;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chassis::child_spawner::ChildSpawner;
use futures::FutureExt;
use gear_spec::exec::{ExecConfig, ExecMode, OutputFraming};
use model::{Attributes, HumanDuration, Level, gear_manifest};
use nix::sys::signal::Signal;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::Instant;

use super::framing::TOGETHER;
use super::poll_schedule::PollSchedule;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, RawConfig};
pub(crate) use allow_list::ProgramAllowList;
use child_process::{OutputReader, ProgramCall};
use error_log::{ErrorLog, MAX_LINE};
use line_splitter::{LineSplitter, OutputLine};

/// The longest pause before a program is started again; a run this long makes the next pause short again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(ProgramRunner {
        config: gear_manifest::config(config)?,
        ready: None,
    })))
}

struct ProgramRunner {
    config: ExecConfig,
    ready: Option<(ProgramCall, ChildSpawner)>,
}

impl ActiveGear for ProgramRunner {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let (programs, program) = (cx.programs().clone(), self.config.program().to_owned());
            let admitted = tokio::task::spawn_blocking(move || programs.admit(&program)).await?;
            admitted.map_err(GearError::Config)?;
            let call = ProgramCall::of(&self.config, |name| cx.policy().variable(name)).map_err(GearError::Config)?;
            let keeper = ChildSpawner::start("exec-keeper", Signal::SIGKILL).map_err(|reason| GearError::Outside {
                what: "start the thread that spawns programs".to_owned(),
                reason,
            })?;
            self.ready = Some((call, keeper));
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let Some((call, keeper)) = &self.ready else {
                return Ok(());
            };
            let runs = ProgramRuns {
                cx,
                config: &self.config,
                call,
                keeper,
                errors: ErrorLog::new(cx.recorder()),
            };
            match self.config.mode {
                ExecMode::Interval => runs.run_at_interval().await,
                ExecMode::Streaming => runs.keep_running().await,
            }
            runs.errors.end();
            Ok(())
        }
        .boxed()
    }
}

/// One run after another.
struct ProgramRuns<'a> {
    cx: &'a Arc<GearContext>,
    config: &'a ExecConfig,
    call: &'a ProgramCall,
    keeper: &'a ChildSpawner,
    errors: ErrorLog<'a>,
}

impl ProgramRuns<'_> {
    async fn run_at_interval(&self) {
        let mut schedule = PollSchedule::new(self.config.every().get(), Instant::now());
        while self.wait_until(schedule.due()).await {
            schedule.advance(Instant::now());
            self.run(Some(self.config.timeout())).await;
        }
    }

    async fn keep_running(&self) {
        let first = self.config.restart_after().get();
        let mut pause = first;
        loop {
            let began = Instant::now();
            self.run(None).await;
            if self.cx.is_stopping() {
                return;
            }
            if began.elapsed() >= LONGEST_PAUSE {
                pause = first;
            }
            let (program, wait) = (&self.call.program, HumanDuration::from(pause));
            self.cx.log(
                Level::Warn,
                format!("{program} has ended; it is started again in {wait}"),
            );
            if !self.wait_until(Instant::now() + pause).await {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE.max(first));
        }
    }

    /// False if the gear shall stop.
    async fn wait_until(&self, at: Instant) -> bool {
        tokio::select! {
            biased;
            () = self.cx.stopping() => false,
            () = tokio::time::sleep_until(at) => true,
        }
    }

    /// Runs the program to its end.
    async fn run(&self, timeout: Option<HumanDuration>) {
        let program = &self.call.program;
        let number = self.cx.restart_state::<AtomicU64>().fetch_add(1, Relaxed);
        let (mut child, outputs) = match self.call.start(self.keeper).await {
            Ok(started) => started,
            Err(error) => {
                return self.cx.error(format!("cannot run {program}: {error}"));
            }
        };
        let stuck = || {
            self.cx.error(format!(
                "{program} cannot be killed: it hangs in the kernel, or runs as another user; waiting for its exit"
            ));
        };
        let (ended, rest, ()) = tokio::join!(
            child.end(self.stop_of_run(timeout), stuck),
            self.take_output(number, outputs.out),
            self.take_errors(outputs.err)
        );
        let (status, was_stopped) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                return self.cx.error(format!("what became of {program} is not known: {error}"));
            }
        };
        if !was_stopped {
            self.judge(status);
        }
        let Some(mut rest) = rest else { return };
        match self.config.framing {
            OutputFraming::Whole if was_stopped => {}
            OutputFraming::Whole => self.send(exit_facts(number, status), &[rest]).await,
            OutputFraming::Lines => {
                // Who was killed had no time to end its line.
                rest.is_truncated |= was_stopped || status.signal().is_some();
                self.send(run_facts(number), &[rest]).await;
            }
        }
    }

    /// Resolves when a run shall end: its time is over, which is told, or the gear stops.
    async fn stop_of_run(&self, timeout: Option<HumanDuration>) {
        let Some(timeout) = timeout else {
            return self.cx.stopping().await;
        };
        tokio::select! {
            () = self.cx.stopping() => {}
            () = tokio::time::sleep(timeout.get()) => {
                let program = &self.call.program;
                self.cx.error(format!("{program} did not end within {timeout} and is killed"));
            }
        }
    }

    fn judge(&self, status: ExitStatus) {
        let program = &self.call.program;
        match (status.code(), status.signal()) {
            (Some(0), _) => {}
            (Some(code), _) => self.cx.error(format!("{program} ended with exit code {code}")),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                self.cx.error(format!("{program} was ended by signal {signal}"));
            }
        }
    }

    /// Passes on lines and gives back the last one if it has no end, or gives back the whole.
    async fn take_output(&self, number: u64, out: Option<OutputReader<ChildStdout>>) -> Option<OutputLine> {
        let mut out = out?;
        if self.config.framing == OutputFraming::Whole {
            return Some(read_whole(&mut out, self.config.max_output as usize).await);
        }
        let mut splitter = LineSplitter::new(self.config.max_line as usize);
        while let Some(bytes) = out.next().await {
            for lines in splitter.push(bytes).chunks(TOGETHER) {
                self.send(run_facts(number), lines).await;
            }
        }
        splitter.end()
    }

    /// Sends what was read together; what leaves the Rack of it is durable then.
    async fn send(&self, facts: Attributes, lines: &[OutputLine]) {
        let sending = async {
            for line in lines {
                let began = std::time::Instant::now();
                let mut meta = facts.clone();
                if line.is_truncated {
                    meta.set("truncated", true);
                }
                let message = self.cx.make(None, meta, line.bytes.clone());
                // A refusal has been counted and reported; the next line may pass.
                self.cx.emit("out", message, None, began).await.ok();
            }
        };
        self.cx.commit_received("out", None, sending).await;
    }

    async fn take_errors(&self, err: Option<OutputReader<ChildStderr>>) {
        let Some(mut err) = err else { return };
        let mut splitter = LineSplitter::new(MAX_LINE);
        while let Some(bytes) = err.next().await {
            splitter.push(bytes).iter().for_each(|line| self.errors.write(line));
        }
        splitter.end().iter().for_each(|line| self.errors.write(line));
    }
}

/// All of an output, as far as it may be kept.
async fn read_whole(out: &mut OutputReader<ChildStdout>, max: usize) -> OutputLine {
    let mut whole = OutputLine {
        bytes: Vec::new(),
        is_truncated: false,
    };
    while let Some(bytes) = out.next().await {
        let fits = bytes.len().min(max - whole.bytes.len());
        whole.bytes.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        whole.is_truncated |= fits < bytes.len();
    }
    whole
}

fn run_facts(number: u64) -> Attributes {
    Attributes::new().with("exec.run", number)
}

fn exit_facts(number: u64, status: ExitStatus) -> Attributes {
    let facts = run_facts(number);
    match (status.code(), status.signal()) {
        (Some(code), _) => facts.with("process.exit.code", code),
        (None, signal) => facts.with("exec.signal", signal.unwrap_or_default()),
    }
}
