//! `[observability.embedded.storage]`: the object store, as two Mixers and its own listing see it.

use futures::TryStreamExt;
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, Random, TestMixer, TestS3, binary, eventually, process};
use model::Timestamp;
use object_store::ObjectStore;
use object_store::path::Path;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{SOON, names_in};

fn variables(server: &TestS3) -> Vec<(String, String)> {
    [
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_ENDPOINT_URL", server.url()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn mixer(server: &TestS3, keys: &[(&str, &str)]) -> Result<TestMixer, Failure> {
    let variables = variables(server);
    let envs: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let url = format!("\"s3://{BUCKET}/plant/a\"");
    let usual = [
        ("observability.embedded.storage.url", url.as_str()),
        ("observability.embedded.storage.segment_size_mb", "1"),
    ];
    TestMixer::with(&[&usual, keys].concat(), &envs)
}

#[test]
fn sealed_files_go_to_the_bucket_that_the_keys_name_and_another_mixer_reads_them() -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let server = runtime.block_on(TestS3::start())?;
    let writing = mixer(&server, &[("observability.embedded.storage.cache_size_mb", "0")])?;
    let bus = writing.bus()?;
    let mut random = Random::for_test("sealed_files_go_to_the_bucket_that_the_keys_name_and_another_mixer_reads_them");
    let now = Timestamp::from(std::time::SystemTime::now());
    for batch in 0..4 {
        let mut noise = || {
            (0..512)
                .map(|_| format!("{:016x}", random.below(u64::MAX)))
                .collect::<String>()
        };
        let line = |row: i32, noise: String| json!({ "ts": now.to_string(), "level": "info", "message": format!("{batch} {row} {noise}") });
        let lines: Vec<Value> = (0..100).map(|row| line(row, noise())).collect();
        bus.send("logs", "script", &Value::from(lines))?;
    }
    let storage = |name: &'static str| {
        move |mixer: &TestMixer| mixer.api.get("/api/v1/storage").ok()?.json["data"]["object_store"][name].as_u64()
    };
    eventually("a file in the bucket", SOON, || {
        (storage("uploaded_files")(&writing)? >= 1).then_some(())
    })?;
    let client = server.client(BUCKET, KEY, SECRET)?;
    let below = Path::from("plant/a/telemetry/logs");
    let objects: Vec<_> = runtime.block_on(client.list(Some(&below)).try_collect())?;
    assert!(!objects.is_empty());
    // No room for copies: what is uploaded is not in the tree.
    eventually("the tree without the uploaded file", SOON, || {
        (storage("cached_files")(&writing)? == 0).then_some(())
    })?;
    assert!(writing.api.metric("platform_object_store_unuploaded_bytes").is_some());
    assert!(!writing.api.rows("/api/v1/logs?limit=1000&q=0%200%20")?.is_empty());

    let reading = mixer(&server, &[("observability.embedded.storage.read_only", "true")])?;
    let rows =
        |mixer: &TestMixer| mixer.api.get("/api/v1/storage").ok()?.json["data"]["tables"]["logs"]["rows"].as_u64();
    eventually("rows of the writer at the reader", SOON, || {
        (rows(&reading)? >= 100).then_some(())
    })?;
    assert!(reading.api.rows("/api/v1/logs?limit=1000")?.len() >= 100);
    let tail = reading.api.get("/api/v1/telemetry/logs/tail")?;
    assert_eq!(
        (tail.status, tail.json["code"].as_str()),
        (403, Some("read_only")),
        "{}",
        tail.text
    );
    // Senders are told which key says so, and for good: what they have belongs to the Mixer that writes.
    for path in ["/api/v1/ingest/logs", "/v1/logs", "/loki/api/v1/push", "/api/v1/write"] {
        let refused = reading.api.send(path, &[("Content-Type", "application/json")], b"{}")?;
        assert_eq!(
            (refused.status, refused.json["code"].as_str()),
            (403, Some("read_only")),
            "{path}: {}",
            refused.text
        );
        assert!(refused.text.contains("storage.read_only is true"), "{}", refused.text);
    }
    let other = reading.bus()?;
    assert!(
        other.consumer("flux-telemetry", "ingest").is_err(),
        "a reader takes telemetry in"
    );
    assert!(
        names_in(&reading.telemetry()).is_empty(),
        "a reader's copies lie in its replica folder"
    );
    Ok(())
}

#[test]
fn rows_of_open_files_are_at_another_mixer_an_interval_later() -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let server = runtime.block_on(TestS3::start())?;
    let usual = [
        ("observability.embedded.storage.upload_interval", "\"200ms\""),
        ("ingest.floor", "\"bucket\""),
    ];
    let writing = mixer(&server, &usual)?;
    let now = Timestamp::from(std::time::SystemTime::now());
    let line = |n: u32| format!("{{\"ts\":\"{now}\",\"level\":\"info\",\"message\":\"cut {n}\"}}\n");
    let sent = writing.api.send(
        "/api/v1/ingest/logs?durable=bucket",
        &[("Content-Type", "application/x-ndjson")],
        line(1).as_bytes(),
    )?;
    assert_eq!(sent.status, 200, "{}", sent.text);
    let there = |mixer: &TestMixer, what: &str| {
        let rows = || mixer.api.rows(&format!("/api/v1/logs?limit=10&q={what}")).ok();
        eventually("the row", SOON, || (rows()?.len() == 1).then_some(()))
    };
    let reading = mixer(&server, &[("observability.embedded.storage.read_only", "true")])?;
    there(&reading, "cut%201")?;
    let sent = writing.api.send(
        "/api/v1/ingest/logs",
        &[("Content-Type", "application/x-ndjson")],
        line(2).as_bytes(),
    )?;
    assert_eq!(sent.status, 200, "{}", sent.text);
    there(&reading, "cut%202")?;
    let storage = |name: &str| -> Option<u64> {
        writing.api.get("/api/v1/storage").ok()?.json["data"]["object_store"][name].as_u64()
    };
    eventually("nothing to upload", SOON, || {
        (storage("unuploaded_rows")? == 0).then_some(())
    })?;
    assert!(storage("uploaded_lsn").is_some_and(|lsn| lsn >= 2));
    let local = TestMixer::start("")?;
    let refused = local.api.send(
        "/api/v1/ingest/logs?durable=bucket",
        &[("Content-Type", "application/x-ndjson")],
        line(3).as_bytes(),
    )?;
    assert!(
        refused.status == 422 && refused.text.contains("storage.url"),
        "{}",
        refused.text
    );
    let folder = tempfile::tempdir()?;
    let short = "observability.embedded.storage.url = \"s3://b/p\"\nsnake.telemetry_stream_max_age = \"90s\"\n";
    for (more, named) in [("", "upload_interval"), (short, "telemetry_stream_max_age (90s)")] {
        let toml = format!("api.port = 0\nsnake.port = 0\ningest.floor = \"bucket\"\n{more}");
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        let done = process::run(&binary("platform-mixer")?, &[], folder.path(), &[])?;
        assert!(done.code == Some(78) && done.err.contains(named), "{}", done.err);
    }
    Ok(())
}

#[test]
fn a_store_is_copied_into_a_bucket_and_home_by_the_command() -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let server = runtime.block_on(TestS3::start())?;
    let mut mixer = TestMixer::start("")?;
    let now = Timestamp::from(std::time::SystemTime::now());
    let line = json!([{ "ts": now.to_string(), "level": "info", "message": "brought along" }]);
    mixer.bus()?.send("logs", "script", &line)?;
    let there = |mixer: &TestMixer| {
        let rows = || mixer.api.rows("/api/v1/telemetry/logs?q=brought%20along").ok();
        eventually("the row", SOON, || (rows()?.len() == 1).then_some(()))
    };
    there(&mixer)?;
    assert!(mixer.process()?.terminate(SOON)?.success());

    let variables = variables(&server);
    let envs: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let folder = mixer.path().to_owned();
    let copy = |from: &str, to: &str| {
        let done = process::run(
            &binary("platform-mixer")?,
            &["copy", from, to, "-o", "json"],
            &folder,
            &envs,
        )?;
        assert_eq!(done.code, Some(0), "{from} {to}: {}", done.err);
        Ok::<Value, Failure>(serde_json::from_str(&done.out)?)
    };
    let bucket = format!("s3://{BUCKET}/plant/copied");
    let away = copy("data", &bucket)?;
    std::fs::rename(folder.join("data"), folder.join("former"))?;
    let home = copy(&bucket, "data")?;
    assert!(
        away["files"].as_u64().is_some_and(|files| files > 0) && away["files"] == home["files"],
        "{away} {home}"
    );
    mixer.restart()?;
    there(&mixer)
}

#[test]
fn an_object_store_without_encryption_or_credentials_is_refused() -> Result<(), Failure> {
    let keys = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")];
    let far = ("AWS_ENDPOINT_URL", "http://192.0.2.1:9000");
    for (url, allow, envs, wanted) in [
        ("s3://bucket/prefix", false, vec![], "AWS_ACCESS_KEY_ID"),
        (
            "s3://bucket/prefix",
            false,
            [&keys[..], &[far]].concat(),
            "observability.embedded.storage.allow_http",
        ),
        ("gs://bucket/prefix", false, keys.to_vec(), "S3"),
        (
            "",
            false,
            vec![("PLATFORM_OBSERVABILITY_EMBEDDED_STORAGE_READ_ONLY", "true")],
            "storage.url",
        ),
    ] {
        let folder = tempfile::tempdir()?;
        let url = if url.is_empty() {
            String::new()
        } else {
            format!("observability.embedded.storage.url = {url:?}\n")
        };
        let toml = format!("api.port = 0\nsnake.port = 0\n{url}observability.embedded.storage.allow_http = {allow}\n");
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        let done = process::run(&binary("platform-mixer")?, &[], folder.path(), &envs)?;
        assert_eq!(done.code, Some(78), "{}", done.err);
        assert!(done.err.contains(wanted), "{}", done.err);
        assert!(!done.err.contains("hush-hush"), "{}", done.err);
    }
    Ok(())
}
