//! Rotation of the cluster's key and of the bus's certificate authority under Racks that go on.

use harness::process;

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
                done.code == Some(0) && done.out.contains("SHA256:"),
                "{}{}",
                done.out,
                done.err
            );
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
    let args = ["audit", "verify", "--api-url", &mixer.api.base];
    let verified = process::run(&binary("platform")?, &args, folder.path(), &[])?;
    assert_eq!(verified.code, Some(0), "{}", verified.err);
    std::fs::write(&file, FLOW.replace("VERSION", "2"))?;
    let path = file.display().to_string();
    let args = ["scenario", "activate", &path, "--api-url", &mixer.api.base];
    let activated = process::run(&binary("platform")?, &args, folder.path(), &[])?;
    assert_eq!(activated.code, Some(0), "{}", activated.err);
    all_run(&mixer, &["rack-a", "rack-b", "rack-c"])
}
