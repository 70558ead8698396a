//! Rack policy: what scenarios may ask of this Rack, as its own `platform.toml` says; no scenario can widen it.
//!
//! ```text
//! platform.toml [policy] ─▶ RackPolicy ─┬─▶ check(gear)        when a scenario is applied: types, paths, addresses, variables
//!                                       └─▶ GearContext.policy  when a gear opens, listens, connects: links, resolved names
//! ```
//!
//! # Invariants
//!
//! - What is checked is what is used: a file is opened beneath its root in the same step, and a connection goes to the very address that was
//!   checked.
//! - A refusal names what was asked and the key of `platform.toml` that allows it, when a scenario is applied and later alike.
//!
//! # Not here
//!
//! Programs of `exec` (`gears.exec.allow`) and what they do once they run; the journal (`gears.journald.allow`); the sandbox of the process ([`crate::sandbox`]).

mod address_rule;
mod checked_resolver;
mod file_roots;
mod guarded_address;
mod policy_config;
mod requested_access;
mod root_check;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::net::lookup_host;

use crate::Error;
use address_rule::AddressRule;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use address_rule::fuzz_address_rule;
pub(crate) use checked_resolver::CheckedResolver;
pub(crate) use file_roots::{FileRoots, FileUse};
use guarded_address::AddressReach;
pub(crate) use policy_config::invalid_value;
pub use policy_config::{PolicyConfig, SandboxMode};
use requested_access::{RequestedAccess, requested_access};
pub(crate) use root_check::RackPlaces;

/// Something that a scenario asks for and this Rack does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{asked} is not allowed on this Rack: its operator adds it to {key} in platform.toml, which allows {}, and starts the Rack again",
    listed(allowed)
)]
pub(crate) struct PolicyRefusal {
    asked: String,
    key: &'static str,
    allowed: Vec<String>,
}

fn listed(allowed: &[String]) -> String {
    if allowed.is_empty() {
        "nothing".to_owned()
    } else {
        allowed.join(", ")
    }
}

impl From<PolicyRefusal> for io::Error {
    fn from(refusal: PolicyRefusal) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

/// What scenarios may ask of this Rack. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct RackPolicy(Arc<PolicyRules>);

#[derive(Debug)]
struct PolicyRules {
    config: PolicyConfig,
    read: FileRoots,
    write: FileRoots,
    listen: Vec<AddressRule>,
    /// None where everything is allowed.
    connect: Option<Vec<AddressRule>>,
}

impl RackPolicy {
    /// The policy of a configuration. Makes the default folder.
    ///
    /// # Errors
    /// If a value is none that a policy can have.
    pub(crate) fn of(policy: &PolicyConfig, places: &RackPlaces<'_>) -> Result<Self, Error> {
        let read = places.check_roots("policy.read_roots", &policy.read_roots)?;
        let write = places.check_roots("policy.write_roots", &policy.write_roots)?;
        Ok(Self(Arc::new(PolicyRules {
            read: FileRoots::new(FileUse::Read, Some(read)),
            write: FileRoots::new(FileUse::Write, Some(write)),
            listen: rules(&policy.listen),
            connect: Some(rules(&policy.connect)),
            config: policy.clone(),
        })))
    }

    /// Everything: for scenarios of who runs them himself.
    pub(crate) fn unrestricted() -> Self {
        Self::with_roots(None)
    }

    /// For tests: everything, files beneath temporary folders and the folder of this crate, and the disk that is always full.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::with_roots(Some(vec![
            std::env::temp_dir(),
            env!("CARGO_MANIFEST_DIR").into(),
            "/dev".into(),
        ]))
    }

    fn with_roots(roots: Option<Vec<PathBuf>>) -> Self {
        let all = vec!["*".to_owned()];
        Self(Arc::new(PolicyRules {
            read: FileRoots::new(FileUse::Read, roots.clone()),
            write: FileRoots::new(FileUse::Write, roots),
            listen: rules(&all),
            connect: None,
            config: PolicyConfig {
                gears: all.clone(),
                read_roots: Vec::new(),
                write_roots: Vec::new(),
                listen: all.clone(),
                connect: all.clone(),
                env: all,
                sandbox: SandboxMode::Off,
            },
        }))
    }

    /// Checks what a gear asks for, as far as its configuration says it.
    pub(crate) fn check(&self, kind: &str, config: &Map<String, Value>) -> Result<(), PolicyRefusal> {
        if !is_listed(&self.0.config.gears, kind) {
            return Err(self.refusal(format!("the gear type {kind}"), PolicyKey::Gears));
        }
        requested_access(kind, config)
            .into_iter()
            .try_for_each(|access| self.check_access(&access))
    }

    fn check_access(&self, access: &RequestedAccess) -> Result<(), PolicyRefusal> {
        match access {
            RequestedAccess::Read(path) => self.0.read.locate(path).map(drop),
            RequestedAccess::Write(path) => self.0.write.locate(path).map(drop),
            RequestedAccess::Listen(address) => self.check_listen(*address),
            RequestedAccess::Connect { host, port } => self.check_target(host, *port),
            RequestedAccess::Variable(name) if is_listed(&self.0.config.env, name) => Ok(()),
            RequestedAccess::Variable(name) => {
                Err(self.refusal(format!("the environment variable {name}"), PolicyKey::Env))
            }
        }
    }

    /// The files that gears may read.
    pub(crate) fn readable(&self) -> &FileRoots {
        &self.0.read
    }

    /// The files that gears may write.
    pub(crate) fn writable(&self) -> &FileRoots {
        &self.0.write
    }

    /// The value of a variable, if gears may use it and it is set. The Rack's own settings are never theirs.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let is_theirs = is_listed(&self.0.config.env, name) && !name.starts_with("PLATFORM_");
        is_theirs.then(|| std::env::var(name).ok()).flatten()
    }

    /// Whether gears may listen there.
    pub(crate) fn check_listen(&self, address: SocketAddr) -> Result<(), PolicyRefusal> {
        if self.0.listen.iter().any(|rule| rule.admits_listener(address)) {
            return Ok(());
        }
        Err(self.refusal(format!("listening on {address}"), PolicyKey::Listen))
    }

    /// Whether gears may connect to this host, as far as its text says: of a name only its addresses tell all.
    pub(crate) fn check_target(&self, host: &str, port: u16) -> Result<(), PolicyRefusal> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_possible = match bare.parse::<IpAddr>() {
            Ok(ip) => self.admits_target(bare, SocketAddr::new(ip, port)),
            Err(_) => self
                .connect_rules()
                .is_none_or(|mut rules| rules.any(|rule| rule.may_admit_name(bare, port))),
        };
        if is_possible {
            return Ok(());
        }
        Err(self.refusal(format!("connecting to {host}:{port}"), PolicyKey::Connect))
    }

    /// The addresses of a host that gears may connect to. Connect to these, and do not resolve the name again.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<SocketAddr> = lookup_host((bare, port)).await?.collect();
        let admitted = found
            .iter()
            .copied()
            .filter(|address| self.admits_target(bare, *address));
        let admitted: Vec<SocketAddr> = admitted.collect();
        match found.first() {
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
            Some(first) if admitted.is_empty() => {
                let asked = match bare.parse::<IpAddr>() {
                    Ok(_) => format!("connecting to {host}:{port}"),
                    Err(_) => format!("connecting to {host}:{port}, which is at {},", first.ip()),
                };
                Err(self.refusal(asked, PolicyKey::Connect).into())
            }
            Some(_) => Ok(admitted),
        }
    }

    fn admits_target(&self, host: &str, address: SocketAddr) -> bool {
        self.connect_rules().is_none_or(|mut rules| {
            let reach = AddressReach::of(address.ip());
            rules.any(|rule| rule.admits_target(host, address, reach))
        })
    }

    fn connect_rules(&self) -> Option<impl Iterator<Item = &AddressRule>> {
        Some(self.0.connect.as_ref()?.iter())
    }

    fn refusal(&self, asked: String, key: PolicyKey) -> PolicyRefusal {
        let config = &self.0.config;
        let (key, allowed) = match key {
            PolicyKey::Gears => ("policy.gears", &config.gears),
            PolicyKey::Listen => ("policy.listen", &config.listen),
            PolicyKey::Connect => ("policy.connect", &config.connect),
            PolicyKey::Env => ("policy.env", &config.env),
        };
        let allowed = allowed.clone();
        PolicyRefusal { asked, key, allowed }
    }
}

/// The lists of a policy beside its folders.
#[derive(Debug, Clone, Copy)]
enum PolicyKey {
    Gears,
    Listen,
    Connect,
    Env,
}

/// The rules of a list that was [checked](invalid_value).
fn rules(texts: &[String]) -> Vec<AddressRule> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Whether a list has a name, or the beginning of it before a `*`.
fn is_listed(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => entry == name,
    })
}
