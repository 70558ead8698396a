//! Migrates a v0.4.4 file to the current form, with comments kept and a note for every change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Key as TomlKey, Table, TableLike};

use super::load::{ConfigSources, load_text};
use super::schema::ConfigSchema;
use crate::config_error::{ConfigErrors, ConfigProblem, ValueOrigin};

/// A migrated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMigration {
    /// The current form.
    pub text: String,
    /// What was changed, what changed its meaning, and what is left to do by hand.
    pub notes: Vec<String>,
}

/// Rewrites the text of a v0.4.4 file into its current form; `file` is its name in messages.
///
/// # Errors
/// If the text is not TOML.
pub fn migrate(schema: &'static ConfigSchema, file: &Path, text: &str) -> Result<ConfigMigration, ConfigErrors> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        ConfigErrors::from(ConfigProblem::Syntax {
            place: ValueOrigin::File {
                path: file.to_owned(),
                line: 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count(),
            },
            reason: error.message().trim().replace('\n', ", "),
        })
    })?;
    lower_sections(document.as_table_mut());
    let mut notes = Vec::new();
    for removed in schema.removed {
        let Some((key, item)) = take(document.as_table_mut(), removed.path) else {
            continue;
        };
        match removed.to {
            Some(to) if has(document.as_table(), to) => {
                notes.push(format!(
                    "{} dropped: {to} is set too and takes precedence",
                    removed.path
                ));
            }
            Some(to) => {
                put(document.as_table_mut(), to, &key, item);
                notes.push(format!("{} is now {to}", removed.path));
            }
            None => notes.push(format!("{} dropped: {}", removed.path, removed.instead)),
        }
    }
    notes.extend(retired_defaults(schema, document.as_table_mut()));
    notes.extend(changed_defaults(schema, document.as_table()));
    let text = document.to_string();
    notes.extend(remaining_problems(schema, &text));
    Ok(ConfigMigration { text, notes })
}

/// Section names in lower case, as the reference writes them.
fn lower_sections(table: &mut Table) {
    let shouting: Vec<String> = table
        .iter()
        .filter(|(name, item)| item.is_table() && name.chars().any(char::is_uppercase))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in shouting {
        let lower = name.to_ascii_lowercase();
        let Some(mut shouted) = table.remove(&name) else {
            continue;
        };
        match (
            table.get_mut(&lower).and_then(Item::as_table_mut),
            shouted.as_table_mut(),
        ) {
            // Two spellings of one section: what stands in both stays in the lower one.
            (Some(there), Some(shouted)) => {
                for (key, item) in std::mem::take(shouted) {
                    there.entry(&key).or_insert(item);
                }
            }
            _ => {
                table.insert(&lower, shouted);
            }
        }
    }
    for (_, item) in table.iter_mut() {
        if let Some(inner) = item.as_table_mut() {
            lower_sections(inner);
        }
    }
}

fn has(table: &dyn TableLike, path: &str) -> bool {
    match path.split_once('.') {
        Some((section, rest)) => table
            .get(section)
            .and_then(Item::as_table_like)
            .is_some_and(|inner| has(inner, rest)),
        None => table.contains_key(path),
    }
}

/// Takes a key out, and every section that is empty afterwards.
fn take(table: &mut Table, path: &str) -> Option<(TomlKey, Item)> {
    let Some((section, rest)) = path.split_once('.') else {
        return table.remove_entry(path);
    };
    let inner = table.get_mut(section)?;
    let taken = match inner {
        Item::Table(inner) => take(inner, rest),
        // An inline table holds plain values only.
        other => other.as_table_like_mut().and_then(|inner| {
            let key = inner.key(rest).cloned()?;
            Some((key, inner.remove(rest)?))
        }),
    }?;
    if table
        .get(section)
        .and_then(Item::as_table_like)
        .is_some_and(TableLike::is_empty)
    {
        table.remove(section);
    }
    Some(taken)
}

/// Puts a value at a path, with the comments it had.
fn put(table: &mut Table, path: &str, was: &TomlKey, item: Item) {
    match path.split_once('.') {
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Item::Table(Table::new()));
            if let Some(inner) = inner.as_table_mut() {
                put(inner, rest, was, item);
            }
        }
        None => {
            let key = TomlKey::new(path).with_leaf_decor(was.leaf_decor().clone());
            table.insert_formatted(&key, item);
        }
    }
}

/// Drops values that were the default of v0.4.4 and are refused now; others stay where they are.
fn retired_defaults(schema: &'static ConfigSchema, table: &mut Table) -> Vec<String> {
    let mut notes = Vec::new();
    for key in schema.keys().filter(|key| key.was_retired) {
        let was = key.was.and_then(|literal| literal.parse::<toml_edit::Value>().ok());
        let is_default = find(table, key.path)
            .and_then(Item::as_value)
            .zip(was)
            .is_some_and(|(value, was)| plain(value) == plain(&was));
        if is_default && take(table, key.path).is_some() {
            notes.push(format!(
                "{} dropped: it was the default of v0.4.4, which is refused now",
                key.path
            ));
        }
    }
    notes
}

fn find<'a>(table: &'a dyn TableLike, path: &str) -> Option<&'a Item> {
    match path.split_once('.') {
        Some((section, rest)) => find(table.get(section)?.as_table_like()?, rest),
        None => table.get(path),
    }
}

/// A value without its comments and spaces.
fn plain(value: &toml_edit::Value) -> String {
    match value.as_array() {
        Some(items) => items.iter().map(|item| plain(item) + ",").collect(),
        None => value.as_str().map_or_else(
            || value.clone().decorated("", "").to_string(),
            |text| format!("{text:?}"),
        ),
    }
}

fn changed_defaults<'a>(schema: &'static ConfigSchema, table: &'a Table) -> impl Iterator<Item = String> + use<'a> {
    schema.keys().filter_map(move |key| {
        let was = key.was.filter(|_| !has(table, key.path))?;
        let now = match key.default {
            super::DefaultValue::Is(literal) => literal.to_owned(),
            super::DefaultValue::Below { key, join } => format!("{join} below {key}"),
            super::DefaultValue::Unset(unset) => unset.to_owned(),
        };
        Some(format!(
            "{} is not given: its default was {was} and is now {now}",
            key.path
        ))
    })
}

/// What the current schema still finds wrong.
fn remaining_problems(schema: &'static ConfigSchema, text: &str) -> Vec<String> {
    let sources = ConfigSources {
        file: Some(PathBuf::from(schema.file)),
        required: true,
        env: BTreeMap::new(),
        flags: Vec::new(),
    };
    let file = Some((PathBuf::from(schema.file), text.to_owned()));
    match load_text(schema, file, &sources) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .problems()
            .iter()
            .map(|problem| format!("left to do: {problem}"))
            .collect(),
    }
}
