//! Connection to the server's system account: its health, and the order to read its configuration again.
//!
//! | request `$SYS.REQ.SERVER.<id>.…` | answered |
//! |---|---|
//! | `HEALTHZ` | at once: `data.status` is `ok`, or `data.error` says what is wrong |
//! | `RELOAD` | after the configuration was read: `error` says why it was not |
//!
//! # Invariants
//!
//! - The server works on one request after the other, and reads the file anew for each `RELOAD`: an answer is never that of a reading
//!   which began before the request.
//! - The user's seed is in memory only. No other account imports these subjects, and there is no HTTP monitor.
//!
//! # Not here
//!
//! What follows from an answer (`supervisor`, `reload`).

use std::time::Duration;

use async_nats::{Client, Request};
use chassis::bus::BusTrust;
use serde::Deserialize;

use super::accounts::BusUser;
use super::client::user_options;
use super::health::ServerHealth;

/// How long a question about its health may take: longer than the reading of a large list, behind which it waits.
const HEALTH: Duration = Duration::from_secs(10);
/// Attempts to make a broken connection again, a tenth of a second apart. Where they fail the server has ended, or hangs.
const RECONNECTS: usize = 50;

/// The connection to one server process.
#[derive(Debug)]
pub(super) struct SystemConnection {
    client: Client,
    server_id: String,
}

#[derive(Deserialize)]
struct SystemAnswer {
    data: Option<HealthReport>,
    error: Option<ErrorReport>,
}

#[derive(Deserialize)]
struct HealthReport {
    status: String,
    error: Option<String>,
}

#[derive(Deserialize)]
struct ErrorReport {
    description: String,
}

impl SystemConnection {
    /// Connects to the server at this address.
    pub(super) async fn open(address: &str, user: &BusUser, trust: Option<&BusTrust>) -> Result<Self, String> {
        let options = user_options(user, trust)
            .name("platform-mixer-supervisor")
            .connection_timeout(HEALTH)
            .max_reconnects(RECONNECTS)
            .reconnect_delay_callback(|_| Duration::from_millis(100));
        let client = options.connect(address).await.map_err(|error| error.to_string())?;
        let server_id = client.server_info().server_id;
        Ok(Self { client, server_id })
    }

    /// Asks the server how it is.
    pub(super) async fn health(&self) -> ServerHealth {
        let answer = match self.ask("HEALTHZ", HEALTH).await {
            Ok(answer) => answer,
            Err(silence) => return ServerHealth::Silent(silence),
        };
        match (answer.data, answer.error) {
            (Some(report), None) if report.status == "ok" => ServerHealth::Well,
            (Some(report), _) => ServerHealth::Sick(report.error.unwrap_or(report.status)),
            (None, error) => ServerHealth::Sick(error.map_or_else(String::new, |error| error.description)),
        }
    }

    /// Has the server read its configuration again; returns when it has.
    ///
    /// # Errors
    /// Why it did not; or that it did not answer in time, and may still do it.
    pub(super) async fn reload(&self, within: Duration) -> Result<(), String> {
        let error = self.ask("RELOAD", within).await?.error;
        error.map_or(Ok(()), |error| Err(error.description))
    }

    async fn ask(&self, request: &str, within: Duration) -> Result<SystemAnswer, String> {
        let subject = format!("$SYS.REQ.SERVER.{}.{request}", self.server_id);
        let request = Request::new().timeout(Some(within));
        let answer = self.client.send_request(subject, request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer.payload).map_err(|error| format!("its answer cannot be read: {error}"))
    }
}
