//! The folder of a table's metadata objects: their names, and which version of the metadata is the newest.
//!
//! | object of `telemetry/<table>/metadata/` | what it is |
//! |---|---|
//! | `v<n>.metadata.json` | version n of the metadata. Its creation is the publication |
//! | `version-hint.text` | n of a version that was the newest when this was written |
//! | `snap-<n>-<snapshot id>-<digest of its content>.avro` | manifest list of the snapshot that version n made |
//! | `<day>-<h\|d>-<schema id>-<digest of its files>-<digest of its content>-m.avro` | manifest |
//!
//! # Invariants
//!
//! - A version is created once and never changes. A name of a manifest or of a manifest list means one content, so that writing it
//!   again is harmless.
//! - The hint is never trusted: versions after it are looked for, and where it names none the folder is listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::SideObjects;
use model::Timestamp;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::table_metadata::{MOST_METADATA, TableMetadata};

/// The namespace of all tables.
pub const NAMESPACE: &str = "telemetry";

/// The object with the number of a recent version.
pub(crate) const VERSION_HINT: &str = "version-hint.text";
/// Bytes of a manifest or a manifest list, at most, whether written or read.
const MOST_AVRO: usize = 128 << 20;
/// Bytes of a hint, at most: a number.
const MOST_HINT: usize = 64;
/// No publisher gets so far.
const MOST_VERSION: u64 = 1 << 53;

/// A version of a table's metadata, as it was written and as it was understood.
#[derive(Debug, Clone)]
pub(crate) struct MetadataVersion {
    pub(crate) version: u64,
    pub(crate) text: Arc<RawValue>,
    /// What tells it apart from others: its number may be given again once a catalogue was lost.
    pub(crate) digest: Arc<str>,
    pub(crate) metadata: Arc<TableMetadata>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct MetadataFolder {
    objects: SideObjects,
    /// Its name below the root of all objects.
    name: String,
    location: String,
}

impl MetadataFolder {
    pub(crate) fn new(objects: &SideObjects, table: CatalogTable) -> Self {
        let table = format!("{NAMESPACE}/{}", table.name());
        Self {
            objects: objects.clone(),
            location: objects.uri(&table),
            name: format!("{table}/metadata"),
        }
    }

    /// The table's location, as its metadata says it.
    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    pub(crate) fn uri(&self, name: &str) -> String {
        format!("{}/metadata/{name}", self.location)
    }

    /// The name of the object at `uri`; `None` if that is elsewhere.
    pub(crate) fn name_of<'a>(&self, uri: &'a str) -> Option<&'a str> {
        let (_, name) = uri.rsplit_once('/')?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let is_name = !name.starts_with('.') && name.bytes().all(is_plain);
        (is_name && self.uri(name) == uri).then_some(name)
    }

    /// All objects with the times when they were written.
    pub(crate) fn list(&self) -> Result<BTreeMap<String, Timestamp>, IcebergError> {
        let prefix = self.object("");
        let name = |(object, at): (String, Timestamp)| Some((object.strip_prefix(&prefix)?.to_owned(), at));
        Ok(self.objects.list(&self.name)?.into_iter().filter_map(name).collect())
    }

    /// # Errors
    /// If it cannot be written, or could not be read back.
    pub(crate) fn put(&self, name: &str, content: Vec<u8>) -> Result<(), IcebergError> {
        if content.len() > MOST_AVRO {
            let reason = format!(
                "it has {} bytes, more than {MOST_AVRO}: larger data files (storage.segment_size_mb) make it smaller",
                content.len()
            );
            return Err(IcebergError::refused(self.uri(name), reason));
        }
        Ok(self.objects.put(&self.object(name), content.into())?)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), IcebergError> {
        Ok(self.objects.delete(&self.object(name))?)
    }

    /// A manifest or a manifest list, by its address.
    ///
    /// # Errors
    /// If it is not there, is not in this folder, or is too large to be one.
    pub(crate) fn get_avro(&self, uri: &str) -> Result<Bytes, IcebergError> {
        let damaged = |reason: &str| IcebergError::damaged(uri, reason);
        let name = self
            .name_of(uri)
            .ok_or_else(|| damaged("it is not in the table's folder"))?;
        let content = self.objects.get(&self.object(name), MOST_AVRO)?;
        let content = content.ok_or_else(|| damaged("it is missing"))?;
        match content.len() <= MOST_AVRO {
            true => Ok(content),
            false => Err(damaged("it is too large for an object of this catalogue")),
        }
    }

    /// The bytes of a version, if it is there.
    pub(crate) fn get_version(&self, version: u64) -> Result<Option<Bytes>, IcebergError> {
        Ok(self.objects.get(&self.object(&version_name(version)), MOST_METADATA)?)
    }

    fn has_version(&self, version: u64) -> Result<bool, IcebergError> {
        Ok(self.objects.get(&self.object(&version_name(version)), 0)?.is_some())
    }

    /// The number in the hint, if it is one.
    pub(crate) fn hint(&self) -> Result<Option<u64>, IcebergError> {
        let hint = self.objects.get(&self.object(VERSION_HINT), MOST_HINT)?;
        Ok(hint.and_then(|hint| hinted_version(&hint)))
    }

    pub(crate) fn put_hint(&self, version: u64) -> Result<(), IcebergError> {
        self.put(VERSION_HINT, version.to_string().into_bytes())
    }

    /// The newest version if it is newer than `known`, which is 0 if none is known; whatever there is if the known one is gone. It may
    /// be no metadata: [`MetadataFolder::parse`] says it.
    pub(crate) fn newest(&self, known: u64) -> Result<Option<(u64, Bytes)>, IcebergError> {
        let hint = self.hint()?;
        let (mut known, mut newest) = (known, None);
        if let Some(hint) = hint.filter(|hint| *hint > known) {
            newest = self.get_version(hint)?.map(|content| (hint, content));
        }
        // What was known is gone if the catalogue was made anew, or if it was collected while no hint could be written.
        if newest.is_none() && (known == 0 || !self.has_version(known)?) {
            let names = self.list()?;
            let last = names.keys().filter_map(|name| version_of(name)).max();
            // What appears there after the list is found below.
            known = last.unwrap_or(0);
            newest = match last {
                Some(last) => self.get_version(last)?.map(|content| (last, content)),
                None => None,
            };
        }
        let mut at = newest.as_ref().map_or(known, |(version, _)| *version);
        while let Some(content) = self.get_version(at + 1)? {
            at += 1;
            newest = Some((at, content));
        }
        Ok(newest)
    }

    /// What a version says.
    ///
    /// # Errors
    /// If it is no metadata of a table.
    pub(crate) fn parse(&self, version: u64, content: &[u8]) -> Result<MetadataVersion, IcebergError> {
        let uri = self.uri(&version_name(version));
        let metadata = TableMetadata::from_json(content).map_err(|error| error.of_object(&uri))?;
        let text = String::from_utf8(content.to_vec()).map_err(|error| IcebergError::damaged(uri.as_str(), error))?;
        let text = RawValue::from_string(text).map_err(|error| IcebergError::damaged(uri, error))?;
        Ok(MetadataVersion {
            version,
            text: text.into(),
            digest: content_digest(content).into(),
            metadata: Arc::new(metadata),
        })
    }

    /// Publishes a version; `None` if somebody published one with its number before, or a later one: the version that had the number
    /// may have been collected since.
    pub(crate) fn create(
        &self,
        version: u64,
        metadata: &TableMetadata,
    ) -> Result<Option<MetadataVersion>, IcebergError> {
        let content = Bytes::from(metadata.to_json()?);
        if let Some(hint) = self.hint()?.filter(|hint| *hint >= version)
            && self.has_version(hint)?
        {
            return Ok(None);
        }
        let created = self
            .objects
            .create(&self.object(&version_name(version)), content.clone())?;
        created.then(|| self.parse(version, &content)).transpose()
    }
}

/// What was read; `None` if it is damaged.
pub(crate) fn intact<T>(read: Result<T, IcebergError>) -> Result<Option<T>, IcebergError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error @ IcebergError::Storage(_)) => Err(error),
        Err(damaged) => {
            warn!("goes on without an object of the Iceberg catalogue: {damaged}");
            Ok(None)
        }
    }
}

/// What tells contents apart in names: 16 hex digits.
pub(crate) fn content_digest(content: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(content).into();
    let (first, _) = digest.split_at(8);
    hex::encode(first)
}

pub(crate) fn version_name(version: u64) -> String {
    format!("v{version}.metadata.json")
}

/// The version that an object is, if it is one.
pub(crate) fn version_of(name: &str) -> Option<u64> {
    version_number(name.strip_prefix('v')?.strip_suffix(".metadata.json")?)
}

/// The version in a hint, if it is one.
pub(crate) fn hinted_version(hint: &[u8]) -> Option<u64> {
    version_number(std::str::from_utf8(hint).ok()?.trim())
}

fn version_number(text: &str) -> Option<u64> {
    let number = text.parse().ok().filter(|number| (1..MOST_VERSION).contains(number))?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use model::Table;

    use super::*;

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let objects = SideObjects::in_folder(dir.path().join("iceberg"));
        let folder = MetadataFolder::new(&objects, CatalogTable::base(Table::Logs));
        folder.put("a-m.avro", vec![0; 9]).unwrap();
        assert_eq!(folder.get_avro(&folder.uri("a-m.avro")).unwrap().len(), 9);
        let refused = folder.put("b-m.avro", vec![0; MOST_AVRO + 1]).unwrap_err().to_string();
        assert!(
            refused.contains("b-m.avro") && refused.contains("134217729 bytes"),
            "{refused}"
        );
        assert_eq!(folder.list().unwrap().len(), 1);
    }

    #[test]
    fn only_plain_numbers_are_versions() {
        assert_eq!(version_of(&version_name(7)), Some(7));
        for name in [
            "v0.metadata.json",
            "v07.metadata.json",
            "v+7.metadata.json",
            "v.metadata.json",
            "7.metadata.json",
        ] {
            assert_eq!(version_of(name), None, "{name}");
        }
        assert_eq!(version_of(&version_name(u64::MAX)), None);
        assert_eq!(version_number("18446744073709551616"), None);
    }
}
