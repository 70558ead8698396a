//! A scenario changes under load: of twenty gears one is another, and the others do not notice.
//!
//! `PLATFORM_TEST_RELOAD_RATE` and `PLATFORM_TEST_RELOAD_CHANGES` make the long form.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::twenty::{Sockets, Twenty, UNTOUCHED};
use harness::{Api, Failure, TestMixer, TestRack, eventually};
use serde_json::json;

use crate::first_light::mixer_with;
use crate::kill9::setting;

const SOON: Duration = Duration::from_secs(60);
/// How many messages each version handles before the next one comes.
const ENOUGH: usize = 200;

/// How often a gear was begun.
fn starts(mixer: &TestMixer, gear: &str) -> Option<usize> {
    let path = format!("/api/v1/telemetry/logs?gear_id={gear}&q=the%20gear%20runs&limit=1000");
    Some(mixer.api.rows(&path).ok()?.len())
}

/// Makes a version the one that runs, while the sockets are used: that may take longer than the Rack bears a silent one.
fn activate(twenty: &Twenty, api: &Api, version: u64, sockets: &mut Sockets) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let activating = scope.spawn(|| twenty.activate(api, version));
        while !activating.is_finished() {
            sockets.keep_alive()?;
            std::thread::park_timeout(Duration::from_millis(20));
        }
        activating.join().map_err(|_| "the activation died")??;
        Ok(())
    })
}

#[test]
fn a_change_of_one_gear_of_twenty_under_load_loses_no_message_and_closes_no_socket_of_the_others() -> Result<(), Failure>
{
    let (rate, changes) = (
        setting("PLATFORM_TEST_RELOAD_RATE", 500),
        setting("PLATFORM_TEST_RELOAD_CHANGES", 4),
    );
    let twenty = Twenty::new()?;
    let (mixer, _scenario) = mixer_with(&twenty.scenario(1))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let mut sockets = twenty.open(&mixer)?;
    let over = Arc::new(AtomicBool::new(false));
    let feeding = sockets.feed(rate, Arc::clone(&over))?;
    sockets.use_all("before")?;
    let flows = |version: u64, sockets: &mut Sockets| {
        eventually(&format!("messages of version {version}"), SOON, || {
            sockets.keep_alive().ok()?;
            (twenty.pushed(0).0.versions.get(&version)? >= &ENOUGH).then_some(())
        })
    };
    let last = 1 + changes;
    for version in 2..=last {
        flows(version - 1, &mut sockets)?;
        activate(&twenty, &mixer.api, version, &mut sockets)?;
        sockets.use_all(&format!("version {version}"))?;
    }
    flows(last, &mut sockets)?;
    over.store(true, Ordering::Relaxed);
    let count = feeding.join().map_err(|_| "the feed died")??;
    let all = usize::try_from(count)?;
    eventually("all messages at both ends", SOON, || {
        sockets.keep_alive().ok()?;
        (twenty.written(count).ok()?.all >= all && twenty.pushed(count).0.all >= all).then_some(())
    })
    .map_err(|error| {
        format!(
            "{error}: {count} sent, {:?}, {:?}\n{}",
            twenty.written(count),
            twenty.pushed(count),
            rack.log()
        )
    })?;
    let (pushed, connections, _) = twenty.pushed(count);
    for tally in [twenty.written(count)?, pushed] {
        assert_eq!((tally.all, tally.lost, tally.doubled, tally.disordered), (all, 0, 0, 0));
        assert!(tally.versions.into_keys().eq(1..=last));
    }
    assert_eq!(connections, 1, "connections that push has made");
    assert_eq!(sockets.closed()?, [""; 0]);
    sockets.use_all("after")?;
    let used = sockets.used;
    eventually("the starts of change", SOON, || {
        (starts(&mixer, "change")? as u64 == last).then_some(())
    })?;
    for gear in UNTOUCHED {
        assert_eq!(starts(&mixer, gear), Some(1), "{gear}");
    }
    eventually("each request in the archive, once", SOON, || {
        let query = "SELECT count(*) AS n, count(DISTINCT flux_id) AS d FROM messages WHERE src_gear_id = 'hook'";
        let found = mixer.api.post("/api/v1/sql", &json!({ "query": query })).ok()?.json;
        let row = &found["data"][0];
        (row["n"].as_u64()? == used && row["d"].as_u64()? == used).then_some(())
    })
}
