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

#[test]
fn a_backup_of_a_running_mixer_brings_the_cluster_back_where_registry_and_key_are_lost() -> Result<(), Failure> {
    let mut cluster = TestMixer::start("")?;
    let before = cluster.platform(&["token", "create", "before", "--role", "reader"])?;
    assert_eq!(before.code, Some(0), "{}", before.err);
    let made = cluster.platform(&["backup", "-o", "ndjson"])?;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let made: serde_json::Value = serde_json::from_str(&made.out)?;
    let folder = made["folder"].as_str().ok_or("no folder")?;
    let folder = cluster.path().join(folder).display().to_string();
    let told = cluster.platform(&["audit", "--kind", "backup_made", "-o", "csv"])?;
    assert!(told.out.contains("backup_made"), "{}", told.out);
    let after = cluster.platform(&["token", "create", "after", "--role", "reader"])?;
    assert_eq!(after.code, Some(0), "{}", after.err);
    assert!(cluster.process()?.terminate(SOON)?.success());

    let there = mixer(cluster.path(), &["restore", &folder])?;
    assert_eq!(there.code, Some(78), "{}{}", there.out, there.err);
    assert!(
        there.err.contains("is there already: nothing was changed"),
        "{}",
        there.err
    );
    for name in ["registry.redb", "cluster.key"] {
        std::fs::remove_file(cluster.path().join("data").join(name))?;
    }
    let done = mixer(cluster.path(), &["restore", &folder])?;
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    cluster.restart()?;
    let tokens = cluster.platform(&["token", "list", "-o", "csv"])?;
    assert!(
        tokens.out.contains("before") && !tokens.out.contains("after"),
        "{}",
        tokens.out
    );
    let kinds = cluster.platform(&["audit", "-o", "csv"])?;
    assert!(kinds.out.contains("backup_restored"), "{}", kinds.out);
    let verified = cluster.platform(&["audit", "verify"])?;
    assert_eq!(verified.code, Some(0), "{}", verified.err);
    Ok(())
}

#[test]
fn the_security_report_says_what_is_off_and_fails_only_if_it_is_to() -> Result<(), Failure> {
    let cluster = TestMixer::start("[enrollment]\nauto_adopt = true\n")?;
    let doctor = |args: &[&str]| cluster.platform(&[&["doctor", "--security", "-o", "ndjson"], args].concat());
    let told = doctor(&[])?;
    assert_eq!(told.code, Some(0), "{}", told.err);
    let rows: Vec<serde_json::Value> = told.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let state = |check: &str| {
        rows.iter()
            .find(|row| row["check"] == check)
            .map(|row| row["state"].clone())
    };
    assert_eq!(state("admission"), Some("warn".into()), "{}", told.out);
    assert_eq!(state("api authentication"), Some("ok".into()), "{}", told.out);
    assert_eq!(state("rack state"), Some("warn".into()), "{}", told.out);
    assert!(told.out.contains("set enrollment.auto_adopt to false"), "{}", told.out);
    let strict = doctor(&["--strict"])?;
    assert_eq!(strict.code, Some(77), "{}{}", strict.out, strict.err);
    assert!(strict.out.contains("FAIL"), "{}", strict.out);
    Ok(())
}

#[test]
fn no_command_makes_a_store_where_nobody_has_said_that_one_is() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    for args in [&["found-cluster"][..], &["restore", "backup"], &["bus-operator"]] {
        let done = mixer(folder.path(), args)?;
        assert_eq!(done.code, Some(78), "{args:?}: {}{}", done.out, done.err);
        for part in ["platform-mixer.toml", "./data", "nothing was made", "-c FILE"] {
            assert!(done.err.contains(part), "{args:?}, {part}: {}", done.err);
        }
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0, "{args:?}");
    }

    // A folder, a file and a variable say it.
    std::fs::create_dir(folder.path().join("data"))?;
    std::fs::write(folder.path().join("other.toml"), "[store]\ndir = \"other\"\n")?;
    let envs = [("PLATFORM_STORE_DIR", "third")];
    let founded = [
        ("data", mixer(folder.path(), &["found-cluster"])?),
        ("other", mixer(folder.path(), &["found-cluster", "-c", "other.toml"])?),
        (
            "third",
            process::run(&binary("platform-mixer")?, &["found-cluster"], folder.path(), &envs)?,
        ),
    ];
    for (store, done) in founded {
        assert_eq!(done.code, Some(0), "{store}: {}", done.err);
        assert!(folder.path().join(store).join("registry.redb").is_file(), "{store}");
    }
    Ok(())
}
