//! `platform-mixer`: command line, log file, signals, exit codes.
//!
//! # Invariants
//!
//! - Standard output carries data only: of the running Mixer the one line `ready api=… bus=…`, with `postgres=…` and `otlp_http=… otlp_grpc=…` if these listen.
//! - Exit codes follow sysexits; this is the only place that makes a process end.
//!
//! # Not here
//!
//! What a Mixer does ([`mixer::app`]), what a key means ([`mixer::config`]).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chassis::config::{self, ConfigChange, ConfigSources, LoggingConfig, Settings, ValueOrigin};
use chassis::file_modes;
use chassis::logs::{self, LogFile, ProcessLog};
use chassis::service_notifier::ServiceNotifier;
use chassis::shutdown::ShutdownListener;
use chassis::{ExitReason, os_entropy, system_clock};
use clap::{Parser, Subcommand};
use mixer::app::Mixer;
use mixer::config::{MixerConfig, SCHEMA, check_start};
use mixer::duckdb::export;
use mixer::{backup, bootstrap, bus_operator, catalog_export, check, copy, key_rotation, retention};
use tikv_jemallocator::Jemalloc;

/// Rows are made by one thread and freed by another; the allocator of the C library kept hundreds of MiB of their pages. How soon
/// jemalloc gives free pages back to the system is set where it is built (`.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The control plane: admits Racks, stores their telemetry, answers queries.
#[derive(Debug, Parser)]
#[command(name = "platform-mixer", version)]
struct MixerArgs {
    /// Configuration file [default: platform-mixer.toml in the working folder, if it is there]
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Log level: debug, info, warn or error
    #[arg(long, value_name = "LEVEL", global = true)]
    level: Option<String>,
    #[command(subcommand)]
    command: Option<MixerCommand>,
}

#[derive(Debug, Subcommand)]
enum MixerCommand {
    /// Compare the data files with what the catalogue recorded about them; a running Mixer is not disturbed
    Check {
        /// Read every byte and compare checksums, not only lengths and footers
        #[arg(long)]
        deep: bool,
        /// Quarantine damaged files and forget missing ones; not while a Mixer runs. Exits as without it: 65 if
        /// there was damage, and 0 the next time
        #[arg(long)]
        repair: bool,
        /// Rebuild a lost or damaged catalogue from the data files and the log; not while a Mixer runs
        #[arg(long, conflicts_with_all = ["deep", "repair"])]
        rebuild: bool,
        /// Delete the indexes of data files and rebuild them; not while a Mixer runs. A running Mixer rebuilds missing and
        /// damaged ones by itself
        #[arg(long, conflicts_with_all = ["deep", "repair", "rebuild"])]
        rebuild_index: bool,
        /// The output format
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: retention::ReportFormat,
    },
    /// Old data: show what would be removed now. A running Mixer removes it by itself
    Retention {
        /// Only show what would be removed
        #[arg(long, required = true)]
        dry_run: bool,
        /// The output format
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: retention::ReportFormat,
    },
    /// Copy a store from a folder into a bucket or from a bucket into a folder, every file compared with its checksum; no
    /// Mixer may have it open
    Copy {
        /// A folder (store.dir) or s3://bucket/prefix
        from: String,
        /// A folder without a store or s3://bucket/prefix, the other of the two
        to: String,
        /// The output format
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: retention::ReportFormat,
    },
    /// Found a new cluster in a store whose registry is lost: every Rack must be enrolled again. Stored telemetry stays; not
    /// while a Mixer runs
    FoundCluster,
    /// Restore the registry and the keys of a backup (platform backup) into a store that has none; not while a Mixer runs
    Restore {
        /// The folder of the backup
        folder: PathBuf,
    },
    /// Give the cluster another signing key, or the bus another certificate authority; Racks follow by themselves. Not while a Mixer runs
    RotateKey {
        /// Which
        key: key_rotation::RotatedKey,
    },
    /// Found the operator of an external bus server, and print what its configuration needs: an account for each Rack
    BusOperator,
    /// Export the store for external readers
    Export {
        #[command(subcommand)]
        verb: ExportVerb,
    },
    /// Show, create, explain and convert configuration files
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },
}

#[derive(Debug, Subcommand)]
enum ExportVerb {
    /// A DuckDB database of the store, by the program duckdb from platform.sql in store.dir; a running Mixer is not disturbed
    ///
    /// Its views look for data files whenever they are asked, so it stays current; a table that had no data files yet is an
    /// empty view until the next export. With --rows it has the rows themselves, as they are now.
    Duckdb {
        /// The database [default: store.database_file]
        file: Option<PathBuf>,
        /// Tables with all flushed rows instead of views: a portable copy
        #[arg(long)]
        rows: bool,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
        /// The program duckdb [default: the first one beside this program, in .tools/bin, on PATH]
        #[arg(long, value_name = "PROGRAM")]
        program: Option<PathBuf>,
    },
    /// An Iceberg catalogue of the sealed data files in a folder of its own, for other catalogues to register; a running Mixer is
    /// not disturbed
    ///
    /// It prints the location of each table's metadata. It is of this moment: files that the Mixer removes later are missing then. The
    /// Mixer serves a catalogue that stays current at /iceberg of its API.
    Iceberg {
        /// A folder that is new, or empty
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The output format
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: retention::ReportFormat,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Print a commented configuration file with every key and its default
    Init,
    /// Print the merged configuration, secrets redacted
    Show {
        /// Show where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the reference of all keys, as Markdown
    Reference,
    /// Convert a v0.4.4 file to the current form; standard error says what changed and what is left to do
    Migrate {
        /// The file
        file: PathBuf,
    },
}

/// A sentence for standard error, and how to end.
struct MixerExitError {
    sentence: String,
    exit: ExitReason,
}

impl MixerExitError {
    fn new(exit: ExitReason, sentence: impl ToString) -> Self {
        Self {
            sentence: sentence.to_string(),
            exit,
        }
    }
}

impl From<chassis::Error> for MixerExitError {
    fn from(error: chassis::Error) -> Self {
        Self::new(error.exit(), error)
    }
}

impl From<config::ConfigErrors> for MixerExitError {
    fn from(errors: config::ConfigErrors) -> Self {
        Self::new(ExitReason::Config, errors)
    }
}

fn main() -> ExitCode {
    file_modes::restrict_umask();
    let args = match MixerArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let exit = if error.use_stderr() {
                ExitReason::Usage
            } else {
                ExitReason::Ok
            };
            let _ = error.print();
            return exit.into();
        }
    };
    match run(&args) {
        Ok(exit) => exit.into(),
        Err(stop) => {
            let _ = writeln!(std::io::stderr(), "platform-mixer: {}", stop.sentence);
            stop.exit.into()
        }
    }
}

fn run(args: &MixerArgs) -> Result<ExitReason, MixerExitError> {
    let flags = args.level.iter();
    let flags = flags.map(|level| ("logging.level".to_owned(), level.clone())).collect();
    let sources = ConfigSources::of_process(&SCHEMA, args.config.clone(), flags);
    match &args.command {
        None => serve(sources),
        Some(MixerCommand::Check {
            deep,
            repair,
            rebuild,
            rebuild_index,
            output,
        }) => {
            let config = MixerConfig::of(&config::load(&SCHEMA, &sources)?)?;
            let task = check::CheckOptions {
                deep: *deep,
                repair: *repair,
                rebuild: *rebuild,
                rebuild_index: *rebuild_index,
            };
            let checked = check::check(&config, &system_clock(), task, *output);
            let (report, exit) = checked.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?;
            print(&report).map(|_| exit)
        }
        Some(MixerCommand::Retention { output, .. }) => {
            let config = MixerConfig::of(&config::load(&SCHEMA, &sources)?)?;
            let said = retention::dry_run(&config, &system_clock(), *output);
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::Copy { from, to, output }) => {
            let config = MixerConfig::of(&config::load(&SCHEMA, &sources)?)?;
            let ambient = (&system_clock(), &os_entropy());
            let said = copy::copy(&config, ambient, (from, to), *output);
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::FoundCluster) => {
            let config = founding_config(&sources)?;
            let said = bootstrap::init_cluster(&config, &system_clock(), &os_entropy());
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::Restore { folder }) => {
            let config = founding_config(&sources)?;
            let said = backup::restore(&config, folder, &system_clock());
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::RotateKey { key }) => {
            let config = MixerConfig::of(&config::load(&SCHEMA, &sources)?)?;
            let said = key_rotation::rotate(&config, *key, &system_clock(), &os_entropy());
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::BusOperator) => {
            let config = founding_config(&sources)?;
            let said = bus_operator::found(&config, &system_clock(), &os_entropy());
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::Export { verb }) => {
            let config = MixerConfig::of(&config::load(&SCHEMA, &sources)?)?;
            let said = export_store(&config, verb);
            print(&said.map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?)
        }
        Some(MixerCommand::Config { verb }) => print(&match verb {
            ConfigVerb::Init => config::init_text(&SCHEMA),
            ConfigVerb::Show { origin } => return show(&config::load(&SCHEMA, &sources)?, *origin),
            ConfigVerb::Reference => config::reference_markdown(&[&SCHEMA]),
            ConfigVerb::Migrate { file } => migrate(file)?,
        }),
    }
}

/// The configuration of a command that makes a store where there is none. Where nobody has said which (no file, no `store.dir`, no folder at
/// its default), it would be made wherever the command happens to be called.
fn founding_config(sources: &ConfigSources) -> Result<MixerConfig, MixerExitError> {
    let settings = config::load(&SCHEMA, sources)?;
    let config = MixerConfig::of(&settings)?;
    let dir = &config.store.dir;
    bootstrap::require_own_parent(dir).map_err(|(exit, sentence)| MixerExitError::new(exit, sentence))?;
    if settings.file().is_some() || settings.place("store.dir") != ValueOrigin::Default || dir.exists() {
        return Ok(config);
    }
    let sentence = format!(
        "there is no configuration file {} and no folder {} here: nothing was made. Name the configuration of the Mixer (-c FILE), or make the folder",
        SCHEMA.file,
        dir.display()
    );
    Err(MixerExitError::new(ExitReason::Config, sentence))
}

/// Writes what external readers need. Says what it wrote.
fn export_store(config: &MixerConfig, verb: &ExportVerb) -> Result<String, (ExitReason, String)> {
    match verb {
        ExportVerb::Duckdb {
            file,
            rows,
            force,
            program,
        } => {
            let task = export::ExportOptions {
                file: file.as_deref(),
                rows: *rows,
                force: *force,
                program: program.as_deref(),
            };
            export::duckdb(config, task)
        }
        ExportVerb::Iceberg { folder, output } => {
            catalog_export::export(config, &system_clock(), (folder.as_path(), *output))
        }
    }
}

/// The merged configuration; warnings go to standard error. Fails where the Mixer would refuse to start with it.
fn show(settings: &Settings, origin: bool) -> Result<ExitReason, MixerExitError> {
    print(&config::show_text(settings, origin))?;
    let mut notes = std::io::stderr().lock();
    for warning in settings.warnings() {
        let _ = writeln!(notes, "platform-mixer: {warning}");
    }
    MixerConfig::of(settings)?;
    check_start(settings)?;
    Ok(ExitReason::Ok)
}

/// The current form of a file; what changed goes to standard error.
fn migrate(file: &Path) -> Result<String, MixerExitError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| MixerExitError::new(ExitReason::Io, format!("cannot read {}: {error}", file.display())))?;
    let migrated = config::migrate(&SCHEMA, file, &text)?;
    let mut notes = std::io::stderr().lock();
    for note in &migrated.notes {
        let _ = writeln!(notes, "platform-mixer: {note}");
    }
    Ok(migrated.text)
}

/// To standard output; a reader that has enough is no error.
fn print(text: &str) -> Result<ExitReason, MixerExitError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(MixerExitError::new(ExitReason::Io, error)),
        _ => Ok(ExitReason::Ok),
    }
}

fn serve(sources: ConfigSources) -> Result<ExitReason, MixerExitError> {
    let settings = config::load(&SCHEMA, &sources)?;
    let mixer = MixerConfig::of(&settings)?;
    check_start(&settings)?;
    let logs = Arc::new(logs::start(&mixer.logging, LogFile::Exact, None)?);
    settings
        .warnings()
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| MixerExitError::new(ExitReason::Io, format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(live(sources, settings, mixer, Arc::clone(&logs)));
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(logs) = Arc::into_inner(logs) {
        logs.close();
    }
    ended
}

async fn live(
    sources: ConfigSources,
    settings: Settings,
    mixer: MixerConfig,
    logs: Arc<ProcessLog>,
) -> Result<ExitReason, MixerExitError> {
    let shutdown = ShutdownListener::start()?;
    let notifier = ServiceNotifier::of_process().map_err(|error| MixerExitError::new(ExitReason::Io, error))?;
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    let apply = move |settings: &Settings, _: &ConfigChange| logs.apply(&LoggingConfig::of(settings));
    let watch = config::watch(sources, settings, apply).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot watch the configuration file; changes need a restart");
        None
    });
    let exit = tokio::select! {
        exit = until_asked(mixer, &shutdown, &notifier) => exit,
        never = notifier.serve_reloads(watch.as_ref()) => match never {},
    };
    if let Some(watch) = watch
        && let Err(error) = watch.close().await
    {
        tracing::warn!(%error, "the configuration watcher failed");
    }
    shutdown.close().await;
    Ok(exit)
}

/// Starts the Mixer and closes it when a signal or a failure says so.
async fn until_asked(config: MixerConfig, shutdown: &ShutdownListener, notifier: &ServiceNotifier) -> ExitReason {
    let asked = shutdown.token();
    let scheme = if config.api.tls_files().is_some() {
        "https"
    } else {
        "http"
    };
    let started = Mixer::start(config, system_clock(), os_entropy()).await;
    let mut mixer = match started {
        Ok(mixer) => mixer,
        Err(error) => {
            tracing::error!("cannot start: {error}");
            return error.exit_code();
        }
    };
    let (api, bus) = (mixer.api_addr(), mixer.control().bus_status());
    let (postgres, otlp) = (mixer.postgres_addr(), mixer.otlp_addresses());
    let ready = mixer.ready();
    let announced = async {
        ready.await;
        tracing::info!(%api, bus = %bus.url, durability = bus.durability, version = env!("CARGO_PKG_VERSION"), "ready");
        // Whoever started us may not read our output.
        let postgres = postgres
            .map(|address| format!(" postgres={address}"))
            .unwrap_or_default();
        let otlp = otlp
            .map(|at| format!(" otlp_http={} otlp_grpc={}", at.http, at.grpc))
            .unwrap_or_default();
        let _ = print(&format!("ready api={scheme}://{api} bus={}{postgres}{otlp}\n", bus.url));
        notifier.ready(&format!("serves {scheme}://{api}, bus {}", bus.url));
        std::future::pending().await
    };
    let alive = mixer.liveness_probe();
    let exit = tokio::select! {
        () = asked.cancelled() => ExitReason::Ok,
        () = announced => ExitReason::Ok,
        never = notifier.beat(alive) => match never {},
        failure = mixer.failed() => {
            tracing::error!("cannot continue: {failure}");
            failure.exit
        }
    };
    notifier.stopping();
    tokio::select! {
        () = mixer.close() => {}
        // The log's last rows may take longer to be on disk than the watchdog waits.
        never = notifier.beat(|| {}) => match never {},
    }
    tracing::info!("stopped");
    exit
}
