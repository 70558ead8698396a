//! Old data goes from the tree, from REST and from the figures at once, and only by the rules of the configuration.

use std::time::Duration;

use async_nats::HeaderMap;
use harness::{Failure, TestMixer, binary, duckdb, eventually, process};
use model::{Timestamp, telemetry_codec};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
/// The minute for readers that listed the tree before, and some more.
const READERS_PASS: Duration = Duration::from_secs(90);
const DAY: u64 = 86_400;
const AS_STARTED: &str = "policy = \"time\"\nmax_age_days = 60\ncheck_interval = \"1h\"\n";

fn days_ago(days: u64) -> Timestamp {
    Timestamp::from(std::time::SystemTime::now()).minus(Duration::from_secs(days * DAY))
}

/// A Mixer that holds a row of 40 days ago and one of now, both in data files; and the time of the old one.
async fn with_an_old_row() -> Result<(TestMixer, String), Failure> {
    let extra = format!(
        "[observability.embedded]\nflush_interval = \"100ms\"\n[observability.embedded.rotation]\n{AS_STARTED}"
    );
    let mixer = tokio::task::spawn_blocking(move || TestMixer::start(&extra)).await??;
    let js = async_nats::jetstream::with_domain(mixer.operator()?.connect(&mixer.bus_url).await?, "flux");
    let old = days_ago(40).to_string();
    for (days, ts) in [(40, old.clone()), (0, days_ago(0).to_string())] {
        let mut headers = HeaderMap::new();
        headers.insert(telemetry_codec::CONTENT_TYPE, "application/json");
        let line = json!({ "ts": ts, "level": "info", "message": format!("{days} days old") });
        let sent = js.publish_with_headers("flux.telemetry.logs.script", headers, line.to_string().into());
        sent.await?.await?;
    }
    eventually("both rows in files", SOON, || {
        (count(&mixer, "true").ok()? == 2).then_some(())
    })?;
    Ok((mixer, old))
}

fn count(mixer: &TestMixer, condition: &str) -> Result<u64, Failure> {
    duckdb::count(&mixer.telemetry(), "logs", condition)
}

fn rows(mixer: &TestMixer) -> Result<usize, Failure> {
    Ok(mixer
        .api
        .rows("/api/v1/telemetry/logs?entity=script&since=1200h")?
        .len())
}

fn rotation(mixer: &TestMixer) -> Result<Value, Failure> {
    Ok(mixer.api.get("/api/v1/storage")?.json["data"]["rotation"].clone())
}

/// Ends the Mixer in order if it runs; the next start obeys these rules.
fn stop(mixer: &mut TestMixer, rules: &str) -> Result<(), Failure> {
    if mixer.process()?.is_running() {
        assert!(mixer.process()?.terminate(Duration::from_secs(20))?.success());
    }
    let file = mixer.path().join("platform-mixer.toml");
    let toml = std::fs::read_to_string(&file)?;
    let (before, _) = toml
        .split_once("[observability.embedded.rotation]")
        .ok_or("no section")?;
    Ok(std::fs::write(
        &file,
        format!("{before}[observability.embedded.rotation]\n{rules}"),
    )?)
}

fn dry_run(mixer: &TestMixer, args: &[&str]) -> Result<process::Finished, Failure> {
    let args: Vec<&str> = ["retention", "--dry-run"].iter().chain(args).copied().collect();
    process::run(&binary("platform-mixer")?, &args, mixer.path(), &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_older_than_the_rules_allow_goes_everywhere() -> Result<(), Failure> {
    let (mut mixer, old) = with_an_old_row().await?;
    tokio::task::block_in_place(|| {
        assert_eq!(rows(&mixer)?, 2);
        let said = dry_run(&mixer, &[])?;
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(
            said.out.contains("nothing would be removed"),
            "beside a running Mixer: {}",
            said.out
        );

        // By size alone the age does not count.
        stop(
            &mut mixer,
            "policy = \"size\"\nmax_age_days = 30\ncheck_interval = \"100ms\"\n",
        )?;
        mixer.restart()?;
        eventually("three checks", SOON, || {
            (rotation(&mixer).ok()?["checks"].as_u64()? >= 3).then_some(())
        })?;
        assert_eq!((count(&mixer, "true")?, rows(&mixer)?), (2, 2));

        let folder = format!("logs/{}", &old[..13].replace(['-', 'T'], "/"));
        assert!(mixer.telemetry().join(&folder).is_dir(), "{folder}");
        stop(
            &mut mixer,
            "policy = \"both\"\nmax_age_days = 30\ncheck_interval = \"100ms\"\n",
        )?;
        let said = dry_run(&mixer, &[])?;
        let line = said.out.lines().find(|line| line.ends_with("age")).unwrap_or_default();
        assert!(line.starts_with("logs") && line.contains(&folder[5..]), "{}", said.out);
        assert_eq!(count(&mixer, "true")?, 2, "a dry run changes nothing");
        mixer.restart()?;
        eventually("the end of its rows", SOON, || {
            (count(&mixer, "true").ok()? == 1).then_some(())
        })?;
        assert_eq!((count(&mixer, "message = '0 days old'")?, rows(&mixer)?), (1, 1));
        assert!(
            mixer.telemetry().join(&folder).is_dir(),
            "who has listed it may open it"
        );
        // Empty folders go too, the innermost first.
        eventually("the end of its folders", READERS_PASS, || {
            (!mixer.telemetry().join(&folder[..12]).exists()).then_some(())
        })?;

        let rotation = rotation(&mixer)?;
        assert_eq!(rotation["policy"], "both");
        assert_eq!(
            (&rotation["removed_partitions"], &rotation["removed_rows"]),
            (&json!(1), &json!(1))
        );
        let removed = &rotation["last_removal"]["removed"][0];
        assert_eq!(
            (&removed["table"], &removed["reason"]),
            (&json!("logs"), &json!("age")),
            "{rotation}"
        );
        let metrics = mixer.api.get("/metrics")?.text;
        assert!(
            metrics.contains("platform_engine_rotated_partitions_total 1\n"),
            "{metrics}"
        );
        let log = std::fs::read_to_string(mixer.path().join("logs/mixer.log"))?;
        assert!(
            log.contains("removed a partition") && log.contains(&folder[5..]),
            "{log}"
        );

        // It stays away, also after a sudden end.
        mixer.kill9()?;
        mixer.restart()?;
        assert_eq!((count(&mixer, "true")?, rows(&mixer)?), (1, 1));
        Ok(())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_come_as_often_as_the_key_says() -> Result<(), Failure> {
    let (mut mixer, _) = with_an_old_row().await?;
    tokio::task::block_in_place(|| {
        let checks = |mixer: &TestMixer| rotation(mixer).ok()?["checks"].as_u64();
        eventually("the first check", SOON, || checks(&mixer).filter(|checks| *checks > 0))?;
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(checks(&mixer), Some(1), "the next one comes in an hour");
        stop(&mut mixer, "max_age_days = 60\ncheck_interval = \"100ms\"\n")?;
        mixer.restart()?;
        eventually("five checks", SOON, || checks(&mixer).filter(|checks| *checks >= 5))?;
        Ok(())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_over_its_size_loses_its_oldest_partition_and_a_larger_size_keeps_it() -> Result<(), Failure> {
    let (mut mixer, _) = with_an_old_row().await?;
    tokio::task::block_in_place(|| {
        // The log counts: here it is made to look like two GiB.
        for (size, removed) in [(1, 1), (3, 0)] {
            stop(
                &mut mixer,
                &format!("policy = \"size\"\nmax_age_days = 60\nmax_size_gb = {size}\n"),
            )?;
            std::fs::File::create(mixer.path().join("data/wal/sparse"))?.set_len(2 << 30)?;
            let said = dry_run(&mixer, &["--output", "json"])?;
            let said: Value = serde_json::from_str(&said.out)?;
            let removals = said["removals"].as_array().ok_or("no removals")?;
            assert_eq!(removals.len(), removed, "{size} GiB: {said}");
            assert!(removals.iter().all(|removal| removal["reason"] == "size"), "{said}");
        }
        Ok(())
    })
}
