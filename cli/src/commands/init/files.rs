//! The files that `platform init` writes: two configurations, a scenario, the environment of a service.
//!
//! Not here: how they are written (`file_replacement`).

use std::path::Path;

use model::{RackInvite, Token};
use serde_json::json;

use super::file_replacement::{NewFile, read_existing};
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
