//! The targets over the committed corpus and seeded changes of it: a short run everywhere, without the fuzzer.
//!
//! `PLATFORM_TEST_FUZZ_CASES` makes it longer; `UPDATE=1` writes the corpus anew from stores that are made here.

use ::model::fuzz::{FuzzFailure, check_targets};

use super::*;
use crate::fuzz::{STORE, targets};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let files = files_below(&corpus().join(target));
    assert!(!files.is_empty(), "{target} has no corpus: UPDATE=1 writes it");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn no_reader_of_stored_or_sent_bytes_panics_on_the_corpus_or_on_changes_of_it() -> Result<(), FuzzFailure> {
    check_targets(&targets(), 400)
}

/// Writes the corpus when `UPDATE=1` says so; the inputs are real files of small stores.
#[tokio::test(flavor = "multi_thread")]
async fn the_corpus_is_made_of_real_files() {
    if std::env::var("UPDATE").as_deref() != Ok("1") {
        assert!(inputs("footer").iter().any(|bytes| bytes.ends_with(b"PAR1")));
        return;
    }
    let keep = |target: &str, name: &str, bytes: &[u8]| {
        let folder = corpus().join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    };
    let bench = Bench::new();
    std::fs::create_dir_all(bench.settings.store_dir.join("meta")).unwrap();
    std::fs::write(bench.settings.store_dir.join("meta/store.id"), format!("{STORE}\n")).unwrap();
    let engine = bench.open().await;
    for seq in 1..=3 {
        let rows = batch(&seq.to_string(), &[bench.now(), bench.now() - 7], from_producer(seq));
        keep("batch", &format!("logs_{seq}"), &rows.payload);
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    engine.append(batch("b", &[bench.now()], from_bus(4))).await.unwrap();
    drop(engine);
    // Its checkpoint names the files.
    drop(bench.open().await);
    for (n, path) in bench.tree().iter().enumerate() {
        keep("footer", &format!("open_{n}"), &std::fs::read(path).unwrap());
    }
    for (n, bytes) in super::index::examples().await.iter().enumerate() {
        keep("index", &format!("sidecar_{n}"), bytes);
    }
    for (name, compression) in [
        ("plain", crate::CompressionCodec::None),
        ("zstd", crate::CompressionCodec::Zstd),
        ("snappy", crate::CompressionCodec::Snappy),
    ] {
        let mut bench = Bench::new();
        bench.settings.format = crate::StorageFormat::Json;
        bench.settings.compression = compression;
        let engine = bench.open().await;
        for seq in 1..=2 {
            let times = [bench.now(), bench.now() - 7];
            engine
                .append(batch(&seq.to_string(), &times, from_producer(seq)))
                .await
                .unwrap();
            engine.flush().await.unwrap();
        }
        keep("lines", name, &std::fs::read(&bench.tree()[0]).unwrap());
    }
    for path in files_below(&bench.settings.store_dir) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = std::fs::read(&path).unwrap();
        if name.starts_with("wal_") {
            // What follows the frames is zeros.
            let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 64;
            keep("log", "segment", &bytes[..end.min(bytes.len())]);
        } else if name.starts_with("catalogue_") && bytes.len() > 16 {
            keep("catalogue", "log", &bytes);
            keep("checkpoint", "record", &bytes[16..bytes.len().min(4_096)]);
        } else if name.starts_with("checkpoint_") {
            keep("checkpoint", "state", &bytes[20..]);
        }
    }
    let json = br#"[{"ts":"2026-11-21T12:30:00Z","level":"info","message":"a","attributes":{"a":{"b":[1,2.5,null]}}}]"#;
    keep("json", "logs", json);
    keep("json", "lines", b"{\"ts\":1763728200000000,\"level\":\"warn\",\"message\":\"\\u00e4\"}\n{\"name\":\"x\",\"value\":1e3,\"type\":\"gauge\"}\n");
    let rows = "{\"ts\":\"2026-11-21T12:30:00Z\",\"level\":\"warn\",\"message\":\"\\u00e4\",\"attributes\":{\"a\":{\"b\":[1,2.5,null]}}}\n\
        {\"ts\":\"2026-11-21T12:30:01.5+02:00\",\"level\":\"info\",\"message\":\"two\"}\n";
    keep("json", "rows", rows.as_bytes());
    let value: serde_json::Value = serde_json::from_slice(json).unwrap();
    let mut cbor = Vec::new();
    ciborium::into_writer(&value, &mut cbor).unwrap();
    keep("cbor", "logs", &cbor);
    keep("cbor", "deep", &[vec![0x81; 200], vec![0xf6]].concat());
}
