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
//! - Each file is written as one step, and follows no link. Where a later step fails, all are as they were.
//! - Without a terminal nothing is asked: it is an error that names the flag.
//!
//! # Not here
//!
//! What the keys mean (`rack`, `mixer`), what becomes of an invite (`commands::join`).

mod files;
mod questions;

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use chassis::config::{self, ConfigSources};
use chassis::os_entropy;
use model::{RackInvite, Token};
use rack::config::{RackConfig, SCHEMA};
use serde_json::{Value, json};

use crate::args::{ApiArgs, InitArgs, OutputFormat};
use crate::client::{self, ApiClient};
use crate::error::Error;
use files::WrittenFile;

/// Where the units of the packages find their configuration.
const SERVICE_FOLDER: &str = "/etc/platform";
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
    let answers = questions::ask(args)?;
    let failed = |source| Error::WriteFile {
        path: args.dir.clone(),
        source,
    };
    let is_new = !args.dir.exists();
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    let folder = std::fs::canonicalize(&args.dir).map_err(failed)?;
    if is_new && folder == Path::new(SERVICE_FOLDER) {
        // The services' users look into it, whatever the umask is.
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).map_err(failed)?;
    }
    let joins = match (&args.invite, answers.mixer) {
        (Some(text), _) => Some(InviteSource::Given(parsed(&given(text)?)?)),
        (None, url) => url.map(InviteSource::AskedAt),
    };
    let plan = InitPlan {
        folder,
        name: match &joins {
            Some(InviteSource::Given(invite)) => invite.name.clone(),
            _ => answers.name,
        },
        source: answers.source,
        joins,
        replaces: args.force,
    };
    if !plan.replaces {
        refuse_replacing(&plan)?;
    }
    if plan.has_mixer() && plan.is_for_services() && files::has_invite(&files::old_environment(&plan)?) {
        return Err(Error::Usage(format!(
            "{SERVICE_FOLDER}/platform.env has an invite, with which the Rack would join another Mixer than that of this machine, and nothing was \
             written: remove its line PLATFORM_RACK_INVITE"
        )));
    }
    carry_out(&plan)
}

fn refuse_replacing(plan: &InitPlan) -> Result<(), Error> {
    let there: Vec<String> = files::names(plan.is_for_services(), plan.has_mixer())
        .map(|name| plan.path(name))
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    match there.as_slice() {
        [] => Ok(()),
        there => Err(files::taken(&there.join(" and "))),
    }
}

fn carry_out(plan: &InitPlan) -> Result<(), Error> {
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
    for file in files::of(plan)? {
        written.push(file.write(plan.replaces)?);
    }
    let Some(source) = &plan.joins else {
        return Ok(());
    };
    let old = plan
        .is_for_services()
        .then(|| files::old_environment(plan))
        .transpose()?;
    let invite = match source {
        InviteSource::Given(invite) => invite.clone(),
        InviteSource::AskedAt(url) => made_at(url, &plan.name)?,
    };
    match old {
        Some(old) => {
            written.push(files::environment(plan, &old, &invite)?.write(plan.replaces)?);
            Ok(())
        }
        None => keep(plan, invite),
    }
}

/// The invite of a flag, or of standard input.
fn given(text: &str) -> Result<String, Error> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn parsed(text: &str) -> Result<RackInvite, Error> {
    text.parse::<RackInvite>()
        .map_err(|error| Error::Usage(format!("the invite: {error}")))
}

/// An invite that the Mixer makes for this name.
fn made_at(url: &str, name: &Token) -> Result<RackInvite, Error> {
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
    parsed(text.ok_or_else(|| Error::Answer("it has no invite".to_owned()))?)
}

/// Keeps the invite in the state of the Rack whose configuration was just written.
fn keep(plan: &InitPlan, invite: RackInvite) -> Result<(), Error> {
    let sources = ConfigSources::of_process(&SCHEMA, Some(plan.path(files::RACK)), Vec::new());
    let settings = config::load(&SCHEMA, &sources).map_err(|bad| Error::Config(bad.to_string()))?;
    let config = RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
    rack::join(&config, invite, &os_entropy()).map_err(|error| Error::Process {
        exit: error.exit(),
        reason: error.to_string(),
    })?;
    Ok(())
}

/// What to do now, a command a line.
fn next_steps(plan: &InitPlan) -> String {
    let path = |name: &str| plan.path(name).display().to_string();
    let start = match (plan.is_for_services(), plan.has_mixer()) {
        (true, true) => "  systemctl restart platform-mixer platform".to_owned(),
        (true, false) => "  systemctl restart platform".to_owned(),
        (false, true) => format!(
            "  platform-mixer -c {} &\n  platform -c {} &",
            path(files::MIXER),
            path(files::RACK)
        ),
        (false, false) => format!("  platform -c {} &", path(files::RACK)),
    };
    let then = if plan.has_mixer() {
        format!(
            "  platform logs --wait 30s\nand where the Mixer has a scenario already, which it keeps:\n  platform scenario import {}\n  \
             platform scenario activate {}:{}",
            path(files::SCENARIO),
            files::scenario_name(plan),
            files::SCENARIO_VERSION
        )
    } else {
        format!(
            "what it does is said by the Mixer's scenario: one with a gear for {} has to be active there (platform scenario activate FILE)",
            plan.name
        )
    };
    let group = match plan.source {
        LogSource::Journal if !plan.is_for_services() => {
            "(who runs the Rack must be root, or in the group systemd-journal)\n"
        }
        _ => "",
    };
    format!("now:\n{start}\n{group}{then}")
}
