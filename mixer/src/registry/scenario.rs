//! Scenarios in the registry: files by content hash, their heads, references to them, the active one, and those that were active
//! before it.

use model::scenario::ScenarioVersion;
use model::{Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ClusterRegistry, HEADS, META, REFERENCES, RegistryError, RegistryTransaction, SCENARIOS, db, from_cbor, to_cbor,
};

/// So many scenarios, and so many bytes of their texts, are stored at most.
pub(crate) const MOST_SCENARIOS: u64 = 1_000;
pub(crate) const MOST_SCENARIO_BYTES: u64 = 64 << 20;
/// So many former activations are remembered.
const REMEMBERED: usize = 16;

/// A stored scenario file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioRow {
    /// SHA-256 of the text, hex.
    pub hash: String,
    /// `meta.name`.
    pub name: Token,
    /// `meta.version`.
    pub version: ScenarioVersion,
    /// When it was stored last, and later than every other of its name that was there: `name:latest` is the newest.
    pub stored: Timestamp,
    /// The file as it was given.
    pub text: String,
}

impl ScenarioRow {
    /// `name:version`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.version)
    }

    /// It without its text.
    #[must_use]
    pub fn head(&self) -> ScenarioHead {
        ScenarioHead {
            hash: self.hash.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
            stored: self.stored,
        }
    }
}

/// A stored scenario file without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioHead {
    /// SHA-256 of the text, hex.
    pub hash: String,
    /// `meta.name`.
    pub name: Token,
    /// `meta.version`.
    pub version: ScenarioVersion,
    /// See [`ScenarioRow::stored`].
    pub stored: Timestamp,
}

impl ScenarioHead {
    /// `name:version`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.version)
    }
}

/// The scenario that Racks should run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActiveScenario {
    /// `name:version`.
    pub reference: String,
    /// Its content hash.
    pub hash: String,
    /// When it was activated.
    pub activated: Timestamp,
}

fn head(bytes: &[u8]) -> Result<ScenarioHead, RegistryError> {
    from_cbor("head of a scenario", bytes)
}

/// The heads of those whose reference begins so, by reference.
fn heads_of(
    references: &impl ReadableTable<&'static str, &'static str>,
    heads: &impl ReadableTable<&'static str, &'static [u8]>,
    begin: &str,
) -> Result<Vec<ScenarioHead>, RegistryError> {
    let mut found = Vec::new();
    for entry in references.range(begin..).map_err(db)? {
        let (reference, hash) = entry.map_err(db)?;
        if !reference.value().starts_with(begin) {
            break;
        }
        if let Some(bytes) = heads.get(hash.value()).map_err(db)? {
            found.push(head(bytes.value())?);
        }
    }
    Ok(found)
}

impl ClusterRegistry {
    /// A scenario by content hash.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn scenario(&self, hash: &str) -> Result<Option<ScenarioRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let scenarios = read.open_table(SCENARIOS).map_err(db)?;
        let found = scenarios.get(hash).map_err(db)?;
        found.map(|bytes| from_cbor("scenario", bytes.value())).transpose()
    }

    /// The scenario that `name:version` means now; without a version the one stored last.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn scenario_named(
        &self,
        name: &Token,
        version: Option<&ScenarioVersion>,
    ) -> Result<Option<ScenarioRow>, RegistryError> {
        let Some(version) = version else {
            let all = self.heads(&format!("{name}:"))?;
            let newest = all.into_iter().max_by_key(|head| head.stored);
            return newest.map_or(Ok(None), |head| self.scenario(&head.hash));
        };
        let hash = {
            let read = self.database.begin_read().map_err(db)?;
            let references = read.open_table(REFERENCES).map_err(db)?;
            let found = references.get(format!("{name}:{version}").as_str()).map_err(db)?;
            found.map(|hash| hash.value().to_owned())
        };
        hash.map_or(Ok(None), |hash| self.scenario(&hash))
    }

    /// Every scenario that a reference means, by reference.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn scenarios(&self) -> Result<Vec<ScenarioHead>, RegistryError> {
        self.heads("")
    }

    /// Every reference that means a scenario.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn references(&self) -> Result<Vec<String>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let references = read.open_table(REFERENCES).map_err(db)?;
        let all = references.iter().map_err(db)?;
        all.map(|entry| Ok(entry.map_err(db)?.0.value().to_owned())).collect()
    }

    /// `name:version` of a content; none for a hash that is not known.
    pub(crate) fn reference_of(&self, hash: &str) -> Result<Option<String>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let heads = read.open_table(HEADS).map_err(db)?;
        let Some(bytes) = heads.get(hash).map_err(db)? else {
            return Ok(None);
        };
        Ok(Some(head(bytes.value())?.reference()))
    }

    /// Those whose reference begins so.
    fn heads(&self, begin: &str) -> Result<Vec<ScenarioHead>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let references = read.open_table(REFERENCES).map_err(db)?;
        let heads = read.open_table(HEADS).map_err(db)?;
        heads_of(&references, &heads, begin)
    }

    /// The scenarios whose hash begins so; at most two.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn scenarios_hashed(&self, prefix: &str) -> Result<Vec<ScenarioRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let scenarios = read.open_table(SCENARIOS).map_err(db)?;
        let mut found = Vec::new();
        for entry in scenarios.range(prefix..).map_err(db)?.take(2) {
            let entry = entry.map_err(db)?;
            if entry.0.value().starts_with(prefix) {
                found.push(from_cbor("scenario", entry.1.value())?);
            }
        }
        Ok(found)
    }

    /// What was active before, the last one first.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn former_scenarios(&self) -> Result<Vec<ActiveScenario>, RegistryError> {
        Ok(self.meta("history")?.unwrap_or_default())
    }

    /// The scenario that Racks should run, if any.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn active_scenario(&self) -> Result<Option<ActiveScenario>, RegistryError> {
        self.meta("active")
    }

    /// The same with its content, both of one moment: a content may be dropped as soon as it is active no more.
    pub(crate) fn active_content(&self) -> Result<Option<(ActiveScenario, ScenarioRow)>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let meta = read.open_table(META).map_err(db)?;
        let Some(active) = meta.get("active").map_err(db)? else {
            return Ok(None);
        };
        let active: ActiveScenario = from_cbor("active", active.value())?;
        let scenarios = read.open_table(SCENARIOS).map_err(db)?;
        let Some(content) = scenarios.get(active.hash.as_str()).map_err(db)? else {
            return Ok(None);
        };
        let content = from_cbor("scenario", content.value())?;
        Ok(Some((active, content)))
    }
}

impl RegistryTransaction<'_> {
    /// The scenario that Racks should run, as of this change.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn active_scenario(&self) -> Result<Option<ActiveScenario>, RegistryError> {
        self.meta("active")
    }

    /// Stores a scenario under its hash and lets its reference mean it; it is the newest of its name, also where the clock was
    /// ahead when another one was stored. Returns the hash the reference meant before, if that was another one: its content is gone
    /// where nothing else refers to it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn put_scenario(&self, scenario: &ScenarioRow) -> Result<Option<String>, RegistryError> {
        let newest = self.newest(&scenario.name)?;
        let scenario = &ScenarioRow {
            stored: newest.map_or(scenario.stored, |newest| {
                scenario
                    .stored
                    .max(Timestamp::from_micros(newest.micros().saturating_add(1)))
            }),
            ..scenario.clone()
        };
        let hash = scenario.hash.as_str();
        {
            let mut scenarios = self.transaction.open_table(SCENARIOS).map_err(db)?;
            let content = to_cbor("scenario", scenario)?;
            scenarios.insert(hash, content.as_slice()).map_err(db)?;
            let mut heads = self.transaction.open_table(HEADS).map_err(db)?;
            let head = to_cbor("head of a scenario", &scenario.head())?;
            heads.insert(hash, head.as_slice()).map_err(db)?;
        }
        let before = {
            let mut references = self.transaction.open_table(REFERENCES).map_err(db)?;
            let before = references.insert(scenario.reference().as_str(), hash).map_err(db)?;
            before.map(|hash| hash.value().to_owned())
        };
        let before = before.filter(|before| before != hash);
        if let Some(before) = &before {
            self.drop_unreferenced(before)?;
        }
        Ok(before)
    }

    /// Whether more is stored than may be, as of this change.
    pub(crate) fn has_too_many_scenarios(&self) -> Result<bool, RegistryError> {
        let references = self.transaction.open_table(REFERENCES).map_err(db)?;
        let scenarios = self.transaction.open_table(SCENARIOS).map_err(db)?;
        let mut bytes = 0;
        for entry in scenarios.iter().map_err(db)? {
            bytes += entry.map_err(db)?.1.value().len() as u64;
        }
        Ok(references.len().map_err(db)? > MOST_SCENARIOS || bytes > MOST_SCENARIO_BYTES)
    }

    /// Lets a reference mean nothing; its content goes unless a rollback may need it. Returns the hash that it meant, if it meant one.
    pub(crate) fn delete_scenario(&self, reference: &str) -> Result<Option<String>, RegistryError> {
        let meant = {
            let mut references = self.transaction.open_table(REFERENCES).map_err(db)?;
            let meant = references.remove(reference).map_err(db)?;
            meant.map(|hash| hash.value().to_owned())
        };
        if let Some(hash) = &meant {
            self.drop_unreferenced(hash)?;
        }
        Ok(meant)
    }

    /// Drops a content that nothing refers to any more: its reference means another one, and it is neither active nor remembered,
    /// nor what a rollback has just taken the place of.
    pub(super) fn drop_unreferenced(&self, hash: &str) -> Result<(), RegistryError> {
        let active: Option<ActiveScenario> = self.meta("active")?;
        let left: Option<ActiveScenario> = self.meta("left")?.flatten();
        let history: Vec<ActiveScenario> = self.meta("history")?.unwrap_or_default();
        if active.iter().chain(&left).chain(&history).any(|one| one.hash == hash) {
            return Ok(());
        }
        let mut heads = self.transaction.open_table(HEADS).map_err(db)?;
        let found = heads.get(hash).map_err(db)?.map(|bytes| head(bytes.value()));
        let Some(found) = found.transpose()? else {
            return Ok(());
        };
        if self.meaning(&found.reference())?.as_deref() == Some(hash) {
            return Ok(());
        }
        tracing::info!(scenario = found.reference(), hash, "dropped an unreferenced scenario");
        heads.remove(hash).map_err(db)?;
        let mut scenarios = self.transaction.open_table(SCENARIOS).map_err(db)?;
        scenarios.remove(hash).map_err(db)?;
        Ok(())
    }

    /// Whether a content is stored, as of this change.
    pub(crate) fn has_scenario(&self, hash: &str) -> Result<bool, RegistryError> {
        let heads = self.transaction.open_table(HEADS).map_err(db)?;
        let found = heads.get(hash).map_err(db)?;
        Ok(found.is_some())
    }

    /// When the newest scenario of a name was stored.
    fn newest(&self, name: &Token) -> Result<Option<Timestamp>, RegistryError> {
        let references = self.transaction.open_table(REFERENCES).map_err(db)?;
        let heads = self.transaction.open_table(HEADS).map_err(db)?;
        let all = heads_of(&references, &heads, &format!("{name}:"))?;
        Ok(all.into_iter().map(|head| head.stored).max())
    }

    /// What `name:version` means, as of this change.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn meaning(&self, reference: &str) -> Result<Option<String>, RegistryError> {
        let references = self.transaction.open_table(REFERENCES).map_err(db)?;
        let found = references.get(reference).map_err(db)?;
        Ok(found.map(|hash| hash.value().to_owned()))
    }

    /// Makes a scenario the one that Racks should run. The one before is remembered if its content is another.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn activate(&self, active: &ActiveScenario) -> Result<(), RegistryError> {
        let before: Option<ActiveScenario> = self.meta("active")?;
        self.set_meta("active", active)?;
        self.leave(None)?;
        if let Some(before) = before.filter(|before| before.hash != active.hash) {
            let mut history: Vec<ActiveScenario> = self.meta("history")?.unwrap_or_default();
            history.insert(0, before);
            let forgotten = history.split_off(REMEMBERED.min(history.len()));
            self.set_meta("history", &history)?;
            for one in forgotten {
                self.drop_unreferenced(&one.hash)?;
            }
        }
        Ok(())
    }

    /// The scenario that [`Self::roll_back`] goes back to, if any.
    pub(crate) fn former_scenario(&self) -> Result<Option<ActiveScenario>, RegistryError> {
        let history: Vec<ActiveScenario> = self.meta("history")?.unwrap_or_default();
        Ok(history.into_iter().next())
    }

    /// Makes the scenario that was active before the one that Racks should run; none if there was none. What it takes the
    /// place of is not remembered: the next time goes further back.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn roll_back(&self, now: Timestamp) -> Result<Option<ActiveScenario>, RegistryError> {
        let mut history: Vec<ActiveScenario> = self.meta("history")?.unwrap_or_default();
        if history.is_empty() {
            return Ok(None);
        }
        let active = ActiveScenario {
            activated: now,
            ..history.remove(0)
        };
        let left: Option<ActiveScenario> = self.meta("active")?;
        self.set_meta("history", &history)?;
        self.set_meta("active", &active)?;
        self.leave(left)?;
        Ok(Some(active))
    }

    /// Keeps what a rollback takes the place of until the next change: Racks still run it. Drops what was kept so before.
    fn leave(&self, left: Option<ActiveScenario>) -> Result<(), RegistryError> {
        let before: Option<ActiveScenario> = self.meta("left")?.flatten();
        self.set_meta("left", &left)?;
        before.map_or(Ok(()), |before| self.drop_unreferenced(&before.hash))
    }
}
