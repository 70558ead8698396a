//! The list of a catalogue's tables, `telemetry/tables.json`: an array of names.
//!
//! Base tables have known names, those of specs have not, and to list all objects of all tables for them would cost a bucket's
//! reader many requests.
//!
//! # Invariants
//!
//! - A table is in the list only once it has metadata. It leaves the list only when the whole catalogue is withdrawn.
//! - It is derived: a publisher that finds it missing or damaged writes it anew.

use std::collections::BTreeSet;

use engine::SideObjects;

use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::metadata_folder::NAMESPACE;

/// Its size, at most.
const MOST_BYTES: usize = 1 << 20;

fn object() -> String {
    format!("{NAMESPACE}/tables.json")
}

/// The tables in the list: none if there is no list.
///
/// # Errors
/// If it cannot be read, or is no list of names.
pub(crate) fn read(objects: &SideObjects) -> Result<BTreeSet<CatalogTable>, IcebergError> {
    let Some(content) = objects.get(&object(), MOST_BYTES)? else {
        return Ok(BTreeSet::new());
    };
    parse(&content).map_err(|reason| IcebergError::damaged(objects.uri(&object()), reason))
}

/// The tables that a list names, or why it is none.
pub(crate) fn parse(content: &[u8]) -> Result<BTreeSet<CatalogTable>, String> {
    if content.len() > MOST_BYTES {
        return Err(format!("{} bytes are too many for a list of tables", content.len()));
    }
    let names: Vec<String> = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    Ok(names.iter().filter_map(|name| CatalogTable::parse(name)).collect())
}

/// # Errors
/// If it cannot be written, or could not be read back.
pub(crate) fn write(objects: &SideObjects, tables: &BTreeSet<CatalogTable>) -> Result<(), IcebergError> {
    let names: Vec<_> = tables.iter().map(CatalogTable::name).collect();
    let content = serde_json::Value::from(names).to_string();
    if content.len() > MOST_BYTES {
        let reason = format!(
            "the names of {} tables take more than {MOST_BYTES} bytes: delete {}, without the Mixer, and it begins anew with the \
             tables that have files",
            tables.len(),
            objects.uri(&object())
        );
        return Err(IcebergError::refused("the list of tables", reason));
    }
    Ok(objects.put(&object(), content.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_could_not_be_read_back_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let objects = SideObjects::in_folder(dir.path().join("iceberg"));
        let tables = |count: usize| -> BTreeSet<CatalogTable> {
            let spec = |number| format!("s{number:046}").parse().unwrap();
            (0..count).map(|number| CatalogTable::of_spec(spec(number))).collect()
        };
        let some = tables(100);
        write(&objects, &some).unwrap();
        let refused = write(&objects, &tables(20_000)).unwrap_err().to_string();
        assert!(refused.contains("the names of 20000 tables"), "{refused}");
        assert_eq!(read(&objects).unwrap(), some);
    }
}
