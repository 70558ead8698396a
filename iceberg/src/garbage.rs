//! Garbage collection of a table's metadata objects.
//!
//! # Invariants
//!
//! - Deleted is only what the newest version of the metadata does not name, with all snapshots that it lists and the few versions of
//!   its log, what no draft of the next version is, and what is older than twice the age to which snapshots are kept: another
//!   publisher may be about to name what is young.
//!   What earlier versions alone name is for nobody any more: a snapshot within its age is in the newest one.
//! - Whoever calls this knows the last version that is there. What appears later is young.
//! - What this program does not write stays.
//! - What could not be read for reasons of the disk or the bucket deletes nothing. A damaged object names nothing: no reader can
//!   follow it.

use std::collections::{BTreeMap, BTreeSet};

use model::Timestamp;

use crate::error::IcebergError;
use crate::manifest_list::read_manifest_list;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, intact, version_of};
use crate::snapshot_history::KEPT_VERSIONS;
use crate::table_metadata::TableSnapshot;

/// What a collection did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CollectedGarbage {
    /// So many objects were deleted.
    pub(crate) deleted: u64,
    /// Others that nobody names are too young.
    pub(crate) is_waiting: bool,
}

/// Deletes those of the objects in the folder that nobody names: neither the newest version, if there is one, nor `manifests`, the
/// addresses of the current snapshot's and of drafts.
pub(crate) fn collect_garbage<'a>(
    folder: &MetadataFolder,
    there: &BTreeMap<String, Timestamp>,
    (newest, manifests): (Option<&MetadataVersion>, impl Iterator<Item = &'a str>),
    young: Timestamp,
) -> Result<CollectedGarbage, IcebergError> {
    let named = named_objects(folder, newest, manifests)?;
    let oldest = newest.map_or(0, |newest| newest.version.saturating_sub(KEPT_VERSIONS as u64));
    let is_kept = |name: &str| named.contains(name) || version_of(name).is_some_and(|version| version >= oldest);
    let mut collected = CollectedGarbage::default();
    // Versions first, then manifest lists, then manifests: what is still there has what it names.
    for (name, at) in there
        .iter()
        .rev()
        .filter(|(name, _)| is_of_catalogue(name) && !is_kept(name))
    {
        if *at < young {
            folder.delete(name)?;
            collected.deleted += 1;
        } else {
            collected.is_waiting = true;
        }
    }
    Ok(collected)
}

/// Whether this program wrote it, or began to.
fn is_of_catalogue(name: &str) -> bool {
    if name.starts_with('.') {
        return name.ends_with(".tmp");
    }
    let is_list = name.starts_with("snap-") && name.ends_with(".avro");
    is_list || name.ends_with("-m.avro") || version_of(name).is_some()
}

/// Manifests, and manifest lists and manifests of all snapshots that a version lists.
fn named_objects<'a>(
    folder: &MetadataFolder,
    newest: Option<&MetadataVersion>,
    manifests: impl Iterator<Item = &'a str>,
) -> Result<BTreeSet<String>, IcebergError> {
    let name_of = |uri: &str| folder.name_of(uri).map(str::to_owned);
    let mut named: BTreeSet<_> = manifests.filter_map(name_of).collect();
    for TableSnapshot {
        manifest_list: list, ..
    } in newest.into_iter().flat_map(|newest| &newest.metadata.snapshots)
    {
        named.extend(name_of(list));
        let content = folder.get_avro(list);
        let manifests = content.and_then(|content| read_manifest_list(&content).map_err(|error| error.of_object(list)));
        for manifest in intact(manifests)?.unwrap_or_default() {
            named.extend(name_of(&manifest.path));
        }
    }
    Ok(named)
}
