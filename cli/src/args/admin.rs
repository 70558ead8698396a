//! The flags of the commands that administer Racks, scenarios, gears and configuration files.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use model::scenario::GearPort;
use model::{HumanDuration, KeyFingerprint, Level, Token};

use super::shared::{ApiArgs, LEVELS, OutputFormat, PageArgs, one_of};

#[derive(Debug, ClapArgs)]
pub(crate) struct RacksArgs {
    #[command(subcommand)]
    pub(crate) verb: RacksVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RacksVerb {
    /// List all Racks and their states
    List(ApiArgs),
    /// Show one Rack
    Show(RackTargetArgs),
    /// Adopt a pending Rack
    Approve {
        /// Approve it under this name
        #[arg(long)]
        name: Option<Token>,
        /// The fingerprint that the Rack prints at its start (SHA256:…); asked for on a terminal
        #[arg(long, value_name = "FINGERPRINT")]
        key: Option<KeyFingerprint>,
        #[command(flatten)]
        rack: RackTargetArgs,
    },
    /// Make an invite, with which one Rack joins the cluster under this name: `platform join` on its machine
    Invite {
        /// The name under which the Rack is admitted
        name: Token,
        /// How long it admits a Rack, 30d at most [default: 1h]
        #[arg(long, value_name = "DURATION")]
        expires_in: Option<HumanDuration>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// List invites: open, used and expired ones
    Invites(ApiArgs),
    /// Revoke an open invite
    RevokeInvite {
        /// Its name or id
        invite: Token,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Stop a Rack's gears
    Suspend(RackTargetArgs),
    /// Start a suspended Rack's gears again
    Resume(RackTargetArgs),
    /// Revoke a Rack's identity, for ever
    Remove {
        #[command(flatten)]
        rack: RackTargetArgs,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Change the log level of a Rack until it restarts or its configuration file changes it
    LogLevel {
        #[command(flatten)]
        rack: RackTargetArgs,
        /// debug, info, warn or error
        #[arg(hide_possible_values = true, value_parser = one_of::<Level>(LEVELS))]
        level: Level,
    },
    /// Change the labels by which groups of a scenario select a Rack
    Label {
        #[command(flatten)]
        rack: RackTargetArgs,
        /// KEY=VALUE sets a label, KEY- removes it; others stay. Without any the labels are shown
        #[arg(value_name = "CHANGE")]
        changes: Vec<LabelChange>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CatalogArgs {
    /// Only this table
    pub(crate) table: Option<String>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RequestsArgs {
    #[command(subcommand)]
    pub(crate) verb: RequestsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestsVerb {
    /// List the changes that wait: who asked for what, until when
    List(ApiArgs),
    /// Forget a change that waits
    Withdraw {
        /// Its id
        id: u64,
        #[command(flatten)]
        api: ApiArgs,
    },
}

/// What becomes of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabelChange {
    /// It has this value.
    Set(Token, String),
    /// It is taken away.
    Remove(Token),
}

impl std::str::FromStr for LabelChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = |key: &str| key.parse::<Token>().map_err(|error| error.to_string());
        if let Some((name, value)) = text.split_once('=') {
            return Ok(Self::Set(key(name)?, value.to_owned()));
        }
        match text.strip_suffix('-') {
            Some(name) => Ok(Self::Remove(key(name)?)),
            None => Err("a label change is KEY=VALUE, or KEY- to remove the label".to_owned()),
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RackTargetArgs {
    /// The Rack's id or name
    pub(crate) rack: String,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TapArgs {
    /// An output: the Rack's name or id, the gear, its port
    #[arg(value_name = "RACK.GEAR.PORT", value_parser = endpoint)]
    pub(crate) port: GearPort,
    /// Stop after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after this long, such as 30s
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) time: Option<HumanDuration>,
    /// Print one JSON object a line: the same as --output ndjson
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

fn endpoint(text: &str) -> Result<GearPort, String> {
    GearPort::try_from(text.to_owned()).map_err(|error| format!("{error}; an output is RACK.GEAR.PORT"))
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<AuditVerb>,
    /// Only of this Rack: its id, or its name at that time
    #[arg(long)]
    pub(crate) rack: Option<String>,
    /// Only of this kind: rack_pending, rack_approved, rack_adopted, rack_suspended, rack_resumed, rack_removed,
    /// rack_renamed, rack_offline, rack_online, rack_log_level, rack_labels, scenario_imported, scenario_activated,
    /// scenario_rolled_back, scenario_deleted, letters_replayed, letters_dropped, token_created, token_revoked, invite_created,
    /// invite_revoked, invite_refused, change_requested, request_withdrawn, call_refused, backup_made, backup_restored,
    /// cluster_key_rotated or bus_authority_rotated
    #[arg(long)]
    pub(crate) kind: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Check that no entry was changed, dropped or inserted: the hash chain of the entries, and the signed checkpoints of it
    Verify {
        /// Checkpoints that were kept elsewhere: a file with a JSON object a line, as events and `platform audit checkpoints -o ndjson` have them
        #[arg(long, value_name = "FILE")]
        checkpoints: Option<PathBuf>,
        /// The fingerprint of a key of the cluster (SHA256:…), from where you keep it: the first, the present or any between.
        /// It must have signed the checkpoints, or keys that successions link with it [default: the key that the Mixer shows]
        #[arg(long, value_name = "FINGERPRINT")]
        cluster_key: Option<KeyFingerprint>,
        /// How long the Mixer keeps entries (`audit.keep`): those of a younger checkpoint must be there
        #[arg(long, value_name = "DURATION", default_value = "90d")]
        keep: HumanDuration,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// List the signed checkpoints of the hash chain, the newest first: keep them away from the Mixer's machine
    Checkpoints {
        /// Maximum number of checkpoints
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        api: ApiArgs,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScenarioArgs {
    #[command(subcommand)]
    pub(crate) verb: ScenarioVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioVerb {
    /// Check a scenario file
    Validate {
        /// The file
        file: PathBuf,
        /// Maximum hops of a message: `mixer.max_hops` of the Mixer that is to run it
        #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
        max_hops: u16,
        /// Treat warnings as faults: exit code 65. Whether a group is empty is judged by the file alone
        #[arg(long)]
        strict: bool,
    },
    /// Run the cases of a test file with real gears, without a Mixer and without a bus; exit code 1 if one fails
    ///
    /// Gears that reach outside (sockets, files, log records) are not started: what they would send is given by the file, and what
    /// they are sent is recorded.
    Test {
        /// The file: a scenario, or its path, and cases
        file: PathBuf,
        /// How to print
        #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
        output: OutputFormat,
    },
    /// Store a scenario file at the Mixer; the same content again changes nothing
    Import {
        /// The file
        file: PathBuf,
        /// Replace another content that is stored under its name and version
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// List the scenarios that the Mixer knows
    List(ApiArgs),
    /// Print a stored scenario as it was imported
    Show {
        /// name:version, name:latest, name, or the beginning of a hash
        reference: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Compare two scenarios by meaning: gears, their configuration, wires, Racks
    Diff {
        /// A file or a stored scenario
        from: String,
        /// The file or stored scenario to compare it with
        to: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Have the Racks run a scenario; exit code 69 if not all do in time
    Activate {
        /// A stored scenario, or a file that is stored first
        scenario: String,
        /// Refuse it with exit code 65 if there is a warning, such as a group that no adopted Rack is in; a file is stored all the
        /// same
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        how: ActivationArgs,
    },
    /// Show what each Rack should run, what it runs, and why not
    Status(ApiArgs),
    /// Activate the previously active scenario, each time one further back
    Rollback(ActivationArgs),
    /// Delete a stored scenario that is not active; a rollback can still restore it
    Delete {
        /// name:version, name:latest, name, or the beginning of a hash
        reference: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Draw a scenario
    Graph(GraphArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ActivationArgs {
    /// Only show which Racks it affects, what they run, and what happens to wires of lane guaranteed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Where wires resume that an activation paused
    #[arg(long, value_enum, default_value_t = ResumePointArg::Floor)]
    pub(crate) resume_from: ResumePointArg,
    /// How long to wait for the Racks, at most 100s [default: as the Mixer is configured]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResumePointArg {
    /// Where they were paused: messages that waited since are delivered
    Floor,
    /// With messages from now on
    Now,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SpecArgs {
    #[command(subcommand)]
    pub(crate) verb: SpecVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpecVerb {
    /// Check spec files, each alone and all together; needs no Mixer
    Validate {
        /// Files, and folders of files
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// List the specs in force, how many messages they have, and which files the Mixer refuses
    List(ApiArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GraphArgs {
    /// A file or a stored scenario
    pub(crate) scenario: String,
    /// How to draw
    #[arg(long, short, value_enum, default_value_t = GraphFormat::Mermaid)]
    pub(crate) format: GraphFormat,
    /// The Mixer's API [default: the Mixer of the last `platform login`, else http://localhost:8090]
    #[arg(long, env = "PLATFORM_API_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) api_url: Option<String>,
}

impl GraphArgs {
    /// Where to ask.
    pub(crate) fn api(&self) -> ApiArgs {
        ApiArgs {
            api_url: self.api_url.clone(),
            output: OutputFormat::Table,
            utc: false,
            no_pager: true,
            wide: true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Text that Markdown viewers render
    Mermaid,
    /// A self-contained picture
    Svg,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GearsArgs {
    #[command(subcommand)]
    pub(crate) verb: GearsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GearsVerb {
    /// List the gear types with their ports
    List {
        /// How to print
        #[arg(long, short, value_enum, default_value_t = OutputFormat::Table)]
        output: OutputFormat,
        /// Show all columns of the table, whole; without it, a table on a terminal has what fits
        #[arg(long)]
        wide: bool,
    },
    /// Describe a gear type, or all, in Markdown: ports, configuration, an example
    Doc {
        /// The type
        #[arg(value_name = "TYPE")]
        kind: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigFileVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigFileVerb {
    /// Print the merged configuration, secrets redacted
    Show {
        /// Show where each value came from
        #[arg(long)]
        origin: bool,
    },
    /// Print a commented default platform.toml
    Init,
    /// Convert a v0.4.4 file to the current form; standard error says what changed and what is left to do
    Migrate {
        /// The file
        file: PathBuf,
    },
}
