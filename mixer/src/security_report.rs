//! What is off in the security of a running Mixer, and how to mend it: for `GET /api/v1/security` and `platform doctor --security`.
//!
//! # Invariants
//!
//! - A check is told whether it is met or not: who reads the list knows what was looked at.
//! - No secret is in it.
//!
//! # Not here
//!
//! What refuses a start (`config::value_checks`); the Racks, whose own files say what they permit (`platform doctor --security` there).

use std::time::Duration;

use chassis::config::{is_guarded_bus, without_credentials};
use model::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{AccessRole, AuthMode};
use crate::authentication::TokenView;
use crate::config::{MixerConfig, ServerMode};

/// A token that nobody used for so long should be revoked.
const UNUSED: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SecurityFinding {
    /// What was looked at.
    pub(crate) check: &'static str,
    /// Whether it is as it should be.
    pub(crate) ok: bool,
    /// What was found.
    pub(crate) found: String,
    /// How to mend it; empty if it is as it should be.
    pub(crate) fix: &'static str,
}

impl SecurityFinding {
    fn new(check: &'static str, ok: bool, found: impl Into<String>, fix: &'static str) -> Self {
        let fix = if ok { "" } else { fix };
        Self {
            check,
            ok,
            found: found.into(),
            fix,
        }
    }
}

/// What its configuration and its user say.
pub(crate) fn of_config(config: &MixerConfig) -> Vec<SecurityFinding> {
    let (api, postgres, snake) = (&config.api, &config.postgres, &config.snake);
    let has_tls = api.tls_files().is_some();
    let listener = |of: &str, host: std::net::IpAddr, has_tls| match (has_tls, host.is_loopback()) {
        (true, _) => format!("{of} listens at {host} with TLS"),
        (false, true) => format!("{of} listens at {host}: on this machine only"),
        (false, false) => format!("{of} listens at {host} in clear text"),
    };
    let is_managed = snake.server == ServerMode::Managed;
    let set_tls = "set api.tls_cert and api.tls_key";
    let mut findings = vec![
        SecurityFinding::new(
            "api authentication",
            api.auth != AuthMode::Off,
            format!("api.auth is {}", api.auth.as_str()),
            "set api.auth to auto, own or tokens",
        ),
        SecurityFinding::new(
            "api encryption",
            has_tls || api.host.is_loopback(),
            listener("the API", api.host, has_tls),
            set_tls,
        ),
    ];
    if postgres.enabled {
        let ok = has_tls || postgres.host.is_loopback();
        let found = listener("PostgreSQL", postgres.host, has_tls);
        findings.push(SecurityFinding::new("postgres encryption", ok, found, set_tls));
    }
    if is_managed {
        let found = listener("the bus", snake.host, snake.speaks_tls());
        let ok = snake.speaks_tls() || snake.host.is_loopback();
        findings.push(SecurityFinding::new(
            "bus encryption",
            ok,
            found,
            "set snake.tls to auto",
        ));
        let pinned = snake.server_sha256.is_some();
        findings.push(SecurityFinding::new(
            "bus server",
            pinned,
            if pinned {
                "its program's hash is checked"
            } else {
                "any nats-server that is found is run"
            },
            "set snake.server_binary to its absolute path and snake.server_sha256 to its hash (sha256sum)",
        ));
    }
    if !is_managed {
        let (ok, place) = (is_guarded_bus(&snake.url), without_credentials(&snake.url));
        let how = if ok {
            "over TLS or on this machine"
        } else {
            "in clear text"
        };
        findings.push(SecurityFinding::new(
            "bus encryption",
            ok,
            format!("the bus at {place} is spoken to {how}"),
            "use tls:// addresses in snake.url",
        ));
        let has_accounts = snake.operator_key.is_some();
        findings.push(SecurityFinding::new(
            "bus accounts",
            has_accounts,
            if has_accounts {
                "each Rack has an account of its own on the bus"
            } else {
                "on an external bus without snake.operator_key each Rack can speak as any other"
            },
            "have the server obey an operator (`platform-mixer bus-operator`), and set snake.operator_key",
        ));
    }
    findings.extend([
        SecurityFinding::new(
            "admission",
            !config.enrollment.auto_adopt,
            format!("enrollment.auto_adopt is {}", config.enrollment.auto_adopt),
            "set enrollment.auto_adopt to false: then somebody approves each new Rack",
        ),
        SecurityFinding::new(
            "object store",
            !config.storage.allow_http,
            format!(
                "observability.embedded.storage.allow_http is {}",
                config.storage.allow_http
            ),
            "use an address with https and set observability.embedded.storage.allow_http to false",
        ),
        user(nix::unistd::geteuid().is_root()),
    ]);
    findings
}

fn user(is_root: bool) -> SecurityFinding {
    let found = if is_root {
        "the Mixer runs as root"
    } else {
        "the Mixer runs as a user of its own"
    };
    let fix = "run it as a user of its own, with the unit in deploy/";
    SecurityFinding::new("user", !is_root, found, fix)
}

/// What the tokens say.
pub(crate) fn of_tokens(tokens: &[TokenView], now: Timestamp) -> Vec<SecurityFinding> {
    let named = |is_meant: &dyn Fn(&TokenView) -> bool| {
        let names = tokens
            .iter()
            .filter(|token| is_meant(token))
            .map(|token| token.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let finding = |check, names: String, what: &str, fix| {
        let found = if names.is_empty() {
            format!("no token {what}")
        } else {
            format!("{what}: {names}")
        };
        SecurityFinding::new(check, names.is_empty(), found, fix)
    };
    let is_unused = |token: &TokenView| {
        let last = token.last_used.or(token.created);
        last.is_some_and(|last| now.since(last) > UNUSED)
    };
    vec![
        finding(
            "endless tokens",
            named(&|token| token.expires.is_none() && token.roles.contains(&AccessRole::Admin)),
            "of an admin without an end",
            "make others with `platform token create --expires-in`, and revoke these",
        ),
        finding(
            "unused tokens",
            named(&is_unused),
            "unused for 90 days",
            "revoke them with `platform token revoke`",
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::access::AccessScope;
    use crate::quotas::QuotaOverrides;

    fn failed(findings: &[SecurityFinding]) -> Vec<&'static str> {
        let failed = findings.iter().filter(|finding| !finding.ok);
        failed.map(|finding| finding.check).collect()
    }

    #[test]
    fn a_mixer_as_it_comes_lacks_the_hash_of_its_bus_server_and_one_that_is_open_lacks_more() {
        let settings = chassis::config::load(&crate::config::SCHEMA, &chassis::config::ConfigSources::default());
        let mut config = MixerConfig::of(&settings.unwrap()).unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        let also_root = |checks: &[&'static str]| {
            let root = is_root.then_some("user");
            checks.iter().copied().chain(root).collect::<Vec<_>>()
        };
        assert_eq!(failed(&of_config(&config)), also_root(&["bus server"]));
        config.snake.server_sha256 = Some("ab".repeat(32));
        assert_eq!(failed(&of_config(&config)), also_root(&[]));
        config.api.auth = AuthMode::Off;
        config.api.host = [0, 0, 0, 0].into();
        config.snake.host = [0, 0, 0, 0].into();
        config.snake.tls = crate::config::BusTlsMode::Off;
        config.postgres.enabled = true;
        config.postgres.host = [0, 0, 0, 0].into();
        config.enrollment.auto_adopt = true;
        config.storage.allow_http = true;
        let all = [
            "api authentication",
            "api encryption",
            "postgres encryption",
            "bus encryption",
            "admission",
            "object store",
        ];
        assert_eq!(failed(&of_config(&config)), also_root(&all));
        assert!(
            of_config(&config)
                .iter()
                .all(|finding| finding.ok == finding.fix.is_empty())
        );
    }

    #[test]
    fn tokens_without_an_end_and_unused_ones_are_named() {
        let day = 24 * 60 * 60 * 1_000_000;
        let token = |name: &str, role, expires: Option<i64>, last_used: Option<i64>| TokenView {
            id: "00".to_owned(),
            name: name.parse().unwrap(),
            roles: vec![role],
            scope: AccessScope::default(),
            created: Some(Timestamp::from_micros(0)),
            created_by: "mixer".to_owned(),
            expires: expires.map(Timestamp::from_micros),
            last_used: last_used.map(Timestamp::from_micros),
            quotas: QuotaOverrides::default(),
        };
        let now = Timestamp::from_micros(100 * day);
        let tokens = [
            token("endless", AccessRole::Admin, None, Some(99 * day)),
            token("ends", AccessRole::Admin, Some(200 * day), Some(99 * day)),
            token("idle", AccessRole::Reader, None, Some(9 * day)),
            token("never", AccessRole::Reader, None, None),
        ];
        let findings = of_tokens(&tokens, now);
        assert!(findings[0].found.ends_with(": endless"), "{findings:?}");
        assert!(findings[1].found.ends_with(": idle, never"), "{findings:?}");
        assert_eq!(failed(&of_tokens(&tokens[1..2], now)), Vec::<&str>::new());
    }
}
