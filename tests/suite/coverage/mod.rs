//! Every state, event, endpoint and command has a test, or cannot happen and says why.
//!
//! [`table`] names the tests; here it is held against what the programs, the API's own document and the sources say there is, and
//! the page `docs/coverage.md` is made of it. Where there was no test yet, it is in this folder.

mod commands;
mod endpoints;
pub(crate) mod racks;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use harness::{Failure, TestMixer};
use model::control::RackState;

use crate::config_keys::is_test;
use table::{COMMANDS, ENDPOINTS, EVENTS, FAULTS, Fault, MESSAGES, Proof, RACKS, REFUSALS, Row, STANDINGS};

const HEAD: &str = "# What is covered

<!-- Generated from tests/suite/coverage/table.rs; tests hold it against the programs. Write it anew with: make docs -->

Every state that a Rack, a scenario or a message can be in, every event, every endpoint and every command, with the tests that cover it. A test fails when
one of them has no row, when a row is of something that is gone, and when a test that a row names is not there. Every endpoint
is asked some hundred times more by `make schema-check`, with requests that are generated from the API's document. Faults that are made on
purpose, and what is seen of them, are at the end.
";

/// A Rack's states. The match makes sure that there is no other.
const RACK_STATES: [RackState; 5] = {
    use RackState::{Active, Offline, Pending, Removed, Suspended};
    match Active {
        Pending | Active | Suspended | Offline | Removed => [Pending, Active, Suspended, Offline, Removed],
    }
};

/// The tables with their headings on the page.
const TABLES: &[(&str, &str, &[Row])] = &[
    ("Racks", "From what is shown to what is shown", RACKS),
    (
        "Scenarios: how a Rack stands to the active one",
        "What the report says",
        STANDINGS,
    ),
    ("Scenarios: why a Rack does not apply one", "Refusal", REFUSALS),
    ("Messages", "What becomes of one", MESSAGES),
    ("Events", "`platform.event.<kind>`", EVENTS),
    ("Endpoints", "Method and path", ENDPOINTS),
    ("Commands", "Command", COMMANDS),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}").into())
}

fn transitions() -> BTreeSet<String> {
    let from = RACK_STATES.iter().map(|state| state.as_str()).chain(["none"]);
    let pairs = from.flat_map(|from| RACK_STATES.iter().map(move |to| (from, to.as_str())));
    let pairs = pairs.filter(|(from, to)| from != to);
    pairs.map(|(from, to)| format!("{from} → {to}")).collect()
}

/// The texts between quotes that begin with `begin` in the lines of a source that are no tests.
fn quoted(source: &str, begin: &str) -> BTreeSet<String> {
    let program = source.split("#[cfg(test)]").next().unwrap_or_default();
    let opening = format!("\"{begin}");
    let texts = program
        .split(&opening)
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    texts.map(|text| format!("{begin}{text}")).collect()
}

/// The names of an enum's variants.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("enum {name} {{\n")).nth(1).unwrap_or_default();
    let lines = body.lines().take_while(|line| *line != "}");
    let heads = lines.filter_map(|line| {
        line.strip_prefix("    ")
            .filter(|line| line.starts_with(char::is_uppercase))
    });
    heads
        .map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect())
        .collect()
}

fn standings() -> Result<BTreeSet<String>, Failure> {
    let mut all = quoted(&source("mixer/src/scenario/standing.rs")?, "it ");
    all.extend(["runs", "what the Rack says", "resumed without its Mixer"].map(str::to_owned));
    Ok(all)
}

/// The kinds of events, as they stand in subjects.
pub(crate) fn events() -> Result<BTreeSet<String>, Failure> {
    let source = source("mixer/src/events.rs")?;
    let arms = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""));
    Ok(arms.map(|(_, rest)| rest.trim_end_matches("\",").to_owned()).collect())
}

/// The methods and paths that a Mixer says it has.
fn endpoints() -> Result<BTreeSet<String>, Failure> {
    let document = TestMixer::start("")?.api.get("/api/v1/openapi.json")?.json;
    let paths = document["paths"].as_object().ok_or("the document has no paths")?;
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item
            .as_object()
            .into_iter()
            .flatten()
            .map(|(method, _)| method.to_uppercase());
        let methods = methods.filter(|method| ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str()));
        methods.map(move |method| format!("{method} {path}"))
    });
    Ok(operations.collect())
}

/// The commands that do something: a group is what its commands are.
fn commands() -> Result<BTreeSet<String>, Failure> {
    let folder = tempfile::tempdir()?;
    let mut all = Vec::new();
    for program in ["platform", "platform-mixer"] {
        all.extend(
            crate::reference::helps(program, folder.path())?
                .into_iter()
                .map(|(words, _)| words),
        );
    }
    let is_group = |words: &Vec<String>| {
        words.len() > 1
            && all
                .iter()
                .any(|other| other.len() > words.len() && other.starts_with(words))
    };
    Ok(all
        .iter()
        .filter(|words| !is_group(words))
        .map(|words| words.join(" "))
        .collect())
}

/// Holds a table against what there is.
fn compare(table: &str, rows: &[Row], there: &BTreeSet<String>) {
    let listed: BTreeSet<String> = rows.iter().map(|(what, _)| (*what).to_owned()).collect();
    assert_eq!(listed.len(), rows.len(), "{table}: a row is there twice");
    let missing: Vec<_> = there.difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "{table}: without a row in tests/suite/coverage/table.rs: {missing:#?}"
    );
    let gone: Vec<_> = listed.difference(there).collect();
    assert!(gone.is_empty(), "{table}: rows of what is gone: {gone:#?}");
}

#[test]
fn everything_there_is_has_a_row() -> Result<(), Failure> {
    let refusals = variants(&source("rack/src/wires.rs")?, "NotApplied");
    let (endpoints, commands) = (endpoints()?, commands()?);
    assert!(
        endpoints.len() > 40 && commands.len() > 40 && refusals.len() > 7,
        "{endpoints:?} {commands:?} {refusals:?}"
    );
    compare("RACKS", RACKS, &transitions());
    compare("STANDINGS", STANDINGS, &standings()?);
    compare("REFUSALS", REFUSALS, &refusals);
    compare("EVENTS", EVENTS, &events()?);
    compare("ENDPOINTS", ENDPOINTS, &endpoints);
    compare("COMMANDS", COMMANDS, &commands);
    Ok(())
}

/// The words by which a test must speak of a row: those of a path or a command that are no parameters, an event's kind.
fn words(what: &str) -> Vec<&str> {
    let is_word = |word: &&str| !word.is_empty() && !word.starts_with('{');
    let says_nothing = ["platform", "api", "v1", "GET", "POST", "PUT", "PATCH", "DELETE"];
    let mut words: Vec<_> = what.split([' ', '/']).filter(is_word).collect();
    if words.len() > 1 {
        words.retain(|word| !says_nothing.contains(word));
    }
    words
}

/// Whether a text has a word that is not a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let (before, behind) = (
            text.get(..at).unwrap_or_default(),
            text.get(at + word.len()..).unwrap_or_default(),
        );
        !before.ends_with(inner) && !behind.starts_with(inner)
    })
}

/// The name of the function whose head a line begins.
fn begun_by(line: &str) -> Option<&str> {
    let (before, head) = line.split_once("fn ")?;
    let is_head = |word: &str| word.starts_with("pub") || ["async", "const", "unsafe"].contains(&word);
    let named = head.split(['(', '<']).next()?;
    before.split_whitespace().all(is_head).then_some(named)
}

/// The functions of a source without their heads, by name.
fn functions(source: &str) -> BTreeMap<&str, String> {
    let mut functions = BTreeMap::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        let Some(name) = begun_by(text) else { continue };
        if text.ends_with(['}', ';']) {
            functions.insert(name, text.to_owned());
            continue;
        }
        let end = format!("{}}}", " ".repeat(line.len() - text.len()));
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        functions.insert(name, body.join("\n"));
    }
    functions
}

/// What a test does: its body, and those of the functions of its file that it calls.
fn done_by(source: &str, test: &str) -> String {
    let functions = functions(source);
    let (mut open, mut seen) = (vec![test], BTreeSet::from([test]));
    let mut done = String::new();
    while let Some(body) = open.pop().and_then(|name| functions.get(name)) {
        done.push_str(body);
        let called = functions.keys().filter(|name| body.contains(&format!("{name}(")));
        open.extend(
            called
                .copied()
                .filter(|name| has_word(body, name) && seen.insert(*name)),
        );
    }
    done
}

/// Whether a test of this table hears what happens, too: an event is what comes on the bus.
fn hears(table: &str, done: &str) -> bool {
    table != "Events" || done.contains("platform.event") || done.contains("events(")
}

/// The source of a test, which must have it.
fn source_of<'s>(sources: &'s mut BTreeMap<String, String>, what: &str, test: &str) -> Result<&'s str, Failure> {
    let (file, name) = test.rsplit_once("::").ok_or_else(|| format!("{what}: {test}"))?;
    if !sources.contains_key(file) {
        sources.insert(file.to_owned(), source(file)?);
    }
    let text = sources.get(file).map(String::as_str).unwrap_or_default();
    assert!(is_test(text, name), "{what}: {file} has no test {name}");
    Ok(text)
}

#[test]
fn every_test_that_makes_a_fault_exists() -> Result<(), Failure> {
    let mut sources = BTreeMap::new();
    for Fault { what, seen, by } in FAULTS {
        assert!(seen.len() > 20 && !by.is_empty(), "{what}: {seen:?}");
        for test in *by {
            source_of(&mut sources, what, test)?;
        }
    }
    Ok(())
}

#[test]
fn every_test_that_a_row_names_exists_and_speaks_of_it() -> Result<(), Failure> {
    let mut sources = BTreeMap::new();
    for (table, _, rows) in TABLES {
        let must_speak = ["Events", "Endpoints", "Commands"].contains(table);
        for (what, proof) in *rows {
            let tests = match proof {
                Proof::By(tests) => *tests,
                Proof::Never(reason) => {
                    assert!(reason.len() > 20, "{what}: {reason:?} is no reason");
                    continue;
                }
            };
            assert!(!tests.is_empty(), "{what}: no test");
            let mut silent = Vec::new();
            for test in tests {
                let source = source_of(&mut sources, what, test)?;
                let done = done_by(source, test.rsplit("::").next().unwrap_or_default());
                let missing = words(what).into_iter().filter(|word| !has_word(&done, word));
                silent.push(
                    missing
                        .chain((!hears(table, &done)).then_some("the bus"))
                        .collect::<Vec<_>>(),
                );
            }
            assert!(
                !must_speak || silent.iter().any(Vec::is_empty),
                "{what}: none of its tests speaks of it: {silent:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_reference_page_of_what_is_covered_is_the_table() -> Result<(), Failure> {
    let mut wanted = HEAD.to_owned();
    for (heading, column, rows) in TABLES {
        write!(wanted, "\n## {heading}\n\n| {column} | covered by |\n|---|---|\n")?;
        for (what, proof) in *rows {
            let proof = match proof {
                Proof::By(tests) => all_shown(tests),
                Proof::Never(reason) => format!("cannot happen: {reason}"),
            };
            writeln!(wanted, "| {what} | {proof} |")?;
        }
    }
    wanted.push_str("\n## Bad input and faults\n\n| fault | what is seen of it, and what becomes of it | covered by |\n|---|---|---|\n");
    for Fault { what, seen, by } in FAULTS {
        writeln!(wanted, "| {what} | {seen} | {} |", all_shown(by))?;
    }
    let path = root().join("docs/coverage.md");
    if std::env::var_os("UPDATE").is_some() {
        return Ok(std::fs::write(path, wanted)?);
    }
    let page = std::fs::read_to_string(path)?;
    assert_eq!(page, wanted, "docs/coverage.md is not the generated one: make docs");
    Ok(())
}

/// Tests, each on a line of its own.
fn all_shown(tests: &[&str]) -> String {
    let shown: Vec<_> = tests.iter().map(|test| shown(test)).collect();
    shown.join("<br>")
}

/// A test as a sentence that leads to its file.
fn shown(test: &str) -> String {
    let (file, name) = test.rsplit_once("::").unwrap_or((test, test));
    format!("[{}](../{file})", name.replace('_', " "))
}
