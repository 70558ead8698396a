//! `platform doctor`: what it finds, what helps, and how it ends.

use std::os::unix::fs::PermissionsExt;

use harness::process::{Finished, run};
use harness::{Failure, binary};
use serde_json::Value;

use super::{Desk, json_rows};

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
    let all = ["config", "api", "clock", "version", "disk", "bus", "secrets"];
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
        assert!(done.err.contains("of 7 checks failed"), "{}", done.err);
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
