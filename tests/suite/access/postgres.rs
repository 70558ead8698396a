//! PostgreSQL clients and their tokens: which roles may log in, what opens nothing, and when sessions end.

mod client_addresses;
mod scopes;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;

use harness::{Api, Failure, TestMixer, eventually};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use super::{SOON, config_of, guarded, run, selected, sqlstate};
use crate::postgres::wire::{message, open, send_startup};

/// The roles whose tokens log in: those that read rows.
const ADMITTED: [&str; 3] = ["admin", "operator", "reader"];
/// All others, which are refused although they have proved their token.
const REFUSED: [&str; 4] = ["auditor", "author", "ingester", "monitor"];
/// What PostgreSQL calls a success.
const SUCCESS: &str = "00000";

/// The name of a token and its secret: the user and the password of a client.
type NamedToken = (String, String);

/// A Mixer where PostgreSQL clients need a token, and the token of its administrator.
fn opened(extra: &[(&str, &str)]) -> Result<(tempfile::TempDir, TestMixer, String), Failure> {
    let keys = [&[("postgres.enabled", "true"), ("postgres.port", "0")][..], extra].concat();
    guarded(&keys)
}

/// Makes a token with these roles, and what else is asked of it.
fn make_token(api: &Api, name: &str, roles: &[&str], mut asked: Value) -> Result<NamedToken, Failure> {
    asked["name"] = json!(name);
    asked["roles"] = json!(roles);
    let made = api.post("/api/v1/tokens", &asked)?;
    assert_eq!(made.status, 200, "{name}: {}", made.text);
    let secret = made.json["data"]["token"].as_str().ok_or("no token")?;
    Ok((name.to_owned(), secret.to_owned()))
}

fn revoke(api: &Api, name: &str) -> Result<(), Failure> {
    let revoked = api.post(&format!("/api/v1/tokens/{name}/revoke"), &json!({}))?;
    assert_eq!(revoked.status, 200, "{name}: {}", revoked.text);
    Ok(())
}

/// Waits until the Mixer says that a token opens nothing any more.
fn until_expired(mixer: &TestMixer, secret: &str) -> Result<(), Failure> {
    let api = Api::guarded(&mixer.api.base, secret, None)?;
    eventually("the end of a token's time", SOON, || {
        (api.get("/api/v1/whoami").ok()?.status == 401).then_some(())
    })
}

/// What the document of the API says a token's role may be.
fn served_roles(api: &Api) -> Result<BTreeSet<String>, Failure> {
    let document = api.get("/api/v1/openapi.json")?.json;
    let request = &document["components"]["schemas"]["TokenRequest"];
    Ok(serde_json::from_value(
        request["properties"]["roles"]["items"]["enum"].clone(),
    )?)
}

/// The SQLSTATE of a login and a statement with its message, or [`SUCCESS`] with the rows.
fn outcome(mixer: &TestMixer, (user, secret): (&str, &str), statement: &str) -> (String, String) {
    match selected(mixer, user, secret, statement) {
        Ok(rows) => (SUCCESS.to_owned(), rows),
        Err(failed) => {
            let told = failed.downcast_ref::<tokio_postgres::Error>();
            let told = told.and_then(tokio_postgres::Error::as_db_error);
            let message = told.map_or_else(|| failed.to_string(), |told| told.message().to_owned());
            (sqlstate(&failed), message)
        }
    }
}

/// The kind and the text of the next message.
fn told(stream: &mut TcpStream) -> Result<(u8, String), Failure> {
    let (kind, body) = message(stream)?.ok_or("it hung up")?;
    Ok((kind, String::from_utf8_lossy(&body).into_owned()))
}

#[test]
fn each_role_and_each_credential_that_opens_nothing_has_its_sqlstate() -> Result<(), Failure> {
    let (_folder, mixer, admin) = opened(&[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    let roles = served_roles(&api)?;
    let decided: BTreeSet<String> = ADMITTED.iter().chain(&REFUSED).map(|role| (*role).to_owned()).collect();
    assert_eq!(roles, decided, "decide of each role whether it logs in");
    let make = |role: &str, kind: &str, asked: Value| make_token(&api, &format!("{role}-{kind}"), &[role], asked);
    let mut all_expired = Vec::new();
    for role in &roles {
        all_expired.push(make(role, "expired", json!({ "expires_in": "1s" }))?);
    }
    for (_, secret) in &all_expired {
        until_expired(&mixer, secret)?;
    }
    let never_made = format!("plt_{}", "5f".repeat(32));
    for (role, expired) in roles.iter().zip(&all_expired) {
        let valid = make(role, "valid", json!({}))?;
        let scoped = make(role, "scoped", json!({ "scope": { "tables": ["logs"] } }))?;
        let revoked = make(role, "revoked", json!({}))?;
        let is_admitted = ADMITTED.contains(&role.as_str());
        let own = match is_admitted {
            true => (SUCCESS, "2"),
            false => ("42501", "does not allow reading rows"),
        };
        let outside = match is_admitted {
            true => ("42501", "outside the token's scope"),
            false => own,
        };
        let sum = "SELECT 1 + 1";
        let (code, _) = outcome(&mixer, (&revoked.0, &revoked.1), sum);
        assert_eq!(code, own.0, "{role}: before it is revoked");
        revoke(&api, &revoked.0)?;
        let failed = ("28P01", "password authentication failed");
        for (user, secret, statement, wanted) in [
            (valid.0.as_str(), valid.1.as_str(), sum, own),
            (&scoped.0, &scoped.1, sum, own),
            (&scoped.0, &scoped.1, "SELECT name FROM metrics", outside),
            (&valid.0, "", sum, failed),
            (&valid.0, "wrong", sum, failed),
            ("", &valid.1, sum, failed),
            (&valid.0, &never_made, sum, failed),
            (&valid.0, &scoped.1, sum, failed),
            ("nobody", &valid.1, sum, failed),
            (&expired.0, &expired.1, sum, ("28P01", "expired at")),
            (&expired.0, &valid.1, sum, failed),
            (&revoked.0, &revoked.1, sum, failed),
        ] {
            let (code, message) = outcome(&mixer, (user, secret), statement);
            assert!(
                code == wanted.0 && message.contains(wanted.1),
                "{role} as {user:?}, {statement}: {code} {message}, not {wanted:?}"
            );
        }
    }
    for (name, roles, wanted) in [
        ("two-refused", ["monitor", "ingester"], "42501"),
        ("one-admitted", ["monitor", "reader"], SUCCESS),
    ] {
        let (name, secret) = make_token(&api, name, &roles, json!({}))?;
        assert_eq!(outcome(&mixer, (&name, &secret), "SELECT 1").0, wanted, "{name}");
    }
    Ok(())
}

#[test]
fn without_a_password_nothing_is_answered_under_any_name() -> Result<(), Failure> {
    let (_folder, mixer, admin) = opened(&[])?;
    for user in ["admin", "nobody", ""] {
        let mut stream = open(&mixer)?;
        send_startup(&mut stream, user, b"")?;
        let (kind, text) = told(&mut stream)?;
        assert!(
            kind == b'R' && text.starts_with("\0\0\0\nSCRAM-SHA-256\0"),
            "{user:?} is not asked for a proof: {kind} {text:?}"
        );
        stream.write_all(b"Q\0\0\0\x0dSELECT 1\0")?;
        let (kind, text) = told(&mut stream)?;
        assert!(kind == b'E' && text.contains("\0C08P01\0"), "{user:?}: {kind} {text:?}");
        assert_eq!(message(&mut stream)?, None, "{user:?}: the session goes on");
    }
    assert_eq!(selected(&mixer, "admin", &admin, "SELECT 1")?, "1");
    Ok(())
}

/// Opens two sessions with a token, ends the token, and sees both end: the one that asks, and the one that is idle.
fn assert_sessions_end(
    mixer: &TestMixer,
    (user, secret): (&str, &str),
    end: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let config = config_of(mixer, user, secret)?;
    run(async {
        let (asking, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        let (idle, connection) = config.connect(NoTls).await?;
        let ended = tokio::spawn(connection);
        for client in [&asking, &idle] {
            client.simple_query("SELECT 1").await?;
        }
        end()?;
        let refused = asking.simple_query("SELECT 1").await;
        // It may have been told before it asked.
        let is_refused = refused.is_err_and(|error| error.code().is_none_or(|code| code.code() == "28P01"));
        assert!(is_refused, "{user}: a statement after the end");
        let ended = tokio::time::timeout(SOON, ended).await??;
        let told = ended.err().ok_or("the idle session ended without a word")?;
        assert_eq!(told.code().map(|code| code.code()), Some("28P01"), "{user}: {told:?}");
        Ok(())
    })?;
    assert_eq!(outcome(mixer, (user, secret), "SELECT 1").0, "28P01", "{user}");
    Ok(())
}

#[test]
fn sessions_that_ask_and_idle_ones_end_when_their_token_expires_or_is_revoked() -> Result<(), Failure> {
    let (_folder, mixer, admin) = opened(&[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    let (name, secret) = make_token(&api, "revoked", &["reader"], json!({}))?;
    assert_sessions_end(&mixer, (&name, &secret), || revoke(&api, &name))?;
    // Time enough for two logins on a busy machine.
    let (name, secret) = make_token(&api, "expiring", &["reader"], json!({ "expires_in": "10s" }))?;
    assert_sessions_end(&mixer, (&name, &secret), || until_expired(&mixer, &secret))
}
