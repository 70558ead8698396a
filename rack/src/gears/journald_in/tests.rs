//! What entries become, how the program is called, and who may have it run.

#![allow(clippy::unwrap_used, reason = "tests")]

use chassis::config::schema_check::load_from;
use model::gear_manifest;
use serde_json::{Value, json};

use super::*;
use crate::config::{RackConfig, SCHEMA};
use crate::gears::ProgramAllowList;
use crate::gears::testing::{Bench, push};

fn config(value: &Value) -> JournaldInConfig {
    gear_manifest::config(value.as_object().unwrap()).unwrap()
}

#[test]
fn an_entry_is_a_record_of_its_time_and_priority() {
    let entry = JournalEntry {
        cursor: "c".to_owned(),
        micros: Some(1_700_000_000_000_001),
        message: b"down".to_vec(),
        is_truncated: true,
        priority: Some(3),
        host: Some("h".to_owned()),
        identifier: Some("app".to_owned()),
        unit: Some("app.service".to_owned()),
        pid: Some(7),
    };
    let now = Timestamp::from_micros(5);
    let record = row(entry, now);
    assert_eq!(
        (record.ts, record.level, record.message.as_str()),
        (Timestamp::from_micros(1_700_000_000_000_001), Level::Error, "down")
    );
    let facts = json!({
        "host.name": "h", "process.pid": 7, "syslog.identifier": "app", "syslog.priority": 3, "systemd.unit": "app.service", "truncated": true,
    });
    assert_eq!(json!(record.attributes.as_map()), facts);
    let levels = [None, Some(0), Some(4), Some(5), Some(6), Some(7)].map(|priority| {
        let entry = JournalEntry {
            priority,
            message: vec![0xff],
            ..JournalEntry::default()
        };
        let record = row(entry, now);
        assert_eq!(
            (record.ts, record.attributes.get("invalid_utf8")),
            (now, Some(&json!(true)))
        );
        record.level
    });
    let wanted = [
        Level::Info,
        Level::Error,
        Level::Warn,
        Level::Info,
        Level::Info,
        Level::Debug,
    ];
    assert_eq!(levels, wanted);
}

#[test]
fn a_gear_goes_on_behind_its_cursor_and_begins_where_it_is_told() {
    let called = |value: Value, place| arguments(&config(&value), place).split_off(5);
    let now = time_place(Timestamp::from_micros(1_700_000_000_000_042));
    assert_eq!(called(json!({}), Some(&*now)), ["--since=@1700000000.000042"]);
    assert_eq!(called(json!({ "start": "all" }), None), Vec::<String>::new());
    assert_eq!(
        called(json!({ "units": ["a.service", "--output=cat"] }), Some("s=1;i=2")),
        ["--cursor=s=1;i=2", "--unit=a.service", "--unit=--output=cat"]
    );
}

#[test]
fn the_entry_of_the_cursor_is_passed_over_and_one_in_its_place_is_not() {
    let entry = |cursor: &str| JournalEntry {
        cursor: cursor.to_owned(),
        ..JournalEntry::default()
    };
    let left = |reads: &[&[&str]]| -> Vec<String> {
        let mut place = Some("b".to_owned());
        let reads = reads.iter().flat_map(|read| {
            let mut entries: Vec<_> = read.iter().map(|cursor| entry(cursor)).collect();
            remove_recorded(&mut entries, &mut place);
            entries
        });
        reads.map(|entry| entry.cursor).collect()
    };
    assert_eq!(left(&[&[], &["b", "c"], &["d"]]), ["c", "d"]);
    assert_eq!(left(&[&["c"], &["b"]]), ["c", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_that_records_nothing_follows_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open_with(folder.path(), false);
    let mut runtime = bench.runtime();
    let gear = "\n  - { name: journal, type: journald_in, deploy: rack-a }";
    let error = runtime.apply(&push("h", gear, "")).await.error.unwrap();
    assert!(error.contains("observability.enabled"), "{error}");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_is_the_operators_to_allow_apart_from_programs_of_exec() {
    let journal = "\n  - { name: journal, type: journald_in, deploy: rack-a }";
    let command = json!([PROGRAM, "--vacuum-size=1"]);
    let exec = format!("\n  - {{ name: run, type: exec, deploy: rack-a, config: {{ command: {command} }} }}");
    for (file, gear, fix) in [
        ("", journal, Some("gears.journald.allow")),
        (
            "[gears.exec]\nallow = [\"/usr/bin/journalctl\"]\n",
            journal,
            Some("gears.journald.allow"),
        ),
        (
            "[gears.journald]\nallow = true\n",
            exec.as_str(),
            Some("gears.exec.allow"),
        ),
        ("[gears.journald]\nallow = true\n", journal, None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(folder.path());
        let settings = load_from(&SCHEMA, file, &[]).unwrap();
        let config = RackConfig::of(&settings).unwrap();
        bench.programs = ProgramAllowList::new(&config.gears_exec.allow).with_journal(config.gears_journald.allow);
        let mut runtime = bench.runtime();
        let error = runtime.apply(&push("h", gear, "")).await.error;
        match fix {
            None => assert_eq!(error, None),
            Some(fix) => {
                let error = error.unwrap();
                assert!(error.contains(PROGRAM) && error.contains(fix), "{error}");
            }
        }
        runtime.close().await;
        bench.close().await;
    }
}
