//! An object store that fails: calls are refused, or done while the answer is lost, or their bytes break off.
//!
//! Everything that is done is done by the store behind it; what fails is drawn from a seed.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Mutex;

/// See the module.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: Arc<S>,
    random: Mutex<StdRng>,
    /// Of a hundred calls.
    percent: AtomicU64,
    /// Calls refused before they were done.
    pub refused: AtomicU64,
    /// Calls done whose answer was lost.
    pub lost: AtomicU64,
    /// Answers whose bytes broke off.
    pub broken: AtomicU64,
    /// All calls.
    pub calls: AtomicU64,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    Refused,
    Lost,
}

fn failure(what: &str) -> Error {
    Error::Generic {
        store: "faulty",
        source: what.to_owned().into(),
    }
}

impl<S> Faulty<S> {
    /// A store of which so many of a hundred calls fail.
    #[must_use]
    pub fn new(inner: Arc<S>, seed: u64, percent: u64) -> Self {
        Self {
            inner,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            percent: AtomicU64::new(percent),
            refused: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// From now on so many of a hundred calls fail.
    pub fn set_percent(&self, percent: u64) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    fn below(&self, end: u64) -> u64 {
        self.random
            .lock()
            .map_or(0, |mut random| random.random_range(0..end.max(1)))
    }

    fn fate(&self) -> Fate {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.below(100) >= self.percent.load(Ordering::Relaxed) {
            Fate::Well
        } else if self.below(2) == 0 {
            self.refused.fetch_add(1, Ordering::Relaxed);
            Fate::Refused
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            Fate::Lost
        }
    }

    async fn call<T>(&self, done: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fate() {
            Fate::Well => done.await,
            Fate::Refused => Err(failure("503 SlowDown (injected)")),
            Fate::Lost => {
                let _ = done.await;
                Err(failure("connection reset by peer (injected)"))
            }
        }
    }
}

impl<S> fmt::Display for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a faulty store")
    }
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Faulty<S> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.call(self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let breaks = self.fate();
        if breaks == Fate::Refused {
            return Err(failure("503 SlowDown (injected)"));
        }
        let got = self.inner.get_opts(location, options).await?;
        if breaks == Fate::Well {
            return Ok(got);
        }
        self.broken.fetch_add(1, Ordering::Relaxed);
        let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
        // Part of the bytes, then a reset.
        let keep = usize::try_from(self.below(range.end - range.start)).unwrap_or(0);
        let mut left = keep;
        let some = got.into_stream().filter_map(move |chunk| {
            let chunk = chunk.ok().map(|chunk: Bytes| {
                let take = chunk.len().min(left);
                left -= take;
                Ok(chunk.slice(..take))
            });
            futures::future::ready(chunk)
        });
        let reset = futures::stream::once(async { Err(failure("connection reset by peer (injected)")) });
        Ok(GetResult {
            payload: GetResultPayload::Stream(some.chain(reset).boxed()),
            meta,
            range,
            attributes,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.call(self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.fate() {
            Fate::Well => self.inner.delete_stream(locations),
            _ => futures::stream::once(async { Err(failure("503 SlowDown (injected)")) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fate() {
            Fate::Well => self.inner.list(prefix),
            _ => futures::stream::once(async { Err(failure("503 SlowDown (injected)")) }).boxed(),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fate() {
            Fate::Well => self.inner.list_with_offset(prefix, offset),
            _ => futures::stream::once(async { Err(failure("503 SlowDown (injected)")) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call(self.inner.copy_opts(from, to, options)).await
    }
}

#[async_trait]
impl<S: MultipartStore> MultipartStore for Faulty<S> {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.call(self.inner.create_multipart(path)).await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, part_idx: usize, data: PutPayload) -> Result<PartId> {
        self.call(self.inner.put_part(path, id, part_idx, data)).await
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        self.call(self.inner.complete_multipart(path, id, parts)).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.call(self.inner.abort_multipart(path, id)).await
    }
}
