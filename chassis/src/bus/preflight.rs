//! Preflight of a bus: are the persistent streams of our domain there? If not, why not?
//!
//! A request for another domain's streams finds no listener, just as one to a server without streams. Asking without
//! a domain tells the two apart: that request is answered by whatever the server itself has.

use std::time::Duration;

use async_nats::jetstream::context::{AccountErrorKind, ContextBuilder};

use super::BusConnection;
use crate::Error;
use crate::config::without_credentials;

/// The time one question may take.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn run(bus: &BusConnection) -> Result<(), Error> {
    let options = bus.options();
    let url = without_credentials(&options.url);
    let fault = |kind: AccountErrorKind| match kind {
        AccountErrorKind::TimedOut => Error::BusUnreachable {
            url: url.clone(),
            reason: "no answer to a request about its streams".to_owned(),
        },
        other => Error::BusFault {
            url: url.clone(),
            reason: other.to_string(),
        },
    };
    let ours = ContextBuilder::new()
        .domain(&options.domain)
        .timeout(PATIENCE)
        .build(bus.client.clone());
    match ours.query_account().await.map_err(|error| error.kind()) {
        Ok(_) => return Ok(()),
        Err(AccountErrorKind::TimedOut) => {
            // A bus that knows its users does not answer what they may not ask.
            check_greeting(bus)?;
            return Err(fault(AccountErrorKind::TimedOut));
        }
        Err(kind) if !is_absence(&kind) => return Err(fault(kind)),
        Err(_) => {}
    }
    let any = ContextBuilder::new().timeout(PATIENCE).build(bus.client.clone());
    match any.query_account().await {
        Ok(account) => Err(Error::DomainMismatch {
            url,
            ours: options.domain.clone(),
            theirs: account.domain,
        }),
        Err(error) if is_absence(&error.kind()) => Err(Error::NoStreams { url }),
        Err(error) => Err(fault(error.kind())),
    }
}

/// Compares our domain with the one that the server said when it greeted us, if it has one.
pub(super) fn check_greeting(bus: &BusConnection) -> Result<(), Error> {
    let options = bus.options();
    match bus.client.server_info().domain {
        Some(theirs) if theirs != options.domain => Err(Error::DomainMismatch {
            url: without_credentials(&options.url),
            ours: options.domain.clone(),
            theirs: Some(theirs),
        }),
        _ => Ok(()),
    }
}

/// Whether an answer says that what was asked for does not exist there.
fn is_absence(kind: &AccountErrorKind) -> bool {
    match kind {
        AccountErrorKind::JetStreamUnavailable => true,
        AccountErrorKind::JetStream(error) => matches!(error.code(), 404 | 503),
        AccountErrorKind::TimedOut | AccountErrorKind::Other => false,
    }
}
