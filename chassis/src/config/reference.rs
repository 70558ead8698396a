//! The reference page, generated from the schemas.

use std::fmt::Write as _;

use super::key::{Fallback, Key, Schema};

/// The reference of some schemas as one Markdown page.
#[must_use]
pub fn reference_markdown(schemas: &[&Schema]) -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from the schemas in the code; a test compares. Regenerate: UPDATE=1 cargo nextest run -p platform-mixer configuration_page -->\n\n\
         Values are merged key by key: command-line flags win over environment variables, those over the file, that over the defaults.\n\
         The environment name of a key is its path in upper case, dots as underscores, behind `PLATFORM_`: `base.name` is `PLATFORM_BASE_NAME`.\n\
         Lists are comma separated there, tables are `name=value` pairs. An empty variable of a switch, number, duration or word counts as not set.\n\
         Section names are case-insensitive. Durations are written like `100ms`, `5s`, `1h30m`, `720h`.\n\
         A key marked *live* applies when the file changes; every other one needs a restart.\n\
         A key marked *secret* never stands in a file as plain text: use its environment variable, or a `${NAME}` reference.\n\n\
         `config init` prints a commented default file, `config show --origin` the merged result with where each value came from, \
         `config migrate FILE` the current form of a v0.4.4 file. A wrong configuration stops the start with exit code 78.\n",
    );
    for schema in schemas {
        let _ = writeln!(page, "\n## `{}` ({})", schema.file, schema.program);
        let mut section = "";
        for part in schema.sections {
            for key in part.keys {
                if key.env_only {
                    let _ = writeln!(page, "\n### Environment only\n\n`{}`: {}.", key.env_name(), key.doc);
                    continue;
                }
                if key.section() != section {
                    section = key.section();
                    let _ = writeln!(
                        page,
                        "\n### `[{section}]`\n\n{}\n\n| Key | Value | Default | Meaning |\n|---|---|---|---|",
                        part.doc
                    );
                }
                let _ = writeln!(
                    page,
                    "| `{}` | {} | {} | {}{} |",
                    key.leaf(),
                    key.kind.words(),
                    default_words(key),
                    key.doc,
                    marks(key)
                );
            }
        }
        if !schema.removed.is_empty() {
            let _ = writeln!(
                page,
                "\n### Keys of v0.4.4 that are gone\n\n| Key | Instead |\n|---|---|"
            );
            for removed in schema.removed {
                let _ = writeln!(page, "| `{}` | {} |", removed.path, removed.instead);
            }
        }
    }
    page
}

fn default_words(key: &Key) -> String {
    match key.default {
        Fallback::Is(literal) => format!("`{literal}`"),
        Fallback::Below { key, join } => format!("`<{key}>/{join}`"),
        Fallback::Unset(unset) => format!("not set: {unset}"),
    }
}

fn marks(key: &Key) -> String {
    let mut marks = String::from(".");
    if key.live {
        marks.push_str(" *Live.*");
    }
    if key.secret {
        marks.push_str(" *Secret.*");
    }
    for alias in key.aliases {
        let _ = write!(marks, " Also `{alias}`, which wins.");
    }
    if let Some(was) = key.was {
        let _ = write!(marks, " v0.4.4: `{was}`.");
    }
    marks
}
