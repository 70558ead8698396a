//! Bounds of a running statement: the memory its functions share, and its deadline.
//!
//! Functions find it among the options of their session.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{ByteArrayType, ByteViewType};
use arrow_array::{Array as _, ArrayRef, GenericByteArray, GenericByteViewArray, GenericListArray, OffsetSizeTrait};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use bytes::Bytes;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

use super::cancellation::StatementCancellation;

/// The most bytes of a compiled regular expression: what its library allows.
const MOST_OF_A_PATTERN: usize = 10 << 20;

/// What a statement may have at once, for the functions that it calls.
#[derive(Debug, Clone)]
pub(super) struct StatementBounds {
    memory: usize,
    /// The bytes of texts, bytes and lists that functions made and somebody has.
    values: Arc<AtomicUsize>,
    stop: Option<Arc<StatementCancellation>>,
    /// How many regular expressions it has.
    patterns: usize,
}

impl StatementBounds {
    pub(super) fn new(pool: &dyn MemoryPool, stop: Option<Arc<StatementCancellation>>) -> Self {
        let memory = match pool.memory_limit() {
            MemoryLimit::Finite(memory) => memory,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self {
            memory,
            values: Arc::default(),
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

    /// The same texts, bytes or lists, counted until the last of their users is gone.
    pub(super) fn counted(&self, array: ArrayRef) -> Result<ArrayRef> {
        match array.data_type() {
            DataType::Utf8 => self.counted_bytes(array.as_string::<i32>()),
            DataType::LargeUtf8 => self.counted_bytes(array.as_string::<i64>()),
            DataType::Binary => self.counted_bytes(array.as_binary::<i32>()),
            DataType::LargeBinary => self.counted_bytes(array.as_binary::<i64>()),
            DataType::Utf8View => self.counted_views(array.as_string_view()),
            DataType::BinaryView => self.counted_views(array.as_binary_view()),
            DataType::List(_) => self.counted_lists(array.as_list::<i32>()),
            DataType::LargeList(_) => self.counted_lists(array.as_list::<i64>()),
            _ => Ok(array),
        }
    }

    fn counted_bytes<T: ByteArrayType>(&self, array: &GenericByteArray<T>) -> Result<ArrayRef> {
        let (offsets, values, nulls) = array.clone().into_parts();
        let bytes = values.capacity();
        let values = self.counted_buffer(values, bytes)?;
        Ok(Arc::new(GenericByteArray::<T>::try_new(offsets, values, nulls)?))
    }

    fn counted_views<T: ByteViewType>(&self, array: &GenericByteViewArray<T>) -> Result<ArrayRef> {
        let bytes = array.get_array_memory_size();
        let (views, buffers, nulls) = array.clone().into_parts();
        let length = views.len();
        let views = ScalarBuffer::new(self.counted_buffer(views.into_inner(), bytes)?, 0, length);
        Ok(Arc::new(GenericByteViewArray::<T>::try_new(views, buffers, nulls)?))
    }

    fn counted_lists<O: OffsetSizeTrait>(&self, array: &GenericListArray<O>) -> Result<ArrayRef> {
        let bytes = array.get_array_memory_size();
        let (field, offsets, values, nulls) = array.clone().into_parts();
        let length = offsets.len();
        let offsets = self.counted_buffer(offsets.into_inner().into_inner(), bytes)?;
        let offsets = OffsetBuffer::<O>::new(ScalarBuffer::new(offsets, 0, length));
        Ok(Arc::new(GenericListArray::try_new(field, offsets, values, nulls)?))
    }

    /// A buffer that stands for so many bytes as long as somebody has it.
    fn counted_buffer(&self, buffer: Buffer, bytes: usize) -> Result<Buffer> {
        let counted = CountedBuffer {
            buffer,
            bytes,
            values: Arc::clone(&self.values),
        };
        if self.values.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.memory {
            return Err(exhausted(self.memory));
        }
        Ok(Buffer::from(Bytes::from_owner(counted)))
    }
}

pub(super) fn exhausted(most: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("functions make values of more than {most} bytes"))
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

/// A buffer that is counted as long as it is there.
struct CountedBuffer {
    buffer: Buffer,
    bytes: usize,
    values: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for CountedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for CountedBuffer {
    fn drop(&mut self) {
        self.values.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
