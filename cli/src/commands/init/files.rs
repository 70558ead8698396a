//! The files that `platform init` writes: two configurations, a scenario, the environment of a service.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{InitPlan, LogSource};
use crate::error::Error;

pub(super) const MIXER: &str = "platform-mixer.toml";
pub(super) const RACK: &str = "platform.toml";
pub(super) const SCENARIO: &str = "first.yaml";
pub(super) const SCENARIO_NAME: &str = "first";
const ENVIRONMENT: &str = "platform.env";

/// The service's user reads it, and it says no secret.
const FOR_SERVICES: u32 = 0o644;
/// As the umask has it.
const USUAL: u32 = 0o640;
const SECRET: u32 = 0o600;

/// A file that is to be there.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) mode: u32,
}

/// The names of the files, without what is in them.
pub(super) fn names(is_for_services: bool, has_mixer: bool) -> impl Iterator<Item = &'static str> {
    let mixer = has_mixer.then_some(MIXER);
    let environment = (is_for_services && !has_mixer).then_some(ENVIRONMENT);
    mixer.into_iter().chain([RACK, SCENARIO]).chain(environment)
}

/// All files of a plan.
pub(super) fn of(plan: &InitPlan) -> Result<Vec<NewFile>, Error> {
    let mode = if plan.is_for_services() { FOR_SERVICES } else { USUAL };
    let file = |name: &str, text: String| NewFile {
        path: plan.path(name),
        text,
        mode,
    };
    let mut files = Vec::new();
    if plan.has_mixer {
        files.push(file(MIXER, mixer(plan)?));
    }
    files.push(file(RACK, rack(plan)?));
    files.push(file(SCENARIO, scenario(plan)?));
    if let Some(invite) = plan.invite.as_ref().filter(|_| plan.is_for_services()) {
        let text = invite
            .to_text()
            .map_err(|error| Error::Usage(format!("the invite: {error}")))?;
        files.push(NewFile {
            path: plan.path(ENVIRONMENT),
            text: format!("# The invite that the Rack joins with, once.\nPLATFORM_RACK_INVITE={text}\n"),
            mode: SECRET,
        });
    }
    Ok(files)
}

/// Replaces a file, or makes it, with these permissions.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(SECRET)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn mixer(plan: &InitPlan) -> Result<String, Error> {
    let (data, log) = places(plan, "/var/lib/platform-mixer", "mixer.log")?;
    let first = quoted(&plan.path(SCENARIO))?;
    Ok(format!(
        "# The Mixer of this machine. Every key, with its default: platform-mixer config init\n\
         \n\
         [enrollment]\n\
         # Racks of this machine need no approval: nobody else reaches the bus, which listens on loopback. Where it is to listen elsewhere\n\
         # (snake.host), this must be false; Racks then join with an invite (platform racks invite NAME).\n\
         auto_adopt = true\n\
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

fn rack(plan: &InitPlan) -> Result<String, Error> {
    let (data, log) = places(plan, "/var/lib/platform", "platform.log")?;
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

fn scenario(plan: &InitPlan) -> Result<String, Error> {
    // Quoted: `true` and `7` are names too.
    let name = json!(plan.name).to_string();
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
         meta: {{ name: {SCENARIO_NAME}, version: \"1\" }}\n\
         racks:\n  \
           - {{ name: {name} }}\n\
         gears:\n  \
           - {gear}\n"
    ))
}

/// The folder of the data and the log file, as values.
fn places(plan: &InitPlan, of_service: &str, log: &str) -> Result<(String, String), Error> {
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
    use super::*;

    fn plan(folder: &str, source: LogSource) -> InitPlan {
        InitPlan {
            folder: folder.into(),
            name: "press-1".parse().unwrap(),
            source,
            has_mixer: true,
            invite: None,
        }
    }

    #[test]
    fn services_find_their_data_in_var_and_read_their_configuration() {
        let files = of(&plan("/etc/platform", LogSource::Journal)).unwrap();
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
        let files = of(&plan("/srv/a \"b\"", LogSource::File("/var/log/x: y".into()))).unwrap();
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
}
