//! An index of texts changes which files and rows are read, never what is answered.

use model::LogRecord;
use model::filter::{LogFilter, SortOrder};
use serde_json::{Value, json};

use super::indexed::{Hours, damage, sidecars};
use super::random_world::{self, Random};
use super::sql::asked;
use super::*;
use crate::ListQuery;

const WORDS: [&str; 10] = [
    "connection",
    "refused",
    "Kernel",
    "PANIC",
    "straße",
    "Ärger",
    "block_17",
    "100%",
    r"C:\temp",
    "\u{212a}elvin ſuch",
];

/// A message of some words and a number.
pub(super) fn message(random: &mut Random) -> String {
    let words: Vec<&str> = (0..random.below(4)).map(|_| *random.pick(&WORDS)).collect();
    format!("{} {:08x}", words.join(" "), random.below(1 << 32))
}

/// Rows of the hours, each with a message of its own; one of each hour has a text that no other row has.
fn rows(random: &mut Random) -> Vec<LogRecord> {
    let mut logs = Hours::new(random).logs;
    for (n, log) in logs.iter_mut().enumerate() {
        log.message = message(random);
        if n % 30 == 7 {
            log.message += &format!(" once {}", name(n / 30));
        }
    }
    logs
}

/// What only one row of an hour has: no digits, and no part in common with another.
pub(super) fn name(hour: usize) -> String {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap());
    (0..6).map(|n| letter(hour * 7 + n * (hour + 3))).collect()
}

pub(super) fn asks(q: &str, order: Option<SortOrder>) -> LogFilter {
    LogFilter {
        since: Some("48h".parse().unwrap()),
        q: Some(q.to_owned()),
        order,
        ..LogFilter::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_opens_only_the_files_that_can_have_it_hit_or_miss() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.append(&rows(&mut random)).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let files = Hours::COUNT.unsigned_abs();
    let mut opened = 0;
    for hour in 0..20 {
        let page = bench
            .querier
            .page(ListQuery::Logs(asks(&format!("ONCE {}", name(hour)), None)))
            .await
            .unwrap();
        assert_eq!(
            (page.rows.len(), page.stats.files_considered),
            (1, files),
            "{}",
            name(hour)
        );
        assert_eq!(
            page.stats.files_read + page.stats.files_pruned,
            files,
            "{:?}",
            page.stats
        );
        opened += page.stats.files_read;
    }
    assert!((20..=22).contains(&opened), "{opened}");
    for absent in ["segmentation fault", "no such file", "zürich hbf"] {
        let stats = bench
            .querier
            .page(ListQuery::Logs(asks(absent, Some(SortOrder::Asc))))
            .await
            .unwrap()
            .stats;
        assert_eq!(
            (stats.files_read, stats.files_pruned, stats.rows_scanned),
            (0, files, 0),
            "{absent}"
        );
        assert!(stats.bytes_read > 0, "what is read of indexes counts");
    }
    bench.close().await;
}

fn stat(answer: &Value, name: &str) -> u64 {
    answer["stats"][name].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_opens_only_the_files_that_can_have_its_texts() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs = rows(&mut random);
    bench.append(&logs).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let files = Hours::COUNT.unsigned_abs();
    let whole = logs[3 * 30 + 7].message.replace('\'', "''");
    let (one, other) = (name(3), name(11));
    for (condition, count) in [
        (format!("message LIKE '%once {one}%'"), 1),
        (format!("message LIKE '%once%{one}'"), 1),
        (format!("message ILIKE '%ONCE {}%'", one.to_uppercase()), 1),
        (format!("contains(message, 'once {one}')"), 1),
        (format!("strpos(message, 'once {one}') > 0"), 1),
        (format!("contains_fold(message, 'ONCE {one}') AND level <> 'x'"), 1),
        (format!("message = '{whole}'"), 1),
        (
            format!("message LIKE '%once {one}%' OR message LIKE '%once {other}%'"),
            2,
        ),
        (format!("regexp_like(message, 'once ({one}|{other})$')"), 2),
        (format!("message ~ '(once|twice) +{one}'"), 1),
        (format!("message ~* 'ONCE {one}'"), 1),
        ("message LIKE '%segmentation fault%'".to_owned(), 0),
        (
            format!("message LIKE '%once {one}%' AND message LIKE '%once {other}%'"),
            0,
        ),
    ] {
        let answer = asked(&bench, &format!("SELECT * FROM logs WHERE {condition}"), json!([]))
            .await
            .unwrap();
        assert_eq!(answer["data"].as_array().unwrap().len() as u64, count, "{condition}");
        let (read, pruned) = (stat(&answer, "files_read"), stat(&answer, "files_pruned"));
        assert_eq!(read + pruned, files, "{condition}");
        assert!((count..=count + 1).contains(&read), "{condition}: {read}");
    }
    bench.close().await;
}

/// A letter as a pattern that means only it.
fn quoted(letter: char) -> String {
    if letter.is_ascii_punctuation() && letter != '\'' {
        format!("\\{letter}")
    } else {
        letter.to_string()
    }
}

/// A condition on messages in one of the ways to write it.
pub(super) fn condition(logs: &[LogRecord], random: &mut Random) -> String {
    let message = random.pick(logs).message.clone();
    let letters: Vec<char> = message.chars().collect();
    let from = usize::try_from(random.below(letters.len() as u64)).unwrap();
    let count = usize::try_from(random.below(12)).unwrap();
    let mut part: String = letters.iter().skip(from).take(count).collect();
    if random.below(4) == 0 {
        part = part.to_uppercase();
    }
    if random.below(6) == 0 {
        part += "q";
    }
    let (part, whole) = (part.replace('\'', "''"), message.replace('\'', "''"));
    let escaped = part.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
    let pattern: String = part.chars().map(quoted).collect();
    match random.below(15) {
        10 => format!("regexp_like(message, '{pattern}')"),
        11 => format!("message ~ '^.*{pattern}[0-9a-f]?'"),
        12 => format!("message ~* '{pattern}'"),
        13 => format!("regexp_like(message, '(?i){pattern}|panic.*straße')"),
        14 => format!("message !~ '{pattern}'"),
        0 => format!("message LIKE '%{part}%'"),
        1 => format!("message LIKE '%{escaped}%'"),
        2 => format!("message ILIKE '%{escaped}%'"),
        3 => format!("message LIKE '{escaped}%'"),
        4 => format!("message NOT LIKE '%{escaped}%'"),
        5 => format!("contains_fold(message, '{part}')"),
        6 => format!("strpos(message, '{part}') > 0"),
        7 => format!("message = '{whole}'"),
        8 => format!("message IN ('{whole}', '{part}')"),
        _ => format!("contains(message, '{part}')"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_lists_answer_the_same_without_indexes_with_all_and_with_damaged_ones() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs = rows(&mut random);
    let (sealed, open) = logs.split_at(logs.len() / 10 * 9);
    bench.append(sealed).await;
    bench.seal().await;
    bench.append(open).await;
    bench.publish().await;
    bench.engine.index_all().await.unwrap();
    let statements: Vec<String> = (0..60)
        .map(|n| {
            let (one, other) = (condition(&logs, &mut random), condition(&logs, &mut random));
            let condition = match n % 4 {
                0 => format!("{one} AND {other}"),
                1 => format!("{one} OR {other}"),
                _ => one,
            };
            format!("SELECT ts, message FROM logs WHERE {condition} ORDER BY ts DESC, message LIMIT 50")
        })
        .collect();
    let parts: Vec<String> = (0..40)
        .map(|_| {
            let message = random.pick(&logs).message.to_uppercase();
            let from = usize::try_from(random.below(8)).unwrap();
            message.chars().skip(from).take(9).collect()
        })
        .collect();
    let mut all = Vec::new();
    for round in ["with all", "with damaged ones", "without"] {
        match round {
            "with damaged ones" => sidecars(&bench).iter().for_each(|path| damage(path, &mut random)),
            "without" => bench.set_index(false).await,
            _ => {}
        }
        let mut answers = Vec::new();
        for statement in &statements {
            let answer = asked(&bench, statement, json!([])).await;
            let answer = answer.unwrap_or_else(|error| panic!("{statement}: {error}"));
            answers.push((statement.clone(), answer["data"].clone()));
        }
        for (n, part) in parts.iter().enumerate() {
            let order = (n % 2 == 0).then_some(SortOrder::Asc);
            let page = bench.querier.page(ListQuery::Logs(asks(part, order))).await.unwrap();
            answers.push((part.clone(), json!(page.rows)));
        }
        all.push(answers);
    }
    let without = all.pop().unwrap();
    assert!(
        without
            .iter()
            .filter(|(_, rows)| rows.as_array().is_some_and(|rows| !rows.is_empty()))
            .count()
            > 40
    );
    for (round, answers) in ["with all", "with damaged ones"].iter().zip(&all) {
        for ((what, found), (_, expected)) in answers.iter().zip(&without) {
            assert_eq!(found, expected, "{round}: {what}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_large_file_only_the_blocks_with_the_text_are_read() {
    const ROWS: i64 = 132_000;
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let start = now().micros().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let mut rows: Vec<LogRecord> = (0..ROWS)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(start + n * 20_000),
            message: message(&mut random),
            ..random_world::log(&mut random)
        })
        .collect();
    rows[70_000].message += " once upon a time";
    bench.append(&rows).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let page = bench
        .querier
        .page(ListQuery::Logs(asks("once upon", None)))
        .await
        .unwrap();
    assert_eq!((page.rows.len(), page.stats.files_read), (1, 1));
    assert!((1..=2 * 2048).contains(&page.stats.rows_scanned), "{:?}", page.stats);
    let query = "SELECT ts FROM logs WHERE message LIKE '%once upon%'";
    let indexed = asked(&bench, query, json!([])).await.unwrap();
    bench.set_index(false).await;
    let scanned = asked(&bench, query, json!([])).await.unwrap();
    assert_eq!(indexed["data"], scanned["data"]);
    let (indexed, scanned) = (stat(&indexed, "bytes_read"), stat(&scanned, "bytes_read"));
    assert!(indexed * 2 < scanned, "{indexed} of {scanned}");
    bench.close().await;
}
