//! Typed reads of configuration keys: the type of a field says what its key's value must be and how it is read.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use model::{ByteSize, Level, Token};

use super::schema::ValueKind;
use super::settings::Settings;
use super::value::SecretString;
use crate::config_error::ConfigProblem;

/// How a key is read: implemented by the types of fields, and by units of keys whose type does not say one.
pub trait ConfigReader {
    /// What comes out.
    type Value;

    /// What the key's value must be, unless its definition says it more exactly.
    const KIND: ValueKind;

    /// The value of a key. One that has the kind but no typed form is added to the problems; something else stands in for it.
    fn read(settings: &Settings, key: &'static str, problems: &mut Vec<ConfigProblem>) -> Self::Value;
}

/// The unit of keys in MiB (2^20 bytes).
#[derive(Debug)]
pub enum MebibyteCount {}

/// The unit of keys in GiB (2^30 bytes).
#[derive(Debug)]
pub enum GibibyteCount {}

/// The unit of keys in days.
#[derive(Debug)]
pub enum DayCount {}

const COUNT: ValueKind = ValueKind::Int { min: 0, max: i64::MAX };

macro_rules! config_readers {
    ($($reader:ty => $value:ty, $kind:expr, |$settings:ident, $key:ident| $read:expr;)+) => { $(
        impl ConfigReader for $reader {
            type Value = $value;
            const KIND: ValueKind = $kind;

            fn read($settings: &Settings, $key: &'static str, _: &mut Vec<ConfigProblem>) -> $value {
                $read
            }
        }
    )+ };
}

config_readers! {
    bool => bool, ValueKind::Bool, |settings, key| settings.bool(key);
    u16 => u16, ValueKind::Int { min: 0, max: 65_535 }, |settings, key| number(settings, key, u16::MAX);
    u32 => u32, ValueKind::Int { min: 0, max: 4_294_967_295 }, |settings, key| number(settings, key, u32::MAX);
    u64 => u64, COUNT, |settings, key| settings.int(key);
    usize => usize, COUNT, |settings, key| number(settings, key, usize::MAX);
    f64 => f64, ValueKind::Float { min: 0.0, max: f64::MAX }, |settings, key| settings.float(key);
    ByteSize => ByteSize, COUNT, |settings, key| ByteSize::bytes(settings.int(key));
    MebibyteCount => ByteSize, COUNT, |settings, key| ByteSize::mib(settings.int(key));
    GibibyteCount => ByteSize, COUNT, |settings, key| ByteSize::mib(settings.int(key).saturating_mul(1_024));
    Duration => Duration, ValueKind::span(1), |settings, key| settings.duration(key);
    DayCount => Duration, COUNT, |settings, key| Duration::from_secs(settings.int(key).saturating_mul(86_400));
    String => String, ValueKind::Text, |settings, key| settings.text(key).to_owned();
    Option<String> => Option<String>, ValueKind::Text, |settings, key| settings.some_text(key).map(str::to_owned);
    Option<SecretString> => Option<SecretString>, ValueKind::Text,
        |settings, key| settings.some_text(key).map(SecretString::new);
    PathBuf => PathBuf, ValueKind::Path, |settings, key| settings.path(key);
    Option<PathBuf> => Option<PathBuf>, ValueKind::Path, |settings, key| settings.some_text(key).map(PathBuf::from);
    Level => Level, ValueKind::Word(&["debug", "info", "warn", "error"]),
        |settings, key| settings.text(key).parse().unwrap_or(Level::Info);
    Vec<String> => Vec<String>, ValueKind::TextList, |settings, key| settings.list(key).to_vec();
    Vec<PathBuf> => Vec<PathBuf>, ValueKind::TextList,
        |settings, key| settings.list(key).iter().map(PathBuf::from).collect();
    BTreeMap<String, SecretString> => BTreeMap<String, SecretString>, ValueKind::TextMap,
        |settings, key| settings.map(key).into_iter().map(|(name, text)| (name, SecretString::new(text))).collect();
}

fn number<T: TryFrom<u64>>(settings: &Settings, key: &str, most: T) -> T {
    T::try_from(settings.int(key)).unwrap_or(most)
}

impl ConfigReader for IpAddr {
    type Value = Self;
    const KIND: ValueKind = ValueKind::Text;

    fn read(settings: &Settings, key: &'static str, problems: &mut Vec<ConfigProblem>) -> Self {
        let loopback = Self::V4(Ipv4Addr::LOCALHOST);
        match settings.text(key) {
            "localhost" => loopback,
            text => text.parse().unwrap_or_else(|_| {
                let wanted = "an IP address such as 127.0.0.1 or 0.0.0.0, or localhost";
                problems.push(bad_text(settings, key, wanted));
                loopback
            }),
        }
    }
}

impl ConfigReader for Option<IpAddr> {
    type Value = Self;
    const KIND: ValueKind = ValueKind::Text;

    fn read(settings: &Settings, key: &'static str, problems: &mut Vec<ConfigProblem>) -> Self {
        let parsed = settings.some_text(key)?.parse().ok();
        if parsed.is_none() {
            problems.push(bad_text(settings, key, "an IP address such as 192.0.2.7, or empty"));
        }
        parsed
    }
}

impl ConfigReader for Token {
    type Value = Self;
    const KIND: ValueKind = ValueKind::Name { empty: false };

    fn read(settings: &Settings, key: &'static str, problems: &mut Vec<ConfigProblem>) -> Self {
        let text = settings.text(key);
        text.parse().unwrap_or_else(|_| {
            problems.push(bad_text(settings, key, &Self::KIND.words()));
            Self::nearest(text)
        })
    }
}

impl ConfigReader for Option<Token> {
    type Value = Self;
    const KIND: ValueKind = ValueKind::Name { empty: true };

    fn read(settings: &Settings, key: &'static str, problems: &mut Vec<ConfigProblem>) -> Self {
        settings.some_text(key).map(|_| Token::read(settings, key, problems))
    }
}

fn bad_text(settings: &Settings, key: &'static str, wanted: &str) -> ConfigProblem {
    ConfigProblem::BadValue {
        place: settings.place(key),
        key,
        value: format!("{:?}", settings.text(key)),
        wanted: wanted.to_owned(),
    }
}
