//! Permissions on the managed bus: accounts of `nats.conf`, with one user each.
//!
//! | account | how its user proves itself | publishes | hears |
//! |---|---|---|---|
//! | the Mixer's, with the streams | an nkey of this run: the Mixer's own, or the operator's of `bus-operator.nk` | everything | everything |
//! | the system's | an nkey of this run: the Mixer's | questions and orders to the server | their answers |
//! | a Rack's | its own nkey | its messages, telemetry, handshakes and heartbeats; pulls and acknowledgements of its consumers; answers to commands | its inbox, its commands |
//! | that of a Rack that waits | its own nkey | handshakes, answers to commands | its inbox, its commands |
//! | anyone else's | nothing | handshakes | answers to handshakes |
//!
//! ```text
//!  a Rack's account ── its subjects, as services ──▶ the Mixer's ── answers, which the server brings back ──▶ the Rack's account
//!  a Rack's account ◀── its commands, as a service ── the Mixer's
//! ```
//!
//! # Invariants
//!
//! - Subjects are made of [`Token`]s, ids, keys and the names of consumers only.
//! - An account has one Rack, and imports what that Rack may publish and nothing else. The server looks at the subject of what is
//!   published, not at the one for its answer, and what it answers itself goes anywhere: but in the account of who asked. From there
//!   only what the Rack may say itself reaches the Mixer's account, so an answer can do no more than the Rack.
//! - No account imports a stream: while the server reads its configuration again, the exporting account has nowhere to put a
//!   subscription that an import matches, and a Rack that subscribes in that moment ends the server (nats-server 2.15.1).
//! - Nobody but the Mixer may ask the server to make, change or delete streams and consumers: no other account imports that.
//! - The user's permissions say the same once more, and what it may hear.
//! - A Rack publishes subjects of the form that the Mixer reads and no others. An account has no more connections and subscriptions than
//!   its [`AccountLimits`].
//!
//! # Not here
//!
//! Who is on the list ([`crate::scenario::BusAcl`]); writing it (`nats_conf`) and having the server read it (`reload`); the operator's file
//! (`operator_key`).

use std::collections::{BTreeMap, BTreeSet};

use model::{EntityId, Entropy, Table, Token, subject};
use nkeys::{KeyPair, KeyPairType};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::account_limits::{AccountLimits, RACK_LIMITS, STRANGER_LIMITS};

/// What the domain's API calls begin with once the server has mapped them.
const API: &str = "$JS.API";
/// The name of the user that anyone may be, and of its account.
pub(crate) const ANYONE: &str = model::subject::ENROLL_USER;
/// The account in which the server answers about itself.
const SYSTEM: &str = "system";
/// The account with the streams.
pub(super) const MIXER: &str = "mixer";
/// How long the server waits for an answer, or the next of many, before it forgets who asked. Longer than the wait of any pull.
const ANSWERED_WITHIN: &str = "45s";
/// The same for messages of batches: each has a reply subject that is remembered so long, and most are never used.
const BATCH_WITHIN: &str = "10s";
/// The same for handshakes, which anybody may begin: as long as a Rack waits for an answer.
const HANDSHAKE_WITHIN: &str = "15s";

/// A Rack as the bus knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AclEntry {
    /// Its public key for the bus.
    pub(crate) key: String,
    pub(crate) entity_id: EntityId,
    pub(crate) name: Token,
    /// Whether it may do more than ask for admission.
    pub(crate) adopted: bool,
    /// Its consumers on the stream of business messages.
    pub(crate) consumers: Vec<String>,
}

/// The list of everybody, and how often it changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AclSnapshot {
    pub(crate) version: u64,
    pub(crate) entries: Vec<AclEntry>,
    /// Whose names are whose.
    pub(crate) owners: BTreeMap<Token, EntityId>,
}

impl AclSnapshot {
    /// The keys of the Racks on the list.
    pub(super) fn keys(&self) -> BTreeSet<String> {
        self.entries.iter().map(|entry| entry.key.clone()).collect()
    }
}

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

/// The names of streams that permissions mention.
#[derive(Debug, Clone)]
pub(super) struct StreamNames {
    pub(super) domain: String,
    pub(super) business: String,
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
        let mut accounts = vec![(
            MIXER.to_owned(),
            mixers([&self.mixer, &self.operator], streams, &entries),
        )];
        accounts.extend(entries.iter().map(|entry| (entry.key.clone(), rack(entry, streams))));
        accounts.push((ANYONE.to_owned(), anyone(&self.password)));
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

fn permissions(publish: &[String], subscribe: &[String]) -> Value {
    json!({ "publish": { "allow": publish }, "subscribe": { "allow": subscribe } })
}

/// The Mixer's account: what others may import of it, and what it imports of Racks, to which it sends commands.
fn mixers(users: [&BusUser; 2], streams: &StreamNames, entries: &[AclEntry]) -> Value {
    let business = &streams.business;
    let once = [
        subject::HELLO,
        subject::ENROLL,
        subject::HEARTBEAT,
        subject::ANSWERS_ALL,
        "$JS.ACK.>",
    ];
    let api = [
        "INFO".to_owned(),
        format!("STREAM.INFO.{business}"),
        format!("CONSUMER.INFO.{business}.*"),
        format!("CONSUMER.RESET.{business}.*"),
        format!("DIRECT.GET.{business}.{}", subject::MESSAGES_ALL),
    ];
    let once = once
        .map(str::to_owned)
        .into_iter()
        .chain(api.map(|call| format!("{API}.{call}")));
    let mut exports: Vec<Value> = once
        .map(|subject| {
            let within = match subject.as_str() {
                subject::HELLO | subject::ENROLL => HANDSHAKE_WITHIN,
                _ => ANSWERED_WITHIN,
            };
            json!({ "service": subject, "response_threshold": within })
        })
        .collect();
    // A pull is answered by many messages, and so may a message of a batch be.
    let pull = format!("{API}.CONSUMER.MSG.NEXT.{business}.*");
    for (subject, within) in [
        (subject::MESSAGES_ALL, BATCH_WITHIN),
        (subject::GEARS_ALL, BATCH_WITHIN),
        (subject::TELEMETRY_ALL, BATCH_WITHIN),
        (pull.as_str(), ANSWERED_WITHIN),
    ] {
        exports.push(json!({ "service": subject, "response_type": "stream", "response_threshold": within }));
    }
    let commands = |entry: &AclEntry| {
        let subject = subject::rack_all(&entry.entity_id);
        json!({ "service": { "account": entry.key, "subject": subject } })
    };
    let imports: Vec<Value> = entries.iter().map(commands).collect();
    let users = users.map(|user| json!({ "nkey": user.key }));
    json!({ "jetstream": "enabled", "users": users, "exports": exports, "imports": imports })
}

/// An account that imports these subjects of the Mixer's, for one user.
fn account(user: Value, publish: &[String], limits: &AccountLimits) -> Value {
    let imports: Vec<Value> = publish
        .iter()
        .map(|subject| json!({ "service": { "account": MIXER, "subject": subject } }))
        .collect();
    json!({ "users": [user], "imports": imports, "limits": limits.render() })
}

/// What everybody may do.
fn anyone(password: &str) -> Value {
    let publish = [subject::HELLO, subject::ENROLL].map(str::to_owned);
    let permissions = permissions(&publish, &[format!("{}.>", subject::inbox(ANYONE))]);
    let user = json!({ "user": ANYONE, "password": password, "permissions": permissions });
    account(user, &publish, &STRANGER_LIMITS)
}

fn rack(entry: &AclEntry, streams: &StreamNames) -> Value {
    let mut publish = vec![
        subject::HELLO.to_owned(),
        subject::ENROLL.to_owned(),
        format!("{}.*", subject::answers(&entry.entity_id)),
    ];
    if entry.adopted {
        publish.extend(own(entry, streams));
    }
    let commands = subject::rack_all(&entry.entity_id);
    let subscribe = [format!("{}.>", subject::inbox(&entry.key)), commands.clone()];
    let user = json!({ "nkey": entry.key, "permissions": permissions(&publish, &subscribe) });
    let mut account = account(user, &publish, &RACK_LIMITS);
    account["exports"] = json!([{ "service": commands, "accounts": [MIXER] }]);
    if entry.adopted {
        // An account that imports calls of the API is not given the mapping that others have.
        account["mappings"] = json!({ format!("$JS.{}.API.>", streams.domain): format!("{API}.>") });
    }
    account
}

/// What an adopted Rack publishes, as itself only.
fn own(entry: &AclEntry, streams: &StreamNames) -> Vec<String> {
    let (name, business) = (&entry.name, &streams.business);
    // Any port: its outbox may have messages of scenarios that nobody remembers (ADR 33).
    let messages = format!("flux.msg.{name}.*.*");
    let mut all = vec![
        subject::HEARTBEAT.to_owned(),
        format!("{API}.INFO"),
        messages.clone(),
        format!("flux.gear.{name}.*"),
        format!("{API}.STREAM.INFO.{business}"),
        format!("{API}.DIRECT.GET.{business}.{messages}"),
    ];
    all.extend(
        Table::ALL
            .into_iter()
            .filter_map(|table| subject::telemetry(table, name)),
    );
    for consumer in &entry.consumers {
        all.push(format!("{API}.CONSUMER.INFO.{business}.{consumer}"));
        all.push(format!("{API}.CONSUMER.RESET.{business}.{consumer}"));
        all.push(format!("{API}.CONSUMER.MSG.NEXT.{business}.{consumer}"));
        all.push(format!("$JS.ACK.{business}.{consumer}.>"));
        all.push(format!("$JS.ACK.{}.*.{business}.{consumer}.>", streams.domain));
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_rack_may_publish_only_as_itself_and_hear_only_itself() {
        let entry = AclEntry {
            key: "UKEY".to_owned(),
            entity_id: EntityId::for_name("a"),
            name: "rack-a".parse().unwrap(),
            adopted: true,
            consumers: vec!["wire-1".to_owned()],
        };
        let streams = StreamNames {
            domain: "flux".to_owned(),
            business: "flux-msg".to_owned(),
        };
        let adopted = rack(&entry, &streams);
        let list = |account: &Value, what: &str| -> Vec<String> {
            let allowed = account["users"][0]["permissions"][what]["allow"].clone();
            serde_json::from_value(allowed).unwrap()
        };
        let subjects = list(&adopted, "publish");
        let of_one = subjects
            .iter()
            .filter(|subject| subject.starts_with("flux.") && !subject.starts_with("flux.agent."));
        for subject in of_one {
            assert!(subject.contains(".rack-a"), "{subject}");
        }
        for change in ["CREATE", "UPDATE", "DELETE", "PURGE"] {
            assert!(!subjects.iter().any(|subject| subject.contains(change)), "{subjects:?}");
        }
        let heard = list(&adopted, "subscribe");
        assert_eq!(heard, ["_INBOX_UKEY.>".to_owned(), subject::rack_all(&entry.entity_id)]);
        // What reaches the Mixer's account is what the Rack may publish, whoever's answer it is.
        let imported = |account: &Value| -> Vec<String> {
            let imports = account["imports"].as_array().unwrap();
            let services = imports
                .iter()
                .filter_map(|import| import["service"]["subject"].as_str());
            services.map(str::to_owned).collect()
        };
        assert_eq!(imported(&adopted), subjects);
        let waiting = rack(
            &AclEntry {
                adopted: false,
                ..entry.clone()
            },
            &streams,
        );
        let answers = format!("{}.*", subject::answers(&entry.entity_id));
        assert_eq!(list(&waiting, "publish"), [subject::HELLO, subject::ENROLL, &answers]);
        assert_eq!(imported(&waiting), list(&waiting, "publish"));
        assert_eq!(imported(&anyone("x")), [subject::HELLO, subject::ENROLL]);
        // Only the Mixer's account may send it commands.
        let commands = json!({ "service": subject::rack_all(&entry.entity_id), "accounts": [MIXER] });
        assert_eq!(adopted["exports"], json!([commands]));
        let [ours, operators] = ["UMIXER", "UOPERATOR"].map(|key| BusUser {
            seed: String::new(),
            key: key.to_owned(),
        });
        let mixers = mixers([&ours, &operators], &streams, &[entry]);
        assert_eq!(mixers["imports"][0]["service"]["account"], "UKEY");
        for account in [&adopted, &waiting, &mixers] {
            assert!(
                !account.to_string().contains("\"stream\":{"),
                "a stream is imported: {account}"
            );
        }
    }
}
