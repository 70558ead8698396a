//! What each engine does with the catalogue, as a table: local disk first, then a bucket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use harness::store::files_below;
use harness::{Failure, Random, TestMixer, TestS3};
use model::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::catalog_reader::{CatalogAccess, CatalogReader};
use super::stored_rows::{SMALL, TABLES, add_spec, all_published, bounds_of, entity_of, hours_ago, store_hour};
use super::{BucketKeys, ROWS, columns, current_snapshot, engines};
use crate::kill9::setting;

const COLUMNS: [&str; 9] = [
    "version",
    "tables",
    "counts",
    "by time",
    "by bounds",
    "join",
    "types",
    "travel",
    "S3",
];
/// What `docs/iceberg.md` says that an engine does not do, and why.
const NOT_PROMISED: [(&str, &str, &str); 2] = [
    ("pyiceberg", "join", "it has none"),
    ("chdb", "tables", "on a disk it reads tables by their folders"),
];
/// The first hours are stored, then the snapshot is noted that is travelled to, then the last hour is stored.
const HOURS: u32 = 6;
/// Hours that have ended for longer than files wait for late rows.
const NEWEST: u32 = 2;
/// Not so often that a snapshot is one of the last hundred only until the hour after it is stored.
const INTERVAL: (&str, &str) = ("observability.embedded.iceberg.interval", "\"2s\"");
const KEYS: [(&str, &str); 4] = [
    INTERVAL,
    SMALL,
    ("query.max_rows", "1000000000"),
    ("query.timeout", "\"10m\""),
];

/// What is right, by the Mixer.
struct StoredTables {
    /// Names, columns and digests of the tables that have rows.
    digests: BTreeMap<String, (Value, Value)>,
    /// A snapshot of the logs, and their digest then.
    earlier: (i64, Value),
    /// Numbered log records of each hour, and all of them.
    rows: u64,
    logs: u64,
    hours: Vec<Timestamp>,
}

impl StoredTables {
    fn of(mixer: &TestMixer, query: &str, folder: &Path) -> Result<Self, Failure> {
        let mut random = Random::for_test("engines_have_the_rows_of_the_mixer");
        add_spec(mixer)?;
        let rows = setting(ROWS.0, ROWS.1) / u64::from(HOURS);
        let hours: Vec<Timestamp> = (NEWEST..NEWEST + HOURS).rev().map(hours_ago).collect();
        let (last, first) = hours.split_last().ok_or("no hours")?;
        for hour in first {
            store_hour(mixer, &mut random, *hour, rows, query)?;
        }
        let mut ours = CatalogReader::open("mixer", mixer, &CatalogAccess::default(), folder)?;
        let published = |hours: u64| {
            let all = |(table, of): (&str, fn(u64) -> u64)| all_published(mixer, table, hours * of(rows));
            TABLES.into_iter().try_for_each(all)
        };
        published(u64::from(HOURS) - 1)?;
        let (snapshot, _) = current_snapshot(mixer, "logs").ok_or("no snapshot")?;
        let of_logs = columns(mixer, "logs").ok_or("no columns")?;
        let question = |table: &str, columns: &Value| json!({ "do": "digest", "table": table, "columns": columns });
        let then = ours.ask(&question("logs", &of_logs))?;
        store_hour(mixer, &mut random, *last, rows, query)?;
        published(HOURS.into())?;
        let mut digests = BTreeMap::new();
        for (table, of) in TABLES {
            let columns = columns(mixer, table).ok_or("no columns")?;
            let digest = ours.ask(&question(table, &columns))?;
            assert_eq!(digest["rows"], of(rows) * u64::from(HOURS), "{table}");
            digests.insert(table.to_owned(), (columns, digest));
        }
        assert_ne!(then, digests["logs"].1);
        Ok(Self {
            digests,
            earlier: (snapshot, then),
            rows,
            logs: TABLES[0].1(rows),
            hours,
        })
    }

    /// Pairs of a log record and a point, and the sum of the points.
    fn joined(&self) -> Value {
        let hours = self.hours.len() as f64;
        let sum: f64 = (0..self.rows).step_by(10).map(|row| row as f64 * 0.5).sum();
        json!([self.rows.div_ceil(10) * self.hours.len() as u64, sum * hours])
    }
}

/// An engine, what was found, and what of it is wrong.
struct EngineRow<'a> {
    reader: CatalogReader,
    expected: &'a StoredTables,
    cells: BTreeMap<&'static str, String>,
    faults: Vec<String>,
}

impl EngineRow<'_> {
    fn is_promised(&self, what: &str) -> bool {
        !NOT_PROMISED
            .iter()
            .any(|(engine, cell, _)| *engine == self.reader.name && *cell == what)
    }

    /// Fills a cell with the answer to a question, in the form in which it is right or wrong.
    fn fill(
        &mut self,
        cell: &'static str,
        part: &str,
        right: &str,
        judge: impl FnOnce(&mut Self) -> Result<String, Failure>,
    ) {
        let found = match judge(self) {
            Ok(found) if found == right => found,
            found => {
                let found = found.unwrap_or_else(|error| format!("failed: {error}"));
                let name = &self.reader.name;
                self.faults.push(format!("{name}: {cell} {part}: {found}, not {right}"));
                "WRONG".to_owned()
            }
        };
        let shown = self.cells.entry(cell).or_default();
        if shown.as_str() != "WRONG" {
            *shown = found;
        }
    }

    fn tables(&mut self, cell: &'static str, part: &str) {
        let of_spec = TABLES.iter().map(|(table, _)| *table);
        let mut names: Vec<&str> = of_spec.chain(["dead_letters"]).collect();
        names.sort_unstable();
        let count = names.len().to_string();
        self.fill(cell, part, &count, |row| {
            let found = row.reader.ask(&json!({ "do": "tables" }))?;
            Ok(if found == json!(names) {
                count.clone()
            } else {
                found.to_string()
            })
        });
    }

    fn digests(&mut self, cell: &'static str, part: &str) {
        let expected = self.expected;
        for (table, (columns, digest)) in &expected.digests {
            let asked = json!({ "do": "digest", "table": table, "columns": columns });
            self.same(cell, &format!("{part}{table}"), &asked, digest);
        }
    }

    fn travel(&mut self, cell: &'static str, part: &str) {
        let expected = self.expected;
        let (snapshot, digest) = &expected.earlier;
        let columns = &expected.digests["logs"].0;
        let asked = json!({ "do": "digest", "table": "logs", "columns": columns, "snapshot": snapshot });
        self.same(cell, part, &asked, digest);
    }

    /// Asks something whose answer is known.
    fn same(&mut self, cell: &'static str, part: &str, asked: &Value, right: &Value) {
        self.fill(cell, part, "equal", |row| {
            let found = row.reader.ask(asked)?;
            let is_equal = found == *right;
            Ok(if is_equal {
                "equal".to_owned()
            } else {
                format!("{found} ({right})")
            })
        });
    }

    /// Rows that a condition selects, and how many data files were opened for them.
    fn pruned(&mut self, cell: &'static str, store: &Path, condition: &Value, files: (usize, usize)) {
        let right = format!("{} of {}", files.0, files.1);
        let rows = self.expected.logs;
        let asked = json!({ "do": "opened", "table": "logs", "where": condition, "folder": store.join("iceberg") });
        self.fill(cell, "", &right, |row| {
            let found = row.reader.ask(&asked)?;
            let opened = format!("{} of {}", found[1], files.1);
            let is_all = found[0] == rows;
            Ok(if is_all {
                opened
            } else {
                format!("{found}, {rows} rows expected")
            })
        });
    }

    /// Which types its answers have that are not ours; told, not judged: the values are compared.
    fn types(&mut self) -> Result<String, Failure> {
        let columns = &self.expected.digests["messages_order"].0;
        let asked = json!({ "do": "types", "table": "messages_order", "columns": columns });
        Ok(self.reader.ask(&asked)?.to_string())
    }

    fn local(&mut self, mixer: &TestMixer) -> Result<(), Failure> {
        let version = self.reader.ask(&json!({ "do": "version" }))?;
        let version = version.as_str().unwrap_or_default().to_owned();
        self.cells.insert("version", version);
        if self.is_promised("tables") {
            self.tables("tables", "");
        }
        let expected = self.expected;
        let rows = expected.logs * expected.hours.len() as u64;
        for (table, right) in [("logs", rows), ("dead_letters", 0)] {
            self.same(
                "counts",
                table,
                &json!({ "do": "count", "table": table }),
                &right.into(),
            );
        }
        let (hour, logs) = (expected.hours[1], mixer.telemetry().join("logs"));
        let of_hour = logs.join(hour.to_string()[..13].replace(['-', 'T'], "/"));
        let files = (parquet_files(&of_hour)?, parquet_files(&logs)?);
        assert!(0 < files.0 && files.0 < files.1, "{files:?}");
        let store = mixer.path().join("data");
        self.pruned("by time", &store, &bounds_of(hour), files);
        self.pruned("by bounds", &store, &json!({ "entity": entity_of(hour) }), files);
        if self.is_promised("join") {
            self.same("join", "", &json!({ "do": "join" }), &expected.joined());
        }
        self.digests("types", "");
        self.travel("travel", "");
        let types = self.types()?;
        println!("{}: {types}", self.reader.name);
        Ok(())
    }

    fn bucket(&mut self) {
        self.tables("S3", "tables");
        self.digests("S3", "");
        self.travel("S3", "travel");
        let asked = json!({ "do": "count", "table": "logs", "where": bounds_of(self.expected.hours[1]) });
        self.same("S3", "count of an hour", &asked, &self.expected.logs.into());
    }
}

fn parquet_files(folder: &Path) -> Result<usize, Failure> {
    let is_data = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "parquet");
    Ok(files_below(folder)?.iter().filter(|path| is_data(path)).count())
}

#[test]
fn engines_have_the_rows_of_the_mixer_from_a_disk_and_from_a_bucket() -> Result<(), Failure> {
    let Some(engines) = engines() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let mixer = TestMixer::with(&KEYS, &[])?;
    let on_disk = StoredTables::of(&mixer, "", folder.path())?;
    let server = Runtime::new()?.block_on(TestS3::start())?;
    let keys = BucketKeys::new(server.url());
    let far = keys.mixer(&KEYS)?;
    let in_bucket = StoredTables::of(&far, "?durable=bucket", folder.path())?;
    let made = far.platform(&["token", "create", "lakehouse", "--role", "reader"])?;
    let with_token = CatalogAccess {
        endpoint: Some(server.url()),
        token: Some(made.out.trim().to_owned()),
    };
    let on_loopback = CatalogAccess::default();

    let (mut table, mut faults) = (vec![format!("| engine | {} |", COLUMNS.join(" | "))], Vec::new());
    table.push(format!("|{}", "---|".repeat(COLUMNS.len() + 1)));
    for name in &engines {
        let row = |expected, reader| EngineRow {
            reader,
            expected,
            cells: BTreeMap::new(),
            faults: Vec::new(),
        };
        let mut near = row(
            &on_disk,
            CatalogReader::open(name, &mixer, &on_loopback, folder.path())?,
        );
        near.local(&mixer)?;
        if near.is_promised("S3") {
            let mut other = row(&in_bucket, CatalogReader::open(name, &far, &with_token, folder.path())?);
            other.bucket();
            near.cells.append(&mut other.cells);
            near.faults.append(&mut other.faults);
        }
        let cells = COLUMNS.map(|column| near.cells.get(column).map_or("–", String::as_str));
        table.push(format!("| {name} | {} |", cells.join(" | ")));
        faults.append(&mut near.faults);
    }
    println!("{}", table.join("\n"));
    for (engine, cell, why) in NOT_PROMISED {
        println!("{engine}: {cell}: {why}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}
