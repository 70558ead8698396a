//! Calls to the object store: bounded retries, ambiguous answers resolved, blocking callers served.
//!
//! # What an answer means
//!
//! | the store said | then |
//! |---|---|
//! | 5xx, a reset, nothing in time | it may have happened or not: tried again after a pause, at most [`ATTEMPTS`] times |
//! | "exists already" to a create-if-absent | read back: our bytes mean that an earlier attempt had happened |
//! | denied, no such bucket, not supported | at once an error that names the fix |
//!
//! Pauses double from 50 ms to 5 s and are drawn from the upper half of that, so that many Mixers do not come back at once.
//!
//! # Invariants
//!
//! - A call ends: by its answer, by its last attempt, or because the store is closed.
//! - The threads of the runtime here do the engine's calls and nothing else. A caller blocks its own thread.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use model::{AtomicCounter, Entropy, stable_hash};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, MultipartId, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutPayload,
};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::error::{RemoteErrorKind, error_kind, is_transient, refused_by_store};
use crate::stats::RemoteCounters;

/// How often a call is made at most.
pub(crate) const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Objects that are read or deleted at once.
const AT_ONCE: usize = 16;

/// The store, for tasks on the runtime.
#[derive(Debug, Clone)]
pub(crate) struct RetryingStore(Arc<StoreBackend>);

struct StoreBackend {
    url: String,
    store: Arc<dyn ObjectStore>,
    multipart: Option<Arc<dyn MultipartStore>>,
    counters: Arc<RemoteCounters>,
    stop: CancellationToken,
    random: AtomicU64,
}

impl std::fmt::Debug for StoreBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreBackend")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Whether a create-if-absent made the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CreateOutcome {
    /// It is ours.
    New,
    /// Another's object has the name, with these bytes.
    Taken(Bytes),
}

/// The runtime that calls are made on.
#[derive(Debug)]
struct IoRuntime(Option<Runtime>);

impl Drop for IoRuntime {
    fn drop(&mut self) {
        // Waiting for threads is not allowed where this may run; calls that are under way are cancelled.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The store, for threads that may block.
#[derive(Debug, Clone)]
pub(crate) struct BlockingStore {
    calls: RetryingStore,
    threads: Arc<IoRuntime>,
}

impl BlockingStore {
    pub(crate) fn start(
        remote: &crate::RemoteSettings,
        counters: Arc<RemoteCounters>,
        entropy: &Entropy,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("engine-remote")
            .enable_all()
            .build()
            .map_err(Error::io("start threads for", std::path::Path::new(&remote.url)))?;
        Ok(Self {
            calls: RetryingStore(Arc::new(StoreBackend {
                url: remote.url.clone(),
                store: Arc::clone(&remote.store),
                multipart: remote.multipart.clone(),
                counters,
                stop: CancellationToken::new(),
                random: AtomicU64::new(u64::from_le_bytes(entropy.bytes())),
            })),
            threads: Arc::new(IoRuntime(Some(runtime))),
        })
    }

    /// Ends all calls with [`Error::Closed`].
    pub(crate) fn stop(&self) {
        self.calls.0.stop.cancel();
    }

    pub(crate) fn counters(&self) -> &RemoteCounters {
        &self.calls.0.counters
    }

    pub(crate) fn has_multipart(&self) -> bool {
        self.calls.0.multipart.is_some()
    }

    /// A number that is hard to guess and rarely given twice.
    pub(crate) fn nonce(&self) -> u64 {
        self.calls.random()
    }

    /// Makes a call on the runtime and waits for its end.
    pub(crate) fn wait<T, F>(&self, call: impl FnOnce(RetryingStore) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Some(runtime) = &self.threads.0 else {
            return Err(Error::Closed);
        };
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let stop = self.calls.0.stop.clone();
        let call = call(self.calls.clone());
        runtime.spawn(async move {
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => Err(Error::Closed),
                ended = call => ended,
            };
            // The caller waits for exactly this.
            let _ = answer.send(ended);
        });
        answered.recv().unwrap_or(Err(Error::Closed))
    }

    /// An object's bytes; `None` if it is not there.
    pub(crate) fn get(&self, path: Path) -> Result<Option<Bytes>, Error> {
        self.wait(|calls| async move { calls.get(&path).await })
    }

    /// The same; of an object that has more than `most` bytes, one more than that.
    pub(crate) fn get_most(&self, path: Path, most: u64) -> Result<Option<Bytes>, Error> {
        self.wait(|calls| async move { calls.get_most(&path, most).await })
    }

    /// Several objects' bytes, in their order.
    pub(crate) fn get_all(&self, paths: Vec<Path>) -> Result<Vec<Option<Bytes>>, Error> {
        self.wait(|calls| async move {
            let all: Vec<_> = paths.iter().map(|path| calls.get(path)).collect();
            futures::stream::iter(all).buffered(AT_ONCE).try_collect().await
        })
    }

    /// The objects below a name that come after `offset`.
    pub(crate) fn list(&self, below: Path, offset: Path) -> Result<Vec<ObjectMeta>, Error> {
        self.wait(|calls| async move { calls.list(&below, &offset).await })
    }

    /// Creates an object, unless there is one.
    pub(crate) fn create(&self, path: Path, bytes: Bytes) -> Result<CreateOutcome, Error> {
        self.wait(|calls| async move { calls.create(&path, bytes).await })
    }

    /// Deletes objects; those that are not there count as deleted.
    pub(crate) fn delete_all(&self, paths: Vec<Path>) -> Result<(), Error> {
        self.wait(|calls| async move {
            let all: Vec<_> = paths.iter().map(|path| calls.delete(path)).collect();
            futures::stream::iter(all)
                .buffer_unordered(AT_ONCE)
                .try_collect::<Vec<()>>()
                .await
                .map(|_| ())
        })
    }
}

impl RetryingStore {
    fn random(&self) -> u64 {
        stable_hash(&self.0.random.fetch_add(1, Ordering::Relaxed).to_le_bytes())
    }

    async fn pause(&self, attempt: u32) {
        let longest = FIRST_PAUSE
            .saturating_mul(1u32.checked_shl(attempt).unwrap_or(u32::MAX))
            .min(LONGEST_PAUSE);
        let half = u64::try_from(longest.as_micros() / 2).unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(half + self.random() % (half + 1))).await;
    }

    /// The error of a call that is not made again.
    fn failed(&self, action: &'static str, path: &Path, error: &StoreError) -> Error {
        refused_by_store(&self.0.url, action, path.as_ref(), error)
    }

    /// Makes a call until it is answered. `attempt` is told how many failed before.
    async fn retry<T, F>(
        &self,
        action: &'static str,
        path: &Path,
        mut attempt: impl FnMut(u32) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut failures = 0;
        loop {
            let ended = tokio::time::timeout(PATIENCE, attempt(failures)).await;
            let error = match ended {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) if !is_transient(&error) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => timed_out("answer within"),
            };
            failures += 1;
            if failures >= ATTEMPTS {
                return Err(error);
            }
            self.0.counters.retries.add(1);
            tracing::debug!(action, object = path.as_ref(), %error, failures, "retrying a call to the object store");
            self.pause(failures).await;
        }
    }

    /// Makes a call until it is answered; each attempt counts.
    async fn call<T, F>(
        &self,
        count: &AtomicCounter,
        (action, path): (&'static str, &Path),
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let counted = |_| {
            count.add(1);
            attempt()
        };
        let ended = self.retry(action, path, counted).await;
        ended.map_err(|error| self.failed(action, path, &error))
    }

    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>, Error> {
        let get = || async { self.0.store.get(path).await?.bytes().await };
        found_or_none(self.call(&self.0.counters.reads, ("read", path), get).await)
    }

    async fn get_most(&self, path: &Path, most: u64) -> Result<Option<Bytes>, Error> {
        let get = || async {
            let found = self.0.store.get(path).await?;
            if found.meta.size <= most {
                return found.bytes().await;
            }
            self.0.store.get_range(path, 0..most + 1).await
        };
        found_or_none(self.call(&self.0.counters.reads, ("read", path), get).await)
    }

    /// Some of an object's bytes.
    pub(crate) async fn get_range(&self, path: &Path, range: Range<u64>) -> Result<Bytes, Error> {
        let get = || self.0.store.get_range(path, range.clone());
        self.call(&self.0.counters.reads, ("read", path), get).await
    }

    pub(crate) async fn list(&self, below: &Path, offset: &Path) -> Result<Vec<ObjectMeta>, Error> {
        let list = || self.0.store.list_with_offset(Some(below), offset).try_collect();
        let mut listed: Vec<ObjectMeta> = self.call(&self.0.counters.reads, ("list", below), list).await?;
        listed.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(listed)
    }

    pub(crate) async fn create(&self, path: &Path, bytes: Bytes) -> Result<CreateOutcome, Error> {
        let created = self.retry("create", path, |_| {
            let payload = PutPayload::from(bytes.clone());
            async move {
                self.0.counters.writes.add(1);
                self.0.store.put_opts(path, payload, PutMode::Create.into()).await
            }
        });
        let error = match created.await {
            Ok(_) => return Ok(CreateOutcome::New),
            Err(error) => error,
        };
        let trouble = error_kind(&error);
        if trouble != RemoteErrorKind::Exists && !is_transient(&error) {
            return Err(self.failed("create", path, &error));
        }
        // An attempt whose answer was lost may have made it.
        match self.get(path).await? {
            Some(found) if found == bytes => Ok(CreateOutcome::New),
            Some(found) => Ok(CreateOutcome::Taken(found)),
            None => Err(self.failed("create", path, &error)),
        }
    }

    /// Writes an object, whatever was there; an unclear answer is resolved by reading it back.
    pub(crate) async fn put(&self, path: &Path, bytes: Bytes) -> Result<(), Error> {
        let put = self.retry("write", path, |failures| {
            let payload = PutPayload::from(bytes.clone());
            let (size, crc) = (bytes.len() as u64, crc32c::crc32c(&bytes));
            async move {
                if failures > 0 && self.is_there(path, size, crc).await {
                    return Ok(());
                }
                self.0.counters.writes.add(1);
                self.0.store.put(path, payload).await.map(|_| ())
            }
        });
        put.await.map_err(|error| self.failed("write", path, &error))
    }

    /// Copies an object to another name, whatever was there, on the side of the store.
    pub(crate) async fn copy(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let copy = || self.0.store.copy(from, to);
        self.call(&self.0.counters.writes, ("copy", to), copy).await
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<(), Error> {
        let delete = || self.0.store.delete(path);
        found_or_none(self.call(&self.0.counters.deletes, ("delete", path), delete).await).map(|_| ())
    }

    /// Whether an object is there with these bytes: read whole. `false` also where that cannot be found out.
    async fn is_there(&self, path: &Path, size: u64, crc: u32) -> bool {
        self.0.counters.reads.add(1);
        let Ok(got) = self.0.store.get(path).await else {
            return false;
        };
        if got.meta.size != size {
            return false;
        }
        let found = got
            .into_stream()
            .try_fold(0, async |found, bytes| Ok(crc32c::crc32c_append(found, &bytes)));
        found.await.is_ok_and(|found| found == crc)
    }

    /// An object's length; `None` if it is not there.
    pub(crate) async fn size(&self, path: &Path) -> Result<Option<u64>, Error> {
        let head = || self.0.store.head(path);
        let meta = found_or_none(self.call(&self.0.counters.reads, ("look at", path), head).await)?;
        Ok(meta.map(|meta| meta.size))
    }

    /// An object's length and CRC-32C, from its bytes.
    pub(crate) async fn sum(&self, path: &Path) -> Result<(u64, u32), Error> {
        let mut crc = 0;
        let each = |bytes: &[u8]| {
            crc = crc32c::crc32c_append(crc, bytes);
            Ok(())
        };
        let size = self.download(path, each).await?;
        Ok((size, crc))
    }

    /// Hands an object's bytes to `each`, in order; goes on where an attempt broke off. The bytes that came.
    pub(crate) async fn download(
        &self,
        path: &Path,
        mut each: impl FnMut(&[u8]) -> Result<(), Error> + Send,
    ) -> Result<u64, Error> {
        let (mut at, mut failures) = (0u64, 0);
        loop {
            let before = at;
            let error = match self.download_from(path, &mut at, &mut each).await? {
                None => return Ok(at),
                Some(error) => error,
            };
            failures = if at > before { 1 } else { failures + 1 };
            if failures >= ATTEMPTS || !is_transient(&error) {
                return Err(self.failed("read", path, &error));
            }
            self.0.counters.retries.add(1);
            self.pause(failures).await;
        }
    }

    /// One attempt. `Some` if the store broke it off.
    async fn download_from(
        &self,
        path: &Path,
        at: &mut u64,
        each: &mut (impl FnMut(&[u8]) -> Result<(), Error> + Send),
    ) -> Result<Option<StoreError>, Error> {
        let options = GetOptions {
            range: (*at > 0).then_some(GetRange::Offset(*at)),
            ..GetOptions::default()
        };
        self.0.counters.reads.add(1);
        let got = match tokio::time::timeout(PATIENCE, self.0.store.get_opts(path, options)).await {
            Ok(Ok(got)) => got,
            Ok(Err(error)) => return Ok(Some(error)),
            Err(_) => return Ok(Some(timed_out("bytes for"))),
        };
        let mut stream = got.into_stream();
        loop {
            match tokio::time::timeout(PATIENCE, stream.next()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(bytes))) => {
                    each(&bytes)?;
                    *at += bytes.len() as u64;
                }
                Ok(Some(Err(error))) => return Ok(Some(error)),
                Err(_) => return Ok(Some(timed_out("bytes for"))),
            }
        }
    }
}

fn timed_out(what: &str) -> StoreError {
    StoreError::Generic {
        store: "engine",
        source: format!("no {what} {} s", PATIENCE.as_secs()).into(),
    }
}

/// `None` where what a call is about is not there.
fn found_or_none<T>(ended: Result<T, Error>) -> Result<Option<T>, Error> {
    match ended {
        Err(Error::Remote {
            trouble: RemoteErrorKind::Missing,
            ..
        }) => Ok(None),
        ended => ended.map(Some),
    }
}

/// Uploads in parts.
impl RetryingStore {
    fn parts(&self) -> Result<&Arc<dyn MultipartStore>, Error> {
        self.0.multipart.as_ref().ok_or(Error::Closed)
    }

    pub(crate) async fn begin_parts(&self, path: &Path) -> Result<MultipartId, Error> {
        let (store, about) = (self.parts()?, ("begin the upload of", path));
        let begin = || store.create_multipart(path);
        self.call(&self.0.counters.writes, about, begin).await
    }

    pub(crate) async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        index: usize,
        bytes: Bytes,
    ) -> Result<PartId, Error> {
        let (store, about) = (self.parts()?, ("upload a part of", path));
        let put = || store.put_part(path, id, index, bytes.clone().into());
        self.call(&self.0.counters.writes, about, put).await
    }

    /// Makes the object of its parts; an unclear answer is resolved by reading it back.
    pub(crate) async fn complete_parts(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
        size: u64,
        crc: u32,
    ) -> Result<(), Error> {
        let store = self.parts()?;
        let completed = self.retry("complete the upload of", path, |failures| {
            let parts = parts.clone();
            async move {
                if failures > 0 && self.is_there(path, size, crc).await {
                    return Ok(());
                }
                self.0.counters.writes.add(1);
                match store.complete_multipart(path, id, parts).await {
                    // The upload is no more once it was completed.
                    Err(StoreError::NotFound { .. }) if self.is_there(path, size, crc).await => Ok(()),
                    ended => ended.map(|_| ()),
                }
            }
        });
        completed
            .await
            .map_err(|error| self.failed("complete the upload of", path, &error))
    }

    /// Gives an upload up; one that is unknown counts as given up.
    pub(crate) async fn abort_parts(&self, path: &Path, id: &MultipartId) -> Result<(), Error> {
        let store = self.parts()?;
        let abort = || store.abort_multipart(path, id);
        let about = ("abort the upload of", path);
        found_or_none(self.call(&self.0.counters.deletes, about, abort).await).map(|_| ())
    }
}
