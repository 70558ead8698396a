//! The command tree. Flags carry the same names and types as the REST API's parameters (`model::filter`).
//!
//! | file | what |
//! |---|---|
//! | `shared` | where to ask, how to print, which window |
//! | `telemetry` | the flags of queries |
//! | `access` | logins and API tokens |
//! | `admin` | Racks, scenarios, gears, configuration |
//! | `dlq` | the dead-letter queue |
//! | `program` | what no Mixer is asked for: first configurations, joining a cluster, schemas, this program's check, its completions, its pages |

mod access;
mod admin;
mod dlq;
mod program;
mod shared;
mod telemetry;

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args as ClapArgs, Parser, Subcommand};

pub(crate) use self::access::{LoginArgs, LogoutArgs, TokenArgs, TokenCreateArgs, TokenVerb};
pub(crate) use self::admin::{
    ActivationArgs, AuditArgs, AuditVerb, CatalogArgs, ConfigArgs, ConfigFileVerb, GearsArgs, GearsVerb, GraphFormat,
    LabelChange, RackTargetArgs, RacksArgs, RacksVerb, RequestsArgs, RequestsVerb, ScenarioArgs, ScenarioVerb,
    SpecArgs, SpecVerb, TapArgs,
};
pub(crate) use self::dlq::{DlqArgs, DlqDropArgs, DlqListArgs, DlqReplayArgs, DlqVerb, LetterSelectionArgs};
pub(crate) use self::program::{CompletionsArgs, DoctorArgs, InitArgs, JoinArgs, ManArgs, SchemaArgs};
pub(crate) use self::shared::{ApiArgs, ChartMode, OutputFormat, PageArgs, value_sets_by_key, values_by_key, window};
pub(crate) use self::telemetry::{
    FluxArgs, LogsArgs, LogsTopArgs, LogsVerb, MessagesArgs, MetricLabelsArgs, MetricsArgs, MetricsVerb, SeriesArgs,
    SpanListArgs, SqlArgs, TailArgs, TraceArgs, TracesArgs,
};

/// Runs a Rack, and queries and manages a Mixer.
///
/// Without a command it runs the Rack agent with the platform.toml of the working folder.
#[derive(Debug, Parser)]
#[command(name = "platform", version, max_term_width = 110)]
pub(crate) struct PlatformArgs {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

/// What every command understands.
#[derive(Debug, ClapArgs)]
pub(crate) struct GlobalArgs {
    /// The configuration file [default: platform.toml in the working folder, if it is there]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The agent's log level: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    /// Log this command to platform-cli.log, beside the Rack's log file (the agent always logs)
    #[arg(long, global = true, env = "PLATFORM_CLI_LOG", value_parser = FalseyValueParser::new(), hide_env_values = true)]
    pub(crate) log: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the Rack agent (the same as no command)
    Run,
    /// Query log entries
    Logs(Box<LogsArgs>),
    /// Follow the logs: print entries as they become visible, until an interrupt
    Tail(Box<TailArgs>),
    /// Tap an output port of a Rack: show messages as they leave it, until an interrupt, without slowing the flow
    ///
    /// It shows the messages of any wire of the port, of both lanes, archived or not: the first 4 KiB of the body and of the metadata.
    /// Messages that come faster than they can be shown are dropped here and counted; the flow is not affected.
    Tap(TapArgs),
    /// Query metrics: points, or buckets with --interval
    Metrics(Box<MetricsArgs>),
    /// Query spans
    Traces(Box<SpanListArgs>),
    /// Show one trace: bars over time on a terminal, a tree elsewhere
    Trace(TraceArgs),
    /// List the services of spans: how many spans and errors each has, how long they took
    Services(Box<TracesArgs>),
    /// List which service calls which, how often, and how often in vain
    Dependencies(Box<TracesArgs>),
    /// Query business messages, if the Mixer archives them
    ///
    /// Archived is what leaves a gear by a wire of lane guaranteed. What goes by wires of lane hot only is not; its spans and log
    /// records are.
    Messages(Box<MessagesArgs>),
    /// Show one business signal: its messages, spans and log records over time, over all Racks
    ///
    /// Its messages are those that left a gear by a wire of lane guaranteed. What goes by wires of lane hot only is not archived;
    /// its spans and log records are there.
    Flux(FluxArgs),
    /// List dead letters: messages that gears could not handle, telemetry that could not be decoded
    DeadLetters(PageArgs),
    /// List, show, replay and drop what gears could not handle: the dead-letter queue
    Dlq(DlqArgs),
    /// Query by SQL: the tables logs, traces, metrics and messages, and messages_NAME of each spec
    Sql(Box<SqlArgs>),
    /// Show what the Mixer stores
    Storage(ApiArgs),
    /// Show the tables of the Iceberg catalogue, their snapshots, and how far they are behind what is stored
    Catalog(CatalogArgs),
    /// List and adopt Racks
    Racks(RacksArgs),
    /// List and withdraw changes that wait for a second person (`api.second_person` of the Mixer)
    Requests(RequestsArgs),
    /// Write the configuration of a first Mixer and Rack, or of a Rack that joins, and a first scenario
    Init(InitArgs),
    /// Join a cluster with an invite: it is kept in this Rack's state, and the Rack is admitted at its next start
    Join(JoinArgs),
    /// List the wires of lane guaranteed and what waits for each, the largest backlog first
    Wires(ApiArgs),
    /// List the audit log: changes of Racks, scenarios and dead letters and who made them
    Audit(AuditArgs),
    /// Copy the registry and the keys into a folder of the Mixer's machine; `platform-mixer restore` brings them back
    Backup(ApiArgs),
    /// List, make and revoke API tokens
    Token(TokenArgs),
    /// Keep a token for a Mixer, which comes on standard input, and ask that Mixer from now on
    Login(LoginArgs),
    /// Forget the token of a Mixer
    Logout(LogoutArgs),
    /// Show who the Mixer takes this user for, with its roles and scope
    Whoami(ApiArgs),
    /// Check, store, activate and draw scenarios; show what runs
    Scenario(ScenarioArgs),
    /// Check specs of business messages; list those in force
    Spec(SpecArgs),
    /// Describe gear types
    Gears(GearsArgs),
    /// Show, create and convert configuration files
    Config(ConfigArgs),
    /// Print the statements by which DuckDB, ClickHouse, Spark, Trino or polars read the data files
    Schema(SchemaArgs),
    /// Check what this Rack needs to work: configuration, API, clock, version, disk, bus, permissions
    Doctor(DoctorArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder
    Man(ManArgs),
}
