//! What a statement may have at once: how much memory its functions share, and when it ends.
//!
//! Functions find it among the options of their session.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, StringArray};
use arrow_buffer::Buffer;
use bytes::Bytes;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

use super::stop::Stop;

/// The most bytes of a compiled regular expression: what its library allows.
const MOST_OF_A_PATTERN: usize = 10 << 20;

/// What a statement may have at once, for the functions that it calls.
#[derive(Debug, Clone)]
pub(super) struct StatementBounds {
    memory: usize,
    /// The bytes of texts that functions made and somebody has.
    texts: Arc<AtomicUsize>,
    stop: Option<Arc<Stop>>,
    /// How many regular expressions it has.
    patterns: usize,
}

impl StatementBounds {
    pub(super) fn new(pool: &dyn MemoryPool, stop: Option<Arc<Stop>>) -> Self {
        let memory = match pool.memory_limit() {
            MemoryLimit::Finite(memory) => memory,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self {
            memory,
            texts: Arc::default(),
            stop,
            patterns: 1,
        }
    }

    /// Says how many regular expressions the statement has.
    pub(super) fn set_patterns(&mut self, patterns: usize) {
        self.patterns = patterns.max(1);
    }

    /// The most bytes that a compiled regular expression of the statement may need: all of them have half of its memory.
    pub(super) fn of_pattern(options: &ConfigOptions) -> usize {
        let bounds = options.extensions.get::<Self>();
        bounds.map_or(MOST_OF_A_PATTERN, |bounds| {
            MOST_OF_A_PATTERN.min(bounds.memory / 2 / bounds.patterns)
        })
    }

    /// The most bytes that the values of a batch may have.
    pub(super) const fn batch(&self) -> usize {
        self.memory / 8
    }

    /// The same, of a session.
    pub(super) fn of_batch(options: &ConfigOptions) -> u64 {
        let bounds = options.extensions.get::<Self>();
        bounds.map_or(u64::MAX, |bounds| bounds.batch() as u64)
    }

    /// An error if the statement was ended.
    pub(super) fn check(&self) -> Result<()> {
        self.stop.as_ref().map_or(Ok(()), |stop| stop.check())
    }

    /// The same texts, counted until the last of their users is gone.
    pub(super) fn counted(&self, array: ArrayRef) -> Result<ArrayRef> {
        let Some(texts) = array.as_string_opt::<i32>() else {
            return Ok(array);
        };
        let (offsets, values, nulls) = texts.clone().into_parts();
        let bytes = values.capacity();
        let counted = CountedBytes {
            values,
            bytes,
            texts: Arc::clone(&self.texts),
        };
        if self.texts.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.memory {
            return Err(exhausted(self.memory));
        }
        let values = Buffer::from(Bytes::from_owner(counted));
        Ok(Arc::new(StringArray::try_new(offsets, values, nulls)?))
    }
}

pub(super) fn exhausted(most: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("functions make texts of more than {most} bytes"))
}

impl ConfigExtension for StatementBounds {
    const PREFIX: &'static str = "statement";
}

impl ExtensionOptions for StatementBounds {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        plan_err!("{key} cannot be set")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// The bytes of texts that are counted as long as they are there.
struct CountedBytes {
    values: Buffer,
    bytes: usize,
    texts: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.values
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.texts.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
