//! From older formats to this one: one step per format, all of them in the transaction that opens the file.
//!
//! | format | what it brought |
//! |---|---|
//! | 1 | Racks, scenarios, the cluster |
//! | 2 | the audit log; marks of dead letters; of a Rack whether it is offline, its key for the bus and its last heartbeat |
//!
//! # Invariants
//!
//! - A file is of one format or of the next, never between: a crash on the way leaves it as it was.
//! - Nothing is committed to a file of a newer format.

#[cfg(test)]
mod tests;

use std::path::Path;

use redb::ReadableTable;

use super::{Change, FORMAT, RACKS, RegistryError, db, from_cbor, to_cbor};
use crate::registry::RackRow;

/// What brings a file from a format to the next.
type Step = fn(&Change<'_>) -> Result<(), RegistryError>;

/// The steps, by the format that they begin at.
const STEPS: [(u16, Step); 1] = [(1, audit_letters_and_offline)];

/// Makes the tables of a new file, or brings those of an older one to this format. The format that was found; none of a new
/// file.
pub(super) fn run(change: &Change<'_>, path: &Path) -> Result<Option<u16>, RegistryError> {
    let found = change.meta::<u16>("format")?;
    match found {
        None => change.create_tables()?,
        Some(FORMAT) => return Ok(found),
        Some(found) => steps(change, path, found)?,
    }
    change.set_meta("format", &FORMAT)?;
    Ok(found)
}

fn steps(change: &Change<'_>, path: &Path, found: u16) -> Result<(), RegistryError> {
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
fn audit_letters_and_offline(change: &Change<'_>) -> Result<(), RegistryError> {
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
