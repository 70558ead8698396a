//! Lines of a file that is followed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use super::*;

fn tail(path: &Path, more: &str) -> String {
    format!(
        "\n  - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: '{}', poll_interval: 2ms{more} }} }}",
        path.display()
    )
}

/// Cuts every gear off wherever it is, as a gear that does not stop in time is.
async fn kill(mut runtime: GearRuntime) {
    for slot in runtime.gears.values_mut() {
        slot.task.abort();
        (&mut slot.task).await.ok();
    }
}

fn lines_of(bench: &Bench, path: &Path) -> Vec<serde_json::Map<String, Value>> {
    let path = path.display().to_string();
    let rows = bench.rows(Table::Logs).into_iter();
    rows.filter(|row| row["attributes"]["log.file.path"] == path.as_str() && row["attributes"]["gear.id"] == "tail")
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tailed_lines_become_records_with_level_and_messages_where_wired() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.log");
    fs::write(&path, b"plain\n2026 ERROR broke\n\xffodd\n").unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let gears = format!("{}{SINK}", tail(&path, ", level: debug"));
    let applied = runtime
        .apply(&push("h", &gears, "{ from: tail.out, to: sink.in }"))
        .await;
    assert_eq!(applied.error, None);
    bench.says("sink", "odd").await;
    runtime.close().await;
    let rows = lines_of(&bench, &path);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row["message"].as_str().unwrap(), row["level"].as_str().unwrap()))
        .collect();
    assert_eq!(
        seen,
        [
            ("plain", "debug"),
            ("2026 ERROR broke", "error"),
            ("\u{fffd}odd", "debug")
        ]
    );
    assert_eq!(rows[1]["attributes"]["log.file.offset"], 6);
    let echo = bench.rows(Table::Logs);
    let echo = echo
        .iter()
        .find(|row| row["attributes"]["gear.id"] == "sink" && row["message"] == "plain")
        .unwrap();
    assert_eq!(echo["flux_id"], rows[0]["flux_id"]);
    assert_eq!(echo["attributes"]["trace_id"], rows[0]["attributes"]["trace_id"]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tailed_lines_are_stored_once_each_whatever_stops_the_gear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.log");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let mut written = 0;
    let mut write = |file: &mut fs::File, count: usize| {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(&format!("line {written}\n"));
            written += 1;
        }
        file.write_all(text.as_bytes()).unwrap();
        written
    };
    let scenario = push("h", &tail(&path, ""), "");
    for life in 0..4 {
        let bench = Bench::open(folder.path());
        for round in 0..5 {
            let total = write(&mut file, 700);
            if round == 3 {
                fs::rename(&path, folder.path().join(format!("app.log.{}", 100 - life))).unwrap();
                file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            }
            let mut runtime = bench.runtime();
            assert_eq!(runtime.apply(&scenario).await.error, None);
            if round == 4 {
                bench
                    .wait("every line", |bench| {
                        (lines_of(bench, &path).len() >= total).then_some(())
                    })
                    .await;
                runtime.close().await;
            } else {
                bench
                    .wait("some lines", |bench| {
                        (lines_of(bench, &path).len() > total - 700).then_some(())
                    })
                    .await;
                kill(runtime).await;
            }
        }
        bench.close().await;
    }
    let bench = Bench::open(folder.path());
    let stored: Vec<String> = lines_of(&bench, &path)
        .iter()
        .map(|row| row["message"].as_str().unwrap().to_owned())
        .collect();
    let wanted: Vec<String> = (0..14_000).map(|number| format!("line {number}")).collect();
    assert_eq!(stored.len(), wanted.len());
    assert!(stored == wanted, "order");
    bench.close().await;
}
