//! The claims of the bus's accounts and users in operator mode: the model of `account_plan` as JWTs say it.
//!
//! # Invariants
//!
//! - Every limit is named: one that is not is 0 for the server.
//! - A Rack's user is never out of date: its claims say what it hears, which does not change. What it may publish is what its account
//!   imports, and a change of that holds at once.
//! - The claims of the Mixer's account do not depend on the list: when an account with exports changes, the server forgets who asked it. So commands
//!   are a stream of the Mixer's, of which each Rack's account imports its own part.
//! - Nobody but the operator signs accounts, so no account can import what another exports unless its plan says so; exports are public therefore.
//!
//! # Not here
//!
//! Keys and signatures (`operator_signer`), having the server take them (`claims_publisher`).

use serde_json::{Map, Value, json};

use super::account_plan::{AccountPlan, ServiceExport};

/// The version of all claims.
const VERSION: u8 = 2;
const UNLIMITED: i64 = -1;
/// Later than anything is issued, in seconds: the end of the year 9999.
const FOR_EVER: i64 = 253_402_300_799;
/// The commands of every Rack.
const ALL_COMMANDS: &str = "flux.agent.rack.*.>";

/// What an account may do, where this is the key of the Mixer's.
pub(super) fn of_account(plan: &AccountPlan, mixer: &str) -> Value {
    let import = |subject: &String, kind| json!({ "subject": subject, "account": mixer, "type": kind });
    let services = plan.imports.iter().map(|subject| import(subject, "service"));
    let commands = plan.commands.iter().map(|subject| import(subject, "stream"));
    let imports: Vec<Value> = services.chain(commands).collect();
    let mut exports: Vec<Value> = plan.exports.iter().map(exported).collect();
    let mut limits = unlimited();
    match &plan.limits {
        Some(bounds) => {
            limits["conn"] = bounds.connections.into();
            limits["subs"] = bounds.subscriptions.into();
            if let Some(payload) = bounds.payload {
                limits["payload"] = payload.into();
            }
        }
        None => {
            exports.push(json!({ "subject": ALL_COMMANDS, "type": "stream" }));
            for streams in ["mem_storage", "disk_storage", "streams", "consumer"] {
                limits[streams] = UNLIMITED.into();
            }
        }
    }
    let mut claims =
        json!({ "type": "account", "version": VERSION, "imports": imports, "exports": exports, "limits": limits });
    if let Some((from, to)) = &plan.mapping {
        claims["mappings"] = json!({ from: [{ "subject": to }] });
    }
    claims
}

/// Nothing but streams and other servers is bounded.
fn unlimited() -> Value {
    json!({
        "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED,
        "imports": UNLIMITED, "exports": UNLIMITED, "wildcards": true,
        "conn": UNLIMITED, "leaf": 0,
    })
}

fn exported(export: &ServiceExport) -> Value {
    let answers = if export.is_streamed { "Stream" } else { "Singleton" };
    let within = u64::try_from(export.within.as_nanos()).unwrap_or(u64::MAX);
    json!({ "subject": export.subject, "type": "service", "response_type": answers, "response_threshold": within })
}

/// An account whose users are revoked, whenever they were issued.
pub(super) fn of_removed() -> Value {
    let limits = json!({ "subs": 0, "data": 0, "payload": 0, "imports": 0, "exports": 0, "conn": 0, "leaf": 0 });
    json!({ "type": "account", "version": VERSION, "limits": limits, "revocations": { "*": FOR_EVER } })
}

/// The account in which the server answers about itself.
pub(super) fn of_system() -> Value {
    json!({ "type": "account", "version": VERSION, "limits": unlimited() })
}

/// The operator, who signs accounts with this key.
pub(super) fn of_operator(signing_key: &str, system: &str) -> Value {
    json!({ "type": "operator", "version": VERSION, "signing_keys": [signing_key], "system_account": system })
}

/// A user that proves itself with its key.
pub(super) fn of_user(hears: Option<&[String]>) -> Value {
    let subscribe = hears.map_or_else(Map::new, |hears| Map::from_iter([("allow".to_owned(), json!(hears))]));
    // What a server tells of itself and of an account is nobody's business but the Mixer's.
    let publish = hears.map_or_else(Map::new, |_| Map::from_iter([("deny".to_owned(), json!(["$SYS.>"]))]));
    json!({
        "type": "user", "version": VERSION, "pub": publish, "sub": subscribe,
        "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED,
    })
}

/// The user that everybody is who shows nothing.
pub(super) fn of_stranger(plan: &AccountPlan) -> Value {
    let mut claims = of_user(plan.hears.as_deref());
    claims["pub"] = json!({ "allow": plan.imports });
    claims["bearer_token"] = true.into();
    claims
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::access_list::AclEntry;
    use super::super::account_plan::{StreamNames, plans};
    use super::*;

    #[test]
    fn an_account_imports_what_its_plan_says_and_the_mixers_is_the_same_for_every_list() {
        let entry = AclEntry {
            key: "UKEY".to_owned(),
            entity_id: model::EntityId::for_name("a"),
            name: "rack-a".parse().unwrap(),
            adopted: true,
            consumers: vec!["wire-1".to_owned()],
        };
        let streams = StreamNames {
            domain: "flux".to_owned(),
            business: "flux-msg".to_owned(),
        };
        let several = plans(std::slice::from_ref(&entry), &streams);
        let [mixer, rack, strangers] = [0, 1, 2].map(|place| of_account(&several[place].1, "AMIXER"));
        assert_eq!(mixer, of_account(&plans(&[], &streams)[0].1, "AMIXER"));
        assert_eq!(mixer["imports"], json!([]));
        assert_eq!(mixer["limits"]["disk_storage"], UNLIMITED);
        assert_eq!(rack["limits"]["conn"], 32);
        assert!(rack["limits"].get("disk_storage").is_none(), "{rack}");
        assert_eq!(rack["mappings"]["$JS.flux.API.>"], json!([{ "subject": "$JS.API.>" }]));
        assert_eq!(rack["exports"], json!([]));
        let imports = rack["imports"].as_array().unwrap();
        assert_eq!(imports.len(), several[1].1.imports.len() + 1);
        assert!(imports.iter().all(|import| import["account"] == "AMIXER"), "{rack}");
        let streamed: Vec<&Value> = imports.iter().filter(|import| import["type"] == "stream").collect();
        let commands = model::subject::rack_all(&entry.entity_id);
        assert_eq!(
            streamed,
            [&json!({ "subject": commands, "account": "AMIXER", "type": "stream" })]
        );
        assert_eq!(strangers["limits"]["payload"], 65_536);
        let stranger = of_stranger(&several[2].1);
        assert_eq!(
            stranger["pub"]["allow"],
            json!(["flux.agent.hello", "flux.agent.enroll"])
        );
        assert_eq!(stranger["sub"]["allow"], json!(["_INBOX_enroll.>"]));
    }
}
