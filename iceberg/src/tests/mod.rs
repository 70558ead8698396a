//! The publisher's promises, tried with a real engine's sealed files and a folder of side objects.

#![allow(clippy::unwrap_used, clippy::panic, clippy::large_futures, reason = "tests")]

mod attempts;
mod crashes;
mod damage;
mod expiry;
mod publications;
mod readers;
mod specs;
mod table_lists;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{
    AppendBatch, BatchOrigin, Engine, PartitionBy, PublishedFile, PublishedFiles, RemoteSettings, Settings,
    SideObjects, SpecName,
};
use model::batch::{MessageRow, messages};
use model::telemetry_codec::encode_arrow;
use model::{
    Attributes, Clock, EntityId, Entropy, FluxId, Level, LogRecord, MessageDirection, SpanStatus, Table,
    TelemetryRecord, Timestamp, TraceId,
};
use object_store::memory::InMemory;
use serde_json::Value;
use uuid::Uuid;

use crate::catalog::{IcebergCatalog, LoadedTable};
use crate::manifest::{EntryStatus, ManifestEntry, read_manifest};
use crate::manifest_list::{ManifestFile, read_manifest_list};
use crate::publisher::{CatalogPublisher, CatalogSettings, PublishReport};

const STORE: Uuid = Uuid::from_u128(0x1ceb);
const HOUR: Duration = Duration::from_secs(3_600);

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The time of the first publication in all tests, and of the engine.
fn now() -> Timestamp {
    time("2026-11-21T12:30:00Z")
}

/// A store that seals what is past at once, and the folder of its catalogue.
struct TestStore {
    engine: Arc<Engine>,
    dir: tempfile::TempDir,
}

impl TestStore {
    async fn new() -> Self {
        Self::open(None).await
    }

    /// Whose sealed files are uploaded at once, and listed then.
    async fn in_bucket() -> Self {
        let remote = RemoteSettings::new("s3://test/p", Arc::new(InMemory::new()), "p".into());
        let remote = RemoteSettings {
            host: "one".to_owned(),
            poll: Duration::from_millis(10),
            upload_interval: Duration::ZERO,
            ..remote
        };
        Self::open(Some(remote)).await
    }

    async fn open(remote: Option<RemoteSettings>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(dir.path().join("store"));
        settings.remote = remote;
        settings.flush_interval = Duration::from_millis(20);
        settings.seal_grace = Duration::ZERO;
        settings.index = false;
        let entropy = Entropy::new(|bytes| bytes.fill(7));
        let engine = Engine::open(settings, Clock::new(now), entropy).await.unwrap();
        Self { engine, dir }
    }

    /// A sealed file with so many log records, the first of them at `ts`, one a second.
    async fn add_logs(&self, ts: &str, rows: i64) {
        let record = |n: i64| LogRecord {
            ts: Timestamp::from_micros(time(ts).micros() + n * 1_000_000),
            entity_id: EntityId::for_name("edge-1"),
            entity_name: "edge-1".to_owned(),
            flux_id: None,
            level: Level::Info,
            message: format!("record {n}"),
            attributes: Attributes::new(),
        };
        let rows: Vec<_> = (0..rows).map(record).collect();
        let batch = LogRecord::to_batch(&rows).unwrap();
        self.add(Table::Logs, batch, None).await;
    }

    /// A sealed file with a message of a spec.
    async fn add_message(&self, ts: &str, spec: Option<SpecName>, promoted: Attributes) {
        let row = MessageRow {
            ts: time(ts),
            trace_id: TraceId::from_entropy([1; 16]),
            flux_id: FluxId::at(now(), [1; 10]),
            entity_id: EntityId::for_name("edge-1"),
            entity_name: "edge-1".to_owned(),
            src_gear_id: "source".to_owned(),
            dst_gear_id: None,
            msg_type: "order".to_owned(),
            direction: MessageDirection::Internal,
            status: SpanStatus::Ok,
            raw_msg: vec![1, 2, 3],
            promoted,
        };
        self.add(Table::Messages, messages(&[row]).unwrap(), Some(spec)).await;
    }

    async fn add(&self, table: Table, batch: arrow_array::RecordBatch, spec: Option<Option<SpecName>>) {
        let wanted = self.files().files.len() + 1;
        let batch = AppendBatch {
            table,
            origin: BatchOrigin::default(),
            payload: encode_arrow(std::slice::from_ref(&batch)).unwrap().into(),
            rows: vec![batch],
        };
        match spec {
            Some(spec) => self.engine.append_of_specs(batch, vec![spec]).await.unwrap(),
            None => self.engine.append(batch).await.unwrap(),
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.files().files.len() != wanted {
            assert!(Instant::now() < deadline, "waited in vain for a sealed file");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn files(&self) -> PublishedFiles {
        self.engine.published_files()
    }

    /// The list without the files for which `is_gone` holds.
    fn files_without(&self, is_gone: impl Fn(&PublishedFile) -> bool) -> PublishedFiles {
        let mut list = self.files();
        list.number += 1_000;
        list.files.retain(|file| !is_gone(file));
        list
    }

    fn catalog(&self) -> TestCatalog {
        self.catalog_in("iceberg")
    }

    fn catalog_in(&self, folder: &str) -> TestCatalog {
        TestCatalog {
            folder: self.dir.path().join(folder),
        }
    }
}

/// The folder of a catalogue.
struct TestCatalog {
    folder: PathBuf,
}

/// A table as it was published.
struct TestTable {
    version: u64,
    metadata: Value,
}

impl TestCatalog {
    fn objects(&self) -> SideObjects {
        SideObjects::in_folder(self.folder.clone())
    }

    fn publisher(&self) -> CatalogPublisher {
        let settings = CatalogSettings {
            snapshot_age: HOUR,
            partition_by: PartitionBy::Hour,
        };
        CatalogPublisher::new(self.objects(), STORE, settings)
    }

    /// A reader that looks whenever it is asked.
    fn reader(&self) -> IcebergCatalog {
        IcebergCatalog::with_rest(self.objects(), Duration::ZERO)
    }

    fn load(&self, table: &str) -> TestTable {
        loaded(self.reader().load(table).unwrap())
    }

    fn path(&self, table: &str, name: &str) -> PathBuf {
        self.folder.join("telemetry").join(table).join("metadata").join(name)
    }

    /// The objects of a table's metadata with their bytes.
    fn objects_of(&self, table: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.path(table, "")).unwrap().map(Result::unwrap);
        entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    fn names_of(&self, table: &str) -> BTreeSet<String> {
        self.objects_of(table).into_keys().collect()
    }

    /// Every version on disk has what it names: manifest lists, manifests of the length that is told, sums of rows and files.
    fn assert_whole(&self, table: &str) {
        let names = self.names_of(table);
        let versions = names.iter().filter(|name| name.ends_with(".metadata.json"));
        let mut lists = BTreeSet::new();
        for version in versions {
            let metadata: Value = serde_json::from_slice(&std::fs::read(self.path(table, version)).unwrap()).unwrap();
            let all = metadata["snapshots"].as_array().cloned().unwrap_or_default();
            assert_eq!(
                metadata["current-snapshot-id"].as_i64(),
                all.last().map(|last| last["snapshot-id"].as_i64().unwrap()),
                "{version}"
            );
            for snapshot in all {
                if !lists.insert(snapshot["manifest-list"].to_string()) {
                    continue;
                }
                let manifests = manifests(&snapshot);
                let entries: Vec<_> = manifests
                    .iter()
                    .flat_map(|manifest| self.entries_of(manifest))
                    .collect();
                let rows: u64 = entries.iter().map(|entry| entry.file.rows).sum();
                assert_eq!(snapshot["summary"]["total-records"], rows.to_string(), "{version}");
                assert_eq!(
                    snapshot["summary"]["total-data-files"],
                    entries.len().to_string(),
                    "{version}"
                );
                let paths: BTreeSet<_> = entries.iter().map(|entry| entry.file.path.clone()).collect();
                assert_eq!(paths.len(), entries.len(), "{version} names a file twice");
            }
        }
        assert!(!lists.is_empty(), "no snapshot was looked at");
    }

    fn entries_of(&self, manifest: &ManifestFile) -> Vec<ManifestEntry> {
        let content = std::fs::read(local(&manifest.path)).unwrap();
        assert_eq!(content.len() as u64, manifest.length, "{}", manifest.path);
        let entries = read_manifest(&content).unwrap();
        let added = entries
            .iter()
            .filter(|entry| entry.status == EntryStatus::Added)
            .count();
        assert_eq!(added as u64, manifest.added_files, "{}", manifest.path);
        assert_eq!(
            (entries.len() - added) as u64,
            manifest.existing_files,
            "{}",
            manifest.path
        );
        entries
    }
}

impl TestTable {
    fn snapshots(&self) -> Vec<Value> {
        self.metadata["snapshots"].as_array().cloned().unwrap_or_default()
    }

    fn current(&self) -> Value {
        self.snapshots().pop().unwrap()
    }

    fn manifests(&self) -> Vec<ManifestFile> {
        manifests(&self.current())
    }

    fn summary(&self, key: &str) -> String {
        self.current()["summary"][key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key}"))
            .to_owned()
    }

    /// Names and types of the columns behind those of `messages`.
    fn promoted(&self) -> Vec<(String, String)> {
        let id = self.metadata["current-schema-id"].as_i64();
        let schemas = self.metadata["schemas"].as_array().unwrap();
        let schema = schemas
            .iter()
            .find(|schema| schema["schema-id"].as_i64() == id)
            .unwrap();
        let fields = schema["fields"].as_array().unwrap().iter();
        let promoted = fields.filter(|field| field["id"].as_i64() >= Some(1_000));
        promoted
            .map(|field| {
                (
                    field["name"].as_str().unwrap().to_owned(),
                    field["type"].as_str().unwrap().to_owned(),
                )
            })
            .collect()
    }
}

fn loaded(table: Option<LoadedTable>) -> TestTable {
    let table = table.unwrap();
    TestTable {
        version: table.version,
        metadata: serde_json::from_str(table.metadata.get()).unwrap(),
    }
}

fn local(uri: &str) -> &Path {
    Path::new(uri.strip_prefix("file://").unwrap())
}

fn manifests(snapshot: &Value) -> Vec<ManifestFile> {
    let list = snapshot["manifest-list"].as_str().unwrap();
    read_manifest_list(&std::fs::read(local(list)).unwrap()).unwrap()
}

fn is_of_day(file: &PublishedFile, day: &str) -> bool {
    file.min_ts.to_string().starts_with(day)
}

/// Publishes `minutes` after the first publication.
fn publish(publisher: &mut CatalogPublisher, files: PublishedFiles, minutes: u64) -> PublishReport {
    publisher.publish(files, after(minutes)).unwrap()
}

fn after(minutes: u64) -> Timestamp {
    now().plus(Duration::from_secs(60 * minutes))
}
