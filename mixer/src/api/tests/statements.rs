//! Statements over HTTP: the formats of answers, and what is refused.

use super::*;

impl Bench {
    async fn sql(&self, head: &str, path: &str, body: &str) -> Answer {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        send(self.api.addr(), &request).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_before_its_first_chunk_has_the_status_of_its_failure() {
    let bench = Bench::new().await;
    let query = "SELECT n, 1 / (n - 3) FROM (VALUES (1), (2), (3)) t(n)";
    for format in ["json", "ndjson", "csv", "arrow"] {
        let path = format!("/api/v1/sql?format={format}");
        let answer = bench.sql("content-type: application/sql\r\n", &path, query).await;
        assert_eq!(answer.status, 400, "{format}: {}", answer.body);
        assert!(
            answer.has_header("content-type", "application/problem+json"),
            "{}",
            answer.head
        );
        assert!(answer.body.contains("Divide by zero"), "{}", answer.body);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_is_answered_in_the_format_that_is_asked_for() {
    let bench = Bench::new().await;
    let body = r#"{"query":"SELECT $1 AS a, 2 AS b","parameters":["x,y"],"limit":5.0}"#;
    for (head, path, kind, text) in [
        (
            "",
            "/api/v1/sql",
            "application/json",
            r#""data":[{"a":"x,y","b":2}],"stats":{"files_considered":0"#,
        ),
        ("accept: text/csv\r\n", "/api/v1/sql", "text/csv", "a,b\n\"x,y\",2\n"),
        (
            "",
            "/api/v1/sql?format=ndjson",
            "application/x-ndjson",
            "{\"a\":\"x,y\",\"b\":2}\n",
        ),
    ] {
        let answer = bench.sql(head, path, body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.has_header("content-type", kind), "{}", answer.head);
        assert!(answer.body.contains(text), "{kind}: {}", answer.body);
    }
    let plain = bench
        .sql(
            "content-type: application/sql\r\n",
            "/api/v1/sql?format=csv",
            "SELECT 1 AS a",
        )
        .await;
    assert!(plain.body.contains("a\n1\n"), "{}", plain.body);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_statement_that_reads_is_a_problem_with_its_place() {
    let bench = Bench::new().await;
    for (body, status, code) in [
        (r#"{"query":"SELECT nothing FROM logs"}"#, 400, "sql_error"),
        (r#"{"query":"SELECT 1; SELECT 2"}"#, 400, "sql_error"),
        (r#"{"query":"DROP TABLE logs"}"#, 403, "read_only"),
        (r#"{"query":"SET a = 1"}"#, 403, "read_only"),
        (r#"{"sql":"SELECT 1"}"#, 400, "bad_body"),
        (r#"{"query":"SELECT 1","limit":-1}"#, 400, "bad_body"),
        (r#"{"query":"SELECT 1","limit":0.5}"#, 400, "bad_body"),
        (r#"{"query":"SELECT 1","limit":18446744073709551616}"#, 400, "bad_body"),
        ("SELECT 1", 400, "bad_body"),
        ("", 400, "bad_body"),
    ] {
        let answer = bench
            .sql("content-type: application/json\r\n", "/api/v1/sql", body)
            .await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert_eq!(answer.json()["code"], code, "{body}: {}", answer.body);
    }
    let answer = bench
        .sql("", "/api/v1/sql", r#"{"query":"SELECT nothing FROM logs"}"#)
        .await;
    assert!(answer.body.contains("line 1, column 8"), "{}", answer.body);
    assert_eq!(answer.json()["position"], json!({ "line": 1, "column": 8 }));
    let problem = bench
        .sql("accept: image/png\r\n", "/api/v1/sql", r#"{"query":"SELECT 1"}"#)
        .await;
    assert_eq!(
        (problem.status, &problem.json()["code"]),
        (406, &json!("not_acceptable"))
    );
    assert_eq!(bench.sql("", "/api/v1/sql?format=xml", "{}").await.status, 400);
    assert_eq!(bench.get("/api/v1/sql").await.status, 405);
    bench.close().await;
}
