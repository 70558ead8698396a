//! What release 0.1.0 left goes on under the present programs, in place: every row is there once, Racks are known, what waited is sent
//! once. The numbers of formats are those that the page says, since they decide whether a release can go back to the one before.
//!
//! # Not here
//!
//! The programs of that release, which are not in the repository: [`rollback`] needs their folder.

mod formats;
mod rollback;

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use harness::process::{append_to, run};
use harness::{Api, Failure, TestMixer, TestRack, binary, eventually};
use model::Timestamp;
use serde_json::{Map, Value, json};

use self::formats::{numbers_below, on_disk_as_the_page_says};
use crate::readme::project;

const SOON: Duration = Duration::from_secs(60);
/// What the archive says of itself: `tests/fixtures/README.md`.
const ARCHIVE: &str = "tests/fixtures/release-0.1.0.tar.gz";

/// So many rows each: lines of the file that the Rack follows, messages of it, and what the gears behind it made of them.
const DELIVERED: [&str; 4] = [
    "count(*) AS n, count(DISTINCT message) AS d FROM logs WHERE attributes->>'gear.id' = 'tail' AND message LIKE 'line % of the plant'",
    "count(*) AS n, count(DISTINCT raw_msg) AS d FROM messages WHERE src_gear_id = 'tail'",
    "count(*) AS n, count(DISTINCT line) AS d FROM messages_order",
    "count(*) AS n, count(DISTINCT message) AS d FROM logs WHERE attributes->>'gear.id' = 'sink' AND flux_id IS NOT NULL",
];

/// Runs `tar` on the archive.
fn tar(args: &[&str]) -> Result<String, Failure> {
    let archive = project().join(ARCHIVE).display().to_string();
    let done = run(
        Path::new("tar"),
        &[&["-zf", archive.as_str()], args].concat(),
        &project(),
        &[],
    )?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    Ok(done.out)
}

/// A file of the archive.
fn text_of(name: &str) -> Result<String, Failure> {
    tar(&["-xO", &format!("./{name}")])
}

/// What the programs of that release answered.
fn answers() -> Result<Value, Failure> {
    Ok(serde_json::from_str(&text_of("expected.json")?)?)
}

/// A folder of the archive, in a temporary one.
fn unpacked(name: &str) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    let into = folder.path().display().to_string();
    tar(&["-xp", "-C", &into, "--strip-components=2", &format!("./{name}")])?;
    Ok(folder)
}

fn row(mixer: &TestMixer, statement: &str) -> Result<Value, Failure> {
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": statement }))?;
    match answer.status {
        200 => Ok(answer.json["data"][0].clone()),
        _ => Err(format!("{statement}: {}", answer.text).into()),
    }
}

/// Each table has the rows of that time, with the values that they had.
fn keeps_its_rows(mixer: &TestMixer, answers: &Value) -> Result<(), Failure> {
    let tables = answers["tables"].as_array().ok_or("no tables")?;
    assert_eq!(tables.len(), 5);
    for table in tables {
        assert!(table["rows"].as_u64() > Some(0), "{table}");
        let found = row(mixer, table["statement"].as_str().ok_or("no statement")?)?;
        assert_eq!(
            (&found["n"], &found["digest"]),
            (&table["rows"], &table["digest"]),
            "{}",
            table["table"]
        );
    }
    Ok(())
}

/// These rows have the values that they had.
fn are_as_before(now: &[Map<String, Value>], before: &Value) {
    let before = before.as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(!before.is_empty());
    assert_eq!(now.len(), before.len(), "{now:?}");
    for (now, before) in now.iter().zip(before) {
        for (key, value) in before.as_object().into_iter().flatten() {
            assert_eq!(now.get(key), Some(value), "{key}: {now:?}");
        }
    }
}

/// The decisions of the audit log up to an entry, and those behind it.
fn audit(mixer: &TestMixer, newest: u64) -> Result<[Vec<Map<String, Value>>; 2], Failure> {
    let mut entries = mixer.api.rows("/api/v1/audit?limit=1000")?;
    entries.retain(|entry| entry["chain"].is_string());
    let (old, new) = entries
        .into_iter()
        .partition(|entry| entry["id"].as_u64() <= Some(newest));
    Ok([old, new])
}

/// Ends a Mixer in order; its store has no damage then.
fn ends_well(mixer: &mut TestMixer) -> Result<(), Failure> {
    ends_well_for(mixer, &binary("platform-mixer")?)
}

/// The same by the judgement of this program.
fn ends_well_for(mixer: &mut TestMixer, program: &Path) -> Result<(), Failure> {
    assert!(mixer.process()?.terminate(SOON)?.success());
    let checked = run(program, &["check", "--deep"], mixer.path(), &[])?;
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    assert!(checked.out.contains("no damage"), "{}", checked.out);
    Ok(())
}

/// Whether the catalogue for other engines has all sealed files of a table, and counts its other rows.
fn is_published(table: &Value, stored: &Value) -> bool {
    let of = |value: &Value, key: &str| value[key].as_u64();
    let sealed = of(stored, "files")
        .zip(of(stored, "open_files"))
        .map(|(all, open)| all - open);
    let rows = of(table, "rows")
        .zip(of(table, "waiting_rows"))
        .map(|(rows, waiting)| rows + waiting);
    of(table, "files") == sealed && rows == of(stored, "rows") && rows.is_some()
}

/// The tables of that catalogue, once it has all of these files.
fn all_published(mixer: &TestMixer) -> Result<Vec<Value>, Failure> {
    eventually("all sealed files in the catalogue", SOON, || {
        let stored = mixer.api.get("/api/v1/storage").ok()?.json;
        let tables = mixer.api.get("/api/v1/catalog").ok()?.json["data"]["tables"]
            .as_array()?
            .clone();
        // A spec's table is a part of the messages, which are stored as one.
        let is_whole = |table: &Value| match table["table"].as_str() {
            Some("messages_order") => true,
            name => is_published(table, &stored["data"]["tables"][name.unwrap_or_default()]),
        };
        (tables.len() >= 5 && tables.iter().all(is_whole)).then_some(tables)
    })
}

#[test]
fn a_store_of_release_0_1_0_has_every_row_once_and_knows_racks_letters_and_tokens() -> Result<(), Failure> {
    let answers = answers()?;
    let folder = unpacked("mixer")?;
    let before = numbers_below(folder.path())?;
    let often = [("PLATFORM_OBSERVABILITY_EMBEDDED_ICEBERG_INTERVAL", "50ms")];
    let mut mixer = TestMixer::take_over(folder, &often)?;
    keeps_its_rows(&mixer, &answers)?;
    for (list, path) in [
        ("letters", "/api/v1/dlq?state=all"),
        ("racks", "/api/v1/racks"),
        ("scenarios", "/api/v1/scenarios"),
        ("invites", "/api/v1/invites"),
    ] {
        are_as_before(&mixer.api.rows(path)?, &answers[list]);
    }
    let newest = answers["audit"][0]["id"].as_u64().ok_or("no entries")?;
    are_as_before(&audit(&mixer, newest)?[0], &answers["audit"]);
    let verified = mixer.platform(&["audit", "verify"])?;
    assert_eq!(verified.code, Some(0), "{}{}", verified.out, verified.err);

    let with = |name: &str| {
        Api::guarded(
            &mixer.api.base,
            answers["tokens"][name].as_str().unwrap_or_default(),
            None,
        )
    };
    let lines = |key| [("content-type", "application/x-ndjson"), ("idempotency-key", key)];
    let logs = "/api/v1/ingest/logs";
    let now = Timestamp::from(std::time::SystemTime::now());
    let new = json!({ "ts": now.to_string(), "level": "info", "message": "stored by the next release" }).to_string();
    for (name, reads, writes) in [("reader", 200, 403), ("revoked", 401, 401), ("sender", 200, 200)] {
        let read = with(name)?.get("/api/v1/telemetry/logs?limit=1")?;
        let written = with(name)?.send(logs, &lines("new"), new.as_bytes())?;
        assert_eq!(
            (read.status, written.status),
            (reads, writes),
            "{name}: {}",
            written.text
        );
    }
    let again = with("sender")?.send(logs, &lines("logs"), text_of("sent/logs.ndjson")?.as_bytes())?;
    assert_eq!(
        (again.status, &again.json["data"]["duplicate"]),
        (200, &json!(true)),
        "{}",
        again.text
    );
    keeps_its_rows(&mixer, &answers)?;
    let stored = "SELECT count(*) AS n FROM logs WHERE message = 'stored by the next release'";
    assert_eq!(row(&mixer, stored)?["n"], 1);

    let published = all_published(&mixer)?;
    // Those that were sealed by that release.
    for (name, least) in [("logs", 150), ("traces", 50), ("metrics", 50)] {
        let table = published.iter().find(|table| table["table"] == name);
        assert!(
            table.and_then(|table| table["rows"].as_u64()) >= Some(least),
            "{published:?}"
        );
    }
    ends_well(&mut mixer)?;
    on_disk_as_the_page_says(&before, &numbers_below(mixer.path())?)
}

/// Waits until so many lines are there, and so many came through all gears; each once.
fn delivers(mixer: &TestMixer, lines: u64, through: u64) -> Result<(), Failure> {
    let wanted = [lines, lines, through, through];
    let mut found = Vec::new();
    eventually("what was sent", SOON, || {
        found.clear();
        for statement in DELIVERED {
            found.push(row(mixer, &format!("SELECT {statement}")).ok()?);
        }
        let all_of = |(row, wanted): (&Value, u64)| row["n"] == wanted && row["d"] == wanted;
        found.iter().zip(wanted).all(all_of).then_some(())
    })
    .map_err(|error| format!("{error}: {wanted:?}, there are {found:?}").into())
}

/// Writes lines into the file that a Rack follows.
fn write_lines(rack: &TestRack, numbers: Range<u32>) -> Result<(), Failure> {
    let lines: String = numbers.map(|n| format!("line {n} of the plant\n")).collect();
    Ok(append_to(&rack.path().join("data/files/app.log"))?.write_all(lines.as_bytes())?)
}

/// The scenario of that release with a gear that can handle every line.
fn mend(mixer: &TestMixer) -> Result<(), Failure> {
    let old = text_of("plant-2.yaml")?;
    let new = old
        .replace("'2'", "'3'")
        .replace("int(text.split(' ')[1])", "size(text)");
    assert_ne!(old, new);
    let stored = mixer.api.send(
        "/api/v1/scenarios",
        &[("content-type", "application/yaml")],
        new.as_bytes(),
    )?;
    assert_eq!(stored.json["data"]["reference"], "plant:3", "{}", stored.text);
    let done = mixer
        .api
        .post("/api/v1/scenarios/plant:3/activate?wait=60s", &json!({}))?;
    assert_eq!(done.json["data"]["converged"], true, "{}", done.text);
    Ok(())
}

#[test]
fn racks_of_release_0_1_0_need_no_admission_and_send_what_waited_once() -> Result<(), Failure> {
    let answers = answers()?;
    let mut mixer = TestMixer::take_over(unpacked("mixer")?, &[])?;
    delivers(&mixer, 100, 95)?;
    let mut racks = Vec::new();
    for name in ["rack-a", "rack-b"] {
        let folder = unpacked(name)?;
        let before = numbers_below(folder.path())?;
        let mut rack = TestRack::take_over(name, folder, &mixer.bus_url);
        rack.start()?;
        racks.push((rack, before));
    }
    // Forty lines waited in the spool and the outbox; five are letters.
    delivers(&mixer, 140, 135)?;
    mend(&mixer)?;
    let replay = json!({ "filter": { "gear": "parse" }, "wait": "30s" });
    let replayed = mixer.api.post("/api/v1/dlq/replay", &replay)?;
    assert_eq!(
        (&replayed.json["data"]["changed"], &replayed.json["data"]["replayed"]),
        (&json!(4), &json!(4)),
        "{}",
        replayed.text
    );
    // All but the letter that was dropped.
    delivers(&mixer, 140, 139)?;
    write_lines(&racks[0].0, 140..150)?;
    delivers(&mixer, 150, 149)?;
    keeps_its_rows(&mixer, &answers)?;

    are_as_before(&mixer.api.rows("/api/v1/racks")?, &answers["racks"]);
    let newest = answers["audit"][0]["id"].as_u64().ok_or("no entries")?;
    let [_, new] = audit(&mixer, newest)?;
    let kinds: BTreeSet<_> = new.iter().filter_map(|entry| entry["kind"].as_str()).collect();
    assert!(kinds.contains("letters_replayed"), "{kinds:?}");
    for kind in ["rack_pending", "rack_approved", "rack_adopted"] {
        assert!(!kinds.contains(kind), "{kinds:?}");
    }
    for (rack, before) in &mut racks {
        assert!(rack.process()?.terminate(SOON)?.success());
        on_disk_as_the_page_says(before, &numbers_below(rack.path())?)?;
    }
    ends_well(&mut mixer)
}
