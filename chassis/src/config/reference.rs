//! The reference page, generated from the schemas: an introduction and one chapter per file.

use std::fmt::Write as _;

use super::schema::{ConfigKey, ConfigSchema, DefaultValue};

const INTRODUCTION: &str = "# Configuration

<!-- Generated from the schemas in the code; tests compare. Regenerate it with: make docs -->

Values are merged key by key: command-line flags win over environment variables, those over the file, that over the
defaults. The environment name of a key is its path in upper case, dots as underscores, behind `PLATFORM_`: `base.name`
is `PLATFORM_BASE_NAME`. Lists are comma separated there, tables are `name=value` pairs; an empty variable of a switch,
number, duration or word counts as not set.

Section names are case-insensitive. Durations are written like `100ms`, `5s`, `1h30m`, `720h`. A key marked *live*
applies as soon as the file changes, every other one needs a restart. A key marked *secret* never stands in a file as
plain text: use its environment variable, or a `${NAME}` reference. Relative paths start at the working folder.

`platform config` and `platform-mixer config` do the same for their own file: `init` prints a commented default one,
`show --origin` the merged result with where each value came from, `migrate FILE` the current form of a v0.4.4 file. A wrong configuration stops the start with exit code 78
and names every problem with its file, line and key.
";

/// The reference of some schemas as one Markdown page.
#[must_use]
pub fn reference_markdown(schemas: &[&ConfigSchema]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for schema in schemas {
        page.push('\n');
        page.push_str(&chapter(schema));
    }
    page
}

/// The chapter of one schema, between two markers by which a test finds it in the page.
#[must_use]
pub fn chapter(schema: &ConfigSchema) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<!-- begin {} -->\n## `{}` ({})",
        schema.file, schema.file, schema.program
    );
    let mut section = "";
    for part in schema.sections {
        for key in part.keys {
            if key.env_only {
                let _ = writeln!(text, "\n### Environment only\n\n`{}`: {}.", key.env_name(), key.doc);
                continue;
            }
            if key.section() != section {
                section = key.section();
                let head = "| Key | Value | Default | Meaning |\n|---|---|---|---|";
                let _ = writeln!(text, "\n### `[{section}]`\n\n{}\n\n{head}", part.doc);
            }
            let (words, default) = (key.kind.words(), default_words(key));
            let _ = writeln!(
                text,
                "| `{}` | {words} | {default} | {}{} |",
                key.leaf(),
                key.doc,
                marks(key)
            );
        }
    }
    if !schema.removed.is_empty() {
        let _ = writeln!(
            text,
            "\n### Keys of v0.4.4 that are gone\n\n| Key | Instead |\n|---|---|"
        );
        for removed in schema.removed {
            let _ = writeln!(text, "| `{}` | {} |", removed.path, removed.instead);
        }
    }
    let _ = writeln!(text, "\n<!-- end {} -->", schema.file);
    text
}

/// The page with the chapter of `schema` as it is now; added at the end if the page has none.
#[must_use]
pub fn with_chapter(page: &str, schema: &ConfigSchema) -> String {
    let new = chapter(schema);
    let (begin, end) = (
        format!("<!-- begin {} -->\n", schema.file),
        format!("<!-- end {} -->\n", schema.file),
    );
    let (_, rest) = page.split_once("\n<!-- begin ").unwrap_or((page, ""));
    let chapters = if rest.is_empty() {
        String::new()
    } else {
        format!("\n<!-- begin {rest}")
    };
    let page = format!("{INTRODUCTION}{chapters}");
    match (page.find(&begin), page.find(&end)) {
        (Some(from), Some(to)) if from < to => format!("{}{new}{}", &page[..from], &page[to + end.len()..]),
        _ => format!("{page}\n{new}"),
    }
}

fn default_words(key: &ConfigKey) -> String {
    match key.default {
        DefaultValue::Is(literal) => format!("`{literal}`"),
        DefaultValue::Below { key, join } => format!("`<{key}>/{join}`"),
        DefaultValue::Unset(unset) => format!("not set: {unset}"),
    }
}

fn marks(key: &ConfigKey) -> String {
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
