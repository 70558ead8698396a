//! Expiry of links: until when a data file that left the store can be read through its link.
//!
//! | a link whose file has no other name, and that | stays |
//! |---|---|
//! | the list of files names | as long as it does |
//! | left the newest version of a table | for the age of snapshots and a margin, from then on |
//! | a newest version names, or may name, of a table that cannot be published | a day, or that time if it is longer |
//!
//! # Invariants
//!
//! - Only the disk remembers when a file lost its other names, or left the newest version: it holds over restarts.
//! - A table that cannot be published keeps space for a bounded time.
//!
//! # Not here
//!
//! A full disk: the engine removes links then whatever their age.

use std::collections::{BTreeSet, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use engine::SideObjects;
use model::Timestamp;

use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::manifest::read_manifest;
use crate::manifest_list::read_manifest_list;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, intact};
use crate::table_metadata::TableSnapshot;

/// How much longer than the age of snapshots a link is kept: the tree gives a name up before a version without the file is published.
pub const MARGIN: Duration = Duration::from_secs(600);
/// How long what only a table names that cannot be published is kept at least.
const LONGEST_NAMED: Duration = Duration::from_secs(24 * 3_600);

/// What a snapshot's summary has as the number of files that the one before had more.
const DELETED_FILES: &str = "deleted-data-files";

/// Removes the links that are due at `now`, neither in the list of files nor, for long, in a newest version of a table; `published` is
/// `None` while it is not known what these name.
pub(crate) fn remove_due(
    objects: &SideObjects,
    (listed, published): (&HashSet<&str>, Option<&HashSet<&str>>),
    snapshot_age: Duration,
    now: Timestamp,
) -> Result<(), IcebergError> {
    let kept = snapshot_age.saturating_add(MARGIN);
    let kept_if_named = kept.max(LONGEST_NAMED);
    let is_due = |uri: &str, since: Timestamp| {
        let is_named = published.is_none_or(|published| published.contains(uri));
        let kept = if is_named { kept_if_named } else { kept };
        since < now.minus(kept)
    };
    Ok(objects.unpin(listed, is_due)?)
}

/// Lets the time of the links begin that the newest version of a table names no more, if the snapshot before it does: it can be read
/// for its age from now on, however long ago the files left the tree. Those whose time began after that version stay as they are.
pub(crate) fn renew_left(
    objects: &SideObjects,
    table: CatalogTable,
    newest: &MetadataVersion,
) -> Result<(), IcebergError> {
    let [.., before, current] = newest.metadata.snapshots.as_slice() else {
        return Ok(());
    };
    let is_new = u64::try_from(current.sequence_number) == Ok(newest.version);
    let has_less = current.summary.get(DELETED_FILES).is_some_and(|count| count != "0");
    if objects.folder().is_none() || !is_new || !has_less {
        return Ok(());
    }
    let folder = MetadataFolder::new(objects, table);
    let since = current.timestamp_ms;
    let (before, current) = (manifests(&folder, before)?, manifests(&folder, current)?);
    let left = files(&folder, before.difference(&current))?;
    let stay = files(&folder, current.difference(&before))?;
    let left = left.difference(&stay).map(String::as_str);
    Ok(objects.renew_links(left.filter(|uri| changed_before(uri, since)))?)
}

/// Whether the inode of a local file changed last before a time in milliseconds; also of one that cannot be looked at: who touches it
/// says why.
fn changed_before(uri: &str, time: i64) -> bool {
    let about = uri
        .strip_prefix("file://")
        .map(|path| Path::new(path).symlink_metadata());
    let milliseconds = |about: &Metadata| {
        about
            .ctime()
            .saturating_mul(1_000)
            .saturating_add(about.ctime_nsec() / 1_000_000)
    };
    about
        .and_then(Result::ok)
        .is_none_or(|about| milliseconds(&about) < time)
}

/// The manifests of a snapshot; none if its list is damaged.
fn manifests(folder: &MetadataFolder, snapshot: &TableSnapshot) -> Result<BTreeSet<String>, IcebergError> {
    let list = folder
        .get_avro(&snapshot.manifest_list)
        .and_then(|content| read_manifest_list(&content).map_err(|error| error.of_object(&snapshot.manifest_list)));
    let list = intact(list)?.unwrap_or_default();
    Ok(list.into_iter().map(|manifest| manifest.path).collect())
}

/// The data files of manifests; of a damaged one, none.
fn files<'a>(
    folder: &MetadataFolder,
    manifests: impl Iterator<Item = &'a String>,
) -> Result<HashSet<String>, IcebergError> {
    let mut files = HashSet::new();
    for path in manifests {
        let entries = folder
            .get_avro(path)
            .and_then(|content| read_manifest(&content).map_err(|error| error.of_object(path)));
        let entries = intact(entries)?.unwrap_or_default();
        files.extend(entries.into_iter().map(|entry| entry.file.path));
    }
    Ok(files)
}
