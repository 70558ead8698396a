//! A gear that never comes back from a message.

use super::*;

const HANGS: &str = "\n  - { name: stuck, type: test_hangs, deploy: rack-a }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_that_hangs_is_named_with_its_message_again_and_again_while_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.parts.patience = Duration::from_secs(1);
    runtime.parts.drain = DRAIN_BOUND;
    let gears = format!("{HTTP}{SINK}{HANGS}");
    let wires = format!("{DOOR_TO_SINK}, {{ from: door.out, to: stuck.in }}");
    assert_eq!(runtime.apply(&push("h", &gears, &wires)).await.error, None);
    let to = address(&bench, "door").await;
    for text in ["before", "hang", "behind it"] {
        assert_eq!(status(&post(to, "", text.as_bytes()).await), 202);
    }
    bench.says("stuck", "did before").await;
    let records = bench
        .wait("two words about it", |bench| {
            let rows = bench.rows(Table::Logs).into_iter();
            let about = |row: &serde_json::Map<String, Value>| {
                let text = row["message"].as_str().unwrap();
                row["attributes"]["gear.id"] == "stuck" && text.contains("has been at one message for")
            };
            let rows: Vec<_> = rows.filter(about).collect();
            (rows.len() >= 2).then_some(rows)
        })
        .await;
    let sunk = bench.rows(Table::Logs).into_iter();
    let hung = sunk
        .into_iter()
        .find(|row| row["message"] == "hang" && row["attributes"]["gear.id"] == "sink")
        .unwrap();
    for record in &records {
        assert_eq!(
            (&record["flux_id"], &record["level"]),
            (&hung["flux_id"], &"warn".into())
        );
    }
    // The other receiver of the door has what is behind it, and the door goes on.
    bench.says("sink", "behind it").await;
    assert_eq!(status(&post(to, "", b"later").await), 202);
    bench.says("sink", "later").await;
    assert!(!bench.logs("stuck").iter().any(|text| text == "did behind it"));
    assert_eq!(runtime.close().await, ["stuck".parse().unwrap()], "it is cut off");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_scenario_cuts_a_hanging_gear_off_and_no_socket_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.parts.drain = DRAIN_BOUND;
    let wires = format!("{DOOR_TO_SINK}, {{ from: door.out, to: stuck.in }}");
    runtime
        .apply(&push("h1", &format!("{HTTP}{SINK}{HANGS}"), &wires))
        .await;
    let to = address(&bench, "door").await;
    for text in ["hang", "one", "two"] {
        assert_eq!(status(&post(to, "", text.as_bytes()).await), 202);
    }
    bench.says("sink", "two").await;
    // Another gear under its name: what waited is the successor's.
    let mended = "\n  - { name: stuck, type: log_sink, deploy: rack-a }";
    let applied = runtime
        .apply(&push("h2", &format!("{HTTP}{SINK}{mended}"), &wires))
        .await;
    assert_eq!((applied.running.as_deref(), applied.error), (Some("h2"), None));
    bench.says("stuck", "one").await;
    bench.says("stuck", "two").await;
    assert_eq!(status(&post(to, "", b"three").await), 202, "the same socket");
    bench.says("stuck", "three").await;
    runtime.close().await;
    bench.close().await;
}
