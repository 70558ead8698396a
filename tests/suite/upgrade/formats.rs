//! The numbers of formats, in the source, on the disk and in the page that says which release can follow which.
//!
//! # Not here
//!
//! Numbers of release 0.1.0 that no file of its archive has, which the page names as such: they were read in that release's source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use harness::process::run;
use harness::store::files_below;
use harness::{Failure, TestMixer, TestRack, binary, tool};
use redb::{Database, ReadableDatabase, TableDefinition};

use super::unpacked;
use crate::readme::project;

/// Each format: its row in the page, the file with its number, what stands before the number there.
const FORMATS: [(&str, &str, &str); 14] = [
    ("write-ahead log", "engine/src/wal/segment.rs", "const FORMAT: u32 = "),
    ("catalogue, records", "engine/src/manifest/log.rs", "= b\"FLUXCAT"),
    (
        "catalogue, checkpoints",
        "engine/src/manifest/checkpoint.rs",
        "= b\"FLUXCHK",
    ),
    (
        "bucket, records",
        "engine/src/object_storage/object_format.rs",
        "= b\"FLUXREM",
    ),
    (
        "bucket, checkpoints",
        "engine/src/object_storage/object_format.rs",
        "= b\"FLUXRCP",
    ),
    (
        "data files",
        "engine/src/datafile/footer.rs",
        "const SCHEMA_VERSION: &str = \"",
    ),
    ("indexes", "engine/src/index/sidecar_format.rs", "= *b\"PLATIDX"),
    ("registry", "mixer/src/registry/mod.rs", "const FORMAT: u16 = "),
    ("specs", "mixer/src/specs/spec_set.rs", "const FORMAT: u16 = "),
    ("backups", "mixer/src/backup/mod.rs", "const FORMAT: u16 = "),
    ("state file", "model/src/passport.rs", "pub const VERSION: u16 = "),
    (
        "encrypted state file",
        "rack/src/seal_error.rs",
        "SEALED_VERSION: u16 = ",
    ),
    ("orders", "rack/src/applied_state.rs", "const VERSION: u16 = "),
    (
        "spool and outbox",
        "rack/src/spool/segment.rs",
        "const MAGIC: &[u8; 8] = b\"FLUXSPL",
    ),
];

/// Where files have such numbers: how their names begin and end, and what stands before the number.
const ON_DISK: [(&str, &str, &str, &[u8]); 9] = [
    ("write-ahead log", "wal_", ".log", b"PLATFWAL"),
    ("catalogue, records", "catalogue_", ".log", b"FLUXCAT"),
    ("catalogue, checkpoints", "checkpoint_", "", b"FLUXCHK"),
    ("data files", "", ".parquet", b"platform.schema_version\x18\x01"),
    ("indexes", "", ".idx", b"PLATIDX"),
    ("specs", "specs", ".json", b"\"format\": "),
    ("state file", "rack", ".flux", b"gversion"),
    ("orders", "scenario", ".cbor", b"gversion"),
    ("spool and outbox", "", ".seg", b"FLUXSPL"),
];

/// The table of a registry that has its number.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// The number behind the first place where `before` stands: as text, or one byte.
fn number_behind(bytes: &[u8], before: &[u8]) -> Option<u32> {
    let at = bytes.windows(before.len()).position(|part| part == before)? + before.len();
    let rest = bytes.get(at..)?;
    let digits: String = rest
        .iter()
        .map(|byte| char::from(*byte))
        .take_while(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .ok()
        .or_else(|| rest.first().map(|byte| u32::from(*byte)))
}

/// The number of a registry: of a copy, since to open one is to change it.
fn registry_number(path: &Path) -> Result<u32, Failure> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("registry.redb");
    std::fs::copy(path, &copy)?;
    let database = Database::open(&copy)?;
    let read = database.begin_read().map_err(|error| error.to_string())?;
    let table = read.open_table(META)?;
    let format = table.get("format")?.ok_or("the registry has no number")?;
    Ok(ciborium::from_reader(format.value())?)
}

/// The numbers of each format that files below a folder have.
pub(super) type DiskNumbers = BTreeMap<&'static str, BTreeSet<u32>>;

pub(super) fn numbers_below(folder: &Path) -> Result<DiskNumbers, Failure> {
    let mut found = DiskNumbers::new();
    for path in files_below(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "registry.redb" {
            found.entry("registry").or_default().insert(registry_number(&path)?);
        }
        for (format, begin, end, before) in ON_DISK {
            if name.starts_with(begin) && name.ends_with(end) {
                let number = number_behind(&std::fs::read(&path)?, before);
                let number = number.ok_or_else(|| format!("{} has no number", path.display()))?;
                found.entry(format).or_default().insert(number);
            }
        }
    }
    Ok(found)
}

/// A row of the page: the number of a format in release 0.1.0, whether files of that release say so, and the number now.
struct FormatRow {
    old: u32,
    is_read: bool,
    now: u32,
}

fn page_rows() -> Result<BTreeMap<String, FormatRow>, Failure> {
    let page = std::fs::read_to_string(project().join("docs/operate.md"))?;
    let (_, section) = page
        .split_once("## Formats on disk\n")
        .ok_or("the page has no formats")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| ")?.split('|').map(str::trim).collect();
        let (old, is_read) = match cells.get(2)?.strip_suffix('*') {
            Some(old) => (old, false),
            None => (*cells.get(2)?, true),
        };
        let row = FormatRow {
            old: old.parse().ok()?,
            is_read,
            now: cells.get(3)?.parse().ok()?,
        };
        Some((cells[0].to_owned(), row))
    });
    Ok(rows.collect())
}

/// The files have the numbers of the page: before, those of release 0.1.0, and then no others than these and the present ones.
pub(super) fn on_disk_as_the_page_says(before: &DiskNumbers, after: &DiskNumbers) -> Result<(), Failure> {
    let page = page_rows()?;
    assert!(before.len() >= 3, "{before:?}");
    assert!(before.keys().eq(after.keys()), "{before:?} {after:?}");
    for (format, numbers) in before {
        let FormatRow { old, now, .. } = page[*format];
        assert_eq!(*numbers, BTreeSet::from([old]), "{format}");
        assert!(
            after[format].is_subset(&BTreeSet::from([old, now])),
            "{format}: {after:?}"
        );
    }
    Ok(())
}

#[test]
fn the_page_has_the_number_of_each_format() -> Result<(), Failure> {
    let page = page_rows()?;
    for (format, file, before) in FORMATS {
        let text = std::fs::read(project().join(file))?;
        let number = number_behind(&text, before.as_bytes()).ok_or_else(|| format!("{file} has no {before:?}"))?;
        let FormatRow { now, .. } = page.get(format).ok_or_else(|| format!("the page has no {format:?}"))?;
        assert_eq!(
            number, *now,
            "{format} is another one in {file}: say so in \"Formats on disk\""
        );
    }
    let named: BTreeSet<_> = FORMATS.iter().map(|(format, ..)| *format).collect();
    assert_eq!(page.keys().map(String::as_str).collect::<BTreeSet<_>>(), named);
    Ok(())
}

#[test]
fn the_page_says_which_numbers_of_release_0_1_0_are_those_of_its_files() -> Result<(), Failure> {
    let mut found = DiskNumbers::new();
    for folder in ["mixer", "rack-a", "rack-b"] {
        found.extend(numbers_below(unpacked(folder)?.path())?);
    }
    let page = page_rows()?;
    let read = page.iter().filter(|(_, row)| row.is_read);
    assert_eq!(
        read.map(|(format, _)| format.as_str()).collect::<Vec<_>>(),
        found.into_keys().collect::<Vec<_>>()
    );
    Ok(())
}

/// Replaces bytes of a file, once.
fn replace(path: &Path, old: &[u8], new: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut bytes = std::fs::read(path)?;
    let at = bytes
        .windows(old.len())
        .position(|part| part == old)
        .ok_or("the file has no such bytes")?;
    bytes[at..at + old.len()].copy_from_slice(new);
    std::fs::write(path, &bytes)?;
    Ok(bytes)
}

/// A program refuses its folder because of one file, and leaves that as it is.
fn refused(program: &str, folder: &Path, file: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(file)?;
    let server = tool("nats-server")?.display().to_string();
    let envs = [
        ("PLATFORM_API_PORT", "0"),
        ("PLATFORM_SNAKE_PORT", "0"),
        ("PLATFORM_SNAKE_SERVER_BINARY", server.as_str()),
    ];
    let envs = if program == "platform" { &envs[..0] } else { &envs[..] };
    let done = run(&binary(program)?, &[], folder, envs)?;
    assert_eq!(done.code, Some(65), "{}", done.err);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    for part in [&*name, "has format 2, this program knows 1"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    assert_eq!(std::fs::read(file)?, bytes, "it was not changed");
    Ok(())
}

#[test]
fn a_store_and_a_rack_of_a_later_format_are_refused_with_the_name_of_the_file() -> Result<(), Failure> {
    let store = unpacked("mixer")?;
    let specs = store.path().join("data/specs.json");
    replace(&specs, b"\"format\": 1", b"\"format\": 2")?;
    refused("platform-mixer", store.path(), &specs)?;
    replace(&specs, b"\"format\": 2", b"\"format\": 1")?;

    let files = files_below(&store.path().join("data/meta"))?;
    let is_checkpoint = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("checkpoint_");
    let newest = files
        .iter()
        .filter(|path| path.file_name().is_some_and(is_checkpoint))
        .max();
    let newest = newest.ok_or("no checkpoint")?;
    let good = std::fs::read(newest)?;
    let mut later = replace(newest, b"FLUXCHK1", b"FLUXCHK2")?;
    // Its checksum is not ours either: that tells it from a flipped bit.
    later[16] ^= 1;
    std::fs::write(newest, later)?;
    refused("platform-mixer", store.path(), newest)?;
    std::fs::write(newest, good)?;

    let rack = unpacked("rack-a")?;
    let state = rack.path().join("data/rack.flux");
    replace(&state, b"gversion\x01", b"gversion\x02")?;
    refused("platform", rack.path(), &state)?;
    replace(&state, b"gversion\x02", b"gversion\x01")?;

    // The same with the old numbers.
    let mixer = TestMixer::take_over(store, &[])?;
    TestRack::take_over("rack-a", rack, &mixer.bus_url).start()
}
