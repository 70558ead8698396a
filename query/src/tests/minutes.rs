//! Counts of segments change what is read, never what is answered: histograms and top lists are a reading of all rows, whatever
//! the window cuts.

use model::filter::{HistogramBy, HistogramFilter, LogFilter, When};
use model::{Level, LogRecord, Table};

use super::counts::{histogram_agrees, top_agrees};
use super::indexed::{damage, sidecars};
use super::rows::scattered;
use super::world::{self, Random};
use super::*;
use crate::QueryStats;

const MINUTE: i64 = 60 * SECOND;

/// A moment of the last hours: at a minute's edge, beside it, or anywhere; many rows share theirs.
fn moment(random: &mut Random) -> Timestamp {
    let number = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
    let start = now().micros() - HOUR - number(random, 90) * MINUTE;
    let beside = *random.pick(&[0, 0, 1, -1, 17, 30 * SECOND, MINUTE - 1]);
    Timestamp::from_micros(start + beside)
}

fn log(random: &mut Random) -> LogRecord {
    LogRecord {
        ts: moment(random),
        ..world::log(random)
    }
}

/// A filter that counts can answer, over a window that cuts minutes or does not.
fn filter(random: &mut Random) -> LogFilter {
    let mut bounds = [moment(random), moment(random)];
    bounds.sort_unstable();
    let long_ago = When::At(Timestamp::from_micros(now().micros() - 9 * HOUR));
    let name = |random: &mut Random| (*random.pick(&["rack-a", "räck c", "nobody"])).to_owned();
    LogFilter {
        since: Some(random.maybe(2, |_| When::At(bounds[0])).unwrap_or(long_ago)),
        until: random.maybe(2, |_| When::At(bounds[1])),
        level: random.maybe(4, |random| *random.pick(Level::ALL)),
        min_level: random.maybe(3, |random| *random.pick(Level::ALL)),
        rack_id: random.maybe(6, name),
        entity: random.maybe(3, name),
        q: random.maybe(12, |_| "disk".to_owned()),
        ..LogFilter::default()
    }
}

fn shape(random: &mut Random) -> HistogramFilter {
    let intervals = ["1m", "1m", "5m", "7m", "1h", "24h", "90s", "61s"];
    HistogramFilter {
        interval: Some(random.pick(&intervals).parse().unwrap()),
        by: random
            .maybe(4, |_| HistogramBy::None)
            .or(Some(*random.pick(&[HistogramBy::Level, HistogramBy::EntityName]))),
        fill: None,
    }
}

/// Random questions against all rows, and what their answers cost.
async fn agree(bench: &Bench, logs: &[LogRecord], random: &mut Random) -> Vec<QueryStats> {
    let mut costs = Vec::new();
    for _ in 0..40 {
        let (mut filter, shape) = (filter(random), shape(random));
        costs.push(histogram_agrees(bench, logs, &filter, &shape).await);
        filter.limit = Some(u32::try_from(1 + random.below(6)).unwrap());
        let field = *random.pick(&["entity_name", "entity_name", "level", "entity_id"]);
        costs.push(top_agrees(bench, logs, &filter, field).await);
    }
    costs
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_without_counts_with_them_and_with_damaged_ones() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(false).await;
    let mut logs = scattered(&mut bench, &mut random, log).await;
    let files_read = |costs: &[QueryStats]| costs.iter().map(|cost| cost.files_read).sum::<u64>();
    let without = files_read(&agree(&bench, &logs, &mut random).await);

    for indexing in [Indexing::OnDisk, Indexing::InMemory] {
        bench.set_indexing(indexing).await;
        // In memory again: what was there has gone into files.
        let rows: Vec<_> = (0..40).map(|_| log(&mut random)).collect();
        bench.append(&rows).await;
        logs.extend(rows);
        bench.engine.index_all().await.unwrap();
        let with = files_read(&agree(&bench, &logs, &mut random).await);
        assert!(with < without, "{with} files were read, {without} without counts");
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
        ..world::log(random)
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
        by: Some(HistogramBy::Level),
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
            since: Some(When::At(Timestamp::from_micros(since))),
            until: Some(When::At(Timestamp::from_micros(until))),
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
async fn rows_of_a_file_that_was_put_aside_are_counted_no_more() {
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
