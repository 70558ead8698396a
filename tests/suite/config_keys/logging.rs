//! `[logging]` of both programs.

use std::io::Write;
use std::path::Path;

use harness::{Failure, TestMixer, TestRack, eventually, process};

use super::{SOON, names_in, quoted, scenario, text_of};

/// A folder with a log file that has grown to 1.5 MiB and three older ones.
fn grown(stem: &str) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join(format!("{stem}.log")), vec![b'\n'; 3 << 19])?;
    for number in 1..=3 {
        std::fs::write(folder.path().join(format!("{stem}-{number:06}.log")), "old\n")?;
    }
    Ok(folder)
}

/// The log was rotated at 1 MiB, two backups are left, none is compressed.
fn was_rotated(folder: &Path, stem: &str) -> Result<(), Failure> {
    let wanted = [
        format!("{stem}-000003.log"),
        format!("{stem}-000004.log"),
        format!("{stem}.log"),
    ];
    eventually("the rotated log files", SOON, || {
        (names_in(folder) == wanted.clone().into()).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}", names_in(folder)).into())
}

#[test]
fn log_files_lie_grow_and_are_kept_as_the_keys_say() -> Result<(), Failure> {
    let keys = |file: &str| {
        [
            ("logging.filename", file.to_owned()),
            ("logging.max_size_mb", "1".to_owned()),
            ("logging.max_backups", "2".to_owned()),
            ("logging.compress", "false".to_owned()),
        ]
    };
    let logs = grown("platform-rack")?;
    let of_rack = keys(&quoted(&logs.path().join("any.log")));
    let of_rack = of_rack.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut rack = TestRack::with("rack-a", "nats://127.0.0.1:9", &of_rack, &[])?;
    rack.spawn()?;
    was_rotated(logs.path(), "platform-rack")?;
    rack.process()?.terminate(SOON)?;
    was_rotated(logs.path(), "platform-rack")?;

    let logs = grown("own")?;
    let of_mixer = keys(&quoted(&logs.path().join("own.log")));
    let of_mixer = of_mixer.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut mixer = TestMixer::with(&of_mixer, &[])?;
    was_rotated(logs.path(), "own")?;
    mixer.process()?.terminate(SOON)?;
    was_rotated(logs.path(), "own")
}

#[test]
fn by_default_seven_backups_are_kept_compressed() -> Result<(), Failure> {
    let logs = grown("platform-rack")?;
    let file = quoted(&logs.path().join("any.log"));
    let keys = [("logging.filename", file.as_str()), ("logging.max_size_mb", "1")];
    let mut rack = TestRack::with("rack-a", "nats://127.0.0.1:9", &keys, &[])?;
    rack.spawn()?;
    eventually("four compressed backups", SOON, || {
        let names = names_in(logs.path());
        let packed = names.iter().filter(|name| name.ends_with(".log.gz")).count();
        (packed == 4 && names.len() == 5).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}", names_in(logs.path())).into())
}

#[test]
fn the_level_and_its_overrides_decide_what_is_logged() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let (nobody, quick) = ("nats://127.0.0.1:9", ("snake.connect_timeout", "\"100ms\""));
    let logged = |bus: &str, keys: &[(&str, &str)], envs: &[(&str, &str)], wanted: &str| {
        let keys: Vec<_> = keys.iter().copied().chain([quick]).collect();
        let mut rack = TestRack::with("rack-a", bus, &keys, envs)?;
        rack.spawn()?;
        eventually(wanted, SOON, || rack.log().contains(wanted).then(|| rack.log()))
    };
    let usual = logged(nobody, &[], &[], " WARN ")?;
    assert!(usual.contains(" INFO ") && !usual.contains(" DEBUG "), "{usual}");
    let quiet = logged(nobody, &[("logging.level", "\"warn\"")], &[], " WARN ")?;
    assert!(!quiet.contains(" INFO "), "{quiet}");
    // The overrides win over the level.
    let level = ("logging.level", "\"error\"");
    logged(&mixer.bus_url, &[level, ("logging.trace", "true")], &[], " TRACE ")?;
    logged(&mixer.bus_url, &[level], &[("PLATFORM_TRACE", "true")], " TRACE ")?;
    let debug = logged(nobody, &[level, ("logging.debug", "true")], &[], " DEBUG ")?;
    assert!(!debug.contains(" TRACE "), "{debug}");
    logged(nobody, &[level], &[("PLATFORM_DEBUG", "true")], " DEBUG ")?;
    Ok(())
}

#[test]
fn a_gear_says_no_more_than_rate_and_burst_allow_until_throttling_is_switched_off() -> Result<(), Failure> {
    let logs = harness::gear_files()?;
    let file = logs.path().join("app.log");
    let (startup, _folder) = scenario(&crate::first_light::tail_scenario(&file))?;
    let mixer = TestMixer::with(&[("mixer.startup_scenario", &startup)], &[])?;
    let keys = [("logging.throttling.rate", "0.001"), ("logging.throttling.burst", "1")];
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &keys, &[])?;
    rack.start()?;
    // The gear says that it runs, that its file is missing, then that it follows it; then it sends the line.
    eventually("the first line of the gear", SOON, || {
        rack.log().contains("tail").then_some(())
    })?;
    writeln!(process::append_to(&file)?, "a line")?;
    let arrives = |text: &str| {
        eventually("the line in REST", SOON, || {
            let rows = mixer
                .api
                .rows(&format!("/api/v1/telemetry/logs?gear_id=tail&q={text}"))
                .ok()?;
            (rows.len() == 1).then_some(())
        })
    };
    arrives("a%20line")?;
    assert!(
        !rack.log().contains("following "),
        "burst or rate is not obeyed: {}",
        rack.log()
    );

    let toml = rack.path().join("platform.toml");
    std::fs::write(
        &toml,
        format!(
            "{}logging.throttling.enabled = false\nrack.max_hops = 9\n",
            text_of(&toml)
        ),
    )?;
    let restart = eventually("that the change is noticed", SOON, || {
        let log = rack.log();
        log.lines()
            .find(|line| line.contains("needs a restart"))
            .map(str::to_owned)
    })?;
    assert!(
        restart.contains("rack.max_hops") && !restart.contains("throttling"),
        "{restart}"
    );
    let mut attempt = 0;
    eventually("that the gear speaks again", SOON, || {
        attempt += 1;
        let mut app = process::append_to(&file).ok()?;
        writeln!(app, "more-{attempt}, longer than what follows").ok()?;
        arrives(&format!("more-{attempt},")).ok()?;
        std::fs::write(&file, format!("anew-{attempt}.\n")).ok()?;
        arrives(&format!("anew-{attempt}.")).ok()?;
        rack.log().contains("was truncated or rewritten").then_some(())
    })?;
    Ok(())
}
