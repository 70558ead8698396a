//! The merged configuration: a checked value per key, where each came from, and typed access.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml_edit::Item;

use super::schema::{ConfigKey, ConfigSchema, DefaultValue, ValueKind};
use super::value::ConfigValue;
use crate::config_error::{ConfigErrors, ConfigProblem, ValueOrigin};

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SettingsEntry {
    pub(super) value: ConfigValue,
    pub(super) place: ValueOrigin,
}

/// The merged configuration: one checked value per key, each with its place.
///
/// The getters take a key's path. A path that is not in the schema is a mistake of ours, not of a user: it stops a
/// debug build, and gives the kind's empty value otherwise.
#[derive(Clone)]
pub struct Settings {
    pub(super) schema: &'static ConfigSchema,
    pub(super) file: Option<PathBuf>,
    pub(super) entries: BTreeMap<&'static str, SettingsEntry>,
    pub(super) warnings: Vec<String>,
}

impl fmt::Debug for Settings {
    /// Without the values: some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("program", &self.schema.program)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Settings {
    pub(super) fn fill_defaults(&mut self) -> Result<(), ConfigErrors> {
        for key in self.schema.keys() {
            if self.entries.contains_key(key.path) {
                continue;
            }
            if let Some(value) = default_value(key)? {
                let place = ValueOrigin::Default;
                self.entries.insert(key.path, SettingsEntry { value, place });
            }
        }
        for key in self.schema.keys() {
            // An empty path means the same as none: the derived one.
            let given = self
                .entries
                .get(key.path)
                .is_some_and(|e| e.value != ConfigValue::Text(String::new()));
            if let (DefaultValue::Below { key: root, join }, false) = (key.default, given) {
                let path = self.path(root).join(join).to_string_lossy().into_owned();
                let value = match key.kind {
                    ValueKind::TextList => ConfigValue::List(vec![path]),
                    _ => ConfigValue::Text(path),
                };
                let place = ValueOrigin::Default;
                self.entries.insert(key.path, SettingsEntry { value, place });
            }
        }
        Ok(())
    }

    /// The schema these settings follow.
    #[must_use]
    pub fn schema(&self) -> &'static ConfigSchema {
        self.schema
    }

    /// The file that was read, if one was.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Things that are probably slips but stop nothing; for the log.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where a key's value came from.
    #[must_use]
    pub fn place(&self, path: &str) -> ValueOrigin {
        self.entries
            .get(path)
            .map_or(ValueOrigin::Default, |entry| entry.place.clone())
    }

    /// The value of a key, if it has one.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&ConfigValue> {
        self.entries.get(path).map(|entry| &entry.value)
    }

    /// A switch.
    #[must_use]
    pub fn bool(&self, path: &str) -> bool {
        match self.value(path) {
            Some(ConfigValue::Bool(value)) => *value,
            _ => self.mistake(path),
        }
    }

    /// A whole number; its key's kind must not allow negative ones.
    #[must_use]
    pub fn int(&self, path: &str) -> u64 {
        match self.value(path) {
            Some(ConfigValue::Int(value)) => u64::try_from(*value).unwrap_or(0),
            _ => self.mistake(path),
        }
    }

    /// A number.
    #[must_use]
    pub fn float(&self, path: &str) -> f64 {
        match self.value(path) {
            Some(ConfigValue::Float(value)) => *value,
            _ => self.mistake(path),
        }
    }

    /// A text, word or name.
    #[must_use]
    pub fn text(&self, path: &str) -> &str {
        match self.value(path) {
            Some(ConfigValue::Text(value)) => value,
            _ => self.mistake(path),
        }
    }

    /// A text, if one that is not empty was given.
    #[must_use]
    pub fn some_text(&self, path: &str) -> Option<&str> {
        match self.value(path) {
            Some(ConfigValue::Text(value)) if !value.is_empty() => Some(value),
            _ => None,
        }
    }

    /// A file or folder.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.text(path).into()
    }

    /// A span of time.
    #[must_use]
    pub fn duration(&self, path: &str) -> Duration {
        match self.value(path) {
            Some(ConfigValue::Duration(value)) => value.get(),
            _ => self.mistake(path),
        }
    }

    /// A list of texts.
    #[must_use]
    pub fn list(&self, path: &str) -> &[String] {
        match self.value(path) {
            Some(ConfigValue::List(value)) => value,
            _ => self.mistake(path),
        }
    }

    /// Names with texts.
    #[must_use]
    pub fn map(&self, path: &str) -> BTreeMap<String, String> {
        match self.value(path) {
            Some(ConfigValue::Map(value)) => value.clone(),
            _ => self.mistake(path),
        }
    }

    fn mistake<T: Default>(&self, path: &str) -> T {
        debug_assert!(false, "{} has no such key of this kind: {path}", self.schema.program);
        T::default()
    }
}

/// The value of a key's own default; `None` if it has none or if it follows another key.
pub(super) fn default_value(key: &'static ConfigKey) -> Result<Option<ConfigValue>, ConfigErrors> {
    match key.default {
        DefaultValue::Is(literal) => literal_value(key, literal).map(Some),
        DefaultValue::Below { .. } | DefaultValue::Unset(_) => Ok(None),
    }
}

/// The value of a TOML literal of our own tables.
fn literal_value(key: &'static ConfigKey, literal: &'static str) -> Result<ConfigValue, ConfigErrors> {
    let wrong = || {
        ConfigErrors::from(ConfigProblem::BadValue {
            place: ValueOrigin::Default,
            key: key.path,
            value: literal.to_owned(),
            wanted: key.kind.words(),
        })
    };
    let item: Item = literal.parse::<toml_edit::Value>().map_err(|_| wrong())?.into();
    ConfigValue::of_item(&key.kind, &item).map_err(|_| wrong())
}
