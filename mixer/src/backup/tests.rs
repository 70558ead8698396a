//! Backups are whole, of one moment, and go back where they came from.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;

use chassis::ExitReason;
use chassis::config::{ConfigSources, load};

use super::*;
use crate::config::{MixerConfig, SCHEMA};
use crate::registry::AuditQuery;
use crate::testing::{Hand, entropy};

fn config(store: &Path) -> MixerConfig {
    let sources = ConfigSources {
        flags: vec![("store.dir".to_owned(), store.display().to_string())],
        ..ConfigSources::default()
    };
    MixerConfig::of(&load(&SCHEMA, &sources).unwrap()).unwrap()
}

fn founded(store: &Path, clock: &Clock) -> BackupWriter {
    let config = config(store);
    let registry = Arc::new(ClusterRegistry::open(&registry_file(store)).unwrap());
    let cluster = Cluster::open(&registry, &config.store.cluster_key_file, clock, &entropy()).unwrap();
    durable_fs::create_private_dirs(&store.join(KEYS_FOLDER)).unwrap();
    for name in [
        "ca.key",
        OPERATOR_KEY,
        SERVER_CERTIFICATE,
        SERVER_KEY,
        ".bus-operator.nk.812.0.tmp",
    ] {
        durable_fs::write_durably(&store.join(KEYS_FOLDER).join(name), b"secret").unwrap();
    }
    BackupWriter {
        registry,
        cluster: Arc::new(cluster),
        store: store.to_owned(),
        cluster_key: config.store.cluster_key_file,
        clock: clock.clone(),
        making: Mutex::default(),
    }
}

fn kinds(registry: &ClusterRegistry) -> Vec<String> {
    let all = AuditQuery {
        limit: usize::MAX,
        ..AuditQuery::default()
    };
    let entries = registry.audit(&all).unwrap();
    entries.into_iter().rev().map(|entry| entry.kind).collect()
}

#[test]
fn a_backup_that_is_made_among_changes_is_restored_into_an_empty_store() {
    let (from, to, hand) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Hand::new());
    let writer = founded(from.path(), &hand.clock());
    let busy = Arc::clone(&writer.registry);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let changes = std::thread::spawn(move || {
        let entry = || {
            AuditEntry::new(
                LifecycleEvent::RackLabels,
                &AuditActor::Mixer,
                Timestamp::from_micros(1),
            )
        };
        while stopped.try_recv().is_err() {
            busy.change(|change| change.record(entry())).unwrap();
        }
    });
    let made = writer.write(&AuditActor::Mixer).unwrap();
    stop.send(()).unwrap();
    changes.join().unwrap();
    assert_eq!(made.files, [REGISTRY, CLUSTER_KEY, "keys/ca.key"]);
    let folder = Path::new(&made.folder);
    for name in made.files.iter().map(String::as_str).chain([MANIFEST]) {
        assert_eq!(
            folder.join(name).metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{name}"
        );
    }
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    let config = config(to.path());
    let said = restore(&config, folder, &hand.clock()).unwrap();
    assert!(said.contains(&writer.cluster.id().to_string()), "{said}");
    let registry = ClusterRegistry::open(&registry_file(to.path())).unwrap();
    let cluster = Cluster::open(&registry, &config.store.cluster_key_file, &hand.clock(), &entropy()).unwrap();
    assert_eq!(
        (cluster.id(), cluster.public_key()),
        (writer.cluster.id(), writer.cluster.public_key())
    );
    let kinds = kinds(&registry);
    assert_eq!(kinds.last().unwrap(), "backup_restored");
    assert_eq!(std::fs::read(to.path().join("keys/ca.key")).unwrap(), b"secret");
    drop(registry);
    let (exit, why) = restore(&config, folder, &hand.clock()).unwrap_err();
    assert_eq!(exit, ExitReason::Config);
    assert!(why.contains("registry.redb is there already"), "{why}");
}

#[test]
fn a_restore_that_was_cut_off_before_the_registry_is_done_again_and_another_key_is_kept() {
    let (from, to, hand) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Hand::new());
    let made = founded(from.path(), &hand.clock()).write(&AuditActor::Mixer).unwrap();
    let (folder, config) = (Path::new(&made.folder), config(to.path()));
    copy(&folder.join(CLUSTER_KEY), &config.store.cluster_key_file).unwrap();
    restore(&config, folder, &hand.clock()).unwrap();
    std::fs::remove_file(registry_file(to.path())).unwrap();
    std::fs::write(&config.store.cluster_key_file, "another").unwrap();
    let (_, why) = restore(&config, folder, &hand.clock()).unwrap_err();
    assert!(why.contains("cluster.key is there already"), "{why}");
    assert_eq!(std::fs::read(&config.store.cluster_key_file).unwrap(), b"another");
}

#[test]
fn what_is_no_backup_or_was_changed_is_refused_and_nothing_is_written() {
    let (from, to, hand) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Hand::new());
    let made = founded(from.path(), &hand.clock()).write(&AuditActor::Mixer).unwrap();
    let (folder, config) = (Path::new(&made.folder), config(to.path()));
    let manifest = std::fs::read_to_string(folder.join(MANIFEST)).unwrap();
    let refused = |text: &str, wanted: &str| {
        std::fs::write(folder.join(MANIFEST), text).unwrap();
        let (exit, why) = restore(&config, folder, &hand.clock()).unwrap_err();
        assert_eq!(exit, ExitReason::Data, "{why}");
        assert!(why.contains(wanted), "{why}");
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
    };
    refused("{}", "manifest.json");
    refused(&manifest.replace("\"format\": 1", "\"format\": 2"), "format 2");
    refused(
        &manifest.replace("keys/ca.key", "keys/../../ca.key"),
        "its manifest names",
    );
    refused(&manifest.replace("keys/ca.key", "/etc/cron.d/x"), "its manifest names");
    std::fs::write(folder.join(CLUSTER_KEY), "changed").unwrap();
    refused(&manifest, "cluster.key is not as the manifest says");
}
