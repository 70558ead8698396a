//! Tokens over restarts, in files, and when they were used.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::access::{AccessRole, AccessScope, CallerIdentity, ScramExchange};
use crate::quotas::{CallerQuotas, QuotaOverrides};
use crate::registry::{AuditActor, AuditQuery, ClusterRegistry};
use crate::testing::{Hand, entropy, no_quotas, quotas};

fn registry(dir: &Path) -> Arc<ClusterRegistry> {
    Arc::new(ClusterRegistry::open(&dir.join("registry.redb")).unwrap())
}

fn open(registry: &Arc<ClusterRegistry>, file: Option<&Path>, clock: &Hand) -> Arc<TokenStore> {
    let file = file.map(Path::to_owned);
    Arc::new(TokenStore::open(Arc::clone(registry), file, no_quotas(), (clock.clock(), entropy())).unwrap())
}

fn new(name: &str, lifetime: Option<Duration>) -> NewToken {
    NewToken {
        name: name.parse().unwrap(),
        roles: vec![AccessRole::Reader],
        scope: AccessScope::default(),
        lifetime,
        quotas: QuotaOverrides::default(),
    }
}

fn provide(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn tokens_outlive_a_restart_and_a_revoked_one_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, clock) = (registry(dir.path()), Hand::new());
    let store = open(&registry, None, &clock);
    let by = AuditActor::default();
    let (kept, view) = store
        .create(new("kept", Some(Duration::from_secs(60))), &by)
        .await
        .unwrap();
    let (gone, _) = store.create(new("gone", None), &by).await.unwrap();
    assert!(matches!(
        store.create(new("kept", None), &by).await,
        Err(TokenError::NameTaken(_))
    ));
    let follower = store.authenticate(gone.digest()).unwrap();
    store.revoke("gone", &by).await.unwrap();
    assert!(follower.revoked.is_cancelled(), "streams that it follows end");
    assert!(matches!(
        store.revoke("gone", &by).await,
        Err(TokenError::UnknownToken(_))
    ));

    let again = open(&registry, None, &clock);
    let caller = again.authenticate(kept.digest()).unwrap();
    assert!(matches!(&caller.identity, CallerIdentity::Token { name, .. } if name.as_str() == "kept"));
    assert_eq!(
        again.authenticate(gone.digest()).err(),
        Some(AuthenticationError::Unknown)
    );
    clock.forward(Duration::from_secs(60));
    assert!(matches!(
        again.authenticate(kept.digest()),
        Err(AuthenticationError::Expired { .. })
    ));
    again.revoke(&view.id, &by).await.unwrap();
    assert!(again.list().is_empty(), "an id names a token too");

    let query = AuditQuery {
        limit: 10,
        ..AuditQuery::default()
    };
    let told: Vec<_> = registry
        .audit(&query)
        .unwrap()
        .into_iter()
        .map(|entry| entry.kind)
        .collect();
    assert_eq!(
        told,
        ["token_revoked", "token_revoked", "token_created", "token_created"]
    );
}

#[tokio::test]
async fn the_last_use_is_written_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, clock) = (registry(dir.path()), Hand::new());
    let store = open(&registry, None, &clock);
    let (token, _) = store.create(new("used", None), &AuditActor::default()).await.unwrap();
    assert_eq!(store.list()[0].last_used, None);
    clock.forward(Duration::from_secs(5));
    store.authenticate(token.digest()).unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    Arc::clone(&store).run(stop).await;
    let again = open(&registry, None, &clock);
    assert_eq!(again.list()[0].last_used, Some(clock.clock().now()));
}

#[tokio::test]
async fn a_token_that_the_file_has_too_is_not_revoked_until_it_left_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, clock) = (registry(dir.path()), Hand::new());
    let by = AuditActor::default();
    let store = open(&registry, None, &clock);
    let (token, _) = store.create(new("ci", None), &by).await.unwrap();
    drop(store);
    let path = dir.path().join("tokens.toml");
    let text = format!(
        "[[token]]\nname = \"ci\"\ntoken = \"{}\"\nroles = [\"reader\"]\n",
        token.expose()
    );
    provide(&path, &text, 0o600);
    let store = open(&registry, Some(&path), &clock);
    assert!(matches!(store.revoke("ci", &by).await, Err(TokenError::Provided(_))));
    provide(&path, "", 0o600);
    store.read_file(&path, &mut None);
    store.revoke("ci", &by).await.unwrap();
    assert!(store.authenticate(token.digest()).is_err());
}

#[tokio::test]
async fn tokens_that_expired_long_ago_make_room_and_no_name_is_an_id() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, clock) = (registry(dir.path()), Hand::new());
    let by = AuditActor::default();
    let store = open(&registry, None, &clock);
    let hour = Some(Duration::from_secs(3_600));
    let (_, view) = store.create(new("job-1", hour), &by).await.unwrap();
    clock.forward(Duration::from_secs(86_400));
    store.create(new("job-2", hour), &by).await.unwrap();
    assert_eq!(store.list().len(), 2, "it is still shown when it expired");
    clock.forward(Duration::from_secs(30 * 86_400));
    store.create(new("job-1", None), &by).await.unwrap();
    let names = |store: &TokenStore| {
        store
            .list()
            .into_iter()
            .map(|view| view.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&store), ["job-1", "job-2"]);
    assert_eq!(names(&open(&registry, None, &clock)), ["job-1", "job-2"]);
    let refused = store.create(new(&view.id, None), &by).await.unwrap_err();
    assert!(refused.to_string().contains("form of a token's id"), "{refused}");
}

#[tokio::test]
async fn tokens_of_a_file_are_in_force_and_its_faults_are_named_without_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, clock) = (registry(dir.path()), Hand::new());
    let path = dir.path().join("tokens.toml");
    let token = ApiToken::generate(&entropy());
    let good = format!(
        "[[token]]\nname = \"grafana\"\ntoken = \"{}\"\nroles = [\"reader\"]\n[token.scope]\ntables = [\"logs\"]\n",
        token.expose()
    );
    provide(&path, &good, 0o600);
    let store = open(&registry, Some(&path), &clock);
    let caller = store.authenticate(token.digest()).unwrap();
    assert!(caller.scope.has_table(model::Table::Logs) && !caller.scope.has_table(model::Table::Traces));
    let by = AuditActor::default();
    assert!(matches!(
        store.revoke("grafana", &by).await,
        Err(TokenError::Provided(_))
    ));
    assert!(matches!(
        store.create(new("grafana", None), &by).await,
        Err(TokenError::NameTaken(_))
    ));

    for (text, mode, says) in [
        (good.clone(), 0o644, "chmod 600"),
        (good.replace("reader", "king"), 0o600, "unknown variant `king`"),
        (good.replace("[\"reader\"]", "[]"), 0o600, "has no roles"),
        (good.replace(&token.expose()[60..], ""), 0o600, "64 hexadecimal digits"),
        (format!("{good}{good}"), 0o600, "two tokens are called grafana"),
        (good.replace("name", "nmae"), 0o600, "unknown field"),
    ] {
        provide(&path, &text, mode);
        let refused = TokenStore::open(
            Arc::clone(&registry),
            Some(path.clone()),
            no_quotas(),
            (clock.clock(), entropy()),
        );
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(says), "{says}: {refused}");
        assert!(!refused.contains(&token.expose()[4..40]), "a secret in {refused}");
    }
}

#[tokio::test]
async fn a_name_that_nobody_has_gets_a_challenge_of_its_own_and_no_proof_fits_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&registry(dir.path()), None, &Hand::new());
    let (one, none) = store.scram("nobody");
    assert_eq!((one.clone(), none), (store.scram("nobody").0, None));
    assert_ne!(one, store.scram("somebody").0);
    let exchange = ScramExchange::begin(one, b"n,,n=,r=abc", store.entropy()).unwrap();
    let nonce = exchange.challenge().split(',').next().unwrap().to_owned();
    let proof = format!("c=biws,{nonce},p={}", "A".repeat(43) + "=");
    assert_eq!(exchange.finish(proof.as_bytes()), Ok(None));
}

#[tokio::test]
async fn what_was_stored_today_outlives_a_restart_and_a_token_of_the_file_keeps_it_when_its_quotas_change() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, clock, path) = (registry(dir.path()), Hand::new(), dir.path().join("tokens.toml"));
    let secret = ApiToken::generate(&entropy());
    let file = |stored: u64| {
        let text = format!(
            "[[token]]\nname = \"sender\"\ntoken = \"{}\"\nroles = [\"ingester\"]\n[token.quotas]\nstored_mb = {stored}\n",
            secret.expose()
        );
        provide(&path, &text, 0o600);
    };
    file(1);
    let policy = quotas(CallerQuotas::default(), clock.clock());
    let open = || {
        let file = Some(path.clone());
        let opened = TokenStore::open(
            Arc::clone(&registry),
            file,
            Arc::clone(&policy),
            (clock.clock(), entropy()),
        );
        Arc::new(opened.unwrap())
    };
    let usage = |store: &TokenStore| store.authenticate(secret.digest()).unwrap().usage.clone().unwrap();
    let store = open();
    usage(&store).count_stored(1 << 20);
    assert!(usage(&store).admit_ingest().is_err());
    let stop = CancellationToken::new();
    stop.cancel();
    Arc::clone(&store).run(stop).await;
    let again = open();
    assert!(usage(&again).admit_ingest().is_err(), "the same day, after a restart");
    file(2);
    again.read_file(&path, &mut None);
    usage(&again).admit_ingest().unwrap();
    assert_eq!(usage(&again).stored_today().bytes, 1 << 20);
    clock.forward(Duration::from_secs(86_400));
    assert_eq!(usage(&again).stored_today().bytes, 0);
    file(1 << 40);
    assert!(open_refused(&registry, &path, &clock).contains("quotas.stored_mb"));
}

fn open_refused(registry: &Arc<ClusterRegistry>, path: &Path, clock: &Hand) -> String {
    let file = Some(path.to_owned());
    let refused = TokenStore::open(Arc::clone(registry), file, no_quotas(), (clock.clock(), entropy()));
    refused.map(|_| ()).unwrap_err().to_string()
}
