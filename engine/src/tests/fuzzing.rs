//! The fuzzer's targets over the committed corpus and seeded changes of it: a short run everywhere, without the fuzzer.
//!
//! `PLATFORM_TEST_FUZZ_CASES` makes it longer; `UPDATE=1` writes the corpus anew from stores that are made here.

use super::*;
use crate::fuzz::{STORE, TARGETS};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// A generator of its own, so that a seed says the same for ever.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }

    /// One to four changes: a bit, a byte, a number, a piece cut out, doubled, or taken from another input.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let len = self.below(64).min(bytes.len() - at);
            match self.below(7) {
                0 => bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = 0xff),
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..at + len)),
                4 => bytes.extend_from_within(at..at + len),
                5 => {
                    let from = self.below(other.len());
                    let piece = &other[from..(from + len).min(other.len())];
                    bytes.splice(at..at + len, piece.iter().copied());
                }
                _ => {
                    let number = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, u64::MAX][self.below(7)].to_le_bytes();
                    let width = [1, 2, 4, 8][self.below(4)];
                    bytes
                        .iter_mut()
                        .skip(at)
                        .zip(&number[..width])
                        .for_each(|(byte, new)| *byte = *new);
                }
            }
        }
    }
}

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let files = files_below(&corpus().join(target));
    assert!(!files.is_empty(), "{target} has no corpus: UPDATE=1 writes it");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn no_reader_of_stored_or_sent_bytes_panics_on_the_corpus_or_on_changes_of_it() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed: u64 = number("PLATFORM_TEST_SEED").unwrap_or(1);
    let cases = number("PLATFORM_TEST_FUZZ_CASES").unwrap_or(400);
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        inputs.iter().for_each(|input| target(input));
        let mut noise = Noise(seed);
        for case in 0..cases {
            let mut bytes = inputs[noise.below(inputs.len())].clone();
            let other = &inputs[noise.below(inputs.len())];
            noise.change(&mut bytes, other);
            let ended = std::panic::catch_unwind(|| target(&bytes));
            assert!(ended.is_ok(), "{name}, case {case}: PLATFORM_TEST_SEED={seed}");
        }
    }
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
    let value: serde_json::Value = serde_json::from_slice(json).unwrap();
    let mut cbor = Vec::new();
    ciborium::into_writer(&value, &mut cbor).unwrap();
    keep("cbor", "logs", &cbor);
    keep("cbor", "deep", &[vec![0x81; 200], vec![0xf6]].concat());
}
