//! Rotation of the cluster's key and of the bus's certificate authority under Racks that go on.

use harness::process;
use serde_json::{Map, Value};

use super::*;

const FLOW: &str = "
meta: { name: flow, version: 'VERSION' }
racks: [ { name: rack-a }, { name: rack-b }, { name: rack-c } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 20 } }
  - { name: sink, type: log_sink, deploy: rack-b }
wires:
  - { from: numbers.out, to: sink.in, lane: guaranteed }
";

/// How many messages the sink of `rack-b` has recorded.
fn sunk(mixer: &TestMixer) -> usize {
    let rows = mixer.api.rows("/api/v1/telemetry/logs?gear_id=sink&limit=10000");
    rows.map_or(0, |rows| rows.iter().filter(|row| row["flux_id"].is_string()).count())
}

fn rotate(mixer: &TestMixer, key: &str) -> Result<process::Finished, Failure> {
    process::run(&binary("platform-mixer")?, &["rotate-key", key], mixer.path(), &[])
}

/// Waits until these Racks are active and run what they should.
fn all_run(mixer: &TestMixer, names: &[&str]) -> Result<(), Failure> {
    eventually("the Racks run their scenario", SOON, || {
        let runs = |name: &&str| {
            let rack = mixer.api.get(&format!("/api/v1/racks/{name}")).ok()?.json["data"].clone();
            let scenario = &rack["scenario"];
            let is_so = rack["state"] == "active"
                && scenario["wanted"].is_object()
                && scenario["wanted"] == scenario["running"];
            is_so.then_some(())
        };
        names.iter().all(|name| runs(name).is_some()).then_some(())
    })
}

/// Asks as the pages say, with the fingerprints that the audit log has, and with one of another cluster.
fn the_audit_log_is_verified_by_any_of_its_keys(
    mixer: &TestMixer,
    audit: &[Map<String, Value>],
) -> Result<(), Failure> {
    let rotated = audit.iter().filter(|entry| entry["kind"] == "cluster_key_rotated");
    let rotated: Vec<_> = rotated.collect();
    // The newest is the first.
    let [newest, oldest] = &rotated[..] else {
        return Err("not two rotations".into());
    };
    let [first, between, present] =
        [&oldest["from"], &oldest["to"], &newest["to"]].map(|key| key.as_str().unwrap_or_default());
    let answer = mixer.api.get("/api/v1/audit/checkpoints")?.json;
    assert_eq!(answer["cluster_key"], present);
    assert_eq!(answer["successions"].as_array().map(Vec::len), Some(2));
    std::fs::write(mixer.path().join("kept.ndjson"), answer["data"][1].to_string())?;
    let verify = |key: &[&str]| {
        let args = ["audit", "verify", "--checkpoints", "kept.ndjson", "-o", "ndjson"];
        let args = [&args[..], &["--api-url", &mixer.api.base], key].concat();
        process::run(&binary("platform")?, &args, mixer.path(), &[])
    };
    for key in [
        &["--cluster-key", first][..],
        &["--cluster-key", between],
        &["--cluster-key", present],
        &[],
    ] {
        let verified = verify(key)?;
        assert_eq!(verified.code, Some(0), "{key:?}: {}", verified.err);
        let verdict: Value = serde_json::from_str(&verified.out)?;
        let signers: Vec<_> = verdict["signed_by"].as_array().into_iter().flatten().collect();
        assert!(signers.len() == 2 && signers.contains(&&first.into()), "{verdict}");
    }
    let foreign = model::KeyFingerprint::of(b"another").to_string();
    let refused = verify(&["--cluster-key", &foreign])?;
    let reason = format!("no chain of successions leads from {foreign} to {present}");
    assert!(
        refused.code == Some(65) && refused.err.contains(&reason),
        "{}",
        refused.err
    );
    assert!(!refused.err.contains("not as it was recorded"), "{}", refused.err);
    Ok(())
}

#[test]
fn racks_go_on_while_the_clusters_key_and_the_buss_authority_are_rotated_twice() -> Result<(), Failure> {
    let (api, bus) = (free_port()?, free_port()?);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("flow.yaml");
    std::fs::write(&file, FLOW.replace("VERSION", "1"))?;
    let scenario = format!("{:?}", file.display().to_string());
    let mut mixer = TestMixer::with(
        &[
            ("snake.tls", "\"on\""),
            ("snake.port", &bus),
            ("api.port", &api),
            ("enrollment.auto_adopt", "false"),
            ("mixer.startup_scenario", &scenario),
        ],
        &[],
    )?;
    let invited = |name: &str| -> Result<TestRack, Failure> {
        let mut rack = TestRack::with(name, "nats://localhost:4222", &[], &[])?;
        let args = ["racks", "invite", name, "--api-url", &mixer.api.base];
        let invite = process::run(&binary("platform")?, &args, rack.path(), &[])?;
        let joined = process::run(&binary("platform")?, &["join", invite.out.trim()], rack.path(), &[])?;
        assert_eq!(joined.code, Some(0), "{}{}", invite.err, joined.err);
        rack.start()?;
        Ok(rack)
    };
    let (mut a, mut b, mut away) = (invited("rack-a")?, invited("rack-b")?, invited("rack-c")?);
    all_run(&mixer, &["rack-a", "rack-b", "rack-c"])?;
    away.kill9()?;
    let args = ["racks", "invite", "rack-d", "--api-url", &mixer.api.base];
    assert_eq!(
        process::run(&binary("platform")?, &args, folder.path(), &[])?.code,
        Some(0)
    );
    let running = rotate(&mixer, "cluster")?;
    assert!(
        running.code != Some(0) && running.err.contains("in use"),
        "{}",
        running.err
    );
    let pids = [a.process()?.pid(), b.process()?.pid()];
    for round in 1..=2 {
        mixer.process()?.terminate(SOON)?;
        for key in ["cluster", "bus-authority"] {
            let done = rotate(&mixer, key)?;
            assert!(
                done.code == Some(0) && done.out.contains("SHA256:") && done.out.contains("/backups/"),
                "{}{}",
                done.out,
                done.err
            );
            let is_first = round == 1 && key == "cluster";
            let revoked = if is_first {
                "1 open invites were revoked"
            } else {
                "0 open invites"
            };
            assert!(done.out.contains(revoked), "{}", done.out);
        }
        mixer.restart()?;
        for rack in [&a, &b] {
            eventually("both are told of", SOON, || {
                let log = rack.log();
                let told = |text: &str| log.matches(text).count() == round;
                (told("the cluster has another key") && told("another certificate authority")).then_some(())
            })
            .map_err(|error| format!("{error}: {}", rack.log()))?;
        }
        let before = sunk(&mixer);
        all_run(&mixer, &["rack-a", "rack-b"])?;
        eventually("messages over the new keys", SOON, || {
            (sunk(&mixer) > before + 20).then_some(())
        })?;
    }
    assert_eq!(
        [a.process()?.pid(), b.process()?.pid()],
        pids,
        "no Rack was started again"
    );
    // It knows the first key and the first authority only.
    away.start()?;
    all_run(&mixer, &["rack-a", "rack-b", "rack-c"])?;
    let audit = mixer.api.rows("/api/v1/audit")?;
    for kind in ["cluster_key_rotated", "bus_authority_rotated"] {
        assert_eq!(
            audit.iter().filter(|entry| entry["kind"] == kind).count(),
            2,
            "{audit:?}"
        );
    }

    // What an earlier key signed runs without a Mixer; what the new one signs is taken.
    the_audit_log_is_verified_by_any_of_its_keys(&mixer, &audit)?;
    std::fs::write(&file, FLOW.replace("VERSION", "2"))?;
    let path = file.display().to_string();
    let args = ["scenario", "activate", &path, "--api-url", &mixer.api.base];
    let activated = process::run(&binary("platform")?, &args, folder.path(), &[])?;
    assert_eq!(activated.code, Some(0), "{}", activated.err);
    all_run(&mixer, &["rack-a", "rack-b", "rack-c"])
}

#[test]
fn a_rotation_needs_a_cluster_and_an_authority_that_is_in_use() -> Result<(), Failure> {
    let empty = tempfile::tempdir()?;
    for key in ["cluster", "bus-authority"] {
        let refused = process::run(&binary("platform-mixer")?, &["rotate-key", key], empty.path(), &[])?;
        assert!(
            refused.code != Some(0) && refused.err.contains("there is no registry"),
            "{}{}",
            refused.out,
            refused.err
        );
    }
    assert_eq!(std::fs::read_dir(empty.path())?.count(), 0, "nothing was made");

    let mut mixer = TestMixer::with(&[("snake.tls", "\"on\"")], &[])?;
    mixer.process()?.terminate(SOON)?;
    let config = mixer.path().join("platform-mixer.toml");
    let text = std::fs::read_to_string(&config)?;
    assert!(text.contains("tls = \"on\""), "{text}");
    std::fs::write(&config, text.replace("tls = \"on\"", "tls = \"off\""))?;
    let args = ["rotate-key", "bus-authority"];
    let refused = process::run(&binary("platform-mixer")?, &args, mixer.path(), &[])?;
    assert!(
        refused.code != Some(0) && refused.err.contains("no certificate authority of its own"),
        "{}{}",
        refused.out,
        refused.err
    );
    Ok(())
}

#[test]
fn an_admitted_rack_that_missed_too_much_joins_again_under_its_own_name_and_keeps_its_identity() -> Result<(), Failure>
{
    let (api, bus) = (free_port()?, free_port()?);
    let mut mixer = TestMixer::with(
        &[
            ("snake.tls", "\"on\""),
            ("snake.port", &bus),
            ("api.port", &api),
            ("enrollment.auto_adopt", "false"),
        ],
        &[],
    )?;
    let mut rack = TestRack::with("rack-a", "nats://localhost:4222", &[], &[])?;
    let join = |mixer: &TestMixer, rack: &TestRack| -> Result<process::Finished, Failure> {
        let args = ["racks", "invite", "rack-a", "--api-url", &mixer.api.base];
        let invite = process::run(&binary("platform")?, &args, rack.path(), &[])?;
        let joined = process::run(&binary("platform")?, &["join", invite.out.trim()], rack.path(), &[])?;
        assert_eq!(joined.code, Some(0), "{}{}", invite.err, joined.err);
        Ok(joined)
    };
    let who = |mixer: &TestMixer| -> Result<serde_json::Value, Failure> {
        let rack = mixer.api.get("/api/v1/racks/rack-a")?.json["data"].clone();
        Ok(json!([rack["entity_id"], rack["state"]]))
    };
    join(&mixer, &rack)?;
    rack.start()?;
    let before = who(&mixer)?;
    rack.kill9()?;
    mixer.process()?.terminate(SOON)?;
    assert_eq!(rotate(&mixer, "cluster")?.code, Some(0));
    for _ in 0..7 {
        assert_eq!(rotate(&mixer, "bus-authority")?.code, Some(0));
    }
    mixer.restart()?;
    let joined = join(&mixer, &rack)?;
    assert!(joined.err.contains("rotate-key"), "{}", joined.err);
    rack.start()?;
    assert_eq!(who(&mixer)?, before);
    Ok(())
}
