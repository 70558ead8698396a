//! `platform doctor`: what it finds, what helps, and how it ends.

use std::os::unix::fs::PermissionsExt;

use harness::process::{Finished, run};
use harness::{Failure, TestMixer, TestRack, binary};
use serde_json::Value;

use super::{Desk, SOON, json_rows};

impl Desk {
    /// Asks for the rows, with more environment variables.
    fn doctor(&self, envs: &[(&str, &str)]) -> Result<(Finished, Vec<Value>), Failure> {
        let usual = [
            ("PLATFORM_API_URL", self.mixer.api.base.as_str()),
            ("PLATFORM_SNAKE_URL", self.mixer.bus_url.as_str()),
        ];
        let rack = self.mixer.path().join("a-rack");
        std::fs::create_dir_all(&rack)?;
        let envs: Vec<_> = usual.iter().chain(envs).copied().collect();
        let done = run(&binary("platform")?, &["doctor", "-o", "json"], &rack, &envs)?;
        let rows = json_rows(&done.out)?;
        Ok((done, rows))
    }
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn states(rows: &[Value]) -> Vec<(&str, &str)> {
    rows.iter()
        .map(|row| (text(row, "check"), text(row, "state")))
        .collect()
}

fn check<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["check"] == name).unwrap_or(&Value::Null)
}

#[test]
fn a_rack_that_has_what_it_needs_is_well_and_nothing_is_changed() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let (done, rows) = desk.doctor(&[])?;
    let all = [
        "config",
        "api",
        "clock",
        "version",
        "disk",
        "bus",
        "secrets",
        "admission",
    ];
    assert_eq!(states(&rows), all.map(|name| (name, "ok")), "{}", done.out);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    let left = std::fs::read_dir(desk.mixer.path().join("a-rack"))?.count();
    assert_eq!(left, 0, "no folder, no log, no state");
    Ok(())
}

#[test]
fn a_mixer_that_is_well_is_said_to_be_and_one_that_is_not_there_has_skipped_checks() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let rows = |desk: &Desk| json_rows(&desk.answer(&["doctor", "--mixer", "-o", "json"])?);
    let all = [
        "api", "clock", "version", "storage", "racks", "scenario", "wires", "letters",
    ];
    let well = rows(&desk)?;
    assert_eq!(states(&well), all.map(|name| (name, "ok")), "{well:?}");
    let ready = json_rows(&desk.answer(&["doctor", "--mixer", "--ready", "-o", "json"])?)?;
    assert_eq!(states(&ready), [("api", "ok")], "one question: {ready:?}");
    let nobody = harness::free_address()?;
    let url = format!("http://{nobody}");
    let unready = desk.ask(&["doctor", "--mixer", "--ready", "--api-url", &url])?;
    assert_eq!(unready.code, Some(69), "{}", unready.err);
    let gone = desk.ask(&["doctor", "--mixer", "-o", "json", "--api-url", &url])?;
    assert_eq!(gone.code, Some(69), "{}", gone.err);
    let gone = json_rows(&gone.out)?;
    assert_eq!(check(&gone, "api")["state"], "FAIL", "{gone:?}");
    assert_eq!(check(&gone, "storage")["state"], "skipped", "{gone:?}");
    Ok(())
}

#[test]
fn a_failed_check_is_named_with_its_fix_and_sets_the_exit_code() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let nobody = harness::free_address()?;
    let (api, bus) = (format!("http://{nobody}"), format!("nats://me:s3cret@{nobody}"));
    let folder = desk.mixer.path().join("a-rack");
    let shared = desk.mixer.path().join("shared");
    std::fs::create_dir(&shared)?;
    std::fs::write(shared.join("rack.flux"), "keys")?;
    std::fs::set_permissions(shared.join("rack.flux"), std::fs::Permissions::from_mode(0o644))?;
    let taken = desk.mixer.path().join("taken");
    std::fs::write(&taken, "a file")?;
    let (shared, taken) = (shared.display().to_string(), taken.display().to_string());
    for (env, name, code, fix) in [
        (("PLATFORM_API_URL", api.as_str()), "api", 69, "--api-url"),
        (("PLATFORM_SNAKE_URL", bus.as_str()), "bus", 69, "snake.url"),
        (("PLATFORM_SNAKE_DOMAIN", "elsewhere"), "bus", 78, "snake.domain"),
        (("PLATFORM_BASE_STATE_DIR", shared.as_str()), "secrets", 77, "chmod 600"),
        (
            ("PLATFORM_BASE_STATE_DIR", taken.as_str()),
            "disk",
            74,
            "base.state_dir",
        ),
        (("PLATFORM_SNAKE_RECONNECT_WAIT", "soon"), "config", 78, "config init"),
    ] {
        let (done, rows) = desk.doctor(&[env])?;
        let row = check(&rows, name);
        assert_eq!(
            (done.code, &row["state"]),
            (Some(code), &"FAIL".into()),
            "{env:?}: {}",
            done.out
        );
        assert!(text(row, "fix").contains(fix), "{env:?}: {row}");
        assert!(done.err.contains("of 8 checks failed"), "{}", done.err);
        assert!(!done.out.contains("s3cret"), "{}", done.out);
    }
    assert_eq!(std::fs::read_dir(folder)?.count(), 0);
    Ok(())
}

#[test]
fn checks_that_depend_on_a_failed_one_are_skipped() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let nobody = harness::free_address()?;
    let (_, rows) = desk.doctor(&[("PLATFORM_API_URL", &format!("http://{nobody}"))])?;
    for (name, state) in [("clock", "skipped"), ("version", "skipped"), ("bus", "ok")] {
        assert_eq!(check(&rows, name)["state"], state, "{rows:?}");
    }
    Ok(())
}

/// What the doctor says of a Rack in its folder, with more environment variables.
fn of_rack(rack: &TestRack, mixer: &TestMixer, envs: &[(&str, &str)]) -> Result<(Finished, Vec<Value>), Failure> {
    let api = ("PLATFORM_API_URL", mixer.api.base.as_str());
    let envs: Vec<_> = envs.iter().copied().chain([api]).collect();
    let done = run(&binary("platform")?, &["doctor", "-o", "json"], rack.path(), &envs)?;
    let rows = json_rows(&done.out)?;
    Ok((done, rows))
}

/// Has a Rack join with an invite of the Mixer.
fn join(rack: &TestRack, mixer: &TestMixer) -> Result<(), Failure> {
    let made = mixer.platform(&["racks", "invite", &rack.name])?;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let joined = run(&binary("platform")?, &["join", made.out.trim()], rack.path(), &[])?;
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    Ok(())
}

#[test]
fn a_rack_that_nobody_has_admitted_is_a_warning_with_what_helps() -> Result<(), Failure> {
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let mut rack = TestRack::new("press-1", &mixer.bus_url, "")?;
    let (_, rows) = of_rack(&rack, &mixer, &[])?;
    assert_eq!(check(&rows, "admission")["state"], "ok", "it never started: {rows:?}");

    rack.spawn()?;
    let waits = rack.process()?.line("pending ", SOON)?;
    let (done, rows) = of_rack(&rack, &mixer, &[])?;
    let row = check(&rows, "admission");
    assert_eq!((done.code, &row["state"]), (Some(0), &"warn".into()), "{}", done.out);
    assert!(text(row, "found").ends_with("it waits for approval"), "{row}");
    for way in [
        "`platform racks approve press-1` on the Mixer",
        "`platform racks invite press-1`",
    ] {
        assert!(text(row, "fix").contains(way), "{row}");
    }
    assert_eq!(check(&rows, "bus")["state"], "ok", "{rows:?}");
    // One without a name has another one at the Mixer.
    let (_, rows) = of_rack(&rack, &mixer, &[("PLATFORM_BASE_NAME", "")])?;
    let fix = text(check(&rows, "admission"), "fix");
    assert!(
        fix.starts_with("`platform racks approve NAME` on the Mixer, with the name that `platform racks list` shows; "),
        "{fix}"
    );

    let (_, key) = waits.split_once("key=").ok_or("it prints no key")?;
    let approved = mixer.platform(&["racks", "approve", "press-1", "--key", key])?;
    assert_eq!(approved.code, Some(0), "{}", approved.err);
    rack.process()?.line("ready ", SOON)?;
    let (_, rows) = of_rack(&rack, &mixer, &[])?;
    let row = check(&rows, "admission");
    assert_eq!(
        (&row["state"], text(row, "found")),
        (&"ok".into(), "admitted as press-1")
    );

    let guest = TestRack::new("press-2", &mixer.bus_url, "")?;
    join(&guest, &mixer)?;
    let (_, rows) = of_rack(&guest, &mixer, &[])?;
    let row = check(&rows, "admission");
    assert_eq!(row["state"], "warn", "{row}");
    assert!(text(row, "found").ends_with("it has an invite as press-2"), "{row}");
    Ok(())
}

#[test]
fn a_bus_that_the_rack_does_not_trust_is_told_with_the_invite_that_helps() -> Result<(), Failure> {
    let keys = [("snake.host", "\"0.0.0.0\""), ("enrollment.auto_adopt", "false")];
    let mixer = TestMixer::with(&keys, &[])?;
    let rack = TestRack::with("rack-a", "nats://localhost:4222", &[], &[])?;
    let (done, rows) = of_rack(&rack, &mixer, &[("PLATFORM_SNAKE_URL", mixer.bus_url.as_str())])?;
    let row = check(&rows, "bus");
    assert_eq!((done.code, &row["state"]), (Some(69), &"FAIL".into()), "{}", done.out);
    assert!(text(row, "found").contains("does not trust the certificate"), "{row}");
    assert!(
        text(row, "fix").contains("`platform racks invite NAME`")
            && text(row, "fix").contains("`platform join INVITE`"),
        "{row}"
    );
    join(&rack, &mixer)?;
    let (_, rows) = of_rack(&rack, &mixer, &[])?;
    assert_eq!(check(&rows, "bus")["state"], "ok", "{rows:?}");
    Ok(())
}
