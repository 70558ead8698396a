//! What the programs are made of: `unsafe` code, the list of linked crates, and that their advisories and licences are checked.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::ZlibDecoder;
use harness::Failure;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Files of our crates with `unsafe` code, how many places each has, and why.
const UNSAFE_CODE: &[(&str, usize, &str)] = &[
    (
        "chassis/src/child_spawner.rs",
        1,
        "pre_exec: prctl and getppid between fork and exec",
    ),
    (
        "cli/src/allocator_threads.rs",
        1,
        "mallctl: stops and starts jemalloc's background threads",
    ),
    (
        "engine/src/datafile/shadow_file.rs",
        3,
        "fcntl for leases; in its tests a memory map",
    ),
    ("engine/src/io_pacing.rs", 1, "sync_file_range on an open file"),
    (
        "engine/src/thread_priority.rs",
        4,
        "getpriority, setpriority and sched_setattr of the own thread",
    ),
    ("engine/src/wal/direct_io.rs", 2, "statx on an open file"),
];

fn sources_below(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources_below(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn unsafe_code_is_where_the_list_says() -> Result<(), Failure> {
    let rooms = "model durable-fs chassis gear-spec engine ingest query iceberg mixer rack cli";
    let mut sources = Vec::new();
    for room in rooms.split(' ') {
        sources_below(&Path::new(ROOT).join(room).join("src"), &mut sources)?;
    }
    assert!(sources.len() > 500, "{} files", sources.len());
    let mut found = BTreeMap::new();
    for path in sources {
        let text = std::fs::read_to_string(&path)?;
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let places = code
            .flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
            .filter(|word| *word == "unsafe")
            .count();
        if places > 0 {
            found.insert(path.strip_prefix(ROOT)?.display().to_string(), places);
        }
    }
    let listed = UNSAFE_CODE
        .iter()
        .map(|(file, places, _)| ((*file).to_owned(), *places));
    assert_eq!(
        found,
        listed.collect(),
        "file and places; reasons belong in UNSAFE_CODE"
    );
    Ok(())
}

/// The prerequisites of a target of the Makefile, and its recipe.
fn make_rule<'a>(makefile: &'a str, target: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let start = format!("{target}:");
    // A rule, not a variable of the target.
    let mut lines = makefile
        .lines()
        .skip_while(|line| !line.starts_with(&start) || line.contains("export "));
    let prerequisites = lines.next()?.strip_prefix(&start)?.split('#').next()?.trim();
    let recipe = lines.map_while(|line| line.strip_prefix('\t'));
    Some((prerequisites, recipe.collect()))
}

#[test]
fn continuous_integration_checks_the_dependencies() -> Result<(), Failure> {
    let makefile = std::fs::read_to_string(format!("{ROOT}/Makefile"))?;
    let (_, check) = make_rule(&makefile, "check").ok_or("no target check")?;
    assert!(check.contains(&"scripts/check-dependencies.sh"), "{check:?}");
    let (test, _) = make_rule(&makefile, "test").ok_or("no target test")?;
    assert!(test.split(' ').any(|needs| needs == "check"), "{test}");
    let ci = std::fs::read_to_string(format!("{ROOT}/.ci/run"))?;
    let last = ci.lines().last().unwrap_or_default();
    assert_eq!(last, "exec make test");
    Ok(())
}

fn bill_of_materials(form: &str, package: &str) -> Result<Vec<u8>, Failure> {
    let made = Command::new("python3")
        .args([&format!("{ROOT}/scripts/bill-of-materials.py"), form, package])
        .output()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(made.stdout)
}

#[test]
fn bill_of_materials_names_each_linked_crate_with_licence_and_hash() -> Result<(), Failure> {
    for (package, is_static) in [("platform-cli", true), ("platform-mixer", false)] {
        let bill: Value = serde_json::from_slice(&bill_of_materials("sbom", package)?)?;
        assert_eq!(bill["bomFormat"], "CycloneDX");
        assert_eq!(bill["metadata"]["component"]["name"], package);
        let parts = bill["components"].as_array().ok_or("no components")?;
        for part in parts {
            let name = part["name"].as_str().ok_or("no name")?;
            assert_ne!(part["licenses"][0]["expression"], "NOASSERTION", "{name}");
            let has_hash = part["hashes"][0]["content"].as_str().is_some_and(|sha| sha.len() == 64);
            assert!(has_hash || name.starts_with("platform-"), "{name}");
        }
        let has = |name: &str| parts.iter().any(|part| part["name"] == name);
        assert!(has("tokio") && has("async-nats") && !has("proptest"));
        assert_eq!(has("parquet"), !is_static);

        let mut text = String::new();
        ZlibDecoder::new(bill_of_materials("section", package)?.as_slice()).read_to_string(&mut text)?;
        let section: Value = serde_json::from_str(&text)?;
        let packages = section["packages"].as_array().ok_or("no packages")?;
        assert_eq!(packages.len(), parts.len() + 1);
        let root: Vec<&Value> = packages.iter().filter(|one| one["root"] == true).collect();
        assert_eq!(root.len(), 1);
        assert_eq!(root[0]["name"], package);
    }
    Ok(())
}
