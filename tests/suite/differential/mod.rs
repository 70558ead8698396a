//! SQL against a real PostgreSQL: some thousand random statements over the same rows give the same answers, or are refused.
//!
//! `PLATFORM_TEST_STATEMENTS=20000` asks more of them, `PLATFORM_TEST_SEED` the same ones again.

mod combinations;
mod compare;
mod data;
mod expressions;
mod judged;
mod statements;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use harness::postgres::TestPostgres;
use harness::{Failure, Random, TestMixer};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use self::compare::{Answer, difference, rows};
use self::statements::Question;

const SOON: Duration = Duration::from_secs(60);
const STATEMENTS: usize = 2_500;
/// Rows of each table.
const ROWS: usize = 240;
/// Statements that are asked at once.
const CLIENTS: usize = 4;

/// What PostgreSQL says to a statement.
struct Expected {
    question: Question,
    types: Vec<Type>,
    answer: Answer,
}

/// What became of statements.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    both_refused: usize,
    refused: BTreeMap<String, (usize, String)>,
    judged: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

#[test]
fn random_statements_are_answered_as_postgresql_answers_them_or_refused() -> Result<(), Failure> {
    let Some(postgres) = TestPostgres::start()? else {
        return Ok(());
    };
    let name = "random_statements_are_answered_as_postgresql_answers_them_or_refused";
    let mut random = Random::seeded(name, 20_261_122);
    let tables = data::rows(&mut random, ROWS);
    let wanted = std::env::var("PLATFORM_TEST_STATEMENTS")
        .ok()
        .and_then(|count| count.parse().ok());
    let questions: Vec<_> = (0..wanted.unwrap_or(STATEMENTS))
        .map(|_| statements::question(&mut random))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let expected = runtime.block_on(async {
        data::insert(&connect(postgres.address).await?, &tables).await?;
        expected(postgres.address, questions).await
    })?;

    let keys = [
        ("postgres.enabled", "true"),
        ("postgres.port", "0"),
        ("observability.embedded.flush_interval", "\"1h\""),
        ("observability.embedded.storage.segment_size_mb", "1"),
    ];
    let mut mixer = TestMixer::with(&keys, &[])?;
    data::store(&mixer, &tables)?;
    let hot = runtime.block_on(asked(mixer.postgres.ok_or("no port")?, &expected))?;
    hot.print("rows in memory");

    mixer.process()?.terminate(SOON)?;
    let settings = mixer.path().join("platform-mixer.toml");
    let often = std::fs::read_to_string(&settings)?.replace("\"1h\"", "\"100ms\"");
    std::fs::write(&settings, often)?;
    mixer.restart()?;
    let sealed = runtime.block_on(asked(mixer.postgres.ok_or("no port")?, &expected))?;
    sealed.print("rows in files, after a restart");
    assert!(
        hot.different.is_empty() && sealed.different.is_empty(),
        "answers differ: see above"
    );
    Ok(())
}

async fn connect(address: SocketAddr) -> Result<Client, Failure> {
    let config = format!(
        "host={} port={} user=postgres dbname=postgres",
        address.ip(),
        address.port()
    );
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn answer(client: &Client, text: &str) -> Result<Answer, Failure> {
    match client.simple_query(text).await {
        Ok(messages) => Ok(Ok(rows(&messages))),
        Err(error) => {
            let Some(refusal) = error.as_db_error() else {
                return Err(format!("{text}: {error}").into());
            };
            Ok(Err((refusal.code().code().to_owned(), refusal.message().to_owned())))
        }
    }
}

/// The answers of PostgreSQL.
async fn expected(address: SocketAddr, questions: Vec<Question>) -> Result<Vec<Expected>, Failure> {
    let client = connect(address).await?;
    let mut all = Vec::new();
    for question in questions {
        let answer = answer(&client, &question.text).await?;
        let types = match answer {
            Ok(_) => client
                .prepare(&question.text)
                .await?
                .columns()
                .iter()
                .map(|column| column.type_().clone())
                .collect(),
            Err(_) => Vec::new(),
        };
        all.push(Expected {
            question,
            types,
            answer,
        });
    }
    Ok(all)
}

/// What becomes of all statements at a Mixer.
async fn asked(address: SocketAddr, expected: &[Expected]) -> Result<Tally, Failure> {
    let share = expected.len().div_ceil(CLIENTS).max(1);
    let parts = expected.chunks(share).map(|part| async move {
        let client = connect(address).await?;
        let mut answers = Vec::new();
        for expected in part {
            answers.push(answer(&client, &expected.question.text).await?);
        }
        Ok::<_, Failure>(answers)
    });
    let answers = futures::future::try_join_all(parts).await?;
    let mut tally = Tally::default();
    for (expected, ours) in expected.iter().zip(answers.into_iter().flatten()) {
        tally.add(expected, ours);
    }
    Ok(tally)
}

impl Tally {
    fn add(&mut self, expected: &Expected, ours: Answer) {
        let Question { text, is_ordered } = &expected.question;
        match (&expected.answer, ours) {
            (Ok(theirs), Ok(ours)) => match difference(theirs, &ours, &expected.types, *is_ordered) {
                None => self.equal += 1,
                Some(why) => self.different.push(format!("{text}\n    {why}")),
            },
            (Err(_), Err((class, message))) if class != "XX000" && class != "57014" => {
                let _ = message;
                self.both_refused += 1;
            }
            (_, Err((class, message))) => {
                let kind = format!("{class} {}", judged::kind(&message));
                let refused = self.refused.entry(kind).or_insert_with(|| (0, text.clone()));
                refused.0 += 1;
                // A defect of the engine is no reason.
                if class == "XX000" || class == "57014" {
                    self.different.push(format!("{text}\n    {class} {message}"));
                }
            }
            (Err((class, message)), Ok(_)) => match judged::reason(class, message, text) {
                Some(reason) => *self.judged.entry(reason).or_default() += 1,
                None => self
                    .different
                    .push(format!("{text}\n    PostgreSQL refuses it: {class} {message}")),
            },
        }
    }

    fn print(&self, state: &str) {
        let refused: usize = self.refused.values().map(|(count, _)| count).sum();
        let judged: usize = self.judged.values().sum();
        let all = self.equal + self.both_refused + refused + judged + self.different.len();
        println!(
            "{state}: {all} statements, {} equal, {} refused by both, {refused} refused here alone, {judged} refused by PostgreSQL alone, {} different",
            self.equal,
            self.both_refused,
            self.different.len()
        );
        let mut kinds: Vec<_> = self.refused.iter().collect();
        kinds.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        for (kind, (count, example)) in kinds {
            println!("  refused here {count:5}: {kind}\n                    {example}");
        }
        for (reason, count) in &self.judged {
            println!("  refused by PostgreSQL {count:5}: {reason}");
        }
        for different in self.different.iter().take(100) {
            println!("  DIFFERENT {different}");
        }
    }
}
