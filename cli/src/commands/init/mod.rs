//! `platform init`: writes the configuration of a first Mixer and Rack, or of a Rack that joins, and a first scenario.
//!
//! ```text
//! flags, answers on a terminal ─▶ InitPlan ─▶ files (files) ─▶ an invite, if a Mixer is asked for one ─▶ where the Rack finds it
//! ```
//!
//! | folder | what lies there afterwards |
//! |---|---|
//! | `/etc/platform` ([`SERVICE_FOLDER`]) | what the units of the packages read; data is in `/var/lib`; the invite is in `platform.env`, for root alone |
//! | any other | all of it; data is in `data` there; the invite is in the Rack's state already |
//!
//! # Invariants
//!
//! - Nothing is replaced without `--force`; where one file is there already, none is written. What is replaced is kept as `NAME.before`, and
//!   other lines of `platform.env` stay.
//! - Each file is written as one step, and follows no link. Where a later step fails, all are as they were, with owner and mode; only an invite that
//!   a Mixer has made stays open, which is said.
//! - Without a terminal nothing is asked: it is an error that names the flag.
//!
//! # Not here
//!
//! What the keys mean (`rack`, `mixer`), what becomes of an invite (`commands::join`).

mod files;
mod questions;

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chassis::config::{self, ConfigSources};
use chassis::os_entropy;
use model::{RackInvite, Token};
use nix::unistd::{Gid, Group};
use rack::config::{RackConfig, SCHEMA};
use serde_json::{Value, json};

use crate::args::{ApiArgs, InitArgs, OutputFormat};
use crate::client::{self, ApiClient};
use crate::error::Error;
use files::WrittenFile;
use questions::InitAnswers;

/// Where the units of the packages find their configuration.
const SERVICE_FOLDER: &str = "/etc/platform";
/// The user of the Rack's unit.
const SERVICE_USER: &str = "platform";
/// What has the Rack of the packages join the Mixer of its machine.
const JOIN_LOCAL: &str = "/usr/lib/platform/join-local";
/// No invite is as long.
const LONGEST: u64 = 4_096;

/// What the Rack's first scenario reads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LogSource {
    Journal,
    File(PathBuf),
}

/// Where the Rack's invite comes from.
#[derive(Debug, Clone)]
enum InviteSource {
    Given(RackInvite),
    /// The Mixer with this API makes it.
    AskedAt(String),
}

/// What is to be written.
#[derive(Debug, Clone)]
struct InitPlan {
    /// An absolute path.
    folder: PathBuf,
    name: Token,
    source: LogSource,
    /// How the Rack joins another machine's Mixer; without it this machine gets a Mixer too.
    joins: Option<InviteSource>,
    /// Whether files that are there are replaced.
    replaces: bool,
}

impl InitPlan {
    fn is_for_services(&self) -> bool {
        self.folder == Path::new(SERVICE_FOLDER)
    }

    const fn has_mixer(&self) -> bool {
        self.joins.is_none()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

pub(crate) fn run(args: &InitArgs) -> Result<(), Error> {
    let InitAnswers { name, source, mixer } = questions::ask(args)?;
    let joins = match (&args.invite, mixer) {
        (Some(text), _) => Some(InviteSource::Given(parse_invite(&read_invite_text(text)?)?)),
        (None, url) => url.map(InviteSource::AskedAt),
    };
    let name = match &joins {
        Some(InviteSource::Given(invite)) => invite.name.clone(),
        _ => name,
    };
    let missing: Vec<&Path> = args.dir.ancestors().take_while(|folder| !folder.exists()).collect();
    let done = create_folder(&args.dir).and_then(|folder| {
        carry_out(&InitPlan {
            folder,
            name,
            source,
            joins,
            replaces: args.force,
        })
    });
    if done.is_err() {
        for folder in missing {
            // One that has something in it stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
    done
}

/// Makes the folder where it is missing; its whole path.
fn create_folder(dir: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::WriteFile {
        path: dir.to_owned(),
        source,
    };
    let is_new = !dir.exists();
    std::fs::create_dir_all(dir).map_err(failed)?;
    let folder = std::fs::canonicalize(dir).map_err(failed)?;
    if is_new && folder == Path::new(SERVICE_FOLDER) {
        // The services' users look into it, whatever the umask is.
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(folder)
}

/// Refuses what would replace a file without `--force`, or would have the Rack join another Mixer than the one beside it.
fn check_plan(plan: &InitPlan) -> Result<(), Error> {
    let there: Vec<String> = files::planned_names(plan.is_for_services(), plan.has_mixer())
        .map(|name| plan.path(name))
        .filter(|path| !plan.replaces && path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if !there.is_empty() {
        return Err(files::refuse_existing(&there.join(" and ")));
    }
    if plan.has_mixer() && plan.is_for_services() && files::has_invite(&files::read_environment(plan)?) {
        return Err(Error::Usage(format!(
            "{SERVICE_FOLDER}/platform.env has an invite, with which the Rack would join another Mixer than that of this machine, and nothing was \
             written: remove its line PLATFORM_RACK_INVITE"
        )));
    }
    Ok(())
}

fn carry_out(plan: &InitPlan) -> Result<(), Error> {
    check_plan(plan)?;
    let mut written = Vec::new();
    if let Err(error) = write(plan, &mut written) {
        for file in written.iter().rev() {
            if let Err(error) = file.undo() {
                error.report();
            }
        }
        return Err(error);
    }
    for WrittenFile { path, kept, .. } in &written {
        writeln!(io::stdout(), "{}", path.display())?;
        if let Some(kept) = kept {
            writeln!(io::stderr(), "what {} had is in {}", path.display(), kept.display())?;
        }
    }
    Ok(writeln!(io::stderr(), "{}", next_steps(plan))?)
}

/// Writes the files, and lets the Rack find its invite. A Mixer is asked for one when everything else is done: what it has made counts there.
fn write(plan: &InitPlan, written: &mut Vec<WrittenFile>) -> Result<(), Error> {
    for file in files::planned_files(plan)? {
        file.write(plan.replaces, written)?;
    }
    let Some(source) = &plan.joins else {
        return Ok(());
    };
    let environment = plan
        .is_for_services()
        .then(|| files::read_environment(plan))
        .transpose()?;
    let invite = match source {
        InviteSource::Given(invite) => invite.clone(),
        InviteSource::AskedAt(url) => request_invite(url, &plan.name)?,
    };
    let kept = match environment {
        Some(old) => files::environment_file(plan, &old, &invite).and_then(|file| file.write(plan.replaces, written)),
        None => keep_invite(plan, invite),
    };
    if let (Err(_), InviteSource::AskedAt(url)) = (&kept, source) {
        super::note(&format!(
            "the Mixer has made an invite for {0}, which is of no use now and open: platform racks revoke-invite {0} --api-url {url}",
            plan.name
        ));
    }
    kept
}

/// The invite of a flag, or of standard input.
fn read_invite_text(text: &str) -> Result<String, Error> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn parse_invite(text: &str) -> Result<RackInvite, Error> {
    text.parse::<RackInvite>()
        .map_err(|error| Error::Usage(format!("the invite: {error}")))
}

/// An invite that the Mixer makes for this name.
fn request_invite(url: &str, name: &Token) -> Result<RackInvite, Error> {
    let api = ApiArgs {
        api_url: Some(url.to_owned()),
        output: OutputFormat::Table,
        utc: false,
        no_pager: true,
        wide: false,
    };
    let made = ApiClient::new(&api).post("/api/v1/invites", &json!({ "name": name }))?;
    let made = client::one(made, "it is not an invite")?;
    let text = made.get("invite").and_then(Value::as_str);
    parse_invite(text.ok_or_else(|| Error::Answer("it has no invite".to_owned()))?)
}

/// Keeps the invite in the state of the Rack whose configuration was just written.
fn keep_invite(plan: &InitPlan, invite: RackInvite) -> Result<(), Error> {
    let sources = ConfigSources::of_process(&SCHEMA, Some(plan.path(files::RACK)), Vec::new());
    let settings = config::load(&SCHEMA, &sources).map_err(|bad| Error::Config(bad.to_string()))?;
    let config = RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
    let (data, is_new) = (&config.base.state_dir, !config.base.state_dir.exists());
    match rack::join(&config, invite, &os_entropy()) {
        Ok(_) => Ok(()),
        Err(error) => {
            if is_new {
                // Nothing but a lock and a key that nobody knows.
                let _ = std::fs::remove_dir_all(data);
            }
            Err(Error::Process {
                exit: error.exit(),
                reason: error.to_string(),
            })
        }
    }
}

/// What to do now, a command a line.
fn next_steps(plan: &InitPlan) -> String {
    let then = if plan.has_mixer() {
        format!(
            "  platform logs --wait 30s\nand where the Mixer has a scenario already, which it keeps:\n  platform scenario import {}\n  \
             platform scenario activate {}:{}",
            plan.path(files::SCENARIO).display(),
            files::scenario_name(plan),
            files::SCENARIO_VERSION
        )
    } else {
        format!(
            "what it does is said by the Mixer's scenario: one with a gear for {} has to be active there (platform scenario activate FILE)",
            plan.name
        )
    };
    let readable = match &plan.source {
        LogSource::Journal if !plan.is_for_services() => {
            Some("who runs the Rack must be root, or in the group systemd-journal".to_owned())
        }
        LogSource::File(file) if plan.is_for_services() => how_to_read(file),
        _ => None,
    };
    let start = format!("now:\n{}\n{then}", start_commands(plan));
    let parts = [readable, Some(start), former_mixer(plan)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The commands that start what was written. A Rack beside its Mixer is invited once that runs; the packages do so by themselves.
fn start_commands(plan: &InitPlan) -> String {
    let (mixer, rack) = (plan.path(files::MIXER), plan.path(files::RACK));
    let (mixer, rack) = (mixer.display(), rack.display());
    let invite = format!("  platform racks invite {} | ", plan.name);
    match (plan.is_for_services(), plan.has_mixer()) {
        (true, true) if Path::new(JOIN_LOCAL).exists() => "  systemctl restart platform-mixer platform".to_owned(),
        (true, true) => format!(
            "  systemctl restart platform-mixer\n{invite}runuser -u {SERVICE_USER} -- platform join -c {rack}\n  systemctl restart platform"
        ),
        (true, false) => "  systemctl restart platform".to_owned(),
        (false, true) => format!(
            "  platform-mixer -c {mixer} &\nonce that has said `ready`:\n{invite}platform join -c {rack}\n  platform -c {rack} &"
        ),
        (false, false) => format!("  platform -c {rack} &"),
    }
}

/// What lets the Rack's service read a file, where not everybody may.
fn how_to_read(file: &Path) -> Option<String> {
    // Others read the file, and pass its folders.
    let needed = |path: &Path| -> u32 { if path == file { 0o4 } else { 0o1 } };
    let closed = file.ancestors().find_map(|path| {
        let found = std::fs::metadata(path).ok()?;
        (found.mode() & needed(path) == 0).then_some((path, found))
    });
    let (path, found) = closed?;
    let group = Group::from_gid(Gid::from_raw(found.gid())).ok().flatten();
    let group = group.map_or_else(|| found.gid().to_string(), |group| group.name);
    if found.mode() & (needed(path) << 3) == 0 {
        return Some(format!(
            "{} is its owner's alone: let a group in that the service's user, {SERVICE_USER}, is in",
            path.display()
        ));
    }
    (group != SERVICE_USER).then(|| {
        format!(
            "the service's user may not read {}, which is for the group {group}: `systemctl edit platform`, and there\n  \
             [Service]\n  SupplementaryGroups={group}",
            file.display()
        )
    })
}

/// What becomes of a Mixer that was configured here when the Rack joins another one.
fn former_mixer(plan: &InitPlan) -> Option<String> {
    let file = plan.path(files::MIXER);
    if plan.has_mixer() || !file.exists() {
        return None;
    }
    let end = match plan.is_for_services() {
        true => "  systemctl disable --now platform-mixer",
        false => "stop it, and start it no more",
    };
    Some(format!(
        "the Mixer of {} stays as it is; where nobody needs it any more:\n{end}",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use nix::unistd::getegid;

    use super::*;

    #[test]
    fn a_service_is_told_the_group_of_a_log_file_that_is_not_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("syslog");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let group = Group::from_gid(getegid()).unwrap();
        let group = group.map_or_else(|| getegid().to_string(), |group| group.name);
        let said = |mode: u32| {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            how_to_read(&file)
        };
        let told = said(0o640).unwrap();
        assert!(told.contains("systemctl edit platform"), "{told}");
        assert!(
            told.ends_with(&format!("\n  [Service]\n  SupplementaryGroups={group}")),
            "{told}"
        );
        let alone = said(0o600).unwrap();
        assert!(
            alone.starts_with(&format!("{} is its owner's alone", file.display())),
            "{alone}"
        );
        // A folder that others may not pass counts too.
        let above = said(0o644).unwrap();
        assert!(
            above.starts_with(&format!("{} is its owner's alone", folder.path().display())),
            "{above}"
        );
        assert_eq!(how_to_read(Path::new("/etc/passwd")), None);
        assert_eq!(how_to_read(Path::new("/etc/there-is-no-such-file")), None);
    }

    #[test]
    fn a_rack_beside_its_mixer_is_invited_and_a_mixer_that_is_left_behind_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = InitPlan {
            folder: folder.path().to_owned(),
            name: "press-1".parse().unwrap(),
            source: LogSource::Journal,
            joins: None,
            replaces: true,
        };
        let invited = format!(
            "\n  platform racks invite press-1 | platform join -c {}/platform.toml\n",
            folder.path().display()
        );
        assert!(next_steps(&plan).contains(&invited), "{}", next_steps(&plan));
        std::fs::write(plan.path(files::MIXER), "").unwrap();
        assert_eq!(former_mixer(&plan), None);
        plan.joins = Some(InviteSource::AskedAt("http://mixer".to_owned()));
        assert!(
            next_steps(&plan).contains("platform-mixer.toml stays as it is"),
            "{}",
            next_steps(&plan)
        );
        assert!(!next_steps(&plan).contains("racks invite"));
        std::fs::remove_file(plan.path(files::MIXER)).unwrap();
        assert_eq!(former_mixer(&plan), None);
        plan.folder = SERVICE_FOLDER.into();
        plan.joins = None;
        let is_invited = start_commands(&plan)
            .contains("press-1 | runuser -u platform -- platform join -c /etc/platform/platform.toml\n");
        assert_eq!(
            is_invited,
            !Path::new(JOIN_LOCAL).exists(),
            "the packages do it by themselves"
        );
    }
}
