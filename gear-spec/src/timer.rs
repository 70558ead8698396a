//! `timer` as data: its manifest and its configuration.

use chrono::{TimeZone, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use model::gear_manifest::{self, GearConfig, GearManifest};
use model::{HumanDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::poll_interval::check_interval;

/// From here on an expression must have a time: 2000-01-01.
const EPOCH: Timestamp = Timestamp::from_micros(946_684_800_000_000);

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "timer",
    summary: "makes a message at an interval or at the times of a cron expression",
    inputs: &[],
    outputs: &["out"],
    doc: "Messages have `timer.number`, which counts from 0, and `timer.scheduled`, the time they were due, in their meta. \
          Ticks that were missed, since the Rack was stopped or the inbox behind was full, are not made up for: one message comes for \
          all of them. `every` goes by a clock that nobody sets and that stands still while the machine sleeps. `cron` goes by the machine's: set forward over several times, or woken behind them, it gives one message; \
          set back by up to an hour, no time comes twice; set back farther, times come again. Where daylight saving time leaves out a local time, \
          it comes right after the gap.",
    example: include_str!("../../examples/gears/timer.yaml"),
    schema: gear_manifest::schema::<TimerConfig>,
    check: gear_manifest::check::<TimerConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `timer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerConfig {
    /// The time between two messages; this or `cron`.
    #[serde(default)]
    pub every: Option<HumanDuration>,
    /// The times of messages as five fields (minute, hour, day of month, month, day of week), or six with the second in front; this or `every`.
    #[serde(default)]
    cron: Option<String>,
    /// What the fields of `cron` mean: `utc`, or `local` for the time zone of the Rack's machine.
    #[serde(default)]
    pub timezone: TimeZoneChoice,
    /// The value of each message; none for an empty message.
    #[serde(default)]
    pub payload: Value,
    /// Whether a message comes when the gear starts, too.
    #[serde(default)]
    pub at_start: bool,
}

/// What the fields of an expression mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeZoneChoice {
    /// Universal time.
    #[default]
    Utc,
    /// The time zone of the Rack's machine.
    Local,
}

impl TimerConfig {
    /// The times of `cron`, where it is given.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn cron_times(&self) -> Result<Option<Cron>, String> {
        self.cron.as_deref().map(parse_cron).transpose()
    }
}

/// Reads a cron expression.
///
/// # Errors
/// A sentence that names the key.
pub fn parse_cron(text: &str) -> Result<Cron, String> {
    let fields = text.split_whitespace().count();
    if !text.trim().starts_with('@') && !(5..=6).contains(&fields) {
        return Err(format!(
            "cron {text:?} must have five fields, or six with the second in front"
        ));
    }
    // To the parser such a list is one of no times, which it then looks for without end.
    if text.split_whitespace().any(|field| field.split(',').any(str::is_empty)) {
        return Err(format!("cron {text:?}: something is missing beside a comma"));
    }
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        .year(Year::Disallowed)
        .build();
    let cron = parser.parse(text).map_err(|error| format!("cron {text:?}: {error}"))?;
    if next_in(&cron, EPOCH, &Utc).is_none() {
        return Err(format!("cron {text:?}: such a time never comes"));
    }
    Ok(cron)
}

/// The first time of a cron expression after a time, in a zone.
#[must_use]
pub fn next_in(cron: &Cron, after: Timestamp, zone: &impl TimeZone) -> Option<Timestamp> {
    let after = after.to_datetime()?.with_timezone(zone);
    let next = cron.find_next_occurrence(&after, false).ok()?;
    Some(next.to_utc().into())
}

impl GearConfig for TimerConfig {
    fn validate(&self) -> Result<(), String> {
        match (self.every, &self.cron) {
            (Some(_), Some(_)) => Err("every and cron exclude each other: leave one out".into()),
            (None, None) => Err("every or cron must say when messages come, such as every: 10s".into()),
            (Some(_), None) if self.timezone != TimeZoneChoice::default() => {
                Err("timezone means nothing with every: leave it out, or use cron".into())
            }
            (Some(every), None) => check_interval("every", every),
            (None, Some(_)) => self.cron_times().map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_that_says_no_time_or_two_is_refused_with_the_fix() {
        for (config, says) in [
            (json!({}), "every or cron must say"),
            (json!({ "every": "1s", "cron": "* * * * *" }), "leave one out"),
            (json!({ "every": "0s" }), "between 1ms and 366d"),
            (json!({ "every": "1s", "timezone": "local" }), "timezone means nothing"),
            (json!({ "cron": "61 * * * *" }), "cron \"61 * * * *\""),
            (json!({ "cron": "* * *" }), "five fields"),
            (json!({ "cron": "0 0 30 2 *" }), "never comes"),
            (json!({ "cron": "*/5 , * * * *" }), "beside a comma"),
            (json!({ "cron": "0 0 1, * *" }), "beside a comma"),
        ] {
            let error = gear_manifest::config::<TimerConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
