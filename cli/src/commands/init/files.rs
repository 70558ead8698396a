//! The files that `platform init` writes: two configurations, a scenario, the environment of a service.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use durable_fs::DurableFsError;
use model::{RackInvite, Token};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde_json::json;

use super::{InitPlan, LogSource};
use crate::error::Error;

pub(super) const MIXER: &str = "platform-mixer.toml";
pub(super) const RACK: &str = "platform.toml";
pub(super) const SCENARIO: &str = "first.yaml";
pub(super) const SCENARIO_VERSION: &str = "1";
const ENVIRONMENT: &str = "platform.env";
/// How the line of the invite begins.
const INVITE: &str = "PLATFORM_RACK_INVITE=";

/// The service's user reads it, and it says no secret.
const FOR_SERVICES: u32 = 0o644;
/// As the umask has it.
const USUAL: u32 = 0o640;
const SECRET: u32 = 0o600;
/// No file that is replaced is as large.
const LARGEST: u64 = 1 << 20;

/// A file that is to be there.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) mode: u32,
}

/// A file that was written, and how to have it as it was.
#[derive(Debug)]
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    /// The name that the file of before has now: its owner and mode stay with it.
    pub(super) kept: Option<PathBuf>,
    is_new: bool,
}

impl NewFile {
    /// Writes it as one step, and notes in `written` how to undo that, also where it fails. What has its name is an error, or is replaced and kept
    /// beside it; a file that is the same stays.
    pub(super) fn write(&self, replaces: bool, written: &mut Vec<WrittenFile>) -> Result<(), Error> {
        let (path, bytes) = (&self.path, self.text.as_bytes());
        let existing = if replaces { read_existing(path)? } else { None };
        let note = |kept, is_new| WrittenFile {
            path: path.clone(),
            kept,
            is_new,
        };
        if existing
            .as_ref()
            .is_some_and(|file| file.bytes == bytes && file.mode == self.mode)
        {
            written.push(note(None, false));
            return Ok(());
        }
        let kept = existing.map(|_| link_beside(path)).transpose()?;
        let is_new = kept.is_none();
        let done = match is_new {
            true => durable_fs::create_atomically(path, bytes, self.mode),
            false => durable_fs::write_atomically(path, bytes, self.mode).map(|()| true),
        };
        // One that somebody else made in the meantime is not ours to undo.
        let is_ours = done
            .as_ref()
            .map_or_else(|error| !is_new || error.in_doubt, |is_ours| *is_ours);
        if is_ours {
            written.push(note(kept, is_new));
        }
        match done.map_err(write_error)? {
            true => Ok(()),
            false => Err(refuse_existing(&path.display().to_string())),
        }
    }
}

/// Gives a file the second name that it is kept under when another one takes its place.
fn link_beside(path: &Path) -> Result<PathBuf, Error> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".before");
    let beside = durable_fs::free_name(beside.into());
    durable_fs::link(path, &beside).map_err(write_error)?;
    Ok(beside)
}

impl WrittenFile {
    /// Makes it what it was before.
    pub(super) fn undo(&self) -> Result<(), Error> {
        match &self.kept {
            // Where nothing took its place both names are of one file, and a rename leaves both.
            Some(kept) => durable_fs::rename_durably(kept, &self.path).and_then(|()| durable_fs::remove_if_there(kept)),
            None if self.is_new => durable_fs::remove_if_there(&self.path),
            None => Ok(()),
        }
        .map_err(write_error)
    }
}

/// Says which names are not free.
pub(super) fn refuse_existing(names: &str) -> Error {
    Error::Usage(format!(
        "{names} would be replaced, and nothing was written: --force replaces, --dir names another folder"
    ))
}

fn write_error(error: DurableFsError) -> Error {
    Error::WriteFile {
        path: error.path,
        source: error.source,
    }
}

/// What a file has that is to be replaced.
#[derive(Debug)]
struct ExistingFile {
    bytes: Vec<u8>,
    mode: u32,
}

/// The file with this name, if there is one. A link is none of ours: what it leads to may be anybody's.
fn read_existing(path: &Path) -> Result<Option<ExistingFile>, Error> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let read = || -> io::Result<ExistingFile> {
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || found.len() > LARGEST {
            let reason = format!("it is no file of at most {LARGEST} bytes: move it away");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(ExistingFile {
            bytes,
            mode: found.mode() & 0o777,
        })
    };
    match read() {
        Ok(existing) => Ok(Some(existing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let is_link = error.raw_os_error() == Some(Errno::ELOOP as i32);
            let source = if is_link {
                io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link: remove it")
            } else {
                error
            };
            Err(Error::WriteFile {
                path: path.to_owned(),
                source,
            })
        }
    }
}

/// The names of the files, without what is in them.
pub(super) fn planned_names(is_for_services: bool, has_mixer: bool) -> impl Iterator<Item = &'static str> {
    let mixer = has_mixer.then_some(MIXER);
    let scenario = has_mixer.then_some(SCENARIO);
    let environment = (is_for_services && !has_mixer).then_some(ENVIRONMENT);
    mixer.into_iter().chain([RACK]).chain(scenario).chain(environment)
}

/// The files of a plan, without that of the invite.
pub(super) fn planned_files(plan: &InitPlan) -> Result<Vec<NewFile>, Error> {
    let mode = if plan.is_for_services() { FOR_SERVICES } else { USUAL };
    let file = |name: &str, text: String| NewFile {
        path: plan.path(name),
        text,
        mode,
    };
    if !plan.has_mixer() {
        return Ok(vec![file(RACK, rack_config(plan)?)]);
    }
    Ok(vec![
        file(MIXER, mixer_config(plan)?),
        file(RACK, rack_config(plan)?),
        file(SCENARIO, scenario_text(plan)?),
    ])
}

/// What the environment of the Rack's service has now.
pub(super) fn read_environment(plan: &InitPlan) -> Result<String, Error> {
    let path = plan.path(ENVIRONMENT);
    let bytes = read_existing(&path)?.map(|file| file.bytes).unwrap_or_default();
    String::from_utf8(bytes).map_err(|_| Error::Data {
        path,
        reason: "it is no text".to_owned(),
    })
}

/// Whether the Rack's service finds an invite in this environment.
pub(super) fn has_invite(environment: &str) -> bool {
    let value = |line: &str| line.trim().strip_prefix(INVITE).is_some_and(|value| !value.is_empty());
    environment.lines().any(value)
}

/// The environment of the Rack's service with this invite: whatever else it has stays.
pub(super) fn environment_file(plan: &InitPlan, old: &str, invite: &RackInvite) -> Result<NewFile, Error> {
    let invite = invite
        .to_text()
        .map_err(|error| Error::Usage(format!("the invite: {error}")))?;
    Ok(NewFile {
        path: plan.path(ENVIRONMENT),
        text: with_invite(old, &invite),
        mode: SECRET,
    })
}

fn with_invite(old: &str, invite: &str) -> String {
    let mut text = String::new();
    let mut line_of_it = Some(format!("{INVITE}{invite}\n"));
    for line in old.lines() {
        if line.trim_start().starts_with(INVITE) {
            text.extend(line_of_it.take());
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    if let Some(line) = line_of_it {
        text.push_str("# The invite that the Rack joins with, once.\n");
        text.push_str(&line);
    }
    text
}

/// What the first scenario is called: not as that of the package, which the Mixer may have already.
pub(super) fn scenario_name(plan: &InitPlan) -> Token {
    Token::nearest(&format!("first-{}", plan.name.as_str()))
}

fn mixer_config(plan: &InitPlan) -> Result<String, Error> {
    let (data, log) = data_and_log_paths(plan, "/var/lib/platform-mixer", "mixer.log")?;
    let first = quoted(&plan.path(SCENARIO))?;
    Ok(format!(
        "# The Mixer of this machine. Every key, with its default: platform-mixer config init\n\
         \n\
         [mixer]\n\
         # What Racks do until another scenario is activated.\n\
         first_scenario = {first}\n\
         \n\
         [store]\n\
         dir = {data}\n\
         \n\
         [logging]\n\
         filename = {log}\n"
    ))
}

fn rack_config(plan: &InitPlan) -> Result<String, Error> {
    let (data, log) = data_and_log_paths(plan, "/var/lib/platform", "platform.log")?;
    let name = json!(plan.name).to_string();
    let allowed = match &plan.source {
        LogSource::Journal => "[gears.journald]\n\
                               # Scenarios may read the journal of this machine.\n\
                               allow = true\n"
            .to_owned(),
        LogSource::File(file) => format!(
            "[policy]\n\
             # Scenarios may follow files in this folder.\n\
             read_roots = [{}]\n",
            quoted(file.parent().unwrap_or(file))?
        ),
    };
    Ok(format!(
        "# The Rack of this machine. Every key, with its default: platform config init\n\
         \n\
         [base]\n\
         name = {name}\n\
         state_dir = {data}\n\
         \n\
         [store]\n\
         dir = {data}\n\
         \n\
         [logging]\n\
         filename = {log}\n\
         \n\
         {allowed}"
    ))
}

fn scenario_text(plan: &InitPlan) -> Result<String, Error> {
    // Quoted: `true` and `7` are names too.
    let name = json!(plan.name).to_string();
    let called = json!(scenario_name(plan)).to_string();
    let (says, gear) = match &plan.source {
        LogSource::Journal => (
            "What the services of this machine log, from now on.",
            format!("{{ name: journal, type: journald_in, deploy: {name}, config: {{ start: now }} }}"),
        ),
        LogSource::File(file) => (
            "What is written into a log file of this machine, from now on.",
            format!(
                "{{ name: log-file, type: file_tail, deploy: {name}, config: {{ path: {}, from: end }} }}",
                quoted(file)?
            ),
        ),
    };
    Ok(format!(
        "# {says} Give what you change a new version.\n\
         meta: {{ name: {called}, version: \"{SCENARIO_VERSION}\" }}\n\
         racks:\n  \
           - {{ name: {name} }}\n\
         gears:\n  \
           - {gear}\n"
    ))
}

/// The folder of the data and the log file, as values.
fn data_and_log_paths(plan: &InitPlan, of_service: &str, log: &str) -> Result<(String, String), Error> {
    let base = if plan.is_for_services() {
        Path::new(of_service)
    } else {
        &plan.folder
    };
    Ok((quoted(&base.join("data"))?, quoted(&base.join("logs").join(log))?))
}

/// A path as TOML and YAML write it: their quoted texts have the form of JSON's.
fn quoted(path: &Path) -> Result<String, Error> {
    let text = path.to_str().filter(|text| !text.contains('\u{7f}'));
    let text = text.ok_or_else(|| Error::Usage(format!("{} cannot be written into a file of text", path.display())))?;
    Ok(json!(text).to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn plan(folder: &str, source: LogSource) -> InitPlan {
        InitPlan {
            folder: folder.into(),
            name: "press-1".parse().unwrap(),
            source,
            joins: None,
            replaces: false,
        }
    }

    #[test]
    fn services_find_their_data_in_var_and_read_their_configuration() {
        let files = planned_files(&plan("/etc/platform", LogSource::Journal)).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
        assert_eq!(
            names,
            [
                "/etc/platform/platform-mixer.toml",
                "/etc/platform/platform.toml",
                "/etc/platform/first.yaml"
            ]
        );
        assert!(files.iter().all(|file| file.mode == FOR_SERVICES));
        // Every user and container of this machine reaches the bus: who joins was invited.
        assert!(files.iter().all(|file| !file.text.contains("enrollment")));
        assert!(
            files[0].text.contains("dir = \"/var/lib/platform-mixer/data\"\n"),
            "{}",
            files[0].text
        );
        assert!(
            files[1].text.contains("state_dir = \"/var/lib/platform/data\"\n"),
            "{}",
            files[1].text
        );
    }

    #[test]
    fn a_path_is_quoted_and_its_folder_may_be_read() {
        let files = planned_files(&plan("/srv/a \"b\"", LogSource::File("/var/log/x: y".into()))).unwrap();
        assert!(
            files[1].text.contains("state_dir = \"/srv/a \\\"b\\\"/data\"\n"),
            "{}",
            files[1].text
        );
        assert!(
            files[1].text.contains("read_roots = [\"/var/log\"]\n"),
            "{}",
            files[1].text
        );
        assert!(files[2].text.contains("path: \"/var/log/x: y\""), "{}", files[2].text);
        assert!(files.iter().all(|file| file.mode == USUAL));
    }

    fn new_file(path: &Path, text: &str, mode: u32) -> NewFile {
        NewFile {
            path: path.to_owned(),
            text: text.to_owned(),
            mode,
        }
    }

    fn written(path: &Path, text: &str, mode: u32, replaces: bool) -> Result<WrittenFile, Error> {
        let mut written = Vec::new();
        new_file(path, text, mode).write(replaces, &mut written)?;
        Ok(written.remove(0))
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn an_environment_keeps_its_other_lines_and_has_one_invite() {
        let alone = "# The invite that the Rack joins with, once.\nPLATFORM_RACK_INVITE=new\n";
        assert_eq!(with_invite("", "new"), alone);
        let old = "# secrets\nMODBUS_KEY=a\n PLATFORM_RACK_INVITE=old\nPLATFORM_RACK_INVITE=older\nMQTT_PASSWORD=b";
        let new = "# secrets\nMODBUS_KEY=a\nPLATFORM_RACK_INVITE=new\nMQTT_PASSWORD=b\n";
        assert_eq!(with_invite(old, "new"), new);
        assert_eq!(with_invite(new, "new"), new);
        assert_eq!(with_invite("A=1", "new"), format!("A=1\n{alone}"));
        assert!(has_invite(old) && has_invite(new));
        assert!(!has_invite("A=1\n#PLATFORM_RACK_INVITE=x\nPLATFORM_RACK_INVITE=\n"));
    }

    #[test]
    fn what_is_replaced_is_kept_as_it_was_and_a_secret_is_for_its_owner_alone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("platform.env");
        let first = written(&path, "A=1\n", 0o644, false).unwrap();
        assert!(first.is_new && mode(&path) == 0o644);
        assert!(matches!(written(&path, "A=2\n", SECRET, false), Err(Error::Usage(_))));
        let second = written(&path, "A=2\n", SECRET, true).unwrap();
        let before = folder.path().join("platform.env.before");
        assert_eq!(second.kept.as_deref(), Some(before.as_path()));
        assert_eq!(std::fs::read_to_string(&before).unwrap(), "A=1\n");
        assert_eq!((mode(&path), mode(&before)), (SECRET, 0o644));
        let third = written(&path, "A=2\n", SECRET, true).unwrap();
        assert!(third.kept.is_none() && !third.is_new, "it has not changed");
        let fourth = written(&path, "A=3\n", SECRET, true).unwrap();
        assert_eq!(fourth.kept, Some(folder.path().join("platform.env.before.1")));
        fourth.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "A=2\n");
        second.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "A=1\n");
        first.undo().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_undone_file_is_the_one_of_before_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("platform.toml");
        std::fs::write(&path, "same").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let identity = || {
            let found = std::fs::metadata(&path).unwrap();
            (found.ino(), found.mode(), found.uid(), found.gid())
        };
        let before = identity();
        for text in ["new", "same"] {
            let replaced = written(&path, text, FOR_SERVICES, true).unwrap();
            assert_eq!(mode(&path), FOR_SERVICES, "{text}");
            replaced.undo().unwrap();
            assert_eq!(identity(), before, "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "same");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_write_that_fails_is_noted_and_leaves_nothing_once_it_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        // It leaves room for `.before`, and none for the name of a file that is being written.
        let path = folder.path().join("x".repeat(248));
        std::fs::write(&path, "old").unwrap();
        let mut written = Vec::new();
        new_file(&path, "new", USUAL).write(true, &mut written).unwrap_err();
        assert_eq!(written.len(), 1);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            2,
            "the file and what it is kept as"
        );
        written[0].undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        new_file(&folder.path().join("x".repeat(249)), "new", USUAL)
            .write(true, &mut written)
            .unwrap_err();
        assert_eq!(written.len(), 1, "nothing has changed for one that was not there");
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (of_another, path) = (folder.path().join("shadow"), folder.path().join("platform.toml"));
        std::fs::write(&of_another, "root").unwrap();
        std::os::unix::fs::symlink(&of_another, &path).unwrap();
        for replaces in [false, true] {
            written(&path, "new", USUAL, replaces).unwrap_err();
        }
        assert_eq!(std::fs::read_to_string(&of_another).unwrap(), "root");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_scenario_is_named_after_its_rack() {
        let mut plan = plan("/srv", LogSource::Journal);
        assert!(
            scenario_text(&plan)
                .unwrap()
                .contains("meta: { name: \"first-press-1\", version: \"1\" }\n")
        );
        plan.name = Token::nearest(&"x".repeat(64));
        assert_eq!(scenario_name(&plan).as_str(), format!("first-{}", "x".repeat(58)));
    }
}
