//! The registry: who belongs to this cluster and what it may run, in `<store.dir>/registry.redb`.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | `format`, `cluster`, `active`, `history`, `turns`, `audit` (the last number), `audit_head`, `issued` (`issuer`), `stream_marks` ([`crate::scenario`]), `change_requests` ([`crate::control`]), `replacement` ([`crate::bootstrap`]) | one CBOR value each |
//! | `racks` | entity id (16 bytes) | CBOR [`RackRow`] |
//! | `keys` | Rack public key (32 bytes) | entity id |
//! | `names` | name | entity id |
//! | `prefixes` | name prefix | the last number that an adopted Rack got |
//! | `scenarios` | content hash (hex) | CBOR [`ScenarioRow`], the file's text in it |
//! | `heads` | content hash (hex) | CBOR [`ScenarioHead`]: the same without the text |
//! | `references` | `name:version` | content hash |
//! | `audit`, `sightings`, `checkpoints` | number | CBOR [`AuditEntry`], `SignedCheckpoint` (`audit`) |
//! | `letters` | id of a dead letter (16 bytes) | CBOR [`LetterMark`] |
//! | `turns` | entity id and gear | the last number given out to a letter |
//! | `invites` | public key of an invite (32 bytes) | CBOR `InviteRow` (`invite`) |
//! | `tokens`, `token_uses`, `token_stored` | SHA-256 of an API token | CBOR `TokenRow`; when it was last used; what was stored with it on a day (`token`) |
//! | `wires` | name of a wire's consumer | CBOR: the stream and the sequence that it begins at |
//!
//! A file of another format is refused and not changed.
//!
//! # Invariants
//!
//! - Only we read the file (mode 0600).
//! - A change is one durable transaction: it is on disk when [`ClusterRegistry::change`] returns, or it never happened.
//! - `keys` and `names` follow `racks`; a removed Rack keeps its key (so that it stays revoked) and gives its name back.
//! - `heads` has the keys of `scenarios`. A content is there as long as its reference means it, it is active, or it is remembered as
//!   active: the change that takes the last of these away drops it.
//! - A number of a prefix is given once to Racks that are adopted: a name of the past never means another Rack by accident.
//!
//! # Not here
//!
//! What is seen of a Rack between two changes ([`crate::liveness`]); who may change what (`enrollment`,
//! [`crate::control`]).

mod audit;
mod invite;
mod letter;
mod rack;
mod scenario;
#[cfg(test)]
pub(crate) mod tests;
mod token;
mod wire;

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterId, SignedPayload, Timestamp};
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use audit::{AuditActor, AuditEntry, AuditQuery, CallerInterface};
pub(crate) use audit::{KeyHistory, SignedCheckpoint};
pub(crate) use invite::InviteRow;
pub use letter::{LetterMark, MAX_MARKS, ReplaySequence};
pub use rack::RackRow;
pub(crate) use rack::begun;
pub use scenario::{ActiveScenario, ScenarioHead, ScenarioRow};
pub(crate) use scenario::{MOST_SCENARIO_BYTES, MOST_SCENARIOS};
pub(crate) use token::TokenRow;
pub(crate) use wire::{StreamMarks, WireBounds, WireRow};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const RACKS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("racks");
const KEYS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("keys");
const NAMES: TableDefinition<&str, &[u8]> = TableDefinition::new("names");
const PREFIXES: TableDefinition<&str, u64> = TableDefinition::new("prefixes");
const SCENARIOS: TableDefinition<&str, &[u8]> = TableDefinition::new("scenarios");
const HEADS: TableDefinition<&str, &[u8]> = TableDefinition::new("heads");
const REFERENCES: TableDefinition<&str, &str> = TableDefinition::new("references");
const LETTERS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("letters");
const TURNS: TableDefinition<&str, u64> = TableDefinition::new("turns");

/// The version of the tables above.
const FORMAT: u16 = 1;

/// Why the registry cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Another process holds the file.
    #[error("the registry {} is in use by another process: one Mixer per store.dir", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by another version of this program.
    #[error(
        "the registry {} has format {found}, this program knows {FORMAT}: start the program that wrote it, or put a \
         backup of the file in its place; it was not changed",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u16,
    },
    /// The database failed.
    #[error("registry: {0}")]
    Database(#[from] Box<redb::Error>),
    /// The change was cut off by the end of the process.
    #[error("registry: the change was interrupted: {0}")]
    Interrupted(String),
    /// A stored value is not what it should be.
    #[error("registry: the stored {what} cannot be read: {reason}")]
    Damaged {
        /// Which value.
        what: &'static str,
        /// What the decoder says.
        reason: String,
    },
}

/// Opens or creates a file that only we read and write.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Wraps any of redb's errors.
fn db<E: Into<redb::Error>>(error: E) -> RegistryError {
    RegistryError::Database(Box::new(error.into()))
}

fn to_cbor<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, RegistryError> {
    model::signed::encode(value).map_err(|error| RegistryError::Damaged {
        what,
        reason: error.to_string(),
    })
}

fn from_cbor<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, RegistryError> {
    ciborium::de::from_reader_with_recursion_limit(bytes, 16).map_err(|error| RegistryError::Damaged {
        what,
        reason: error.to_string(),
    })
}

/// The cluster as the registry remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIdentity {
    /// The cluster's identity.
    pub cluster_id: ClusterId,
    /// Its Ed25519 public key (32 bytes); the secret one is in the key file.
    pub public_key: Vec<u8>,
    /// The keys of before, the oldest first, each signing the next.
    pub successions: Vec<SignedPayload>,
    /// What the bus's message ids are made with (32 bytes), the same whatever the key is; made from the first one.
    pub message_secret: Vec<u8>,
}

/// The open registry.
#[derive(Debug)]
pub struct ClusterRegistry {
    database: Database,
    audit_keep: Duration,
}

impl ClusterRegistry {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// [`RegistryError`] if it is in use, damaged, of another format, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, RegistryError> {
        let file = open_private(path).map_err(|source| db(redb::DatabaseError::from(source)))?;
        let database = FileBackend::new(file).and_then(|file| Database::builder().create_with_backend(file));
        let database = database.map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => RegistryError::InUse { path: path.to_owned() },
            other => db(other),
        })?;
        let registry = Self {
            database,
            audit_keep: audit::DEFAULT_KEEP,
        };
        registry.change(|change| match change.meta::<u16>("format")? {
            Some(FORMAT) => change.create_tables(),
            Some(found) => Err(RegistryError::Format {
                path: path.to_owned(),
                found,
            }),
            None => {
                change.create_tables()?;
                change.set_meta("format", &FORMAT)
            }
        })?;
        Ok(registry)
    }

    /// The registry with decisions of its audit log kept for so long.
    #[must_use]
    pub fn keep_audit(mut self, audit_keep: Duration) -> Self {
        self.audit_keep = audit_keep;
        self
    }

    /// Runs `f` in one transaction: durable when it returns `Ok`, undone when it returns `Err`.
    ///
    /// # Errors
    /// What `f` says, or [`RegistryError`].
    pub fn change<T, E: From<RegistryError>>(
        &self,
        f: impl FnOnce(&RegistryTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.change_if(|change| Ok((f(change)?, true)))
    }

    /// What `f` would answer: it runs in a transaction that is undone.
    ///
    /// # Errors
    /// What `f` says, or [`RegistryError`].
    pub fn dry_run<T, E: From<RegistryError>>(
        &self,
        f: impl FnOnce(&RegistryTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.change_if(|change| Ok((f(change)?, false)))
    }

    /// [`ClusterRegistry::change`] where `f` says beside its answer whether it is to be durable: what it wrote is undone if not.
    ///
    /// # Errors
    /// What `f` says, or [`RegistryError`].
    pub(crate) fn change_if<T, E: From<RegistryError>>(
        &self,
        f: impl FnOnce(&RegistryTransaction<'_>) -> Result<(T, bool), E>,
    ) -> Result<T, E> {
        let transaction = self.database.begin_write().map_err(db)?;
        let (answer, is_kept) = f(&RegistryTransaction {
            transaction: &transaction,
            audit_keep: self.audit_keep,
        })?;
        match is_kept {
            true => transaction.commit().map_err(db)?,
            false => transaction.abort().map_err(db)?,
        }
        Ok(answer)
    }

    /// Runs `f` while nothing in the file changes.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn unchanging<T>(&self, f: impl FnOnce() -> T) -> Result<T, RegistryError> {
        let transaction = self.database.begin_write().map_err(db)?;
        let answer = f();
        transaction.abort().map_err(db)?;
        Ok(answer)
    }

    /// [`ClusterRegistry::change`] from async code: the sync to disk happens on a thread that may block.
    ///
    /// # Errors
    /// As [`ClusterRegistry::change`].
    pub async fn commit<T, E>(
        self: &Arc<Self>,
        f: impl FnOnce(&RegistryTransaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<RegistryError> + Send + 'static,
    {
        self.read(move |registry| registry.change(f)).await
    }

    /// What `f` reads, from async code: on a thread that may block.
    ///
    /// # Errors
    /// What `f` says, or [`RegistryError`].
    pub async fn read<T, E>(self: &Arc<Self>, f: impl FnOnce(&Self) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<RegistryError> + Send + 'static,
    {
        let registry = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || f(&registry)).await;
        done.map_err(|error| RegistryError::Interrupted(error.to_string()))?
    }

    /// The cluster, if it was founded.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn cluster_identity(&self) -> Result<Option<ClusterIdentity>, RegistryError> {
        self.meta("cluster")
    }

    /// Whether the cluster was founded in place of one whose registry was lost.
    pub(crate) fn is_replacement(&self) -> Result<bool, RegistryError> {
        Ok(self.meta("replacement")?.unwrap_or_default())
    }

    /// A time that no command was issued after.
    pub(crate) fn issued(&self) -> Result<Option<Timestamp>, RegistryError> {
        self.meta("issued")
    }

    /// Where the stream of messages stood at earlier times.
    pub(crate) fn stream_marks(&self) -> Result<Option<StreamMarks>, RegistryError> {
        self.meta("stream_marks")
    }

    /// The changes that wait for a second person; none where they are of another form: they are asked for again.
    pub(crate) fn change_requests<T: DeserializeOwned>(&self) -> Result<Vec<T>, RegistryError> {
        match self.meta("change_requests") {
            Err(RegistryError::Damaged { .. }) => Ok(Vec::new()),
            known => Ok(known?.unwrap_or_default()),
        }
    }

    fn meta<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let table = read.open_table(META).map_err(db)?;
        let value = table.get(key).map_err(db)?;
        value.map(|bytes| from_cbor(key, bytes.value())).transpose()
    }
}

/// An open change; see [`ClusterRegistry::change`].
pub struct RegistryTransaction<'t> {
    transaction: &'t WriteTransaction,
    audit_keep: Duration,
}

impl std::fmt::Debug for RegistryTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Change")
    }
}

impl RegistryTransaction<'_> {
    fn create_tables(&self) -> Result<(), RegistryError> {
        let on = self.transaction;
        on.open_table(META).map_err(db)?;
        on.open_table(RACKS).map_err(db)?;
        on.open_table(KEYS).map_err(db)?;
        on.open_table(NAMES).map_err(db)?;
        on.open_table(PREFIXES).map_err(db)?;
        on.open_table(SCENARIOS).map_err(db)?;
        on.open_table(HEADS).map_err(db)?;
        on.open_table(REFERENCES).map_err(db)?;
        self.create_letters()?;
        self.create_tokens()?;
        self.create_invites()?;
        self.create_audit()
    }

    fn meta<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, RegistryError> {
        let table = self.transaction.open_table(META).map_err(db)?;
        let value = table.get(key).map_err(db)?;
        value.map(|bytes| from_cbor(key, bytes.value())).transpose()
    }

    fn set_meta<T: Serialize>(&self, key: &'static str, value: &T) -> Result<(), RegistryError> {
        let mut table = self.transaction.open_table(META).map_err(db)?;
        table.insert(key, to_cbor(key, value)?.as_slice()).map_err(db)?;
        Ok(())
    }

    /// Remembers that the cluster takes the place of one whose registry was lost.
    pub(crate) fn mark_replacement(&self) -> Result<(), RegistryError> {
        self.set_meta("replacement", &true)
    }

    /// Remembers a time that no command is issued after.
    pub(crate) fn set_issued(&self, mark: Timestamp) -> Result<(), RegistryError> {
        self.set_meta("issued", &mark)
    }

    /// Where the stream of messages stood at earlier times.
    pub(crate) fn set_stream_marks(&self, marks: &StreamMarks) -> Result<(), RegistryError> {
        self.set_meta("stream_marks", marks)
    }

    /// The changes that wait for a second person; none where they are of another form: they are asked for again.
    pub(crate) fn change_requests<T: DeserializeOwned>(&self) -> Result<Vec<T>, RegistryError> {
        match self.meta("change_requests") {
            Err(RegistryError::Damaged { .. }) => Ok(Vec::new()),
            known => Ok(known?.unwrap_or_default()),
        }
    }

    /// Remembers the changes that wait for a second person, in place of those before.
    pub(crate) fn put_change_requests<T: Serialize>(&self, waiting: &[T]) -> Result<(), RegistryError> {
        self.set_meta("change_requests", &waiting)
    }

    /// Remembers the cluster.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn put_cluster_identity(&self, founding: &ClusterIdentity) -> Result<(), RegistryError> {
        self.set_meta("cluster", founding)
    }
}
