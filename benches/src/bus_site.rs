//! A Mixer and its bus, by what the bus asks of Racks: nothing, a key of each, or a key over TLS.
//!
//! | guard | the bus server | how a Rack is admitted |
//! |---|---|---|
//! | [`BusGuard::Nothing`] | one that no Mixer runs (`snake.server = "external"`), in clear text, without users; its limits are the managed server's | `enrollment.auto_adopt` |
//! | [`BusGuard::Keys`] | the managed server in clear text, a user and an account for each Rack: the default on loopback | `enrollment.auto_adopt` |
//! | [`BusGuard::KeysAndTls`] | the managed server with `snake.tls = "on"`, a user and an account for each Rack: the default beyond loopback | by an invite of its own |

use std::fmt;
use std::path::Path;

use harness::process::Process;
use harness::{Failure, TestMixer, external_bus};
use serde_json::json;
use tempfile::TempDir;

/// The variable of the environment with which a Rack is given its invite.
pub const INVITE: &str = "PLATFORM_RACK_INVITE";

/// What a bus asks of Racks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusGuard {
    /// Nothing.
    Nothing,
    /// A key.
    Keys,
    /// A key, over TLS.
    KeysAndTls,
}

impl BusGuard {
    /// All of them; the first is what the others are compared with.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Keys, Self::KeysAndTls];

    /// All of them, in another order each round: what comes first has no advantage.
    pub fn in_turn(round: u64) -> impl Iterator<Item = Self> {
        let first = usize::try_from(round % 3).unwrap_or_default();
        Self::ALL.into_iter().cycle().skip(first).take(3)
    }
}

impl fmt::Display for BusGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "without keys and TLS",
            Self::Keys => "keys in clear",
            Self::KeysAndTls => "keys over TLS",
        })
    }
}

/// A Mixer that runs, and its bus.
#[derive(Debug)]
pub struct BusSite {
    /// The Mixer.
    pub mixer: TestMixer,
    guard: BusGuard,
    external: Option<(Process, TempDir)>,
}

impl BusSite {
    /// Starts a Mixer that runs a scenario, on such a bus.
    ///
    /// # Errors
    /// If one does not become ready.
    pub fn start(guard: BusGuard, scenario: &Path) -> Result<Self, Failure> {
        let scenario = format!("{:?}", scenario.display().to_string());
        let mut keys = vec![("mixer.startup_scenario", scenario)];
        let mut external = None;
        match guard {
            BusGuard::Nothing => {
                let folder = tempfile::tempdir()?;
                let (server, url) = external_bus::start(folder.path(), "11GB")?;
                keys.push(("snake.server", "\"external\"".to_owned()));
                keys.push(("snake.url", format!("{url:?}")));
                external = Some((server, folder));
            }
            BusGuard::Keys => {}
            BusGuard::KeysAndTls => {
                keys.push(("snake.tls", "\"on\"".to_owned()));
                keys.push(("enrollment.auto_adopt", "false".to_owned()));
            }
        }
        let keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
        Ok(Self {
            mixer: TestMixer::with(&keys, &[])?,
            guard,
            external,
        })
    }

    /// An invite for a Rack of this name; none where everybody is admitted.
    ///
    /// # Errors
    /// If the Mixer makes none.
    pub fn invite(&self, name: &str) -> Result<Option<String>, Failure> {
        if self.guard != BusGuard::KeysAndTls {
            return Ok(None);
        }
        let made = self.mixer.api.post("/api/v1/invites", &json!({ "name": name }))?;
        let invite = made.json["data"]["invite"].as_str();
        let invite = invite.ok_or_else(|| format!("no invite for {name}: {} {}", made.status, made.text))?;
        Ok(Some(invite.to_owned()))
    }

    /// The process ids of the Mixer and of its bus server.
    ///
    /// # Errors
    /// If one does not run.
    pub fn pids(&mut self) -> Result<[i32; 2], Failure> {
        let bus = match &self.external {
            Some((server, _)) => server.pid(),
            None => self.mixer.bus_pid()?,
        };
        Ok([self.mixer.process()?.pid().as_raw(), bus.as_raw()])
    }
}
