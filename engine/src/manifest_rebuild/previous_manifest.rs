//! Reads to which store the previous catalogue belongs, and keeps it aside.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use model::{Table, Timestamp};
use uuid::Uuid;

use crate::Error;
use crate::datafile::inspect;
use crate::layout::StoreLayout;
use crate::manifest::known_store_id;

/// The store's id, and whether its file has it. Where no data file is of the store that it names, it is damaged.
pub(super) fn find_store(layout: &StoreLayout, tree: &[(Table, PathBuf)]) -> Result<(Uuid, bool), Error> {
    let written = match known_store_id(&layout.meta) {
        Ok(id) => id,
        Err(Error::Damaged { .. }) => None,
        Err(error) => return Err(error),
    };
    let named = tree.iter().filter_map(|(_, path)| inspect(path).ok());
    let named: BTreeSet<Uuid> = named.map(|about| about.identity.store).collect();
    if let Some(id) = written.filter(|id| named.is_empty() || named.contains(id)) {
        return Ok((id, true));
    }
    match named.iter().collect::<Vec<_>>()[..] {
        [id] => Ok((*id, false)),
        _ => Err(Error::Catalogue {
            path: layout.meta.join("store.id"),
            reason: format!(
                "it names no store that there are data files of, and they are of {} stores: write the right id into it",
                named.len()
            ),
        }),
    }
}

/// Copies the old catalogue's files under a name that says when.
pub(super) fn keep_old(
    layout: &StoreLayout,
    mut files: Vec<PathBuf>,
    now: Timestamp,
) -> Result<Option<PathBuf>, Error> {
    files.extend(Some(layout.meta.join("store.id")).filter(|path| path.exists() && !files.is_empty()));
    if files.is_empty() {
        return Ok(None);
    }
    let when = now.to_datetime().unwrap_or_default().format("%Y%m%dT%H%M%SZ");
    let folder = durable_fs::free_name(layout.quarantine.join(format!("catalogue_{when}")));
    durable_fs::create_private_dirs(&folder)?;
    for path in files {
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        if let Some(name) = path.file_name() {
            durable_fs::write_durably(&folder.join(name), &bytes)?;
        }
    }
    Ok(Some(folder))
}
