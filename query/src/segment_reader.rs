//! Reads segments for DataFusion: through [`DataFileHandle::open`], which finds the version that the view holds, and with the
//! engine's cached footers.
//!
//! # Invariants
//!
//! - Nothing is looked up by path: DataFusion's own footer cache would take a replaced file of the same size for the old one.
//! - A file is read only up to the size that the segment records; an open segment may have grown since.
//! - What was read of a file counts as memory of its query until the last of it is decoded. A share of the memory of queries is always
//!   had: sorts that can spill may have taken all the rest. Beyond it a plan that reads many tables at once, each a row group of its
//!   own, is refused.
//! - Threads that run plans never wait for the disk; what is at hand is taken without asking another thread.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use datafusion::common::internal_datafusion_err;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use engine::{DataFileHandle, ReadView};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use model::ByteSize;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use crate::error::ByteLimitError;
use crate::query_caller::QueryCaller;
use crate::query_result::QueryStats;

/// What one query reads, and how much it may.
#[derive(Debug, Default)]
pub(crate) struct ScanMeter {
    most: u64,
    caller: Option<Arc<QueryCaller>>,
    bytes: AtomicU64,
    rows: AtomicU64,
    hits: AtomicU64,
    considered: AtomicU64,
    pruned: AtomicU64,
    hot: AtomicU64,
    has_planned: AtomicBool,
    /// Bytes that the query holds of files.
    held: AtomicUsize,
    files: Mutex<HashSet<u64>>,
    ruled_out: Mutex<HashSet<u64>>,
}

impl ScanMeter {
    /// For a query of a caller that may read so many bytes.
    pub(crate) fn new(most: ByteSize, caller: Option<Arc<QueryCaller>>) -> Self {
        Self {
            most: most.get(),
            caller,
            ..Self::default()
        }
    }

    /// Whose query it is.
    pub(crate) fn caller(&self) -> Option<Arc<QueryCaller>> {
        self.caller.clone()
    }

    /// Counts a segment that is opened.
    pub(crate) fn count_opened(&self, segment: u64) {
        self.files.lock().insert(segment);
    }

    /// Counts what is going to be read of a segment.
    ///
    /// # Errors
    /// If that is more than the query may read; it is not to be read then.
    pub(crate) fn charge_read(&self, segment: u64, bytes: u64) -> Result<(), ByteLimitError> {
        let before = self.bytes.load(Ordering::Relaxed);
        if before.saturating_add(bytes) > self.most {
            return Err(ByteLimitError(before));
        }
        self.count_index_bytes(bytes);
        self.count_opened(segment);
        Ok(())
    }

    /// Counts bytes that were read of an index.
    pub(crate) fn count_index_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(caller) = &self.caller {
            caller.count_bytes(bytes);
        }
    }

    /// Counts a segment that its index left out.
    pub(crate) fn count_ruled_out(&self, segment: u64) {
        self.ruled_out.lock().insert(segment);
    }

    /// Counts rows that were looked at.
    pub(crate) fn count_rows(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts a page that did not have to be read.
    pub(crate) fn count_cache_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what the catalogue alone said about one scan of a table.
    pub(crate) fn count_planned(&self, considered: usize, pruned: usize, hot_rows: usize) {
        self.considered.fetch_add(considered as u64, Ordering::Relaxed);
        self.pruned.fetch_add(pruned as u64, Ordering::Relaxed);
        self.hot.fetch_add(hot_rows as u64, Ordering::Relaxed);
        self.has_planned.store(true, Ordering::Relaxed);
    }

    /// Whether a scan of a table was planned.
    pub(crate) fn has_planned(&self) -> bool {
        self.has_planned.load(Ordering::Relaxed)
    }

    /// What a query over a view cost that began then; of files and rows in memory what [`Self::count_planned`] counted.
    pub(crate) fn stats(&self, view: &ReadView, started: Instant, rows: u64) -> QueryStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueryStats {
            files_considered: read(&self.considered),
            files_pruned: read(&self.pruned),
            files_read: self.files.lock().len() as u64,
            bytes_read: read(&self.bytes),
            cache_hits: read(&self.hits),
            rows_scanned: read(&self.rows),
            hot_rows: read(&self.hot),
            rows,
            ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            partial: view.partial().map(str::to_owned),
        }
    }

    /// Whether an index left a segment out, and nobody opened it for another part of the query.
    pub(crate) fn is_ruled_out(&self, segment: u64) -> bool {
        let is_read = self.files.lock().contains(&segment);
        !is_read && self.ruled_out.lock().contains(&segment)
    }

    /// Segments that indexes left out, and that nobody opened for another part of the query.
    pub(crate) fn pruned(&self) -> u64 {
        let read = self.files.lock();
        self.ruled_out.lock().difference(&read).count() as u64
    }
}

/// The segment behind a file of a plan.
pub(crate) struct SegmentExtension(pub(crate) Arc<DataFileHandle>);

/// Makes a reader per file of a plan.
#[derive(Debug)]
pub(crate) struct SegmentReaderFactory {
    pub(crate) meter: Arc<ScanMeter>,
    /// What the plan keeps of its files, as long as it lives; what is read counts beside it.
    pub(crate) planned: MemoryReservation,
    /// So many bytes are always had for what is read.
    pub(crate) always: usize,
}

impl ParquetFileReaderFactory for SegmentReaderFactory {
    fn create_reader(
        &self,
        _partition_index: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        _metrics: &ExecutionPlanMetricsSet,
    ) -> datafusion::error::Result<Box<dyn AsyncFileReader + Send>> {
        let source = file
            .extension::<SegmentExtension>()
            .ok_or_else(|| internal_datafusion_err!("{} is not a segment of the snapshot", file.path()))?;
        Ok(Box::new(SegmentReader {
            segment: Arc::clone(&source.0),
            file: None,
            meter: Arc::clone(&self.meter),
            memory: self.planned.new_empty(),
            always: self.always,
        }))
    }
}

struct SegmentReader {
    segment: Arc<DataFileHandle>,
    file: Option<Arc<File>>,
    meter: Arc<ScanMeter>,
    memory: MemoryReservation,
    always: usize,
}

/// Decoders hold about as much of pages and rows as they were given, up to so much. Columns of a condition are read before the others
/// and count for themselves.
const DECODED: usize = 2 << 20;

/// The memory that bytes of a file and what is decoded of them take.
#[derive(Debug)]
struct HeldMemory {
    memory: MemoryReservation,
    meter: Arc<ScanMeter>,
}

impl HeldMemory {
    /// Takes so much for a query that may always have `always` bytes.
    fn take(
        memory: MemoryReservation,
        meter: Arc<ScanMeter>,
        bytes: usize,
        always: usize,
    ) -> Result<Self, ParquetError> {
        let before = meter.held.load(Ordering::Relaxed);
        if before.saturating_add(bytes) <= always {
            memory.grow(bytes);
        } else {
            memory
                .try_grow(bytes)
                .map_err(|error| ParquetError::External(Box::new(error)))?;
        }
        meter.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(Self { memory, meter })
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.meter.held.fetch_sub(self.memory.size(), Ordering::Relaxed);
    }
}

/// Bytes of a file, and the memory that counts for them.
struct HeldBytes {
    bytes: Bytes,
    _memory: Arc<HeldMemory>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl SegmentReader {
    async fn read(&mut self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>, ParquetError> {
        let (segment, file) = (Arc::clone(&self.segment), self.file.clone());
        let wanted = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        self.meter.charge_read(segment.id, wanted)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let wanted = wanted.saturating_add(wanted.min(DECODED));
        let memory = HeldMemory::take(self.memory.new_empty(), Arc::clone(&self.meter), wanted, self.always)?;
        let memory = Arc::new(memory);
        let (file, bytes) = blocking(move || {
            let file = match file {
                Some(file) => file,
                None => segment
                    .open_shared()
                    .map_err(|error| ParquetError::External(Box::new(error)))?,
            };
            let bytes = ranges.iter().map(|range| {
                let bytes = read_range(&segment, &file, range)?;
                let _memory = Arc::clone(&memory);
                Ok(Bytes::from_owner(HeldBytes { bytes, _memory }))
            });
            let bytes = bytes.collect::<Result<Vec<_>, ParquetError>>()?;
            Ok((file, bytes))
        })
        .await?;
        self.file = Some(file);
        Ok(bytes)
    }
}

/// Bytes of the version that the segment is.
pub(crate) fn read_range(segment: &DataFileHandle, file: &File, range: &Range<u64>) -> Result<Bytes, ParquetError> {
    let beyond = || {
        let text = format!(
            "bytes {range:?} are not in {} ({} bytes)",
            segment.path.display(),
            segment.size
        );
        ParquetError::General(text)
    };
    if range.end > segment.size {
        return Err(beyond());
    }
    let length = range.end.checked_sub(range.start).ok_or_else(beyond)?;
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| beyond())?];
    file.read_exact_at(&mut bytes, range.start)
        .map_err(|error| ParquetError::General(format!("could not read {}: {error}", segment.path.display())))?;
    Ok(bytes.into())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ParquetError> + Send + 'static,
) -> Result<T, ParquetError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ParquetError::General(format!("reading stopped: {error}"))))
}

impl AsyncFileReader for SegmentReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move {
            let bytes = self.read(vec![range]).await?.pop();
            bytes.ok_or_else(|| ParquetError::General("nothing was read".to_owned()))
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        self.read(ranges).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        if let Some(metadata) = self.segment.metadata_cached() {
            return std::future::ready(Ok(metadata)).boxed();
        }
        let segment = Arc::clone(&self.segment);
        blocking(move || {
            segment
                .metadata()
                .map_err(|error| ParquetError::External(Box::new(error)))
        })
        .boxed()
    }
}
