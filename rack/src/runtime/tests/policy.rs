//! A Rack whose policy allows less than a scenario asks for.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::policy::RackPolicy;

/// A Rack in this folder whose file has this section.
fn bench_with(folder: &Path, section: &str) -> Bench {
    let data = folder.join("data");
    let text = format!("[base]\nstate_dir = {data:?}\n[store]\ndir = {data:?}\n[policy]\n{section}\n");
    let config = RackConfig::of(&load_from(&SCHEMA, &text, &[]).unwrap()).unwrap();
    let mut bench = Bench::open(folder);
    bench.policy = RackPolicy::of(&config.policy, &config.places()).unwrap();
    bench
}

const HOOK: &str = "\n  - { name: hook, type: http_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_that_asks_for_more_is_refused_whole_and_the_one_before_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench_with(folder.path(), "");
    let mut runtime = bench.runtime();
    assert_eq!(runtime.apply(&push("good", HOOK, "")).await.error, None);
    for (gear, says) in [
        (
            "{ name: spy, type: file_tail, deploy: rack-a, config: { path: /etc/shadow } }",
            "gear spy (file_tail): reading /etc/shadow is not allowed on this Rack: its operator adds it to policy.read_roots",
        ),
        (
            "{ name: spy, type: http_get, deploy: rack-a, config: { url: 'http://169.254.169.254/' } }",
            "gear spy (http_get): connecting to 169.254.169.254:80 is not allowed on this Rack: its operator adds it to policy.connect",
        ),
        (
            "{ name: spy, type: tcp_in, deploy: rack-a, config: { listen: '0.0.0.0:0', allow_insecure: true } }",
            "gear spy (tcp_in): listening on 0.0.0.0:0 is not allowed on this Rack: its operator adds it to policy.listen",
        ),
    ] {
        let push = push("bad", &format!("{HOOK}\n  - {gear}"), "");
        assert!(runtime.check(&push).unwrap().contains(says));
        let answer = runtime.apply(&push).await;
        assert_eq!(answer.running.as_deref(), Some("good"));
        assert!(answer.error.as_ref().unwrap().contains(says), "{answer:?}");
    }
    assert_eq!(runtime.running_gears(), 1);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_known_only_later_fails_there_with_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench_with(folder.path(), "");
    let files = folder.path().join("data/files");
    symlink("/proc/self/environ", files.join("environ")).unwrap();
    symlink(folder.path().join("elsewhere"), files.join("out")).unwrap();
    let gears = "
  - { name: spy, type: file_tail, deploy: rack-a, config: { path: environ } }
  - { name: dial, type: tcp_out, deploy: rack-a, config: { address: 'localhost:9' } }
  - { name: poll, type: http_get, deploy: rack-a, config: { url: 'http://localhost:9/', every: 1h } }
  - { name: source, type: generator, deploy: rack-a, config: { count: 1 } }
  - { name: write, type: file_out, deploy: rack-a, config: { path: out } }";
    let mut runtime = bench.runtime();
    let answer = runtime
        .apply(&push("h", gears, "{ from: source.out, to: write.in }"))
        .await;
    let error = answer.error.unwrap();
    assert!(
        error.contains("gear write (file_out) cannot start") && error.contains("policy.write_roots"),
        "{error}"
    );
    let rest: Vec<&str> = gears.lines().filter(|line| !line.contains("write")).collect();
    assert_eq!(runtime.apply(&push("h", &rest.join("\n"), "")).await.error, None);
    for (gear, says) in [
        ("spy", "which leads to /proc/"),
        ("dial", "connecting to localhost:9, which is at "),
        ("poll", "connecting to localhost:9, which is at "),
    ] {
        let said = bench.says(gear, says).await;
        assert!(
            said.contains("is not allowed on this Rack: its operator adds it to policy."),
            "{said}"
        );
    }
    assert!(!folder.path().join("elsewhere").exists());
    runtime.close().await;
    bench.close().await;
}
