//! The sandbox on a thread of its own, which ends with it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use chassis::config::schema_check::load_from;
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

    /// Does something where this Rack is confined; `None` where this kernel cannot.
    fn confined<T: Send>(&self, sandbox: &str, programs: &str, work: impl FnOnce() -> T + Send) -> Option<T> {
        let text = format!(
            "[base]\nstate_dir = {0:?}\n[store]\ndir = {0:?}\n[logging]\nfilename = {1:?}\n[gears.exec]\nallow = [{programs}]\n\
             [policy]\nread_roots = [{2:?}]\nwrite_roots = [{3:?}]\nsandbox = {sandbox:?}\n",
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
                Ok(SandboxState::Missing(reason)) if sandbox == "auto" => {
                    eprintln!("not tried: {reason}");
                    None
                }
                Err(error) if sandbox == "require" => {
                    assert!(error.to_string().contains("needs Linux 6.2 or later"), "{error}");
                    None
                }
                other => unreachable!("{other:?}"),
            });
            confined.join().unwrap()
        })
    }
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
    bench.confined("auto", "\"/bin/cat\"", || {
        assert!(runs(Path::new("/bin/true")) && !runs(&copy));
        let cat = |name: &str| Command::new("/bin/cat").arg(bench.path(name)).output().unwrap();
        assert_eq!(cat("in/file").stdout, b"text");
        let refused = cat("other/file");
        assert!(refused.stdout.is_empty() && !refused.status.success());
    });
}
