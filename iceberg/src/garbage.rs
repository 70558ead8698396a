//! Garbage collection of a table's metadata objects.
//!
//! # Invariants
//!
//! - Deleted is only what neither the newest version of the metadata nor the 100 before it name, with all snapshots that they list,
//!   and what is older than twice the age to which snapshots are kept: another publisher may be about to name what is young.
//! - Later versions than the known one stay, as does what this program does not write.
//! - What could not be read for reasons of the disk or the bucket deletes nothing. A damaged object names nothing: no reader can
//!   follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Timestamp;

use crate::error::IcebergError;
use crate::manifest_list::read_manifest_list;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, intact, version_of};
use crate::snapshot_history::KEPT_VERSIONS;

/// Deletes what nobody names, and says how many objects.
pub(crate) fn collect_garbage(
    folder: &MetadataFolder,
    newest: &MetadataVersion,
    snapshot_age: Duration,
    now: Timestamp,
) -> Result<u64, IcebergError> {
    let there = folder.list()?;
    let named = named_objects(folder, newest, &there)?;
    let young = now.minus(snapshot_age.saturating_mul(2));
    let mut deleted = 0;
    // Versions first, then manifest lists, then manifests: what is still there has what it names.
    for (name, at) in there.iter().rev() {
        if is_of_catalogue(name) && *at < young && !named.contains(name) {
            folder.delete(name)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Whether this program wrote it, or began to.
fn is_of_catalogue(name: &str) -> bool {
    if name.starts_with('.') {
        return name.ends_with(".tmp");
    }
    let is_list = name.starts_with("snap-") && name.ends_with(".avro");
    is_list || name.ends_with("-m.avro") || version_of(name).is_some()
}

fn named_objects(
    folder: &MetadataFolder,
    newest: &MetadataVersion,
    there: &BTreeMap<String, Timestamp>,
) -> Result<BTreeSet<String>, IcebergError> {
    let oldest = newest.version.saturating_sub(KEPT_VERSIONS as u64);
    let versions = there.keys().filter_map(|name| Some((name, version_of(name)?)));
    let (mut named, mut lists) = (BTreeSet::new(), BTreeSet::new());
    for (name, version) in versions.filter(|(_, version)| *version >= oldest) {
        named.insert(name.clone());
        let read = folder.read_version(version);
        if let Some(Some(read)) = intact(read)? {
            lists.extend(
                read.metadata
                    .snapshots
                    .iter()
                    .map(|snapshot| snapshot.manifest_list.clone()),
            );
        }
    }
    for list in lists {
        let Some(name) = folder.name_of(&list) else {
            continue;
        };
        named.insert(name.to_owned());
        let content = folder.get_avro(&list);
        let manifests =
            content.and_then(|content| read_manifest_list(&content).map_err(|error| error.of_object(&list)));
        for manifest in intact(manifests)?.unwrap_or_default() {
            named.extend(folder.name_of(&manifest.path).map(str::to_owned));
        }
    }
    Ok(named)
}
