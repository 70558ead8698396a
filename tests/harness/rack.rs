//! A real Rack in a temporary folder.

use std::path::Path;
use std::time::Duration;

use crate::process::Process;
use crate::{Failure, binary};

const READY: Duration = Duration::from_secs(60);

/// A Rack and its folder.
#[derive(Debug)]
pub struct TestRack {
    folder: tempfile::TempDir,
    process: Option<Process>,
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
            toml.push_str("[rack]\nheartbeat_interval = \"500ms\"\n");
        }
        toml.push_str(extra);
        std::fs::write(folder.path().join("platform.toml"), toml)?;
        Ok(Self {
            folder,
            process: None,
            name: name.to_owned(),
        })
    }

    /// Starts it, without waiting for anything.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&mut self) -> Result<(), Failure> {
        let log = self.path().join("rack.stderr");
        self.process = Some(Process::start(&binary("platform")?, &[], self.path(), &log)?);
        Ok(())
    }

    /// Starts it and waits until it is adopted.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.spawn()?;
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
