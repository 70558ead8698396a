//! The command as a user and a script meet it. Here: a Mixer with telemetry of known content, and the command pointed at it.

mod doctor;
mod ends;
mod every_command;
mod pages;
mod rows;
mod screen;
mod shell;
mod sql;
mod terminal;
mod times;

use std::time::Duration;

use harness::process::{Finished, run};
use harness::{Failure, TestMixer, binary, eventually};
use model::Timestamp;
use serde_json::Value;

pub(crate) const SOON: Duration = Duration::from_secs(30);
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A Mixer with telemetry of known content, and the command pointed at it.
pub(crate) struct Desk {
    pub(crate) mixer: TestMixer,
    pub(crate) now: Timestamp,
}

impl Desk {
    pub(crate) fn open() -> Result<Self, Failure> {
        Ok(Self {
            mixer: TestMixer::start("")?,
            now: Timestamp::from(std::time::SystemTime::now()),
        })
    }

    /// A time so many seconds before the start, as rows carry it.
    pub(crate) fn ago(&self, seconds: u64) -> String {
        self.now.minus(Duration::from_secs(seconds)).to_string()
    }

    /// Publishes rows of a table as a script named `entity` would, and waits until so many rows of it are there.
    pub(crate) fn seed(&self, table: &str, entity: &str, rows: &Value) -> Result<(), Failure> {
        let subject = format!("flux.telemetry.{table}.{entity}");
        publish(&self.mixer, &subject, "application/json", rows.to_string())?;
        let count = rows.as_array().map_or(0, Vec::len);
        let path = format!("/api/v1/telemetry/{table}?entity={entity}&limit=1000");
        eventually("the seeded rows", SOON, || {
            (self.mixer.api.rows(&path).ok()?.len() >= count).then_some(())
        })
    }

    pub(crate) fn ask(&self, args: &[&str]) -> Result<Finished, Failure> {
        self.ask_in("UTC", args)
    }

    /// The same where the local zone is another one, given as in the variable TZ.
    pub(crate) fn ask_in(&self, zone: &str, args: &[&str]) -> Result<Finished, Failure> {
        let url = ("PLATFORM_API_URL", self.mixer.api.base.as_str());
        run(&binary("platform")?, args, self.mixer.path(), &[url, ("TZ", zone)])
    }

    /// The same, which must succeed: its output.
    pub(crate) fn answer(&self, args: &[&str]) -> Result<String, Failure> {
        let done = self.ask(args)?;
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        Ok(done.out)
    }
}

pub(crate) fn publish(mixer: &TestMixer, subject: &str, kind: &str, body: String) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = mixer.operator()?.connect(&mixer.bus_url).await?;
        let js = async_nats::jetstream::with_domain(client, "flux");
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Content-Type", kind);
        let sent = js
            .publish_with_headers(subject.to_owned(), headers, body.into())
            .await?;
        sent.await?;
        Ok(())
    })
}

pub(crate) fn json_rows(text: &str) -> Result<Vec<Value>, Failure> {
    Ok(serde_json::from_str(text)?)
}
