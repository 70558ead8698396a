//! `[quotas]`: what one caller may take.

use harness::{Api, Failure, Random, TestMixer, eventually};
use model::Timestamp;
use serde_json::{Value, json};

use super::SOON;

/// A statement that only its timeout ends, in little memory: three of its tables together are a million short rows.
const ENDLESS: &str = "WITH few AS (SELECT level FROM logs LIMIT 100) \
     SELECT count(*) FROM few a, few b, few c, few d WHERE a.level || b.level || c.level || d.level = 'none'";

/// A caller with a token of its own.
struct TokenCaller<'a> {
    api: &'a Api,
    authorization: String,
}

/// A status, and the body.
type Said = (u16, String);

impl<'a> TokenCaller<'a> {
    fn new(api: &'a Api, name: &str, quotas: Value) -> Result<Self, Failure> {
        let wanted = json!({ "name": name, "roles": ["reader", "ingester", "operator"], "quotas": quotas });
        let made = api.post("/api/v1/tokens", &wanted)?;
        let token = made.json["data"]["token"].as_str().ok_or("no token")?;
        let authorization = format!("Bearer {token}");
        Ok(Self { api, authorization })
    }

    fn send(&self, path: &str, kind: &str, body: &[u8]) -> Result<Said, Failure> {
        let headers = [("Content-Type", kind), ("Authorization", &self.authorization)];
        let answer = self.api.send(path, &headers, body)?;
        Ok((answer.status, answer.text))
    }

    fn sql(&self, statement: &str) -> Result<Said, Failure> {
        self.send("/api/v1/sql", "application/sql", statement.as_bytes())
    }

    fn rows(&self, lines: &str) -> Result<Said, Failure> {
        self.send("/api/v1/ingest/logs", "application/x-ndjson", lines.as_bytes())
    }
}

fn assert_refused((status, text): &Said, key: &str) {
    assert_eq!(*status, 429, "{text}");
    assert!(text.contains("quota_exceeded") && text.contains(key), "{text}");
}

/// About 12 MiB of lines that no compression makes small.
fn lines(random: &mut Random) -> String {
    let now = Timestamp::from(std::time::SystemTime::now());
    let line = |random: &mut Random| {
        let text: String = (0..500).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
        format!("{{\"ts\":\"{now}\",\"level\":\"info\",\"message\":\"{text}\"}}\n")
    };
    (0..1_500).map(|_| line(random)).collect()
}

#[test]
fn a_caller_gets_what_the_quotas_say_and_a_token_with_its_own_gets_those() -> Result<(), Failure> {
    let keys = [
        ("quotas.requests", "2"),
        ("quotas.queries", "1"),
        ("quotas.scanned_mb", "1"),
        ("quotas.ingest_mb", "1"),
        ("quotas.stored_mb", "30"),
        ("query.timeout", "\"3s\""),
        ("observability.embedded.flush_interval", "\"50ms\""),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let mut random = Random::for_test("a_caller_gets_what_the_quotas_say_and_a_token_with_its_own_gets_those");
    let a = TokenCaller::new(&mixer.api, "a", json!({}))?;
    let said: Vec<Said> = (0..200).map(|_| a.sql("SELECT 1")).collect::<Result<_, _>>()?;
    assert_eq!(said.first().map(|said| said.0), Some(200), "{said:?}");
    assert_refused(
        said.iter().find(|said| said.0 == 429).ok_or("no bound")?,
        "quotas.requests",
    );
    // Whoever runs the Mixer finds out who it is, once in an hour.
    let refused = eventually("the refusal in the audit log", SOON, || {
        let rows = mixer.api.rows("/api/v1/audit?kind=call_refused&limit=1000").ok()?;
        (!rows.is_empty()).then_some(rows)
    })?;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["why"], "POST /api/v1/sql: quota_exceeded quotas.requests");
    let by = refused[0]["by"].as_str().unwrap_or_default();
    assert!(by.contains("(token a "), "{by}");

    let b = TokenCaller::new(&mixer.api, "b", json!({ "stored_mb": 0 }))?;
    let body = lines(&mut random);
    // Each owes more seconds than it takes.
    let said: Vec<Said> = (0..8).map(|_| b.rows(&body)).collect::<Result<_, _>>()?;
    assert_eq!(said.first().map(|said| said.0), Some(200), "{said:?}");
    assert_refused(
        said.iter().find(|said| said.0 == 429).ok_or("no bound")?,
        "quotas.ingest_mb",
    );
    let c = TokenCaller::new(&mixer.api, "c", json!({ "ingest_mb": 0, "requests": 0, "queries": 2 }))?;
    for _ in 0..3 {
        assert_eq!(c.rows(&lines(&mut random))?.0, 200);
    }
    assert_refused(&c.rows(&lines(&mut random))?, "quotas.stored_mb");

    eventually("every row in a file", SOON, || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(())
    })?;
    let d = TokenCaller::new(&mixer.api, "d", json!({}))?;
    assert_eq!(d.sql("SELECT min(message) FROM logs")?.0, 200);
    assert_refused(&d.sql("SELECT min(message) FROM logs")?, "quotas.scanned_mb");

    // Letters are rows like others, read in the places of who asks.
    assert_refused(
        &d.send(
            "/api/v1/dlq/drop",
            "application/json",
            b"{\"all\":true,\"dry_run\":true}",
        )?,
        "quotas.scanned_mb",
    );

    let e = &TokenCaller::new(&mixer.api, "e", json!({ "scanned_mb": 0 }))?;
    let said: Vec<Said> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| e.sql(ENDLESS))).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()?.ok()).collect()
    });
    assert_refused(
        said.iter()
            .find(|said| said.0 == 429)
            .ok_or_else(|| format!("no bound: {said:?}"))?,
        "quotas.queries",
    );
    Ok(())
}
