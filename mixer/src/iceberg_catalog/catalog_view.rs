//! The catalogue's tables beside what is stored: how far behind each of them is.

use std::collections::BTreeMap;

use engine::{Engine, StorageFormat};
use iceberg::{CatalogTable, NAMESPACE, TableOverview};
use model::{Table, Timestamp};
use serde::Serialize;

/// The catalogue.
#[derive(Debug, Serialize)]
pub(crate) struct CatalogView {
    namespace: &'static str,
    /// Whether this Mixer publishes it.
    publishes: bool,
    /// Why tables lack rows, or why there are none, if something about the store says so.
    reason: Option<String>,
    /// Why the last publication failed, or a table cannot be read. It may have paths of this machine.
    trouble: Option<String>,
    tables: Vec<CatalogTableView>,
}

/// A table of the catalogue.
#[derive(Debug, Serialize)]
pub(crate) struct CatalogTableView {
    pub(crate) table: String,
    pub(crate) version: u64,
    /// None without a file. A text: it has more digits than numbers of JSON are read with.
    snapshot_id: Option<String>,
    /// When this version was published.
    published: Timestamp,
    files: u64,
    rows: u64,
    bytes: u64,
    /// Snapshots that readers can still ask for.
    snapshots: usize,
    /// The newest `ts` in the catalogue, and of all rows that are stored.
    latest: Option<Timestamp>,
    latest_stored: Option<Timestamp>,
    /// Rows that are stored and not in the catalogue.
    waiting_rows: u64,
    /// How much older the newest row in the catalogue is than the newest one that is stored.
    pub(crate) lag_seconds: u64,
    /// Columns that are not in the table because its files disagree about their types.
    left_out: Vec<String>,
}

/// What is stored of a table.
#[derive(Debug, Clone, Copy, Default)]
struct StoredRows {
    rows: u64,
    earliest: Option<Timestamp>,
    latest: Option<Timestamp>,
}

impl StoredRows {
    fn add(&mut self, rows: u64, (earliest, latest): (Timestamp, Timestamp)) {
        self.rows += rows;
        self.earliest = Some(self.earliest.map_or(earliest, |known| known.min(earliest)));
        self.latest = Some(self.latest.map_or(latest, |known| known.max(latest)));
    }
}

/// What is stored of all tables.
#[derive(Debug, Default)]
pub(super) struct StoredTables {
    tables: BTreeMap<CatalogTable, StoredRows>,
    /// Files that Iceberg has no name for.
    files_of_lines: u64,
    /// Whether new files are such.
    writes_lines: bool,
}

impl StoredTables {
    pub(super) fn of(engine: &Engine) -> Self {
        let view = engine.view();
        let mut stored = Self {
            writes_lines: engine.settings().format == StorageFormat::Json,
            ..Self::default()
        };
        for table in Table::ALL {
            for file in view.files(table) {
                stored.files_of_lines += u64::from(!file.is_parquet());
                stored.add(
                    CatalogTable {
                        table,
                        spec: file.spec(),
                    },
                    file.rows,
                    (file.min_ts, file.max_ts),
                );
            }
            for hot in view.hot(table) {
                let rows = hot.batch.num_rows() as u64;
                stored.add(CatalogTable { table, spec: hot.spec }, rows, (hot.min_ts, hot.max_ts));
            }
        }
        stored
    }

    /// Adds rows to their table, and those of a spec to the table of all messages too.
    fn add(&mut self, of: CatalogTable, rows: u64, times: (Timestamp, Timestamp)) {
        if of.spec.is_some() {
            self.tables
                .entry(CatalogTable { spec: None, ..of })
                .or_default()
                .add(rows, times);
        }
        self.tables.entry(of).or_default().add(rows, times);
    }

    /// The tables of the catalogue beside what is stored of them.
    pub(super) fn beside(&self, tables: &[TableOverview]) -> Vec<CatalogTableView> {
        tables.iter().map(|table| self.table(table)).collect()
    }

    fn table(&self, table: &TableOverview) -> CatalogTableView {
        let stored = CatalogTable::parse(&table.name).and_then(|of| self.tables.get(&of));
        let stored = stored.copied().unwrap_or_default();
        let behind = stored.latest.zip(table.newest_row.or(stored.earliest));
        CatalogTableView {
            table: table.name.clone(),
            version: table.version,
            snapshot_id: table.snapshot_id.map(|id| id.to_string()),
            published: table.published,
            files: table.files,
            rows: table.rows,
            bytes: table.bytes,
            snapshots: table.snapshots,
            latest: table.newest_row,
            latest_stored: stored.latest,
            waiting_rows: stored.rows.saturating_sub(table.rows),
            lag_seconds: behind.map_or(0, |(latest, newest)| latest.since(newest).as_secs()),
            left_out: table.columns_left_out.clone(),
        }
    }

    /// Why rows are missing for good, if there is a reason.
    fn reason(&self) -> Option<String> {
        let says = "Iceberg's tables do not have files of lines: set observability.embedded.storage.format = \"parquet\" for new ones";
        match self.files_of_lines {
            0 if !self.writes_lines => None,
            0 => Some(format!("new data files are lines of JSON, and {says}")),
            files => Some(format!("{files} data files are lines of JSON, and {says}")),
        }
    }
}

impl CatalogView {
    pub(super) fn new(
        stored: &StoredTables,
        tables: &[TableOverview],
        (publishes, trouble): (bool, Option<String>),
    ) -> Self {
        Self {
            namespace: NAMESPACE,
            publishes,
            reason: stored.reason(),
            trouble,
            tables: stored.beside(tables),
        }
    }

    /// With those tables only that somebody may read.
    pub(crate) fn only(mut self, may_read: impl Fn(CatalogTable) -> bool) -> Self {
        self.tables
            .retain(|view| CatalogTable::parse(&view.table).is_some_and(&may_read));
        self
    }

    /// Without tables, for who may read none of them because of `reason`.
    pub(crate) fn withheld(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self.tables.clear();
        self
    }

    /// That there is a trouble, without the reason.
    pub(crate) fn without_details(mut self) -> Self {
        let told = "the last publication failed, or a table cannot be read: the Mixer's log and its operators' platform catalog say why";
        self.trouble = self.trouble.map(|_| told.to_owned());
        self
    }

    /// Of a Mixer that serves none.
    pub(crate) fn switched_off() -> Self {
        Self {
            namespace: NAMESPACE,
            publishes: false,
            reason: Some("observability.embedded.iceberg.enabled is false".to_owned()),
            trouble: None,
            tables: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_operate_is_told_that_there_is_a_trouble_without_its_details() {
        let view =
            |trouble: Option<&str>| CatalogView::new(&StoredTables::default(), &[], (true, trouble.map(str::to_owned)));
        let reason = "could not write /srv/store/iceberg/x";
        assert_eq!(view(Some(reason)).trouble.as_deref(), Some(reason));
        let told = view(Some(reason)).without_details().trouble.unwrap_or_default();
        assert!(told.contains("the Mixer's log") && !told.contains('/'), "{told}");
        assert_eq!(view(None).without_details().trouble, None);
    }
}
