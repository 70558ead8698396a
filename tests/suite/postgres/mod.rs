//! The Mixer as a PostgreSQL server: real drivers, the real psql, and bytes that no client sends.

mod catalog;
mod clients;
mod drivers;
mod grafana;
mod limits;
mod psql;
mod statements;
pub(crate) mod wire;

use std::future::Future;
use std::time::Duration;

use harness::{Failure, TestMixer, eventually};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

const SOON: Duration = Duration::from_secs(60);
/// More pairs than anybody counts in a test's time, in so few rows that nothing else limits them.
const ENDLESS: &str =
    "SELECT count(*) FROM logs a, logs b, logs c, logs d WHERE a.message || b.message < c.message || d.message";

/// A Mixer that PostgreSQL clients connect to, with these keys beside.
fn mixer(keys: &[(&str, &str)]) -> Result<TestMixer, Failure> {
    let keys: Vec<_> = [("postgres.enabled", "true"), ("postgres.port", "0")]
        .iter()
        .chain(keys)
        .copied()
        .collect();
    TestMixer::with(&keys, &[])
}

/// Stores numbered log rows.
fn fill(mixer: &TestMixer, rows: u64) -> Result<(), Failure> {
    let row = |number: u64| {
        json!({
            "ts": format!("2026-11-22T10:00:00.{number:06}Z"),
            "level": if number.is_multiple_of(2) { "info" } else { "error" },
            "message": format!("row {number}"),
            "attributes": { "n": number, "text": "it's \"odd\"" },
        })
    };
    // What is much older than the clock is not taken.
    let now = model::Timestamp::from(std::time::SystemTime::now());
    let body: String = (0..rows)
        .map(|number| {
            let mut row = row(number);
            row["ts"] = Value::from(now.plus(Duration::from_micros(number)).to_string());
            format!("{row}\n")
        })
        .collect();
    let headers = [("Content-Type", "application/x-ndjson")];
    eventually("rows that are stored", SOON, || {
        let answer = mixer.api.send("/api/v1/ingest/logs", &headers, body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    })
}

fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// A client of a Mixer; its connection goes with the runtime.
async fn connect(mixer: &TestMixer) -> Result<Client, Failure> {
    let address = mixer.postgres.ok_or("no PostgreSQL port")?;
    let config = format!(
        "host={} port={} user=tester dbname=platform",
        address.ip(),
        address.port()
    );
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The class and the text of an error, and its place.
fn told(error: &tokio_postgres::Error) -> (String, String, Option<u32>) {
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
    let place = match error.position() {
        Some(tokio_postgres::error::ErrorPosition::Original(place)) => Some(*place),
        _ => None,
    };
    (error.code().code().to_owned(), error.message().to_owned(), place)
}
