//! Service notification: tells systemd that the process is ready, reloads, stops and still works (the protocol of `sd_notify`).
//!
//! Source: <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>.
//!
//! # Invariants
//!
//! - Without `NOTIFY_SOCKET` nothing is sent, and SIGHUP does what it does to every program: one that somebody started at a terminal ends with it.
//! - A beat of the watchdog follows a probe that came back: what hangs is not kept alive by a timer. A probe has a thread of its own, and waits
//!   for no other work.
//! - Of reloads is told between `ready` and `stopping` alone: `READY=1` means one thing, and a start that takes its time stays a start.
//! - SIGHUP ends nothing from [`ServiceNotifier::of_process`] on.
//! - A service manager that does not read holds up nobody for longer than `PATIENCE`.
//!
//! # Not here
//!
//! What a probe asks, and when a process is ready (the programs).

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::config::ConfigWatcher;

/// The longest that a message may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The shortest time between two beats.
const SHORTEST_BEAT: Duration = Duration::from_millis(1);
/// What is shown after a reload that changed nothing.
const REFUSED: &str = "STATUS=configuration refused: see the log";

/// Speaks to the service manager that started this process, if one did.
#[derive(Debug, Clone, Default)]
pub struct ServiceNotifier {
    manager: Option<Arc<ManagerSocket>>,
    /// The time between two beats, half of what the unit allows; none without a watchdog.
    beat: Option<Duration>,
    /// The asks for a reload, also those of before somebody serves them.
    hangups: Option<Arc<tokio::sync::Mutex<Signal>>>,
}

/// How far the process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServicePhase {
    Starting,
    Ready,
    Stopping,
}

/// What the manager was told.
#[derive(Debug)]
struct ToldState {
    phase: ServicePhase,
    /// The line that `systemctl status` shows.
    status: String,
}

#[derive(Debug)]
struct ManagerSocket {
    socket: UnixDatagram,
    address: SocketAddr,
    told: Mutex<ToldState>,
}

impl ManagerSocket {
    fn send(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::warn!(%error, state, "cannot tell the service manager");
        }
    }

    fn open(place: &OsStr) -> io::Result<Self> {
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(Path::new(place))?,
            _ => {
                let reason = "it is neither an absolute path nor an abstract name";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let told = Mutex::new(ToldState {
            phase: ServicePhase::Starting,
            status: String::new(),
        });
        Ok(Self { socket, address, told })
    }
}

impl ServiceNotifier {
    /// The one of this process: the service manager set `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be used: a unit that waits for it would be killed without a word. If SIGHUP cannot be listened for.
    pub fn of_process() -> io::Result<Self> {
        Self::of(|name| std::env::var_os(name), std::process::id())?.listening()
    }

    /// Listens for reloads from now on.
    fn listening(mut self) -> io::Result<Self> {
        if self.manager.is_some() {
            let hangups = signal(SignalKind::hangup())?;
            self.hangups = Some(Arc::new(tokio::sync::Mutex::new(hangups)));
        }
        Ok(self)
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, process: u32) -> io::Result<Self> {
        let Some(place) = variable("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
            return Ok(Self::default());
        };
        let manager = ManagerSocket::open(&place)
            .map_err(|error| io::Error::new(error.kind(), format!("NOTIFY_SOCKET is {}: {error}", place.display())))?;
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_ours = variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(process.into());
        let allowed = number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0);
        Ok(Self {
            manager: Some(Arc::new(manager)),
            beat: allowed.map(|micros| Duration::from_micros(micros / 2).max(SHORTEST_BEAT)),
            hangups: None,
        })
    }

    /// The service has started; `status` is what `systemctl status` shows.
    pub fn ready(&self, status: &str) {
        self.tell(|told| {
            told.phase = ServicePhase::Ready;
            told.status = status_line(status);
            Some(format!("READY=1\n{}", told.status))
        });
    }

    /// What `systemctl status` shows from now on.
    pub fn status(&self, status: &str) {
        self.tell(|told| {
            told.status = status_line(status);
            Some(told.status.clone())
        });
    }

    /// The service begins to stop.
    pub fn stopping(&self) {
        self.tell(|told| {
            told.phase = ServicePhase::Stopping;
            Some("STOPPING=1\nSTATUS=stopping".to_owned())
        });
    }

    /// Runs the probe at half of the time that the unit's watchdog allows, and says each time that it came back. It may block: it has a thread of
    /// its own. A task that awaits this where the process would stand still shows that it does not.
    pub async fn beat(&self, probe: impl Fn() + Clone + Send + 'static) -> Infallible {
        let Some(every) = self.beat else {
            return std::future::pending().await;
        };
        let mut beats = tokio::time::interval(every);
        // One that came back late is followed by the next in its time.
        beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            beats.tick().await;
            if came_back(probe.clone()).await
                && let Some(manager) = &self.manager
            {
                manager.send("WATCHDOG=1");
            }
        }
    }

    /// On each SIGHUP has the configuration file read again.
    pub async fn serve_reloads(&self, watcher: Option<&ConfigWatcher>) -> Infallible {
        if let Some(hangups) = &self.hangups {
            let mut hangups = hangups.lock().await;
            while hangups.recv().await.is_some() {
                self.reload(async {
                    match watcher {
                        Some(watcher) => watcher.reload().await,
                        None => true,
                    }
                })
                .await;
            }
        }
        std::future::pending().await
    }

    /// Has the configuration read, which says whether it is good, and tells of that if the service is ready.
    async fn reload(&self, read: impl Future<Output = bool>) {
        let is_told = self.tell(|told| (told.phase == ServicePhase::Ready).then(|| "RELOADING=1".to_owned()));
        let is_good = read.await;
        if !is_told {
            return;
        }
        self.tell(|told| {
            let status = if is_good { told.status.as_str() } else { REFUSED };
            Some(format!("READY=1\n{status}"))
        });
    }

    /// Sends what there is to tell, if there is anything; nothing once the process stops. Says whether something was sent.
    fn tell(&self, what: impl FnOnce(&mut ToldState) -> Option<String>) -> bool {
        let Some(manager) = &self.manager else {
            return false;
        };
        // Held until it is sent: the order of messages is that of states.
        let mut told = manager.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.phase == ServicePhase::Stopping {
            return false;
        }
        let state = what(&mut told);
        if let Some(state) = &state {
            manager.send(state);
        }
        state.is_some()
    }
}

/// Runs a probe on a thread of its own; the blocking threads of the runtime may all be at work. `false` if it panicked.
async fn came_back(probe: impl FnOnce() + Send + 'static) -> bool {
    let (done, back) = oneshot::channel();
    let thread = std::thread::Builder::new().name("liveness".to_owned());
    let started = thread.spawn(move || {
        probe();
        // Nobody waits any more where the process stops.
        let _ = done.send(());
    });
    match started {
        // It has ended when it has answered, and one that hangs is awaited for ever.
        Ok(_) => back.await.is_ok(),
        Err(error) => {
            tracing::warn!(%error, "cannot start the thread of the liveness probe");
            false
        }
    }
}

/// One line: another one would be another message.
fn status_line(status: &str) -> String {
    format!("STATUS={}", status.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// A service manager, and what its processes find in their environment.
    fn manager(watchdog: &[(&'static str, &str)]) -> (tempfile::TempDir, UnixDatagram, ServiceNotifier) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        heard.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let variable = |name: &str| {
            let given = watchdog.iter().find(|(key, _)| *key == name);
            match name {
                "NOTIFY_SOCKET" => Some(path.clone().into_os_string()),
                _ => given.map(|(_, value)| OsString::from(*value)),
            }
        };
        let notifier = ServiceNotifier::of(variable, 7).unwrap();
        (folder, heard, notifier)
    }

    fn next(heard: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = heard.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn is_silent(heard: &UnixDatagram) -> bool {
        heard.set_nonblocking(true).unwrap();
        heard
            .recv(&mut [0; 1])
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn each_state_is_a_message_and_a_status_is_one_line() {
        let (_folder, heard, notifier) = manager(&[]);
        notifier.ready("all is well\nREADY=0");
        assert_eq!(next(&heard), "READY=1\nSTATUS=all is well READY=0");
        notifier.status("waits");
        assert_eq!(next(&heard), "STATUS=waits");
        notifier.stopping();
        assert_eq!(next(&heard), "STOPPING=1\nSTATUS=stopping");
    }

    #[test]
    fn an_abstract_socket_is_spoken_to() {
        let name = format!("platform-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let heard = UnixDatagram::bind_addr(&address).unwrap();
        let place = OsString::from(format!("@{name}"));
        let variable = |name: &str| (name == "NOTIFY_SOCKET").then(|| place.clone());
        ServiceNotifier::of(variable, 7).unwrap().ready("up");
        assert_eq!(next(&heard), "READY=1\nSTATUS=up");
    }

    #[test]
    fn without_a_manager_nothing_is_sent_and_a_place_that_is_none_is_refused() {
        let none = ServiceNotifier::of(|_| None, 7).unwrap();
        assert!(none.manager.is_none() && none.beat.is_none());
        none.ready("unheard");
        let refused = ServiceNotifier::of(|_| Some("relative".into()), 7).unwrap_err();
        assert!(refused.to_string().contains("NOTIFY_SOCKET is relative"), "{refused}");
    }

    #[test]
    fn a_watchdog_is_answered_at_half_of_its_time_and_only_if_it_is_ours() {
        let beat = |watchdog: &[(&'static str, &str)]| manager(watchdog).2.beat;
        assert_eq!(
            beat(&[("WATCHDOG_USEC", "3000000")]),
            Some(Duration::from_millis(1_500))
        );
        let ours = [("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "7")];
        assert_eq!(beat(&ours), Some(Duration::from_millis(1_500)));
        assert_eq!(beat(&[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "8")]), None);
        assert_eq!(beat(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(beat(&[]), None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_probe_that_hangs_or_panics_beats_no_more() {
        let (_folder, heard, notifier) = manager(&[("WATCHDOG_USEC", "2000")]);
        let is_well = Arc::new(AtomicBool::new(true));
        let asked = Arc::new(AtomicBool::new(false));
        let (well, seen) = (Arc::clone(&is_well), Arc::clone(&asked));
        let probe = move || {
            if !well.load(Ordering::SeqCst) {
                seen.store(true, Ordering::SeqCst);
                std::panic::resume_unwind(Box::new("the part is broken"));
            }
        };
        let beating = tokio::spawn(async move { notifier.beat(probe).await });
        let first = tokio::task::spawn_blocking(move || (next(&heard), heard))
            .await
            .unwrap();
        assert_eq!(first.0, "WATCHDOG=1");
        is_well.store(false, Ordering::SeqCst);
        while !asked.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        // Once a probe has failed, what is still in the socket was sent before it.
        first.1.set_nonblocking(true).unwrap();
        while first.1.recv(&mut [0; 64]).is_ok() {}
        asked.store(false, Ordering::SeqCst);
        while !asked.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert!(is_silent(&first.1));
        beating.abort();
    }

    #[test]
    fn a_probe_waits_for_no_other_work_and_one_that_hangs_beats_no_more() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (busy, ends) = mpsc::channel::<()>();
        runtime.spawn_blocking(move || ends.recv().ok());
        let (_folder, heard, notifier) = manager(&[("WATCHDOG_USEC", "2000")]);
        let (release, released) = mpsc::channel::<()>();
        let (asks, asked) = mpsc::channel();
        let released = Arc::new(Mutex::new(released));
        let probe = move || {
            asks.send(()).ok();
            released.lock().unwrap().recv().ok();
        };
        let beating = runtime.spawn(async move { notifier.beat(probe).await });
        asked.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(is_silent(&heard), "it has not come back");
        release.send(()).unwrap();
        heard.set_nonblocking(false).unwrap();
        assert_eq!(next(&heard), "WATCHDOG=1");
        asked.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(is_silent(&heard), "the second one hangs");
        beating.abort();
        drop((release, busy));
        runtime.shutdown_background();
    }

    #[tokio::test]
    async fn reloads_are_told_of_only_while_the_service_is_ready() {
        let (_folder, heard, notifier) = manager(&[]);
        notifier.reload(async { true }).await;
        assert!(is_silent(&heard), "a start goes on");
        heard.set_nonblocking(false).unwrap();
        notifier.ready("up");
        assert_eq!(next(&heard), "READY=1\nSTATUS=up");
        notifier.reload(async { false }).await;
        assert_eq!(next(&heard), "RELOADING=1");
        assert_eq!(next(&heard), "READY=1\nSTATUS=configuration refused: see the log");
        notifier.reload(async { true }).await;
        assert_eq!(next(&heard), "RELOADING=1");
        assert_eq!(next(&heard), "READY=1\nSTATUS=up");
        let (stops, other) = (notifier.clone(), notifier.clone());
        notifier
            .reload(async move {
                stops.stopping();
                true
            })
            .await;
        assert_eq!(next(&heard), "RELOADING=1");
        assert_eq!(next(&heard), "STOPPING=1\nSTATUS=stopping");
        other.reload(async { true }).await;
        other.ready("up");
        other.status("up");
        assert!(is_silent(&heard), "it stops");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_hangup_of_before_anybody_serves_reloads_ends_nothing_and_is_served() {
        use nix::sys::signal::{Signal, raise};

        let (_folder, heard, notifier) = manager(&[]);
        let notifier = notifier.listening().unwrap();
        notifier.ready("up");
        assert_eq!(next(&heard), "READY=1\nSTATUS=up");
        raise(Signal::SIGHUP).unwrap();
        let serving = tokio::spawn(async move { notifier.serve_reloads(None).await });
        let told = tokio::task::spawn_blocking(move || [next(&heard), next(&heard)]);
        assert_eq!(told.await.unwrap(), ["RELOADING=1", "READY=1\nSTATUS=up"]);
        serving.abort();
    }
}
