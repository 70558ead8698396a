//! Counts of segments change what is read, never what is answered: histograms and top lists are a reading of all rows, whatever
//! the window cuts.

use model::filter::{HistogramFilter, HistogramGrouping, LogFilter, TimePoint};
use model::{Level, LogRecord, Table};

use super::counts::{histogram_agrees, top_agrees};
use super::indexed::{damage, sidecars};
use super::random_world::{self, Random};
use super::rows::scattered;
use super::sql::rows as rows_of;
use super::*;

const MINUTE: i64 = 60 * SECOND;

/// A moment of the last hours: at a minute's edge, beside it, or anywhere; many rows share theirs.
fn moment(random: &mut Random) -> Timestamp {
    let number = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
    let start = now().micros() - HOUR - number(random, 90) * MINUTE;
    let beside = *random.pick(&[0, 0, 1, -1, 17, 30 * SECOND, MINUTE - 1]);
    Timestamp::from_micros(start + beside)
}

/// Some are of the present hour, whose files stay open; those of hours that are over are sealed as soon as somebody has the time.
fn log(random: &mut Random) -> LogRecord {
    let minute = |random: &mut Random| i64::try_from(1 + random.below(28)).unwrap();
    let present = random.maybe(6, |random| now().micros() - minute(random) * MINUTE);
    LogRecord {
        ts: present.map_or_else(|| moment(random), Timestamp::from_micros),
        ..random_world::log(random)
    }
}

/// A filter that counts can answer, over a window that cuts minutes or does not.
fn filter(random: &mut Random) -> LogFilter {
    let mut bounds = [moment(random), moment(random)];
    bounds.sort_unstable();
    let long_ago = TimePoint::At(Timestamp::from_micros(now().micros() - 9 * HOUR));
    let name = |random: &mut Random| (*random.pick(&["rack-a", "räck c", "nobody"])).to_owned();
    LogFilter {
        since: Some(random.maybe(2, |_| TimePoint::At(bounds[0])).unwrap_or(long_ago)),
        until: random.maybe(2, |_| TimePoint::At(bounds[1])),
        level: random.maybe(4, |random| *random.pick(Level::ALL)),
        min_level: random.maybe(3, |random| *random.pick(Level::ALL)),
        rack_id: random.maybe(6, name),
        entity: random.maybe(3, name),
        not_level: random.maybe(4, |random| *random.pick(Level::ALL)).into_iter().collect(),
        not_entity: random.maybe(3, name).into_iter().collect(),
        q: random.maybe(12, |_| "disk".to_owned()),
        ..LogFilter::default()
    }
}

fn shape(random: &mut Random) -> HistogramFilter {
    let intervals = ["1m", "1m", "5m", "7m", "1h", "24h", "90s", "61s"];
    HistogramFilter {
        interval: Some(random.pick(&intervals).parse().unwrap()),
        by: random.maybe(4, |_| HistogramGrouping::None).or(Some(
            *random.pick(&[HistogramGrouping::Level, HistogramGrouping::EntityName]),
        )),
        fill: None,
    }
}

/// Random questions against all rows; how many files were read for one that counts alone can answer.
async fn agree(bench: &Bench, logs: &[LogRecord], random: &mut Random) -> u64 {
    for _ in 0..40 {
        let (mut filter, shape) = (filter(random), shape(random));
        histogram_agrees(bench, logs, &filter, &shape).await;
        filter.limit = Some(u32::try_from(1 + random.below(6)).unwrap());
        let field = *random.pick(&["entity_name", "entity_name", "level", "entity_id"]);
        top_agrees(bench, logs, &filter, field).await;
    }
    let by_level = HistogramFilter {
        interval: Some("5m".parse().unwrap()),
        by: Some(HistogramGrouping::Level),
        fill: None,
    };
    histogram_agrees(bench, logs, &over_all(), &by_level).await.files_read
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_without_counts_with_them_and_with_damaged_ones() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(false).await;
    let mut logs = scattered(&mut bench, &mut random, log).await;
    assert!(agree(&bench, &logs, &mut random).await > 0);

    for indexing in [Indexing::OnDisk, Indexing::InMemory] {
        bench.set_indexing(indexing).await;
        // In memory again: what was there has gone into files.
        let rows: Vec<_> = (0..40).map(|_| log(&mut random)).collect();
        bench.append(&rows).await;
        logs.extend(rows);
        bench.engine.index_all().await.unwrap();
        assert_eq!(agree(&bench, &logs, &mut random).await, 0, "{indexing:?}");
    }

    bench.set_index(true).await;
    bench.engine.index_all().await.unwrap();
    let before = bench.engine.stats().index_builds;
    sidecars(&bench).iter().for_each(|path| damage(path, &mut random));
    agree(&bench, &logs, &mut random).await;
    bench.engine.index_all().await.unwrap();
    assert!(bench.engine.stats().index_builds > before, "they are made anew");
    agree(&bench, &logs, &mut random).await;
    bench.close().await;
}

/// Sealed and indexed files of so many rows of two hours, and nothing else.
async fn sealed(bench: &mut Bench, random: &mut Random, rows: usize) -> Vec<LogRecord> {
    let past = |random: &mut Random| LogRecord {
        ts: Timestamp::from_micros(moment(random).micros() - HOUR),
        ..random_world::log(random)
    };
    let logs: Vec<_> = (0..rows).map(|_| past(random)).collect();
    bench.append(&logs).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    logs
}

fn over_all() -> LogFilter {
    LogFilter {
        since: Some("9h".parse().unwrap()),
        limit: None,
        ..LogFilter::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_counts_answer_opens_no_data_file() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_indexing(Indexing::InMemory).await;
    let logs = sealed(&mut bench, &mut random, 600).await;
    let paths: Vec<_> = bench
        .engine
        .view()
        .files(Table::Logs)
        .iter()
        .map(|file| file.path.clone())
        .collect();
    assert!(paths.len() >= 2);
    // What is not there cannot be read.
    for path in &paths {
        std::fs::rename(path, path.with_extension("gone")).unwrap();
    }
    let by_level = HistogramFilter {
        interval: Some("5m".parse().unwrap()),
        by: Some(HistogramGrouping::Level),
        fill: None,
    };
    let errors = LogFilter {
        min_level: Some(Level::Error),
        entity: Some("rack-a".to_owned()),
        limit: Some(5),
        ..over_all()
    };
    for is_first in [true, false] {
        let costs = [
            histogram_agrees(&bench, &logs, &over_all(), &by_level).await,
            top_agrees(&bench, &logs, &errors, "entity_name").await,
        ];
        for cost in costs {
            let considered = paths.len() as u64;
            assert_eq!(
                (cost.files_considered, cost.files_pruned, cost.files_read),
                (considered, considered, 0)
            );
            assert_eq!(
                (cost.bytes_read > 0, cost.rows_scanned),
                (is_first, 0),
                "indexes are read once"
            );
        }
    }
    for path in &paths {
        std::fs::rename(path.with_extension("gone"), path).unwrap();
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_minutes_that_the_window_cuts_rows_are_read_and_only_if_there_are_any() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let mut logs = sealed(&mut bench, &mut random, 600).await;
    let each_minute = HistogramFilter {
        interval: Some("1m".parse().unwrap()),
        ..HistogramFilter::default()
    };
    logs.sort_by_key(|log| log.ts);
    let moments: Vec<i64> = logs.iter().map(|log| log.ts.micros()).collect();
    let files = bench.engine.view().files(Table::Logs).len() as u64;
    for at in (0..logs.len()).step_by(37) {
        let cut = |since: i64, until: i64| LogFilter {
            since: Some(TimePoint::At(Timestamp::from_micros(since))),
            until: Some(TimePoint::At(Timestamp::from_micros(until))),
            ..LogFilter::default()
        };
        let moment = moments[at];
        for (since, until) in [
            (moment, moment + 1),
            (moment + 1, moment + HOUR),
            (moment - HOUR, moment),
            (moment - 30 * SECOND, moment + 30 * SECOND),
            (moment - 7 * MINUTE - 1, moment + 7 * MINUTE + 1),
        ] {
            let cost = histogram_agrees(&bench, &logs, &cut(since, until), &each_minute).await;
            assert!(cost.files_read <= files.min(2), "{cost:?}");
        }
        let minute = moment.div_euclid(MINUTE) * MINUTE;
        let cost = histogram_agrees(
            &bench,
            &logs,
            &cut(minute - 5 * MINUTE, minute + 3 * MINUTE),
            &each_minute,
        )
        .await;
        assert_eq!(cost.files_read, 0, "whole minutes");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_quarantined_file_are_no_longer_counted() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs = sealed(&mut bench, &mut random, 300).await;
    let whole = HistogramFilter {
        interval: Some("24h".parse().unwrap()),
        ..HistogramFilter::default()
    };
    let cost = histogram_agrees(&bench, &logs, &over_all(), &whole).await;
    assert_eq!((cost.files_read, cost.partial), (0, None));
    let victim = Arc::clone(&bench.engine.view().files(Table::Logs)[0]);
    let mut bytes = std::fs::read(&victim.path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&victim.path, bytes).unwrap();
    assert!(victim.open().is_err());
    let left: Vec<_> = logs
        .into_iter()
        .filter(|log| log.ts < victim.min_ts || log.ts > victim.max_ts)
        .collect();
    let cost = histogram_agrees(&bench, &left, &over_all(), &whole).await;
    assert!(cost.files_read == 0 && cost.partial.is_some(), "{cost:?}");
    bench.close().await;
}

/// A statement that counts log records, and the same without what counts could answer.
pub(super) fn counting(random: &mut Random) -> [String; 2] {
    const GROUPS: [&str; 10] = [
        "level",
        "entity_name",
        "date_bin(INTERVAL '5 minutes', ts)",
        "time_bucket(INTERVAL '7 minutes', ts)",
        "date_trunc('hour', ts)",
        "extract(hour FROM ts)",
        "ts::date",
        "upper(level)",
        "CASE WHEN level IN ('error', 'fatal') THEN 'bad' ELSE entity_name END",
        "date_bin(INTERVAL '90 seconds', ts)",
    ];
    const AGGREGATES: [&str; 10] = [
        "count(*)",
        "count(message)",
        "count(1) FILTER (WHERE level = 'error')",
        "sum(CASE WHEN level = 'warn' THEN 2 ELSE 0 END)",
        "count(CASE WHEN entity_name LIKE 'r%' THEN 1 END)",
        "max(level)",
        "min(entity_name)",
        "count(DISTINCT entity_name)",
        "count(flux_id)",
        "sum(CASE WHEN level = 'debug' THEN 1 END)",
    ];
    let mut conditions = vec!["true".to_owned()];
    conditions.extend(random.maybe(2, |random| format!("ts >= '{}'", moment(random))));
    conditions.extend(random.maybe(2, |random| format!("ts < '{}'", moment(random))));
    conditions.extend(random.maybe(4, |_| "level <> 'info'".to_owned()));
    conditions.extend(random.maybe(4, |_| "(entity_name = 'rack-a' OR level = 'error')".to_owned()));
    conditions.extend(random.maybe(6, |random| format!("extract(hour FROM ts) >= {}", random.below(24))));
    let groups: Vec<_> = (0..random.below(3)).map(|_| *random.pick(&GROUPS)).collect();
    let counts = (0..1 + random.below(3)).map(|_| *random.pick(&AGGREGATES));
    let all: Vec<_> = groups.iter().copied().chain(counts).enumerate().collect();
    let list: Vec<_> = all.iter().map(|(at, expr)| format!("{expr} AS c{at}")).collect();
    let ordinals: Vec<_> = (1..=groups.len()).map(|at| at.to_string()).collect();
    let (groups, order) = match ordinals.join(", ") {
        none if none.is_empty() => (none, "ORDER BY 1".to_owned()),
        some => (format!("GROUP BY {some}"), format!("ORDER BY {some}")),
    };
    let (list, conditions) = (list.join(", "), conditions.join(" AND "));
    let from = *random.pick(&["logs", "(SELECT * FROM logs) AS l", "logs AS l"]);
    ["", " AND length(message) >= 0"]
        .map(|more| format!("SELECT {list} FROM {from} WHERE {conditions}{more} {groups} {order}"))
}

async fn statements_agree(bench: &Bench, random: &mut Random) {
    for _ in 0..60 {
        let [asked, read] = counting(random);
        assert_eq!(rows_of(bench, &asked).await, rows_of(bench, &read).await, "{asked}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_counts_the_same_however_it_is_worded_and_whatever_has_counts() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(false).await;
    scattered(&mut bench, &mut random, log).await;
    statements_agree(&bench, &mut random).await;
    bench.set_indexing(Indexing::InMemory).await;
    bench
        .append(&(0..40).map(|_| log(&mut random)).collect::<Vec<_>>())
        .await;
    bench.engine.index_all().await.unwrap();
    statements_agree(&bench, &mut random).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_counts_answer_opens_no_data_file() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs = sealed(&mut bench, &mut random, 600).await;
    for statement in [
        "SELECT count(*) AS n FROM logs",
        "SELECT sum(n) AS n FROM (SELECT date_trunc('hour', ts) AS h, level, count(*) AS n FROM logs GROUP BY h, level HAVING count(*) > 0)",
        "SELECT sum(n) AS n FROM (SELECT entity_name, count(*) AS n FROM logs GROUP BY 1 ORDER BY 2 DESC LIMIT 1000)",
        "SELECT sum(CASE WHEN level = 'error' THEN 1 ELSE 0 END) + count(*) FILTER (WHERE level <> 'error') AS n FROM logs",
        "WITH l AS (SELECT ts, level AS severity FROM logs) SELECT sum(n) AS n FROM (SELECT severity, time_bucket(INTERVAL '1 minute', ts), count(severity) AS n FROM l GROUP BY 1, 2)",
    ] {
        let answer = super::sql::asked(&bench, statement, serde_json::json!([]))
            .await
            .unwrap();
        let (rows, stats) = (&answer["data"][0]["n"], &answer["stats"]);
        assert_eq!(stats["files_considered"], stats["files_pruned"], "{statement}: {stats}");
        assert_eq!(
            (rows.as_u64(), stats["files_read"].as_u64()),
            (Some(logs.len() as u64), Some(0)),
            "{statement}: {stats}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_open_files_and_of_memory_only_what_came_since_is_looked_at() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let by_entity = HistogramFilter {
        interval: Some("1m".parse().unwrap()),
        by: Some(HistogramGrouping::EntityName),
        fill: None,
    };
    let some = LogFilter {
        limit: Some(3),
        ..over_all()
    };
    let mut logs = Vec::new();
    for _ in 0..4 {
        let present = |random: &mut Random| LogRecord {
            ts: Timestamp::from_micros(now().micros() + i64::try_from(random.below(600)).unwrap() * SECOND),
            ..random_world::log(random)
        };
        let rows: Vec<_> = (0..200).map(|_| present(&mut random)).collect();
        bench.append(&rows).await;
        logs.extend(rows);
        let hot = histogram_agrees(&bench, &logs, &over_all(), &by_entity).await;
        assert_eq!((hot.files_read, hot.bytes_read), (0, 0), "{hot:?}");
        bench.publish().await;
        let costs = [
            histogram_agrees(&bench, &logs, &over_all(), &by_entity).await,
            histogram_agrees(&bench, &logs, &over_all(), &by_entity).await,
            top_agrees(&bench, &logs, &some, "level").await,
        ];
        let read = costs.clone().map(|cost| (cost.bytes_read > 0, cost.rows_scanned));
        assert_eq!(
            read,
            [(true, 0), (false, 0), (false, 0)],
            "row groups are counted once: {costs:?}"
        );
    }
    assert!(bench.engine.view().files(Table::Logs).iter().all(|file| !file.sealed));
    bench.close().await;
}
