//! The flags of what administers Racks, scenarios, gears and configuration files.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use model::Token;

use super::shared::{ApiArgs, Format};

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
    Show(OneRack),
    /// Adopt a pending Rack
    Approve {
        /// Give it this name
        #[arg(long)]
        name: Option<Token>,
        #[command(flatten)]
        rack: OneRack,
    },
    /// Stop a Rack's gears
    Suspend(OneRack),
    /// Start a suspended Rack's gears again
    Resume(OneRack),
    /// Revoke a Rack's identity
    Remove(OneRack),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct OneRack {
    /// The Rack's id or name
    pub(crate) rack: String,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
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
    },
    /// List the scenarios that the Mixer knows
    List(ApiArgs),
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
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the merged configuration, secrets redacted
    Show {
        /// Say where each value came from
        #[arg(long)]
        origin: bool,
    },
    /// Print a commented default platform.toml
    Init,
    /// Print the current form of a v0.4.4 file; standard error says what changed and what is left to do
    Migrate {
        /// The file
        file: PathBuf,
    },
}
