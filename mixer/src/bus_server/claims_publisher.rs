//! Publication of accounts: has a server in operator mode take the JWT of each account, at the start and at each change of the list.
//!
//! | request | answered |
//! |---|---|
//! | `$SYS.REQ.ACCOUNT.<key>.CLAIMS.LOOKUP` | the JWT that the server has; nothing without |
//! | `$SYS.REQ.CLAIMS.UPDATE`, a JWT | once the server has it on its disk and follows it: `data.code` is 200, or `error` says why not |
//!
//! # Invariants
//!
//! - Who is removed is closed before anything else, whatever goes on: the server ends its connections at once. A closed account stays closed; the
//!   server keeps it.
//! - A start fails only for accounts without which nobody can work, or for one that is not closed. A Rack's own is tried again.
//! - What the server has is not sent again, so a start of the Mixer changes nothing. After the connection broke
//!   the server is asked anew what it has, since it may be another one; and so it is of an account that it did not take.
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
use model::EntityId;
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
use super::reload::{ListOutcome, UserList};
use super::{BusError, ProcessStatus, ProcessWatch};

/// How long the server may take for one account.
const WITHIN: Duration = Duration::from_secs(10);
/// After so many accounts in a row that the server says nothing of it is asked whether it answers anybody.
const MOST_SILENT: usize = 3;
/// In the place of a digest: an account that was sent, and may be there or not.
const SENT: [u8; 32] = [0; 32];
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

/// Why the server does not have an account.
#[derive(Debug, thiserror::Error)]
enum ClaimsError {
    /// It did not answer.
    #[error("{0}")]
    Silent(String),
    /// It does not want it.
    #[error("{0}")]
    Refused(String),
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
        let snapshot = publisher.list.snapshot();
        let taken = publisher.resolver.follow(&snapshot).await;
        publisher.list.started_with(list, taken.map_err(BusError::Claims)?);
        Ok(publisher)
    }

    /// Whether the server takes another list right now.
    pub(super) fn status(&self) -> ProcessWatch {
        self.status.clone()
    }

    /// Publishes each change and renews the operator's credentials, until stopped.
    pub(super) async fn keep(mut self, stop: CancellationToken) {
        let (mut state, mut is_stale) = (self.resolver.system.state(), !self.list.is_followed());
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
            if is_another {
                self.resolver.taken.clear();
            }
            let list = self.list.current();
            let snapshot = self.list.snapshot();
            let removal = self.list.removal_after(&snapshot.removed);
            let resolver = &mut self.resolver;
            let work = async {
                tokio::select! {
                    taken = resolver.follow(&snapshot) => taken,
                    () = removal => Ok(ListOutcome::Overtaken),
                }
            };
            is_stale = !self.list.apply(list, work).await;
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
        // What everybody needs comes first.
        let (racks, others): (Vec<_>, Vec<_>) = accounts
            .iter()
            .partition(|(account, _)| matches!(account, PlannedAccount::Rack { .. }));
        for (account, plan) in others.into_iter().chain(racks) {
            let name = match account {
                PlannedAccount::Mixer => "mixer".to_owned(),
                PlannedAccount::Strangers => "strangers".to_owned(),
                PlannedAccount::Rack { entity_id, .. } => format!("rack {entity_id}"),
            };
            wanted.push((self.signer.account(account), name, of_account(plan, &mixer)));
        }
        let open: BTreeSet<String> = wanted.iter().map(|(key, ..)| key.clone()).collect();
        let removed = list.removed.iter().map(|entity_id| self.rack_account(*entity_id));
        let gone = self.taken.keys().cloned().chain(removed);
        let gone: BTreeSet<String> = gone.filter(|key| !open.contains(key)).collect();
        // One that is not taken keeps no other one waiting, unless the server answers nobody.
        let (mut first, mut silent) = (None, 0);
        let gone = gone.into_iter().map(|key| (key, "removed".to_owned(), of_removed()));
        for (key, name, claims) in gone.chain(wanted) {
            let Err(error) = self.update(&key, &name, &claims).await else {
                silent = 0;
                continue;
            };
            first = first.or_else(|| Some(format!("{name}: {error}")));
            silent += usize::from(matches!(error, ClaimsError::Silent(_)));
            if silent >= MOST_SILENT {
                look_up(&self.system.client, &mixer)
                    .await
                    .map_err(|error| error.to_string())?;
                silent = 0;
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// [`Self::publish`], and what came of it.
    async fn follow(&mut self, list: &AclSnapshot) -> Result<ListOutcome, String> {
        match self.publish(list).await {
            Ok(()) => Ok(ListOutcome::Followed),
            Err(refused) if self.can_serve(list) => Ok(ListOutcome::InPart(refused)),
            Err(refused) => Err(refused),
        }
    }

    /// Whether the server has the accounts without which nobody can work, and those are closed that are to be.
    fn can_serve(&self, list: &AclSnapshot) -> bool {
        let needed = [PlannedAccount::Mixer, PlannedAccount::Strangers].map(|account| self.signer.account(&account));
        // One that is open still is among those that the server has, too.
        let closed = digest(&of_removed());
        let is_closed = |entity_id: &EntityId| self.taken.get(&self.rack_account(*entity_id)) == Some(&closed);
        needed.iter().all(|key| self.has(key)) && list.removed.iter().all(is_closed)
    }

    /// Whether the server is known to have some claims of an account.
    fn has(&self, key: &str) -> bool {
        self.taken.get(key).is_some_and(|digest| *digest != SENT)
    }

    fn rack_account(&self, entity_id: EntityId) -> String {
        self.signer.account(&PlannedAccount::Rack {
            key: String::new(),
            entity_id,
        })
    }

    /// Has the server take an account, unless it has it.
    async fn update(&mut self, key: &str, name: &str, claims: &Value) -> Result<(), ClaimsError> {
        let digest = digest(claims);
        if self.taken.get(key) == Some(&digest) {
            return Ok(());
        }
        let known = match self.has(key) {
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
            let (jwt, issued) = jwt.map_err(|error: KeyError| ClaimsError::Refused(error.to_string()))?;
            // Before it is sent: this may end here, and the server have it.
            self.taken.insert(key.to_owned(), SENT);
            self.issued.insert(key.to_owned(), issued);
            send(&self.system.client, jwt).await?;
        }
        self.taken.insert(key.to_owned(), digest);
        Ok(())
    }
}

fn digest(claims: &Value) -> [u8; 32] {
    Sha256::digest(claims.to_string()).into()
}

/// What the server has of an account, and when that was issued.
async fn look_up(client: &Client, key: &str) -> Result<Option<(Value, i64)>, ClaimsError> {
    let request = Request::new().timeout(Some(WITHIN));
    let answer = client.send_request(format!("$SYS.REQ.ACCOUNT.{key}.CLAIMS.LOOKUP"), request);
    let answer = answer.await.map_err(|error| ClaimsError::Silent(error.to_string()))?;
    Ok(jwt::claims(&answer.payload))
}

async fn send(client: &Client, jwt: String) -> Result<(), ClaimsError> {
    let request = Request::new().payload(jwt.into()).timeout(Some(WITHIN));
    let answer = client.send_request("$SYS.REQ.CLAIMS.UPDATE", request).await;
    let answer = answer.map_err(|error| ClaimsError::Silent(error.to_string()))?;
    let answer: ClaimsAnswer = serde_json::from_slice(&answer.payload)
        .map_err(|error| ClaimsError::Refused(format!("its answer cannot be read: {error}")))?;
    let refused = answer.error.map(|refusal| ClaimsError::Refused(refusal.description));
    refused.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn nobody_is_served_while_a_removed_racks_account_is_open_or_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let (clock, entropy) = (chassis::system_clock(), chassis::os_entropy());
        let (key, _) = crate::bus_server::found_operator(folder.path(), &clock, &entropy).unwrap();
        let options = BusOptions::new("nats://127.0.0.1:1", "flux", "test");
        let mut resolver = AccountResolver {
            system: BusConnection::connect_forever(options).await.unwrap(),
            signer: OperatorSigner::read(&key, clock, Duration::from_secs(60)).unwrap(),
            streams: StreamNames {
                domain: "flux".to_owned(),
                business: "flux-msg".to_owned(),
            },
            taken: BTreeMap::new(),
            issued: BTreeMap::new(),
        };
        let removed = EntityId::for_name("a");
        let list = AclSnapshot {
            removed: BTreeSet::from([removed]),
            ..AclSnapshot::default()
        };
        let needed = [PlannedAccount::Mixer, PlannedAccount::Strangers];
        for account in needed.map(|account| resolver.signer.account(&account)) {
            assert!(!resolver.can_serve(&AclSnapshot::default()));
            resolver.taken.insert(account, [1; 32]);
        }
        assert!(resolver.can_serve(&AclSnapshot::default()));
        let account = resolver.rack_account(removed);
        for (taken, serves) in [([1; 32], false), (SENT, false), (digest(&of_removed()), true)] {
            resolver.taken.insert(account.clone(), taken);
            assert_eq!(resolver.can_serve(&list), serves, "{taken:?}");
        }
    }
}
