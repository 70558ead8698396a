//! The accounts of `nats.conf`, with one user each.
//!
//! # Invariants
//!
//! - The user's permissions say once more what its account imports, and what it may hear.
//! - No account imports a stream: while the server reads its configuration again, the exporting account has nowhere to put a
//!   subscription that an import matches, and a Rack that subscribes in that moment ends the server (nats-server 2.15.1). Commands are a
//!   service of each Rack's therefore, which the Mixer's account imports.
//!
//! # Not here
//!
//! What an account may do (`account_plan`), who is on the list ([`crate::scenario::BusAcl`]); writing it (`nats_conf`) and having the server
//! read it (`reload`); the operator's file (`operator_key`); the same as JWTs (`account_claims`).

use model::Entropy;
use nkeys::{KeyPair, KeyPairType};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::access_list::AclSnapshot;
use super::account_plan::{ANYONE, AccountPlan, PlannedAccount, ServiceExport, StreamNames, plans};

/// The account in which the server answers about itself.
const SYSTEM: &str = "system";
/// The account with the streams.
pub(super) const MIXER: &str = "mixer";

/// A user whose key this run of the Mixer made.
#[derive(Clone)]
pub(crate) struct BusUser {
    /// What it proves itself with.
    pub(crate) seed: String,
    /// Its public key.
    pub(crate) key: String,
}

impl BusUser {
    fn new(entropy: &Entropy) -> Result<Self, nkeys::error::Error> {
        let pair = KeyPair::new_from_raw(KeyPairType::User, entropy.bytes())?;
        Ok(Self {
            seed: pair.seed()?,
            key: pair.public_key(),
        })
    }
}

/// The users of the managed server, and the channel on which their list changes.
#[derive(Clone)]
pub(crate) struct BusAuthorization {
    /// The Mixer.
    pub(crate) mixer: BusUser,
    /// The Mixer, where it asks the server about itself.
    pub(super) system: BusUser,
    /// Scripts and people on the same machine, with the Mixer's rights.
    pub(crate) operator: BusUser,
    /// The password of the user that anyone is; nobody needs it.
    password: String,
    /// The list as it should be.
    pub(super) access: watch::Receiver<AclSnapshot>,
    /// The version of the list that the server follows.
    pub(super) applied: watch::Sender<u64>,
}

impl std::fmt::Debug for BusAuthorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusAuthorization").finish_non_exhaustive()
    }
}

impl BusAuthorization {
    /// New keys, and a list that others make.
    pub(crate) fn new(
        entropy: &Entropy,
        access: watch::Receiver<AclSnapshot>,
        applied: watch::Sender<u64>,
    ) -> Result<Self, nkeys::error::Error> {
        Ok(Self {
            mixer: BusUser::new(entropy)?,
            system: BusUser::new(entropy)?,
            operator: BusUser::new(entropy)?,
            password: model::hex::encode(&entropy.bytes::<16>()),
            access,
            applied,
        })
    }

    /// The part of the configuration that says who may do what.
    pub(super) fn render(&self, streams: &StreamNames) -> String {
        // Whoever changes the list does not wait for this.
        let entries = self.access.borrow().entries.clone();
        let plans = plans(&entries, streams);
        let commands: Vec<Value> = plans.iter().filter_map(commands_of).collect();
        let mut accounts: Vec<(String, Value)> = Vec::with_capacity(plans.len() + 1);
        for (account, plan) in &plans {
            let users = match account {
                PlannedAccount::Mixer => vec![json!({ "nkey": self.mixer.key }), json!({ "nkey": self.operator.key })],
                PlannedAccount::Strangers => vec![json!({ "user": ANYONE, "password": self.password })],
                PlannedAccount::Rack { key, .. } => vec![json!({ "nkey": key })],
            };
            let mut configured = rendered(plan, users);
            if *account == PlannedAccount::Mixer {
                configured["imports"] = json!(commands);
            }
            accounts.push((name(account), configured));
        }
        accounts.push((SYSTEM.to_owned(), json!({ "users": [{ "nkey": self.system.key }] })));
        let accounts: Vec<String> = accounts
            .iter()
            .map(|(name, account)| format!("  {}: {account}", Value::from(name.as_str())))
            .collect();
        format!(
            "accounts {{\n{}\n}}\nsystem_account: {SYSTEM}\nno_auth_user: {}\n",
            accounts.join(",\n"),
            Value::from(ANYONE)
        )
    }
}

fn name(account: &PlannedAccount) -> String {
    match account {
        PlannedAccount::Mixer => MIXER.to_owned(),
        PlannedAccount::Strangers => ANYONE.to_owned(),
        PlannedAccount::Rack { key, .. } => key.clone(),
    }
}

/// An account as the configuration has it.
fn rendered(plan: &AccountPlan, mut users: Vec<Value>) -> Value {
    if let Some(hears) = &plan.hears {
        for user in &mut users {
            user["permissions"] = json!({ "publish": { "allow": plan.imports }, "subscribe": { "allow": hears } });
        }
    }
    let imports = plan.imports.iter();
    let imports: Vec<Value> = imports
        .map(|subject| json!({ "service": { "account": MIXER, "subject": subject } }))
        .collect();
    let mut exports: Vec<Value> = plan.exports.iter().map(exported).collect();
    if let Some(commands) = &plan.commands {
        exports.push(json!({ "service": commands, "accounts": [MIXER] }));
    }
    let mut account = json!({ "users": users, "imports": imports, "exports": exports });
    match &plan.limits {
        Some(limits) => account["limits"] = limits.render(),
        None => account["jetstream"] = "enabled".into(),
    }
    if let Some((from, to)) = &plan.mapping {
        account["mappings"] = json!({ from: to });
    }
    account
}

/// What the Mixer's account imports, to send commands.
fn commands_of((account, plan): &(PlannedAccount, AccountPlan)) -> Option<Value> {
    let subject = plan.commands.as_ref()?;
    Some(json!({ "service": { "account": name(account), "subject": subject } }))
}

fn exported(export: &ServiceExport) -> Value {
    let mut service =
        json!({ "service": export.subject, "response_threshold": format!("{}s", export.within.as_secs()) });
    if export.is_streamed {
        service["response_type"] = "stream".into();
    }
    service
}
