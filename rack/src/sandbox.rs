//! Sandbox: confines the process of a Rack to the files that its configuration names, by Landlock.
//!
//! | may | beneath |
//! |---|---|
//! | read and write | `base.state_dir`, the folder of `base.state_file`, that of the log file |
//! | write | `policy.write_roots` |
//! | read | `policy.read_roots`, the folders of `platform.toml` and of other files that it names, and of the system `/etc`, `/usr`, `/proc`, `/sys` |
//! | execute | nothing; where `gears.exec.allow` lists programs, or `gears.journald.allow` is set, these, and what the system has for them to run |
//! | read | the journal, where `gears.journald.allow` is set |
//!
//! # Invariants
//!
//! - It holds for the thread that calls [`confine`] and for what that starts later: threads, and the programs of `exec` too. It is called before
//!   there are other threads, and nothing takes it back.
//! - Folders that are missing then are not opened later: those of the Rack itself are made first.
//! - Folders are named rather than files, because a rule is for the very file: one that is renamed into its place would not be covered.
//!   A file of the root folder is named itself: its folder is everything. A Rack that writes into the root folder cannot be confined.
//! - Links are followed: a rule is for what they lead to, such as the files of certificate authorities that `/etc/ssl` has links to.
//!
//! # Not here
//!
//! What gears may ask for (`policy`), which is bounded without a sandbox as well. The network. System calls: those the unit file denies.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use chassis::config::{Settings, ValueKind};
use durable_fs::parent_of;
use gear_spec::journald_in;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};

use crate::config::{RackConfig, SandboxMode};
use crate::error::Error;

/// The newest kernel interface whose rights are used.
const NEWEST: ABI = ABI::V5;
/// The oldest one that keeps the word: before it, files could be cut off anywhere.
const OLDEST: ABI = ABI::V3;

/// What is read of the system: names of hosts, certificates, time zones, figures of the host, and random bytes where the system call for them is
/// not linked.
const SYSTEM: [&str; 6] = ["/etc", "/usr", "/proc", "/sys", "/dev/urandom", "/dev/random"];
/// Devices that are written to as if they were nothing.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];
/// Folders with programs, and with what starts them.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"];
/// Folders of the journal.
const JOURNALS: [&str; 2] = ["/run/log/journal", "/var/log/journal"];
/// Keys whose paths are written to, and have rules of their own.
const WRITTEN: [&str; 4] = ["base.state_dir", "base.state_file", "store.dir", "logging.filename"];

/// How far a process is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxState {
    /// `policy.sandbox = "off"`.
    Off,
    /// As far as this version can.
    Whole,
    /// As far as an older kernel can.
    Partial,
    /// Not at all, and why.
    Missing(String),
}

impl fmt::Display for SandboxState {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => to.write_str("the sandbox is off (policy.sandbox)"),
            Self::Whole => to.write_str("Landlock confines this process to the files of its configuration"),
            Self::Partial => to.write_str(
                "Landlock confines this process to the files of its configuration, as far as this kernel can: it is older than Linux 6.10",
            ),
            Self::Missing(reason) => write!(to, "this process is not confined to the files of its configuration: {reason}"),
        }
    }
}

impl SandboxState {
    /// Says it in the log.
    pub fn log(&self) {
        match self {
            Self::Missing(_) => tracing::warn!("{self}"),
            _ => tracing::info!("{self}"),
        }
    }
}

/// Confines this thread, and what it starts from now on, to what a Rack with this configuration needs.
///
/// # Errors
/// If `policy.sandbox` requires it, and it cannot be.
pub fn confine(config: &RackConfig, settings: &Settings) -> Result<SandboxState, Error> {
    let level = match config.policy.sandbox {
        SandboxMode::Off => return Ok(SandboxState::Off),
        SandboxMode::Auto => CompatLevel::BestEffort,
        SandboxMode::Require => CompatLevel::HardRequirement,
    };
    make_folders(config);
    if let Some(folder) = own_folders(config).iter().find(|folder| is_root(folder)) {
        let reason = format!(
            "it writes into {}, the root folder (base.state_dir, base.state_file, logging.filename)",
            folder.display()
        );
        return match config.policy.sandbox {
            SandboxMode::Require => Err(required(format!("{reason}; give it a folder of its own"))),
            _ => Ok(SandboxState::Missing(reason)),
        };
    }
    let confined = restrict(&rules(config, settings), level);
    match confined {
        Ok(RulesetStatus::FullyEnforced) => Ok(SandboxState::Whole),
        Ok(RulesetStatus::PartiallyEnforced) => Ok(SandboxState::Partial),
        Ok(RulesetStatus::NotEnforced) => Ok(SandboxState::Missing(
            "this kernel has no Landlock, or something denies it (it is in Linux since 5.13; lsm= on its command line lists it)".to_owned(),
        )),
        Err(error) if config.policy.sandbox == SandboxMode::Require => Err(required(format!(
            "{error}; it needs Linux 6.2 or later with Landlock (lsm= on its command line lists it) that no container denies; or set it to auto"
        ))),
        Err(error) => Ok(SandboxState::Missing(error.to_string())),
    }
}

/// Why a sandbox that is required cannot be.
fn required(reason: String) -> Error {
    Error::Policy {
        key: "policy.sandbox",
        value: "require".to_owned(),
        reason,
    }
}

/// Paths with what may be done beneath them.
type SandboxRules = Vec<(Vec<PathBuf>, BitFlags<AccessFs>)>;

fn restrict(rules: &SandboxRules, level: CompatLevel) -> Result<RulesetStatus, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(OLDEST))?;
    let ruleset = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?;
    let mut created = ruleset.create()?;
    for (paths, access) in rules {
        // Paths that are not there are left out.
        created = created.add_rules(path_beneath_rules(paths, *access))?;
    }
    Ok(created.restrict_self()?.ruleset)
}

fn rules(config: &RackConfig, settings: &Settings) -> SandboxRules {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_write(NEWEST);
    let mut rules = vec![
        (own_folders(config), read | write),
        (config.policy.write_roots.clone(), write | AccessFs::ReadDir),
        (config.policy.read_roots.clone(), read),
        (named_folders(settings), read),
        (trusted_folders(), read),
        (SYSTEM.map(PathBuf::from).to_vec(), read),
        (
            DEVICES.map(PathBuf::from).to_vec(),
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
        ),
    ];
    let mut programs = config.gears_exec.allow.clone();
    if config.gears_journald.allow {
        programs.push(journald_in::PROGRAM.into());
        rules.push((JOURNALS.map(PathBuf::from).to_vec(), read));
    }
    if !programs.is_empty() {
        rules.push((PROGRAMS.map(PathBuf::from).to_vec(), read | AccessFs::Execute));
        rules.push((programs.iter().map(|program| folder_of(program)).collect(), read));
        rules.push((programs, AccessFs::ReadFile | AccessFs::Execute));
    }
    rules
}

/// Makes what the Rack would make later, and no other folders. What cannot be made is told by who needs it.
fn make_folders(config: &RackConfig) {
    // First and alone: it is private.
    crate::agent::create_state_dir(&config.base.state_dir).ok();
    durable_fs::create_dirs(config.logging.dir()).ok();
    let files = config.store.dir.join("files");
    let policy = &config.policy;
    if policy
        .read_roots
        .iter()
        .chain(&policy.write_roots)
        .any(|root| *root == files)
    {
        durable_fs::create_dirs(&files).ok();
    }
}

/// What the Rack keeps for itself.
fn own_folders(config: &RackConfig) -> Vec<PathBuf> {
    let state_file = durable_fs::parent_of(&config.base.state_file);
    let folders = [&*config.base.state_dir, state_file, config.logging.dir()];
    folders.map(Path::to_owned).to_vec()
}

/// What is opened for a file to be read: its folder, or the file alone where that is the root folder.
fn folder_of(file: &Path) -> PathBuf {
    let folder = parent_of(file);
    if is_root(folder) { file } else { folder }.to_owned()
}

/// Whether this is the root folder, under whatever name.
fn is_root(folder: &Path) -> bool {
    let real = folder.canonicalize();
    real.as_deref().unwrap_or(folder) == Path::new("/")
}

/// The same of a file as it is named, and of what it leads to.
fn folders_of(file: PathBuf) -> impl Iterator<Item = PathBuf> {
    let target = file.canonicalize().ok();
    [Some(file), target].into_iter().flatten().map(|file| folder_of(&file))
}

/// The folders of the files that a Rack reads by its configuration: of this itself, of keys and certificates, and of what resolves names.
fn named_folders(settings: &Settings) -> Vec<PathBuf> {
    let keys = settings
        .schema()
        .keys()
        .filter(|key| key.kind == ValueKind::Path && !WRITTEN.contains(&key.path));
    let named = keys.filter_map(|key| settings.some_text(key.path)).map(PathBuf::from);
    let files = settings.file().map(Path::to_owned).into_iter().chain(named);
    let resolver = PathBuf::from("/etc/resolv.conf");
    files.chain([resolver]).flat_map(folders_of).collect()
}

/// The folders of the certificate authorities that TLS trusts where nothing else is configured.
fn trusted_folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let probed = openssl_probe::probe();
    let files = [PathBuf::from(variable("SSL_CERT_FILE"))]
        .into_iter()
        .chain(probed.cert_file);
    let listed: Vec<_> = std::env::split_paths(&variable("SSL_CERT_DIR")).collect();
    let folders = listed.into_iter().chain(probed.cert_dir);
    let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
    authority_folders(files.filter(is_set), folders.filter(is_set))
}

/// These files and folders of certificates, and what they and the entries of the folders are links to: of an entry the very file, so that
/// a link opens nothing beside it.
fn authority_folders(files: impl Iterator<Item = PathBuf>, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut opened: BTreeSet<_> = files.flat_map(folders_of).collect();
    for folder in folders {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let targets = links.filter_map(|link| link.path().canonicalize().ok());
        opened.extend(targets.filter(|target| target.is_file()));
        opened.extend(folder.canonicalize());
    }
    opened.into_iter().collect()
}

#[cfg(test)]
mod tests;
