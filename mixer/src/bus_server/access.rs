//! Who may say what on the bus that the Mixer runs: users of `nats.conf`, with the subjects of each.
//!
//! | user | how it proves itself | publishes | hears |
//! |---|---|---|---|
//! | the Mixer | an nkey of this run | everything | everything |
//! | a Rack | its own nkey | its messages, telemetry, handshakes and heartbeats; pulls and acknowledgements of its consumers; one answer to each command | its inbox, its commands |
//! | a Rack that waits | its own nkey | handshakes | its inbox, its commands |
//! | anyone else | `snake.token`, where there is one | handshakes | answers to handshakes |
//!
//! # Invariants
//!
//! - Subjects are made of [`Token`]s, ids, keys and the names of consumers only.
//! - What a list does not allow is refused by the server; nobody but the Mixer may ask it to make, change or delete streams and
//!   consumers.
//! - The server looks at the subject of what is published, not at the one for its answer. So who is not adopted may ask nothing of
//!   the server itself, and the Mixer looks where its answers go ([`crate::desk`]). What an adopted Rack can do with that is in
//!   ADR 33.
//!
//! # Not here
//!
//! Who is on the list ([`crate::passes`]); writing it and having the server read it (`supervisor`).

use std::collections::BTreeMap;

use model::{EntityId, Token, subject};
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the domain's API calls begin with once the server has mapped them.
const API: &str = "$JS.API";
/// The name of the user that anyone may be.
pub(crate) const ANYONE: &str = model::subject::ENROLL_USER;

/// A Rack as the bus knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
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
pub(crate) struct Access {
    pub(crate) version: u64,
    pub(crate) passes: Vec<Pass>,
    /// Whose names are whose.
    pub(crate) owners: BTreeMap<Token, EntityId>,
}

/// What the server's owner is given to keep the list.
#[derive(Clone)]
pub(crate) struct Gate {
    /// The seed of the Mixer's own key.
    pub(crate) seed: String,
    /// The Mixer's public key.
    pub(crate) key: String,
    /// The password of the user that anyone may be; without [`Gate::asks`] nobody needs it.
    pub(crate) password: String,
    /// Whether strangers must show the token.
    pub(crate) asks: bool,
    /// The list as it should be.
    pub(crate) access: watch::Receiver<Access>,
    /// The version of the list that the server follows.
    pub(crate) applied: watch::Sender<u64>,
}

/// The names of streams that permissions mention.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    pub(super) domain: String,
    pub(super) business: String,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("asks", &self.asks).finish_non_exhaustive()
    }
}

impl Gate {
    /// The part of the configuration that says who may do what.
    pub(super) fn render(&self, streams: &Streams) -> String {
        let mut users = vec![json!({ "nkey": self.key })];
        users.extend(self.access.borrow().passes.iter().map(|pass| rack(pass, streams)));
        users.push(json!({ "user": ANYONE, "password": self.password, "permissions": anyone() }));
        let users: Vec<String> = users.iter().map(|user| format!("    {user}")).collect();
        let open = if self.asks {
            String::new()
        } else {
            format!("no_auth_user: {}\n", Value::from(ANYONE))
        };
        format!("authorization {{\n  users: [\n{}\n  ]\n}}\n{open}", users.join(",\n"))
    }
}

fn permissions(publish: &[String], subscribe: &[String]) -> Value {
    json!({ "publish": { "allow": publish }, "subscribe": { "allow": subscribe } })
}

/// What everybody may do.
fn anyone() -> Value {
    let publish = [subject::HELLO, subject::ENROLL].map(str::to_owned);
    permissions(&publish, &[format!("{}.>", subject::inbox(ANYONE))])
}

fn rack(pass: &Pass, streams: &Streams) -> Value {
    let mut publish = vec![subject::HELLO.to_owned(), subject::ENROLL.to_owned()];
    if pass.adopted {
        publish.extend(own(pass, streams));
    }
    let subscribe = [
        format!("{}.>", subject::inbox(&pass.key)),
        subject::rack_all(&pass.entity_id),
    ];
    let mut permissions = permissions(&publish, &subscribe);
    // Commands are requests: each may be answered once.
    permissions["allow_responses"] = json!({ "max": 1, "expires": "2m" });
    json!({ "nkey": pass.key, "permissions": permissions })
}

/// What an adopted Rack publishes, as itself only.
fn own(pass: &Pass, streams: &Streams) -> Vec<String> {
    let (name, business) = (&pass.name, &streams.business);
    let mut all = vec![
        subject::HEARTBEAT.to_owned(),
        format!("{API}.INFO"),
        format!("flux.msg.{name}.>"),
        format!("flux.gear.{name}.>"),
        format!("flux.telemetry.*.{name}"),
        format!("{API}.STREAM.INFO.{business}"),
    ];
    for consumer in &pass.consumers {
        all.push(format!("{API}.CONSUMER.INFO.{business}.{consumer}"));
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
        let pass = Pass {
            key: "UKEY".to_owned(),
            entity_id: EntityId::for_name("a"),
            name: "rack-a".parse().unwrap(),
            adopted: true,
            consumers: vec!["wire-1".to_owned()],
        };
        let streams = Streams {
            domain: "flux".to_owned(),
            business: "flux-msg".to_owned(),
        };
        let adopted = rack(&pass, &streams);
        let allowed = |user: &Value, what: &str| -> Vec<String> {
            serde_json::from_value(user["permissions"][what]["allow"].clone()).unwrap()
        };
        let subjects = allowed(&adopted, "publish");
        let of_one = subjects
            .iter()
            .filter(|subject| subject.starts_with("flux.") && !subject.starts_with("flux.agent."));
        for subject in of_one {
            assert!(subject.contains(".rack-a"), "{subject}");
        }
        assert!(
            !subjects
                .iter()
                .any(|subject| subject.contains("CREATE") || subject.contains("DELETE"))
        );
        let heard = allowed(&adopted, "subscribe");
        assert_eq!(heard, ["_INBOX_UKEY.>".to_owned(), subject::rack_all(&pass.entity_id)]);
        let waiting = rack(&Pass { adopted: false, ..pass }, &streams);
        assert_eq!(allowed(&waiting, "publish"), [subject::HELLO, subject::ENROLL]);
    }
}
