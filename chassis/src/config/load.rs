//! Configuration loading: merges a schema's sources, layer over layer, into settings.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::{EnvExpansion, HumanDuration, expand_env};
use toml_edit::{Document, Item, TableLike};

use super::schema::{ConfigKey, ConfigSchema, ValueKind, env_name, is_below};
use super::settings::{Settings, SettingsEntry};
use super::value::{ConfigValue, ConfigValueError, has_credentials};
use crate::config_error::{ConfigErrors, ConfigProblem, ValueOrigin};

/// Where values come from.
#[derive(Clone, Default)]
pub struct ConfigSources {
    /// The file; `None` reads none.
    pub file: Option<PathBuf>,
    /// Whether a missing file is an error. It is when the user named it.
    pub required: bool,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Values of command-line flags, by key path. The last one of a key wins.
    pub flags: Vec<(String, String)>,
}

impl fmt::Debug for ConfigSources {
    /// Without the environment: it holds secrets, of other programs too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSources")
            .field("file", &self.file)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

impl ConfigSources {
    /// The sources of a running process: its environment, and the named file or else the schema's own file of the
    /// working folder.
    #[must_use]
    pub fn of_process(schema: &ConfigSchema, file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        Self {
            required: file.is_some(),
            file: Some(file.unwrap_or_else(|| schema.file.into())),
            env: std::env::vars_os().filter_map(text).collect(),
            flags,
        }
    }
}

/// Merges the sources of a schema.
///
/// # Errors
/// All problems of all sources at once.
pub fn load(schema: &'static ConfigSchema, sources: &ConfigSources) -> Result<Settings, ConfigErrors> {
    let file = match &sources.file {
        Some(path) => read(path, sources.required)?.map(|text| (path.clone(), text)),
        None => None,
    };
    load_text(schema, file, sources)
}

/// The text of a file; `None` if it is missing and may be.
pub(crate) fn read(path: &Path, required: bool) -> Result<Option<String>, ConfigErrors> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !required => Ok(None),
        Err(error) => Err(ConfigProblem::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        }
        .into()),
    }
}

/// As [`load`], with the file's path and text already in hand.
pub(crate) fn load_text(
    schema: &'static ConfigSchema,
    file: Option<(PathBuf, String)>,
    sources: &ConfigSources,
) -> Result<Settings, ConfigErrors> {
    let mut loading = ConfigLoader {
        schema,
        env: &sources.env,
        entries: BTreeMap::new(),
        problems: Vec::new(),
        reported: Vec::new(),
    };
    if let Some((path, text)) = &file {
        loading.file(path, text);
    }
    loading.environment();
    for (path, text) in &sources.flags {
        loading.flag(path, text);
    }
    let (problems, warnings) = (std::mem::take(&mut loading.problems), loading.misspelled_env_names());
    ConfigErrors::unless_empty(problems)?;
    let mut settings = Settings {
        schema,
        file: file.map(|(path, _)| path),
        entries: loading.entries,
        warnings,
    };
    settings.fill_defaults()?;
    Ok(settings)
}

struct ConfigLoader<'a> {
    schema: &'static ConfigSchema,
    env: &'a BTreeMap<String, String>,
    entries: BTreeMap<&'static str, SettingsEntry>,
    problems: Vec<ConfigProblem>,
    /// Removed sections already spoken about.
    reported: Vec<&'static str>,
}

/// A file being read: its text gives line numbers.
struct ConfigFile<'a> {
    path: &'a Path,
    text: &'a str,
}

impl ConfigFile<'_> {
    fn place(&self, offset: Option<usize>) -> ValueOrigin {
        let before = &self.text.as_bytes()[..offset.unwrap_or(0).min(self.text.len())];
        ValueOrigin::File {
            path: self.path.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        }
    }
}

impl ConfigLoader<'_> {
    fn file(&mut self, path: &Path, text: &str) {
        let source = ConfigFile { path, text };
        match Document::parse(text) {
            Ok(document) => self.table(&source, "", document.as_table()),
            Err(error) => self.problems.push(ConfigProblem::Syntax {
                place: source.place(error.span().map(|span| span.start)),
                reason: error.message().trim().replace('\n', ", "),
            }),
        }
    }

    fn table(&mut self, source: &ConfigFile<'_>, prefix: &str, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let at = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let place = source.place(at.map(|span| span.start));
            let inside = |name: &str| {
                if prefix.is_empty() {
                    name.to_owned()
                } else {
                    format!("{prefix}.{name}")
                }
            };
            let section = inside(&name.to_ascii_lowercase());
            match item.as_table_like() {
                Some(inner) if self.schema.is_section(&section) => self.table(source, &section, inner),
                Some(inner) if self.schema.key(&section).is_none() => {
                    self.strange_section(source, place, &section, inner)
                }
                Some(_) => self.entry(place, &section, item),
                None => self.entry(place, &inside(name), item),
            }
        }
    }

    /// A section the schema does not have: what became of it, key by key where that is known.
    fn strange_section(&mut self, source: &ConfigFile<'_>, place: ValueOrigin, path: &str, inner: &dyn TableLike) {
        let below = |entry: &&super::RemovedKey| is_below(entry.path, path);
        if self.schema.removed.iter().any(|entry| below(&entry)) || self.schema.removed(path).is_some() {
            self.table(source, path, inner);
            if inner.is_empty() {
                self.unknown_key(place, path);
            }
            return;
        }
        let sections = self.schema.keys().map(ConfigKey::section);
        let nearest = sections
            .filter(|section| !section.is_empty())
            .min_by_key(|section| super::schema::distance(section, path))
            .unwrap_or_default();
        self.problems.push(ConfigProblem::UnknownSection {
            place,
            key: path.to_owned(),
            nearest: nearest.to_owned(),
        });
    }

    fn entry(&mut self, place: ValueOrigin, path: &str, item: &Item) {
        let Some(key) = self.schema.key(path) else {
            if self.schema.is_section(&path.to_ascii_lowercase()) {
                self.problems.push(ConfigProblem::WrongType {
                    place,
                    key: path.to_owned(),
                    wanted: format!("a section [{}]", path.to_ascii_lowercase()),
                    found: "a value".to_owned(),
                });
            } else {
                self.unknown_key(place, path);
            }
            return;
        };
        if key.env_only {
            self.problems.push(ConfigProblem::EnvOnly {
                place,
                key: key.path,
                env: key.env_name(),
            });
            return;
        }
        if self.entries.contains_key(key.path) {
            self.problems.push(ConfigProblem::Twice { place, key: key.path });
            return;
        }
        match ConfigValue::of_item(&key.kind, item) {
            Ok(value) => {
                if let Some(value) = self.without_secrets(&place, key, value) {
                    self.entries.insert(key.path, SettingsEntry { value, place });
                }
            }
            Err(refused) => {
                let shown = item.as_value().map(|value| value.clone().decorated("", "").to_string());
                self.refuse(place, key, &shown.unwrap_or_default(), refused);
            }
        }
    }

    fn unknown_key(&mut self, place: ValueOrigin, path: &str) {
        if let Some(removed) = self.schema.removed(&path.to_ascii_lowercase()) {
            // A whole section that is gone gets one sentence, not one per key.
            let whole = removed.path != path;
            if !(whole && self.reported.contains(&removed.path)) {
                self.reported.push(removed.path);
                self.problems.push(ConfigProblem::Removed {
                    place,
                    key: if whole { removed.path } else { path }.to_owned(),
                    instead: removed.instead,
                });
            }
        } else if let Some(nearest) = self.schema.nearest(path) {
            self.problems.push(ConfigProblem::UnknownKey {
                place,
                key: path.to_owned(),
                nearest: nearest.path,
            });
        }
    }

    fn refuse(&mut self, place: ValueOrigin, key: &'static ConfigKey, shown: &str, refused: ConfigValueError) {
        let hidden = key.secret || (key.kind == ValueKind::BusUrl && has_credentials(shown));
        let wanted = bounds(key);
        self.problems.push(match refused {
            ConfigValueError::Type(found) => ConfigProblem::WrongType {
                place,
                key: key.path.to_owned(),
                wanted,
                found: if hidden { "this".to_owned() } else { found },
            },
            ConfigValueError::Value => ConfigProblem::BadValue {
                place,
                key: key.path,
                value: if hidden { "***".to_owned() } else { shown.to_owned() },
                wanted,
            },
        });
    }

    /// Resolves the references of a secret from a file; refuses plain ones.
    fn without_secrets(
        &mut self,
        place: &ValueOrigin,
        key: &'static ConfigKey,
        value: ConfigValue,
    ) -> Option<ConfigValue> {
        match value {
            ConfigValue::Map(map) if key.secret => {
                let mut resolved = BTreeMap::new();
                for (name, text) in map {
                    let full = format!("{}.{name}", key.path);
                    let text = self.reference(place, key, &full, &text)?;
                    resolved.insert(name, text);
                }
                Some(ConfigValue::Map(resolved))
            }
            ConfigValue::Text(text) if key.secret && !text.is_empty() => {
                self.reference(place, key, key.path, &text).map(ConfigValue::Text)
            }
            ConfigValue::Text(text) if key.kind == ValueKind::BusUrl && has_credentials(&text) => {
                self.problems.push(ConfigProblem::PlainSecret {
                    place: place.clone(),
                    key: key.path.to_owned(),
                    fix: format!(
                        "give an address with credentials in the environment variable {}",
                        key.env_name()
                    ),
                });
                None
            }
            other => Some(other),
        }
    }

    /// A text with every `${NAME}` replaced; a problem if it has none or one is not set.
    fn reference(&mut self, place: &ValueOrigin, key: &ConfigKey, full: &str, text: &str) -> Option<String> {
        match expand_env(text, |name| self.env.get(name).cloned()) {
            EnvExpansion::Text(text) => Some(text),
            EnvExpansion::Plain => {
                let env = key.env_name();
                let example = env_name(full).replace('-', "_");
                self.problems.push(ConfigProblem::PlainSecret {
                    place: place.clone(),
                    key: full.to_owned(),
                    fix: format!("set the environment variable {env}, or write a reference such as \"${{{example}}}\""),
                });
                None
            }
            EnvExpansion::Unset(name) => {
                self.problems.push(ConfigProblem::UnsetReference {
                    place: place.clone(),
                    key: full.to_owned(),
                    name,
                });
                None
            }
        }
    }

    fn environment(&mut self) {
        for key in self.schema.keys() {
            let derived = key.env_name();
            let names = key.aliases.iter().copied().chain([derived.as_str()]);
            for name in names {
                let Some(text) = self.env.get(name) else { continue };
                if self.text(ValueOrigin::Env(name.to_owned()), key, text) {
                    break;
                }
            }
        }
        for removed in self.schema.removed {
            let name = env_name(removed.path);
            let taken = self.schema.keys().any(|key| key.env_name() == name);
            if !taken && self.env.contains_key(&name) {
                self.problems.push(ConfigProblem::Removed {
                    place: ValueOrigin::Env(name),
                    key: removed.path.to_owned(),
                    instead: removed.instead,
                });
            }
        }
    }

    fn flag(&mut self, path: &str, text: &str) {
        match self.schema.key(path) {
            Some(key) => {
                self.text(ValueOrigin::Flag, key, text);
            }
            None => self.unknown_key(ValueOrigin::Flag, path),
        }
    }

    /// Takes a value written as text; `false` if it counts as not given.
    fn text(&mut self, place: ValueOrigin, key: &'static ConfigKey, text: &str) -> bool {
        match ConfigValue::of_text(&key.kind, text) {
            Ok(None) => return false,
            Ok(Some(value)) => {
                self.entries.insert(key.path, SettingsEntry { value, place });
            }
            Err(refused) => self.refuse(place, key, &format!("{text:?}"), refused),
        }
        true
    }

    /// Environment names that look like a slip of a known one. Not an error: other programs may share the prefix.
    fn misspelled_env_names(&self) -> Vec<String> {
        let known: Vec<String> = self
            .schema
            .keys()
            .flat_map(|key| {
                key.aliases
                    .iter()
                    .map(|alias| (*alias).to_owned())
                    .chain([key.env_name()])
            })
            .collect();
        let near = |name: &&String| known.iter().find(|other| super::schema::distance(name, other) <= 2);
        self.env
            .keys()
            .filter(|name| name.starts_with("PLATFORM_") && !known.contains(name))
            .filter_map(|name| {
                near(&name).map(|other| format!("environment: unknown name {name}; the nearest known name is {other}"))
            })
            .collect()
    }
}

/// The kind in words, with the bounds of a duration where they are narrow.
fn bounds(key: &ConfigKey) -> String {
    match key.kind {
        ValueKind::Duration { min_ms, .. } if min_ms > 0 && key.kind == ValueKind::span(min_ms) => {
            format!("{}, at least {}", key.kind.words(), HumanDuration::from_millis(min_ms))
        }
        kind => kind.words(),
    }
}
