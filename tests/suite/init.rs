//! `platform init`: what it writes is enough to start, to join, and to see the first rows.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use harness::process::{Process, append_to};
use harness::{Failure, TestMixer, binary, eventually, process, tool};

const SOON: Duration = Duration::from_secs(60);

fn init(folder: &Path, args: &[&str]) -> Result<process::Finished, Failure> {
    process::run(&binary("platform")?, &[&["init"], args].concat(), folder, &[])
}

/// The command of init's last words that begins so.
fn told<'a>(words: &'a str, begin: &str) -> Result<&'a str, Failure> {
    let line = words.lines().map(str::trim).find(|line| line.starts_with(begin));
    Ok(line.ok_or_else(|| format!("no {begin:?}: {words}"))?)
}

fn owned(envs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    envs.iter().map(owned).collect()
}

fn started(program: &str, folder: &Path, file: &Path, envs: &[(&str, &str)]) -> Result<Process, Failure> {
    let (file, log) = (file.display().to_string(), folder.join(format!("{program}.stderr")));
    Process::start_with(&binary(program)?, &["-c", &file], folder, &log, &owned(envs))
}

#[test]
fn a_mixer_and_a_rack_start_with_what_init_wrote_and_a_log_file_is_in_the_logs() -> Result<(), Failure> {
    // Another working folder than that of the files: they are whole paths.
    let (folder, elsewhere, logs) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
    let (place, log) = (folder.path().display().to_string(), logs.path().join("app.log"));
    let mut writing = append_to(&log)?;
    writeln!(writing, "before the first start")?;
    let followed = log.display().to_string();
    let args = ["--dir", &place, "--yes", "--name", "press-1", "--follow", &followed];
    let made = init(elsewhere.path(), &args)?;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let names = ["platform-mixer.toml", "platform.toml", "first.yaml"];
    let paths = names.map(|name| folder.path().join(name));
    let shown: Vec<&Path> = made.out.lines().map(Path::new).collect();
    assert_eq!(shown, paths.each_ref().map(|path| path.canonicalize().unwrap()));
    assert!(
        made.err.contains("platform scenario activate first-press-1:1"),
        "{}",
        made.err
    );

    let before = std::fs::read_to_string(&paths[1])?;
    std::fs::remove_file(&paths[0])?;
    let again = init(elsewhere.path(), &[&args[..], &["--name", "press-2"]].concat())?;
    assert_eq!(again.code, Some(64), "the flag is given twice: {}", again.err);
    let again = init(elsewhere.path(), &args)?;
    assert_eq!(again.code, Some(64), "{}", again.err);
    assert!(again.err.contains("would be replaced"), "{}", again.err);
    assert!(!paths[0].exists() && std::fs::read_to_string(&paths[1])? == before);
    let forced = init(elsewhere.path(), &[&args[..], &["--force"]].concat())?;
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    assert_eq!(std::fs::read_to_string(&paths[1])?, before);
    let kept = folder.path().join("platform.toml.before");
    assert!(!kept.exists(), "it was the same");
    let changed = format!("{before}# mine\n");
    std::fs::write(&paths[1], &changed)?;
    let forced = init(elsewhere.path(), &[&args[..], &["--force"]].concat())?;
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    assert_eq!(std::fs::read_to_string(&paths[1])?, before);
    assert_eq!(std::fs::read_to_string(&kept)?, changed);

    let server = tool("nats-server")?.display().to_string();
    let ports = [
        ("PLATFORM_API_PORT", "0"),
        ("PLATFORM_SNAKE_PORT", "0"),
        ("PLATFORM_SNAKE_SERVER_BINARY", server.as_str()),
    ];
    let mut mixer = started("platform-mixer", elsewhere.path(), &paths[0], &ports)?;
    let ready = mixer.line("ready ", SOON)?;
    let part = |name: &str| ready.split_whitespace().find_map(|part| part.strip_prefix(name));
    let (api, bus) = (part("api=").ok_or("no api")?, part("bus=").ok_or("no bus")?);
    // Every user of this machine reaches the bus: who was not invited waits.
    let stranger = tempfile::tempdir()?;
    let file = stranger.path().join("platform.toml");
    std::fs::write(&file, "[base]\nname = \"stranger\"\n")?;
    let mut stranger = started("platform", stranger.path(), &file, &[("PLATFORM_SNAKE_URL", bus)])?;
    stranger.line("pending ", SOON)?;

    let invited = told(&made.err, "platform racks invite press-1 | platform join ")?;
    let (program, path) = (binary("platform")?, std::env::var("PATH")?);
    let programs = program.parent().ok_or("no folder")?.display();
    let path = format!("{programs}:{path}");
    let envs = [("PLATFORM_API_URL", api), ("PATH", path.as_str())];
    let joined = process::run(Path::new("/bin/sh"), &["-c", invited], elsewhere.path(), &envs)?;
    assert_eq!(joined.code, Some(0), "{invited}: {}{}", joined.out, joined.err);
    let mut rack = started("platform", elsewhere.path(), &paths[1], &[])?;
    assert!(rack.line("ready ", SOON)?.starts_with("name=press-1 "));

    let asks = [("PLATFORM_API_URL", api), ("PLATFORM_SNAKE_URL", bus)];
    let platform = |args: &[&str]| process::run(&binary("platform")?, args, elsewhere.path(), &asks);
    let shown = eventually("a line of the log file", SOON, || {
        // The gear begins at the end of the file, some time after the Rack is there.
        writeln!(writing, "paint is low").ok()?;
        let shown = platform(&["logs", "--entity", "press-1", "-o", "csv"]).ok()?;
        shown.out.contains("paint is low").then_some(shown.out)
    })?;
    assert!(!shown.contains("before the first start"), "{shown}");
    let file = paths[1].display().to_string();
    let doctor = platform(&["doctor", "-c", &file, "-o", "csv"])?;
    assert_eq!(doctor.code, Some(0), "{}{}", doctor.out, doctor.err);
    assert!(
        !doctor.out.contains("warn") && doctor.out.contains("bus,ok") && doctor.out.contains("admission,ok"),
        "{}",
        doctor.out
    );
    assert!(
        folder.path().join("data/registry.redb").is_file(),
        "all is in the folder of the files"
    );
    assert!(rack.terminate(SOON)?.success());
    assert!(mixer.terminate(SOON)?.success());
    Ok(())
}

#[test]
fn a_rack_joins_with_an_invite_that_it_is_given_or_that_init_asks_the_mixer_for() -> Result<(), Failure> {
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let given = mixer.platform(&["racks", "invite", "given"])?;
    assert_eq!(given.code, Some(0), "{}", given.err);
    let cases = [
        ("asked", vec!["--mixer", mixer.api.base.as_str(), "--name", "asked"]),
        ("given", vec!["--invite", given.out.trim()]),
    ];
    for (name, args) in cases {
        let folder = tempfile::tempdir()?;
        let made = init(folder.path(), &[&args[..], &["--yes", "--journald"]].concat())?;
        assert_eq!(made.code, Some(0), "{name}: {}", made.err);
        for file in ["platform-mixer.toml", "first.yaml"] {
            assert!(!folder.path().join(file).exists(), "{name} has no Mixer: {file}");
        }
        assert!(made.err.contains("platform scenario activate FILE"), "{}", made.err);
        let mut rack = started("platform", folder.path(), &folder.path().join("platform.toml"), &[])?;
        assert!(rack.line("ready ", SOON)?.starts_with(&format!("name={name} ")));
        assert!(rack.terminate(SOON)?.success());
    }
    Ok(())
}

#[test]
fn an_invite_that_a_mixer_has_made_for_nothing_is_named_and_nothing_is_left_of_the_files() -> Result<(), Failure> {
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let folder = tempfile::tempdir()?;
    let args = [
        "init",
        "--dir",
        "new/deep",
        "--yes",
        "--journald",
        "--name",
        "asked",
        "--mixer",
        mixer.api.base.as_str(),
    ];
    // The state is to be encrypted, and there is no key.
    let no_key = [("PLATFORM_BASE_STATE_KEY_FILE", "/there/is/no/key")];
    let failed = process::run(&binary("platform")?, &args, folder.path(), &no_key)?;
    assert_eq!(failed.code, Some(78), "{}", failed.err);
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 0, "it left something");
    let open = || mixer.platform(&["racks", "invites", "-o", "csv"]);
    assert!(open()?.out.contains("asked,"), "{}", open()?.out);
    let (_, revoke) = failed
        .err
        .split_once(": platform racks revoke-invite ")
        .ok_or(failed.err.clone())?;
    let revoke = revoke.lines().next().unwrap_or_default();
    let revoked =
        mixer.platform(&[&["racks", "revoke-invite"], &revoke.split(' ').collect::<Vec<_>>()[..]].concat())?;
    assert_eq!(revoked.code, Some(0), "{}", revoked.err);
    assert!(!open()?.out.contains("asked,"), "{}", open()?.out);

    // Without that fault the same words make the Rack.
    let done = process::run(&binary("platform")?, &args, folder.path(), &[])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(folder.path().join("new/deep/data/rack.flux").is_file());
    Ok(())
}

#[test]
fn a_made_invite_is_in_every_format() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let made = mixer.platform(&["racks", "invite", "press-1", "-o", "csv"])?;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let lines: Vec<&str> = made.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", made.out);
    assert_eq!(lines[0], "name,id,expires,invite");
    let cells: Vec<&str> = lines[1].split(',').collect();
    assert!(cells.len() == 4 && cells[2].ends_with('Z'), "{}", lines[1]);
    let folder = tempfile::tempdir()?;
    let joined = process::run(&binary("platform")?, &["join", cells[3]], folder.path(), &[])?;
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    Ok(())
}

#[test]
fn init_asks_nobody_where_there_is_no_terminal_and_refuses_what_it_cannot_use() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let cases: [(&[&str], i32, &str); 5] = [
        (&[], 64, "no terminal"),
        (&["--yes", "--invite", "plinv1_x", "--journald"], 64, "the invite"),
        (
            &["--yes", "--invite", "plinv1_x", "--journald", "--name", "press-1"],
            64,
            "cannot be used with",
        ),
        (&["--yes", "--follow", "relative.log"], 64, "--follow"),
        (
            &["--yes", "--journald", "--mixer", "http://127.0.0.1:1"],
            69,
            "cannot reach",
        ),
    ];
    for (args, code, says) in cases {
        let refused = init(folder.path(), &[args, &["--dir", "new/deep"]].concat())?;
        assert_eq!(refused.code, Some(code), "{args:?}: {}", refused.err);
        assert!(refused.err.contains(says), "{args:?}: {}", refused.err);
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0, "{args:?} left something");
    }
    // What is to be replaced is replaced only where the Mixer has made an invite.
    let file = folder.path().join("platform.toml");
    std::fs::write(&file, "# mine\n")?;
    let args = ["--yes", "--journald", "--force", "--mixer", "http://127.0.0.1:1"];
    assert_eq!(init(folder.path(), &args)?.code, Some(69));
    assert_eq!(std::fs::read_to_string(&file)?, "# mine\n");
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);
    Ok(())
}
