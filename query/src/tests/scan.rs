//! Our own scan finds what plans find, in row groups of many pages, without reading what it need not.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::object_store::memory::InMemory;
use engine::{Engine, RemoteSettings, Settings};
use model::filter::{LogFilter, SortOrder};
use model::{ByteSize, Clock, Entropy, LogRecord, Table, Timestamp};

use super::random_world::{self, Random};
use super::{Bench, HOUR, SECOND, append, now, until};
use crate::cursor::{KeysetPosition, PageCursor, fingerprint};
use crate::filter::{self, PageBounds};
use crate::keyset_pagination;
use crate::query_result::JsonPage;
use crate::query_scan::QueryScan;
use crate::row_rendering::RowRendering;
use crate::scan::ScanShortcut;
use crate::time_range::TimeRange;
use crate::{ListQuery, QueryEngine, QueryLimits};

/// Rows that are published as one row group in its final form, of several pages.
const LARGE: i64 = 132_000;
/// When the first of them is: in a past hour.
const START: i64 = 2 * HOUR;

fn begin() -> i64 {
    now().micros().div_euclid(HOUR) * HOUR - START
}

/// Rows of a quarter of an hour, out of order, some of which share their `ts`.
fn many(random: &mut Random) -> Vec<LogRecord> {
    let moment = |n: i64| Timestamp::from_micros(begin() + n * 7919 % LARGE / 3 * 20_000);
    (0..LARGE)
        .map(|n| LogRecord {
            ts: moment(n),
            ..random_world::log(random)
        })
        .collect()
}

fn scan(bench: &Bench, querier: &QueryEngine, window: TimeRange, filter: &LogFilter) -> QueryScan {
    let (session, view) = (querier.pools.typed.acquire_session(), bench.engine.view());
    let mut scan = QueryScan::new(
        (session, view),
        &Arc::default(),
        Table::Logs,
        window,
        filter::logs(filter),
    )
    .unwrap();
    scan.order = filter.order.unwrap_or_default();
    scan
}

fn window(random: &mut Random) -> TimeRange {
    let mut moment = || Timestamp::from_micros(begin() + i64::try_from(random.below(1000)).unwrap() * SECOND);
    let (a, b) = (moment(), moment());
    match random.below(3) {
        0 => TimeRange::ALL,
        1 => TimeRange {
            since: a.min(b),
            until: a.max(b),
        },
        _ => TimeRange::ALL.before(a),
    }
}

/// The page by our scan; asserts that plans find the same.
async fn agreed(
    bench: &Bench,
    by_plans: &QueryEngine,
    window: TimeRange,
    filter: &LogFilter,
    from: Option<KeysetPosition>,
) -> JsonPage {
    let limit = filter.limit.unwrap_or(100) as usize;
    let offset = filter.offset.filter(|_| from.is_none()).unwrap_or(0) as usize;
    let paging = PageBounds { limit, offset };
    let print = fingerprint(filter);
    let mut pages = Vec::new();
    for querier in [&bench.querier, by_plans] {
        let scan = scan(bench, querier, window, filter);
        let list = keyset_pagination::list(&scan, paging, from, print, RowRendering::default()).await;
        pages.push(JsonPage::from(list.unwrap()));
    }
    let (planned, page) = (pages.pop().unwrap(), pages.pop().unwrap());
    assert_eq!(page.rows, planned.rows, "{filter:?} {window:?} {from:?}");
    assert_eq!(page.next_cursor.is_some(), planned.next_cursor.is_some(), "{filter:?}");
    page
}

/// A querier that has no scan of ours.
fn by_plans(bench: &Bench) -> QueryEngine {
    let limits = QueryLimits {
        without: &[ScanShortcut::OwnScan],
        ..bench.limits.clone()
    };
    QueryEngine::new(Arc::clone(&bench.engine), limits, Clock::new(now)).unwrap()
}

async fn filters_agree(bench: &Bench, random: &mut Random) {
    let by_plans = by_plans(bench);
    for _ in 0..12 {
        let filter = random_world::log_filter(random);
        let window = window(random);
        let mut from = None;
        for _ in 0..3 {
            let page = agreed(bench, &by_plans, window, &filter, from).await;
            let Some(token) = page.next_cursor else { break };
            from = Some(PageCursor::parse(&token, fingerprint(&filter)).unwrap().position);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_in_groups_of_many_pages_are_those_that_plans_find() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.append(&many(&mut random)).await;
    bench.publish().await;
    let files = bench.engine.view().files(Table::Logs).to_vec();
    assert!(files.iter().all(|file| !file.sealed));
    drop(files);
    filters_agree(&bench, &mut random).await;
    bench.seal().await;
    assert!(bench.engine.view().files(Table::Logs).iter().all(|file| file.sealed));
    let late: Vec<LogRecord> = many(&mut random).into_iter().take(500).collect();
    bench.append(&late[..250]).await;
    bench.publish().await;
    bench.append(&late[250..]).await;
    filters_agree(&bench, &mut random).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_rows_of_a_large_file_cost_a_few_pages_and_those_only_once() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.append(&many(&mut random)).await;
    bench.seal().await;
    let size: u64 = bench
        .engine
        .view()
        .files(Table::Logs)
        .iter()
        .map(|file| file.size)
        .sum();
    let newest = LogFilter {
        limit: Some(5),
        since: Some("24h".parse().unwrap()),
        ..LogFilter::default()
    };
    let first = bench.querier.page(ListQuery::Logs(newest.clone())).await.unwrap();
    assert_eq!(first.rows.len(), 5);
    assert!((5..5_000).contains(&first.stats.rows_scanned), "{:?}", first.stats);
    assert!(first.stats.bytes_read < size / 2, "{:?} of {size}", first.stats);
    let again = bench.querier.page(ListQuery::Logs(newest.clone())).await.unwrap();
    assert_eq!(again.rows, first.rows);
    assert_eq!(
        (again.stats.bytes_read, again.stats.files_read),
        (0, 1),
        "{:?}",
        again.stats
    );
    assert!(again.stats.cache_hits > 0);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_rows_of_a_large_file_cost_a_few_pages_too() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.append(&many(&mut random)).await;
    for _ in ["open", "sealed"] {
        bench.publish().await;
        let oldest = LogFilter {
            limit: Some(5),
            since: Some("24h".parse().unwrap()),
            order: Some(SortOrder::Asc),
            ..LogFilter::default()
        };
        let page = bench.querier.page(ListQuery::Logs(oldest.clone())).await.unwrap();
        let first = Timestamp::from_micros(begin()).to_string();
        assert_eq!(
            (page.rows.len(), page.rows[0]["ts"].as_str()),
            (5, Some(first.as_str()))
        );
        assert!((5..5_000).contains(&page.stats.rows_scanned), "{:?}", page.stats);
        bench.seal().await;
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rows_of_one_moment_than_a_scan_keeps_are_each_given_once() {
    const MANY: usize = 70_000;
    let mut random = Random::new();
    let bench = Bench::new().await;
    let rows: Vec<LogRecord> = (0..MANY)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(now().micros() - HOUR),
            message: n.to_string(),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&rows).await;
    let all = LogFilter::default();
    let scan = scan(&bench, &bench.querier, TimeRange::ALL, &all);
    assert!(scan.top_k(TimeRange::ALL, None, 0, 10).await.unwrap().is_none());
    let mut filter = LogFilter {
        limit: Some(10_000),
        ..LogFilter::default()
    };
    let mut given = HashSet::new();
    loop {
        let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        for row in &page.rows {
            assert!(given.insert(row["message"].as_str().unwrap().to_owned()), "{row:?}");
        }
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(given.len(), MANY);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_nobody_waits_for_ends_before_it_has_read_everything() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    bench.append(&many(&mut random)).await;
    bench.publish().await;
    let nowhere = LogFilter {
        q: Some("not in any message".to_owned()),
        ..LogFilter::default()
    };
    let scan = scan(&bench, &bench.querier, TimeRange::ALL, &nowhere);
    tokio::select! {
        biased;
        _ = scan.top_k(TimeRange::ALL, None, 0, 10) => panic!("it has read everything at once"),
        () = std::future::ready(()) => {}
    }
    // Returns when no thread reads any more.
    bench.querier.close().await;
    assert!(scan.stats(0).rows_scanned < LARGE.unsigned_abs());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_only_the_object_store_has_are_fetched_and_answer() {
    let mut random = Random::new();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(dir.path().join("store"));
    let mut remote = RemoteSettings::new("mem://bucket", Arc::new(InMemory::new()), "store".into());
    remote.cache_size = ByteSize::bytes(0);
    remote.poll = Duration::from_millis(20);
    remote.upload_interval = Duration::from_millis(20);
    settings.remote = Some(remote);
    settings.flush_interval = Duration::from_millis(20);
    settings.seal_grace = Duration::ZERO;
    let entropy = Entropy::new(|bytes| bytes.fill(7));
    let engine = Engine::open(settings, Clock::new(now), entropy).await.unwrap();
    let rows: Vec<LogRecord> = (0..300).map(|_| random_world::log(&mut random)).collect();
    let past = |row: &&LogRecord| row.ts.micros() < now().micros().div_euclid(HOUR) * HOUR;
    let rows: Vec<LogRecord> = rows.iter().filter(past).cloned().collect();
    append(&engine, &rows).await;
    until("no file to be here", || {
        let view = engine.view();
        let files = view.files(Table::Logs);
        !files.is_empty() && files.iter().all(|file| file.is_uploaded() && !file.path.exists())
    })
    .await;
    let limits = QueryLimits::new(ByteSize::mib(64), Duration::from_secs(60), 4);
    let querier = QueryEngine::new(Arc::clone(&engine), limits, Clock::new(now)).unwrap();
    let all = LogFilter {
        limit: Some(1_000),
        ..LogFilter::default()
    };
    let answers = futures::future::join_all((0..4).map(|_| querier.page(ListQuery::Logs(all.clone())))).await;
    for answer in answers {
        assert_eq!(answer.unwrap().rows.len(), rows.len());
    }
    querier.close().await;
    engine.close().await.unwrap();
}
