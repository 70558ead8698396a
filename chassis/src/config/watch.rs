//! Watches the configuration file: live keys apply at once, other changes are logged as needing a restart.
//!
//! The *folder* is watched, because editors and deployment tools replace the file instead of writing into it. What
//! counts is the file's content: an event that leaves it the same does nothing. [`ConfigWatcher::reload`] looks at once.
//!
//! # Invariants
//!
//! - A broken new file is reported and changes nothing.
//! - A file that vanished changes nothing; it is between two versions, or gone by mistake.

use std::path::Path;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::load::{ConfigSources, load_text, read};
use super::schema::ConfigKey;
use super::settings::Settings;
use crate::Error;

/// A change is read when the folder was quiet this long.
const QUIET: Duration = Duration::from_millis(150);
/// A folder that never gets quiet is read after this many quiet spans anyhow.
const IMPATIENCE: usize = 10;

/// What a new version of the file changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigChange {
    /// Keys that apply at once.
    pub live: Vec<&'static str>,
    /// Keys that need a restart.
    pub restart: Vec<&'static str>,
}

impl ConfigChange {
    /// The keys whose values differ.
    #[must_use]
    pub fn between(old: &Settings, new: &Settings) -> Self {
        let differs = |key: &&'static ConfigKey| old.value(key.path) != new.value(key.path);
        let (live, restart): (Vec<_>, Vec<_>) = new.schema().keys().filter(differs).partition(|key| key.live);
        let paths = |keys: Vec<&'static ConfigKey>| keys.into_iter().map(|key| key.path).collect();
        Self {
            live: paths(live),
            restart: paths(restart),
        }
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }
}

/// A running watch.
#[derive(Debug)]
pub struct ConfigWatcher {
    stop: CancellationToken,
    reloads: mpsc::Sender<oneshot::Sender<bool>>,
    task: JoinHandle<()>,
}

impl ConfigWatcher {
    /// Reads the file now, whatever the system says of changes, and returns when that is done: `false` if it is wrong or cannot be read, so that
    /// the configuration stayed as it was.
    pub async fn reload(&self) -> bool {
        let (done, read) = oneshot::channel();
        // Once the watch has ended there is nobody to read.
        self.reloads.send(done).await.is_ok() && read.await.unwrap_or(false)
    }

    /// Stops watching.
    ///
    /// # Errors
    /// If the watching task panicked.
    pub async fn close(self) -> Result<(), Error> {
        self.stop.cancel();
        self.task.await.map_err(|_| Error::TaskDied("config watch"))
    }
}

/// Watches the file of `sources`. `changed` is called with every good new version that differs from the one before;
/// it applies [`ConfigChange::live`]. The keys that need a restart are logged here.
///
/// Must be called within a tokio runtime. `None` if the sources have no file.
///
/// # Errors
/// If the file's folder cannot be watched.
pub fn watch(
    sources: ConfigSources,
    settings: Settings,
    changed: impl FnMut(&Settings, &ConfigChange) + Send + 'static,
) -> Result<Option<ConfigWatcher>, Error> {
    let Some(path) = sources.file.clone() else {
        return Ok(None);
    };
    let dir = durable_fs::parent_of(&path).to_owned();
    let (wake, events) = mpsc::channel(1);
    let fault = |error: notify::Error| Error::Watch {
        path: dir.clone(),
        reason: error.to_string(),
    };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| matters(event.kind)) {
            // A full channel means that the task has yet to look anyhow.
            let _ = wake.try_send(());
        }
    })
    .map_err(fault)?;
    watcher.watch(&dir, RecursiveMode::NonRecursive).map_err(fault)?;
    // The file may have changed between the load of `settings` and now: the first look compares with those.
    let stop = CancellationToken::new();
    let (reloads, asked) = mpsc::channel(1);
    let task = tokio::spawn(run(
        watcher,
        (events, asked),
        path.clone(),
        sources,
        settings,
        changed,
        stop.clone(),
    ));
    Ok(Some(ConfigWatcher { stop, reloads, task }))
}

/// Reading the file is an event too, and must not lead to the next reading.
fn matters(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

async fn run(
    watcher: RecommendedWatcher,
    (mut events, mut asked): (mpsc::Receiver<()>, mpsc::Receiver<oneshot::Sender<bool>>),
    path: std::path::PathBuf,
    sources: ConfigSources,
    mut settings: Settings,
    mut changed: impl FnMut(&Settings, &ConfigChange) + Send + 'static,
    stop: CancellationToken,
) {
    let mut seen = None;
    let mut reload: Option<oneshot::Sender<bool>> = None;
    loop {
        let (is_good, new) = look(&path, &sources, &settings, &mut seen);
        if let Some(new) = new {
            let change = ConfigChange::between(&settings, &new);
            if !change.is_empty() {
                report(&path, &change);
                changed(&new, &change);
            }
            settings = new;
        }
        if let Some(done) = reload.take() {
            let _ = done.send(is_good);
        }
        tokio::select! {
            () = stop.cancelled() => break,
            event = events.recv() => if event.is_none() { break },
            Some(done) = asked.recv() => {
                reload = Some(done);
                continue;
            }
        }
        for _ in 0..IMPATIENCE {
            if timeout(QUIET, events.recv()).await.is_err() || stop.is_cancelled() {
                break;
            }
        }
    }
    drop(watcher);
}

/// A version of the file.
struct SeenVersion {
    text: String,
    is_good: bool,
}

/// Whether the file is good, and the new settings, if it has other content than the last time.
fn look(
    path: &Path,
    sources: &ConfigSources,
    old: &Settings,
    seen: &mut Option<SeenVersion>,
) -> (bool, Option<Settings>) {
    let text = match read(path, false) {
        Ok(Some(text)) => text,
        // It is between two versions.
        Ok(None) => return (true, None),
        Err(errors) => {
            tracing::warn!(%errors, "the configuration stays as it is");
            return (false, None);
        }
    };
    if let Some(seen) = seen.as_ref().filter(|seen| seen.text == text) {
        return (seen.is_good, None);
    }
    let loaded = load_text(old.schema(), Some((path.to_owned(), text.clone())), sources);
    let is_good = loaded.is_ok();
    *seen = Some(SeenVersion { text, is_good });
    if let Err(errors) = &loaded {
        tracing::error!(%errors, "the new configuration file is wrong; the configuration stays as it is");
    }
    (is_good, loaded.ok())
}

fn report(path: &Path, change: &ConfigChange) {
    let file = path.display();
    if !change.live.is_empty() {
        tracing::info!(%file, keys = change.live.join(", "), "configuration changed, applied");
    }
    if !change.restart.is_empty() {
        tracing::warn!(%file, keys = change.restart.join(", "), "configuration changed; needs a restart to apply");
    }
}
