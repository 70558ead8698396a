//! The bus's operator: the key that signs accounts, and the keys of accounts, which follow from it.
//!
//! ```text
//!  keys/nats-operator.nk  identity ── signs once ──▶ keys/nats-operator.jwt: the signing key is one of the operator's
//!  keys/nats-signing.nk   signing key ── signs ──▶ accounts: the system's, the Mixer's, strangers', one per Rack
//!        └─ SHA-256 with the account's name ──▶ the key of each account ── signs ──▶ its users
//! ```
//!
//! # Invariants
//!
//! - Nothing is kept per Rack: an account's key is made of the signing key and the Rack's id, always the same.
//! - A running Mixer reads the signing key only. The identity is needed for another signing key, and may lie elsewhere.
//!
//! # Not here
//!
//! What accounts and users may do (`account_claims`), the command ([`crate::bus_operator`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use chassis::secret_file::read_secret;
use model::{BusCredential, Clock, EntityId, Entropy, Timestamp};
use nkeys::{KeyPair, KeyPairType};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::BusError;
use super::account_claims::{of_operator, of_stranger, of_system, of_user};
use super::account_plan::{PlannedAccount, heard_by_rack, strangers};
use super::accounts::BusUser;
use super::jwt::{self, JwtSubject};

const IDENTITY: &str = "nats-operator.nk";
const SIGNING_KEY: &str = "nats-signing.nk";
const OPERATOR_JWT: &str = "nats-operator.jwt";
/// What separates keys of accounts from others of the same secret.
const CONTEXT: &[u8] = b"platform/bus-account/1\0";
/// A seed is shorter.
const LARGEST_SEED: u64 = 256;

/// Signs the accounts and users of a bus in operator mode.
#[derive(Clone)]
pub(crate) struct OperatorSigner {
    key: KeyPair,
    secret: [u8; 32],
    clock: Clock,
    /// How long a Rack's credential is good.
    validity: Duration,
}

impl std::fmt::Debug for OperatorSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorSigner")
            .field("key", &self.key.public_key())
            .finish_non_exhaustive()
    }
}

impl OperatorSigner {
    /// The signer with the key in a file.
    pub(crate) fn read(path: &Path, clock: Clock, validity: Duration) -> Result<Self, BusError> {
        let unusable = |reason: String| BusError::OperatorKey {
            path: path.to_owned(),
            reason,
        };
        let seed = read_secret(path, LARGEST_SEED).map_err(|error| unusable(error.to_string()))?;
        let no_seed = |error: nkeys::error::Error| unusable(format!("it has no seed of an nkey: {error}"));
        let key = KeyPair::from_seed(seed.trim()).map_err(no_seed)?;
        if key.key_pair_type() != KeyPairType::Operator {
            return Err(unusable("its nkey is not that of an operator".to_owned()));
        }
        let (_, secret) = nkeys::decode_seed(seed.trim()).map_err(no_seed)?;
        Ok(Self {
            key,
            secret,
            clock,
            validity,
        })
    }

    fn derived(&self, kind: KeyPairType, label: &str) -> Result<KeyPair, nkeys::error::Error> {
        let secret = Sha256::new()
            .chain_update(CONTEXT)
            .chain_update(self.secret)
            .chain_update(label);
        KeyPair::new_from_raw(kind, secret.finalize().into())
    }

    fn system_key(&self) -> Result<KeyPair, nkeys::error::Error> {
        self.derived(KeyPairType::Account, "system")
    }

    fn account_key(&self, account: &PlannedAccount) -> Result<KeyPair, nkeys::error::Error> {
        let label = match account {
            PlannedAccount::Mixer => "mixer".to_owned(),
            PlannedAccount::Strangers => "strangers".to_owned(),
            PlannedAccount::Rack { entity_id, .. } => format!("rack {entity_id}"),
        };
        self.derived(KeyPairType::Account, &label)
    }

    /// The public key of an account; empty where none can be made, which never happens: any 32 bytes are a key.
    pub(super) fn account(&self, account: &PlannedAccount) -> String {
        self.account_key(account)
            .map(|key| key.public_key())
            .unwrap_or_default()
    }

    /// The token of the account with this public key, issued now, or in this second if that is later: of two tokens a server keeps the later one.
    pub(super) fn account_jwt(
        &self,
        (key, name): (&str, &str),
        claims: &Value,
        earliest: i64,
    ) -> Result<(String, i64), nkeys::error::Error> {
        let mut subject = self.subject(key, name);
        subject.issued = subject.issued.max(jwt::moment(earliest));
        Ok((jwt::sign(&self.key, &subject, claims)?, jwt::seconds(subject.issued)))
    }

    fn subject<'a>(&self, key: &'a str, name: &'a str) -> JwtSubject<'a> {
        JwtSubject {
            key,
            name,
            issued: self.clock.now(),
            expires: None,
        }
    }

    /// How long credentials are valid that leave the process.
    pub(super) const fn validity(&self) -> Duration {
        self.validity
    }

    /// The token of the Mixer in its account.
    pub(super) fn mixer_user(&self, user: &BusUser) -> Result<String, nkeys::error::Error> {
        let account = self.account_key(&PlannedAccount::Mixer)?;
        jwt::sign(&account, &self.subject(&user.key, "platform-mixer"), &of_user(None))
    }

    /// The token of scripts and people in the Mixer's account.
    pub(super) fn operator_user(&self, user: &BusUser) -> Result<String, nkeys::error::Error> {
        let account = self.account_key(&PlannedAccount::Mixer)?;
        let subject = JwtSubject {
            expires: Some(self.clock.now().plus(self.validity)),
            ..self.subject(&user.key, "operator")
        };
        jwt::sign(&account, &subject, &of_user(None))
    }

    /// The token of a user of the system's account.
    pub(super) fn system_user(&self, user: &BusUser) -> Result<String, nkeys::error::Error> {
        jwt::sign(
            &self.system_key()?,
            &self.subject(&user.key, "platform-mixer"),
            &of_user(None),
        )
    }

    /// With what the bus knows a Rack that has this key for it; none while what it has is good for more than half of the time.
    pub(super) fn renewed(
        &self,
        entity_id: &EntityId,
        key: &str,
        expires: Option<Timestamp>,
    ) -> Result<Option<BusCredential>, nkeys::error::Error> {
        let now = self.clock.now();
        if expires.is_some_and(|expires| expires > now.plus(self.validity / 2)) {
            return Ok(None);
        }
        let account = PlannedAccount::Rack {
            key: key.to_owned(),
            entity_id: *entity_id,
        };
        let expires = now.plus(self.validity);
        let subject = JwtSubject {
            expires: Some(expires),
            ..self.subject(key, "rack")
        };
        let claims = of_user(Some(&heard_by_rack(key, entity_id)));
        let jwt = jwt::sign(&self.account_key(&account)?, &subject, &claims)?;
        Ok(Some(BusCredential { jwt, expires }))
    }

    /// The lines of the configuration of a nats-server that obeys this operator.
    fn server_config(&self, operator_jwt: &str) -> Result<String, nkeys::error::Error> {
        let system = self.system_key()?;
        let (system_jwt, _) = self.account_jwt((&system.public_key(), "system"), &of_system(), 0)?;
        let strangers_key = self.account_key(&PlannedAccount::Strangers)?;
        let stranger = self.derived(KeyPairType::User, "stranger")?.public_key();
        let sentinel = jwt::sign(
            &strangers_key,
            &self.subject(&stranger, "stranger"),
            &of_stranger(&strangers()),
        )?;
        let system = system.public_key();
        Ok(format!(
            "operator: {operator_jwt}\n\
             system_account: {system}\n\
             resolver: {{ type: full, dir: \"accounts\", interval: \"5s\" }}\n\
             resolver_preload: {{ {system}: {system_jwt} }}\n\
             default_sentinel: {sentinel}\n"
        ))
    }
}

/// Founds an operator among these keys, unless there is one. The signing key's file, and what the server's configuration needs.
pub(crate) fn found_operator(keys: &Path, clock: &Clock, entropy: &Entropy) -> Result<(PathBuf, String), BusError> {
    let [identity, signing, token] = [IDENTITY, SIGNING_KEY, OPERATOR_JWT].map(|name| keys.join(name));
    let failed = |error: nkeys::error::Error| BusError::OperatorKey {
        path: identity.clone(),
        reason: error.to_string(),
    };
    if !token.exists() {
        if signing.exists() && !identity.exists() {
            return Err(BusError::OperatorKey {
                path: identity,
                reason: format!(
                    "it is needed to make {} anew, and another operator would be another bus: bring it, or that file, back from where it is kept",
                    token.display()
                ),
            });
        }
        durable_fs::create_private_dirs(keys)?;
        for path in [&identity, &signing] {
            if !path.exists() {
                let key = KeyPair::new_from_raw(KeyPairType::Operator, entropy.bytes()).map_err(failed)?;
                let seed = format!("{}\n", key.seed().map_err(failed)?);
                durable_fs::write_atomically(path, seed.as_bytes(), 0o600)?;
            }
        }
        let operator = OperatorSigner::read(&identity, clock.clone(), Duration::ZERO)?;
        let signer = OperatorSigner::read(&signing, clock.clone(), Duration::ZERO)?;
        let system = signer.system_key().map_err(failed)?.public_key();
        let (ours, claims) = (
            operator.key.public_key(),
            of_operator(&signer.key.public_key(), &system),
        );
        let text = jwt::sign(&operator.key, &operator.subject(&ours, "platform"), &claims).map_err(failed)?;
        durable_fs::write_atomically(&token, text.as_bytes(), 0o600)?;
    }
    let text = std::fs::read_to_string(&token).map_err(|source| BusError::Io {
        action: "read",
        path: token.clone(),
        source,
    })?;
    let signer = OperatorSigner::read(&signing, clock.clone(), Duration::ZERO)?;
    let config = signer.server_config(text.trim()).map_err(failed)?;
    Ok((signing, config))
}
