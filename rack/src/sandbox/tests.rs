//! The sandbox on a thread of its own, which ends with it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use chassis::config::schema_check::load_from;
use landlock::RestrictSelf;
use tempfile::TempDir;

use super::*;
use crate::config::SCHEMA;

/// A Rack in a folder of its own, with folders of others beside it.
struct SandboxBench {
    folder: TempDir,
}

impl SandboxBench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["in", "out", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("file"), "text").unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Does something where this Rack is confined; `None` where this kernel says that it cannot.
    fn confined<T: Send>(&self, sandbox: &str, gears: &str, work: impl FnOnce() -> T + Send) -> Option<T> {
        let text = format!(
            "[base]\nstate_dir = {0:?}\n[store]\ndir = {0:?}\n[logging]\nfilename = {1:?}\n{gears}\n[policy]\nread_roots = [{2:?}]\nwrite_roots = [{3:?}]\nsandbox = {sandbox:?}\n",
            self.path("data"),
            self.path("logs/platform.log"),
            self.path("in"),
            self.path("out"),
        );
        let settings = load_from(&SCHEMA, &text, &[]).unwrap();
        let config = RackConfig::of(&settings).unwrap();
        std::thread::scope(|scope| {
            let confined = scope.spawn(|| match confine(&config, &settings) {
                Ok(SandboxState::Whole | SandboxState::Partial) => Some(work()),
                Ok(SandboxState::Off) if sandbox == "off" => Some(work()),
                Ok(SandboxState::Missing(reason)) if sandbox == "auto" && kernel_interface() < ABI::V1 => {
                    eprintln!("not tried: {reason}");
                    None
                }
                Err(error) if sandbox == "require" && kernel_interface() < OLDEST => {
                    assert!(error.to_string().contains("needs Linux 6.2 or later"), "{error}");
                    None
                }
                other => unreachable!("{other:?}"),
            });
            confined.join().unwrap()
        })
    }
}

/// The interface that the kernel says it has.
fn kernel_interface() -> ABI {
    let asked = RestrictSelf::default().no_new_privs(false).apply().unwrap();
    ABI::from(asked.landlock)
}

/// Does something on a thread that may read beneath these only; `None` where this kernel says that it cannot.
fn reading<T: Send>(folders: Vec<PathBuf>, work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            let rules = vec![(folders, AccessFs::ReadFile | AccessFs::ReadDir)];
            let status = restrict(&rules, CompatLevel::BestEffort).unwrap();
            assert_eq!(status == RulesetStatus::NotEnforced, kernel_interface() < ABI::V1);
            (status != RulesetStatus::NotEnforced).then(work)
        });
        confined.join().unwrap()
    })
}

#[test]
fn certificates_of_the_system_are_read_through_their_links() {
    let bench = SandboxBench::new();
    let at = |name: &str| bench.path(name);
    for folder in [
        "etc",
        "etc/certs",
        "store",
        "store/one",
        "store/two",
        "store/bundle",
        "var",
    ] {
        fs::create_dir(at(folder)).unwrap();
    }
    for file in [
        "store/one/a.pem",
        "store/two/b.pem",
        "store/bundle/ca.pem",
        "var/c.pem",
        "store/other.pem",
        "store/two/key.pem",
    ] {
        fs::write(at(file), "text").unwrap();
    }
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(at(to), at(from)).unwrap();
    link("store/one/a.pem", "etc/certs/a.pem");
    link("etc/certs/a.pem", "etc/certs/0a1b2c3d.0");
    link("store/two/b.pem", "etc/certs/b.pem");
    link("store/gone.pem", "etc/certs/gone.pem");
    link("store/bundle/ca.pem", "etc/ca.pem");
    link("var", "etc/more");
    link("in", "etc/certs/in");
    let folders = authority_folders(
        [at("etc/ca.pem")].into_iter(),
        [at("etc/certs"), at("etc/more")].into_iter(),
    );
    assert!(
        !folders.contains(&at("store")) && !folders.contains(&at("")),
        "{folders:?}"
    );
    reading(folders, || {
        for name in [
            "etc/ca.pem",
            "etc/certs/0a1b2c3d.0",
            "etc/certs/b.pem",
            "etc/more/c.pem",
        ] {
            assert!(fs::read(at(name)).is_ok(), "{name}");
        }
        for name in ["store/other.pem", "store/two/key.pem", "in/file"] {
            assert!(fs::read(at(name)).is_err(), "{name}");
        }
    });
}

#[test]
fn a_file_of_the_root_folder_opens_nothing_but_itself() {
    let opened = |path: &str| folder_of(Path::new(path));
    assert_eq!(opened("/platform.toml"), Path::new("/platform.toml"));
    assert_eq!(opened("/etc/platform.toml"), Path::new("/etc"));
    assert_eq!(opened("platform.toml"), Path::new("."));
    assert_eq!(opened("/usr/../platform.toml"), Path::new("/usr/../platform.toml"));
}

#[test]
fn a_rack_that_writes_into_the_root_folder_says_that_it_is_not_confined_and_does_not_start_where_it_has_to_be() {
    let bench = SandboxBench::new();
    let confine_with = |sandbox: &str| {
        let text = format!(
            "[base]\nstate_dir = {0:?}\n[store]\ndir = {0:?}\n[logging]\nfilename = \"/usr/../platform.log\"\n[policy]\nsandbox = {sandbox:?}\n",
            bench.path("data"),
        );
        let settings = load_from(&SCHEMA, &text, &[]).unwrap();
        confine(&RackConfig::of(&settings).unwrap(), &settings)
    };
    let state = confine_with("auto").unwrap();
    assert!(
        matches!(&state, SandboxState::Missing(why) if why.contains("logging.filename")),
        "{state}"
    );
    let error = confine_with("require").unwrap_err().to_string();
    assert!(
        error.contains("policy.sandbox") && error.contains("a folder of its own"),
        "{error}"
    );
}

fn can_write(path: &Path) -> bool {
    OpenOptions::new().append(true).create(true).open(path).is_ok()
}

#[test]
fn a_confined_process_reads_and_writes_what_its_configuration_names_and_nothing_else() {
    let bench = SandboxBench::new();
    let at = |name: &str| bench.path(name);
    for sandbox in ["auto", "require"] {
        bench.confined(sandbox, "", || {
            assert!(can_write(&at("data/rack.flux")) && fs::read(at("data/rack.flux")).is_ok());
            assert!(can_write(&at("data/new")) && can_write(&at("logs/platform.log")));
            assert!(can_write(&at("out/new")) && fs::rename(at("out/new"), at("out/old")).is_ok());
            assert!(
                fs::read(at("out/file")).is_err(),
                "a folder to write is not one to read"
            );
            assert!(fs::read(at("in/file")).is_ok() && !can_write(&at("in/file")) && !can_write(&at("in/new")));
            assert!(fs::read(at("other/file")).is_err() && !can_write(&at("other/file")));
            assert!(fs::remove_file(at("other/file")).is_err() && fs::create_dir(at("made")).is_err());
            assert!(fs::read("/proc/self/stat").is_ok() && fs::read_dir("/etc").is_ok());
            assert!(can_write(Path::new("/dev/null")));
            assert!(
                ["/dev/random", "/dev/urandom"]
                    .iter()
                    .all(|file| fs::File::open(file).is_ok())
            );
        });
    }
    let mode = fs::metadata(at("data")).unwrap().permissions().mode();
    assert!(mode & 0o077 == 0 && !at("data/files").exists(), "{mode:o}");
    let is_free = bench.confined("off", "", || fs::read(at("other/file")).is_ok());
    assert_eq!(is_free, Some(true));
}

#[test]
fn a_confined_process_runs_the_programs_that_are_listed_and_those_see_no_more_than_it_does() {
    let bench = SandboxBench::new();
    let copy = bench.path("out/true");
    fs::copy("/bin/true", &copy).unwrap();
    let runs = |program: &Path| Command::new(program).status().is_ok_and(|status| status.success());
    assert!(runs(&copy));
    bench.confined("auto", "", || assert!(!runs(Path::new("/bin/true")) && !runs(&copy)));
    bench.confined("auto", "[gears.journald]\nallow = true", || {
        assert!(runs(Path::new("/bin/true")) && !runs(&copy));
    });
    bench.confined("auto", "[gears.exec]\nallow = [\"/bin/cat\"]", || {
        assert!(runs(Path::new("/bin/true")) && !runs(&copy));
        let cat = |name: &str| Command::new("/bin/cat").arg(bench.path(name)).output().unwrap();
        assert_eq!(cat("in/file").stdout, b"text");
        let refused = cat("other/file");
        assert!(refused.stdout.is_empty() && !refused.status.success());
    });
}
