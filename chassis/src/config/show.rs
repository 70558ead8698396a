//! The merged result as text (`config show`), and the commented default file (`config init`).

use std::fmt::Write as _;

use super::schema::{ConfigKey, ConfigSchema, DefaultValue, ValueKind};
use super::settings::Settings;
use super::value::{ConfigValue, without_credentials};
use crate::config_error::ValueOrigin;

/// What stands in the place of a secret.
const REDACTED: &str = "\"***\"";

/// One line of `config show`.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingLine {
    /// The key.
    pub key: &'static str,
    /// Its value as a TOML literal, secrets redacted; `None` if it has none.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: String,
}

/// Every key with its value and origin, in the order of the reference.
#[must_use]
pub fn shown(settings: &Settings) -> Vec<SettingLine> {
    let line = |key: &'static ConfigKey| SettingLine {
        key: key.path,
        value: settings.value(key.path).map(|value| redacted(key, value)),
        origin: match (key.default, settings.place(key.path)) {
            (DefaultValue::Below { key, join }, ValueOrigin::Default) => format!("default: {key}/{join}"),
            (DefaultValue::Unset(unset), ValueOrigin::Default) => format!("default: {unset}"),
            (_, place) => place.to_string(),
        },
    };
    settings.schema().keys().map(line).collect()
}

fn redacted(key: &ConfigKey, value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) if text.is_empty() => value.to_toml(),
        ConfigValue::Map(map) if key.secret => {
            let hidden = map.keys().map(|name| (name.clone(), "***".to_owned())).collect();
            ConfigValue::Map(hidden).to_toml()
        }
        _ if key.secret => REDACTED.to_owned(),
        ConfigValue::Text(urls) if key.kind == ValueKind::BusUrl => {
            ConfigValue::Text(without_credentials(urls)).to_toml()
        }
        _ => value.to_toml(),
    }
}

/// The merged result as a TOML file; with `origin`, each line says where its value came from.
#[must_use]
pub fn show_text(settings: &Settings, origin: bool) -> String {
    let mut text = String::new();
    let mut section = "";
    for (line, key) in shown(settings).iter().zip(settings.schema().keys()) {
        if key.section() != section && !key.env_only {
            section = key.section();
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}[{section}]");
        }
        let value = match &line.value {
            // The environment's own switches are no keys of a file.
            Some(value) if key.env_only => format!("# {} = {value}", key.env_name()),
            Some(value) => format!("{} = {value}", key.leaf()),
            None => format!("# {} is not set", key.leaf()),
        };
        let _ = if origin {
            writeln!(text, "{value}  # {}", line.origin)
        } else {
            writeln!(text, "{value}")
        };
    }
    text
}

/// The default file: every section, every key commented out with its default. Loads back as the defaults, and does
/// so too after `#` is taken from every line that starts with `#` and a letter.
#[must_use]
pub fn init_text(schema: &ConfigSchema) -> String {
    let mut text = format!(
        "# {}: the configuration of {}.\n# Every key is shown with its default; remove the # in front of a key to change it.\n\
         # Flags win over environment variables (base.name is PLATFORM_BASE_NAME), those over this file.\n",
        schema.file, schema.program
    );
    let mut section = "";
    for part in schema.sections {
        for key in part.keys.iter().filter(|key| !key.env_only) {
            if key.section() != section {
                section = key.section();
                let _ = writeln!(text, "\n# {}\n[{section}]", part.doc);
            }
            let _ = writeln!(text, "# {}: {}.", key.doc, key.kind.words());
            match key.default {
                DefaultValue::Is(literal) => {
                    let _ = writeln!(text, "#{} = {literal}", key.leaf());
                }
                DefaultValue::Below { key: root, join } if key.kind == ValueKind::TextList => {
                    let _ = writeln!(text, "# Default: {join} below {root}.\n# {} = [\"{join}\"]", key.leaf());
                }
                DefaultValue::Below { key: root, join } => {
                    let _ = writeln!(text, "# Default: {join} below {root}.\n#{} = \"\"", key.leaf());
                }
                DefaultValue::Unset(unset) if key.secret => {
                    let _ = writeln!(text, "# A secret: set {} instead. Not set: {unset}.", key.env_name());
                }
                DefaultValue::Unset(unset) => {
                    let _ = writeln!(text, "# Not set: {unset}.\n#{} = \"\"", key.leaf());
                }
            }
        }
    }
    text
}
