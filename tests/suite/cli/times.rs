//! Times as people type and read them: in the local zone, or in UTC.

use std::time::Duration;

use harness::Failure;
use model::Timestamp;
use serde_json::json;

use super::{Desk, json_rows};

/// An hour east of Greenwich, all year.
const EAST: &str = "XXX-1";
/// Central Europe, as a rule: no zone data is needed.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

/// A moment as it is shown an hour east of Greenwich.
fn east(at: &str) -> Result<String, Failure> {
    let at: Timestamp = at.parse()?;
    Ok(at.plus(Duration::from_secs(3600)).to_string().replace('Z', "+01:00"))
}

#[test]
fn tables_have_local_times_and_formats_for_programs_have_utc() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let ts = desk.ago(600);
    desk.seed("logs", "press", &json!([{ "ts": ts, "level": "info", "message": ts }]))?;
    desk.seed(
        "metrics",
        "press",
        &json!([{ "ts": ts, "name": "temp", "type": "gauge", "value": 1.0, "labels": { "seen": ts } }]),
    )?;
    let local = east(&ts)?;
    for (args, column) in [
        (vec!["logs"], format!("{local} info  press {ts} \n")),
        (vec!["logs", "--utc"], format!("{ts} info  press {ts} \n")),
        (
            vec!["metrics", "--name", "temp"],
            format!("\n{local}  temp  press        gauge  1.0    seen={ts}\n"),
        ),
        (
            vec!["metrics", "--name", "temp", "--utc"],
            format!("\n{ts}  temp  press        gauge  1.0    seen={ts}\n"),
        ),
        (vec!["storage"], local.clone()),
    ] {
        let out = desk.ask_in(EAST, &args)?.out;
        assert!(out.contains(&column), "{args:?}: {out}");
    }
    for format in ["json", "ndjson", "csv"] {
        for command in ["logs", "metrics"] {
            let args = [command, "-o", format];
            let (here, there) = (desk.ask_in(EAST, &args)?.out, desk.ask_in("UTC", &args)?.out);
            assert!(here == there && here.contains(&ts), "{args:?}: {here}\n{there}");
        }
    }
    Ok(())
}

#[test]
fn a_time_without_a_zone_is_a_local_one_and_with_utc_one_of_utc() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let (early, late) = (desk.ago(600), desk.ago(300));
    desk.seed(
        "logs",
        "press",
        &json!([{ "ts": early, "level": "info", "message": "early" }, { "ts": late, "level": "info", "message": "late" }]),
    )?;
    let typed = |at: &str, zone: &str| at.replace('T', " ").replace(zone, "");
    let (local, utc) = (typed(&east(&late)?, "+01:00"), typed(&late, "Z"));
    let found = |args: &[&str]| -> Result<Vec<String>, Failure> {
        let args: Vec<&str> = ["logs", "-o", "json"].iter().chain(args).copied().collect();
        let done = desk.ask_in(EAST, &args)?;
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        let rows = json_rows(&done.out)?;
        Ok(rows
            .iter()
            .filter_map(|row| row["message"].as_str().map(str::to_owned))
            .collect())
    };
    assert_eq!(found(&["--since", &local])?, ["late"]);
    assert_eq!(found(&["--since", &utc, "--utc"])?, ["late"]);
    assert_eq!(
        found(&["--since", &early, "--until", &local])?,
        ["early"],
        "until is exclusive"
    );
    assert_eq!(
        found(&["--since", &east(&late)?])?,
        ["late"],
        "what is shown can be typed"
    );
    assert_eq!(
        found(&["--since", &utc])?,
        ["early", "late"],
        "an hour earlier, being local"
    );
    Ok(())
}

#[test]
fn a_time_that_clocks_skip_or_show_twice_is_refused_with_what_it_may_mean() -> Result<(), Failure> {
    let desk = Desk::open()?;
    for (flag, time, readings) in [
        (
            "--since",
            "2026-03-29 02:30",
            ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"],
        ),
        (
            "--until",
            "2026-10-25T02:30",
            ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"],
        ),
    ] {
        let done = desk.ask_in(BERLIN, &["logs", flag, time])?;
        assert_eq!(done.code, Some(64), "{}", done.err);
        assert!(
            done.err.contains(flag) && readings.iter().all(|text| done.err.contains(text)),
            "{}",
            done.err
        );
        assert_eq!(desk.ask_in(BERLIN, &["logs", flag, readings[0]])?.code, Some(0));
        assert_eq!(desk.ask_in(BERLIN, &["logs", flag, time, "--utc"])?.code, Some(0));
    }
    for time in ["2026-02-29", "2026-13-01", "12:60", "yesterday", "1 hour"] {
        let done = desk.ask_in(BERLIN, &["logs", "--since", time])?;
        assert!(
            done.code == Some(64) && done.err.contains(time),
            "{:?} {}",
            done.code,
            done.err
        );
    }
    Ok(())
}
