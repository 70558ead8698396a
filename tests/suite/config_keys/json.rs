//! `observability.embedded.storage.format = "json"`: data files of lines, as DuckDB and the API see them.

use std::path::Path;
use std::time::Duration;

use harness::{Failure, TestMixer, duckdb, eventually};
use model::Timestamp;
use serde_json::{Value, json};

use super::SOON;

const BATCHES: u64 = 12;
const ROWS: u64 = 40;

/// What DuckDB says of all lines of a table.
fn of_lines(telemetry: &Path, what: &str) -> Result<String, Failure> {
    let files = telemetry.join("logs/**/*.json*");
    let sql = format!(
        "select {what} from read_json('{}', format = 'newline_delimited')",
        files.display()
    );
    duckdb::scalar(&sql, telemetry)
}

#[test]
fn an_outside_reader_of_lines_finds_what_the_api_says() -> Result<(), Failure> {
    for (compression, ending) in [("zstd", ".json.zst"), ("none", ".json")] {
        let mut mixer = TestMixer::with(
            &[
                ("observability.embedded.flush_interval", "\"50ms\""),
                ("observability.embedded.storage.format", "\"json\""),
                (
                    "observability.embedded.storage.compression",
                    &format!("\"{compression}\""),
                ),
                ("observability.embedded.storage.segment_size_mb", "1"),
            ],
            &[],
        )?;
        let bus = mixer.bus()?;
        let telemetry = mixer.telemetry();
        let mut last = 0;
        for batch in 0..BATCHES {
            let now = Timestamp::from(std::time::SystemTime::now());
            let rows: Vec<Value> = (0..ROWS)
                .map(|row| json!({ "ts": now.to_string(), "level": "warn", "message": format!("{batch}/{row}"), "attributes": { "row": row } }))
                .collect();
            bus.send("logs", "script", &Value::from(rows))?;
            // Each look finds whole lines, none twice, and never fewer than the one before.
            eventually("the batch in DuckDB", SOON, || {
                let found = of_lines(&telemetry, "count(*) || ' ' || count(distinct message)").ok()?;
                let (all, different) = found.trim_matches('"').split_once(' ')?;
                assert_eq!(all, different, "a line twice");
                let all: u64 = all.parse().ok()?;
                assert!(all >= last, "{all} lines after {last}");
                last = all;
                (all == (batch + 1) * ROWS).then_some(())
            })?;
        }
        let rows = mixer.api.all_rows("/api/v1/telemetry/logs?since=1h")?;
        assert_eq!(rows.len() as u64, BATCHES * ROWS);
        let ours: u64 = rows.iter().filter_map(|row| row["attributes"]["row"].as_u64()).sum();
        let theirs = of_lines(&telemetry, "sum(attributes.row)::bigint")?;
        assert_eq!(theirs.parse::<u64>()?, ours);
        assert_eq!(of_lines(&telemetry, "count(distinct entity_id)")?, "1");
        let names = duckdb::scalar(
            &format!(
                "select count(*) from glob('{}/logs/**') where not file like '%{ending}'",
                telemetry.display()
            ),
            &telemetry,
        )?;
        assert_eq!(names, "0", "every file ends in {ending}");

        mixer.kill9()?;
        mixer.restart()?;
        let again = mixer.api.all_rows("/api/v1/telemetry/logs?since=1h")?;
        assert_eq!(again, rows, "{compression}: after kill -9");
    }
    Ok(())
}

#[test]
fn a_business_message_is_archived_once_in_its_own_tree() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("observability.embedded.flush_interval", "\"50ms\"")], &[])?;
    let bus = mixer.bus()?;
    let now = Timestamp::from(std::time::SystemTime::now());
    for n in 0..3u8 {
        let message = model::message::Message {
            id: model::MessageId::at(now, [n; 10]),
            ts: now,
            raw: vec![n; 100],
            data: serde_json::Value::Null,
            hops: 1,
            meta: model::Attributes::new().with("msg.type", "order"),
            parent: None,
            flux_id: model::FluxId::at(now, [n; 10]),
            sampled: true,
            span_id: "b7ad6b7169203331".parse()?,
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse()?,
            trace_state: None,
        };
        bus.publish("flux.msg.rack-a.parse.out", message.to_cbor()?)?;
    }
    bus.publish("flux.msg.rack-a.parse.out", b"garbage".to_vec())?;
    let root = mixer.path().join("data/messages");
    let sql = format!(
        "select count(*) || ' ' || count(distinct flux_id) || ' ' || any_value(msg_type) || ' ' || min(octet_length(raw_msg) > 100) \
         from read_parquet('{}/generic/**/fluxmsg_*.parquet')",
        root.display()
    );
    eventually("the messages in DuckDB", Duration::from_secs(20), || {
        (duckdb::scalar(&sql, mixer.path()).ok()? == "3 3 order true").then_some(())
    })?;
    let dead = eventually("the dead letter", SOON, || {
        mixer
            .api
            .rows("/api/v1/telemetry/dead_letters")
            .ok()
            .filter(|rows| !rows.is_empty())
    })?;
    assert_eq!(dead[0]["subject"], "flux.msg.rack-a.parse.out");
    let storage = mixer.api.get("/api/v1/storage")?;
    assert_eq!(storage.json["data"]["tables"]["messages"]["rows"], 3);
    Ok(())
}
