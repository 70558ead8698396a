//! How an agent comes to its bus: the address, whom it trusts there, what it shows, and how it wants to be called.

use chassis::bus::{AttemptHold, BusConnection, BusOptions, BusTrust, UserJwt};
use chassis::config::{SecretString, is_guarded_bus, without_credentials};
use model::control::NameClaim;
use model::{Entropy, RackInvite, Token, subject};

use crate::Error;
use crate::config::{DEFAULT_NAME, DEFAULT_URL, RackConfig};
use crate::host;
use crate::state_file::StateFile;

/// How this Rack wants to be called: as its configuration says, else as its invite does.
pub(super) fn claim(config: &RackConfig, joined: Option<&RackInvite>) -> NameClaim {
    match (&config.base.name, joined) {
        (Some(name), None) => NameClaim::Name(name.clone()),
        (Some(name), Some(_)) if name.as_str() != DEFAULT_NAME => NameClaim::Name(name.clone()),
        (_, Some(invite)) => NameClaim::Name(invite.name.clone()),
        (None, None) => NameClaim::Prefix(config.rack.name_prefix.clone()),
    }
}

/// How the agent with this configuration connects to the bus; nothing is made or changed for it. A state file that cannot be
/// used gives no key.
///
/// # Errors
/// If the file of `snake.tls_ca` cannot be used.
pub fn bus_options(config: &RackConfig, entropy: &Entropy) -> Result<BusOptions, Error> {
    let state = StateFile::look(&config.base, entropy).ok().flatten();
    options_of(config, state.as_ref())
}

/// How far the admission of a Rack has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionStatus {
    /// It has no state file: it never started, and keeps no invite.
    NotStarted,
    /// It keeps an invite, and no Mixer has admitted it with that so far.
    Invited {
        /// The name that the invite gives it.
        name: Token,
        /// The bus of the Mixer that made it, without credentials.
        url: String,
    },
    /// It has neither a passport nor an invite: somebody has to approve it.
    Unapproved,
    /// A Mixer admitted it under this name.
    Admitted(Token),
}

/// How far the admission of the Rack with this configuration has come, by its state file; nothing is made or changed for it.
///
/// # Errors
/// If the state file cannot be used.
pub fn admission_status(config: &RackConfig, entropy: &Entropy) -> Result<AdmissionStatus, Error> {
    let Some(state) = StateFile::look(&config.base, entropy)? else {
        return Ok(AdmissionStatus::NotStarted);
    };
    Ok(match (state.identity(), state.joined()) {
        (Some(identity), _) => AdmissionStatus::Admitted(identity.name),
        (None, Some(invite)) => AdmissionStatus::Invited {
            name: invite.name.clone(),
            url: without_credentials(&invite.url),
        },
        (None, None) => AdmissionStatus::Unapproved,
    })
}

/// The connection to the bus. That of an invited Rack is held until it is admitted: its bus knows its users, and not this one yet.
pub(super) async fn connect(
    options: BusOptions,
    state: &StateFile,
) -> Result<(BusConnection, Option<AttemptHold>), chassis::Error> {
    if state.joined().is_some() && state.passport().is_none() {
        let (bus, hold) = BusConnection::connect_later(options).await?;
        return Ok((bus, Some(hold)));
    }
    Ok((BusConnection::connect_forever(options).await?, None))
}

/// Refuses a first contact in which whoever answers is believed, with a bus on another machine.
pub(super) fn require_trust(config: &RackConfig, options: &BusOptions, state: &StateFile) -> Result<(), Error> {
    let is_known = state.passport().is_some() || state.joined().is_some();
    if is_known || config.snake.allow_insecure || options.trust.is_some() || is_guarded_bus(&options.url) {
        return Ok(());
    }
    Err(Error::Untrusted {
        url: without_credentials(&options.url),
    })
}

pub(super) fn options_of(config: &RackConfig, state: Option<&StateFile>) -> Result<BusOptions, Error> {
    let identity = state.and_then(StateFile::identity);
    let name = identity.map_or_else(host::name, |identity| identity.name.as_str().to_owned());
    let key = state.and_then(StateFile::bus_key);
    let (joined, credential) = (
        state.and_then(StateFile::joined),
        state.and_then(StateFile::bus_credential),
    );
    let trust = match (&config.snake.tls_ca, joined.and_then(|invite| invite.authority)) {
        (Some(file), _) => Some(BusTrust::of_file(file)?),
        (None, Some(authority)) => Some(BusTrust::pinned(authority)?),
        (None, None) => None,
    };
    let url = joined
        .map(|invite| &invite.url)
        .filter(|_| config.snake.url == DEFAULT_URL);
    Ok(BusOptions {
        trust,
        nkey: key.as_ref().and_then(|key| key.seed().ok()).map(SecretString::new),
        jwt: UserJwt::from(credential.map(|credential| credential.jwt.clone())),
        inbox_prefix: key.map(|key| subject::inbox(&key.public_key())),
        token: config.snake.token.clone(),
        connect_timeout: config.snake.connect_timeout,
        reconnect_wait: config.snake.reconnect_wait,
        ..BusOptions::new(
            url.unwrap_or(&config.snake.url).clone(),
            config.snake.domain.as_str(),
            format!("rack {name}"),
        )
    })
}
