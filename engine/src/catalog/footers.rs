//! Footers of data files, kept by bytes.
//!
//! # Invariants
//!
//! - Keyed by segment and version, never by path or size: a sealed file has the path, and often the size, of the open one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use parquet::file::metadata::ParquetMetaData;

use crate::Error;

type Key = (u64, u32);

/// A cache of footers, bounded by bytes; the least recently used go first.
#[derive(Debug)]
pub(crate) struct Footers {
    max_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    footers: HashMap<Key, (Arc<ParquetMetaData>, u64)>,
    bytes: usize,
    clock: u64,
}

impl Footers {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            kept: Mutex::default(),
        }
    }

    /// The footer of a version, read by `load` if it is not kept. Two callers may read it at once.
    pub(crate) fn get(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<ParquetMetaData, Error>,
    ) -> Result<Arc<ParquetMetaData>, Error> {
        if let Some(footer) = self.kept.lock().touch(key) {
            return Ok(footer);
        }
        let footer = Arc::new(load()?);
        self.kept.lock().insert(key, Arc::clone(&footer), self.max_bytes);
        Ok(footer)
    }
}

impl Kept {
    fn touch(&mut self, key: Key) -> Option<Arc<ParquetMetaData>> {
        self.clock += 1;
        let (footer, used) = self.footers.get_mut(&key)?;
        *used = self.clock;
        Some(Arc::clone(footer))
    }

    fn insert(&mut self, key: Key, footer: Arc<ParquetMetaData>, max_bytes: usize) {
        self.bytes += footer.memory_size();
        if let Some((old, _)) = self.footers.insert(key, (footer, self.clock)) {
            self.bytes -= old.memory_size();
        }
        while self.bytes > max_bytes && self.footers.len() > 1 {
            let oldest = self.footers.iter().filter(|(other, _)| **other != key);
            let Some(oldest) = oldest.min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key) else {
                return;
            };
            if let Some((gone, _)) = self.footers.remove(&oldest) {
                self.bytes -= gone.memory_size();
            }
        }
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
