//! Back to the release before, in place: its programs open what the present ones have written, and the present ones go on after them.
//!
//! That release is built from other sources, so this is no part of the suite: `make rollback-test`, with the folder of its `platform` and
//! `platform-mixer` in `PLATFORM_TEST_OLD`.

use std::path::PathBuf;
use std::time::SystemTime;

use harness::{Failure, TestMixer, TestRack, binary, free_port};
use model::Timestamp;
use serde_json::json;

use super::{
    SOON, all_published, answers, are_as_before, delivers, ends_well, ends_well_for, keeps_its_rows, row, unpacked,
    write_lines,
};

const OLD: &str = "PLATFORM_TEST_OLD";

/// The Mixer's and the Rack's program of the release before.
fn old_programs() -> Result<[PathBuf; 2], Failure> {
    let named = std::env::var_os(OLD).map(PathBuf::from);
    let folder =
        named.ok_or_else(|| format!("{OLD} does not name the folder with the programs of the release before"))?;
    let programs = ["platform-mixer", "platform"].map(|name| folder.join(name));
    match programs
        .iter()
        .find(|program| !(program.is_absolute() && program.is_file()))
    {
        Some(program) => Err(format!("{OLD}: no absolute path of a program: {}", program.display()).into()),
        None => Ok(programs),
    }
}

/// Sends a batch over HTTP. Whether the Mixer had it already.
fn is_duplicate(mixer: &TestMixer, key: &str, body: &str) -> Result<bool, Failure> {
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", key)];
    let answer = mixer.api.send("/api/v1/ingest/logs", &headers, body.as_bytes())?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    Ok(answer.json["data"]["duplicate"] == true)
}

#[test]
fn the_release_before_goes_on_with_what_this_one_has_written_and_this_one_after_it() -> Result<(), Failure> {
    let old = old_programs()?;
    let present = [binary("platform-mixer")?, binary("platform")?];
    let answers = answers()?;
    let (api, bus) = (free_port()?.to_string(), free_port()?.to_string());
    let envs = [
        ("PLATFORM_API_PORT", api.as_str()),
        ("PLATFORM_SNAKE_PORT", bus.as_str()),
        ("PLATFORM_OBSERVABILITY_EMBEDDED_ICEBERG_INTERVAL", "50ms"),
    ];
    let mut mixer = TestMixer::take_over(unpacked("mixer")?, &envs)?;
    let mut racks = Vec::new();
    for name in ["rack-a", "rack-b"] {
        let mut rack = TestRack::take_over(name, unpacked(name)?, &mixer.bus_url);
        rack.start()?;
        racks.push(rack);
    }
    delivers(&mixer, 140, 135)?;

    let mut lines = 140;
    let mut batches = Vec::new();
    for (turn, [mixer_program, rack_program]) in [&present, &old, &present].into_iter().enumerate() {
        if turn > 0 {
            for rack in &mut racks {
                assert!(rack.process()?.terminate(SOON)?.success());
            }
            // By the release that goes on.
            ends_well_for(&mut mixer, mixer_program)?;
            mixer.restart_as(mixer_program)?;
            for rack in &mut racks {
                rack.start_as(rack_program)?;
            }
        }
        write_lines(&racks[0], lines..lines + 10)?;
        lines += 10;
        delivers(&mixer, lines.into(), (lines - 5).into())?;
        let now = Timestamp::from(SystemTime::now()).to_string();
        let new = json!({ "ts": now, "level": "info", "message": format!("sent in turn {turn}") });
        batches.push((format!("turn-{turn}"), new.to_string()));
        // A batch is new once, whichever release got it.
        for (sent, (key, body)) in batches.iter().enumerate() {
            assert_eq!(is_duplicate(&mixer, key, body)?, sent < turn, "turn {turn}: {key}");
        }
        let all = json!(batches.len());
        let counted = "count(*) AS n, count(DISTINCT message) AS d FROM logs WHERE message LIKE 'sent in turn %'";
        let found = row(&mixer, &format!("SELECT {counted}"))?;
        assert_eq!((&found["n"], &found["d"]), (&all, &all), "turn {turn}");
        keeps_its_rows(&mixer, &answers)?;
    }

    are_as_before(&mixer.api.rows("/api/v1/racks")?, &answers["racks"]);
    all_published(&mixer)?;
    for rack in &mut racks {
        assert!(rack.process()?.terminate(SOON)?.success());
    }
    ends_well(&mut mixer)
}
