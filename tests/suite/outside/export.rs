//! `platform-mixer export duckdb` and `platform schema`.

use std::path::Path;

use harness::process::{Finished, run};
use harness::{Failure, Random, TestMixer, binary, duckdb, eventually, tool};

use super::{OURS, SOON, views, write};

fn export(mixer: &TestMixer, args: &[&str]) -> Result<Finished, Failure> {
    let program = tool("duckdb")?.display().to_string();
    let args = [&["export", "duckdb", "--program", &program], args].concat();
    run(&binary("platform-mixer")?, &args, mixer.path(), &[])
}

fn count(database: &str, relation: &str, folder: &Path) -> Result<String, Failure> {
    let program = tool("duckdb")?;
    let statement = format!("SELECT count(*) FROM {relation} WHERE {OURS}");
    let args = ["-noheader", "-csv", "-readonly", database, "-c", &statement];
    let done = run(&program, &args, folder, &[])?;
    assert_eq!(done.code, Some(0), "{statement}: {}", done.err);
    Ok(done.out.trim().to_owned())
}

/// A Mixer with 60 rows in data files.
fn with_rows(random: &mut Random) -> Result<TestMixer, Failure> {
    let mixer = TestMixer::with(
        &[
            ("observability.embedded.flush_interval", "\"100ms\""),
            ("observability.embedded.rotation.max_age_days", "60"),
            ("store.database_file", "\"analyst.duckdb\""),
        ],
        &[],
    )?;
    write(&mixer.api, random, 0)?;
    eventually("the rows in the views", SOON, || {
        let mut session = duckdb::Session::open(&views(&mixer), &mixer.path().join("session.log")).ok()?;
        let counted = session.ask(&format!("SELECT count(*) FROM logs WHERE {OURS}")).ok()?;
        (counted == ["60"]).then_some(())
    })?;
    Ok(mixer)
}

#[test]
fn an_exported_database_of_views_stays_current_and_one_of_rows_stands_alone() -> Result<(), Failure> {
    let mut random = Random::for_test("an_exported_database_of_views_stays_current");
    let mut mixer = with_rows(&mut random)?;
    let folder = mixer.path().to_owned();

    // Where store.database_file says, beside a running Mixer; a file that is there is not touched.
    let done = export(&mixer, &[])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(count("data/analyst.duckdb", "logs", &folder)?, "60");
    let again = export(&mixer, &[])?;
    assert_eq!(again.code, Some(64));
    assert!(
        again.err.contains("analyst.duckdb is there already; --force"),
        "{}",
        again.err
    );
    assert_eq!(export(&mixer, &["--force"])?.code, Some(0));
    std::fs::write(folder.join("data/analyst.duckdb.wal"), "")?;
    let open = export(&mixer, &["--force"])?;
    assert_eq!(open.code, Some(64), "a log would be applied to the new database");
    assert!(open.err.contains("open and close it"), "{}", open.err);
    std::fs::remove_file(folder.join("data/analyst.duckdb.wal"))?;

    let done = export(&mixer, &["--rows", "it's.duckdb"])?;
    assert_eq!(done.code, Some(0), "{}", done.err);

    write(&mixer.api, &mut random, 1)?;
    assert!(mixer.process()?.terminate(SOON)?.success());
    assert_eq!(
        count("data/analyst.duckdb", "logs", &folder)?,
        "120",
        "what was published since"
    );
    let recent = "logs_between(now() - INTERVAL 1 DAY, now() + INTERVAL 1 HOUR)";
    assert_eq!(count("data/analyst.duckdb", recent, &folder)?, "60");

    std::fs::rename(folder.join("data"), folder.join("away"))?;
    assert_eq!(count("it's.duckdb", "logs", &folder)?, "60", "as it was");
    assert_eq!(count("it's.duckdb", recent, &folder)?, "30");
    let left: Vec<_> = std::fs::read_dir(&folder)?
        .chain(std::fs::read_dir(folder.join("away"))?)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

#[test]
fn an_export_that_cannot_be_made_says_what_to_do_and_leaves_no_file() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let program = tool("duckdb")?.display().to_string();
    let ask = |args: &[&str]| run(&binary("platform-mixer")?, args, folder.path(), &[]);
    let done = ask(&["export", "duckdb", "x.duckdb", "--program", &program])?;
    assert_eq!(done.code, Some(74));
    assert!(
        done.err.contains("platform.sql") && done.err.contains("a Mixer writes it"),
        "{}",
        done.err
    );

    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    std::fs::write(data.join("platform.sql"), "SELECT broken;\n")?;
    let done = ask(&["export", "duckdb", "x.duckdb", "--program", &program])?;
    assert_eq!(done.code, Some(74));
    assert!(done.err.contains("broken"), "{}", done.err);
    let done = ask(&["export", "duckdb", "x.duckdb", "--program", "no/duckdb"])?;
    assert_eq!(done.code, Some(69));
    assert!(done.err.contains("no/duckdb"), "{}", done.err);
    let program = binary("platform-mixer")?;
    let alone = folder.path().join("alone");
    std::fs::create_dir(&alone)?;
    std::fs::copy(&program, alone.join("platform-mixer"))?;
    let done = run(
        &alone.join("platform-mixer"),
        &["export", "duckdb", "x.duckdb"],
        folder.path(),
        &[("PATH", "/nowhere")],
    )?;
    assert_eq!(done.code, Some(69));
    assert!(done.err.contains("duckdb is missing: put it on PATH"), "{}", done.err);
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 2, "data and alone");
    Ok(())
}

#[test]
fn what_platform_schema_prints_for_duckdb_reads_the_store() -> Result<(), Failure> {
    let mut random = Random::for_test("what_platform_schema_prints_for_duckdb_reads_the_store");
    let mixer = with_rows(&mut random)?;
    let printed = run(&binary("platform")?, &["schema", "logs"], mixer.path(), &[])?;
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let script = format!("{}\nSELECT count(*) FROM logs WHERE {OURS}", printed.out);
    assert_eq!(duckdb::scalar(&script, mixer.path())?, "60");
    let unknown = run(
        &binary("platform")?,
        &["schema", "--dialect", "oracle"],
        mixer.path(),
        &[],
    )?;
    assert_eq!(unknown.code, Some(64));
    assert!(unknown.err.contains("trino or polars"), "{}", unknown.err);
    Ok(())
}
