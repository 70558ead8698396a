//! Publication of accounts: has a server in operator mode take the JWT of each account, at the start and at each change of the list.
//!
//! | request | answered |
//! |---|---|
//! | `$SYS.REQ.ACCOUNT.<key>.CLAIMS.LOOKUP` | the JWT that the server has; nothing without |
//! | `$SYS.REQ.CLAIMS.UPDATE`, a JWT | once the server has it on its disk and follows it: `data.code` is 200, or `error` says why not |
//!
//! # Invariants
//!
//! - Who is removed is closed before anything else: the server ends its connections at once. A closed account stays closed; the server keeps it.
//! - What the server has is not sent again, so a start of the Mixer changes nothing. After the connection broke, or an account was not taken,
//!   the server is asked anew what it has: it may be another one.
//!
//! # Not here
//!
//! When the list has changed (`reload`), what accounts may do (`account_plan`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, Request};
use chassis::bus::{BusConnection, BusOptions, BusState, UserJwt};
use chassis::config::SecretString;
use nkeys::error::Error as KeyError;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::access_list::AclSnapshot;
use super::account_claims::{of_account, of_removed};
use super::account_plan::{PlannedAccount, StreamNames, plans};
use super::accounts::{BusAuthorization, BusUser};
use super::jwt;
use super::operator_signer::OperatorSigner;
use super::reload::UserList;
use super::{BusError, ProcessStatus, ProcessWatch};

/// How long the server may take for one account.
const WITHIN: Duration = Duration::from_secs(10);
/// How long the end of the connection may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The operator of an external server, and the users of its Mixer.
#[derive(Debug, Clone)]
pub struct BusOperator {
    pub(crate) signer: OperatorSigner,
    pub(crate) users: BusAuthorization,
    /// The file with the credentials of scripts and people.
    pub(crate) credentials: PathBuf,
}

impl BusOperator {
    /// What the Mixer shows of itself.
    pub(super) fn mixer_jwt(&self) -> Result<String, BusError> {
        let jwt = self.signer.mixer_user(&self.users.mixer);
        jwt.map_err(|error| BusError::Claims(error.to_string()))
    }

    /// Writes the operator's credentials as `nats --creds` reads them. They expire.
    fn write_credentials(&self) -> Result<(), BusError> {
        let BusUser { seed, .. } = &self.users.operator;
        let jwt = self.signer.operator_user(&self.users.operator);
        let jwt = jwt.map_err(|error| BusError::Claims(error.to_string()))?;
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        durable_fs::create_private_dirs(durable_fs::parent_of(&self.credentials))?;
        Ok(durable_fs::write_atomically(&self.credentials, text.as_bytes(), 0o600)?)
    }

    async fn renew_credentials(&self) {
        let operator = self.clone();
        let written = tokio::task::spawn_blocking(move || operator.write_credentials()).await;
        if let Ok(Err(error)) = written {
            tracing::error!(%error, "cannot renew the operator's credentials for the bus");
        }
    }
}

/// Keeps the accounts of a server in step with the list.
pub(super) struct ClaimsPublisher {
    list: UserList,
    resolver: AccountResolver,
    operator: BusOperator,
    status: ProcessWatch,
}

/// The server's store of accounts, and what it took.
struct AccountResolver {
    system: BusConnection,
    signer: OperatorSigner,
    streams: StreamNames,
    /// The SHA-256 of the claims of each account.
    taken: BTreeMap<String, [u8; 32]>,
    /// The second in which this process issued each account last.
    issued: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct ClaimsAnswer {
    error: Option<ClaimsRefusal>,
}

#[derive(Deserialize)]
struct ClaimsRefusal {
    description: String,
}

impl ClaimsPublisher {
    /// Connects, and has the server take every account.
    pub(super) async fn start(
        url: &str,
        operator: &BusOperator,
        streams: StreamNames,
        within: Duration,
    ) -> Result<Self, BusError> {
        let signer = operator.signer.clone();
        let system = connect(url, &signer, &operator.users, (streams.domain.as_str(), within)).await?;
        operator.write_credentials()?;
        let (news, status) = watch::channel(ProcessStatus::default());
        let mut publisher = Self {
            list: UserList::new(operator.users.clone(), news),
            resolver: AccountResolver {
                system,
                signer,
                streams,
                taken: BTreeMap::new(),
                issued: BTreeMap::new(),
            },
            operator: operator.clone(),
            status,
        };
        let list = publisher.list.current();
        let taken = publisher.resolver.publish(&publisher.list.snapshot()).await;
        taken.map_err(BusError::Claims)?;
        publisher.list.started_with(list);
        Ok(publisher)
    }

    /// Whether the server takes another list right now.
    pub(super) fn status(&self) -> ProcessWatch {
        self.status.clone()
    }

    /// Publishes each change and renews the operator's credentials, until stopped.
    pub(super) async fn keep(mut self, stop: CancellationToken) {
        let (mut state, mut is_stale) = (self.resolver.system.state(), false);
        let mut renewal = interval(self.resolver.signer.validity() / 2);
        renewal.tick().await;
        loop {
            let mut is_another = false;
            let another = async {
                reconnected(&mut state).await;
                is_another = true;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = renewal.tick() => self.operator.renew_credentials().await,
                () = self.list.next(is_stale, another) => {}
            }
            if is_another || is_stale {
                self.resolver.taken.clear();
            }
            let list = self.list.current();
            let snapshot = self.list.snapshot();
            is_stale = !self.list.apply(list, self.resolver.publish(&snapshot)).await;
        }
        self.resolver.system.close(FAREWELL).await;
    }
}

/// The connection of a user of the system's account.
async fn connect(
    url: &str,
    signer: &OperatorSigner,
    users: &BusAuthorization,
    (domain, within): (&str, Duration),
) -> Result<BusConnection, BusError> {
    let jwt = signer.system_user(&users.system);
    let jwt = jwt.map_err(|error| BusError::Claims(error.to_string()))?;
    let options = BusOptions {
        nkey: Some(SecretString::new(users.system.seed.clone())),
        jwt: UserJwt::from(Some(jwt)),
        connect_timeout: within,
        ..BusOptions::new(url, domain, "platform-mixer-accounts")
    };
    Ok(BusConnection::connect(options).await?)
}

/// Waits until the connection was made anew since it was last looked at.
async fn reconnected(state: &mut watch::Receiver<BusState>) {
    loop {
        if state.changed().await.is_err() {
            return std::future::pending().await;
        }
        if *state.borrow_and_update() == BusState::Connected {
            return;
        }
    }
}

impl AccountResolver {
    /// Has the server take what it did not take so far.
    async fn publish(&mut self, list: &AclSnapshot) -> Result<(), String> {
        let accounts = plans(&list.entries, &self.streams);
        let mixer = self.signer.account(&PlannedAccount::Mixer);
        let mut wanted: Vec<(String, String, Value)> = Vec::with_capacity(accounts.len());
        for (account, plan) in &accounts {
            let name = match account {
                PlannedAccount::Mixer => "mixer".to_owned(),
                PlannedAccount::Strangers => "strangers".to_owned(),
                PlannedAccount::Rack { entity_id, .. } => format!("rack {entity_id}"),
            };
            wanted.push((self.signer.account(account), name, of_account(plan, &mixer)));
        }
        let open: BTreeSet<&String> = wanted.iter().map(|(key, ..)| key).collect();
        let removed = list.removed.iter().map(|entity_id| {
            self.signer.account(&PlannedAccount::Rack {
                key: String::new(),
                entity_id: *entity_id,
            })
        });
        let gone = self.taken.keys().cloned().chain(removed);
        let gone: BTreeSet<String> = gone.filter(|key| !open.contains(key)).collect();
        // One that is not taken keeps no other one waiting, unless the server answers nobody.
        let mut failed = Vec::new();
        for key in gone {
            failed.extend(self.update(&key, "removed", &of_removed()).await.err());
            refuse_many(&failed)?;
        }
        for (key, name, claims) in &wanted {
            let taken = self.update(key, name, claims).await;
            failed.extend(taken.err().map(|error| format!("{name}: {error}")));
            refuse_many(&failed)?;
        }
        failed.into_iter().next().map_or(Ok(()), Err)
    }

    /// Has the server take an account, unless it has it.
    async fn update(&mut self, key: &str, name: &str, claims: &Value) -> Result<(), String> {
        let digest: [u8; 32] = Sha256::digest(claims.to_string()).into();
        if self.taken.get(key) == Some(&digest) {
            return Ok(());
        }
        let known = match self.taken.contains_key(key) {
            true => None,
            false => look_up(&self.system.client, key).await?,
        };
        if known.as_ref().is_none_or(|(there, _)| there != claims) {
            // Servers of a cluster keep the token of the later second: it is never the same one, and never an earlier one.
            let before = known
                .map(|(_, issued)| issued)
                .into_iter()
                .chain(self.issued.get(key).copied())
                .max();
            let earliest = before.map_or(0, |before| before.saturating_add(1));
            let jwt = self.signer.account_jwt((key, name), claims, earliest);
            let (jwt, issued) = jwt.map_err(|error: KeyError| error.to_string())?;
            send(&self.system.client, jwt).await?;
            self.issued.insert(key.to_owned(), issued);
        }
        self.taken.insert(key.to_owned(), digest);
        Ok(())
    }
}

/// So many accounts fail before the others are left for the next time.
const MOST_FAILED: usize = 3;

/// The first failure, once there are many.
fn refuse_many(failed: &[String]) -> Result<(), String> {
    match failed.first() {
        Some(first) if failed.len() >= MOST_FAILED => Err(first.clone()),
        _ => Ok(()),
    }
}

/// What the server has of an account, and when that was issued.
async fn look_up(client: &Client, key: &str) -> Result<Option<(Value, i64)>, String> {
    let request = Request::new().timeout(Some(WITHIN));
    let answer = client.send_request(format!("$SYS.REQ.ACCOUNT.{key}.CLAIMS.LOOKUP"), request);
    let answer = answer.await.map_err(|error| error.to_string())?;
    Ok(jwt::claims(&answer.payload))
}

async fn send(client: &Client, jwt: String) -> Result<(), String> {
    let request = Request::new().payload(jwt.into()).timeout(Some(WITHIN));
    let answer = client.send_request("$SYS.REQ.CLAIMS.UPDATE", request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let answer: ClaimsAnswer =
        serde_json::from_slice(&answer.payload).map_err(|error| format!("its answer cannot be read: {error}"))?;
    answer.error.map_or(Ok(()), |refusal| Err(refusal.description))
}
