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
    for (from, to, _) in REFERENCES {
        assert!(there.contains(to), "web/{from} names {to}, which is not there");
    }
    // Of each way of naming one.
    for known in [
        ("index.html", "app/first.js"),
        ("index.html", "app/main.js"),
        ("index.html", "style/page.css"),
        ("app/main.js", "app/html.js"),
        ("app/html.js", "vendor/htm.js"),
        ("app/html.js", "vendor/hooks.js"),
        ("vendor/hooks.js", "vendor/preact.js"),
        ("app/pages.js", "app/pages/overview.js"),
        ("app/pages/logs.js", "style/logs.css"),
        ("app/parts/chart.js", "vendor/uplot.js"),
    ] {
        let is_found = REFERENCES.iter().any(|(from, to, _)| (*from, *to) == known);
        assert!(is_found, "{known:?} was not found");
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

/// What `index.html` says that is loaded with each view, beside what it says of the frame.
fn loaded_with_views() -> (BTreeMap<String, Vec<String>>, BTreeSet<String>) {
    let index = std::str::from_utf8(INDEX.plain).unwrap();
    let (_, rest) = index
        .split_once("<script type=\"application/json\" id=\"views\">")
        .unwrap();
    let views = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let links = index.split("<link rel=\"modulepreload\" href=\"/web/").skip(1);
    let frame = links.map(|link| link.split_once('/').unwrap().1.split('"').next().unwrap().to_owned());
    (views, frame.collect())
}

#[test]
fn the_index_lists_all_files_that_are_loaded_with_each_view_once() {
    let (views, frame) = loaded_with_views();
    let list = FILES.iter().find(|file| file.path == "app/pages.js").unwrap().plain;
    let list = std::str::from_utf8(list).unwrap();
    let names = list
        .split("name: \"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap());
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(views.keys().map(String::as_str).collect::<BTreeSet<_>>(), names);
    assert!(
        names.contains("overview") && names.contains("dead-letters"),
        "{names:?}"
    );
    assert!(
        frame.contains("app/main.js") && frame.contains("app/first.js"),
        "{frame:?}"
    );
    for (name, listed) in &views {
        let module = format!("app/pages/{}.js", name.replace('-', "_"));
        assert_eq!(listed.first(), Some(&module), "{name}");
        let mut loaded: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        assert_eq!(loaded.len(), listed.len(), "{name}: {listed:?}");
        for file in &loaded {
            assert!(
                FILES.iter().any(|one| one.path == *file),
                "{name}: web/{file} is not there"
            );
            assert!(!frame.contains(*file), "{name}: {file} is loaded with the frame");
        }
        // No file is left that is loaded only when another one has said so.
        loaded.extend(frame.iter().map(String::as_str));
        let later = REFERENCES
            .iter()
            .find(|(from, to, is_static)| *is_static && loaded.contains(from) && !loaded.contains(to));
        assert_eq!(later, None, "{name}");
    }
    let logs = &views["logs"];
    for (file, is_listed) in [
        ("style/logs.css", true),
        ("app/parts/log_list.js", true),
        ("app/parts/virtual_list.js", true),
        ("style/traces.css", false),
        ("vendor/uplot.js", false),
    ] {
        assert_eq!(logs.iter().any(|one| one == file), is_listed, "{file}: {logs:?}");
    }
}

/// What a file leads to. Pages are loaded when they are first shown; the first one is the overview.
fn loaded_first() -> BTreeSet<&'static str> {
    let is_first = |to: &str| !to.starts_with("app/pages/") || to == "app/pages/overview.js";
    let mut loaded = BTreeSet::from(["index.html"]);
    loop {
        let found = REFERENCES
            .iter()
            .filter(|(from, to, _)| loaded.contains(from) && is_first(to));
        let found: Vec<_> = found.map(|(_, to, _)| *to).filter(|to| !loaded.contains(to)).collect();
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
