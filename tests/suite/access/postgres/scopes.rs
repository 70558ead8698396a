//! What a token's scope of tables or entities hides from a PostgreSQL client.

use std::time::SystemTime;

use harness::{Api, Failure, TestMixer, eventually};
use model::Timestamp;
use serde_json::json;
use tokio_postgres::NoTls;

use super::{SUCCESS, make_token, opened, outcome};
use crate::access::{SOON, config_of, run, sqlstate};

/// How clients find out which tables there are.
const LISTINGS: [&str; 3] = [
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1",
    "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1",
];

/// What a prepared statement reads, as drivers ask.
fn prepared(mixer: &TestMixer, (user, secret): (&str, &str), statement: &str) -> Result<Vec<String>, Failure> {
    let config = config_of(mixer, user, secret)?;
    run(async {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        let rows = client.query(statement, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    })
}

/// Stores a log row and a metric point of an entity.
fn ingest(api: &Api, entity: &str) -> Result<(), Failure> {
    let now = Timestamp::from(SystemTime::now()).to_string();
    let point = json!({ "ts": now, "name": "temp", "type": "gauge", "value": 21.5, "labels": { "zone": "a" } });
    let headers = [("Content-Type", "application/x-ndjson"), ("Flux-Entity-Name", entity)];
    for (table, row) in [
        ("logs", json!({ "ts": now, "level": "info", "message": "a row" })),
        ("metrics", point),
    ] {
        let (path, row) = (format!("/api/v1/ingest/{table}"), row.to_string());
        eventually("rows that are stored", SOON, || {
            let answer = api.send(&path, &headers, row.as_bytes()).ok()?;
            (answer.status == 200).then_some(())
        })?;
    }
    Ok(())
}

#[test]
fn a_token_for_some_tables_neither_reads_nor_lists_the_others() -> Result<(), Failure> {
    let (_folder, mixer, admin) = opened(&[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    ingest(&api, "press-a")?;
    let (name, secret) = make_token(&api, "all", &["reader"], json!({}))?;
    let all = (name.as_str(), secret.as_str());
    let asked = json!({ "scope": { "tables": ["logs"] } });
    let (name, secret) = make_token(&api, "only-logs", &["reader"], asked)?;
    let only_logs = (name.as_str(), secret.as_str());
    let tables = "logs,messages,metrics,traces";
    for listing in LISTINGS {
        for (who, wanted) in [(all, tables), (only_logs, "logs")] {
            let listed = outcome(&mixer, who, listing);
            assert_eq!(listed, (SUCCESS.to_owned(), wanted.to_owned()), "{}: {listing}", who.0);
        }
    }
    let count = "SELECT count(*) FROM logs WHERE entity_name = 'press-a'";
    let counted = outcome(&mixer, only_logs, count);
    assert_eq!(counted, outcome(&mixer, all, count));
    assert_ne!(counted.1, "0");
    for statement in [
        "SELECT name FROM metrics LIMIT 3",
        "SELECT count(*) FROM metrics",
        "SELECT message FROM logs WHERE (SELECT count(*) FROM metrics) > 0 LIMIT 3",
        "SELECT count(*) FROM logs l JOIN metrics m ON m.entity_id = l.entity_id",
        "EXPLAIN SELECT name FROM metrics",
    ] {
        assert_eq!(outcome(&mixer, all, statement).0, SUCCESS, "{statement}");
        let (code, message) = outcome(&mixer, only_logs, statement);
        assert!(
            code == "42501" && message.contains("may not read metrics"),
            "{statement}: {code} {message}"
        );
    }
    let names = "SELECT DISTINCT name FROM metrics WHERE entity_name = 'press-a'";
    assert_eq!(prepared(&mixer, all, names)?, ["temp"]);
    let refused = prepared(&mixer, only_logs, names).err().ok_or("it reads metrics")?;
    assert_eq!(sqlstate(&refused), "42501");
    Ok(())
}

#[test]
fn a_token_for_some_entities_sees_no_rows_of_others() -> Result<(), Failure> {
    let (_folder, mixer, admin) = opened(&[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    ingest(&api, "press-a")?;
    ingest(&api, "press-b")?;
    let (name, secret) = make_token(&api, "all", &["reader"], json!({}))?;
    let all = (name.as_str(), secret.as_str());
    let asked = json!({ "scope": { "entities": ["press-a"] } });
    let (name, secret) = make_token(&api, "only-press-a", &["reader"], asked)?;
    let only_a = (name.as_str(), secret.as_str());
    for table in ["logs", "metrics"] {
        // The Mixer's own rows may be among them.
        let entities = format!("SELECT DISTINCT entity_name FROM {table} ORDER BY 1");
        let seen = prepared(&mixer, all, &entities)?;
        assert!(
            seen.contains(&"press-a".to_owned()) && seen.contains(&"press-b".to_owned()),
            "{table}: {seen:?}"
        );
        assert_eq!(prepared(&mixer, only_a, &entities)?, ["press-a"], "{table}");
        assert_eq!(
            outcome(&mixer, only_a, &entities),
            (SUCCESS.to_owned(), "press-a".to_owned()),
            "{table}"
        );
        let count = format!("SELECT count(*) FROM {table} WHERE entity_name = 'press-b'");
        assert_ne!(outcome(&mixer, all, &count).1, "0", "{table}");
        assert_eq!(
            outcome(&mixer, only_a, &count),
            (SUCCESS.to_owned(), "0".to_owned()),
            "{table}"
        );
    }
    Ok(())
}
