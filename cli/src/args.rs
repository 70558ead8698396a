//! The command tree. Flags carry the same names and types as the REST API's parameters (`model::filter`).

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use model::filter::{Aggregate, When};
use model::{FluxId, HumanDuration, Level, SpanStatus, Token, TraceId};

/// Runs a Rack, and asks a Mixer.
///
/// Without a command it runs the Rack agent with the platform.toml of the working folder.
#[derive(Debug, Parser)]
#[command(name = "platform", version, max_term_width = 110)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What every command understands.
#[derive(Debug, ClapArgs)]
pub(crate) struct Global {
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
pub(crate) enum Command {
    /// Run the Rack agent (the same as no command)
    Run,
    /// Query log entries
    Logs(LogsArgs),
    /// Query metrics: points, or buckets with --interval
    Metrics(MetricsArgs),
    /// Query spans
    Traces(TracesArgs),
    /// Show one trace as a tree
    Trace(TraceArgs),
    /// List telemetry that could not be decoded, with the reason
    DeadLetters(PageArgs),
    /// Show what the Mixer stores
    Storage(ApiArgs),
    /// List and adopt Racks
    Racks(RacksArgs),
    /// Check scenario files, show what runs
    Scenario(ScenarioArgs),
    /// Describe gear types
    Gears(GearsArgs),
    /// Show, make and convert configuration files
    Config(ConfigArgs),
}

/// Where to ask and how to print.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ApiArgs {
    /// The Mixer's API
    #[arg(
        long,
        env = "PLATFORM_API_URL",
        hide_env_values = true,
        default_value = "http://localhost:8090",
        value_name = "URL"
    )]
    pub(crate) api_url: String,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people
    Table,
    /// One JSON array
    Json,
    /// One JSON object a line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PageArgs {
    /// Start: a duration such as 1h or 24h, or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<When>,
    /// End (exclusive): an RFC 3339 time or a duration
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<When>,
    /// At most so many rows
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Wait so long for the Mixer to be ready and for the first row, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogsArgs {
    /// This level and graver ones: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    pub(crate) min_level: Option<Level>,
    /// Exactly this level
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<Level>,
    /// An entity's name or id
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// A gear's name
    #[arg(long, value_name = "NAME")]
    pub(crate) gear: Option<String>,
    /// A business signal
    #[arg(long, value_name = "UUID")]
    pub(crate) flux_id: Option<FluxId>,
    /// A trace
    #[arg(long, value_name = "HEX")]
    pub(crate) trace_id: Option<TraceId>,
    /// A part of the message, in any letter case
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) q: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MetricsArgs {
    /// The metric's name; without it, points of all metrics
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// An entity's name or id
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// The width of a time bucket, such as 1m, 5m or 1h
    #[arg(long, value_name = "DURATION")]
    pub(crate) interval: Option<HumanDuration>,
    /// entity_name, entity_id, name, type or a label key
    #[arg(long, value_name = "KEY")]
    pub(crate) group_by: Option<String>,
    /// How values of a bucket become one: avg, sum, min, max, count, last or rate
    #[arg(long, value_parser = aggregate)]
    pub(crate) agg: Option<Aggregate>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

fn aggregate(text: &str) -> Result<Aggregate, String> {
    serde_json::from_value(text.into()).map_err(|_| "not one of avg, sum, min, max, count, last, rate".to_owned())
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TracesArgs {
    /// A business signal
    #[arg(long, value_name = "UUID")]
    pub(crate) flux_id: Option<FluxId>,
    /// At least so many milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) min_duration_ms: Option<u32>,
    /// The outcome: ok or error
    #[arg(long)]
    pub(crate) status: Option<SpanStatus>,
    /// An entity's name or id
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// The operation
    #[arg(long, value_name = "NAME")]
    pub(crate) span_name: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceArgs {
    /// The trace id: 32 hex digits
    pub(crate) id: TraceId,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RacksArgs {
    #[command(subcommand)]
    pub(crate) verb: RacksVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RacksVerb {
    /// List all Racks and their states
    List(ApiArgs),
    /// Show one Rack
    Show(OneRack),
    /// Adopt a pending Rack
    Approve {
        /// Give it this name
        #[arg(long)]
        name: Option<Token>,
        #[command(flatten)]
        rack: OneRack,
    },
    /// Stop a Rack's gears
    Suspend(OneRack),
    /// Start a suspended Rack's gears again
    Resume(OneRack),
    /// Revoke a Rack's identity
    Remove(OneRack),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct OneRack {
    /// The Rack's id or name
    pub(crate) rack: String,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScenarioArgs {
    #[command(subcommand)]
    pub(crate) verb: ScenarioVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioVerb {
    /// Check a scenario file
    Validate {
        /// The file
        file: PathBuf,
    },
    /// List the scenarios that the Mixer knows
    List(ApiArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GearsArgs {
    #[command(subcommand)]
    pub(crate) verb: GearsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GearsVerb {
    /// List the gear types with their ports
    List {
        /// How to print
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the merged configuration, secrets redacted
    Show {
        /// Say where each value came from
        #[arg(long)]
        origin: bool,
    },
    /// Print a commented default platform.toml
    Init,
    /// Print the current form of a v0.4.4 file; standard error says what changed and what is left to do
    Migrate {
        /// The file
        file: PathBuf,
    },
}
