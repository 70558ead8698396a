//! An index changes what is read, never what is answered: the reference tests hold without one, with all, and with damaged ones;
//! lookups open only the files that can have the id.

use std::path::Path;

use model::filter::{LogFilter, TraceFilter};
use model::{FluxId, LogRecord, Span, TraceId};

use super::damage::files_below;
use super::random_world::{self, Random};
use super::rows::{logs_agree, scattered, spans_agree, trace_agrees};
use super::*;
use crate::ListQuery;

pub(super) fn sidecars(bench: &Bench) -> Vec<PathBuf> {
    let mut files = Vec::new();
    files_below(&bench.folder().join("store/index"), &mut files);
    files
}

/// Flips a byte of each bucket, and some of the directory: what lies behind the head and the digest.
pub(super) fn damage(path: &Path, random: &mut Random) {
    const HEAD: usize = 320;
    let mut bytes = std::fs::read(path).unwrap();
    for piece in bytes.iter_mut().skip(HEAD).collect::<Vec<_>>().chunks_mut(12) {
        let at = usize::try_from(random.below(piece.len() as u64)).unwrap();
        *piece[at] ^= 1 << random.below(8);
    }
    // In its place: who has it open must meet it.
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
}

/// How many files of the view have an index.
fn indexed(bench: &Bench) -> usize {
    let view = bench.engine.view();
    let files = model::Table::ALL.map(|table| view.files(table).to_vec());
    files.iter().flatten().filter(|file| file.index().is_some()).count()
}

/// Everything that is asked of ids, and of the rest, against a reading of all rows.
async fn agree(bench: &Bench, logs: &[LogRecord], spans: &[Span], random: &mut Random) {
    logs_agree(bench, logs, random).await;
    spans_agree(bench, spans, random).await;
    for n in 0..6 {
        trace_agrees(bench, spans, logs, random_world::trace(n)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_without_indexes_with_all_and_with_damaged_ones() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(false).await;
    let mut logs = scattered(&mut bench, &mut random, random_world::log).await;
    let mut spans = scattered(&mut bench, &mut random, random_world::span).await;
    assert_eq!(indexed(&bench), 0);
    agree(&bench, &logs, &spans, &mut random).await;

    bench.set_index(true).await;
    // In memory again: what was there has gone into files.
    let (log, span) = (random_world::log(&mut random), random_world::span(&mut random));
    bench.append(std::slice::from_ref(&log)).await;
    bench.append(std::slice::from_ref(&span)).await;
    logs.push(log);
    spans.push(span);
    bench.engine.index_all().await.unwrap();
    let all = indexed(&bench);
    assert!(all > 0 && bench.engine.stats().index_waiting == 0);
    agree(&bench, &logs, &spans, &mut random).await;

    sidecars(&bench).iter().for_each(|path| damage(path, &mut random));
    agree(&bench, &logs, &spans, &mut random).await;
    bench.engine.index_all().await.unwrap();
    let stats = bench.engine.stats();
    assert!(indexed(&bench) == all && stats.index_builds > all as u64, "{stats:?}");
    agree(&bench, &logs, &spans, &mut random).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_with_indexes_in_memory() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_indexing(Indexing::InMemory).await;
    let logs = scattered(&mut bench, &mut random, random_world::log).await;
    let spans = scattered(&mut bench, &mut random, random_world::span).await;
    bench.engine.index_all().await.unwrap();
    for _ in 0..2 {
        agree(&bench, &logs, &spans, &mut random).await;
    }
    bench.close().await;
}

/// Rows of so many past hours, in each of which every row has an id of its own.
pub(super) struct Hours {
    pub(super) logs: Vec<LogRecord>,
    pub(super) spans: Vec<Span>,
}

impl Hours {
    pub(super) const COUNT: i64 = 20;
    pub(super) const ROWS: i64 = 30;

    pub(super) fn new(random: &mut Random) -> Self {
        let moment = |hour: i64, n: i64| {
            let start = (now().micros().div_euclid(HOUR) - 1 - hour) * HOUR;
            Timestamp::from_micros(start + n * SECOND)
        };
        let places = || (0..Self::COUNT).flat_map(|hour| (0..Self::ROWS).map(move |n| (hour, n)));
        let logs = places().map(|(hour, n)| LogRecord {
            ts: moment(hour, n),
            flux_id: Some(flux(hour, n)),
            attributes: model::Attributes::new().with("trace_id", trace(hour, n).to_string()),
            ..random_world::log(random)
        });
        let logs = logs.collect();
        let spans = places().map(|(hour, n)| Span {
            ts: moment(hour, n),
            trace_id: trace(hour, n),
            flux_id: Some(flux(hour, n)),
            ..random_world::span(random)
        });
        Self {
            logs,
            spans: spans.collect(),
        }
    }
}

/// Ids in no order of time, so that least and greatest rule nothing out.
pub(super) fn flux(hour: i64, n: i64) -> FluxId {
    let mut bytes = *trace_bytes(hour, n);
    bytes[6] = 0x40 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    uuid_text(bytes).parse().unwrap()
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

pub(super) fn trace(hour: i64, n: i64) -> TraceId {
    TraceId::from_entropy(*trace_bytes(hour, n))
}

fn trace_bytes(hour: i64, n: i64) -> Box<[u8; 16]> {
    let mut mixed = (u64::try_from(hour * 1_000 + n).unwrap() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    let mut bytes = Box::new([0; 16]);
    bytes[..8].copy_from_slice(&mixed.to_be_bytes());
    bytes[8..].copy_from_slice(&mixed.rotate_left(17).to_le_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_opens_only_the_files_that_can_have_it_hit_or_miss() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(true).await;
    let hours = Hours::new(&mut random);
    bench.append(&hours.logs).await;
    bench.append(&hours.spans).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let files = u64::try_from(Hours::COUNT).unwrap();
    let since = Some("48h".parse().unwrap());
    let mut opened = 0;
    for hour in 0..Hours::COUNT {
        let (flux_id, trace_id) = (Some(flux(hour, 7)), Some(trace(hour, 7)));
        let logs = LogFilter {
            since,
            flux_id,
            ..LogFilter::default()
        };
        let by_flux = bench.querier.page(ListQuery::Logs(logs.clone())).await.unwrap();
        let logs = LogFilter {
            since,
            trace_id,
            ..LogFilter::default()
        };
        let by_trace = bench.querier.page(ListQuery::Logs(logs.clone())).await.unwrap();
        let spans = TraceFilter {
            since,
            flux_id,
            ..TraceFilter::default()
        };
        let spans = bench.querier.page(ListQuery::Traces(spans.clone())).await.unwrap();
        for page in [by_flux, by_trace, spans] {
            let stats = page.stats;
            assert_eq!((page.rows.len(), stats.files_considered), (1, files), "{stats:?}");
            assert_eq!(stats.files_read + stats.files_pruned, files, "{stats:?}");
            opened += stats.files_read;
        }
        let (spans, logs) = spans_and_logs(&bench.querier, trace(hour, 7)).await.unwrap();
        assert_eq!((spans.rows.len(), logs.rows.len(), logs.next_cursor), (1, 1, None));
        assert!(
            spans.stats.files_read <= 4 && spans.stats.bytes_read > 0,
            "{:?}",
            spans.stats
        );
    }
    // Another file looks as if it had the id once in some thousand times.
    assert!(opened <= files * 3 + 3, "{opened}");
    opened = 0;
    for n in 0..40 {
        let missing = LogFilter {
            since,
            flux_id: Some(flux(900, n)),
            ..LogFilter::default()
        };
        let page = bench.querier.page(ListQuery::Logs(missing.clone())).await.unwrap();
        assert_eq!(page.rows.len(), 0);
        assert_eq!(page.stats.files_pruned + page.stats.files_read, files);
        assert!(page.stats.bytes_read > 0, "what is read of indexes counts");
        opened += page.stats.files_read;
        assert!(bench.querier.trace(trace(900, n)).await.is_err());
    }
    assert!(opened <= 3, "{opened}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_miss_reads_each_small_index_once() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_indexing(Indexing::InMemory).await;
    let hours = Hours::new(&mut random);
    bench.append(&hours.logs).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let mut read = 0;
    for n in 0..40 {
        let missing = LogFilter {
            since: Some("48h".parse().unwrap()),
            flux_id: Some(flux(900, n)),
            ..LogFilter::default()
        };
        let stats = bench
            .querier
            .page(ListQuery::Logs(missing.clone()))
            .await
            .unwrap()
            .stats;
        assert_eq!(stats.files_pruned + stats.files_read, stats.files_considered);
        if stats.files_read == 0 {
            read += stats.bytes_read;
        }
    }
    let indexes = bench.engine.stats().index_bytes;
    assert!((1..indexes).contains(&read), "{read} of {indexes}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_large_file_only_the_blocks_with_the_id_are_read() {
    const ROWS: i64 = 132_000;
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(true).await;
    let start = now().micros().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let rows: Vec<LogRecord> = (0..ROWS)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(start + n * 20_000),
            flux_id: Some(flux(n % 11_000, 0)),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&rows).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let filter = LogFilter {
        since: Some("48h".parse().unwrap()),
        flux_id: Some(flux(4_711, 0)),
        ..LogFilter::default()
    };
    let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
    assert_eq!(page.rows.len(), 12);
    assert!((12..=13 * 2048).contains(&page.stats.rows_scanned), "{:?}", page.stats);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_has_its_newest_thousand_logs_by_time() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let id = random_world::trace(1);
    let span = Span {
        trace_id: id,
        ts: now(),
        ..random_world::span(&mut random)
    };
    bench.append(std::slice::from_ref(&span)).await;
    let log = |n: i64| LogRecord {
        ts: Timestamp::from_micros(now().micros() - n * SECOND),
        message: n.to_string(),
        attributes: model::Attributes::new().with("trace_id", id.to_string()),
        ..random_world::log(&mut Random::new())
    };
    bench.append(&(0..1_005).map(log).collect::<Vec<_>>()).await;
    // Too far from the span.
    bench.append(&[log(3_601)]).await;
    let (_, logs) = spans_and_logs(&bench.querier, id).await.unwrap();
    assert!(logs.next_cursor.is_some());
    let messages: Vec<&str> = logs.rows.iter().map(|log| log["message"].as_str().unwrap()).collect();
    let wanted: Vec<String> = (0..1_000).rev().map(|n| n.to_string()).collect();
    assert_eq!(messages, wanted);
    bench.close().await;
}
