//! A configuration schema: the sections of a file, their keys, and removed keys of earlier versions.
//!
//! Schemas are `static` tables; the builder functions are `const`. The macro `config_section` writes the tables.

use model::HumanDuration;

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueKind {
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds, both included.
    Int {
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// A number within bounds, both included.
    Float {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// A name that becomes part of subjects and folders: letters, digits, `_` and `-`, at most 64.
    Name {
        /// Whether it may be empty.
        empty: bool,
    },
    /// Addresses of the bus, comma separated: `nats://host:port` or `tls://host:port`.
    BusUrl,
    /// A span of time such as `5s`, within bounds in milliseconds, both included.
    Duration {
        /// The least, in milliseconds.
        min_ms: u64,
        /// The greatest, in milliseconds.
        max_ms: u64,
    },
    /// One of some words.
    Word(&'static [&'static str]),
    /// A list of texts.
    TextList,
    /// Names with texts that may refer to the environment as `${NAME}`.
    TextMap,
}

impl ValueKind {
    /// A span of time from `min_ms` to ten years.
    #[must_use]
    pub const fn span(min_ms: u64) -> Self {
        Self::Duration {
            min_ms,
            max_ms: 3_650 * 86_400_000,
        }
    }

    /// The kind in words, for the reference and for errors.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int { min, max: i64::MAX } => format!("a whole number, at least {min}"),
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Float { min, max } if *max == f64::MAX => format!("a number, at least {min}"),
            Self::Float { min, max } => format!("a number from {min} to {max}"),
            Self::Text => "a text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Name { empty: false } => "a name of 1 to 64 letters, digits, _ and -".to_owned(),
            Self::Name { empty: true } => "a name of up to 64 letters, digits, _ and -, or empty".to_owned(),
            Self::BusUrl => "a bus address such as nats://localhost:4222".to_owned(),
            Self::Duration { min_ms, .. } if *self == Self::span(*min_ms) => {
                "a duration such as 100ms, 5s or 1h30m".to_owned()
            }
            Self::Duration { min_ms, max_ms } => {
                let [min, max] = [*min_ms, *max_ms].map(HumanDuration::from_millis);
                format!("a duration from {min} to {max}")
            }
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::TextList => "a list of texts".to_owned(),
            Self::TextMap => "a table of texts".to_owned(),
        }
    }
}

/// The default value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// A TOML literal.
    Is(&'static str),
    /// A path below the path of another key.
    Below {
        /// The other key.
        key: &'static str,
        /// The path below it.
        join: &'static str,
    },
    /// No value; the sentence says what that means.
    Unset(&'static str),
}

/// One key of a file.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// The dotted path, lower-case: `logging.level`.
    pub path: &'static str,
    /// What a value must be.
    pub kind: ValueKind,
    /// The value nobody gave.
    pub default: DefaultValue,
    /// One line: what it does, with units.
    pub doc: &'static str,
    /// Whether a change applies without a restart.
    pub live: bool,
    /// Whether it must not stand in a file as plain text.
    pub secret: bool,
    /// Whether it exists in the environment only.
    pub env_only: bool,
    /// Environment names beside the derived one; they win over it.
    pub aliases: &'static [&'static str],
    /// The default of v0.4.4 as a TOML literal, where it was another one.
    pub was: Option<&'static str>,
    /// Whether that default is refused now, so that a migrated file must not have it.
    pub was_retired: bool,
}

impl ConfigKey {
    /// A key without a default. `doc` may be a doc comment: a blank in front and a full stop behind are taken away.
    #[must_use]
    pub const fn new(path: &'static str, kind: ValueKind, doc: &'static str) -> Self {
        let doc = doc.trim_ascii();
        let doc = match doc.as_bytes() {
            [.., b'.'] => doc.split_at(doc.len() - 1).0,
            _ => doc,
        };
        Self {
            path,
            kind,
            default: DefaultValue::Unset(""),
            doc,
            live: false,
            secret: false,
            env_only: false,
            aliases: &[],
            was: None,
            was_retired: false,
        }
    }

    /// The default, as a TOML literal.
    #[must_use]
    pub const fn default(mut self, literal: &'static str) -> Self {
        self.default = DefaultValue::Is(literal);
        self
    }

    /// Unless it is given, the path is `join` below the path of `key`.
    #[must_use]
    pub const fn below(mut self, key: &'static str, join: &'static str) -> Self {
        self.default = DefaultValue::Below { key, join };
        self
    }

    /// It has no value unless it is given; `meaning` says what happens then.
    #[must_use]
    pub const fn unset(mut self, meaning: &'static str) -> Self {
        self.default = DefaultValue::Unset(meaning);
        self
    }

    /// Its values are of another kind than those of its type.
    #[must_use]
    pub const fn kind(mut self, kind: ValueKind) -> Self {
        self.kind = kind;
        self
    }

    /// A whole number from `min` to `max`, both included.
    #[must_use]
    pub const fn within(self, min: i64, max: i64) -> Self {
        self.kind(ValueKind::Int { min, max })
    }

    /// A number from `min` to `max`, both included.
    #[must_use]
    pub const fn between(self, min: f64, max: f64) -> Self {
        self.kind(ValueKind::Float { min, max })
    }

    /// A span of `min_ms` milliseconds or more.
    #[must_use]
    pub const fn at_least_ms(self, min_ms: u64) -> Self {
        self.kind(ValueKind::span(min_ms))
    }

    /// A span of `min_ms` to `max_ms` milliseconds, both included.
    #[must_use]
    pub const fn within_ms(self, min_ms: u64, max_ms: u64) -> Self {
        self.kind(ValueKind::Duration { min_ms, max_ms })
    }

    /// Applies without a restart.
    #[must_use]
    pub const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Must not stand in a file as plain text.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Exists in the environment only.
    #[must_use]
    pub const fn env_only(mut self) -> Self {
        self.env_only = true;
        self
    }

    /// Environment names that win over the derived one.
    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The default of v0.4.4.
    #[must_use]
    pub const fn previous_default(mut self, literal: &'static str) -> Self {
        self.was = Some(literal);
        self
    }

    /// The default of v0.4.4, which is refused now.
    #[must_use]
    pub const fn retired_default(mut self, literal: &'static str) -> Self {
        self.was_retired = true;
        self.previous_default(literal)
    }

    /// The environment name derived from the path: `PLATFORM_LOGGING_LEVEL`.
    #[must_use]
    pub fn env_name(&self) -> String {
        env_name(self.path)
    }

    /// The path without its section.
    #[must_use]
    pub fn leaf(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, leaf)| leaf)
    }

    /// The section the key stands in; empty at the top.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }
}

/// The environment name of a dotted path.
pub(crate) fn env_name(path: &str) -> String {
    let mut name = String::from("PLATFORM_");
    name.extend(
        path.chars()
            .map(|c| if c == '.' { '_' } else { c.to_ascii_uppercase() }),
    );
    name
}

/// A key or section of an earlier version.
#[derive(Debug, Clone, Copy)]
pub struct RemovedKey {
    /// The dotted path, of a key or of a whole section.
    pub path: &'static str,
    /// The key that took over its value, if one did.
    pub to: Option<&'static str>,
    /// A sentence: what replaced it.
    pub instead: &'static str,
}

impl RemovedKey {
    /// A key whose value moved to another one.
    #[must_use]
    pub const fn moved(path: &'static str, to: &'static str, instead: &'static str) -> Self {
        Self {
            path,
            to: Some(to),
            instead,
        }
    }

    /// A key that is gone.
    #[must_use]
    pub const fn gone(path: &'static str, instead: &'static str) -> Self {
        Self {
            path,
            to: None,
            instead,
        }
    }
}

/// Keys that stand together in a file.
#[derive(Debug, Clone, Copy)]
pub struct ConfigSection {
    /// One line: what the section rules.
    pub doc: &'static str,
    /// Its keys; one section of a file may be split into several of these.
    pub keys: &'static [ConfigKey],
}

/// Everything a program's configuration file may hold.
#[derive(Debug, Clone, Copy)]
pub struct ConfigSchema {
    /// The program: `platform`.
    pub program: &'static str,
    /// The file it reads from the working folder unless told otherwise.
    pub file: &'static str,
    /// The sections, in the order of the reference.
    pub sections: &'static [ConfigSection],
    /// What earlier versions had.
    pub removed: &'static [RemovedKey],
}

impl ConfigSchema {
    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &'static ConfigKey> + use<> {
        self.sections.iter().flat_map(|section| section.keys)
    }

    /// The key of a path.
    #[must_use]
    pub fn key(&self, path: &str) -> Option<&'static ConfigKey> {
        self.keys().find(|key| key.path == path)
    }

    /// Whether some key lies below `path`.
    pub(crate) fn is_section(&self, path: &str) -> bool {
        self.keys().any(|key| is_below(key.path, path))
    }

    /// The entry that tells what became of `path`: its own, or that of a section around it.
    pub(crate) fn removed(&self, path: &str) -> Option<&'static RemovedKey> {
        let around = |entry: &&RemovedKey| entry.path == path || is_below(path, entry.path);
        self.removed.iter().filter(around).max_by_key(|entry| entry.path.len())
    }

    /// The known key that looks most like `path`.
    pub(crate) fn nearest(&self, path: &str) -> Option<&'static ConfigKey> {
        let leaf = path.rsplit_once('.').map_or(path, |(_, leaf)| leaf);
        let cost = |key: &&ConfigKey| {
            // The same word in another section is a likelier slip than a wholly different path.
            let whole = distance(path, key.path);
            let moved = distance(leaf, key.leaf()) * 2 + 2;
            whole.min(moved)
        };
        self.keys().filter(|key| !key.env_only).min_by_key(cost)
    }
}

/// Whether `path` lies below the section `section`.
pub(crate) fn is_below(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// The number of single-character edits between two texts, upper and lower case being the same.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("level", "levl", 1),
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("A", "a", 0),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }
}
