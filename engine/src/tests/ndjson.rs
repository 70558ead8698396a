//! Stores of lines: the same promises as for Parquet, for every compression.

use std::io::Read;

use super::*;
use crate::{CompressionCodec, StorageFormat, check_store, rebuild_catalogue};

const ALL: [(CompressionCodec, &str); 3] = [
    (CompressionCodec::None, "json"),
    (CompressionCodec::Zstd, "json.zst"),
    (CompressionCodec::Snappy, "json.sz"),
];

fn bench(compression: CompressionCodec) -> Bench {
    let mut bench = Bench::new();
    bench.settings.format = StorageFormat::Json;
    bench.settings.compression = compression;
    bench
}

/// The lines of a file as any reader of its compression finds them.
fn lines(path: &Path) -> Vec<Value> {
    let mut file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    match path.extension().unwrap().to_str().unwrap() {
        "zst" => zstd::Decoder::new(file).unwrap().read_to_string(&mut text),
        "sz" => snap::read::FrameDecoder::new(file).read_to_string(&mut text),
        _ => file.read_to_string(&mut text),
    }
    .unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn outside(bench: &Bench) -> Vec<String> {
    let mut all: Vec<String> = bench
        .tree()
        .iter()
        .flat_map(|path| lines(path))
        .map(|row| row["message"].as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_publish_grows_one_file_that_any_reader_of_lines_reads() {
    for (compression, ending) in ALL {
        let bench = bench(compression);
        let engine = bench.open().await;
        let mut wanted = Vec::new();
        for round in 0..5 {
            let times = [bench.now() - round, bench.now()];
            engine
                .append(batch(&round.to_string(), &times, from_producer(round as u64 + 1)))
                .await
                .unwrap();
            engine.flush().await.unwrap();
            wanted.extend([format!("{round}/0"), format!("{round}/1")]);
            assert_eq!(
                (outside(&bench), messages(&engine.view())),
                (wanted.clone(), wanted.clone())
            );
        }
        let tree = bench.tree();
        assert_eq!(tree.len(), 1);
        assert!(
            tree[0].to_str().unwrap().ends_with(&format!("logs_001.{ending}")),
            "{tree:?}"
        );
        let row = lines(&tree[0]).remove(0);
        let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        let columns = [
            "attributes",
            "entity_id",
            "entity_name",
            "flux_id",
            "level",
            "message",
            "ts",
        ];
        let mut sorted: Vec<_> = keys.iter().map(|key| key.as_str()).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, columns);
        assert!(row["attributes"].is_object() && row["flux_id"].is_null());
        assert_eq!(
            row,
            Value::Object(row_json(&read(&engine.view().files(Table::Logs)[0])[0], 0))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_file_has_the_lines_of_the_open_one_and_stays() {
    for (compression, _) in ALL {
        let mut bench = bench(compression);
        bench.ticks_every(Duration::from_millis(10));
        bench.settings.seal_grace = Duration::ZERO;
        let engine = bench.open().await;
        for round in 0..20 {
            engine
                .append(batch(
                    &format!("{round:02}"),
                    &[bench.now(), bench.now() - round],
                    BatchOrigin::default(),
                ))
                .await
                .unwrap();
            engine.flush().await.unwrap();
        }
        let before = messages(&engine.view());
        let open = engine.view();
        bench.advance(Duration::from_secs(7_200));
        until("the file is sealed", || stats(&engine).open_files == 0).await;
        assert_eq!(
            (messages(&engine.view()), outside(&bench)),
            (before.clone(), before.clone())
        );
        assert_eq!(messages(&open), before, "a view of before the seal");
        let size = open.files(Table::Logs)[0].size;
        assert!(
            engine.view().files(Table::Logs)[0].size < size,
            "no description between frames any more"
        );
        drop(open);
        engine.close().await.unwrap();
        let report = check_store(&bench.settings, true, |_, _| {}).unwrap();
        assert_eq!(
            (report.files, report.rows, report.problems.len(), report.strangers.len()),
            (1, 40, 0, 0)
        );
        assert_eq!(messages(&bench.open().await.view()), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_whose_record_was_lost_is_adopted_and_a_torn_end_is_cut() {
    for (compression, _) in ALL {
        let bench = bench(compression);
        let engine = bench.open().await;
        engine
            .append(batch("a", &[bench.now()], from_producer(1)))
            .await
            .unwrap();
        engine.flush().await.unwrap();
        engine
            .append(batch("b", &[bench.now()], from_producer(2)))
            .await
            .unwrap();
        let before = bench.dir.path().join("before");
        for part in ["meta", "wal"] {
            copy_tree(&bench.settings.store_dir.join(part), &before.join(part));
        }
        engine.flush().await.unwrap();
        drop(engine);
        for torn in [false, true] {
            for part in ["meta", "wal"] {
                let path = bench.settings.store_dir.join(part);
                std::fs::remove_dir_all(&path).unwrap();
                copy_tree(&before.join(part), &path);
            }
            if torn {
                let path = &bench.tree()[0];
                let bytes = std::fs::read(path).unwrap();
                std::fs::write(path, &bytes[..bytes.len() - 3]).unwrap();
            }
            let engine = bench.open().await;
            assert_eq!(messages(&engine.view()), ["a/0", "b/0"], "torn: {torn}");
            assert_eq!(
                stats(&engine).replayed_rows,
                u64::from(torn),
                "the file had the row unless it was torn"
            );
            drop(engine);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalogue_is_made_anew_from_the_files() {
    for (compression, _) in ALL {
        let bench = bench(compression);
        let engine = bench.open().await;
        for round in 0..4 {
            let times = [bench.now(), bench.now() - HOUR];
            engine
                .append(batch(&round.to_string(), &times, from_producer(round + 1)))
                .await
                .unwrap();
            engine.flush().await.unwrap();
        }
        engine.close().await.unwrap();
        std::fs::remove_dir_all(bench.settings.store_dir.join("meta")).unwrap();
        let now = Timestamp::from_micros(bench.now());
        let report = rebuild_catalogue(&bench.settings, now, |_, _| {}).unwrap();
        assert_eq!((report.files, report.rows, report.problems.len()), (2, 8, 0));
        let engine = bench.open().await;
        assert_eq!(messages(&engine.view()).len(), 8);
        let again = batch("again", &[bench.now()], from_producer(4));
        assert_eq!(engine.append(again).await.unwrap(), AppendOutcome::Duplicate);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_file_of_lines_is_found() {
    for (compression, _) in ALL {
        let bench = bench(compression);
        let engine = bench.open().await;
        engine
            .append(batch("a", &[bench.now(); 50], BatchOrigin::default()))
            .await
            .unwrap();
        engine.close().await.unwrap();
        let path = &bench.tree()[0];
        let good = std::fs::read(path).unwrap();
        for at in (0..good.len()).step_by(97) {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            std::fs::write(path, &bytes).unwrap();
            let report = check_store(&bench.settings, true, |_, _| {}).unwrap();
            assert_eq!(report.problems.len(), 1, "byte {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_all_forms_live_side_by_side_and_each_keeps_its_own() {
    let mut bench = Bench::new();
    let forms = [
        (StorageFormat::Parquet, CompressionCodec::Zstd),
        (StorageFormat::Json, CompressionCodec::None),
        (StorageFormat::Json, CompressionCodec::Zstd),
        (StorageFormat::Json, CompressionCodec::Snappy),
        (StorageFormat::Parquet, CompressionCodec::None),
    ];
    for (round, (format, compression)) in (0..).zip(forms) {
        bench.settings.format = format;
        bench.settings.compression = compression;
        let engine = bench.open().await;
        // One row for an hour of its own, and one for the hour whose file was begun as Parquet.
        let times = [bench.now() - (round + 1) * HOUR, bench.now()];
        engine
            .append(batch(&round.to_string(), &times, BatchOrigin::default()))
            .await
            .unwrap();
        engine.close().await.unwrap();
    }
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()).len(), 10);
    let names: Vec<String> = bench
        .tree()
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.ends_with(".parquet")).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_beyond_the_open_files_become_sealed_files_of_lines() {
    let mut bench = bench(CompressionCodec::Zstd);
    bench.settings.open_max = 1;
    let engine = bench.open().await;
    let times: Vec<i64> = (0..5).map(|hour| bench.now() - hour * HOUR).collect();
    engine.append(batch("a", &times, BatchOrigin::default())).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!(outside(&bench).len(), 5);
    assert!(
        engine
            .view()
            .files(Table::Logs)
            .iter()
            .any(|file| file.sealed && !file.is_parquet())
    );
    assert_eq!(messages(&engine.view()).len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_the_tree_under_load_finds_whole_lines_each_once() {
    for (compression, _) in ALL {
        let mut bench = bench(compression);
        bench.ticks_every(Duration::from_millis(5));
        bench.settings.segment_size = ByteSize::bytes(64 << 10);
        bench.settings.seal_grace = Duration::ZERO;
        let engine = bench.open().await;
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let watch = {
            let (engine, done, data_dir) = (Arc::clone(&engine), Arc::clone(&done), bench.settings.data_dir.clone());
            std::thread::spawn(move || {
                let mut looks = 0;
                while !done.load(Ordering::Acquire) {
                    let published = stats(&engine).file_rows;
                    let mut seen: Vec<String> = files_below(&data_dir)
                        .iter()
                        .flat_map(|path| lines(path))
                        .map(|row| row["message"].to_string())
                        .collect();
                    let rows = seen.len();
                    seen.sort();
                    seen.dedup();
                    assert_eq!(seen.len(), rows, "a line twice");
                    assert!(
                        rows as u64 >= published,
                        "{rows} lines seen, {published} were published"
                    );
                    looks += 1;
                }
                looks
            })
        };
        for n in 0..150 {
            let times: Vec<i64> = (0..50).map(|row| bench.now() - row * HOUR / 40).collect();
            engine
                .append(batch(&format!("{n:04}"), &times, from_producer(n + 1)))
                .await
                .unwrap();
        }
        bench.advance(Duration::from_secs(7_200));
        until("every file is sealed", || {
            stats(&engine).open_files + stats(&engine).memtable_rows == 0
        })
        .await;
        done.store(true, Ordering::Release);
        assert!(watch.join().unwrap() > 3);
        assert_eq!(outside(&bench).len(), 7_500);
    }
}
