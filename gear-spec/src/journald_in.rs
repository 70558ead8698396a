//! `journald_in` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The program that reads journals.
pub const PROGRAM: &str = "/usr/bin/journalctl";

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "journald_in",
    summary: "follows the journal of systemd; each entry becomes a log record",
    inputs: &[],
    outputs: &[],
    doc: "Nothing is to be wired: entries go to the logs table with their own time, the level of their priority, and `host.name`, `process.pid`, `syslog.identifier`, `systemd.unit` and `syslog.priority`. \
          The place in the journal is written together with the records: after a restart of the Rack no entry is missing or there twice, as far as the journal still has it. \
          A message of more than 64 KiB is cut and marked `truncated`. The journal is read by `/usr/bin/journalctl`: the operator of the Rack sets `gears.journald.allow`, and adds the Rack's user to the group \
          systemd-journal. Where it ends it is started again, after a growing pause.",
    example: include_str!("../../examples/gears/journald_in.yaml"),
    schema: gear_manifest::schema::<JournaldInConfig>,
    check: gear_manifest::check::<JournaldInConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `journald_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournaldInConfig {
    /// Where a gear begins that has no place in the journal yet: `now`, or `all` of it.
    #[serde(default)]
    pub start: JournalStart,
    /// Only entries of these units, such as `nginx.service`; of all without any.
    #[serde(default)]
    pub units: Vec<String>,
}

/// Where a gear begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JournalStart {
    /// With entries that come from now on.
    #[default]
    Now,
    /// With the oldest entry.
    All,
}

impl GearConfig for JournaldInConfig {
    fn validate(&self) -> Result<(), String> {
        if self.units.iter().any(|unit| unit.is_empty() || unit.contains('\0')) {
            return Err("units must be names of units such as nginx.service".into());
        }
        Ok(())
    }
}
