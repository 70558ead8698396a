//! Whatever is written as a statement, the answer is rows or the writer's fault, never ours.

use std::time::Duration;

use model::ByteSize;

use super::Bench;
use super::random_world::{self, Random};
use crate::{Error, QueryErrorKind, QueryLimits, SqlStatement};

const GOOD: [&str; 14] = [
    "SELECT ts , message FROM logs WHERE flux_id = '018f2c1e-0000-7000-8000-000000000000' ORDER BY ts DESC LIMIT 5",
    "SELECT level , count ( * ) AS n FROM logs GROUP BY level HAVING count ( * ) > 1 ORDER BY n",
    "SELECT attributes ->> 'gear.id' FROM logs l JOIN traces t ON l . flux_id = t . flux_id",
    "WITH a AS ( SELECT * FROM metrics ) SELECT name , avg ( value ) FROM a GROUP BY name",
    "SELECT time_bucket ( INTERVAL '5 minutes' , ts ) b , max ( value ) FROM metrics GROUP BY b",
    "SELECT row_number ( ) OVER ( PARTITION BY level ORDER BY ts ) FROM logs",
    "SELECT CASE WHEN value > 1 THEN 'a' ELSE NULL END , value :: int FROM metrics",
    "SELECT * FROM logs WHERE level IN ( 'error' , 'warn' ) AND ts BETWEEN '2026-01-01' AND now ( )",
    "SELECT uuid_time ( flux_id ) , uuid_text ( entity_id ) FROM traces WHERE duration_ms >= 0.5",
    "SELECT 1 UNION ALL SELECT n + 1 FROM ( VALUES ( 1 ) , ( 2 ) ) t ( n ) EXCEPT SELECT 3",
    "SELECT array_agg ( level ) [ 1 ] , string_agg ( message , ',' ) FROM logs",
    "EXPLAIN ANALYZE SELECT count ( DISTINCT message ) FROM logs WHERE message ILIKE '%a%'",
    "SELECT ( SELECT max ( ts ) FROM traces t WHERE t . flux_id = l . flux_id ) FROM logs l",
    "SELECT regexp_replace ( message , '[a-z]+' , 'x' , 'g' ) , substr ( message , 2 ) FROM logs",
];
const PIECES: [&str; 48] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ";",
    "*",
    "-",
    "+",
    "/",
    "%",
    "||",
    "::",
    "->",
    "->>",
    "=",
    "<>",
    "'",
    "\"",
    "$1",
    "$$",
    "--",
    "/*",
    "\\",
    "\u{0}",
    "🦀",
    "NULL",
    "NOT",
    "AND",
    "IN",
    "BETWEEN",
    "LIKE",
    "CAST",
    "INTERVAL '1'",
    "-9223372036854775808",
    "1e400",
    "'018f'",
    "X'0'",
    "TIMESTAMP '-1'",
    "uuid",
    "flux_id",
    "ts",
    "attributes",
    "LATERAL",
    "999999999999999999999999",
];

fn fair(error: &Error, text: &str) {
    let fair = [
        QueryErrorKind::Statement,
        QueryErrorKind::ReadOnly,
        QueryErrorKind::TooMuch,
        QueryErrorKind::Timeout,
    ];
    assert!(fair.contains(&error.kind()), "{text:.2000}: {error:?}");
}

async fn ask(bench: &Bench, text: &str) {
    let statement = SqlStatement {
        query: text.to_owned(),
        limit: Some(100),
        ..SqlStatement::default()
    };
    for _ in 0..200 {
        match rows_of(bench, &statement).await {
            // A thread of the statement before has memory until it looks whether it was ended.
            Err(error) if error.kind() == QueryErrorKind::Busy => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return fair(&error, text),
            Ok(()) => return,
        }
    }
    panic!("{text:.2000}: others had the memory all the time");
}

async fn rows_of(bench: &Bench, statement: &SqlStatement) -> Result<(), Error> {
    let mut answer = bench.querier.sql(statement).await?;
    while answer.next().await?.is_some() {}
    Ok(())
}

async fn bench() -> Bench {
    let limits = QueryLimits::new(ByteSize::mib(64), Duration::from_secs(2), 4);
    let bench = Bench::with(limits).await;
    let mut random = Random::new();
    let logs: Vec<_> = (0..40).map(|_| random_world::log(&mut random)).collect();
    let spans: Vec<_> = (0..40).map(|_| random_world::span(&mut random)).collect();
    let points: Vec<_> = (0..40).map(|_| random_world::point(&mut random)).collect();
    bench.append(&logs).await;
    bench.append(&spans).await;
    bench.append(&points).await;
    bench.publish().await;
    bench
}

/// A good statement after a few accidents.
fn broken(random: &mut Random) -> String {
    let mut words: Vec<String> = random.pick(&GOOD).split(' ').map(str::to_owned).collect();
    for _ in 0..=random.below(3) {
        let at = usize::try_from(random.below(words.len() as u64)).unwrap();
        match random.below(6) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, (*random.pick(&PIECES)).to_owned()),
            2 => words[at] = (*random.pick(&PIECES)).to_owned(),
            3 => words.insert(at, words[at].clone()),
            4 => {
                let other = random.pick(&GOOD).split(' ').collect::<Vec<_>>();
                words[at] = (*random.pick(&other)).to_owned();
            }
            _ => words[at] = vec![words[at].clone(); 300].join(" "),
        }
        if words.is_empty() {
            break;
        }
    }
    words.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_a_file_shows_to_be_wrong_is_the_statements_fault() {
    let bench = bench().await;
    // Rows of files are filtered while they are read: the fault shows there.
    let text = "SELECT level FROM logs WHERE level IN ('error', 'warn') AND ts BETWEEN level AND now()";
    let error = match bench
        .querier
        .sql(&SqlStatement {
            query: text.to_owned(),
            ..SqlStatement::default()
        })
        .await
    {
        Err(error) => error,
        Ok(mut answer) => loop {
            match answer.next().await {
                Ok(rows) => assert!(rows.is_some(), "it was answered"),
                Err(error) => break error,
            }
        },
    };
    assert_eq!(error.kind(), QueryErrorKind::Statement, "{error:?}");
    assert!(error.to_string().contains("timestamp"), "{error}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_statements_are_answered_or_refused() {
    let bench = bench().await;
    let mut random = Random::new();
    for _ in 0..400 {
        ask(&bench, &broken(&mut random)).await;
    }
    for _ in 0..200 {
        let count = 1 + random.below(12);
        let pieces: Vec<_> = (0..count).map(|_| *random.pick(&PIECES)).collect();
        ask(&bench, &format!("SELECT {}", pieces.join(" "))).await;
    }
    bench.close().await;
}

/// Statements of a few hundred bytes that want everything.
fn greedy() -> Vec<String> {
    let many = |text: &str, times| text.repeat(times);
    let doubled = |links: usize, of: &str| {
        let links: String = (1..=links)
            .map(|n| format!(", t{n} AS (SELECT {of} AS v FROM t{})", n - 1))
            .collect();
        format!("WITH t0 AS (SELECT value AS v FROM metrics){links}")
    };
    vec![
        format!("{} SELECT * FROM t30 WHERE v > 1", doubled(30, "v + v")),
        format!(
            "{} SELECT * FROM t3 WHERE v > 1",
            doubled(3, &format!("v{}", many(" + v", 150)))
        ),
        format!("SELECT * FROM {}logs{}", many("(", 24), many(")", 24)),
        format!("SELECT * FROM {}SELECT 1{}", many("(", 24), many(") t", 24)),
        format!("SELECT {}1{}", many("(", 24), many(")", 24)),
        format!("SELECT {}message{} FROM logs", many("lower(", 12), many(")", 12)),
        format!("SELECT {}message{} FROM logs", many("lower(", 24), many(")", 24)),
        format!("SELECT {}1{}", many("ARRAY[", 24), many("]", 24)),
        format!("SELECT {}1{}", many("CASE WHEN true THEN ", 60), many(" END", 60)),
        format!("SELECT 1 WHERE true{}", many(" OR 1 = 2", 190)),
        format!("SELECT 1{}", many(" + 1", 190)),
        format!("SELECT 1{}", many("::bigint", 190)),
        format!("SELECT 1{}", many(" UNION ALL SELECT 1", 60)),
        format!(
            "SELECT count(*) FROM logs t0{}",
            (1..30).map(|n| format!(", logs t{n}")).collect::<String>()
        ),
        format!(
            "SELECT count(*) FROM logs{}",
            (1..30)
                .map(|n| format!(" NATURAL JOIN (SELECT level FROM logs) t{n}"))
                .collect::<String>()
        ),
        format!("SELECT CASE {} END FROM logs", many("WHEN message = 'a' THEN 1 ", 500)),
        format!("SELECT 1 WHERE 1 IN ({}1)", many("2,", 15_000)),
        "SELECT a.message || b.message FROM logs a, logs b, logs c, logs d, logs e ORDER BY 1".to_owned(),
        "SELECT array_agg(a.message) FROM logs a, logs b, logs c, logs d, logs e".to_owned(),
        "SELECT DISTINCT a.ts, b.ts, c.ts, d.ts FROM logs a, traces b, metrics c, logs d".to_owned(),
        "SELECT repeat('x', 2147483647)".to_owned(),
        "SELECT lpad('x', 2147483647), rpad('x', 2147483647)".to_owned(),
        "SELECT array_repeat(1, 1000000000000), range(1, 1000000000000), generate_series(1, 1000000000000)".to_owned(),
        "SELECT * FROM generate_series(1, 1000000000000)".to_owned(),
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t".to_owned(),
        "WITH RECURSIVE t(n) AS (SELECT 'x' UNION ALL SELECT n || n FROM t) SELECT max(length(n)) FROM t".to_owned(),
        "SELECT regexp_like(message, '(a{1000}){1000}{1000}') FROM logs".to_owned(),
        "SELECT CAST('9999999-01-01' AS TIMESTAMP), INTERVAL '999999999 years' + now()".to_owned(),
        "SELECT -9223372036854775808 / -1, 9223372036854775807 + 1, 1 % 0".to_owned(),
        "SELECT time_bucket(INTERVAL '0 seconds', ts) FROM logs".to_owned(),
        "SELECT date_bin(INTERVAL '0 seconds', ts) FROM logs".to_owned(),
        "SELECT * FROM logs LIMIT 99999999999999999999".to_owned(),
        "SELECT * FROM logs LIMIT -1 OFFSET -1".to_owned(),
        "SELECT * FROM logs OFFSET 9223372036854775807".to_owned(),
        "SELECT * FROM logs TABLESAMPLE (10)".to_owned(),
        "SELECT * FROM information_schema.df_settings".to_owned(),
        "SELECT * FROM read_csv('/etc/passwd')".to_owned(),
        "SELECT * FROM \"/etc/passwd\"".to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_statements_end_and_leave_the_others_in_peace() {
    let bench = bench().await;
    for text in greedy() {
        let begun = std::time::Instant::now();
        ask(&bench, &text).await;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{text:.200}: {took:?}");
    }
    ask(&bench, "SELECT count(*) FROM logs").await;
    bench.close().await;
}
