//! What a Mixer serves of the catalogue: reads on threads that may block, a few at a time.
//!
//! # Invariants
//!
//! - What is known and need not be looked for again is answered without a place. Where a place or the storage does not come in time, what is
//!   known is answered, however old it is: an object store that hangs keeps no request longer than [`PATIENCE`] twice.
//! - A read that nobody waits for any more keeps its place. It ends with the storage's last attempt, or when the engine closes.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use iceberg::{CatalogTable, IcebergCatalog, IcebergError, LoadedTable};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::catalog_view::{CatalogTableView, CatalogView, StoredTables};
use super::publication_status::PublicationStatus;

/// Reads of the catalogue at once.
const PLACES: usize = 4;
/// How long one waits for its place, and then for the storage.
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

impl From<JoinError> for CatalogReadError {
    fn from(error: JoinError) -> Self {
        Self::Interrupted(error.to_string())
    }
}

/// The catalogue, as this Mixer serves it.
#[derive(Debug)]
pub(crate) struct CatalogService {
    engine: Arc<Engine>,
    catalog: IcebergCatalog,
    /// None in a Mixer that only reads.
    publication: Option<Arc<PublicationStatus>>,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl CatalogService {
    pub(super) fn new(
        engine: Arc<Engine>,
        catalog: IcebergCatalog,
        publication: Option<Arc<PublicationStatus>>,
    ) -> Self {
        Self {
            engine,
            catalog,
            publication,
            places: Arc::new(Semaphore::new(PLACES)),
            patience: PATIENCE,
        }
    }

    /// Of a Mixer that only reads: of what another one publishes.
    pub(crate) fn of_reader(engine: &Arc<Engine>) -> Arc<Self> {
        let catalog = IcebergCatalog::open(engine.side_objects());
        Arc::new(Self::new(Arc::clone(engine), catalog, None))
    }

    /// The same with so much patience.
    #[cfg(test)]
    pub(crate) fn of_impatient_reader(engine: &Arc<Engine>, patience: Duration) -> Arc<Self> {
        let catalog = IcebergCatalog::open(engine.side_objects());
        let service = Self::new(Arc::clone(engine), catalog, None);
        Arc::new(Self { patience, ..service })
    }

    /// The names of the tables.
    pub(crate) async fn tables(&self) -> Result<Vec<String>, CatalogReadError> {
        let tables = self.ask(IcebergCatalog::tables).await?;
        if tables.is_empty() {
            return Err(CatalogReadError::NotPublished);
        }
        Ok(tables)
    }

    /// A table's metadata; none if there is no such table.
    pub(crate) async fn load(&self, table: CatalogTable) -> Result<Option<LoadedTable>, CatalogReadError> {
        let name = table.name();
        let loaded = self.ask(move |catalog| catalog.load(&name)).await?;
        if loaded.is_some() {
            return Ok(loaded);
        }
        // Base tables are always to come, and those of specs while nothing is there.
        let names = self.catalog.as_known().tables().unwrap_or_default();
        if table.spec.is_none() || names.is_empty() {
            return Err(CatalogReadError::NotPublished);
        }
        Ok(None)
    }

    /// All of it, beside what is stored.
    pub(crate) async fn view(&self) -> Result<CatalogView, CatalogReadError> {
        let asked = self.ask(IcebergCatalog::overview).await;
        let (tables, failure) = match (asked, &self.publication) {
            (Ok((tables, failure)), _) => (tables, failure.map(|error| error.to_string())),
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => (Vec::new(), Some(error.to_string())),
        };
        let issue = self.publication.as_ref().and_then(|status| status.issue());
        let engine = Arc::clone(&self.engine);
        let stored = tokio::task::spawn_blocking(move || StoredTables::of(&engine)).await?;
        Ok(CatalogView::new(
            &stored,
            &tables,
            (self.publication.is_some(), issue.or(failure)),
        ))
    }

    /// How often publication failed, and what is published beside what is stored; none in a Mixer that only reads. It walks through all files.
    pub(crate) fn publication(&self) -> Option<(u64, Vec<CatalogTableView>)> {
        let status = self.publication.as_ref()?;
        let (tables, _) = self.catalog.as_known().overview().unwrap_or_default();
        Some((status.failures(), StoredTables::of(&self.engine).beside(&tables)))
    }

    /// Asks the catalogue: at once if nothing has to be looked for, else in a place, and what is known if that takes too long.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(&IcebergCatalog) -> Result<T, IcebergError> + Clone + Send + 'static,
    ) -> Result<T, CatalogReadError> {
        if let Ok(known) = ask(&self.catalog.at_once()) {
            return Ok(known);
        }
        let (catalog, asked) = (self.catalog.clone(), ask.clone());
        let read = self.read(move || asked(&catalog)).await;
        if let Err(CatalogReadError::Busy | CatalogReadError::Storage) = read
            && let Ok(known) = ask(&self.catalog.as_known())
        {
            return Ok(known);
        }
        read
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, IcebergError> + Send + 'static,
    ) -> Result<T, CatalogReadError> {
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(CatalogReadError::Busy);
        };
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        let Ok(read) = tokio::time::timeout(self.patience, reading).await else {
            let patience = self.patience;
            tracing::warn!(
                ?patience,
                "the storage of the Iceberg catalogue does not answer; still waiting"
            );
            return Err(CatalogReadError::Storage);
        };
        read?.map_err(|error| match error {
            IcebergError::Storage(_) | IcebergError::Away(_) => CatalogReadError::Storage,
            damage => CatalogReadError::Damaged(damage.to_string()),
        })
    }
}
