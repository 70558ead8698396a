//! The audit log in the registry: what happened to Racks, scenarios and dead letters, who did it, and why.
//!
//! | table | key | value | kept |
//! |---|---|---|---|
//! | `audit` | number | CBOR [`AuditEntry`]: decisions and refused calls | `audit.keep`, and the last [`MAX_DECISIONS`] |
//! | `sightings` | number | CBOR [`AuditEntry`]: offline and back | the last [`MAX_SIGHTINGS`] |
//! | `checkpoints` | number of the last entry | CBOR [`SignedCheckpoint`] | the last [`checkpoint::MAX_CHECKPOINTS`] |
//!
//! # Invariants
//!
//! - An entry is written in the transaction of the change that it tells of: neither is there without the other.
//! - Numbers grow by one over both tables (by more when a backup was restored) and are never used twice; an entry is never changed.
//! - A Rack that comes and goes pushes out sightings only, never a decision.
//! - Decisions are a hash chain ([`model::audit_chain`]); sightings have no link, nobody decided them.
//! - An entry pushes out two old ones at the most: a clock that leaps ahead empties nothing at once.

mod checkpoint;
#[cfg(test)]
mod tests;

use std::time::Duration;

use model::audit_chain::{AUDIT_CHAIN_START, audit_link};
use model::lifecycle_event::LifecycleEvent;
use model::{EntityId, Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ActiveScenario, ClusterRegistry, RackRow, RegistryError, RegistryTransaction, db, from_cbor, to_cbor};
use crate::access::{AccessRole, ApiCaller, CallerIdentity, role_list};

pub(crate) use checkpoint::{KeyHistory, SignedCheckpoint};

pub(super) const AUDIT: TableDefinition<u64, &[u8]> = TableDefinition::new("audit");
pub(super) const SEEN: TableDefinition<u64, &[u8]> = TableDefinition::new("sightings");

/// How long decisions are kept where nobody says otherwise.
pub(super) const DEFAULT_KEEP: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// So many decisions are kept, however young: about 200 MiB.
const MAX_DECISIONS: u64 = 500_000;
/// So many sightings are kept.
const MAX_SIGHTINGS: u64 = 50_000;
/// So many old entries go when one is written.
const PRUNED_AT_ONCE: usize = 2;
/// The longest text of an entry.
const LONGEST: usize = 256;
/// How far the clock may have been set back.
const CLOCK_SLACK: Duration = Duration::from_secs(24 * 60 * 60);
/// Where the head of the chain stands in `meta`.
const CHAIN_HEAD: &str = "audit_head";

/// The last entry of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ChainHead {
    id: u64,
    chain: String,
}

/// Who did something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AuditActor {
    /// The Mixer by itself, by its configuration or its clock.
    #[default]
    Mixer,
    /// A Rack, by its signed word.
    Rack(Token),
    /// Somebody at the REST API, or a PostgreSQL client.
    Caller {
        /// What was called.
        interface: CallerInterface,
        /// Where the request came from.
        address: Option<std::net::IpAddr>,
        /// Who sent it.
        identity: CallerIdentity,
        /// The roles of its token.
        roles: Vec<AccessRole>,
    },
}

impl AuditActor {
    /// Whether it has said who it is.
    pub(crate) const fn is_known(&self) -> bool {
        !matches!(
            self,
            Self::Caller {
                identity: CallerIdentity::Everybody,
                ..
            }
        )
    }

    /// Who called, as far as it is known.
    pub(crate) fn of_caller(
        interface: CallerInterface,
        address: Option<std::net::IpAddr>,
        caller: Option<&ApiCaller>,
    ) -> Self {
        Self::Caller {
            interface,
            address: address.map(|address| address.to_canonical()),
            identity: caller.map_or(CallerIdentity::Everybody, |caller| caller.identity.clone()),
            roles: caller.map(|caller| caller.roles.clone()).unwrap_or_default(),
        }
    }
}

/// What callers call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerInterface {
    /// The REST API.
    Api,
    /// The PostgreSQL protocol.
    Postgres,
}

impl std::fmt::Display for AuditActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mixer => f.write_str("mixer"),
            Self::Rack(name) => write!(f, "rack {name}"),
            Self::Caller {
                interface,
                address,
                identity,
                roles,
            } => {
                f.write_str(match interface {
                    CallerInterface::Api => "api",
                    CallerInterface::Postgres => "postgres",
                })?;
                if let Some(address) = address {
                    write!(f, " {address}")?;
                }
                match identity {
                    CallerIdentity::Everybody => Ok(()),
                    CallerIdentity::LocalUser(_) => write!(f, " ({identity})"),
                    CallerIdentity::Token { .. } => write!(f, " ({identity} as {})", role_list(roles)),
                }
            }
        }
    }
}

/// One entry: in the registry, in the body of its event, and in the API's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Its number.
    pub id: u64,
    /// When, by the Mixer's clock.
    pub ts: Timestamp,
    /// What: the last token of the event's subject.
    pub kind: String,
    /// Who did it.
    pub by: String,
    /// The Rack's identity.
    pub entity_id: Option<EntityId>,
    /// The Rack's name.
    pub rack: Option<Token>,
    /// The scenario, `name:version`.
    pub reference: Option<String>,
    /// Its content hash.
    pub hash: Option<String>,
    /// What was before: a state, a scenario, a name.
    pub from: Option<String>,
    /// What is since then.
    pub to: Option<String>,
    /// Why, where there is more to say.
    pub why: Option<String>,
    /// Its link of the hash chain; sightings have none.
    pub chain: Option<String>,
}

/// Which entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// From this moment on (inclusive).
    pub since: Option<Timestamp>,
    /// Before this moment (exclusive).
    pub until: Option<Timestamp>,
    /// Of this Rack: its id or its name at that time.
    pub rack: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// With a smaller number.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

impl AuditEntry {
    /// Something that `by` did; it gets its number when it is recorded.
    pub(crate) fn new(event: LifecycleEvent, by: &AuditActor, ts: Timestamp) -> Self {
        Self {
            id: 0,
            ts,
            kind: event.as_str().to_owned(),
            by: by.to_string(),
            entity_id: None,
            rack: None,
            reference: None,
            hash: None,
            from: None,
            to: None,
            why: None,
            chain: None,
        }
    }

    /// It happened to this Rack.
    pub(crate) fn of(mut self, rack: &RackRow) -> Self {
        self.entity_id = Some(rack.entity_id);
        self.rack = Some(rack.name.clone());
        self
    }

    /// It happened to something of this Rack, by the names of then.
    pub(crate) fn at(mut self, rack: Option<Token>, entity_id: Option<EntityId>) -> Self {
        (self.rack, self.entity_id) = (rack, entity_id);
        self
    }

    /// That another scenario is active.
    pub(crate) fn of_activation(
        event: LifecycleEvent,
        by: &AuditActor,
        before: Option<ActiveScenario>,
        active: &ActiveScenario,
    ) -> Self {
        let entry = Self::new(event, by, active.activated).scenario(&active.reference, &active.hash);
        entry.turn(before.map(|before| before.reference), &active.reference)
    }

    /// It is about this scenario.
    pub(crate) fn scenario(mut self, reference: &str, hash: &str) -> Self {
        self.reference = Some(reference.to_owned());
        self.hash = Some(hash.to_owned());
        self
    }

    /// What it was before and what it is since.
    pub(crate) fn turn(mut self, from: Option<impl ToString>, to: impl ToString) -> Self {
        self.from = from.map(|from| from.to_string());
        self.to = Some(to.to_string());
        self
    }

    /// More to say.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    fn is_wanted(&self, query: &AuditQuery) -> bool {
        let of_rack = |wanted: &String| {
            self.rack.as_ref().is_some_and(|name| name.as_str() == wanted)
                || self.entity_id.is_some_and(|id| id.to_string() == *wanted)
        };
        query.since.is_none_or(|since| self.ts >= since)
            && query.until.is_none_or(|until| self.ts < until)
            && query.kind.as_ref().is_none_or(|kind| *kind == self.kind)
            && query.rack.as_ref().is_none_or(of_rack)
    }

    /// With texts of a length that many entries can be kept of.
    fn bounded(mut self) -> Self {
        for text in [&mut self.from, &mut self.to, &mut self.why, &mut self.reference]
            .into_iter()
            .flatten()
        {
            let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONGEST);
            let end = end.last().filter(|_| text.len() > LONGEST);
            text.truncate(end.unwrap_or(text.len()));
        }
        self
    }
}

fn entry(bytes: &[u8]) -> Result<AuditEntry, RegistryError> {
    from_cbor("audit entry", bytes)
}

impl ClusterRegistry {
    /// The entries that a query wants, the newest first. Reads all that are kept at worst: not for a thread that must not
    /// block.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let (decisions, sightings) = (read.open_table(AUDIT).map_err(db)?, read.open_table(SEEN).map_err(db)?);
        let below = query.before.unwrap_or(u64::MAX);
        let mut decisions = decisions.range(..below).map_err(db)?.rev().peekable();
        let mut sightings = sightings.range(..below).map_err(db)?.rev().peekable();
        let mut found = Vec::new();
        // Entries are in order of their numbers; their times are, but for a clock that was set back.
        let oldest = query.since.map(|since| since.minus(CLOCK_SLACK));
        while found.len() < query.limit {
            let number = |next: Option<&Result<(redb::AccessGuard<'_, u64>, _), _>>| match next {
                Some(Ok((number, _))) => Some(number.value()),
                // What cannot be read is taken first, to be told of.
                Some(Err(_)) => Some(u64::MAX),
                None => None,
            };
            let newest = match number(decisions.peek()) >= number(sightings.peek()) {
                true => decisions.next(),
                false => sightings.next(),
            };
            let Some(newest) = newest else { break };
            let entry = entry(newest.map_err(db)?.1.value())?;
            if oldest.is_some_and(|oldest| entry.ts < oldest) {
                break;
            }
            if entry.is_wanted(query) {
                found.push(entry);
            }
        }
        Ok(found)
    }
}

impl RegistryTransaction<'_> {
    pub(super) fn create_audit(&self) -> Result<(), RegistryError> {
        self.transaction.open_table(AUDIT).map_err(db)?;
        self.transaction.open_table(SEEN).map_err(db)?;
        self.create_checkpoints()
    }

    /// Writes an entry, with its number and its link; old ones of its table go.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn record(&self, event: AuditEntry) -> Result<AuditEntry, RegistryError> {
        let last: u64 = self.meta("audit")?.unwrap_or(0);
        let mut entry = AuditEntry {
            id: last.saturating_add(1),
            ..event.bounded()
        };
        self.set_meta("audit", &entry.id)?;
        let is_sighting = LifecycleEvent::is_sighting(&entry.kind);
        if !is_sighting {
            entry.chain = Some(self.link(&entry)?);
        }
        let (table, most, oldest) = match is_sighting {
            true => (SEEN, MAX_SIGHTINGS, Timestamp::MIN),
            false => (AUDIT, MAX_DECISIONS, entry.ts.minus(self.audit_keep)),
        };
        let mut table = self.transaction.open_table(table).map_err(db)?;
        table
            .insert(entry.id, to_cbor("audit entry", &entry)?.as_slice())
            .map_err(db)?;
        for _ in 0..PRUNED_AT_ONCE {
            let first = table.first().map_err(db)?;
            let first = first.map(|(_, bytes)| self::entry(bytes.value())).transpose()?;
            let is_old = first.is_some_and(|first| first.ts < oldest);
            if is_old || table.len().map_err(db)? > most {
                table.pop_first().map_err(db)?;
            }
        }
        Ok(entry)
    }

    /// Leaves out numbers that may have been given to entries which are lost.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn skip_audit_numbers(&self, count: u64) -> Result<(), RegistryError> {
        let last: u64 = self.meta("audit")?.unwrap_or(0);
        self.set_meta("audit", &last.saturating_add(count))
    }

    /// Takes an entry into the hash chain.
    fn link(&self, entry: &AuditEntry) -> Result<String, RegistryError> {
        let head: Option<ChainHead> = self.meta(CHAIN_HEAD)?;
        let previous = head.map_or_else(|| AUDIT_CHAIN_START.to_owned(), |head| head.chain);
        let fields = match serde_json::to_value(entry) {
            Ok(serde_json::Value::Object(fields)) => fields,
            other => {
                return Err(RegistryError::Damaged {
                    what: "audit entry",
                    reason: format!("{other:?}"),
                });
            }
        };
        let head = ChainHead {
            id: entry.id,
            chain: audit_link(&previous, &fields),
        };
        self.set_meta(CHAIN_HEAD, &head)?;
        Ok(head.chain)
    }
}
