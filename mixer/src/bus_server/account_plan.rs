//! Permissions on the bus, as one model of accounts: rendered as the list of `nats.conf` (`accounts`) or as JWTs (`account_claims`).
//!
//! | account | how its user proves itself | publishes | hears |
//! |---|---|---|---|
//! | the Mixer's, with the streams | an nkey of this run: the Mixer's own, or the operator's | everything | everything |
//! | a Rack's | its own nkey | its messages, telemetry, handshakes and heartbeats; pulls and acknowledgements of its consumers; answers to commands | its inbox, its commands |
//! | that of a Rack that waits | its own nkey | handshakes, answers to commands | its inbox, its commands |
//! | anyone else's | nothing | handshakes | answers to handshakes |
//!
//! ```text
//!  a Rack's account ── its subjects, as services ──▶ the Mixer's ── answers, which the server brings back ──▶ the Rack's account
//!  a Rack's account ◀── its commands ── the Mixer's
//! ```
//!
//! # Invariants
//!
//! - Subjects are made of [`Token`]s, ids, keys and the names of consumers only.
//! - An account has one Rack, and imports what that Rack may publish and nothing else. The server looks at the subject of what is
//!   published, not at the one for its answer, and what it answers itself goes anywhere: but in the account of who asked. From there
//!   only what the Rack may say itself reaches the Mixer's account, so an answer can do no more than the Rack.
//! - Nobody but the Mixer may ask the server to make, change or delete streams and consumers: no other account imports that.
//! - A Rack publishes subjects of the form that the Mixer reads and no others. An account has no more connections and subscriptions than
//!   its [`AccountLimits`].
//!
//! # Not here
//!
//! Who is on the list ([`crate::scenario::BusAcl`]), the system's account, which has no plan: only the Mixer is a user of it.

use std::time::Duration;

use model::{Table, Token, subject};

use super::access_list::AclEntry;
use super::account_limits::{AccountLimits, RACK_LIMITS, STRANGER_LIMITS};

/// What the domain's API calls begin with once the server has mapped them.
const API: &str = "$JS.API";
/// The name of the user that anyone may be, and of its account.
pub(crate) const ANYONE: &str = subject::ENROLL_USER;
/// How long the server waits for an answer, or the next of many, before it forgets who asked. Longer than the wait of any pull.
const ANSWERED_WITHIN: Duration = Duration::from_secs(45);
/// The same for messages of batches: each has a reply subject that is remembered so long, and most are never used.
const BATCH_WITHIN: Duration = Duration::from_secs(10);
/// The same for handshakes, which anybody may begin: as long as a Rack waits for an answer.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(15);

/// The names of streams that permissions mention.
#[derive(Debug, Clone)]
pub(super) struct StreamNames {
    pub(super) domain: String,
    pub(super) business: String,
}

/// An account, and what its users may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccountPlan {
    /// Subjects of the Mixer's that are services here: what its user may publish.
    pub(super) imports: Vec<String>,
    /// What others may import as a service.
    pub(super) exports: Vec<ServiceExport>,
    /// Where the Mixer's commands come.
    pub(super) commands: Option<String>,
    /// What its user may subscribe to; everything without, and it may publish everything then.
    pub(super) hears: Option<Vec<String>>,
    /// Subjects that mean others here.
    pub(super) mapping: Option<(String, String)>,
    /// None for the account with the streams.
    pub(super) limits: Option<AccountLimits>,
}

/// Which account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlannedAccount {
    /// The Mixer's, with the streams.
    Mixer,
    /// That of everybody who is no Rack.
    Strangers,
    /// That of the Rack.
    Rack { key: String, entity_id: model::EntityId },
}

/// A subject that others may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceExport {
    pub(super) subject: String,
    /// Whether a request has many answers.
    pub(super) is_streamed: bool,
    /// How long the server remembers who asked.
    pub(super) within: Duration,
}

/// Every account of the bus but the system's.
pub(super) fn plans(entries: &[AclEntry], streams: &StreamNames) -> Vec<(PlannedAccount, AccountPlan)> {
    let mut all = vec![(PlannedAccount::Mixer, mixers(streams))];
    let planned = |entry: &AclEntry| {
        let account = PlannedAccount::Rack {
            key: entry.key.clone(),
            entity_id: entry.entity_id,
        };
        (account, rack(entry, streams))
    };
    all.extend(entries.iter().map(planned));
    all.push((PlannedAccount::Strangers, strangers()));
    all
}

/// The Mixer's account: what others may import of it.
fn mixers(streams: &StreamNames) -> AccountPlan {
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
    let export = |subject: String, is_streamed, within| ServiceExport {
        subject,
        is_streamed,
        within,
    };
    let once = once
        .map(str::to_owned)
        .into_iter()
        .chain(api.map(|call| format!("{API}.{call}")));
    let mut exports: Vec<ServiceExport> = once
        .map(|subject| {
            let within = match subject.as_str() {
                subject::HELLO | subject::ENROLL => HANDSHAKE_WITHIN,
                _ => ANSWERED_WITHIN,
            };
            export(subject, false, within)
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
        exports.push(export(subject.to_owned(), true, within));
    }
    AccountPlan {
        imports: Vec::new(),
        exports,
        commands: None,
        hears: None,
        mapping: None,
        limits: None,
    }
}

/// An account whose user may publish these subjects of the Mixer's.
fn account(publish: Vec<String>, hears: Vec<String>, limits: AccountLimits) -> AccountPlan {
    AccountPlan {
        imports: publish,
        exports: Vec::new(),
        commands: None,
        hears: Some(hears),
        mapping: None,
        limits: Some(limits),
    }
}

/// What everybody may do.
pub(super) fn strangers() -> AccountPlan {
    let publish = [subject::HELLO, subject::ENROLL].map(str::to_owned);
    let hears = format!("{}.>", subject::inbox(ANYONE));
    account(publish.into(), vec![hears], STRANGER_LIMITS)
}

/// What its user hears, for whom these are the key and the entity.
pub(super) fn heard_by_rack(key: &str, entity_id: &model::EntityId) -> Vec<String> {
    vec![format!("{}.>", subject::inbox(key)), subject::rack_all(entity_id)]
}

fn rack(entry: &AclEntry, streams: &StreamNames) -> AccountPlan {
    let mut publish = vec![
        subject::HELLO.to_owned(),
        subject::ENROLL.to_owned(),
        format!("{}.*", subject::answers(&entry.entity_id)),
    ];
    if entry.adopted {
        publish.extend(own(entry, streams));
    }
    // An account that imports calls of the API is not given the mapping that others have.
    let mapping = (format!("$JS.{}.API.>", streams.domain), format!("{API}.>"));
    AccountPlan {
        commands: Some(subject::rack_all(&entry.entity_id)),
        mapping: entry.adopted.then_some(mapping),
        ..account(publish, heard_by_rack(&entry.key, &entry.entity_id), RACK_LIMITS)
    }
}

/// What an adopted Rack publishes, as itself only.
fn own(entry: &AclEntry, streams: &StreamNames) -> Vec<String> {
    let (name, business): (&Token, &String) = (&entry.name, &streams.business);
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
    use model::EntityId;

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
        // What reaches the Mixer's account is what the Rack may publish, whoever's answer it is.
        let adopted = rack(&entry, &streams);
        let subjects = &adopted.imports;
        let of_one = subjects
            .iter()
            .filter(|subject| subject.starts_with("flux.") && !subject.starts_with("flux.agent."));
        for subject in of_one {
            assert!(subject.contains(".rack-a"), "{subject}");
        }
        for change in ["CREATE", "UPDATE", "DELETE", "PURGE"] {
            assert!(!subjects.iter().any(|subject| subject.contains(change)), "{subjects:?}");
        }
        let heard = ["_INBOX_UKEY.>".to_owned(), subject::rack_all(&entry.entity_id)];
        assert_eq!(adopted.hears.as_deref(), Some(&heard[..]));
        let waiting = rack(
            &AclEntry {
                adopted: false,
                ..entry.clone()
            },
            &streams,
        );
        let answers = format!("{}.*", subject::answers(&entry.entity_id));
        assert_eq!(waiting.imports, [subject::HELLO, subject::ENROLL, &answers]);
        assert_eq!(strangers().imports, [subject::HELLO, subject::ENROLL]);
        for account in [&adopted, &waiting] {
            assert_eq!(account.commands.as_ref(), Some(&heard[1]));
            assert!(account.exports.is_empty(), "nobody but the Mixer may send it something");
        }
    }
}
