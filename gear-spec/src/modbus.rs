//! `modbus` as data: its manifest, and its configuration: the device, and what of it has a name.

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network_address::check_address;
use crate::poll_interval::check_interval;

/// The most entries of a list.
const MAX_ENTRIES: usize = 10_000;
/// The key of a message under which it says what could not be read.
pub const ERRORS: &str = "errors";

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "modbus",
    summary: "reads values of a Modbus TCP device at an interval, and writes those that messages name",
    inputs: &["write"],
    outputs: &["out"],
    doc: "Each reading is a message, an object of names and values; `errors` in it names what the device refused to read and why. \
          Values that lie side by side are read with one request. Messages have `modbus.address` and `modbus.unit` in their meta. \
          A message on `write` is an object of names of `writes` and values; it is written in the order of `writes`, taken when the device has confirmed it, and rejected when the device refuses it. \
          A device that is away or silent, or too busy to write, is tried again after a pause that grows to 30s; messages on `write` wait meanwhile. A write that the device leaves without an answer five times while it answers others is rejected; so is one that it confirms with another value. \
          No reading is made up for. A write whose confirmation was lost is done again: the device may get it twice.",
    example: include_str!("../../examples/gears/modbus.yaml"),
    schema: gear_manifest::schema::<ModbusConfig>,
    check: gear_manifest::check::<ModbusConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `modbus`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModbusConfig {
    /// The device: a host name or an address, and a port, such as `plc.example:502`.
    #[schemars(extend("x-access" = "connect"))]
    pub address: String,
    /// The unit that is asked; matters where the device is a gateway.
    #[serde(default = "default_unit")]
    pub unit: u8,
    /// The time from one reading to the next; a reading that failed is tried again sooner where that is long.
    #[serde(default = "default_every")]
    pub every: HumanDuration,
    /// How long the device may take to answer one request, or to take a connection.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// What is read, all of it each time.
    #[serde(default)]
    pub reads: Vec<ModbusEntry>,
    /// What messages on `write` may set. What a message sets is written in this order, whatever its own; neighbours with adjacent addresses are one request.
    #[serde(default)]
    pub writes: Vec<ModbusEntry>,
}

/// A value of the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModbusEntry {
    /// Its name in messages.
    pub name: String,
    /// Where it is: `coil`, `discrete`, `holding` or `input`; only `coil` and `holding` can be written.
    pub kind: TableKind,
    /// Its address, or that of its first register, counted from 0 as in the protocol: what manuals call 40001 is 0 of `holding`.
    pub address: u16,
    /// What it is: `bool`, `u16`, `i16`, `u32`, `i32`, `f32`, `u64`, `i64` or `f64`. Coils and discrete inputs are `bool`; registers are `u16` unless they say more.
    #[serde(default, rename = "type")]
    value_type: Option<ValueType>,
    /// Which of its registers comes first: `big` for the highest, `little` for the lowest.
    #[serde(default)]
    pub word_order: WordOrder,
    /// What the number in its registers is multiplied by.
    #[serde(default = "default_scale")]
    pub scale: f64,
    /// What is added then.
    #[serde(default)]
    pub offset: f64,
}

/// How registers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// Not zero.
    Bool,
    /// 16 bits.
    #[default]
    U16,
    /// 16 bits with a sign.
    I16,
    /// 32 bits.
    U32,
    /// 32 bits with a sign.
    I32,
    /// A floating point number of 32 bits.
    F32,
    /// 64 bits.
    U64,
    /// 64 bits with a sign.
    I64,
    /// A floating point number of 64 bits.
    F64,
}

/// The order of the registers of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WordOrder {
    /// The highest first.
    #[default]
    Big,
    /// The lowest first.
    Little,
}

/// A table of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
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
    #[must_use]
    pub const fn is_bits(self) -> bool {
        matches!(self, Self::Coil | Self::Discrete)
    }

    const fn is_writable(self) -> bool {
        matches!(self, Self::Coil | Self::Holding)
    }

    /// What a configuration calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coil => "coil",
            Self::Discrete => "discrete",
            Self::Holding => "holding",
            Self::Input => "input",
        }
    }
}

impl ValueType {
    /// How many registers it has.
    #[must_use]
    pub const fn registers(self) -> u16 {
        match self {
            Self::Bool | Self::U16 | Self::I16 => 1,
            Self::U32 | Self::I32 | Self::F32 => 2,
            Self::U64 | Self::I64 | Self::F64 => 4,
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
    /// What it is, where the configuration says nothing too.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        let usual = if self.kind.is_bits() {
            ValueType::Bool
        } else {
            ValueType::U16
        };
        self.value_type.unwrap_or(usual)
    }

    /// The address behind its last one.
    fn end(&self) -> u32 {
        u32::from(self.address) + u32::from(self.value_type().registers())
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
        if self.end() > 1 << 16 {
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
    let mut entries: Vec<&ModbusEntry> = entries.iter().collect();
    entries.sort_by_key(|entry| (entry.kind, entry.address));
    let mut pairs = entries.iter().zip(entries.iter().skip(1));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused_with_the_fix() {
        let with = |reads: Value, writes: Value| json!({ "address": "plc:502", "reads": reads, "writes": writes });
        let one = |entry: Value| with(json!([entry]), json!([]));
        for (config, says) in [
            (json!({ "address": "plc", "reads": [] }), "not host:port"),
            (with(json!([]), json!([])), "must name something"),
            (
                one(json!({ "name": "errors", "kind": "coil", "address": 0 })),
                "choose another one",
            ),
            (
                one(json!({ "name": "a", "kind": "coil", "address": 0, "type": "u16" })),
                "reads, a: a coil is one bit",
            ),
            (
                one(json!({ "name": "a", "kind": "input", "address": 65_535, "type": "f32" })),
                "the last address",
            ),
            (
                one(json!({ "name": "a", "kind": "input", "address": 0, "scale": 0 })),
                "other than 0",
            ),
            (
                one(json!({ "name": "a", "kind": "input", "address": 0, "type": "bool", "scale": 2 })),
                "no scale",
            ),
            (
                with(
                    json!([{ "name": "a", "kind": "coil", "address": 0 }, { "name": "a", "kind": "coil", "address": 1 }]),
                    json!([]),
                ),
                "the name a twice",
            ),
            (
                with(json!([]), json!([{ "name": "a", "kind": "input", "address": 0 }])),
                "only coil and holding",
            ),
            (
                with(
                    json!([]),
                    json!([{ "name": "a", "kind": "holding", "address": 0, "type": "u32" }, { "name": "b", "kind": "holding", "address": 1 }]),
                ),
                "a and b overlap",
            ),
        ] {
            let error = gear_manifest::config::<ModbusConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
