//! A rotation of the cluster's key that ends at any of its steps, and the links that are kept.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::testing::{Hand, entropy};

/// A store with a registry.
struct RotationBench {
    folder: tempfile::TempDir,
    registry: ClusterRegistry,
}

impl RotationBench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
        Self { folder, registry }
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("cluster.key")
    }

    fn open(&self) -> Result<Cluster, ClusterError> {
        Cluster::open(
            &self.registry,
            &self.key(),
            &Hand::new().clock(),
            &chassis::os_entropy(),
        )
    }

    fn rotate(&self) -> Cluster {
        let cluster = self.open().unwrap();
        cluster
            .rotate(
                &self.registry,
                &self.key(),
                &Hand::new().clock(),
                &chassis::os_entropy(),
            )
            .unwrap()
    }
}

#[test]
fn a_rotation_that_ends_before_the_registry_names_the_new_key_leaves_the_old_one() {
    let bench = RotationBench::new();
    let before = bench.open().unwrap().public_key();
    create_key(&next_path(&bench.key()), &entropy()).unwrap();
    assert_eq!(bench.open().unwrap().public_key(), before);
    assert!(!next_path(&bench.key()).exists(), "nobody needs that secret");
    std::fs::write(next_path(&bench.key()), "no key").unwrap();
    assert_eq!(
        bench.open().unwrap().public_key(),
        before,
        "what is beside the right key keeps nobody from starting"
    );
}

#[test]
fn a_rotation_that_ends_after_the_registry_names_the_new_key_is_finished_by_the_next_start() {
    let bench = RotationBench::new();
    bench.open().unwrap();
    let old = std::fs::read(bench.key()).unwrap();
    let rotated = bench.rotate().public_key();
    let step_back = || {
        std::fs::rename(bench.key(), next_path(&bench.key())).unwrap();
    };
    step_back();
    durable_fs::write_atomically(&bench.key(), &old, 0o600).unwrap();
    assert_eq!(bench.open().unwrap().public_key(), rotated);
    step_back();
    assert_eq!(
        bench.open().unwrap().public_key(),
        rotated,
        "also where the old key is gone"
    );
    assert!(bench.key().exists() && !next_path(&bench.key()).exists());

    create_key(&next_path(&bench.key()), &entropy()).unwrap();
    std::fs::remove_file(bench.key()).unwrap();
    assert!(
        matches!(bench.open(), Err(ClusterError::Missing { .. })),
        "a stranger's key takes no place"
    );
}

#[test]
fn who_was_away_for_as_many_rotations_as_there_are_links_follows_and_no_further() {
    let bench = RotationBench::new();
    let first = KeyFingerprint::of(&bench.open().unwrap().public_key());
    let second = KeyFingerprint::of(&bench.rotate().public_key());
    for _ in 0..MOST_LINKS {
        bench.rotate();
    }
    let cluster = bench.open().unwrap();
    assert_eq!(cluster.successions.len(), MOST_LINKS);
    let leads = |from| {
        let to = cluster.key().verifying_key();
        model::key_succession::succeeds(&cluster.successions, cluster.id(), from, &to)
    };
    assert!(leads(second) && !leads(first));
}

#[test]
fn a_key_that_is_a_link_to_somewhere_else_is_not_replaced() {
    let bench = RotationBench::new();
    bench.open().unwrap();
    let elsewhere = bench.folder.path().join("elsewhere.key");
    std::fs::rename(bench.key(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, bench.key()).unwrap();
    let cluster = bench.open().unwrap();
    let rotated = cluster.rotate(&bench.registry, &bench.key(), &Hand::new().clock(), &entropy());
    assert!(matches!(rotated, Err(ClusterError::Linked { .. })));
}
