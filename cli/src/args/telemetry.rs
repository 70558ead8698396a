//! The flags of queries.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use model::filter::{HistogramGrouping, LogFilter, MetricAggregate, RawForm, SeriesFilter};
use model::{BadId, FluxId, HumanDuration, Level, MessageDirection, SpanStatus, TraceId};
use serde_json::Value;

use super::shared::{ApiArgs, ChartMode, LEVELS, PageArgs, one_of, value_sets_by_key, values_by_key};
use crate::error::Error;
use crate::nearest_word::nearest;
use crate::time_args::TimeArg;

const GROUPINGS: &[&str] = &["none", "level", "entity_name"];
const STATUSES: &[&str] = &["ok", "error"];
const DIRECTIONS: &[&str] = &["internal", "outbound", "inbound"];
const RAW_FORMS: &[&str] = &["hex", "base64", "json", "none"];
const LOG_FIELDS: &[&str] = &["entity_id", "entity_name", "flux_id", "level", "message"];
const AGGREGATES: &[&str] = &["avg", "sum", "min", "max", "count", "last", "rate"];

/// Which log entries.
#[derive(Debug, ClapArgs)]
pub(crate) struct LogFilterArgs {
    /// This level and above: debug, info, warn or error
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = one_of::<Level>(LEVELS))]
    pub(crate) min_level: Option<Level>,
    /// Exactly this level
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = one_of::<Level>(LEVELS))]
    pub(crate) level: Option<Level>,
    /// An entity's name or id, such as a Rack's
    #[arg(long, alias = "rack")]
    pub(crate) entity: Option<String>,
    /// A service: the attribute resource.service.name, else the entity's name
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// A gear's name
    #[arg(long, value_name = "NAME")]
    pub(crate) gear: Option<String>,
    /// A business signal
    #[arg(long, value_name = "UUID")]
    pub(crate) flux_id: Option<FluxId>,
    /// A trace
    #[arg(long, value_name = "HEX")]
    pub(crate) trace_id: Option<TraceId>,
    /// A part of the message, case-insensitive
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) q: Option<String>,
    /// An attribute and its value; may be repeated with another key
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) attr: Vec<(String, String)>,
    /// Exclude a level; may be repeated
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = one_of::<Level>(LEVELS))]
    pub(crate) not_level: Vec<Level>,
    /// Exclude an entity; may be repeated
    #[arg(long, value_name = "ENTITY")]
    pub(crate) not_entity: Vec<String>,
    /// Exclude a service; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) not_service: Vec<String>,
    /// Exclude messages with this part, case-insensitive; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) not_q: Vec<String>,
    /// Exclude a value of an attribute; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) not_attr: Vec<(String, String)>,
}

impl LogFilterArgs {
    /// The filter that they are.
    pub(crate) fn filter(&self) -> Result<LogFilter, Error> {
        Ok(LogFilter {
            level: self.level,
            min_level: self.min_level,
            gear_id: self.gear.clone(),
            entity: self.entity.clone(),
            service: self.service.clone(),
            flux_id: self.flux_id,
            trace_id: self.trace_id,
            q: self.q.clone(),
            attributes: values_by_key("attr", &self.attr)?,
            not_level: self.not_level.iter().copied().collect(),
            not_entity: self.not_entity.iter().cloned().collect(),
            not_service: self.not_service.iter().cloned().collect(),
            not_q: self.not_q.iter().cloned().collect(),
            not_attributes: value_sets_by_key(&self.not_attr),
            ..LogFilter::default()
        })
    }
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LogsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<LogsVerb>,
    #[command(flatten)]
    pub(crate) rows: LogFilterArgs,
    /// Follow: print new entries as they become visible, oldest first, until an interrupt
    #[arg(short, long, conflicts_with_all = ["until", "wait", "histogram"])]
    pub(crate) follow: bool,
    /// Count entries over time instead of listing them, with bars; --limit is ignored
    #[arg(long)]
    pub(crate) histogram: bool,
    /// The width of a histogram's bucket, such as 1m, 5m or 1h [default: about a sixtieth of the window]
    #[arg(long, value_name = "DURATION", requires = "histogram")]
    pub(crate) interval: Option<HumanDuration>,
    /// What a histogram's counts are split by: none, level or entity_name
    #[arg(long, value_name = "COLUMN", requires = "histogram", hide_possible_values = true, value_parser = one_of::<HistogramGrouping>(GROUPINGS))]
    pub(crate) by: Option<HistogramGrouping>,
    /// Print every row of the window, the oldest first, as --output csv or ndjson
    #[arg(long, conflicts_with_all = ["follow", "histogram", "around", "limit", "wait"])]
    pub(crate) all: bool,
    /// List the entries before and after a time, which is written as with --since
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["follow", "histogram", "limit"])]
    pub(crate) around: Option<TimeArg>,
    /// How many entries before --around [default: 20]
    #[arg(long, value_name = "COUNT", requires = "around")]
    pub(crate) before: Option<u32>,
    /// How many entries after --around [default: 20]
    #[arg(long, value_name = "COUNT", requires = "around")]
    pub(crate) after: Option<u32>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogsVerb {
    /// List the most frequent values of a field, and how many entries have each
    Top(Box<LogsTopArgs>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogsTopArgs {
    /// entity_id, entity_name, flux_id, level, message, or attr.KEY for an attribute
    #[arg(value_parser = log_field)]
    pub(crate) field: String,
    #[command(flatten)]
    pub(crate) rows: LogFilterArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) rows: LogFilterArgs,
    /// Begin with every stored entry since an age (90s, 1h, 7d) or a time (14:30, 2026-11-21, "2026-11-21 14:30", 2026-11-21T14:30:00Z)
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<TimeArg>,
    /// Begin with at most this many of the newest entries; without --since those of the last 24 h
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: Option<u32>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MetricsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<MetricsVerb>,
    /// The metric's name; without it, points of all metrics
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// An entity's name or id, such as a Rack's
    #[arg(long, alias = "rack")]
    pub(crate) entity: Option<String>,
    /// A label and its value; may be repeated with another key
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) label: Vec<(String, String)>,
    /// A service: the label resource.service.name, else the entity's name
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// The width of a time bucket, such as 1m, 5m or 1h
    #[arg(long, value_name = "DURATION")]
    pub(crate) interval: Option<HumanDuration>,
    /// Include buckets without points
    #[arg(long, requires = "interval")]
    pub(crate) fill: bool,
    /// entity_name, entity_id, name, type or a label key
    #[arg(long, value_name = "KEY")]
    pub(crate) group_by: Option<String>,
    /// How the values of a bucket are aggregated: avg, sum, min, max, count, last, rate, or of histograms p50 to p99 (p999 is 99.9 %)
    #[arg(long, value_parser = aggregate)]
    pub(crate) agg: Option<MetricAggregate>,
    /// List the newest exemplars of the points of --name: observations with their traces
    #[arg(long, requires = "name", conflicts_with_all = ["interval", "group_by", "agg"])]
    pub(crate) exemplars: bool,
    /// Whether buckets are drawn: a line of blocks for each series, a bar a row where rows compare
    #[arg(long, value_enum, default_value_t = ChartMode::Auto)]
    pub(crate) chart: ChartMode,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MetricsVerb {
    /// List the metrics that have points, with their types
    Names(Box<SeriesArgs>),
    /// List the label keys of a metric, or the values of one of them
    Labels(Box<MetricLabelsArgs>),
}

/// The points of which series.
#[derive(Debug, ClapArgs)]
pub(crate) struct SeriesArgs {
    /// An entity's name or id, such as a Rack's
    #[arg(long, alias = "rack")]
    pub(crate) entity: Option<String>,
    /// A label and its value; may be repeated with another key
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) label: Vec<(String, String)>,
    /// A service: the label resource.service.name, else the entity's name
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

impl SeriesArgs {
    /// The filter that they are.
    pub(crate) fn filter(&self) -> Result<SeriesFilter, Error> {
        let (since, until) = self.page.window()?;
        Ok(SeriesFilter {
            entity: self.entity.clone(),
            service: self.service.clone(),
            labels: values_by_key("label", &self.label)?,
            since,
            until,
            limit: Some(self.page.limit),
        })
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MetricLabelsArgs {
    /// The metric's name
    pub(crate) name: String,
    /// A label key: its values are listed
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SpanListArgs {
    /// Print every row of the window, the oldest first, as --output csv or ndjson
    #[arg(long, conflicts_with_all = ["limit", "wait"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) spans: TracesArgs,
}

/// Which spans.
#[derive(Debug, ClapArgs)]
pub(crate) struct TracesArgs {
    /// A business signal
    #[arg(long, value_name = "UUID")]
    pub(crate) flux_id: Option<FluxId>,
    /// Minimum duration in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) min_duration_ms: Option<u32>,
    /// The outcome: ok or error
    #[arg(long, hide_possible_values = true, value_parser = one_of::<SpanStatus>(STATUSES))]
    pub(crate) status: Option<SpanStatus>,
    /// An entity's name or id, such as a Rack's
    #[arg(long, alias = "rack")]
    pub(crate) entity: Option<String>,
    /// A service: the attribute resource.service.name, else the entity's name
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// The operation
    #[arg(long, value_name = "NAME")]
    pub(crate) span_name: Option<String>,
    /// An attribute and its value; may be repeated with another key
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) attr: Vec<(String, String)>,
    /// Exclude an entity; may be repeated
    #[arg(long, value_name = "ENTITY")]
    pub(crate) not_entity: Vec<String>,
    /// Exclude a service; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) not_service: Vec<String>,
    /// Exclude an operation; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) not_span_name: Vec<String>,
    /// Exclude a value of an attribute; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) not_attr: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MessagesArgs {
    /// A business signal
    #[arg(long, value_name = "UUID")]
    pub(crate) flux_id: Option<FluxId>,
    /// A trace
    #[arg(long, value_name = "HEX")]
    pub(crate) trace_id: Option<TraceId>,
    /// A Rack's entity id or name
    #[arg(long, value_name = "RACK")]
    pub(crate) rack_id: Option<String>,
    /// An entity's name or id, such as a Rack's
    #[arg(long, alias = "rack")]
    pub(crate) entity: Option<String>,
    /// The gear that sent it
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// The receiving gear, if there is only one
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// What kind of message it is
    #[arg(long, value_name = "TYPE")]
    pub(crate) msg_type: Option<String>,
    /// Its direction as its Rack saw it: internal (to gears of the same Rack), outbound (also to another one), or inbound (no Rack sent it)
    #[arg(long, hide_possible_values = true, value_parser = one_of::<MessageDirection>(DIRECTIONS))]
    pub(crate) direction: Option<MessageDirection>,
    /// Whether it could be read: ok or error
    #[arg(long, hide_possible_values = true, value_parser = one_of::<SpanStatus>(STATUSES))]
    pub(crate) status: Option<SpanStatus>,
    /// A promoted field and its value; may be repeated with another key
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) promoted: Vec<(String, String)>,
    /// How bytes are shown: hex, base64, json (decoded; a table has the body) or none [default: hex in JSON, else none]
    #[arg(long, value_name = "FORM", hide_possible_values = true, value_parser = one_of::<RawForm>(RAW_FORMS))]
    pub(crate) raw: Option<RawForm>,
    /// Print every row of the window, the oldest first, as --output csv or ndjson
    #[arg(long, conflicts_with_all = ["follow", "limit", "wait"])]
    pub(crate) all: bool,
    /// Follow: print new messages as they become visible, oldest first, until an interrupt
    #[arg(short, long, conflicts_with_all = ["until", "wait"])]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FluxArgs {
    /// The business signal: a UUID, as messages, spans and log records carry it
    pub(crate) id: FluxId,
    /// Start: an age or a time, as elsewhere [default: everything that is stored]
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<TimeArg>,
    /// End (exclusive): the same
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<TimeArg>,
    /// Maximum number of messages, spans and log records; the earliest ones are kept
    #[arg(long, short = 'n', default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give a key and a value, such as http.status=500".to_owned()),
    }
}

fn log_field(text: &str) -> Result<String, String> {
    if LOG_FIELDS.contains(&text) || text.starts_with("attr.") {
        return Ok(text.to_owned());
    }
    let meant = nearest(text, LOG_FIELDS.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    Err(format!("give {} or attr.KEY{meant}", LOG_FIELDS.join(", ")))
}

fn aggregate(text: &str) -> Result<MetricAggregate, String> {
    text.parse()
        .map_err(|error: BadId| match nearest(text, AGGREGATES.iter().copied()) {
            Some(meant) => format!("{error}; did you mean {meant}?"),
            None => error.to_string(),
        })
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceArgs {
    /// The trace id: 32 hex digits
    pub(crate) id: TraceId,
    /// Whether the spans are drawn as bars over time instead of listed as a tree
    #[arg(long, value_enum, default_value_t = ChartMode::Auto)]
    pub(crate) chart: ChartMode,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SqlArgs {
    /// The statement; - reads it from standard input. Without one it is read from standard input too, or a shell asks for
    /// statements if that is a terminal
    #[arg(conflicts_with = "file")]
    pub(crate) statement: Option<String>,
    /// Read the statement from a file
    #[arg(long, short)]
    pub(crate) file: Option<PathBuf>,
    /// The value of $NAME: a number, true, false, null, or else a text
    #[arg(long = "param", short, value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, Value)>,
    /// Maximum number of rows [default: as many as the Mixer allows]
    #[arg(long, short = 'n')]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

fn parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let known = serde_json::from_str(value).ok();
    let known = known.filter(|value: &Value| !value.is_array() && !value.is_object());
    Ok((name.to_owned(), known.unwrap_or_else(|| value.into())))
}
