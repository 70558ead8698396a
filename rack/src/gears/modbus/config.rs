//! The configuration of `modbus`: the device, and what of it has a name.

use model::HumanDuration;
use model::gear_manifest::GearConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::tcp_connect::check_address;
use super::super::poll_schedule::check_interval;
use super::request_planner::NamedRange;
use super::register_value::{ValueFormat, ValueType, WordOrder};

/// The most entries of a list.
const MAX_ENTRIES: usize = 10_000;
/// The key of a message under which it says what could not be read.
pub(super) const ERRORS: &str = "errors";

/// Configuration of `modbus`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModbusConfig {
    /// The device: a host name or an address, and a port, such as `plc.example:502`.
    pub(super) address: String,
    /// The unit that is asked; matters where the device is a gateway.
    #[serde(default = "default_unit")]
    pub(super) unit: u8,
    /// The time from one reading to the next; a reading that failed is tried again sooner where that is long.
    #[serde(default = "default_every")]
    pub(super) every: HumanDuration,
    /// How long the device may take to answer one request, or to take a connection.
    #[serde(default = "default_timeout")]
    pub(super) timeout: HumanDuration,
    /// What is read, all of it each time.
    #[serde(default)]
    pub(super) reads: Vec<ModbusEntry>,
    /// What messages on `write` may set. What a message sets is written in this order, whatever its own; neighbours with adjacent addresses are one request.
    #[serde(default)]
    pub(super) writes: Vec<ModbusEntry>,
}

/// A value of the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModbusEntry {
    /// Its name in messages.
    pub(super) name: String,
    /// Where it is: `coil`, `discrete`, `holding` or `input`; only `coil` and `holding` can be written.
    pub(super) kind: TableKind,
    /// Its address, or that of its first register, counted from 0 as in the protocol: what manuals call 40001 is 0 of `holding`.
    pub(super) address: u16,
    /// What it is: `bool`, `u16`, `i16`, `u32`, `i32`, `f32`, `u64`, `i64` or `f64`. Coils and discrete inputs are `bool`; registers are `u16` unless they say more.
    #[serde(default, rename = "type")]
    value_type: Option<ValueType>,
    /// Which of its registers comes first: `big` for the highest, `little` for the lowest.
    #[serde(default)]
    word_order: WordOrder,
    /// What the number in its registers is multiplied by.
    #[serde(default = "default_scale")]
    scale: f64,
    /// What is added then.
    #[serde(default)]
    offset: f64,
}

/// A table of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableKind {
    /// Bits that can be written.
    Coil,
    /// Bits that cannot.
    Discrete,
    /// Registers that can be written.
    Holding,
    /// Registers that cannot.
    Input,
}

impl TableKind {
    /// Whether it has bits, not registers.
    pub(super) const fn is_bits(self) -> bool {
        matches!(self, Self::Coil | Self::Discrete)
    }

    const fn is_writable(self) -> bool {
        matches!(self, Self::Coil | Self::Holding)
    }

    /// What a configuration calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Coil => "coil",
            Self::Discrete => "discrete",
            Self::Holding => "holding",
            Self::Input => "input",
        }
    }
}

const fn default_unit() -> u8 {
    1
}

const fn default_every() -> HumanDuration {
    HumanDuration::from_secs(1)
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(1)
}

const fn default_scale() -> f64 {
    1.0
}

impl ModbusEntry {
    fn value_type(&self) -> ValueType {
        let usual = if self.kind.is_bits() {
            ValueType::Bool
        } else {
            ValueType::U16
        };
        self.value_type.unwrap_or(usual)
    }

    /// Where it lies and what it means.
    pub(super) fn range(&self) -> NamedRange {
        NamedRange {
            name: self.name.clone(),
            kind: self.kind,
            address: self.address,
            count: self.value_type().registers(),
            format: ValueFormat {
                value_type: self.value_type(),
                order: self.word_order,
                scale: self.scale,
                offset: self.offset,
            },
        }
    }

    #[allow(
        clippy::float_cmp,
        reason = "what the configuration says, or what it says by default"
    )]
    fn validate(&self) -> Result<(), String> {
        let (kind, value_type) = (self.kind.name(), self.value_type());
        if self.name.is_empty() || self.name == ERRORS {
            return Err(format!("the name {:?} is not to be had: choose another one", self.name));
        }
        if self.kind.is_bits() && value_type != ValueType::Bool {
            return Err(format!("a {kind} is one bit: its type is bool"));
        }
        let is_scaled = self.scale != default_scale() || self.offset != 0.0;
        if value_type == ValueType::Bool && is_scaled {
            return Err("a bool has no scale and no offset: leave them out".into());
        }
        if self.scale == 0.0 || !self.scale.is_finite() || !self.offset.is_finite() {
            return Err("scale must be a number other than 0, and offset a number".into());
        }
        if u32::from(self.address) + u32::from(value_type.registers()) > 1 << 16 {
            return Err("its registers end behind 65535, the last address".into());
        }
        Ok(())
    }
}

/// Says what is wrong with a list of entries.
fn check_entries(key: &str, entries: &[ModbusEntry]) -> Result<(), String> {
    if entries.len() > MAX_ENTRIES {
        return Err(format!("{key} must not have more than {MAX_ENTRIES} entries"));
    }
    let mut names = std::collections::BTreeSet::new();
    for entry in entries {
        entry
            .validate()
            .map_err(|error| format!("{key}, {}: {error}", entry.name))?;
        if !names.insert(&entry.name) {
            return Err(format!("{key} has the name {} twice: choose another one", entry.name));
        }
    }
    Ok(())
}

/// Says which entries would write the same.
fn check_writes(entries: &[ModbusEntry]) -> Result<(), String> {
    if let Some(entry) = entries.iter().find(|entry| !entry.kind.is_writable()) {
        let kind = entry.kind.name();
        return Err(format!(
            "writes, {}: a device does not let {kind} be written; only coil and holding",
            entry.name
        ));
    }
    let mut ranges: Vec<NamedRange> = entries.iter().map(ModbusEntry::range).collect();
    ranges.sort_by_key(|range| (range.kind, range.address));
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    match pairs.find(|(one, next)| one.kind == next.kind && one.end() > u32::from(next.address)) {
        Some((one, next)) => Err(format!("writes: {} and {} overlap; leave one out", one.name, next.name)),
        None => Ok(()),
    }
}

impl GearConfig for ModbusConfig {
    fn validate(&self) -> Result<(), String> {
        check_address("address", &self.address)?;
        check_interval("every", self.every)?;
        check_interval("timeout", self.timeout)?;
        if self.reads.is_empty() && self.writes.is_empty() {
            return Err("reads or writes must name something of the device".into());
        }
        check_entries("reads", &self.reads)?;
        check_entries("writes", &self.writes)?;
        check_writes(&self.writes)
    }
}
