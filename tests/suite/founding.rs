//! A cluster whose registry, key or both are lost: no Mixer begins a new one by itself.

use std::path::Path;
use std::time::Duration;

use harness::{Failure, TestMixer, binary, process};

const SOON: Duration = Duration::from_secs(20);

fn mixer(folder: &Path, args: &[&str]) -> Result<process::Finished, Failure> {
    process::run(&binary("platform-mixer")?, args, folder, &[])
}

#[test]
fn a_store_without_its_registry_refuses_to_start_until_found_cluster() -> Result<(), Failure> {
    let mut cluster = TestMixer::start("")?;
    assert!(cluster.process()?.terminate(SOON)?.success());
    let (data, kept) = (cluster.path().join("data"), tempfile::tempdir()?);
    let names = |folder: &Path| -> Result<Vec<String>, Failure> {
        let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<_> = entries
            .iter()
            .map(|entry| entry.file_name().display().to_string())
            .collect();
        names.sort();
        Ok(names)
    };
    let lose = |name: &str| std::fs::rename(data.join(name), kept.path().join(name));
    let refused = |sign: &str| -> Result<(), Failure> {
        let before = names(&data)?;
        let done = mixer(cluster.path(), &[])?;
        assert_eq!(done.code, Some(78), "{}{}", done.out, done.err);
        for part in ["registry.redb", sign, "backup", "platform-mixer found-cluster"] {
            assert!(done.err.contains(part), "{part}: {}", done.err);
        }
        assert_eq!(names(&data)?, before, "nothing was made");
        Ok(())
    };
    let there = mixer(cluster.path(), &["found-cluster"])?;
    assert_eq!(there.code, Some(78), "{}{}", there.out, there.err);
    assert!(there.err.contains("nothing was changed"), "{}", there.err);
    lose("registry.redb")?;
    refused("cluster.key")?;
    lose("cluster.key")?;
    refused("store.lock")?;
    std::fs::remove_dir_all(data.join("js"))?;
    refused("platform.sql")?;

    // The registry is back, and the cluster is as it was.
    for name in ["registry.redb", "cluster.key"] {
        std::fs::rename(kept.path().join(name), data.join(name))?;
    }
    cluster.restart()?;
    assert!(cluster.process()?.terminate(SOON)?.success());

    std::fs::remove_file(data.join("registry.redb"))?;
    let founded = mixer(cluster.path(), &["found-cluster"])?;
    assert_eq!(founded.code, Some(0), "{}{}", founded.out, founded.err);
    let id = founded.out.split_whitespace().nth(2).unwrap_or_default();
    cluster.restart()?;
    let again = mixer(cluster.path(), &["found-cluster"])?;
    assert_eq!(again.code, Some(69), "a Mixer runs: {}{}", again.out, again.err);
    assert!(cluster.process()?.terminate(SOON)?.success());
    let twice = mixer(cluster.path(), &["found-cluster"])?;
    assert!(twice.code == Some(78) && twice.err.contains(id), "{id}: {}", twice.err);
    Ok(())
}
