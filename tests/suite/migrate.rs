//! Files of v0.4.4 become current ones, with nothing lost and every change told.

use harness::{Failure, binary, process};

/// A Mixer's file with every key that the specification shows for v0.4.4 and every difference to today.
const MIXER: &str = r#"# the plant's control plane
[Logging]
level = "warn"
filename = "logs/mixer.log"

[mixer]
machine_id = 1
mixer_name = "mixer-07"
startup_scenario = "line:3"

[enrollment]
auto_adopt = true
push_delay = "2s"

[ingest]
flush_interval = "3s"
buffer_size = 2048

[api]
port = 8091

[store]
dir = "./state"
database_file = "platform.duckdb"
cluster_key_file = "cluster.key"

[snake]
port = 4333
url = "nats://plant:4333"
cluster_name = "plant" # what the leaf nodes know
store_dir = "data/js"
stream_name = "flux"
stream_subjects = ["flux.msg.>", "flux.gear.>", "flux.telemetry.>"]
business_stream_max_age = "720h"
telemetry_stream_max_age = "24h"
durable = false
"#;

const RACK: &str = r#"[rack]
name = "press-7"
machine_id = 12
[rack.bus]
url = "nats://plant:4333"
domain = "plant" # the same as the Mixer's
"#;

/// Migrates a file, has the program read the result, and gives the notes and the merged configuration.
fn migrated(program: &str, file: &str, old: &str) -> Result<(String, String, String), Failure> {
    let folder = tempfile::tempdir()?;
    let program = binary(program)?;
    let before = folder.path().join("old.toml");
    std::fs::write(&before, old)?;
    let refused = process::run(&program, &["config", "show", "-c", "old.toml"], folder.path(), &[])?;
    assert_eq!(refused.code, Some(78), "{}", refused.err);
    let done = process::run(&program, &["config", "migrate", "old.toml"], folder.path(), &[])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(std::fs::read_to_string(before)?, old, "the file itself is not touched");
    std::fs::write(folder.path().join(file), &done.out)?;
    let shown = process::run(&program, &["config", "show", "--origin"], folder.path(), &[])?;
    assert_eq!(shown.code, Some(0), "{}\n{}", shown.err, done.out);
    Ok((done.out, done.err, shown.out))
}

#[test]
fn a_mixer_file_of_v0_4_4_becomes_one_that_the_mixer_reads_and_that_means_the_same() -> Result<(), Failure> {
    let (text, notes, shown) = migrated("platform-mixer", "platform-mixer.toml", MIXER)?;
    assert!(
        text.contains("# the plant's control plane") && text.contains("# what the leaf nodes know"),
        "{text}"
    );
    for gone in ["machine_id", "mixer_name", "cluster_name"] {
        assert!(!text.contains(gone), "{gone}:\n{text}");
    }
    for note in [
        "mixer.mixer_name is now base.name",
        "snake.cluster_name is now snake.domain",
        "mixer.machine_id dropped",
        "snake.stream_subjects dropped",
    ] {
        assert!(notes.contains(&format!("platform-mixer: {note}")), "{note}:\n{notes}");
    }
    assert!(!notes.contains("left to do"), "{notes}");
    for value in [
        "\"mixer-07\"",
        "\"plant\"",
        "\"line:3\"",
        "\"3s\"",
        "2048",
        "8091",
        "\"./state\"",
        "\"flux\"",
    ] {
        let line = shown.lines().find(|line| line.contains(value));
        let line = line.unwrap_or_else(|| panic!("{value} is missing in:\n{shown}"));
        assert!(line.contains("platform-mixer.toml:"), "{line}");
    }
    Ok(())
}

#[test]
fn a_rack_file_of_v0_4_4_becomes_one_that_the_rack_reads_and_that_means_the_same() -> Result<(), Failure> {
    let (text, notes, shown) = migrated("platform", "platform.toml", RACK)?;
    assert!(
        text.contains("# the same as the Mixer's") && !text.contains("machine_id"),
        "{text}"
    );
    assert!(notes.contains("platform: rack.bus.url is now snake.url"), "{notes}");
    assert!(
        shown.contains("\"press-7\"") && shown.contains("nats://plant:4333"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn what_cannot_be_migrated_is_named() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("bad.toml"), "[mixer]\nname = \n")?;
    for program in ["platform", "platform-mixer"] {
        let program = binary(program)?;
        let done = process::run(&program, &["config", "migrate", "bad.toml"], folder.path(), &[])?;
        assert_eq!(done.code, Some(78), "{}", done.err);
        assert!(done.err.contains("bad.toml:2") && done.out.is_empty(), "{}", done.err);
        let done = process::run(&program, &["config", "migrate", "none.toml"], folder.path(), &[])?;
        assert_eq!(done.code, Some(74), "{}", done.err);
        assert!(done.err.contains("none.toml"), "{}", done.err);
    }
    Ok(())
}
