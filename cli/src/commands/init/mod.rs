//! `platform init`: writes the configuration of a first Mixer and Rack, or of a Rack that joins, and a first scenario.
//!
//! ```text
//! flags, answers on a terminal ─▶ InitPlan ─▶ files (files) ─▶ an invite, if one is given or a Mixer is asked for one
//! ```
//!
//! | folder | what lies there afterwards |
//! |---|---|
//! | `/etc/platform` ([`SERVICE_FOLDER`]) | what the units of the packages read; data is in `/var/lib`; the invite is in `platform.env`, for root alone |
//! | any other | all of it; data is in `data` there; the invite is in the Rack's state already |
//!
//! # Invariants
//!
//! - Nothing is replaced without `--force`; where one file is there already, none is written.
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
use files::NewFile;

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

/// What is to be written.
#[derive(Debug, Clone)]
struct InitPlan {
    /// An absolute path.
    folder: PathBuf,
    name: Token,
    source: LogSource,
    /// Whether this machine gets a Mixer too.
    has_mixer: bool,
    invite: Option<RackInvite>,
}

impl InitPlan {
    fn is_for_services(&self) -> bool {
        self.folder == Path::new(SERVICE_FOLDER)
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
    let has_mixer = args.invite.is_none() && answers.mixer.is_none();
    if !args.force {
        // Before a Mixer is asked for an invite.
        refuse_replacing(&folder, has_mixer)?;
    }
    let invite = match (&args.invite, &answers.mixer) {
        (Some(text), _) => Some(parsed(&given(text)?)?),
        (None, Some(url)) => Some(made_at(url, &answers.name)?),
        (None, None) => None,
    };
    let plan = InitPlan {
        folder,
        name: invite.as_ref().map_or(answers.name, |invite| invite.name.clone()),
        source: answers.source,
        has_mixer,
        invite,
    };
    carry_out(&plan)
}

fn refuse_replacing(folder: &Path, has_mixer: bool) -> Result<(), Error> {
    let names = files::names(folder == Path::new(SERVICE_FOLDER), has_mixer);
    let there: Vec<String> = names
        .map(|name| folder.join(name))
        .filter(|path| path.exists())
        .map(|path| path.display().to_string())
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} would be replaced, and nothing was written: --force replaces, --dir names another folder",
        there.join(" and ")
    )))
}

fn carry_out(plan: &InitPlan) -> Result<(), Error> {
    for NewFile { path, text, mode } in files::of(plan)? {
        files::write(&path, &text, mode).map_err(|source| Error::WriteFile {
            path: path.clone(),
            source,
        })?;
        writeln!(io::stdout(), "{}", path.display())?;
    }
    if let Some(invite) = plan.invite.clone().filter(|_| !plan.is_for_services()) {
        keep(plan, invite)?;
    }
    Ok(writeln!(io::stderr(), "{}", next_steps(plan))?)
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
    let start = match (plan.is_for_services(), plan.has_mixer) {
        (true, true) => "  systemctl restart platform-mixer platform".to_owned(),
        (true, false) => "  systemctl restart platform".to_owned(),
        (false, true) => format!(
            "  platform-mixer -c {} &\n  platform -c {} &",
            path(files::MIXER),
            path(files::RACK)
        ),
        (false, false) => format!("  platform -c {} &", path(files::RACK)),
    };
    let then = if plan.has_mixer {
        "  platform logs --wait 30s".to_owned()
    } else {
        format!(
            "and as an operator of the Mixer, unless its Racks have a scenario:\n  platform scenario import {}\n  platform scenario activate {}:1",
            path(files::SCENARIO),
            files::SCENARIO_NAME
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
