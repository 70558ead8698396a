//! Answers as wholes: formats, limits, places, plans.

use std::sync::Arc;

use datafusion::arrow::ipc::reader::StreamReader;
use serde_json::{Value, json};

use super::{bench, rows, statement, written};
use crate::{Error, ListQuery, RowFormat, SqlStatement};

#[tokio::test(flavor = "multi_thread")]
async fn all_formats_have_the_same_rows() {
    let bench = bench().await;
    let query = "SELECT l.ts, flux_id, level, attributes, attributes a, NULL AS nothing, '' AS empty, '\"a\",\n' AS odd, \
                 1.5::real AS r, 'NaN'::double AS nan, X'00ff' AS b, true AS t, [1, NULL] AS list, x.ts, count(*) OVER () n \
                 FROM logs l CROSS JOIN (SELECT TIMESTAMP '2026-11-21 10:00:00' AS ts) x ORDER BY l.ts DESC, level, message, uuid_text(flux_id), attributes LIMIT 50";
    let asked = statement(query, &json!([]));
    let json: Value = serde_json::from_slice(&written(&bench.querier, RowFormat::Json, &asked).await.unwrap()).unwrap();
    let names: Vec<_> = json["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[names.len() - 2], "ts_1", "{names:?}");
    let row = &json["data"][0];
    assert!(row["attributes"].is_object() && row["a"].is_string(), "{row}");
    assert_eq!(row["nan"], "NaN");
    assert_eq!(row["b"], "00ff");
    assert_eq!(row["list"], json!([1, null]));
    let lines = String::from_utf8(written(&bench.querier, RowFormat::Ndjson, &asked).await.unwrap()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json["data"], json!(lines));
    let csv = String::from_utf8(written(&bench.querier, RowFormat::Csv, &asked).await.unwrap()).unwrap();
    assert!(
        csv.starts_with("ts,flux_id,level,attributes,a,nothing,empty,odd,r,nan,b,t,list,ts_1,n\n2026-"),
        "{csv}"
    );
    assert!(
        csv.contains(",,\"\",\"\"\"a\"\",\n\",1.5,NaN,00ff,true,\"[1,null]\",2026-11-21T10:00:00,"),
        "{csv}"
    );
    let arrow = written(&bench.querier, RowFormat::Arrow, &asked).await.unwrap();
    let batches = StreamReader::try_new(arrow.as_slice(), None).unwrap();
    let count: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(count, 50);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_cuts_and_says_so() {
    let bench = bench().await;
    for (limit, given, truncated) in [(Some(7), 7, true), (Some(180), 180, false), (None, 180, false)] {
        for query in ["SELECT * FROM logs", "SELECT * FROM logs ORDER BY ts DESC"] {
            let asked = SqlStatement {
                limit,
                ..statement(query, &json!([]))
            };
            let json: Value =
                serde_json::from_slice(&written(&bench.querier, RowFormat::Json, &asked).await.unwrap()).unwrap();
            assert_eq!(json["data"].as_array().map(Vec::len), Some(given));
            assert_eq!(json["stats"]["truncated"], truncated);
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_reader_leaves_gives_its_place_back() {
    let bench = bench().await;
    let crossed = "SELECT a.message, b.message FROM logs a, logs b, logs c";
    for _ in 0..12 {
        let mut answer = bench.querier.sql(&statement(crossed, &json!([]))).await.unwrap();
        assert!(answer.next().await.unwrap().is_some());
    }
    let gate = Arc::clone(&bench.querier.gate);
    crate::tests::until("all places", || gate.free() == 4).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_answered_beside_as_many_heavy_statements_as_may_run() {
    let bench = bench().await;
    let crossed =
        "SELECT count(*) FROM logs a, logs b, logs c, logs d WHERE a.message || b.message < c.message || d.message";
    let crossed = statement(crossed, &json!([]));
    {
        let heavy = futures::future::join_all((0..3).map(|_| bench.querier.sql(&crossed)));
        let other = async {
            crate::tests::until("three statements to run", || bench.querier.gate.free() == 1).await;
            let refused = bench.querier.sql(&statement("SELECT 1", &json!([]))).await.err();
            let listed = bench
                .querier
                .page(ListQuery::Logs(model::filter::LogFilter::default()))
                .await;
            (refused, listed)
        };
        tokio::pin!(heavy, other);
        let ended = futures::future::select(heavy, other).await;
        let futures::future::Either::Right(((refused, listed), _)) = ended else {
            panic!("a statement came to its end: this test is too small");
        };
        assert!(
            matches!(refused, Some(Error::BusyWithStatements { running: 3 })),
            "{refused:?}"
        );
        assert_eq!(listed.unwrap().rows.len(), 100);
    }
    let gate = Arc::clone(&bench.querier.gate);
    crate::tests::until("all places", || gate.free() == 4).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_show_and_describe_answer() {
    let bench = bench().await;
    for query in [
        "EXPLAIN SELECT * FROM logs WHERE flux_id = '018f2c1e-0000-7000-8000-000000000000'",
        "EXPLAIN ANALYZE SELECT count(*) FROM logs",
        "EXPLAIN VERBOSE SELECT count(*) FROM logs",
        "SHOW TABLES",
        "SHOW COLUMNS FROM logs",
        "DESCRIBE traces",
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 20) SELECT sum(n) FROM t",
    ] {
        assert!(!rows(&bench, query).await.is_empty(), "{query}");
    }
    bench.close().await;
}
