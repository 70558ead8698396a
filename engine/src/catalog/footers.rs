//! Footers of data files, kept by bytes.

use std::sync::Arc;

use parquet::file::metadata::ParquetMetaData;

use super::segment::Key;
use crate::Error;
use crate::Kept;

/// A cache of footers, bounded by bytes; those that were not used of late go first.
#[derive(Debug)]
pub(crate) struct Footers(Kept<Key, Arc<ParquetMetaData>>);

impl Footers {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self(Kept::new(max_bytes))
    }

    /// The footer of a version, read by `load` if it is not kept. Two callers may read it at once.
    pub(super) fn get(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<ParquetMetaData, Error>,
    ) -> Result<Arc<ParquetMetaData>, Error> {
        if let Some(footer) = self.0.get(key) {
            return Ok(footer);
        }
        let footer = Arc::new(load()?);
        self.0.put(key, Arc::clone(&footer), footer.memory_size());
        Ok(footer)
    }

    /// The footer of a version if it is kept.
    pub(super) fn kept(&self, key: Key) -> Option<Arc<ParquetMetaData>> {
        self.0.get(key)
    }

    /// Nobody asks for the version any more.
    pub(super) fn forget(&self, key: Key) {
        self.0.forget(key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use parquet::file::metadata::FileMetaData;
    use parquet::schema::types::{SchemaDescriptor, Type};

    use super::*;

    fn footer() -> ParquetMetaData {
        let schema = Type::group_type_builder("schema").build().unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        ParquetMetaData::new(FileMetaData::new(2, 0, None, None, schema, None), Vec::new())
    }

    #[test]
    fn the_least_recently_used_footer_goes_first_and_versions_are_apart() {
        let one = footer().memory_size();
        let cache = Footers::new(one * 2);
        let loads = std::cell::Cell::new(0);
        let get = |key| {
            let load = || {
                loads.set(loads.get() + 1);
                Ok(footer())
            };
            cache.get(key, load).unwrap();
            loads.get()
        };
        assert_eq!((get((1, 1)), get((1, 2)), get((1, 1))), (1, 2, 2));
        assert_eq!(get((2, 1)), 3);
        assert_eq!(get((1, 1)), 3, "used after (1, 2)");
        assert_eq!(get((1, 2)), 4, "it had to go");
    }
}
