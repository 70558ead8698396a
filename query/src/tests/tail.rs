//! Each follower gets each row that its filter lets through once, or is told how many it missed: whatever is appended, published, sealed,
//! killed and opened again meanwhile, however slowly it reads and however often it comes back.

use std::collections::HashMap;

use model::batch::row_json;
use model::filter::{LogFilter, TimePoint};
use model::{LogRecord, TelemetryRecord};
use serde_json::Value;

use super::random_world::{Random, log, log_filter};
use super::rows::lets_log;
use super::*;
use crate::{Error, LiveTail};

/// What a reader has, and what it should have.
struct Reader {
    filter: LogFilter,
    tail: Option<LiveTail>,
    last: Option<String>,
    /// How often each row was given, and how often it should have been.
    given: HashMap<String, i64>,
    wanted: u64,
    got: u64,
    missed: u64,
    unseen: u64,
    gaps: u64,
    /// Whether anything came since it connected last.
    heard: bool,
    /// The latest `ts` of its backlog so far, while that comes.
    backlog: Option<String>,
}

fn text_of(row: &LogRecord) -> String {
    Value::Object(row_json(&LogRecord::to_batch(std::slice::from_ref(row)).unwrap(), 0)).to_string()
}

impl Reader {
    fn of(filter: LogFilter) -> Self {
        Self {
            tail: None,
            last: None,
            given: HashMap::new(),
            wanted: 0,
            got: 0,
            missed: 0,
            unseen: 0,
            gaps: 0,
            heard: false,
            backlog: None,
            filter,
        }
    }

    /// Follows from now on, with what is there if the filter says since when.
    fn new(bench: &Bench, filter: LogFilter, there: &[LogRecord]) -> Self {
        let mut reader = Self::of(filter);
        let mut backlog: Vec<_> = match (reader.filter.since, reader.filter.limit) {
            (None, None) => Vec::new(),
            _ => there.iter().filter(|row| lets_log(&reader.filter, row)).collect(),
        };
        if let Some(limit) = reader.filter.limit {
            // Which of equal times come is not asked: the tests with a limit have none.
            backlog.sort_by_key(|row| std::cmp::Reverse(row.ts));
            backlog.truncate(limit as usize);
        }
        backlog.into_iter().for_each(|row| reader.want(row));
        reader.connect(bench);
        reader
    }

    fn want(&mut self, row: &LogRecord) {
        *self.given.entry(text_of(row)).or_default() -= 1;
        self.wanted += 1;
    }

    /// Rows become visible.
    fn see(&mut self, rows: &[LogRecord]) {
        let filter = LogFilter {
            since: Some(TimePoint::Ago("240h".parse().unwrap())),
            ..self.filter.clone()
        };
        rows.iter()
            .filter(|row| lets_log(&filter, row))
            .for_each(|row| self.want(row));
    }

    fn connect(&mut self, bench: &Bench) {
        let resume = self.last.as_deref().map(|last| ("Last-Event-ID", last));
        self.tail = Some(bench.querier.tail(&self.filter, resume).unwrap());
        self.heard = false;
    }

    fn is_done(&self) -> bool {
        self.got + self.missed + self.unseen >= self.wanted
    }

    /// Reads one piece, if it comes in time.
    async fn read(&mut self, patience: Duration) {
        let Some(tail) = &mut self.tail else { return };
        let Ok(Some(piece)) = tokio::time::timeout(patience, tail.next()).await else {
            return;
        };
        self.heard = true;
        let piece = String::from_utf8(piece.to_vec()).unwrap();
        for event in piece.split_terminator("\n\n") {
            let field = |name: &str| {
                event
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            };
            match (field("event"), field("data")) {
                (None, None) => {}
                (None, Some(data)) => {
                    *self.given.entry(data.to_owned()).or_default() += 1;
                    self.got += 1;
                    let row: Value = serde_json::from_str(data).unwrap();
                    let ts = row["ts"].as_str().unwrap().to_owned();
                    let in_backlog = field("id").is_some_and(|id| id.matches('-').count() > 2);
                    if let Some(before) = self.backlog.take().filter(|_| in_backlog) {
                        assert!(before <= ts, "a backlog comes oldest first: {before}, then {ts}");
                    }
                    self.backlog = in_backlog.then_some(ts);
                }
                (Some("lagged"), Some(data)) => {
                    let data: Value = serde_json::from_str(data).unwrap();
                    self.missed += data["missed"].as_u64().unwrap();
                    self.unseen += data["unseen"].as_u64().unwrap_or(0);
                    assert_eq!(data["resume"].as_str(), field("id"));
                }
                (Some("gap"), Some(_)) => self.gaps += 1,
                other => panic!("{other:?}"),
            }
            self.last = field("id").map(str::to_owned).or(self.last.take());
        }
    }

    /// Whether it has been told of a live position that is not before this batch.
    fn is_at(&self, lsn: u64) -> bool {
        let mut parts = self.last.as_deref().unwrap_or_default().split('-').skip(1);
        let at = parts.next().and_then(|at| u64::from_str_radix(at, 16).ok());
        at.is_some_and(|at| at >= lsn) && parts.count() == 1
    }

    /// Reads until it is where the store is.
    async fn catch_up(&mut self, bench: &Bench) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let end = bench.engine.follow(model::Table::Logs).unwrap().1.position().lsn;
        while !self.is_at(end) && self.gaps == 0 {
            assert!(Instant::now() < deadline, "{:?} of {end:x}", self.last);
            self.read(Duration::from_millis(200)).await;
        }
    }

    async fn finish(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !(self.is_done() && self.heard) && self.gaps == 0 {
            assert!(
                Instant::now() < deadline,
                "{:?}: {} of {}; last {:?}; these never came: {:#?}",
                self.filter,
                self.got + self.missed,
                self.wanted,
                self.last,
                self.given
                    .iter()
                    .filter(|(_, balance)| **balance < 0)
                    .collect::<Vec<_>>()
            );
            self.read(Duration::from_millis(200)).await;
        }
        // What came twice or unasked for is there at once.
        self.read(Duration::from_millis(50)).await;
    }

    fn judge(&self) {
        let Self {
            got,
            missed,
            unseen,
            wanted,
            ..
        } = self;
        for (row, balance) in &self.given {
            assert!(
                *balance <= 0,
                "given {balance} times too often under {:?}: {row}",
                self.filter
            );
        }
        if self.gaps == 0 {
            assert!(got + missed <= *wanted, "{got} + {missed} of {wanted}");
            assert!(
                got + missed + unseen >= *wanted,
                "{got} + {missed} + {unseen} of {wanted}"
            );
            if *unseen == 0 {
                assert_eq!(got + missed, *wanted);
            }
        }
    }
}

fn filter(random: &mut Random) -> LogFilter {
    let since = random.maybe(2, |random| TimePoint::At(random.moment()));
    let filter = random.maybe(2, log_filter).unwrap_or_default();
    LogFilter {
        since,
        until: None,
        limit: None,
        offset: None,
        order: None,
        ..filter
    }
}

/// A store that is killed and opened again, with its ring.
async fn reopen(bench: &mut Bench, tail_max: model::ByteSize, orderly: bool) {
    bench.querier.close().await;
    if orderly {
        bench.engine.close().await.unwrap();
    }
    // The last ones that hold the store: its lock goes with them.
    let nothing = tempfile::tempdir().unwrap();
    let other = open_at(&nothing, Duration::from_secs(3_600), Clock::new(now)).await;
    let querier = QueryEngine::new(Arc::clone(&other), bench.limits.clone(), Clock::new(now)).unwrap();
    drop(std::mem::replace(&mut bench.querier, querier));
    drop(std::mem::replace(&mut bench.engine, other));
    let engine = open_with(&bench.dir, tail_max).await;
    bench.querier = QueryEngine::new(Arc::clone(&engine), bench.limits.clone(), Clock::new(now)).unwrap();
    bench.engine = engine;
}

async fn open_with(dir: &tempfile::TempDir, tail_max: model::ByteSize) -> Arc<Engine> {
    let mut settings = Settings::new(dir.path().join("store"));
    settings.flush_interval = Duration::from_secs(3_600);
    settings.tail_max = tail_max;
    loop {
        let entropy = Entropy::new(|bytes| bytes.fill(7));
        match Engine::open(settings.clone(), Clock::new(now), entropy).await {
            // The tasks of a plan whose limit was reached end a moment later.
            Err(engine::Error::Locked { .. }) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

/// Goes on where a reader was; one that has heard nothing begins anew.
fn come_back(bench: &Bench, reader: &mut Reader, there: &[LogRecord]) {
    match reader.last {
        Some(_) => reader.connect(bench),
        None => *reader = Reader::new(bench, reader.filter.clone(), there),
    }
}

/// Random steps; how many gaps there were.
async fn play(random: &mut Random, tail_max: model::ByteSize, steps: usize) -> (u64, u64) {
    let mut bench = Bench::new().await;
    reopen(&mut bench, tail_max, true).await;
    let mut all: Vec<LogRecord> = Vec::new();
    let mut readers: Vec<Reader> = Vec::new();
    for _ in 0..steps {
        match random.below(20) {
            0..=7 => {
                let mut rows: Vec<LogRecord> = (0..=random.below(80)).map(|_| log(random)).collect();
                // Rows that are equal in every column.
                rows.extend(
                    all.iter()
                        .rev()
                        .take(usize::try_from(random.below(4)).unwrap())
                        .cloned(),
                );
                bench.append(&rows).await;
                readers.iter_mut().for_each(|reader| reader.see(&rows));
                all.extend(rows);
            }
            8 | 9 => bench.publish().await,
            10 if readers.len() < 8 => {
                let filter = filter(random);
                readers.push(Reader::new(&bench, filter, &all));
            }
            11 | 12 => {
                if let Some(at) = readers.len().checked_sub(1) {
                    let at = usize::try_from(random.below(at as u64 + 1)).unwrap();
                    come_back(&bench, &mut readers[at], &all);
                }
            }
            13 if random.below(3) == 0 => {
                readers.iter_mut().for_each(|reader| reader.tail = None);
                let orderly = random.below(2) == 0;
                reopen(&mut bench, tail_max, orderly).await;
                for reader in &mut readers {
                    come_back(&bench, reader, &all);
                    // The log of one life is what the next one can recall.
                    reader.catch_up(&bench).await;
                }
            }
            _ => {
                for reader in &mut readers {
                    if random.below(3) > 0 {
                        reader.read(Duration::from_millis(20)).await;
                    }
                }
            }
        }
    }
    let (mut gaps, mut missed) = (0, 0);
    for reader in &mut readers {
        reader.finish().await;
        reader.judge();
        gaps += reader.gaps;
        missed += reader.missed;
        reader.tail = None;
    }
    bench.close().await;
    (gaps, missed)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_comes_once_over_breaks_and_restarts_as_long_as_it_is_at_hand() {
    let mut random = Random::new();
    for _ in 0..6 {
        let (gaps, missed) = play(&mut random, model::ByteSize::mib(16), 80).await;
        assert_eq!((gaps, missed), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_slow_reader_misses_is_counted_exactly() {
    let mut random = Random::new();
    for _ in 0..6 {
        play(&mut random, model::ByteSize::bytes(40 << 10), 80).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_is_told_how_many_matching_rows_went_by() {
    let mut bench = Bench::new().await;
    reopen(&mut bench, model::ByteSize::mib(1), true).await;
    let mut random = Random::new();
    let filters = [
        LogFilter::default(),
        LogFilter {
            q: Some("disk".to_owned()),
            ..LogFilter::default()
        },
    ];
    let mut readers: Vec<_> = filters.map(|filter| Reader::new(&bench, filter, &[])).into();
    for _ in 0..60 {
        let rows: Vec<LogRecord> = (0..200).map(|_| log(&mut random)).collect();
        bench.append(&rows).await;
        readers.iter_mut().for_each(|reader| reader.see(&rows));
    }
    for reader in &mut readers {
        reader.finish().await;
        reader.judge();
        assert!(
            reader.missed > 0 && reader.got > 0,
            "{} of {}",
            reader.missed,
            reader.wanted
        );
    }
    drop(readers);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_backlog_is_cut_anywhere_and_goes_on_without_a_seam() {
    let mut bench = Bench::new().await;
    let mut random = Random::new();
    let mut all = Vec::new();
    for part in 0..4 {
        let rows: Vec<LogRecord> = (0..2_000).map(|_| log(&mut random)).collect();
        bench.append(&rows).await;
        all.extend(rows);
        match part {
            0 => bench.seal().await,
            1 => bench.publish().await,
            _ => {}
        }
    }
    let since = Some(TimePoint::Ago("24h".parse().unwrap()));
    let mut reader = Reader::new(
        &bench,
        LogFilter {
            since,
            ..LogFilter::default()
        },
        &all,
    );
    let mut breaks = 0;
    while !reader.is_done() {
        reader.read(Duration::from_secs(10)).await;
        if breaks < 6 {
            breaks += 1;
            let mut rows: Vec<LogRecord> = (0..50).map(|_| log(&mut random)).collect();
            rows.extend(all.iter().take(20).cloned());
            bench.append(&rows).await;
            reader.see(&rows);
            if breaks == 3 {
                bench.publish().await;
            }
            reader.connect(&bench);
        }
    }
    reader.finish().await;
    reader.judge();
    assert_eq!((reader.gaps, reader.missed, reader.got), (0, 0, reader.wanted));
    let limit = Some(100);
    let mut newest = Reader::new(
        &bench,
        LogFilter {
            limit,
            q: Some("disk".to_owned()),
            ..LogFilter::default()
        },
        &[],
    );
    newest.wanted = 100;
    newest.finish().await;
    assert_eq!(newest.got, 100);
    drop((reader, newest));
    bench.close().await;
}

/// Rows at even steps from a time on.
fn every(step: i64, count: i64, from: i64, random: &mut Random) -> Vec<LogRecord> {
    let row = |number: i64| LogRecord {
        ts: Timestamp::from_micros(from + number * step),
        ..log(random)
    };
    (0..count).map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_its_reader_does_not_take_in_time_gives_its_memory_back_and_ends_with_a_gap() {
    let bench = Bench::with(QueryLimits {
        backlog: Duration::from_secs(2),
        ..QueryLimits::new(model::ByteSize::mib(64), Duration::from_secs(30), 2)
    })
    .await;
    let mut rows = every(SECOND / 100, 400, now().micros() - HOUR, &mut Random::new());
    rows.iter_mut().for_each(|row| row.message = "x".repeat(4_000));
    bench.append(&rows).await;
    bench.publish().await;
    let filter = LogFilter {
        since: Some(TimePoint::Ago("24h".parse().unwrap())),
        ..LogFilter::default()
    };
    let mut tail = bench.querier.tail(&filter, None).unwrap();
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    let (mut last, mut from) = (None, None);
    let mut pieces = 0;
    while from.is_none() {
        let piece = tokio::time::timeout(Duration::from_secs(30), tail.next()).await;
        let piece = String::from_utf8(piece.unwrap().unwrap().to_vec()).unwrap();
        pieces += 1;
        if piece.starts_with("event: gap\n") {
            let data = piece.lines().find_map(|line| line.strip_prefix("data: "));
            let data: Value = serde_json::from_str(data.unwrap()).unwrap();
            from = data["from"].as_str().map(str::to_owned);
        } else {
            let id = piece.lines().rev().find_map(|line| line.strip_prefix("id: "));
            last = id.map(str::to_owned).or(last);
        }
        // Beside what it begins with, some rows.
        if pieces == 2 && from.is_none() {
            until("a slice", || pool.reserved() > 300_000).await;
            until("the memory of the slice to be free", || pool.reserved() == 0).await;
        }
    }
    assert_eq!(from, last, "what was given, and no more");
    drop(tail);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_time_are_held_a_slice_at_a_time_and_come_once() {
    let bench = Bench::with(QueryLimits::new(model::ByteSize::mib(64), Duration::from_secs(30), 4)).await;
    let mut rows = every(0, 4_000, now().micros() - HOUR, &mut Random::new());
    for (number, row) in rows.iter_mut().enumerate() {
        row.message = format!("{number:02000}");
    }
    // Some are equal in every column.
    let first = rows[0].clone();
    rows.iter_mut().step_by(3).for_each(|row| row.clone_from(&first));
    bench.append(&rows).await;
    bench.publish().await;
    let filter = LogFilter {
        since: Some(TimePoint::Ago("24h".parse().unwrap())),
        ..LogFilter::default()
    };
    let mut reader = Reader::new(&bench, filter, &rows);
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    // What it begins with; then it takes nothing.
    reader.read(Duration::from_secs(30)).await;
    until("a slice", || pool.reserved() > 500_000).await;
    until("no more than a slice is held", || {
        (1..3 << 20).contains(&pool.reserved())
    })
    .await;
    // Rows that are equal to some of the backlog, over a break.
    for _ in 0..10 {
        reader.read(Duration::from_secs(30)).await;
    }
    bench.append(&rows[..200]).await;
    reader.see(&rows[..200]);
    reader.connect(&bench);
    reader.finish().await;
    reader.judge();
    assert_eq!((reader.gaps, reader.missed, reader.got), (0, 0, reader.wanted));
    drop(reader);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_a_backlog_waits_for_others_is_not_its_own() {
    let bench = Bench::with(QueryLimits {
        backlog: Duration::from_millis(500),
        ..QueryLimits::new(model::ByteSize::mib(64), Duration::from_secs(30), 8)
    })
    .await;
    let rows = every(SECOND, 100, now().micros() - HOUR, &mut Random::new());
    bench.append(&rows).await;
    let turns = [
        bench.querier.gate.enter_tail().await.unwrap(),
        bench.querier.gate.enter_tail().await.unwrap(),
    ];
    let filter = LogFilter {
        since: Some(TimePoint::Ago("24h".parse().unwrap())),
        ..LogFilter::default()
    };
    let mut reader = Reader::new(&bench, filter, &rows);
    reader.read(Duration::from_secs(30)).await;
    reader.read(Duration::from_secs(1)).await;
    assert_eq!((reader.got, reader.gaps), (0, 0));
    drop(turns);
    reader.finish().await;
    reader.judge();
    assert_eq!((reader.gaps, reader.got), (0, 100));
    drop(reader);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_lets_nothing_through_gets_on_over_breaks_also_where_a_look_takes_too_long() {
    let limits = QueryLimits::new(model::ByteSize::mib(256), Duration::from_millis(100), 4);
    let bench = Bench::with(limits).await;
    let rows = every(SECOND * 6 / 10, 36_000, now().micros() - 6 * HOUR, &mut Random::new());
    for rows in rows.chunks(6_000) {
        bench.append(rows).await;
    }
    bench.publish().await;
    let filter = LogFilter {
        since: Some(TimePoint::Ago("24h".parse().unwrap())),
        attributes: std::iter::once(("nope".to_owned(), "1".to_owned())).collect(),
        ..LogFilter::default()
    };
    let end = bench.engine.follow(model::Table::Logs).unwrap().1.position().lsn;
    let mut reader = Reader::new(&bench, filter, &[]);
    let (mut before, mut breaks) = (None, 0);
    while !reader.is_at(end) {
        // What it begins with, and how far it came.
        for _ in 0..2 {
            if !reader.is_at(end) {
                reader.read(Duration::from_secs(30)).await;
            }
        }
        assert_eq!(reader.gaps, 0);
        assert_ne!(reader.last, before, "it came no further");
        before.clone_from(&reader.last);
        if breaks < 3 {
            breaks += 1;
            reader.connect(&bench);
        }
    }
    assert_eq!((reader.got, breaks), (0, 3));
    drop(reader);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_is_refused_beyond_its_number_and_where_it_makes_no_sense() {
    let mut limits = QueryLimits::new(model::ByteSize::mib(64), Duration::from_secs(10), 2);
    limits.max_followers = 1;
    let bench = Bench::with(limits).await;
    let refused = |filter: LogFilter, resume: Option<(&'static str, &str)>| match bench.querier.tail(&filter, resume) {
        Err(Error::Parameter { parameter, .. }) => parameter,
        other => panic!("{other:?}"),
    };
    let when = Some(TimePoint::At(now()));
    assert_eq!(
        refused(
            LogFilter {
                until: when,
                ..LogFilter::default()
            },
            None
        ),
        "until"
    );
    assert_eq!(
        refused(
            LogFilter {
                offset: Some(1),
                ..LogFilter::default()
            },
            None
        ),
        "offset"
    );
    assert_eq!(
        refused(
            LogFilter {
                limit: Some(0),
                ..LogFilter::default()
            },
            None
        ),
        "limit"
    );
    assert_eq!(
        refused(
            LogFilter {
                cursor: Some("7b7d".to_owned()),
                ..LogFilter::default()
            },
            None
        ),
        "cursor"
    );
    assert_eq!(
        refused(LogFilter::default(), Some(("Last-Event-ID", "x"))),
        "Last-Event-ID"
    );
    let tail = bench.querier.tail(&LogFilter::default(), None).unwrap();
    let beyond = bench.querier.tail(&LogFilter::default(), None);
    assert!(matches!(beyond, Err(Error::TooManyFollowers(1))), "{beyond:?}");
    drop(tail);
    // A place in another store, and one that is not there yet.
    for id in ["00000000-1-0", "07070707-ffff-0"] {
        let mut reader = Reader::of(LogFilter::default());
        until("the place is free again", || {
            let tail = bench.querier.tail(&reader.filter, Some(("Last-Event-ID", id)));
            reader.tail = tail.ok();
            reader.tail.is_some()
        })
        .await;
        let deadline = Instant::now() + Duration::from_secs(10);
        while reader.gaps == 0 && Instant::now() < deadline {
            reader.read(Duration::from_millis(100)).await;
        }
        assert_eq!(reader.gaps, 1, "{id}");
    }
    bench.close().await;
}
