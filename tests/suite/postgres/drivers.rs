//! The clients of PostgreSQL themselves, from psql to JDBC, over a thousand log rows: a Mixer answers each operation as PostgreSQL does.
//!
//! They come by `make postgres-clients`; those that are missing are printed as not run. What they are to print is in
//! `clients/expected.tsv`, which a real PostgreSQL is held to as well, where it is installed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use harness::postgres::TestPostgres;
use harness::process::run;
use harness::{Failure, TestMixer, eventually};
use model::Timestamp;
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use super::{SOON, mixer, run as run_async};

/// Client, operation, and what comes of it.
const EXPECTED: &str = include_str!("clients/expected.tsv");
const ROWS: u64 = 1_000;
const COLUMNS: [&str; 7] = [
    "ts",
    "entity_id",
    "entity_name",
    "flux_id",
    "level",
    "message",
    "attributes",
];
/// Messages that a copy has to escape, in the places from 100 on.
const ODD: [&str; 4] = ["odd, \"quoted\"", "odd\ttab\nline", "odd \\ back", "odd ä 日本"];
/// The tables of a Mixer as PostgreSQL has them.
const TABLES: &str = "
    CREATE TABLE logs (ts timestamptz NOT NULL, entity_id uuid NOT NULL, entity_name text NOT NULL, flux_id uuid, level text NOT NULL,
        message text NOT NULL, attributes text NOT NULL);
    CREATE TABLE traces (ts timestamptz NOT NULL, trace_id text NOT NULL, span_id text NOT NULL, parent_span_id text, flux_id uuid,
        entity_id uuid NOT NULL, entity_name text NOT NULL, span_name text NOT NULL, duration_ms real NOT NULL, status text NOT NULL,
        attributes text NOT NULL);
    CREATE TABLE metrics (ts timestamptz NOT NULL, name text NOT NULL, entity_id uuid NOT NULL, entity_name text NOT NULL,
        type text NOT NULL, value float8 NOT NULL, labels text NOT NULL);
    CREATE TABLE messages (ts timestamptz NOT NULL, trace_id text NOT NULL, flux_id uuid NOT NULL, entity_id uuid NOT NULL,
        entity_name text NOT NULL, src_gear_id text NOT NULL, dst_gear_id text, msg_type text NOT NULL, direction text NOT NULL,
        status text NOT NULL, raw_msg bytea NOT NULL, promoted text NOT NULL);";
/// What a Mixer says of itself.
const SETTINGS: &str =
    "ALTER SCHEMA public OWNER TO postgres; ALTER DATABASE platform SET default_transaction_read_only = on;
    ALTER DATABASE platform SET datestyle = 'ISO, YMD'";

/// A script that runs clients.
struct ClientProgram {
    clients: Vec<&'static str>,
    program: PathBuf,
    args: Vec<String>,
    folder: PathBuf,
}

/// What came of one operation.
struct ClientAnswer {
    client: String,
    version: String,
    operation: String,
    value: String,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn python(project: &Path, script: &Path) -> Option<ClientProgram> {
    let program = project.join(".tools/postgres-python/bin/python");
    let mut clients = vec![
        "psycopg",
        "start-up of Npgsql",
        "start-up of Grafana",
        "psycopg2",
        "asyncpg",
        "SQLAlchemy, psycopg",
        "SQLAlchemy, psycopg2",
        "ADBC",
        "ConnectorX",
        "DuckDB",
    ];
    if is_installed("psql") {
        clients.push("psql");
    } else {
        println!("not run: psql; apt-get install postgresql-client has it");
    }
    program.is_file().then(|| ClientProgram {
        clients,
        program,
        args: vec!["-B".to_owned(), script.display().to_string()],
        folder: project.to_owned(),
    })
}

fn node(project: &Path, script: &Path) -> Option<ClientProgram> {
    let folder = project.join(".tools/postgres-node");
    folder.join("node_modules").is_dir().then(|| ClientProgram {
        clients: vec!["pg", "pg-cursor", "pg-query-stream", "pg-copy-streams"],
        program: "node".into(),
        args: vec![script.display().to_string()],
        folder,
    })
}

fn jdbc(project: &Path, script: &Path) -> Option<ClientProgram> {
    let driver = project.join(".tools/postgres-jdbc/postgresql.jar");
    let args = [
        "-Duser.timezone=UTC".to_owned(),
        "-cp".to_owned(),
        driver.display().to_string(),
    ];
    (driver.is_file() && is_installed("javac")).then(|| ClientProgram {
        clients: vec!["JDBC"],
        program: "java".into(),
        args: args.into_iter().chain([script.display().to_string()]).collect(),
        folder: project.to_owned(),
    })
}

/// Those that are installed.
fn programs() -> Result<Vec<ClientProgram>, Failure> {
    let project = project().canonicalize()?;
    let scripts = project.join("tests/suite/postgres/clients");
    let found = [
        ("clients from Python", python(&project, &scripts.join("drivers.py"))),
        ("clients from JavaScript", node(&project, &scripts.join("drivers.mjs"))),
        ("JDBC", jdbc(&project, &scripts.join("Drivers.java"))),
    ];
    let found = found.into_iter().filter_map(|(name, program)| {
        if program.is_none() {
            println!("not run: {name}; make postgres-clients installs what it can of them");
        }
        program
    });
    Ok(found.collect())
}

impl ClientProgram {
    /// What comes of each operation over the rows from `first` on.
    fn ask(&self, address: SocketAddr, first: i64) -> Result<Vec<ClientAnswer>, Failure> {
        let mut args = self.args.clone();
        args.extend([address.port().to_string(), "tester".to_owned(), first.to_string()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = run(&self.program, &args, &self.folder, &[])?;
        if done.code != Some(0) {
            return Err(format!("{:?} ended with {:?}: {}", self.clients, done.code, done.err).into());
        }
        let answer = |line: &str| -> Result<ClientAnswer, Failure> {
            let fields: Vec<&str> = line.splitn(4, '\t').collect();
            let [client, version, operation, value] = fields[..] else {
                return Err(format!("{line:?} is no answer").into());
            };
            Ok(ClientAnswer {
                client: client.to_owned(),
                version: version.to_owned(),
                operation: operation.to_owned(),
                value: value.to_owned(),
            })
        };
        done.out.lines().map(answer).collect()
    }
}

/// What a server makes of the operations of a program.
#[derive(Default)]
struct ServerResults {
    /// By client and operation.
    results: BTreeMap<(String, String), &'static str>,
    wrong: Vec<String>,
}

impl ServerResults {
    fn of(server: &str, program: &ClientProgram, answers: &[ClientAnswer]) -> Self {
        let expected: BTreeMap<(&str, &str), &str> = EXPECTED
            .lines()
            .filter_map(|line| {
                let (client, rest) = line.split_once('\t')?;
                let (operation, value) = rest.split_once('\t')?;
                program
                    .clients
                    .contains(&client)
                    .then_some(((client, operation), value))
            })
            .collect();
        let mut found = Self::default();
        for answer in answers {
            let key = (answer.client.clone(), answer.operation.clone());
            let wanted = expected.get(&(answer.client.as_str(), answer.operation.as_str()));
            let is_equal = wanted == Some(&answer.value.as_str());
            if !is_equal {
                let (client, operation) = &key;
                let wanted = wanted.unwrap_or(&"nothing");
                let value = &answer.value;
                found.wrong.push(format!(
                    "{server}: {client}, {operation}:\n  {value}\n  where is expected\n  {wanted}"
                ));
            }
            found.results.insert(key, if is_equal { "equal" } else { "DIFFERENT" });
        }
        for (client, operation) in expected.into_keys() {
            if !found.results.contains_key(&(client.to_owned(), operation.to_owned())) {
                found
                    .wrong
                    .push(format!("{server}: {client}, {operation}: was not run"));
            }
        }
        found
    }

    fn result(&self, answer: &ClientAnswer) -> &'static str {
        let key = (answer.client.clone(), answer.operation.clone());
        self.results.get(&key).copied().unwrap_or("-")
    }
}

/// The rows, each a microsecond after the one before.
fn rows(first: Timestamp) -> Vec<Value> {
    let row = |number: u64| {
        let odd = usize::try_from(number)
            .ok()
            .and_then(|number| ODD.get(number.checked_sub(100)?));
        json!({
            "ts": first.plus(Duration::from_micros(number)).to_string(),
            "entity_id": "0193a3a0-0000-7000-8000-000000000001",
            "entity_name": "rack-a",
            "flux_id": number.is_multiple_of(3).then(|| format!("018f6f1e-7f6a-7c3e-9d5b-{number:012}")),
            "level": if number.is_multiple_of(2) { "info" } else { "error" },
            "message": odd.map_or_else(|| format!("row {number}"), |odd| (*odd).to_owned()),
            "attributes": { "n": number, "text": "it's \"odd\"" },
        })
    };
    (0..ROWS).map(row).collect()
}

fn store(mixer: &TestMixer, rows: &[Value]) -> Result<(), Failure> {
    let body: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let headers = [("Content-Type", "application/x-ndjson")];
    eventually("rows that are stored", SOON, || {
        let answer = mixer.api.send("/api/v1/ingest/logs", &headers, body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    })
}

async fn connect(address: SocketAddr, database: &str) -> Result<Client, Failure> {
    let (host, port) = (address.ip(), address.port());
    let config = format!("host={host} port={port} user=postgres dbname={database}");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Makes the tables of a Mixer in PostgreSQL, with these rows.
async fn insert(address: SocketAddr, rows: &[Value]) -> Result<(), Failure> {
    let client = connect(address, "postgres").await?;
    client.batch_execute("CREATE ROLE tester SUPERUSER LOGIN").await?;
    client.batch_execute("CREATE DATABASE platform").await?;
    let client = connect(address, "platform").await?;
    client.batch_execute(TABLES).await?;
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let values = rows.iter().map(|row| {
        let values = COLUMNS.map(|column| match &row[column] {
            Value::Null => "NULL".to_owned(),
            Value::String(text) => quoted(text),
            other => quoted(&other.to_string()),
        });
        format!("({})", values.join(", "))
    });
    let values: Vec<String> = values.collect();
    let insert = format!("INSERT INTO logs ({}) VALUES {}", COLUMNS.join(", "), values.join(", "));
    client.batch_execute(&insert).await?;
    Ok(client.batch_execute(SETTINGS).await?)
}

#[test]
fn clients_of_postgresql_are_answered_as_postgresql_answers_them() -> Result<(), Failure> {
    let programs = programs()?;
    if programs.is_empty() {
        return Ok(());
    }
    let now = Timestamp::from(SystemTime::now()).micros();
    // A whole second: some clients count in milliseconds.
    let first = now - now.rem_euclid(1_000_000) - 600_000_000;
    let rows = rows(Timestamp::from_micros(first));
    let mixer = mixer(&[])?;
    store(&mixer, &rows)?;
    let address = mixer.postgres.ok_or("no PostgreSQL port")?;
    let postgres = TestPostgres::start()?;
    if let Some(postgres) = &postgres {
        run_async(insert(postgres.address, &rows))?;
    }

    println!("{:30} {:36} {:10} PostgreSQL", "client", "operation", "Mixer");
    let mut wrong = Vec::new();
    for program in programs {
        let answers = program.ask(address, first)?;
        let of_mixer = ServerResults::of("Mixer", &program, &answers);
        let of_postgres = match &postgres {
            Some(postgres) => ServerResults::of("PostgreSQL", &program, &program.ask(postgres.address, first)?),
            None => ServerResults::default(),
        };
        for answer in &answers {
            let client = format!("{} {}", answer.client, answer.version);
            let (ours, theirs) = (of_mixer.result(answer), of_postgres.result(answer));
            println!("{client:30} {:36} {ours:10} {theirs}", answer.operation);
        }
        wrong.extend(of_mixer.wrong);
        wrong.extend(of_postgres.wrong);
    }
    assert!(wrong.is_empty(), "{} operations:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
