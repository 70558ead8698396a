//! The files of the page: what they name, what they weigh, and whether the vendored ones are what was vendored.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use super::*;

const SUMS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../web/vendor/SHA256SUMS"));
/// The most bytes of code, gzipped: our own, and that of others.
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
        ("app/parts/chart.js", "vendor/uplot.css"),
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
fn code_is_no_larger_than_it_may_be() {
    let code = FILES.iter().filter(|file| !file.path.ends_with(".md"));
    let (vendored, own): (Vec<_>, Vec<_>) = code.partition(|file| file.path.starts_with("vendor/"));
    let bytes = |files: &[&PageFile]| files.iter().map(|file| file.packed.len()).sum::<usize>();
    let (own, vendored) = (bytes(&own) + INDEX.packed.len(), bytes(&vendored));
    println!("gzipped: {own} bytes of our own, {vendored} of others");
    assert!(own > 5_000 && own <= MOST_OWN, "{own} bytes of our own");
    assert!(
        vendored > 20_000 && vendored <= MOST_VENDORED,
        "{vendored} bytes of others"
    );
}
