//! A real Mixer with its real bus in a temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::ConnectOptions;
use nix::unistd::Pid;

use crate::process::{Finished, Process, children_of, run};
use crate::store::files_below;
use crate::{Api, Failure, TestBus, binary, owned, toml_of, tool};

/// How long a debug build may take to be ready on a busy machine.
const READY: Duration = Duration::from_secs(60);

/// A running Mixer.
#[derive(Debug)]
pub struct TestMixer {
    folder: tempfile::TempDir,
    process: Option<Process>,
    extra: String,
    envs: Vec<(String, String)>,
    /// Its API.
    pub api: Api,
    /// The bus's address.
    pub bus_url: String,
    /// Where PostgreSQL clients connect, if they may.
    pub postgres: Option<SocketAddr>,
    /// Where OTLP is received at ports of its own, if it is: over HTTP.
    pub otlp_http: Option<SocketAddr>,
    /// And over gRPC.
    pub otlp_grpc: Option<SocketAddr>,
}

impl TestMixer {
    /// Starts a Mixer that adopts every Rack at once; `extra` is more TOML, whole sections.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn start(extra: &str) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut mixer = Self {
            folder,
            process: None,
            extra: extra.to_owned(),
            envs: Vec::new(),
            api: Api::new(""),
            bus_url: String::new(),
            postgres: None,
            otlp_http: None,
            otlp_grpc: None,
        };
        mixer.configure(0, 0)?;
        mixer.restart()?;
        let (api, bus) = (port_of(&mixer.api.base)?, port_of(&mixer.bus_url)?);
        mixer.configure(api, bus)?;
        Ok(mixer)
    }

    /// Starts a Mixer with these keys (value as in TOML) and environment variables, over those of [`start`](Self::start).
    /// The ports are other ones after a restart.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn with(keys: &[(&str, &str)], envs: &[(&str, &str)]) -> Result<Self, Failure> {
        let server = format!("{:?}", tool("nats-server")?.display().to_string());
        let usual = [
            ("api.port", "0"),
            ("snake.port", "0"),
            ("snake.server_binary", server.as_str()),
            ("enrollment.auto_adopt", "true"),
            ("enrollment.push_delay", "\"50ms\""),
            ("observability.embedded.flush_interval", "\"1s\""),
            // What a test counts is what it sent.
            ("observability.self_tracing", "false"),
        ];
        let mut mixer = Self {
            folder: tempfile::tempdir()?,
            process: None,
            extra: String::new(),
            envs: owned(envs),
            api: Api::new(""),
            bus_url: String::new(),
            postgres: None,
            otlp_http: None,
            otlp_grpc: None,
        };
        std::fs::write(mixer.path().join("platform-mixer.toml"), toml_of(&usual, keys))?;
        mixer.restart()?;
        Ok(mixer)
    }

    /// Starts a Mixer in a folder that another one left, with the configuration there, on other ports, and with these environment variables.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn take_over(folder: tempfile::TempDir, envs: &[(&str, &str)]) -> Result<Self, Failure> {
        let server = tool("nats-server")?.display().to_string();
        let usual = [
            ("PLATFORM_API_PORT", "0"),
            ("PLATFORM_SNAKE_PORT", "0"),
            ("PLATFORM_SNAKE_SERVER_BINARY", server.as_str()),
        ];
        let mut mixer = Self {
            folder,
            process: None,
            extra: String::new(),
            envs: [owned(&usual), owned(envs)].concat(),
            api: Api::new(""),
            bus_url: String::new(),
            postgres: None,
            otlp_http: None,
            otlp_grpc: None,
        };
        mixer.restart()?;
        Ok(mixer)
    }

    fn configure(&self, api_port: u16, bus_port: u16) -> Result<(), Failure> {
        let server = tool("nats-server")?;
        let mut toml = format!(
            "[api]\nport = {api_port}\n[snake]\nport = {bus_port}\nserver_binary = {:?}\n",
            server.display().to_string()
        );
        if !self.extra.contains("[enrollment]") {
            toml.push_str("[enrollment]\nauto_adopt = true\npush_delay = \"50ms\"\n");
        }
        if !self.extra.contains("[observability]") {
            // What a test counts is what it sent.
            toml.push_str("[observability]\nself_tracing = false\n");
        }
        if !self.extra.contains("[observability.embedded]") {
            toml.push_str("[observability.embedded]\nflush_interval = \"1s\"\n");
        }
        toml.push_str(&self.extra);
        Ok(std::fs::write(self.path().join("platform-mixer.toml"), toml)?)
    }

    /// Starts it again in the same folder.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.restart_as(&binary("platform-mixer")?)
    }

    /// The same with a program of another release.
    ///
    /// # Errors
    /// See [`restart`](Self::restart).
    pub fn restart_as(&mut self, program: &Path) -> Result<(), Failure> {
        let log = self.path().join("mixer.stderr");
        let mut process = Process::start_with(program, &[], self.path(), &log, &self.envs)?;
        let ready = process.line("ready ", READY)?;
        for part in ready.split_whitespace() {
            match part.split_once('=') {
                Some(("api", base)) => self.api = Api::new(base),
                Some(("bus", url)) => url.clone_into(&mut self.bus_url),
                Some(("postgres", address)) => self.postgres = Some(address.parse()?),
                Some(("otlp_http", address)) => self.otlp_http = Some(address.parse()?),
                Some(("otlp_grpc", address)) => self.otlp_grpc = Some(address.parse()?),
                _ => {}
            }
        }
        self.process = Some(process);
        Ok(())
    }

    /// Stops it, takes a data file of a table away, and starts it again: from then on its answers are partial.
    ///
    /// # Errors
    /// If the table has no file; see [`restart`](Self::restart).
    pub fn lose_a_file(&mut self, table: &str) -> Result<(), Failure> {
        self.process()?.terminate(READY)?;
        let files = files_below(&self.telemetry().join(table))?;
        let file = files
            .iter()
            .find(|path| path.extension().is_some_and(|kind| kind == "parquet"));
        std::fs::remove_file(file.ok_or("there is no data file")?)?;
        self.restart()
    }

    /// Runs the command line for its API, in its folder and in UTC.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn platform(&self, args: &[&str]) -> Result<Finished, Failure> {
        let envs = [("PLATFORM_API_URL", self.api.base.as_str()), ("TZ", "UTC")];
        run(&binary("platform")?, args, self.path(), &envs)
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The telemetry tree.
    #[must_use]
    pub fn telemetry(&self) -> PathBuf {
        self.path().join("data/telemetry")
    }

    /// What a client shows to its bus that is to have the Mixer's rights there: the operator's key, another one after each start; nothing at a bus elsewhere.
    ///
    /// # Errors
    /// If there is none.
    pub fn operator(&self) -> Result<ConnectOptions, Failure> {
        let toml = std::fs::read_to_string(self.path().join("platform-mixer.toml"))?;
        if toml.contains("snake.operator_key") {
            return Ok(ConnectOptions::with_credentials(&std::fs::read_to_string(
                self.store().join("keys/bus-operator.creds"),
            )?)?);
        }
        if toml.contains("snake.server = \"external\"") {
            // The users of a server elsewhere are not the Mixer's.
            return Ok(ConnectOptions::new());
        }
        let place = self.store().join("keys/bus-operator.nk");
        let seed = std::fs::read_to_string(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        Ok(ConnectOptions::with_nkey(seed.trim().to_owned()))
    }

    /// A client of its bus with the Mixer's rights.
    ///
    /// # Errors
    /// If the bus refuses.
    pub fn bus(&self) -> Result<TestBus, Failure> {
        self.bus_of("flux")
    }

    /// The same where the streams are those of another domain.
    ///
    /// # Errors
    /// If the bus refuses.
    pub fn bus_of(&self, domain: &str) -> Result<TestBus, Failure> {
        TestBus::open(&self.bus_url, self.operator()?, domain)
    }

    /// Its store.
    fn store(&self) -> PathBuf {
        let text = std::fs::read_to_string(self.path().join("platform-mixer.toml")).unwrap_or_default();
        let in_file = text.lines().find_map(|line| line.strip_prefix("store.dir = "));
        let in_file = in_file.map(|named| named.trim_matches('"'));
        let in_envs = self.envs.iter().find(|(name, _)| name == "PLATFORM_STORE_DIR");
        let named = in_envs.map(|(_, value)| value.as_str()).or(in_file);
        self.path().join(named.unwrap_or("data"))
    }

    /// Its process.
    ///
    /// # Errors
    /// If it is not running.
    pub fn process(&mut self) -> Result<&mut Process, Failure> {
        self.process.as_mut().ok_or_else(|| "the mixer does not run".into())
    }

    /// The bus server's process.
    ///
    /// # Errors
    /// If there is none.
    pub fn bus_pid(&mut self) -> Result<Pid, Failure> {
        let pid = self.process()?.pid();
        children_of(pid, "nats-server")
            .first()
            .copied()
            .ok_or_else(|| "the mixer has no bus server".into())
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

fn port_of(url: &str) -> Result<u16, Failure> {
    let port = url.trim_end_matches('/').rsplit(':').next().ok_or("no port")?;
    port.parse().map_err(|_| format!("{url:?} names no port").into())
}
