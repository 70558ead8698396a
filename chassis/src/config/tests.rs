//! Tests of the layering, the errors and what is generated, on a small schema.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use model::Token;
use tokio::sync::mpsc;

use super::schema_check::{load_from, schema_errors};
use super::*;
use crate::{config_file, config_section};

config_section! {
    /// Who.
    pub struct BaseConfig in "base" {
        /// Name
        name: Option<Token> = "node-01";
        /// Folder
        dir: PathBuf = "./data";
        /// Folder within
        inner: PathBuf, below("base.dir", "inner");
    }
}

config_section! {
    /// Where.
    pub struct BusConfig in "bus" {
        /// Address
        url: String = "nats://localhost:4222", kind(ValueKind::BusUrl);
        /// Wait
        wait: Duration = "1s", at_least_ms(10);
        /// Pause
        pause: Duration = "1s", within_ms(10, 300_000);
        /// Subjects
        subjects: Vec<String> = ["a.>"];
        /// Token
        token: Option<SecretString>, unset("none"), secret();
        /// Headers
        headers: BTreeMap<String, SecretString> = {}, secret();
    }
}

config_section! {
    /// Switches.
    pub struct SwitchConfig in "" {
        /// Silence
        quiet: bool = false, env_only();
    }
}

config_file! {
    /// `tester.toml`.
    pub struct TesterConfig {
        logging: LoggingConfig with &const { logging::keys("\"logs/test.log\"") },
        throttling: LogThrottleConfig,
        base: BaseConfig,
        bus: BusConfig,
        switches: SwitchConfig,
    }
}

static SCHEMA: ConfigSchema = ConfigSchema {
    program: "tester",
    file: "tester.toml",
    sections: TesterConfig::SECTIONS,
    removed: &[
        RemovedKey::moved("old.bus.url", "bus.url", "use bus.url"),
        RemovedKey::gone("old.bus", "the section is [bus] now"),
        RemovedKey::gone("base.id", "remove the line"),
    ],
};

fn problems(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let errors = load_from(&SCHEMA, text, env).unwrap_err();
    errors.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn the_schema_holds_what_every_schema_must() {
    assert_eq!(schema_errors(&SCHEMA), Vec::<String>::new());
}

#[test]
fn flags_win_over_the_environment_that_over_the_file_that_over_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tester.toml");
    fs::write(&path, "[base]\nname = \"of-file\"\n").unwrap();
    let file = ValueOrigin::File {
        path: path.clone(),
        line: 2,
    };
    let env = ValueOrigin::Env("PLATFORM_BASE_NAME".to_owned());
    for (flag, variable, in_file, name, place) in [
        (false, false, false, "node-01", ValueOrigin::Default),
        (false, false, true, "of-file", file),
        (false, true, false, "of-env", env.clone()),
        (false, true, true, "of-env", env),
        (true, false, false, "of-flag", ValueOrigin::Flag),
        (true, false, true, "of-flag", ValueOrigin::Flag),
        (true, true, false, "of-flag", ValueOrigin::Flag),
        (true, true, true, "of-flag", ValueOrigin::Flag),
    ] {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let sources = ConfigSources {
            file: in_file.then(|| path.clone()),
            required: true,
            env: variable
                .then(|| pair("PLATFORM_BASE_NAME", "of-env"))
                .into_iter()
                .collect(),
            flags: flag.then(|| pair("base.name", "of-flag")).into_iter().collect(),
        };
        let settings = load(&SCHEMA, &sources).unwrap();
        assert_eq!((settings.text("base.name"), settings.place("base.name")), (name, place));
    }
}

#[test]
fn overrides_of_the_environment_win_over_the_derived_name() {
    let env = [
        ("PLATFORM_LEVEL", "debug"),
        ("PLATFORM_LOGGING_LEVEL", "error"),
        ("PLATFORM_TRACE", "true"),
    ];
    let config = LoggingConfig::of(&load_from(&SCHEMA, "[logging]\nlevel = \"warn\"\n", &env).unwrap());
    assert_eq!(
        (config.level, config.trace, config.debug),
        (model::Level::Debug, true, false)
    );
}

#[test]
fn a_file_is_read_into_the_types_of_its_fields() {
    let text = "[base]\nname = \"\"\n[bus]\nwait = \"2s\"\nsubjects = []\nheaders = { a = \"${T}\" }\n[logging]\nmax_size_mb = 3\n";
    let env = [("PLATFORM_BUS_TOKEN", "hush"), ("PLATFORM_QUIET", "true"), ("T", "t")];
    let mut problems = Vec::new();
    let config = TesterConfig::read(&load_from(&SCHEMA, text, &env).unwrap(), &mut problems);
    assert_eq!(problems, []);
    assert_eq!(config.base.name, None);
    assert_eq!(config.base.inner, PathBuf::from("./data/inner"));
    assert_eq!(config.bus.token.unwrap().expose(), "hush");
    assert_eq!(config.bus.headers["a"].expose(), "t");
    assert_eq!((config.bus.wait, config.bus.subjects), (Duration::from_secs(2), vec![]));
    assert_eq!(config.logging.filename, PathBuf::from("logs/test.log"));
    assert_eq!(config.logging.max_size, model::ByteSize::mib(3));
    assert_eq!(config.logging.level, model::Level::Info);
    assert!(config.switches.quiet && config.throttling.enabled);
}

#[test]
fn section_names_are_case_insensitive_and_lists_come_comma_separated() {
    let settings = load_from(&SCHEMA, "[LOGGING.Throttling]\nburst = 9\n[Bus]\nwait = \"2s\"\n", &[]).unwrap();
    assert_eq!(settings.int("logging.throttling.burst"), 9);
    assert_eq!(settings.duration("bus.wait"), Duration::from_secs(2));
    let settings = load_from(&SCHEMA, "", &[("PLATFORM_BUS_SUBJECTS", "x.>, y")]).unwrap();
    assert_eq!(settings.list("bus.subjects"), ["x.>", "y"]);
}

#[test]
fn every_problem_is_named_with_its_file_line_and_key_and_all_come_at_once() {
    let text = "[logging]\nlevl = \"info\"\nlevel = \"loud\"\nmax_backups = \"7\"\nmax_size_mb = 0\n\n\
                [bus]\nwait = \"soon\"\npause = \"3h\"\n[base]\nid = 4\n[old.bus]\nurl = \"nats://x:1\"\nport = 4222\nhost = \"x\"\n[loging]\na = 1\n";
    let found = problems(text, &[("PLATFORM_BUS_WAIT", "1ms")]);
    let expected = [
        "tester.toml:2: unknown key logging.levl; the nearest known key is logging.level",
        "tester.toml:3: logging.level = \"loud\" is not allowed: it must be one of debug, info, warn, error",
        "tester.toml:4: logging.max_backups must be a whole number from 0 to 100000, not the text \"7\"",
        "tester.toml:5: logging.max_size_mb = 0 is not allowed: it must be a whole number from 1 to 1048576",
        "tester.toml:8: bus.wait must be a duration such as 100ms, 5s or 1h30m, at least 10ms, not the text \"soon\"",
        "tester.toml:9: bus.pause = \"3h\" is not allowed: it must be a duration from 10ms to 5m",
        "tester.toml:11: base.id is no longer a key: remove the line",
        "tester.toml:13: old.bus.url is no longer a key: use bus.url",
        "tester.toml:14: old.bus is no longer a key: the section is [bus] now",
        "tester.toml:16: unknown section [loging]; the nearest known section is [logging]",
        "environment PLATFORM_BUS_WAIT: bus.wait = \"1ms\" is not allowed: it must be a duration such as 100ms, 5s or 1h30m, at least 10ms",
    ];
    assert_eq!(found, expected);
}

#[test]
fn broken_toml_is_named_with_its_line() {
    let found = problems("[base]\nname = \"a\"\nname = \"b\"\n", &[]);
    assert!(
        found.len() == 1 && found[0].starts_with("tester.toml:3: not valid TOML"),
        "{found:?}"
    );
    let found = problems("[base]\n\nname = \n", &[]);
    assert!(
        found.len() == 1 && found[0].starts_with("tester.toml:3: not valid TOML"),
        "{found:?}"
    );
}

#[test]
fn the_nearest_key_crosses_sections() {
    let found = problems("[bus]\nmax_backup = 1\nlevel = \"info\"\n[base]\nlogging = 1\n", &[]);
    assert!(
        found[0].ends_with("the nearest known key is logging.max_backups"),
        "{found:?}"
    );
    assert!(
        found[1].ends_with("the nearest known key is logging.level"),
        "{found:?}"
    );
    let found = problems("bus = 1\n", &[]);
    assert_eq!(found, ["tester.toml:1: bus must be a section [bus], not a value"]);
}

#[test]
fn a_key_given_in_two_spellings_of_its_section_is_refused() {
    let found = problems("[base]\nname = \"a\"\n[BASE]\nname = \"b\"\n", &[]);
    assert_eq!(
        found,
        ["tester.toml:4: base.name is given twice; section names are case-insensitive"]
    );
}

#[test]
fn secrets_come_from_the_environment_or_by_reference_only_and_are_never_shown() {
    let found = problems("[bus]\ntoken = \"hush\"\nurl = \"nats://me:hush@x:4222\"\n", &[]);
    assert!(
        found[0].contains("tester.toml:2: bus.token is a secret") && found[0].contains("PLATFORM_BUS_TOKEN"),
        "{found:?}"
    );
    assert!(
        found[1].contains("tester.toml:3: bus.url is a secret") && found[1].contains("PLATFORM_BUS_URL"),
        "{found:?}"
    );
    assert!(!found.join("\n").contains("hush"), "{found:?}");
    let env = [("MY_TOKEN", "hush"), ("PLATFORM_BUS_URL", "nats://me:hush@x:4222")];
    let settings = load_from(&SCHEMA, "[bus]\ntoken = \"${MY_TOKEN}\"\n", &env).unwrap();
    assert_eq!(settings.some_text("bus.token").unwrap(), "hush");
    assert_eq!(settings.text("bus.url"), "nats://me:hush@x:4222");
    let text = show_text(&settings, true);
    assert!(
        !text.contains("hush") && !format!("{settings:?}").contains("hush"),
        "{text}"
    );
    assert!(
        text.contains("url = \"nats://***@x:4222\"  # environment PLATFORM_BUS_URL"),
        "{text}"
    );
    assert!(text.contains("token = \"***\"  # tester.toml:2"), "{text}");
}

#[test]
fn what_is_shown_says_where_each_value_came_from() {
    let settings = load_from(&SCHEMA, "[base]\nname = \"a\"\n", &[("PLATFORM_BASE_DIR", "/d")]).unwrap();
    let lines = shown(&settings);
    let line = |key: &str| lines.iter().find(|line| line.key == key).cloned().unwrap();
    assert_eq!(line("base.name").origin, "tester.toml:2");
    assert_eq!(line("base.dir").origin, "environment PLATFORM_BASE_DIR");
    assert_eq!(line("base.inner").value.unwrap(), "\"/d/inner\"");
    assert_eq!(line("base.inner").origin, "default: base.dir/inner");
    assert_eq!(line("bus.token").value, None);
    assert_eq!(line("bus.wait").origin, "default");
}

#[test]
fn a_slip_in_an_environment_name_is_a_warning_and_foreign_names_are_none() {
    let env = [
        ("PLATFORM_BASE_NAM", "x"),
        ("PLATFORM_SERVICE_HOST", "10.0.0.1"),
        ("PLATFORM_BUS_WAIT", ""),
    ];
    let settings = load_from(&SCHEMA, "", &env).unwrap();
    assert_eq!(
        settings.warnings(),
        ["environment: unknown name PLATFORM_BASE_NAM; the nearest known name is PLATFORM_BASE_NAME"]
    );
    assert_eq!(settings.place("bus.wait"), ValueOrigin::Default);
}

#[test]
fn a_missing_file_is_an_error_only_if_the_user_named_it() {
    let dir = tempfile::tempdir().unwrap();
    let sources = |required| ConfigSources {
        file: Some(dir.path().join("none.toml")),
        required,
        ..ConfigSources::default()
    };
    assert_eq!(load(&SCHEMA, &sources(false)).unwrap().file(), None);
    let error = load(&SCHEMA, &sources(true)).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read ") && error.contains("none.toml"),
        "{error}"
    );
}

#[test]
fn a_flag_for_a_key_that_is_none_is_refused() {
    let sources = ConfigSources {
        flags: vec![("base.nam".to_owned(), "x".to_owned())],
        ..ConfigSources::default()
    };
    let error = load(&SCHEMA, &sources).unwrap_err().to_string();
    assert_eq!(error, "flag: unknown key base.nam; the nearest known key is base.name");
}

#[test]
fn no_text_at_all_makes_the_loader_panic() {
    use proptest::prelude::*;
    let word = prop::sample::select(vec![
        "[", "]", "\n", "=", "\"", "{", "}", ".", ",", "base", "BUS", "name", "headers", "${X}", "1", "'", "old",
        "logging", "é", "#",
    ]);
    proptest!(|(words in prop::collection::vec(word, 0..40))| {
        let text = words.concat();
        let _ = load_from(&SCHEMA, &text, &[]);
        let _ = migrate(&SCHEMA, std::path::Path::new("old.toml"), &text);
    });
}

/// A watch on a real file, and what it reports: the level now, and the change.
struct Watched {
    dir: tempfile::TempDir,
    watch: ConfigWatcher,
    seen: mpsc::Receiver<(String, ConfigChange)>,
}

impl Watched {
    fn start(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tester.toml");
        fs::write(&path, text).unwrap();
        let sources = ConfigSources {
            file: Some(path),
            required: true,
            ..ConfigSources::default()
        };
        let settings = load(&SCHEMA, &sources).unwrap();
        let (tell, seen) = mpsc::channel(16);
        let watch = watch(sources, settings, move |settings, change| {
            tell.try_send((settings.text("logging.level").to_owned(), change.clone()))
                .unwrap();
        });
        Self {
            dir,
            watch: watch.unwrap().unwrap(),
            seen,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("tester.toml")
    }

    async fn next(&mut self) -> (String, ConfigChange) {
        tokio::time::timeout(Duration::from_secs(10), self.seen.recv())
            .await
            .unwrap()
            .unwrap()
    }
}

#[tokio::test]
async fn a_written_or_replaced_file_applies_live_keys_and_names_the_others() {
    let mut watched = Watched::start("[logging]\nlevel = \"info\"\n");
    fs::write(watched.path(), "[logging]\nlevel = \"debug\"\n").unwrap();
    let (level, change) = watched.next().await;
    assert_eq!(
        (level.as_str(), change.live, change.restart),
        ("debug", vec!["logging.level"], vec![])
    );
    let beside = watched.dir.path().join("new");
    fs::write(
        &beside,
        "[logging]\nlevel = \"debug\"\nthrottling.rate = 5\n[base]\nname = \"b\"\n",
    )
    .unwrap();
    fs::rename(&beside, watched.path()).unwrap();
    let (_, change) = watched.next().await;
    assert_eq!(
        (change.live, change.restart),
        (vec!["logging.throttling.rate"], vec!["base.name"])
    );
    fs::write(watched.path(), "[logging]\nlevel = \"error\"\n[base]\nname = \"b\"\n").unwrap();
    assert_eq!(
        watched.next().await.0,
        "error",
        "the file is still watched after it was replaced"
    );
    watched.watch.close().await.unwrap();
}

#[tokio::test]
async fn a_reload_has_read_the_file_when_it_returns() {
    let mut watched = Watched::start("[logging]\nlevel = \"info\"\n");
    fs::write(watched.path(), "[logging]\nlevel = \"debug\"\n").unwrap();
    assert!(watched.watch.reload().await);
    let (level, change) = watched.seen.try_recv().unwrap();
    assert_eq!((level.as_str(), change.live), ("debug", vec!["logging.level"]));
    assert!(watched.watch.reload().await);
    assert!(watched.seen.try_recv().is_err(), "the same content changes nothing");
    fs::write(watched.path(), "[logging]\nlevel = \"loud\"\n").unwrap();
    for _ in 0..2 {
        assert!(!watched.watch.reload().await, "it is wrong, also when it is read again");
    }
    assert!(watched.seen.try_recv().is_err(), "a wrong file changes nothing");
    watched.watch.close().await.unwrap();
}

#[tokio::test]
async fn a_broken_or_vanished_file_changes_nothing() {
    let mut watched = Watched::start("[logging]\nlevel = \"info\"\n");
    fs::write(watched.path(), "[logging]\nlevel = \"lou\n").unwrap();
    tokio::time::timeout(Duration::from_millis(600), watched.seen.recv())
        .await
        .unwrap_err();
    fs::remove_file(watched.path()).unwrap();
    tokio::time::timeout(Duration::from_millis(600), watched.seen.recv())
        .await
        .unwrap_err();
    fs::write(watched.path(), "[logging]\nlevel = \"warn\"\n").unwrap();
    let (level, change) = watched.next().await;
    assert_eq!((level.as_str(), change.live), ("warn", vec!["logging.level"]));
    watched.watch.close().await.unwrap();
}
