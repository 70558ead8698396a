//! Checks of a schema itself, for the tests of the crates that have one: every key can be set in every way, and
//! everything generated from the table reads back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::load::{ConfigSources, load_text};
use super::schema::{ConfigKey, ConfigSchema, DefaultValue, ValueKind};
use super::settings::{Settings, default_value};
use super::show::{init_text, show_text};
use super::value::ConfigValue;
use crate::config_error::ValueOrigin;

/// A variable that references of samples refer to.
const VARIABLE: &str = "SCHEMA_SAMPLE";
const RESOLVED: &str = "resolved";

/// A value of a key that differs from its default, in every form it can be given.
#[derive(Debug, Clone)]
pub struct KeySample {
    /// As a whole file; `None` for a key of the environment only.
    pub file: Option<String>,
    /// As the text of an environment variable or a flag.
    pub text: String,
    /// As the value that must come out of the file and of the text.
    pub value: ConfigValue,
}

/// The sample of a key.
#[must_use]
pub fn sample(key: &'static ConfigKey) -> KeySample {
    let default = default_value(key).ok().flatten();
    let text = match (key.kind, &default) {
        (ValueKind::Bool, Some(ConfigValue::Bool(true))) => "false".to_owned(),
        (ValueKind::Bool, _) => "true".to_owned(),
        (ValueKind::Int { max, .. }, Some(ConfigValue::Int(n))) if *n < max => (n + 1).to_string(),
        (ValueKind::Int { min, .. }, _) => min.to_string(),
        (ValueKind::Float { min, max }, Some(ConfigValue::Float(n))) => {
            (if *n < max { (n + max) / 2.0 } else { (n + min) / 2.0 }).to_string()
        }
        (ValueKind::Float { min, .. }, _) => min.to_string(),
        (ValueKind::Duration { min_ms, .. }, _) => format!("{}ms", min_ms + 1_234),
        (ValueKind::Word(words), default) => {
            let other = |word: &&&str| Some(&ConfigValue::Text((**word).to_string())) != default.as_ref();
            words.iter().find(other).copied().unwrap_or_default().to_owned()
        }
        (ValueKind::Text | ValueKind::Path, _) => RESOLVED.to_owned(),
        (ValueKind::Name { .. }, _) => "sample-1".to_owned(),
        (ValueKind::BusUrl, _) => "nats://192.0.2.1:4000,tls://192.0.2.2:4000".to_owned(),
        (ValueKind::TextList, _) => "sample.a,sample.b.>".to_owned(),
        (ValueKind::TextMap, _) => format!("x-sample={RESOLVED}"),
    };
    let value = ConfigValue::of_text(&key.kind, &text)
        .ok()
        .flatten()
        .unwrap_or(ConfigValue::Text(text.clone()));
    let literal = match &value {
        ConfigValue::Map(map) => ConfigValue::Map(
            map.keys()
                .map(|name| (name.clone(), format!("${{{VARIABLE}}}")))
                .collect(),
        ),
        ConfigValue::Text(_) if key.secret => ConfigValue::Text(format!("${{{VARIABLE}}}")),
        other => other.clone(),
    };
    let file = format!(
        "[{}]\n{} = {}\n",
        key.section().to_uppercase(),
        key.leaf(),
        literal.to_toml()
    );
    KeySample {
        file: (!key.env_only).then_some(file),
        text,
        value,
    }
}

/// Loads a schema from a text that stands for its file, and an environment.
///
/// # Errors
/// As [`super::load()`].
pub fn load_from(
    schema: &'static ConfigSchema,
    text: &str,
    env: &[(&str, &str)],
) -> Result<Settings, crate::config_error::ConfigErrors> {
    let pairs = env.iter().chain(&[(VARIABLE, RESOLVED)]);
    let sources = ConfigSources {
        env: pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..ConfigSources::default()
    };
    load_text(schema, Some((PathBuf::from(schema.file), text.to_owned())), &sources)
}

/// Everything that is wrong with a schema: defaults that do not load, keys that cannot be given in a file, in the
/// environment or by a flag, generated texts that do not read back. Empty for a good one.
#[must_use]
pub fn schema_errors(schema: &'static ConfigSchema) -> Vec<String> {
    let mut complaints = Vec::new();
    match load_from(schema, "", &[]) {
        Ok(defaults) => check_generated_texts(schema, &defaults, &mut complaints),
        Err(errors) => complaints.push(format!("defaults: {errors}")),
    }
    let mut names = BTreeMap::new();
    for key in schema.keys() {
        if let Some(other) = names.insert(key.env_name(), key.path) {
            complaints.push(format!("{} and {other} have one environment name", key.path));
        }
        if key.path.chars().any(char::is_uppercase) {
            complaints.push(format!("{} is not in lower case", key.path));
        }
        if key.default == DefaultValue::Unset("") {
            complaints.push(format!("{} has no default and does not say what that means", key.path));
        }
        check_key_sources(schema, key, &mut complaints);
    }
    for removed in schema.removed {
        if schema.key(removed.path).is_some() || removed.to.is_some_and(|to| schema.key(to).is_none()) {
            complaints.push(format!("{} is a key, or moved to none", removed.path));
        }
    }
    complaints
}

fn check_generated_texts(schema: &'static ConfigSchema, defaults: &Settings, complaints: &mut Vec<String>) {
    let init = init_text(schema);
    let bare = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest.to_owned(),
        _ => line.to_owned(),
    };
    let opened: Vec<String> = init.lines().map(bare).collect();
    for (what, text) in [
        ("the default file", init.clone()),
        ("the default file with every key opened", opened.join("\n")),
        ("the shown result", show_text(defaults, true)),
    ] {
        match load_from(schema, &text, &[]) {
            Ok(settings) => {
                for key in schema.keys() {
                    let empty = Some(ConfigValue::Text(String::new()));
                    let found = settings
                        .value(key.path)
                        .cloned()
                        .filter(|value| Some(value) != empty.as_ref());
                    if found
                        != defaults
                            .value(key.path)
                            .cloned()
                            .filter(|value| Some(value) != empty.as_ref())
                    {
                        complaints.push(format!("{what} changes {}", key.path));
                    }
                }
            }
            Err(errors) => complaints.push(format!("{what} does not load: {errors}")),
        }
    }
}

fn check_key_sources(schema: &'static ConfigSchema, key: &'static ConfigKey, complaints: &mut Vec<String>) {
    let sample = sample(key);
    if default_value(key).ok().flatten().as_ref() == Some(&sample.value) {
        complaints.push(format!("{}: the sample is the default", key.path));
    }
    let mut expect =
        |what: &str, result: Result<Settings, crate::config_error::ConfigErrors>, place: &ValueOrigin| match result {
            Ok(settings) if settings.value(key.path) == Some(&sample.value) && settings.place(key.path) == *place => {}
            Ok(settings) => complaints.push(format!("{} by {what} gives {:?}", key.path, settings.value(key.path))),
            Err(errors) => complaints.push(format!("{} by {what}: {errors}", key.path)),
        };
    if let Some(file) = &sample.file {
        let place = ValueOrigin::File {
            path: PathBuf::from(schema.file),
            line: 2,
        };
        expect("file", load_from(schema, file, &[]), &place);
    }
    let derived = key.env_name();
    for name in key.aliases.iter().copied().chain([derived.as_str()]) {
        let env = [(name, sample.text.as_str())];
        expect(name, load_from(schema, "", &env), &ValueOrigin::Env(name.to_owned()));
    }
    let sources = ConfigSources {
        flags: vec![(key.path.to_owned(), sample.text.clone())],
        ..ConfigSources::default()
    };
    expect("flag", load_text(schema, None, &sources), &ValueOrigin::Flag);
}
