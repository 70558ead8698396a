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

mod file_replacement;
mod files;
mod next_steps;
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
use file_replacement::{WrittenFile, refuse_existing};
use questions::InitAnswers;

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
        return Err(refuse_existing(&there.join(" and ")));
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
    Ok(writeln!(io::stderr(), "{}", next_steps::next_steps(plan))?)
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
