//! Sidecars of a store: they come, go and are made anew, and nothing relies on them.

use model::{FluxId, Span, SpanId, SpanStatus, TraceId};

use super::minute_rollup::make_old;
use super::retention::{DAY, by, pass};
use super::*;
use crate::{BlockSelection, IdColumn, NgramQuery, RetentionPolicy, preview_rotation, rebuild_index};

/// What messages of an hour have, and no others.
const NAMES: [&str; 3] = ["matin", "midday", "Söir"];

/// An hour of logs and an hour of spans, of which each row has ids of its own.
async fn fill(bench: &Bench, engine: &Engine, hours: i64) {
    for hour in 0..hours {
        let start = (bench.now().div_euclid(HOUR) - 1 - hour) * HOUR;
        let ids = |n: i64| u128::from(u64::try_from(hour * 1_000 + n).unwrap());
        let flux = |n: i64| FluxId::at(Timestamp::from_micros(start + n), [u8::try_from(n).unwrap(); 10]);
        let trace = |n: i64| TraceId::from_entropy((ids(n) + 1).to_be_bytes());
        let logs: Vec<LogRecord> = (0..40)
            .map(|n| LogRecord {
                ts: Timestamp::from_micros(start + n),
                entity_id: EntityId::for_name("rack-a"),
                entity_name: "rack-a".into(),
                flux_id: (n % 2 == 0).then(|| flux(n)),
                level: Level::Info,
                message: format!("hour {} row {n}", NAMES[usize::try_from(hour).unwrap()]),
                attributes: Attributes::new().with("trace_id", trace(n).to_string()),
            })
            .collect();
        let spans: Vec<Span> = (0..40)
            .map(|n| Span {
                ts: Timestamp::from_micros(start + n),
                trace_id: trace(n),
                span_id: SpanId::from_entropy([1; 8]),
                parent_span_id: None,
                flux_id: Some(flux(n)),
                entity_id: EntityId::for_name("rack-a"),
                entity_name: "rack-a".into(),
                span_name: "send".into(),
                duration_ms: 1.0,
                status: SpanStatus::Ok,
                attributes: Attributes::new(),
            })
            .collect();
        for (table, rows) in [
            (Table::Logs, LogRecord::to_batch(&logs).unwrap()),
            (Table::Traces, Span::to_batch(&spans).unwrap()),
        ] {
            let batch = AppendBatch {
                table,
                origin: BatchOrigin::default(),
                payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
                rows: vec![rows],
            };
            engine.append(batch).await.unwrap();
        }
    }
    engine.flush().await.unwrap();
}

/// A store with sealed files of so many past hours.
pub(super) async fn sealed(bench: &mut Bench, hours: i64) -> Arc<Engine> {
    bench.settings.index = true;
    bench.settings.seal_grace = Duration::ZERO;
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    fill(bench, &engine, hours).await;
    until("all files are sealed", || {
        segments(&engine).iter().all(|segment| segment.sealed)
    })
    .await;
    engine
}

pub(super) fn segments(engine: &Engine) -> Vec<Arc<DataFileHandle>> {
    let view = engine.view();
    let all = [Table::Logs, Table::Traces].map(|table| view.files(table).to_vec());
    all.concat()
}

pub(super) fn sidecars(bench: &Bench) -> Vec<PathBuf> {
    files_below(&bench.settings.store_dir.join("index"))
}

/// Sidecars as they are on a disk.
pub(super) async fn examples() -> Vec<Vec<u8>> {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 1).await;
    engine.index_all().await.unwrap();
    let sidecars = sidecars(&bench);
    sidecars.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The ids of a row, as they are indexed.
fn ids_of(row: &Map<String, Value>) -> Vec<(IdColumn, Vec<u8>)> {
    let flux = row["flux_id"].as_str().map(|id| id.parse::<FluxId>().unwrap());
    let trace = row.get("trace_id").or_else(|| row["attributes"].get("trace_id"));
    let flux = flux.map(|id| (IdColumn::FluxId, id.as_bytes().to_vec()));
    let trace = trace.map(|id| (IdColumn::TraceId, id.as_str().unwrap().as_bytes().to_vec()));
    flux.into_iter().chain(trace).collect()
}

/// Every id of every file is found in it, and in no other file.
pub(super) fn finds_everything(engine: &Engine) {
    let segments = segments(engine);
    for segment in &segments {
        let rows = read(segment);
        let rows = rows
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(|row| row_json(batch, row)));
        for (column, id) in rows.flat_map(|row| ids_of(&row)) {
            for other in &segments {
                let found = other.index().unwrap().ids(column, &id).blocks;
                let is_there = other.id == segment.id || (other.min_ts, other.table) == (segment.min_ts, segment.table);
                if is_there {
                    assert_eq!(found, BlockSelection::Some(vec![0]));
                } else if other.table == segment.table {
                    assert!(found.is_none(), "{found:?}");
                }
            }
        }
    }
}

/// Every text of every file of logs is found in it, and what is in no other file is found in no other.
fn finds_texts(engine: &Engine) {
    let segments = segments(engine);
    let logs = || segments.iter().filter(|segment| segment.table == Table::Logs);
    let found =
        |segment: &DataFileHandle, text: &str| segment.index().unwrap().text(&NgramQuery::of(text).unwrap()).blocks;
    for segment in logs() {
        for batch in read(segment) {
            for row in 0..batch.num_rows() {
                let message = row_json(&batch, row)["message"].as_str().unwrap().to_owned();
                assert!(!found(segment, &message).is_none());
                let name = message.split(' ').nth(1).unwrap();
                let others = logs().filter(|other| other.id != segment.id);
                assert!(!found(segment, &name.to_uppercase()).is_none());
                others.for_each(|other| assert_eq!(found(other, name), BlockSelection::NONE, "{name}"));
            }
        }
        assert!(found(segment, "nowhere").is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_of_another_form_is_made_anew_byte_for_byte() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 3).await;
    engine.index_all().await.unwrap();
    finds_texts(&engine);
    engine.close().await.unwrap();
    drop(engine);
    let with = sidecars(&bench);
    let bytes: Vec<_> = with.iter().map(|path| std::fs::read(path).unwrap()).collect();
    with.iter().for_each(|path| make_old(path));
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    finds_everything(&engine);
    finds_texts(&engine);
    assert_eq!(stats(&engine).index_builds, with.len() as u64);
    assert_eq!(
        with.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>(),
        bytes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sealed_file_gets_an_index_which_finds_its_ids_and_counts_as_stored() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 3).await;
    engine.index_all().await.unwrap();
    finds_everything(&engine);
    let stats = stats(&engine);
    let bytes = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
    assert_eq!(
        (stats.index_files, stats.index_waiting, stats.index_failures),
        (6, 0, 0)
    );
    assert_eq!(stats.index_bytes, sidecars(&bench).iter().map(bytes).sum::<u64>());
    engine.close().await.unwrap();
    assert!(engine.index_all().await.is_err(), "nobody makes them any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_not_shown_as_sealed_before_they_have_their_index() {
    let mut bench = Bench::new();
    bench.settings.index = true;
    bench.settings.seal_grace = Duration::ZERO;
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    fill(&bench, &engine, 3).await;
    let all = async {
        loop {
            let segments = segments(&engine);
            let mut sealed = segments.iter().filter(|segment| segment.sealed);
            assert!(sealed.all(|segment| segment.index().is_some()));
            if segments.len() == 6 && segments.iter().all(|segment| segment.sealed) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    finds_everything(&engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_takes_up_what_is_there_builds_what_lacks_and_removes_what_belongs_to_nothing() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 3).await;
    engine.index_all().await.unwrap();
    engine.close().await.unwrap();
    drop(engine);
    let there = sidecars(&bench);
    let folder = there[0].parent().unwrap().to_owned();
    std::fs::remove_file(&there[1]).unwrap();
    std::fs::write(&there[2], b"torn").unwrap();
    std::fs::write(&there[3], std::fs::read(&there[4]).unwrap()).unwrap();
    std::fs::write(folder.join("segment_00000000000000000900_v1.idx"), b"of nothing").unwrap();
    std::fs::write(there[1].with_extension("new"), b"half").unwrap();
    std::fs::write(folder.join("notes"), b"of somebody else").unwrap();
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    finds_everything(&engine);
    assert_eq!(stats(&engine).index_builds, 3);
    let mut wanted = there.clone();
    wanted.push(folder.join("notes"));
    wanted.sort();
    assert_eq!(sidecars(&bench), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_damaged_while_it_is_used_hides_nothing_and_is_made_anew() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 2).await;
    engine.index_all().await.unwrap();
    for path in sidecars(&bench) {
        let mut bytes = std::fs::read(&path).unwrap();
        // What lies behind the head and the digest.
        bytes.iter_mut().skip(320).for_each(|byte| *byte = !*byte);
        std::fs::write(&path, bytes).unwrap();
    }
    for segment in segments(&engine) {
        let index = segment.index().unwrap();
        let rows: Vec<_> = read(&segment)
            .iter()
            .flat_map(|batch| {
                (0..batch.num_rows())
                    .map(|row| row_json(batch, row))
                    .collect::<Vec<_>>()
            })
            .collect();
        for (column, id) in rows.iter().flat_map(ids_of) {
            assert_eq!(index.ids(column, &id).blocks, BlockSelection::All);
        }
    }
    engine.index_all().await.unwrap();
    finds_everything(&engine);
    assert_eq!(stats(&engine).index_builds, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_goes_with_its_file_whoever_takes_that_away() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Time, ByteSize::mib(1));
    let engine = sealed(&mut bench, 3).await;
    engine.index_all().await.unwrap();
    let damaged = Arc::clone(&engine.view().files(Table::Logs)[0]);
    let mut bytes = std::fs::read(&damaged.path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&damaged.path, bytes).unwrap();
    assert!(matches!(damaged.open(), Err(Error::Damaged { .. })));
    drop(damaged);
    engine.index_all().await.unwrap();
    assert_eq!(sidecars(&bench).len(), 5);
    pass(&bench, &engine, 40 * DAY);
    pass(&bench, &engine, DAY);
    while !segments(&engine).is_empty() {
        engine.rotate().await.unwrap();
    }
    engine.index_all().await.unwrap();
    assert_eq!(sidecars(&bench), [""; 0].map(PathBuf::from));
    assert_eq!((stats(&engine).index_files, stats(&engine).index_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_count_for_the_size_of_the_store() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Time, ByteSize::mib(1));
    let engine = sealed(&mut bench, 3).await;
    engine.index_all().await.unwrap();
    engine.close().await.unwrap();
    drop(engine);
    let clock = Clock::new({
        let now = bench.now();
        move || Timestamp::from_micros(now)
    });
    let all = preview_rotation(&bench.settings, &clock).unwrap().total_bytes;
    let indexes: u64 = sidecars(&bench).iter().map(|path| path.metadata().unwrap().len()).sum();
    let at_most = |bytes| {
        let mut settings = bench.settings.clone();
        settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(bytes));
        preview_rotation(&settings, &clock).unwrap().removals.len()
    };
    let files: u64 = bench.tree().iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(all >= files + indexes && indexes > 0);
    assert_eq!((at_most(all), at_most(all - 1)), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_data_file_is_never_indexed() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 2).await;
    engine.index_all().await.unwrap();
    engine.close().await.unwrap();
    drop(engine);
    for path in sidecars(&bench) {
        std::fs::remove_file(path).unwrap();
    }
    let victim = bench.tree()[0].clone();
    let mut bytes = std::fs::read(&victim).unwrap();
    bytes[100] ^= 4;
    std::fs::write(&victim, bytes).unwrap();
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    let stats = stats(&engine);
    assert_eq!(
        (stats.index_builds, stats.index_failures, stats.index_waiting),
        (3, 1, 1)
    );
    let segments = segments(&engine);
    let segment = segments.iter().find(|segment| segment.path == victim).unwrap();
    assert!(segment.index().is_none());
    assert!(
        matches!(segment.open(), Err(Error::Damaged { .. })),
        "whoever opens it is still told"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_indexes_are_made_anew_of_a_store_that_nobody_has() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 2).await;
    engine.index_all().await.unwrap();
    assert!(matches!(
        rebuild_index(&bench.settings, |_, _| {}),
        Err(Error::Locked { .. })
    ));
    engine.close().await.unwrap();
    drop(engine);
    let before: Vec<Vec<u8>> = sidecars(&bench)
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let paths = sidecars(&bench);
    std::fs::write(&paths[0], b"nothing").unwrap();
    let mut last = (0, 0);
    let report = rebuild_index(&bench.settings, |done, all| last = (done, all)).unwrap();
    assert_eq!((report.files, last, report.problems.len()), (4, (4, 4), 0));
    let after: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(after, before);
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    assert_eq!(stats(&engine).index_builds, 0);
    finds_everything(&engine);
}
