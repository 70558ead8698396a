//! Scenarios: found, checked, stored by content, activated, delivered to Racks.
//!
//! ```text
//!  startup_scenario ── path | name:version | name:latest | "" ──▶ `choose` ──▶ registry: active
//!  first_scenario ──── path, in a new cluster without any ──────────┘
//!  adopted · resumed · another hash in a heartbeat ──▶ Courier ── push_delay ──▶ each Rack its `part`
//! ```
//!
//! # Invariants
//!
//! - Only a scenario that [`model::scenario::parse`] accepts becomes active.
//! - What a reference means may change when its file changes; what runs is always a content hash.
//! - What was active before and is read no more by this program stays active and is not sent: Racks keep what they run, and the
//!   Mixer starts. What the configuration asks for by its name must be right.

mod assignment;
mod backlog;
mod bus_acl;
mod consumer_renewal;
mod convergence;
mod expiry;
mod flow_control;
mod overflow;
mod reconcile;
mod rollout;
mod rollout_status;
mod scenario_cache;
mod scenario_graph;
mod stream_trimmer;
mod wire_consumers;
mod wire_transition;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::lifecycle_event::LifecycleEvent;
use model::scenario::{self, BadScenario, Scenario, ScenarioVersion};
use model::{Clock, Token};

use crate::registry::{ActiveScenario, AuditActor, AuditEntry, ClusterRegistry, RegistryError, ScenarioRow};

pub(crate) use assignment::{FailurePoint, ScenarioIndex, check_failure_point};
pub use backlog::WireBacklog;
pub(crate) use bus_acl::BusAcl;
pub(crate) use convergence::ConvergenceMonitor;
pub(crate) use expiry::StreamExpiry;
pub(crate) use flow_control::FlowControl;
pub(crate) use rollout::{RolloutParts, RolloutStats, ScenarioRollout};
pub use rollout_status::{GroupMembership, RackRolloutStatus, ScenarioRef};
pub(crate) use rollout_status::{ReferenceCache, groups, racks};
pub(crate) use scenario_cache::ScenarioCache;
pub use scenario_graph::{GraphGear, ScenarioGraph};
pub use wire_consumers::WireChange;
pub(crate) use wire_consumers::{WireConsumerManager, keep as keep_consumers};

/// An error in words.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The largest scenario file.
pub(crate) const MAX_FILE: u64 = 4 << 20;

/// The keys that name a scenario which nobody asked for by the API.
const STARTUP_KEY: &str = "mixer.startup_scenario";
const FIRST_KEY: &str = "mixer.first_scenario";

/// Why a scenario cannot be activated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{key}: cannot read {}: {source}", path.display())]
    Unreadable {
        /// What names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("{key}: {} is larger than {MAX_FILE} bytes", path.display())]
    TooLarge {
        /// What names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No such file and no such reference.
    #[error(
        "mixer.startup_scenario: {reference:?} is neither a file nor a stored scenario (name:version); stored are: {}",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    )]
    Unknown {
        /// What was asked for.
        reference: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The content is wrong.
    #[error("{origin}: {reason}")]
    Invalid {
        /// The file or reference.
        origin: String,
        /// Every mistake in it.
        reason: BadScenario,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// A checked scenario with its text.
#[derive(Debug, Clone)]
pub(crate) struct StartupScenario {
    pub(crate) row: ScenarioRow,
    pub(crate) scenario: Scenario,
    /// Why it is active.
    key: &'static str,
}

/// Finds and checks what `mixer.startup_scenario` names. If it is empty: what was active before, if this program reads it, or
/// `mixer.first_scenario` where nothing was ever stored, and no cluster was before that lost what it had.
pub(crate) fn choose(
    (reference, first): (&str, Option<&Path>),
    max_hops: u32,
    registry: &ClusterRegistry,
    clock: &Clock,
) -> Result<Option<StartupScenario>, ScenarioError> {
    if reference.is_empty() {
        let Some(active) = registry.active_scenario()? else {
            let Some(path) = first else {
                return Ok(None);
            };
            if !registry.references()?.is_empty() {
                return Ok(None);
            }
            if registry.is_replacement()? {
                tracing::warn!(
                    "{FIRST_KEY} is not used: the cluster replaces a lost one. Import its scenarios and activate one"
                );
                return Ok(None);
            }
            let (origin, text) = (path.display().to_string(), read(FIRST_KEY, path)?);
            return check(FIRST_KEY, origin, text, max_hops, clock).map(Some);
        };
        return match registry.scenario(&active.hash)? {
            Some(row) => Ok(resume(active.reference, row)),
            None => Err(ScenarioError::Unknown {
                reference: active.reference,
                known: registry.references()?,
            }),
        };
    }
    if let Some(row) = stored(reference, registry)? {
        return recheck(reference.to_owned(), row).map(Some);
    }
    let path = Path::new(reference);
    if !path.is_file() && !looks_like_a_path(reference) {
        return Err(ScenarioError::Unknown {
            reference: reference.to_owned(),
            known: registry.references()?,
        });
    }
    check(
        STARTUP_KEY,
        reference.to_owned(),
        read(STARTUP_KEY, path)?,
        max_hops,
        clock,
    )
    .map(Some)
}

/// Whether a word that means no stored scenario is a file's name: the version of a reference may have dots too.
fn looks_like_a_path(word: &str) -> bool {
    let has_version = word
        .split_once(':')
        .is_some_and(|(name, version)| name.parse::<Token>().is_ok() && version.parse::<ScenarioVersion>().is_ok());
    word.contains('/') || (Path::new(word).extension().is_some() && !has_version)
}

/// A stored scenario by `name:version` or `name:latest`.
pub(crate) fn stored(reference: &str, registry: &ClusterRegistry) -> Result<Option<ScenarioRow>, RegistryError> {
    let Some((name, version)) = reference.split_once(':') else {
        return Ok(None);
    };
    match (name.parse::<Token>(), version.parse::<ScenarioVersion>()) {
        (Ok(name), Ok(version)) => {
            let exact = registry.scenario_named(&name, Some(&version))?;
            if exact.is_none() && version.as_str() == "latest" {
                return registry.scenario_named(&name, None);
            }
            Ok(exact)
        }
        _ => Ok(None),
    }
}

fn read(key: &'static str, path: &Path) -> Result<String, ScenarioError> {
    let unreadable = |source| ScenarioError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    };
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE {
        return Err(ScenarioError::TooLarge {
            key,
            path: path.to_owned(),
        });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn check(
    key: &'static str,
    origin: String,
    text: String,
    max_hops: u32,
    clock: &Clock,
) -> Result<StartupScenario, ScenarioError> {
    let reviewed = scenario::review_within(&text, gear_spec::manifests(), max_hops);
    let scenario = reviewed
        .map_err(|reason| ScenarioError::Invalid { origin, reason })?
        .scenario;
    let row = ScenarioRow {
        hash: scenario::content_hash(&text),
        name: scenario.meta.name.clone(),
        version: scenario.meta.version.clone(),
        stored: clock.now(),
        text,
    };
    Ok(StartupScenario { row, scenario, key })
}

/// A stored scenario, checked again: this program may know other gear types than the one that stored it.
fn recheck(origin: String, row: ScenarioRow) -> Result<StartupScenario, ScenarioError> {
    match scenario::parse(&row.text, gear_spec::manifests()) {
        Ok(scenario) => Ok(StartupScenario {
            row,
            scenario,
            key: STARTUP_KEY,
        }),
        Err(reason) => Err(ScenarioError::Invalid { origin, reason }),
    }
}

/// What was active before, if this program reads it still. Telemetry is stored and served without it, and only a Mixer that
/// runs can activate another one.
fn resume(reference: String, row: ScenarioRow) -> Option<StartupScenario> {
    match recheck(reference, row) {
        Ok(chosen) => Some(chosen),
        Err(error) => {
            tracing::error!(
                %error,
                "the active scenario cannot be run by this version: Racks are sent nothing and keep what they run; \
                 activate a corrected one (platform scenario activate)"
            );
            None
        }
    }
}

/// Stores a scenario and makes it the active one. What the audit log has of it: that it was stored, where its reference meant nothing
/// or another content before, and that it is active, where another one was.
pub(crate) async fn activate(
    chosen: &StartupScenario,
    registry: &Arc<ClusterRegistry>,
    clock: &Clock,
) -> Result<(ActiveScenario, Vec<AuditEntry>), ScenarioError> {
    let active = ActiveScenario {
        reference: chosen.row.reference(),
        hash: chosen.row.hash.clone(),
        activated: clock.now(),
    };
    let before = registry.active_scenario()?;
    let (row, next, key) = (chosen.row.clone(), active.clone(), chosen.key);
    let unchanged = before.filter(|before| before.hash == active.hash && before.reference == active.reference);
    let keep = unchanged.is_some();
    let (replaced, news) = registry
        .commit(move |change| {
            let (reference, hash) = (row.reference(), row.hash.clone());
            let means = change.meaning(&reference)?;
            let mut news = Vec::new();
            // What is stored already stays as old as it is.
            let replaced = match means.as_ref() == Some(&hash) {
                true => None,
                false => {
                    let entry = AuditEntry::new(LifecycleEvent::ScenarioImported, &AuditActor::Mixer, next.activated);
                    let entry = entry.scenario(&reference, &hash).turn(means, &hash);
                    news.push(change.record(entry.because(key))?);
                    change.put_scenario(&row)?
                }
            };
            if !keep {
                let before = change.active_scenario()?;
                change.activate(&next)?;
                let entry =
                    AuditEntry::of_activation(LifecycleEvent::ScenarioActivated, &AuditActor::Mixer, before, &next);
                news.push(change.record(entry.because(key))?);
            }
            Ok::<_, RegistryError>((replaced, news))
        })
        .await?;
    if let Some(replaced) = replaced {
        tracing::warn!(
            reference = %active.reference, was = %replaced, is = %active.hash,
            "the scenario reference means another content now: give changed files a new version"
        );
    }
    Ok((unchanged.unwrap_or(active), news))
}
