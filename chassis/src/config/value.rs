//! A configuration value: parsed from text (environment, flag) or TOML, written as TOML, checked against its key's kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::{HumanDuration, Token};
use toml_edit::Item;

use super::schema::ValueKind;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text, a path, a name, a word, an address.
    Text(String),
    /// A span of time.
    Duration(HumanDuration),
    /// A list of texts.
    List(Vec<String>),
    /// Names with texts.
    Map(BTreeMap<String, String>),
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretString(String);

impl SecretString {
    /// A secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Why a value is refused.
#[derive(Debug, PartialEq)]
pub(crate) enum ConfigValueError {
    /// It has another type; in words, the type it has.
    Type(String),
    /// It has the type but not the form or the range.
    Value,
}

impl ConfigValue {
    /// Reads a value written as text; `None` if an empty text means "not given" for this kind.
    pub(crate) fn of_text(kind: &ValueKind, text: &str) -> Result<Option<Self>, ConfigValueError> {
        let trimmed = text.trim();
        let takes_empty = matches!(
            kind,
            ValueKind::Text
                | ValueKind::Path
                | ValueKind::Name { .. }
                | ValueKind::BusUrl
                | ValueKind::TextList
                | ValueKind::TextMap
        );
        if trimmed.is_empty() && !takes_empty {
            return Ok(None);
        }
        let word = |words: &str| ConfigValueError::Type(format!("{words:?}"));
        let value = match kind {
            ValueKind::Bool => match trimmed.to_ascii_lowercase().as_str() {
                "true" | "1" => Self::Bool(true),
                "false" | "0" => Self::Bool(false),
                _ => return Err(word(trimmed)),
            },
            ValueKind::Int { .. } => Self::Int(trimmed.parse().map_err(|_| word(trimmed))?),
            ValueKind::Float { .. } => Self::Float(trimmed.parse().map_err(|_| word(trimmed))?),
            ValueKind::Duration { .. } => Self::Duration(trimmed.parse().map_err(|_| word(trimmed))?),
            ValueKind::Text | ValueKind::Path => Self::Text(text.to_owned()),
            ValueKind::Name { .. } | ValueKind::BusUrl => Self::Text(trimmed.to_owned()),
            ValueKind::Word(_) => Self::Text(trimmed.to_ascii_lowercase()),
            ValueKind::TextList => Self::List(parts(trimmed).map(str::to_owned).collect()),
            ValueKind::TextMap => Self::Map(
                parts(trimmed)
                    .map(|pair| pair.split_once('=').ok_or_else(|| word(pair)))
                    .map(|pair| pair.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())))
                    .collect::<Result<_, _>>()?,
            ),
        };
        value.check(kind)?;
        Ok(Some(value))
    }

    /// Reads a value of a TOML file.
    pub(crate) fn of_item(kind: &ValueKind, item: &Item) -> Result<Self, ConfigValueError> {
        let other = || ConfigValueError::Type(found(item));
        let text = || item.as_str().map(str::to_owned).ok_or_else(other);
        let value = match kind {
            ValueKind::Bool => Self::Bool(item.as_bool().ok_or_else(other)?),
            ValueKind::Int { .. } => Self::Int(item.as_integer().ok_or_else(other)?),
            #[allow(
                clippy::cast_precision_loss,
                reason = "a whole number written for a number is a small one"
            )]
            ValueKind::Float { .. } => Self::Float(
                item.as_float()
                    .or_else(|| item.as_integer().map(|n| n as f64))
                    .ok_or_else(other)?,
            ),
            ValueKind::Duration { .. } => Self::Duration(text()?.parse().map_err(|_| other())?),
            ValueKind::Text | ValueKind::Path | ValueKind::Name { .. } | ValueKind::BusUrl => Self::Text(text()?),
            ValueKind::Word(_) => Self::Text(text()?.to_ascii_lowercase()),
            ValueKind::TextList => Self::List(
                item.as_array()
                    .ok_or_else(other)?
                    .iter()
                    .map(|entry| entry.as_str().map(str::to_owned))
                    .collect::<Option<_>>()
                    .ok_or_else(|| ConfigValueError::Type("a list with something else in it".to_owned()))?,
            ),
            ValueKind::TextMap => Self::Map(
                item.as_table_like()
                    .ok_or_else(other)?
                    .iter()
                    .map(|(name, entry)| Some((name.to_owned(), entry.as_str()?.to_owned())))
                    .collect::<Option<_>>()
                    .ok_or_else(|| ConfigValueError::Type("a table with something else in it".to_owned()))?,
            ),
        };
        value.check(kind)?;
        Ok(value)
    }

    /// Checks form and range.
    fn check(&self, kind: &ValueKind) -> Result<(), ConfigValueError> {
        let fits = match (kind, self) {
            (ValueKind::Int { min, max }, Self::Int(n)) => (min..=max).contains(&n),
            (ValueKind::Float { min, max }, Self::Float(n)) => (min..=max).contains(&n),
            (ValueKind::Duration { min_ms, max_ms }, Self::Duration(span)) => {
                (u128::from(*min_ms)..=u128::from(*max_ms)).contains(&span.get().as_millis())
            }
            (ValueKind::Word(words), Self::Text(word)) => words.contains(&word.as_str()),
            (ValueKind::Name { empty }, Self::Text(name)) => {
                if name.is_empty() {
                    *empty
                } else {
                    name.parse::<Token>().is_ok()
                }
            }
            (ValueKind::BusUrl, Self::Text(urls)) => is_bus_url(urls),
            (ValueKind::Path, Self::Text(path)) => !path.contains('\0'),
            (ValueKind::TextMap, Self::Map(map)) => map.keys().all(|name| !name.is_empty()),
            _ => true,
        };
        if fits { Ok(()) } else { Err(ConfigValueError::Value) }
    }

    /// The value as a TOML literal.
    #[must_use]
    pub fn to_toml(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => toml_edit::Value::from(*value).to_string(),
            Self::Text(value) => quoted(value),
            Self::Duration(value) => quoted(&value.to_string()),
            Self::List(list) => {
                let entries: Vec<String> = list.iter().map(|text| quoted(text)).collect();
                format!("[{}]", entries.join(", "))
            }
            Self::Map(map) if map.is_empty() => "{}".to_owned(),
            Self::Map(map) => {
                let mut text = String::from("{ ");
                for (i, (name, value)) in map.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    let _ = write!(text, "{comma}{} = {}", quoted(name), quoted(value));
                }
                text + " }"
            }
        }
    }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// The parts of a comma separated text, trimmed, without empty ones.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The addresses of a comma separated list of bus addresses.
pub(crate) fn bus_urls(text: &str) -> impl Iterator<Item = &str> {
    parts(text)
}

fn is_bus_url(urls: &str) -> bool {
    let known = |url: &str| {
        ["nats://", "tls://"]
            .iter()
            .any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
            && url.parse::<async_nats::ServerAddr>().is_ok()
    };
    bus_urls(urls).next().is_some() && bus_urls(urls).all(known)
}

/// Whether all addresses of a bus are this machine's.
#[must_use]
pub fn is_local_bus(urls: &str) -> bool {
    bus_urls(urls).all(is_local_url)
}

/// Whether all addresses of a bus are this machine's, or are spoken to over TLS.
#[must_use]
pub fn is_guarded_bus(urls: &str) -> bool {
    bus_urls(urls).all(|url| url.starts_with("tls://") || is_local_url(url))
}

fn is_local_url(url: &str) -> bool {
    let Ok(address) = url.parse::<async_nats::ServerAddr>() else {
        return false;
    };
    let host = address.host().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether an address carries a user name, a password or a token.
pub(crate) fn has_credentials(urls: &str) -> bool {
    bus_urls(urls).any(|url| url.contains('@'))
}

/// The addresses with `***` in the place of user names, passwords and tokens.
#[must_use]
pub fn without_credentials(urls: &str) -> String {
    let hidden = |url: &str| match url.rsplit_once('@') {
        Some((head, host)) => {
            let scheme = head.find("://").map_or("", |end| &head[..end + 3]);
            format!("{scheme}***@{host}")
        }
        None => url.to_owned(),
    };
    bus_urls(urls).map(hidden).collect::<Vec<_>>().join(",")
}

fn found(item: &Item) -> String {
    match item.as_value() {
        Some(toml_edit::Value::String(text)) => format!("the text {}", quoted(text.value())),
        Some(toml_edit::Value::Integer(n)) => format!("the number {}", n.value()),
        Some(toml_edit::Value::Float(n)) => format!("the number {}", n.value()),
        Some(toml_edit::Value::Boolean(b)) => format!("{}", b.value()),
        Some(toml_edit::Value::Datetime(t)) => format!("the time {}", t.value()),
        Some(toml_edit::Value::Array(_)) => "a list".to_owned(),
        Some(toml_edit::Value::InlineTable(_)) => "a table".to_owned(),
        None => "a section".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn credentials_of_addresses_are_found_and_hidden() {
        let urls = "nats://a:4222, nats://user:p@ss@b:4222";
        assert!(has_credentials(urls));
        assert_eq!(without_credentials(urls), "nats://a:4222,nats://***@b:4222");
        assert!(!has_credentials("nats://a:4222"));
    }

    #[test]
    fn texts_become_values_of_their_kind_or_are_refused() {
        let bounded = ValueKind::Int { min: 1, max: 9 };
        assert_eq!(
            ConfigValue::of_text(&bounded, " 7 ").unwrap(),
            Some(ConfigValue::Int(7))
        );
        assert_eq!(ConfigValue::of_text(&bounded, "").unwrap(), None);
        assert_eq!(ConfigValue::of_text(&bounded, "10"), Err(ConfigValueError::Value));
        assert_eq!(
            ConfigValue::of_text(&ValueKind::Float { min: 0.0, max: 1.0 }, "nan"),
            Err(ConfigValueError::Value)
        );
        assert!(matches!(
            ConfigValue::of_text(&ValueKind::Bool, "yes"),
            Err(ConfigValueError::Type(_))
        ));
        assert_eq!(
            ConfigValue::of_text(&ValueKind::TextList, "a.>, b ,").unwrap(),
            Some(ConfigValue::List(vec!["a.>".to_owned(), "b".to_owned()]))
        );
        for bad in ["", "localhost:4222", "http://x", "nats://", "nats://a:4222,ftp://b"] {
            assert_eq!(
                ConfigValue::of_text(&ValueKind::BusUrl, bad),
                Err(ConfigValueError::Value),
                "{bad}"
            );
        }
        assert_eq!(
            ConfigValue::of_text(&ValueKind::Name { empty: false }, "a b"),
            Err(ConfigValueError::Value)
        );
    }
}
