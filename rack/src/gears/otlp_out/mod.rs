//! `otlp_out`: sends each message as a log record of OTLP over HTTP.
//!
//! | the collector | what becomes of the message |
//! |---|---|
//! | answers 2xx | done, unless it says that it refused the record |
//! | answers 429, 502, 503, 504, or not at all | tried again after a growing pause, or after what `Retry-After` says |
//! | answers anything else, or refuses the record | rejected |
//!
//! # Invariants
//!
//! - As of [`super::http_out`], by which requests are sent: order, repetitions, the circuit breaker, failures.
//!
//! # Not here
//!
//! The record (`protocols::otlp`).

#[cfg(test)]
mod tests;

use gear_spec::otlp_out::OtlpOutConfig;
use model::gear_manifest;

use super::http_out::{MessageEncoding, OtlpLogEncoding, dispatcher};
use super::{Gear, RawConfig};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: OtlpOutConfig = gear_manifest::config(config)?;
    let encoding = MessageEncoding::Otlp(OtlpLogEncoding {
        level: config.level,
        resource: config.resource.clone().into_iter().collect(),
        gzip: config.gzip,
    });
    Ok(dispatcher(config.transport(), encoding))
}
