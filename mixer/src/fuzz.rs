//! Fuzz targets of the Mixer: credentials, the PostgreSQL protocol, requests, and its configuration.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. How inputs are made (`model::fuzz`), and
//! targets whose readers nobody else sees (beside those).

use std::path::Path;

use chassis::config::migrate;
use chassis::config::schema_check::load_from;
use model::fuzz::FuzzTarget;

use crate::access::{ApiToken, fuzz_exchange};
use crate::authentication::fuzz_token_file;
use crate::config::{MixerConfig, SCHEMA};
use crate::{api, postgres};

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let mut all = postgres::fuzz_targets();
    all.extend(api::fuzz_targets());
    all.extend([fuzz_exchange(), fuzz_token_file(), api_token(), configuration()]);
    all
}

/// A token as a client shows it: no other text is the same token.
fn api_token() -> FuzzTarget {
    let genuine = format!("plt_{}", "5f".repeat(32));
    let digest = genuine.parse::<ApiToken>().map(|token| token.digest());
    FuzzTarget::of_text("tokens.api_token", &[&genuine.clone()], move |text| {
        text.parse::<ApiToken>().is_ok_and(|token| {
            assert_eq!(
                Ok(token.digest()) == digest,
                text == genuine,
                "another text is the same token"
            );
            true
        })
    })
}

/// `platform-mixer.toml`, and its form of before.
fn configuration() -> FuzzTarget {
    let sample = "[base]\nname = \"mixer\"\n\n[api]\nhost = \"127.0.0.1\"\nport = 0 # any\nallowed_hosts = [\"mixer.example:443\"]\n\n\
        [store]\ndir = \"data\"\n[Observability.Embedded.Rotation]\nmax_age_days = 720\ncheck_interval = \"1h30m\"\n[quotas]\n";
    FuzzTarget::of_text("config.mixer", &[sample, ""], |text| {
        migrate(&SCHEMA, Path::new("platform-mixer.toml"), text).ok();
        load_from(&SCHEMA, text, &[]).is_ok_and(|settings| MixerConfig::of(&settings).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reader_of_the_mixer_panics_or_believes_what_was_changed() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }
}
