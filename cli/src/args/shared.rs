//! Flags that many commands share: API address, output format, time window.

use std::collections::BTreeSet;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum};
use model::HumanDuration;
use model::filter::{KeyedValueSets, KeyedValues, TimePoint};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::time_args::{DisplayZone, TimeArg};

/// The levels of a log, the lowest first.
pub(super) const LEVELS: &[&str] = &["debug", "info", "warn", "error"];

/// Where to ask and how to print.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ApiArgs {
    /// The Mixer's API [default: the Mixer of the last `platform login`, else http://localhost:8090]
    #[arg(long, env = "PLATFORM_API_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
    /// Read and show times in UTC; without it tables have local times, and times without a zone are read as local ones
    #[arg(long)]
    pub(crate) utc: bool,
    /// Never start a pager; without it, a table longer than the terminal goes through $PAGER, or `less -FRX`
    #[arg(long)]
    pub(crate) no_pager: bool,
    /// Show all columns of a table, whole; without it, a table on a terminal has what fits
    #[arg(long)]
    pub(crate) wide: bool,
}

impl ApiArgs {
    /// The zone in which times without one are read, and in which tables show theirs.
    pub(crate) fn zone(&self) -> DisplayZone {
        if self.utc { DisplayZone::Utc } else { DisplayZone::Local }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Aligned columns for people; local times
    Table,
    /// One JSON array; UTC
    Json,
    /// One JSON object a line; UTC
    Ndjson,
    /// Comma-separated values with a header; UTC
    Csv,
}

/// Whether a table comes with a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartMode {
    /// With tables on a terminal
    Auto,
    /// With every table
    Always,
    /// Not at all
    Never,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PageArgs {
    /// Start: an age (90s, 1h, 7d) or a time (14:30, 2026-11-21, "2026-11-21 14:30", 2026-11-21T14:30:00Z)
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<TimeArg>,
    /// End (exclusive): the same
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<TimeArg>,
    /// Maximum number of rows
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// How long to wait for the Mixer to be ready and for the first row, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

impl PageArgs {
    /// `--since` and `--until` as the API takes them.
    pub(crate) fn window(&self) -> Result<(Option<TimePoint>, Option<TimePoint>), Error> {
        window((self.since, self.until), self.api.zone())
    }
}

/// `--since` and `--until`, of times in a zone, as the API takes them.
pub(crate) fn window(
    (since, until): (Option<TimeArg>, Option<TimeArg>),
    zone: DisplayZone,
) -> Result<(Option<TimePoint>, Option<TimePoint>), Error> {
    let now = chassis::system_clock().now();
    let read = |flag: &str, time: Option<TimeArg>| {
        time.map(|time| time.when(zone, now))
            .transpose()
            .map_err(|reason| Error::Usage(format!("--{flag}: {reason}")))
    };
    Ok((read("since", since)?, read("until", until)?))
}

/// Values by their keys; a key must not come twice, as all values must be met.
pub(crate) fn values_by_key(flag: &str, pairs: &[(String, String)]) -> Result<KeyedValues, Error> {
    let mut keys = BTreeSet::new();
    match pairs.iter().find(|(key, _)| !keys.insert(key)) {
        Some((key, _)) => Err(Error::Usage(format!("--{flag}: {key} is given twice"))),
        None => Ok(pairs.iter().cloned().collect()),
    }
}

/// Values of flags that may be repeated with the same key.
pub(crate) fn value_sets_by_key(pairs: &[(String, String)]) -> KeyedValueSets {
    let mut sets = KeyedValueSets::new();
    for (key, value) in pairs {
        sets.entry(key.clone()).or_default().insert(value.clone());
    }
    sets
}

/// One of the words that the API has for a value: shells complete them, and a near miss is told which may be meant.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words.iter().copied()).try_map(|text: String| {
        let read = serde_json::from_value::<T>(text.into());
        read.map_err(|error| error.to_string())
    })
}
