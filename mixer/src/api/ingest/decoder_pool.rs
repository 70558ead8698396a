//! Thread pool that decodes bodies into columns.
//!
//! # Invariants
//!
//! - As many bodies are decoded at once as there are processors; the others wait in turn.
//! - These threads stand back: decoding keeps a processor for milliseconds at a time, and a query that comes meanwhile is waited
//!   for by somebody who looks at a screen. Where nothing else runs they lose nothing.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinError;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct DecoderPool(Arc<DecoderRuntime>);

#[derive(Debug)]
struct DecoderRuntime(Option<Runtime>);

impl DecoderPool {
    pub(super) fn new() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        // It has blocking threads only.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(processors)
            .thread_name("decoder")
            .on_thread_start(|| engine::lower_thread_priority(engine::ThreadNiceness::Background))
            .build()?;
        Ok(Self(Arc::new(DecoderRuntime(Some(runtime)))))
    }

    /// What `work` makes. Its error says that `work` died, or that all is being closed.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let Some(runtime) = &self.0.0 else {
            return Err("the threads are gone".to_owned());
        };
        let done: Result<T, JoinError> = runtime.spawn_blocking(work).await;
        done.map_err(|died| died.to_string())
    }
}

impl Drop for DecoderRuntime {
    fn drop(&mut self) {
        // Who drops it may be a thread that must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
