//! What a Mixer serves of the catalogue: reads on threads that may block, a few at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::Engine;
use iceberg::{IcebergCatalog, IcebergError, LoadedTable};
use tokio::sync::Semaphore;

use super::catalog_view::{CatalogTableView, CatalogView, StoredTables};
use super::publication_status::PublicationStatus;

/// Reads of the catalogue at once.
const PLACES: usize = 4;
/// How long one waits for its place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the catalogue was not read.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CatalogReadError {
    #[error("too many requests read the Iceberg catalogue")]
    Busy,
    #[error("the Iceberg catalogue is not published yet")]
    NotPublished,
    /// The disk or the bucket does not give it; the log says why.
    #[error("the storage of the Iceberg catalogue does not answer, and the Mixer's log says why")]
    Storage,
    /// What is there is not what was written.
    #[error("{0}")]
    Damaged(String),
    #[error("the read task failed: {0}")]
    Interrupted(String),
}

/// The catalogue, as this Mixer serves it.
#[derive(Debug)]
pub(crate) struct CatalogService {
    engine: Arc<Engine>,
    catalog: Arc<IcebergCatalog>,
    /// None in a Mixer that only reads.
    publication: Option<Arc<PublicationStatus>>,
    places: Arc<Semaphore>,
    is_failing: AtomicBool,
}

impl CatalogService {
    pub(super) fn new(
        engine: Arc<Engine>,
        catalog: Arc<IcebergCatalog>,
        publication: Option<Arc<PublicationStatus>>,
    ) -> Self {
        Self {
            engine,
            catalog,
            publication,
            places: Arc::new(Semaphore::new(PLACES)),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Of a Mixer that only reads: of what another one publishes.
    pub(crate) fn of_reader(engine: &Arc<Engine>) -> Arc<Self> {
        let catalog = Arc::new(IcebergCatalog::open(engine.side_objects()));
        Arc::new(Self::new(Arc::clone(engine), catalog, None))
    }

    /// The names of the tables.
    pub(crate) async fn tables(self: &Arc<Self>) -> Result<Vec<String>, CatalogReadError> {
        let tables = self.read(|service| service.catalog.tables()).await?;
        self.or_not_published((!tables.is_empty()).then_some(tables))
            .map(Option::unwrap_or_default)
    }

    /// A table's metadata; none if there is no such table.
    pub(crate) async fn load(self: &Arc<Self>, table: String) -> Result<Option<LoadedTable>, CatalogReadError> {
        let loaded = self.read(move |service| service.catalog.load(&table)).await?;
        self.or_not_published(loaded)
    }

    /// All of it, beside what is stored.
    pub(crate) async fn view(self: &Arc<Self>) -> Result<CatalogView, CatalogReadError> {
        self.read(|service| {
            let stored = StoredTables::of(&service.engine);
            let mut issue = service.publication.as_ref().and_then(|status| status.issue());
            let tables = match (&service.publication, service.catalog.overview()) {
                (_, Ok(tables)) => tables,
                (None, Err(error)) => return Err(error),
                (Some(status), Err(error)) => {
                    issue.get_or_insert(error.to_string());
                    status.tables().to_vec()
                }
            };
            Ok(CatalogView::new(
                &stored,
                &tables,
                (service.publication.is_some(), issue),
            ))
        })
        .await
    }

    /// How often publication failed, and what it published last beside what is stored; none in a Mixer that only reads.
    pub(crate) fn publication(&self) -> Option<(u64, Vec<CatalogTableView>)> {
        let status = self.publication.as_ref()?;
        let stored = StoredTables::of(&self.engine);
        Some((status.failures(), stored.beside(&status.tables())))
    }

    /// What is missing may only be so because nothing was published yet.
    fn or_not_published<T>(&self, found: Option<T>) -> Result<Option<T>, CatalogReadError> {
        let has_published = self.publication.as_ref().is_none_or(|status| status.has_published());
        if found.is_none() && !has_published {
            return Err(CatalogReadError::NotPublished);
        }
        Ok(found)
    }

    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, IcebergError> + Send + 'static,
    ) -> Result<T, CatalogReadError> {
        let place = tokio::time::timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(CatalogReadError::Busy);
        };
        let service = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            // A requester that leaves does not make room: the read goes on.
            let _place = place;
            let read = read(&service);
            service.note(read.as_ref().err());
            read
        });
        let read = reading.await;
        let read = read.map_err(|error| CatalogReadError::Interrupted(error.to_string()))?;
        read.map_err(|error| match error {
            IcebergError::Storage(_) | IcebergError::Away(_) => CatalogReadError::Storage,
            damage => CatalogReadError::Damaged(damage.to_string()),
        })
    }

    /// Tells of a failure once.
    fn note(&self, failure: Option<&IcebergError>) {
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(error) = failure.filter(|_| !was_failing) {
            tracing::warn!(%error, "could not read the Iceberg catalogue; it is tried again when it is asked for");
        }
    }
}
