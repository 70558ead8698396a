//! Supervisor of the server process: starts it, watches it, restarts it, stops it.
//!
//! ```text
//!  launch ─▶ running ── exit ──▶ back-off 100 ms … 30 s ─▶ launch      (reset after 60 s of health)
//!               │── sick and disk free ─▶ SIGTERM ─▶ launch at once
//!               │── another list of users ─▶ it reads its configuration again (`reload`), connections stand
//!               └── stop ─▶ SIGTERM ─ 10 s ─▶ SIGKILL
//! ```
//!
//! Ready means: JetStream answers under our domain, which is more than an open port.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chassis::child_spawner::ChildSpawner;
use model::ByteSize;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::account_plan::StreamNames;
use super::binary::ServerProgram;
use super::client::{authority, probe};
use super::health::{ServerHealth, StoreDiskSpace};
use super::nats_conf::{self, BusStorePaths, ServerConfig, StreamStoreSettings};
use super::reload::{ListOutcome, UserList};
use super::store_lock::StoreLock;
use super::system_connection::SystemConnection;
use super::{BusError, BusSettings, ManagedServer, ProcessStatus, ProcessWatch, damaged_consumers, operator_key};
use crate::tasks::{FailureReporter, SupervisedTask};

/// A store with much in it takes long to be read back.
const READY: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const HEALTHY_AGAIN: Duration = Duration::from_secs(60);
const CHECK_EVERY: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(10);
/// Checks in a row without any answer before a server counts as hung.
const HUNG: u32 = 6;

/// The supervisor's handle.
#[derive(Debug)]
pub(super) struct ServerSupervisor {
    task: SupervisedTask,
    address: String,
    advertised: String,
    process: ProcessWatch,
}

impl ServerSupervisor {
    /// Starts the server and waits until it is ready.
    pub(super) async fn start(
        managed: ManagedServer,
        settings: &BusSettings,
        fatal: &FailureReporter,
    ) -> Result<Self, BusError> {
        let max_store = settings.streams.max_store;
        let (configured, sha256) = (managed.binary.clone(), managed.sha256.clone());
        let find = move || ServerProgram::find(configured.as_deref(), sha256.as_deref());
        let program = blocking(find).await?;
        let paths = BusStorePaths::make(&managed.store_dir)?;
        let lock = StoreLock::take(&paths.store).await?;
        refuse_streams_of_nobody(&paths.store)?;
        operator_key::write(&managed.operator_key, &managed.users.operator)?;
        if let Some(room) = StoreDiskSpace::at(&paths.store).filter(|room| room.free < max_store.get()) {
            let (free, limit) = (ByteSize::bytes(room.free), max_store);
            tracing::warn!(%free, %limit, "the bus store may grow to more than is free: lower snake.max_store_mb");
        }
        let (news, process) = watch::channel(ProcessStatus::default());
        let users = UserList::new(managed.users.clone(), news.clone());
        let mut plant = ServerLauncher {
            config: ServerConfig {
                port: managed.port,
                store_settings: StreamStoreSettings {
                    domain: settings.domain.clone(),
                    streams: StreamNames {
                        domain: settings.domain.clone(),
                        business: settings.streams.name.clone(),
                    },
                    max_store,
                },
                managed,
                paths,
            },
            program,
            lock,
            spawner: ChildSpawner::start("bus-keeper", Signal::SIGTERM).map_err(BusError::Thread)?,
            users,
            news,
        };
        let running = plant.launch().await?;
        let address = plant.address(plant.config.port);
        let advertised = plant
            .config
            .managed
            .advertised
            .clone()
            .unwrap_or_else(|| address.clone());
        tracing::info!(pid = running.pid, %address, store = %plant.config.paths.store.display(), "bus server is ready");
        let task = SupervisedTask::spawn("bus supervisor", fatal, move |stop| plant.run(running, stop));
        Ok(Self {
            task,
            address,
            advertised,
            process,
        })
    }

    /// Where the Mixer connects.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Where Racks connect.
    pub(super) fn advertised(&self) -> &str {
        &self.advertised
    }

    pub(super) fn watch(&self) -> ProcessWatch {
        self.process.clone()
    }

    /// Stops the server and joins everything.
    pub(super) async fn close(self) {
        self.task.close().await;
    }
}

/// Everything needed to start the server once more.
struct ServerLauncher {
    config: ServerConfig,
    program: ServerProgram,
    lock: StoreLock,
    spawner: ChildSpawner,
    users: UserList,
    news: watch::Sender<ProcessStatus>,
}

/// A server that is ready.
struct ServerProcess {
    child: Child,
    pid: u32,
    system: SystemConnection,
    log: JoinHandle<()>,
    since: Instant,
}

/// Why the watch over a server ended.
enum SupervisionOutcome {
    Asked,
    Exited(std::io::Result<ExitStatus>),
    Sick(String),
}

impl ServerLauncher {
    fn dial_host(&self) -> &str {
        match self.config.managed.host.as_str() {
            "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            host => host,
        }
    }

    fn address(&self, port: u16) -> String {
        format!("nats://{}", authority(self.dial_host(), port))
    }

    async fn probe(&self, port: u16) -> Result<SystemConnection, String> {
        let (address, users) = (self.address(port), &self.config.managed.users);
        let trust = self.config.managed.trust().map_err(|error| error.to_string())?;
        probe(
            &address,
            &self.config.store_settings.domain,
            &users.mixer,
            trust.as_ref(),
        )
        .await?;
        SystemConnection::open(&address, &users.system, trust.as_ref()).await
    }

    async fn launch(&mut self) -> Result<ServerProcess, BusError> {
        let list = self.users.current();
        let paths = &self.config.paths;
        let io = |action| {
            let path = paths.store.clone();
            move |source| BusError::Io { action, path, source }
        };
        damaged_consumers::remove(&BusStorePaths::account(&paths.store))?;
        self.config.write()?;
        nats_conf::clear_ports(paths).map_err(io("clean"))?;
        let lock = self.lock.share().map_err(io("share the lock of"))?;
        let program = self.program.clone();
        let mut command = Command::from(blocking(move || program.command()).await?);
        command
            .arg("-c")
            .arg(&paths.conf)
            .env("GOMEMLIMIT", "512MiB")
            // The store's lock, and so its own.
            .stdin(Stdio::from(lock))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A terminal's ^C is for the Mixer, which stops the server after its consumers.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = self.spawner.spawn(command).await.map_err(|error| BusError::Unusable {
            path: self.program.path().to_owned(),
            reason: error.to_string(),
        })?;
        let tail = StderrTail::default();
        let log = tokio::spawn(forward(child.stderr.take(), tail.clone()));
        let pid = child.id().unwrap_or_default();
        match self.wait_ready(&mut child, pid).await {
            Ok((port, system)) => {
                self.config.port = port;
                self.users.started_with(list, ListOutcome::Followed);
                let free_bytes = StoreDiskSpace::at(&self.config.paths.store).map(|room| room.free);
                self.news.send_modify(|process| {
                    process.pid = Some(pid);
                    process.healthy = true;
                    process.free_bytes = free_bytes;
                });
                Ok(ServerProcess {
                    child,
                    pid,
                    system,
                    log,
                    since: Instant::now(),
                })
            }
            Err(unready) => {
                let _ = child.kill().await;
                let _ = log.await;
                Err(self.explain(unready, &tail))
            }
        }
    }

    async fn wait_ready(&self, child: &mut Child, pid: u32) -> Result<(u16, SystemConnection), ReadinessFailure> {
        let deadline = Instant::now() + READY;
        let mut last = "it has not reported its address".to_owned();
        loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Err(ReadinessFailure::Died(status.to_string())),
                Err(error) => return Err(ReadinessFailure::Died(error.to_string())),
            }
            if let Some(port) = nats_conf::read_port(&self.config.paths, pid) {
                match self.probe(port).await {
                    Ok(system) => return Ok((port, system)),
                    Err(reason) => last = reason,
                }
            }
            if Instant::now() > deadline {
                return Err(ReadinessFailure::Late(last));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn explain(&self, unready: ReadinessFailure, tail: &StderrTail) -> BusError {
        let tail = tail.text();
        match unready {
            ReadinessFailure::Died(_) if tail.contains("address already in use") => BusError::PortInUse {
                host: self.config.managed.host.clone(),
                port: self.config.port,
            },
            ReadinessFailure::Died(status) => BusError::Died { status, tail },
            ReadinessFailure::Late(last) => BusError::NotReady {
                after: READY,
                last,
                tail,
            },
        }
    }

    async fn run(mut self, first: ServerProcess, stop: CancellationToken) {
        let mut running = first;
        let mut wait = FIRST_WAIT;
        loop {
            let end = self.watch_over(&mut running, &stop).await;
            if running.since.elapsed() >= HEALTHY_AGAIN {
                wait = FIRST_WAIT;
            }
            match end {
                SupervisionOutcome::Asked => {
                    running.stop().await;
                    break;
                }
                SupervisionOutcome::Exited(Ok(status)) => {
                    tracing::error!(%status, "the bus server exited; restarting it")
                }
                SupervisionOutcome::Exited(Err(error)) => {
                    tracing::error!(%error, "the bus server is lost; restarting it")
                }
                SupervisionOutcome::Sick(reason) => {
                    tracing::warn!(%reason, "the bus server is wedged although its disk has room; restarting it");
                    wait = Duration::ZERO;
                }
            }
            running.stop().await;
            self.news.send_modify(|process| {
                process.pid = None;
                process.healthy = false;
                process.end_reload();
                process.restarts += 1;
            });
            match self.relaunch(&mut wait, &stop).await {
                Some(again) => running = again,
                None => break,
            }
        }
        self.news.send_modify(|process| {
            process.pid = None;
            process.healthy = false;
        });
    }

    /// Starts until it works; none when asked to stop.
    async fn relaunch(&mut self, wait: &mut Duration, stop: &CancellationToken) -> Option<ServerProcess> {
        loop {
            let now = *wait;
            *wait = (now * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
            let launched = async {
                sleep(now).await;
                self.launch().await
            };
            let launched = tokio::select! {
                () = stop.cancelled() => return None,
                launched = launched => launched,
            };
            match launched {
                Ok(running) => {
                    tracing::info!(pid = running.pid, "bus server is ready again");
                    return Some(running);
                }
                Err(error) => tracing::error!(%error, "cannot start the bus server; retrying"),
            }
        }
    }

    /// Until the server has ended, is to end, or is wedged.
    async fn watch_over(&mut self, running: &mut ServerProcess, stop: &CancellationToken) -> SupervisionOutcome {
        let ServerProcess { child, system, .. } = running;
        tokio::select! {
            () = stop.cancelled() => SupervisionOutcome::Asked,
            status = child.wait() => SupervisionOutcome::Exited(status),
            reason = watch_health(&self.news, &self.config.paths.store, system) => SupervisionOutcome::Sick(reason),
            never = self.users.keep(&self.config, system) => match never {},
        }
    }
}

/// Refuses a store whose streams belong to the server's global account: they were made before there were accounts, and no Rack or Mixer would
/// see the messages in them.
fn refuse_streams_of_nobody(store: &Path) -> Result<(), BusError> {
    let streams = store.join("jetstream/$G/streams");
    match std::fs::read_dir(&streams).is_ok_and(|mut entries| entries.next().is_some()) {
        true => Err(BusError::StreamsOfNobody { path: streams }),
        false => Ok(()),
    }
}

/// Does what reads files on a thread where that holds nobody up.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BusError> + Send + 'static,
) -> Result<T, BusError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| BusError::Thread(std::io::Error::other(error)))?
}

/// Looks at the health of a server until that says why to restart it.
async fn watch_health(news: &watch::Sender<ProcessStatus>, store: &Path, system: &SystemConnection) -> String {
    let mut ticks = interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut doctor = RestartPolicy::default();
    loop {
        ticks.tick().await;
        let before = news.borrow().clone();
        let health = system.health().await;
        let room = StoreDiskSpace::at(store);
        if news.borrow().explains(&before, &health) {
            continue;
        }
        news.send_modify(|process| {
            process.healthy = health == ServerHealth::Well;
            process.free_bytes = room.map(|room| room.free);
        });
        if let Some(reason) = doctor.judge(health, room) {
            return reason;
        }
    }
}

enum ReadinessFailure {
    Died(String),
    Late(String),
}

impl ServerProcess {
    /// Asks it to end, and makes it after a grace.
    async fn stop(&mut self) {
        if self.child.id().is_some() {
            let pid = i32::try_from(self.pid).map(Pid::from_raw);
            let asked = pid.is_ok_and(|pid| kill(pid, Signal::SIGTERM).is_ok());
            if !asked || timeout(GRACE, self.child.wait()).await.is_err() {
                tracing::warn!(pid = self.pid, "the bus server did not stop in time; killing it");
                let _ = self.child.kill().await;
            }
        }
        let _ = (&mut self.log).await;
    }
}

/// Decides from checks in a row when a restart helps.
#[derive(Debug, Default)]
struct RestartPolicy {
    sick: u32,
    silent: u32,
    told: bool,
}

impl RestartPolicy {
    /// Why to restart, if so.
    fn judge(&mut self, health: ServerHealth, room: Option<StoreDiskSpace>) -> Option<String> {
        match health {
            ServerHealth::Well => {
                *self = Self::default();
                None
            }
            ServerHealth::Silent(reason) => {
                self.silent += 1;
                (self.silent >= HUNG).then_some(reason)
            }
            ServerHealth::Sick(reason) => {
                self.sick += 1;
                let full = room.filter(|room| !room.is_enough());
                if let Some(room) = full.filter(|_| !self.told) {
                    self.told = true;
                    let (free, needed) = (ByteSize::bytes(room.free), ByteSize::bytes(room.needed));
                    tracing::error!(
                        %reason, %free, %needed,
                        "the bus cannot write: the disk of its store is full. Free some space, then the bus restarts"
                    );
                }
                (self.sick >= 2 && full.is_none()).then_some(reason)
            }
        }
    }
}

/// The last lines of the server's log.
#[derive(Debug, Clone, Default)]
struct StderrTail(Arc<Mutex<VecDeque<String>>>);

impl StderrTail {
    const LINES: usize = 5;

    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == Self::LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    fn text(&self) -> String {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.make_contiguous().join(" | ")
    }
}

/// The server's log into ours, target `bus`. What it tells of a normal start and stop is detail for us.
async fn forward(stderr: Option<impl AsyncRead + Unpin>, tail: StderrTail) {
    let Some(stderr) = stderr else { return };
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line);
        let (level, text) = parse(&line);
        tail.push(text);
        match level {
            // In a file that only we read, of a user that anyone may be.
            "WRN" if text.contains("Plaintext passwords") => tracing::debug!(target: "bus", "{text}"),
            "ERR" | "FTL" => tracing::error!(target: "bus", "{text}"),
            "WRN" => tracing::warn!(target: "bus", "{text}"),
            _ => tracing::debug!(target: "bus", "{text}"),
        }
    }
}

/// Level and text of `[pid] [LVL] text`.
fn parse(line: &str) -> (&str, &str) {
    let rest = line.split_once("] [").and_then(|(_, rest)| rest.split_once("] "));
    // What the language it is written in says when it crashes has no level.
    let is_crash = line.starts_with("panic: ") || line.starts_with("fatal error: ");
    rest.unwrap_or((if is_crash { "FTL" } else { "INF" }, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wedged_server_is_restarted_once_its_disk_has_room_and_not_before() {
        let sick = || ServerHealth::Sick("503".to_owned());
        let room = |free| Some(StoreDiskSpace { free, needed: 64 << 20 });
        let mut doctor = RestartPolicy::default();
        for _ in 0..5 {
            assert_eq!(doctor.judge(sick(), room(1)), None, "the disk is full");
        }
        assert!(doctor.judge(sick(), room(1 << 30)).is_some());
        let mut doctor = RestartPolicy::default();
        assert_eq!(doctor.judge(sick(), room(1 << 30)), None, "once may be a start");
        assert_eq!(doctor.judge(ServerHealth::Well, room(1 << 30)), None);
        assert_eq!(doctor.judge(sick(), room(1 << 30)), None, "counted from anew");
    }

    #[test]
    fn a_hung_server_is_restarted_after_six_checks() {
        let mut doctor = RestartPolicy::default();
        let silent = || ServerHealth::Silent("timeout".to_owned());
        let verdicts: Vec<bool> = (0..6).map(|_| doctor.judge(silent(), None).is_some()).collect();
        assert_eq!(verdicts, [false, false, false, false, false, true]);
    }

    #[test]
    fn a_server_that_reads_its_users_meanwhile_may_be_silent_and_not_sick() {
        let (silent, sick) = (
            ServerHealth::Silent("timeout".to_owned()),
            ServerHealth::Sick("full".to_owned()),
        );
        let before = ProcessStatus::default();
        let mut during = before.clone();
        during.begin_reload();
        let mut after = during.clone();
        after.end_reload();
        assert!(
            during.explains(&before, &silent) && after.explains(&before, &silent) && after.explains(&during, &silent)
        );
        assert!(!after.explains(&after, &silent) && !during.explains(&before, &sick));
    }

    #[test]
    fn streams_that_no_account_has_are_refused_with_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        refuse_streams_of_nobody(folder.path()).unwrap();
        let streams = folder.path().join("jetstream/$G/streams");
        std::fs::create_dir_all(&streams).unwrap();
        refuse_streams_of_nobody(folder.path()).unwrap();
        std::fs::create_dir(streams.join("flux-msg")).unwrap();
        let refused = refuse_streams_of_nobody(folder.path()).unwrap_err().to_string();
        assert!(
            refused.contains("jetstream/$G/streams") && refused.contains("move"),
            "{refused}"
        );
    }

    #[test]
    fn the_servers_levels_become_ours() {
        assert_eq!(parse("[7] [ERR] it [broke] here"), ("ERR", "it [broke] here"));
        assert_eq!(parse("nats-server: bad option"), ("INF", "nats-server: bad option"));
        assert_eq!(parse("panic: runtime error"), ("FTL", "panic: runtime error"));
    }
}
