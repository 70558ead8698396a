//! Migrations of the registry: one step per format, all of them in the transaction that opens the file.
//!
//! | format | what it brought |
//! |---|---|
//! | 1 | Racks, scenarios, the cluster |
//! | 2 | the audit log; marks of dead letters; of a Rack whether it is offline, its key for the bus and its last heartbeat |
//! | 3 | heads of scenarios; no contents that nothing refers to |
//!
//! # Invariants
//!
//! - A file is of one format or of the next, never between: a crash on the way leaves it as it was.
//! - Nothing is committed to a file of a newer format.

#[cfg(test)]
mod tests;

use std::path::Path;

use redb::ReadableTable;

use super::{FORMAT, HEADS, RACKS, RegistryError, RegistryTransaction, SCENARIOS, db, from_cbor, to_cbor};
use crate::registry::{RackRow, ScenarioHead};

/// What brings a file from a format to the next.
type MigrationStep = fn(&RegistryTransaction<'_>) -> Result<(), RegistryError>;

/// The steps, by the format that they begin at.
const STEPS: [(u16, MigrationStep); 2] = [(1, audit_letters_and_offline), (2, heads_of_scenarios)];

/// Makes the tables of a new file, or brings those of an older one to this format. The format that was found; none of a new
/// file.
pub(super) fn run(change: &RegistryTransaction<'_>, path: &Path) -> Result<Option<u16>, RegistryError> {
    let found = change.meta::<u16>("format")?;
    match found {
        None => change.create_tables()?,
        Some(FORMAT) => return Ok(found),
        Some(found) => steps(change, path, found)?,
    }
    change.set_meta("format", &FORMAT)?;
    Ok(found)
}

fn steps(change: &RegistryTransaction<'_>, path: &Path, found: u16) -> Result<(), RegistryError> {
    let mut at = found;
    for (from, step) in STEPS {
        if at == from {
            step(change)?;
            at += 1;
        }
    }
    if at == FORMAT {
        return Ok(());
    }
    Err(RegistryError::Format {
        path: path.to_owned(),
        found,
    })
}

/// 1 to 2: the tables of the audit log and of letters, and every Rack with the fields that it lacks.
fn audit_letters_and_offline(change: &RegistryTransaction<'_>) -> Result<(), RegistryError> {
    change.create_letters()?;
    change.create_audit()?;
    let mut racks = change.transaction.open_table(RACKS).map_err(db)?;
    let mut rows = Vec::new();
    for entry in racks.iter().map_err(db)? {
        let (id, row) = entry.map_err(db)?;
        rows.push((id.value().to_vec(), from_cbor::<RackRow>("rack", row.value())?));
    }
    for (id, row) in rows {
        racks
            .insert(id.as_slice(), to_cbor("rack", &row)?.as_slice())
            .map_err(db)?;
    }
    Ok(())
}

/// 2 to 3: the table of heads, without the contents that nothing refers to, which were kept until then.
fn heads_of_scenarios(change: &RegistryTransaction<'_>) -> Result<(), RegistryError> {
    let mut hashes = Vec::new();
    {
        let scenarios = change.transaction.open_table(SCENARIOS).map_err(db)?;
        let mut heads = change.transaction.open_table(HEADS).map_err(db)?;
        for entry in scenarios.iter().map_err(db)? {
            let (hash, row) = entry.map_err(db)?;
            let head: ScenarioHead = from_cbor("scenario", row.value())?;
            heads
                .insert(hash.value(), to_cbor("head of a scenario", &head)?.as_slice())
                .map_err(db)?;
            hashes.push(hash.value().to_owned());
        }
    }
    hashes.iter().try_for_each(|hash| change.drop_unreferenced(hash))
}
