//! A real Rack in a temporary folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::Process;
use crate::{Failure, binary, owned, toml_of};

const READY: Duration = Duration::from_secs(60);
/// A Rack that a busy machine held up for three of them counts as offline.
const HEARTBEAT: &str = "\"2s\"";

/// A temporary folder whose files the gears of every [`TestRack`] may use.
///
/// # Errors
/// If it cannot be made.
pub fn gear_files() -> Result<tempfile::TempDir, Failure> {
    Ok(tempfile::tempdir_in(gear_root()?)?)
}

/// The folder of all of these.
fn gear_root() -> Result<PathBuf, Failure> {
    let root = std::env::temp_dir().join("platform-gear-files");
    std::fs::create_dir_all(&root)?;
    Ok(root)
}

/// What the policy of every Rack here allows: files of tests, and servers of this machine.
fn policy() -> Result<[(&'static str, String); 3], Failure> {
    let roots = format!("[{:?}]", gear_root()?.display().to_string());
    let connect = "[\"*\", \"127.0.0.0/8\", \"::1\"]".to_owned();
    Ok([
        ("policy.read_roots", roots.clone()),
        ("policy.write_roots", roots),
        ("policy.connect", connect),
    ])
}

/// A Rack and its folder.
#[derive(Debug)]
pub struct TestRack {
    folder: tempfile::TempDir,
    process: Option<Process>,
    envs: Vec<(String, String)>,
    /// Its name.
    pub name: String,
}

impl TestRack {
    /// A Rack for a bus, not started; `extra` is more TOML, whole sections.
    ///
    /// # Errors
    /// If its folder cannot be made.
    pub fn new(name: &str, bus_url: &str, extra: &str) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut toml = format!("[base]\nname = \"{name}\"\n[snake]\nurl = \"{bus_url}\"\nreconnect_wait = \"100ms\"\n");
        if !extra.contains("[rack]") {
            toml.push_str(&format!("[rack]\nheartbeat_interval = {HEARTBEAT}\n"));
        }
        toml.push_str("[policy]\n");
        for (key, value) in policy()? {
            let (_, leaf) = key.split_once('.').unwrap_or_default();
            toml.push_str(&format!("{leaf} = {value}\n"));
        }
        toml.push_str(extra);
        std::fs::write(folder.path().join("platform.toml"), toml)?;
        Ok(Self {
            folder,
            process: None,
            envs: Vec::new(),
            name: name.to_owned(),
        })
    }

    /// A Rack with these keys (value as in TOML) and environment variables, over those of [`new`](Self::new); not started.
    ///
    /// # Errors
    /// If its folder cannot be made.
    pub fn with(name: &str, bus_url: &str, keys: &[(&str, &str)], envs: &[(&str, &str)]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let (quoted, url) = (format!("{name:?}"), format!("{bus_url:?}"));
        let usual = [
            ("base.name", quoted.as_str()),
            ("snake.url", url.as_str()),
            ("snake.reconnect_wait", "\"100ms\""),
            ("rack.heartbeat_interval", HEARTBEAT),
        ];
        let policy = policy()?;
        let policy = policy.iter().map(|(key, value)| (*key, value.as_str()));
        let usual: Vec<_> = usual.into_iter().chain(policy).collect();
        std::fs::write(folder.path().join("platform.toml"), toml_of(&usual, keys))?;
        Ok(Self {
            folder,
            process: None,
            envs: owned(envs),
            name: name.to_owned(),
        })
    }

    /// A Rack in a folder that another one left, with the configuration there, for a bus; not started.
    #[must_use]
    pub fn take_over(name: &str, folder: tempfile::TempDir, bus_url: &str) -> Self {
        Self {
            folder,
            process: None,
            envs: owned(&[("PLATFORM_SNAKE_URL", bus_url)]),
            name: name.to_owned(),
        }
    }

    /// The text of its log file, in the default folder.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("logs/platform-rack.log")).unwrap_or_default()
    }

    /// Starts it, without waiting for anything.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&mut self) -> Result<(), Failure> {
        self.spawn_as(&binary("platform")?)
    }

    fn spawn_as(&mut self, program: &Path) -> Result<(), Failure> {
        let log = self.path().join("rack.stderr");
        self.process = Some(Process::start_with(program, &[], self.path(), &log, &self.envs)?);
        Ok(())
    }

    /// Starts it and waits until it is adopted.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.start_as(&binary("platform")?)
    }

    /// The same with a program of another release.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub fn start_as(&mut self, program: &Path) -> Result<(), Failure> {
        self.spawn_as(program)?;
        self.process()?.line("ready ", READY)?;
        Ok(())
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its process.
    ///
    /// # Errors
    /// If it is not running.
    pub fn process(&mut self) -> Result<&mut Process, Failure> {
        self.process.as_mut().ok_or_else(|| "the rack does not run".into())
    }

    /// Kills it with -9.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill9(&mut self) -> Result<(), Failure> {
        self.process()?.kill9()?;
        self.process = None;
        Ok(())
    }
}
