//! Every configuration key has a test that changing it changes behaviour.
//!
//! The table ([`table`]) names for each key the test that proves it; [`every_key_is_in_the_table`] holds it against what the
//! programs print themselves. The tests of this folder look from outside; keys that need a peer of the agent, a clock or a
//! failing disk are proven by tests of their room, which the table names too.

mod api_query;
mod bus;
mod control;
mod json;
mod layers;
mod logging;
mod object_store;
mod quotas;
mod rack;
mod refused;
mod senders;
mod store;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Failure, binary, process};

use table::{MIXER, Proof, RACK};

/// How long a busy machine may take for anything that is awaited here.
const SOON: Duration = Duration::from_secs(30);

/// The keys that a program prints with `config show`, dotted; those of the environment only under their variable's name.
fn shown(program: &str) -> Result<BTreeSet<String>, Failure> {
    let folder = tempfile::tempdir()?;
    let done = process::run(&binary(program)?, &["config", "show"], folder.path(), &[])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    let (mut keys, mut section) = (BTreeSet::new(), String::new());
    for line in done.out.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((key, _)) = line.split_once(" = ").or_else(|| line.split_once(" is not set")) {
            let is_variable = key.starts_with("PLATFORM_");
            keys.insert(if is_variable {
                key.to_owned()
            } else {
                format!("{section}{key}")
            });
        }
    }
    Ok(keys)
}

#[test]
fn every_key_is_in_the_table() -> Result<(), Failure> {
    for (program, rows) in [("platform", RACK), ("platform-mixer", MIXER)] {
        let shown = shown(program)?;
        assert!(shown.len() > 30, "{program}: {shown:?}");
        let listed: BTreeSet<String> = rows.iter().map(|(key, _)| (*key).to_owned()).collect();
        assert_eq!(listed.len(), rows.len(), "{program}: a key is listed twice");
        let missing: Vec<_> = shown.difference(&listed).collect();
        assert!(
            missing.is_empty(),
            "{program}: keys without a row in the table: {missing:?}"
        );
        let gone: Vec<_> = listed.difference(&shown).collect();
        assert!(gone.is_empty(), "{program}: rows of keys that are gone: {gone:?}");
    }
    Ok(())
}

#[test]
fn every_test_that_the_table_names_exists_and_speaks_of_its_key() -> Result<(), Failure> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = BTreeMap::new();
    for (key, Proof::Test(name)) in RACK.iter().chain(MIXER) {
        let (file, test) = name.rsplit_once("::").ok_or_else(|| format!("{key}: {name}"))?;
        let source = match sources.get(file) {
            Some(source) => source,
            None => {
                let folder = if root.join(file).is_file() {
                    root.clone()
                } else {
                    root.join("tests/suite")
                };
                let text = std::fs::read_to_string(folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
                sources.entry(file).or_insert(text)
            }
        };
        assert!(is_test(source, test), "{key}: {file} has no test {test}");
        let last = key.rsplit('.').next().unwrap_or(key);
        assert!(source.contains(last), "{key}: {file} does not speak of {last}");
    }
    Ok(())
}

/// Whether a source has this function with a test attribute on the line before it.
fn is_test(source: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = source.lines().collect();
    lines.windows(2).any(|pair| {
        let is_marked = pair[0].trim_start().starts_with("#[") && pair[0].contains("test");
        is_marked && pair[1].contains(&head)
    })
}

/// The text of a file; empty while there is none.
fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A TOML value of a path.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// The names of a folder's entries; none while there is none.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Where a scenario of this text lies, as a TOML value; and its folder.
fn scenario(text: &str) -> Result<(String, tempfile::TempDir), Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    std::fs::write(&file, text)?;
    Ok((quoted(&file), folder))
}
