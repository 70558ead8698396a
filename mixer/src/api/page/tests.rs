//! The files of the page: what they name, what they weigh, and whether the vendored ones are what was vendored.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use super::*;

#[path = "../../../build/strip.rs"]
mod strip;

const SUMS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../web/vendor/SHA256SUMS"));
/// The most bytes of code, gzipped: our own that is loaded at first, and that of others.
const MOST_OWN: usize = 60_000;
const MOST_VENDORED: usize = 40_000;

#[test]
fn files_name_files_that_are_there_by_relative_paths() {
    let there: BTreeSet<&str> = FILES.iter().map(|file| file.path).collect();
    for (from, to) in REFERENCES {
        assert!(there.contains(to), "web/{from} names {to}, which is not there");
    }
    // Of each way of naming one.
    for known in [
        ("index.html", "app/main.js"),
        ("index.html", "style/page.css"),
        ("app/main.js", "app/html.js"),
        ("app/html.js", "vendor/htm.js"),
        ("app/html.js", "vendor/hooks.js"),
        ("vendor/hooks.js", "vendor/preact.js"),
        ("app/pages.js", "app/pages/overview.js"),
        ("app/parts/chart.js", "vendor/uplot.js"),
    ] {
        assert!(REFERENCES.contains(&known), "{known:?} was not found");
    }
}

#[test]
fn vendored_files_have_the_sums_that_they_were_vendored_with() {
    let sums = SUMS.lines().map(|line| {
        let (sum, name) = line.split_once("  ").unwrap();
        (format!("vendor/{name}"), sum.to_owned())
    });
    let vendored = FILES.iter().filter(|file| file.path.starts_with("vendor/"));
    let found = vendored.map(|file| (file.path.to_owned(), model::hex::encode(&Sha256::digest(file.plain))));
    let found: BTreeMap<_, _> = found.collect();
    assert!(found.contains_key("vendor/LICENSES.md"), "{found:?}");
    let advice = "scripts/vendor-web.sh makes them anew";
    assert_eq!(found, sums.collect::<BTreeMap<_, _>>(), "{advice}");
}

#[test]
fn own_scripts_and_style_sheets_are_packed_line_for_line_without_comments() {
    let own = FILES.iter().filter(|file| !file.path.starts_with("vendor/"));
    let mut found = BTreeMap::new();
    for file in own {
        let language = match file.path.rsplit_once('.').unwrap().1 {
            "js" => strip::SourceLanguage::Script,
            "css" => strip::SourceLanguage::Style,
            _ => continue,
        };
        let source = std::fs::read_to_string(format!("{}/../web/{}", env!("CARGO_MANIFEST_DIR"), file.path)).unwrap();
        let packed = std::str::from_utf8(file.plain).unwrap();
        assert_eq!(strip::strip(&source, language).as_deref(), Ok(packed), "{}", file.path);
        assert_eq!(
            strip::strip(packed, language).as_deref(),
            Ok(packed),
            "{} again",
            file.path
        );
        assert_eq!(packed.lines().count(), source.lines().count(), "{}", file.path);
        found.insert(file.path, packed.len() < source.len());
    }
    assert!(found["app/main.js"] && found["style/page.css"], "{found:?}");
}

/// What a file leads to. Pages are loaded when they are first shown; the first one is the overview.
fn loaded_first() -> BTreeSet<&'static str> {
    let is_first = |to: &str| !to.starts_with("app/pages/") || to == "app/pages/overview.js";
    let mut loaded = BTreeSet::from(["index.html"]);
    loop {
        let found = REFERENCES
            .iter()
            .filter(|(from, to)| loaded.contains(from) && is_first(to));
        let found: Vec<_> = found.map(|(_, to)| *to).filter(|to| !loaded.contains(to)).collect();
        if found.is_empty() {
            return loaded;
        }
        loaded.extend(found);
    }
}

#[test]
fn what_the_first_view_loads_is_no_larger_than_it_may_be() {
    let first = loaded_first();
    let code = FILES.iter().filter(|file| !file.path.ends_with(".md"));
    let (vendored, own): (Vec<_>, Vec<_>) = code.partition(|file| file.path.starts_with("vendor/"));
    let bytes = |files: &mut dyn Iterator<Item = &&PageFile>| files.map(|file| file.packed.len()).sum::<usize>();
    let all = bytes(&mut own.iter()) + INDEX.packed.len();
    let (own, vendored) = (
        bytes(&mut own.iter().filter(|file| first.contains(file.path))) + INDEX.packed.len(),
        bytes(&mut vendored.iter()),
    );
    println!("gzipped: {own} bytes of our own at first, {all} in all, {vendored} of others");
    assert!(own > 5_000 && own <= MOST_OWN, "{own} bytes of our own");
    assert!(
        vendored > 20_000 && vendored <= MOST_VENDORED,
        "{vendored} bytes of others"
    );
}
