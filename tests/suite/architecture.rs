//! The arrows between the rooms and within them, the rules of names, and the versions in the lock file, as the design has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use harness::{binary, process};
use serde_json::Value;

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

#[test]
fn dependencies_between_crates_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("model", &[][..]),
        ("durable-fs", &[]),
        ("chassis", &["durable-fs", "model"]),
        ("engine", &["durable-fs", "model"]),
        ("ingest", &["engine", "chassis", "model"]),
        ("protocols", &["model"]),
        ("query", &["engine", "model"]),
        ("iceberg", &["engine", "model"]),
        ("gear-spec", &["model"]),
        (
            "mixer",
            &[
                "query",
                "iceberg",
                "ingest",
                "engine",
                "gear-spec",
                "protocols",
                "chassis",
                "durable-fs",
                "model",
            ],
        ),
        ("rack", &["gear-spec", "protocols", "chassis", "durable-fs", "model"]),
        ("cli", &["rack", "gear-spec", "chassis", "durable-fs", "model"]),
        ("tests", &["engine", "model"]),
        (
            "benches",
            &[
                "tests",
                "query",
                "iceberg",
                "ingest",
                "engine",
                "mixer",
                "rack",
                "gear-spec",
                "protocols",
                "chassis",
                "model",
            ],
        ),
    ]);
    let only_in_tests = BTreeMap::from([("mixer", "rack")]);
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"])).unwrap();
    let mut rooms = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let room = package["name"]
            .as_str()
            .unwrap()
            .trim_start_matches("platform-")
            .to_owned();
        let may = allowed
            .get(room.as_str())
            .unwrap_or_else(|| panic!("{room} is a room without an ADR"));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if !dependency["path"].is_string() {
                continue;
            }
            let to = dependency["name"].as_str().unwrap().trim_start_matches("platform-");
            let in_tests = dependency["kind"] == "dev" && only_in_tests.get(room.as_str()) == Some(&to);
            assert!(
                in_tests || may.contains(&to),
                "{room} -> {to} is not an arrow of the design"
            );
        }
        rooms.insert(room);
    }
    assert_eq!(rooms, allowed.keys().map(|room| (*room).to_owned()).collect());
}

#[test]
fn types_have_names_of_two_words_and_modules_import_downwards() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/measure-source.py");
    let checked = Command::new("python3")
        .args([script, "--check"])
        .output()
        .expect("python3 runs");
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn files_that_pages_name_exist() -> Result<(), std::io::Error> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let (mut pages, mut named) = (vec![root.join("README.md"), root.join("CONTRIBUTING.md")], 0);
    for folder in ["docs", "docs/adr", "docs/operate"] {
        for page in std::fs::read_dir(root.join(folder))? {
            pages.push(page?.path());
        }
    }
    let is_ours = |path: &&str| {
        let room = path.split_once('/').map_or("", |(room, _)| room);
        let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        is_plain && !["", "."].contains(&room) && root.join(room).join("Cargo.toml").exists()
    };
    for page in pages
        .iter()
        .filter(|page| page.extension().is_some_and(|end| end == "md"))
    {
        for path in std::fs::read_to_string(page)?.split('`').filter(is_ours) {
            let is_there = root.join(path).exists() || root.join(path).with_extension("rs").exists();
            assert!(is_there, "{} names {path}", page.display());
            named += 1;
        }
    }
    assert!(named > 60, "{named} files are named");
    Ok(())
}

#[test]
fn the_engine_knows_no_bus_no_http_no_sql_no_toml_and_the_rack_no_parquet() {
    for (package, strangers) in [
        (
            "platform-engine",
            &[
                "async-nats",
                "axum",
                "hyper",
                "datafusion",
                "sqlparser",
                "toml_edit",
                "toml",
            ][..],
        ),
        (
            "platform-cli",
            &[
                "datafusion",
                "parquet",
                "platform-engine",
                "platform-query",
                "sqlparser",
            ],
        ),
        ("platform-model", &["tokio", "async-nats", "parquet", "datafusion"]),
        ("platform-mixer", &["platform-rack", "wasmi", "tokio-modbus"]),
        (
            "platform-gear-spec",
            &[
                "platform-rack",
                "wasmi",
                "axum",
                "parquet",
                "async-nats",
                "rustls",
                "tokio",
            ],
        ),
        ("platform-query", &["async-nats", "axum", "platform-ingest"]),
        (
            "platform-iceberg",
            &["async-nats", "axum", "datafusion", "platform-query"],
        ),
        ("platform-ingest", &["axum", "datafusion", "platform-query"]),
    ] {
        let tree = cargo(&["tree", "-p", package, "-e", "normal", "--prefix", "none", "--locked"]);
        let found: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
        for stranger in strangers {
            assert!(!found.contains(stranger), "{package} links {stranger}");
        }
    }
}

#[test]
fn columns_and_stores_have_one_version_in_the_lock_file() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lock.lines() {
        if let Some(name) = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"')) {
            *versions.entry(name).or_default() += 1;
        }
    }
    for name in [
        "arrow",
        "arrow-array",
        "arrow-schema",
        "arrow-ipc",
        "parquet",
        "object_store",
        "datafusion",
        "tokio",
    ] {
        assert_eq!(versions.get(name), Some(&1), "{name}");
    }
    for name in ["openssl-sys", "aws-lc-rs", "serde_cbor", "serde_yaml"] {
        assert_eq!(versions.get(name), None, "{name}");
    }
}

/// What `.cargo/config.toml` says is lost without a word where something else builds the allocator.
#[test]
fn the_mixers_allocator_gives_free_pages_back_as_it_was_built_to() -> Result<(), harness::Failure> {
    let told = [("MALLOC_CONF", "stats_print:true")];
    let folder = std::env::temp_dir();
    let done = process::run(&binary("platform-mixer")?, &["--version"], &folder, &told)?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    for setting in [
        "opt.background_thread: true",
        "opt.dirty_decay_ms: 500",
        "opt.muzzy_decay_ms: 0",
    ] {
        assert!(done.err.contains(setting), "{setting} is not in {}", done.err);
    }
    Ok(())
}
