//! The flags of queries.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use model::filter::Aggregate;
use model::{FluxId, HumanDuration, Level, SpanStatus, TraceId};

use serde_json::Value;

use super::shared::{ApiArgs, Charting, PageArgs};

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
    /// Whether buckets are drawn: a line of blocks for each series, a bar a row where rows compare
    #[arg(long, value_enum, default_value_t = Charting::Auto)]
    pub(crate) chart: Charting,
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
    /// Whether the spans are drawn as bars over time instead of listed as a tree
    #[arg(long, value_enum, default_value_t = Charting::Auto)]
    pub(crate) chart: Charting,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SqlArgs {
    /// The statement; - reads it from standard input
    #[arg(conflicts_with = "file")]
    pub(crate) statement: Option<String>,
    /// Read the statement from a file
    #[arg(long, short)]
    pub(crate) file: Option<PathBuf>,
    /// What $NAME stands for: a number, true, false, null, or else a text
    #[arg(long = "param", short, value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, Value)>,
    /// At most so many rows [default: as many as the Mixer gives]
    #[arg(long)]
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
