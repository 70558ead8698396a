//! The flags of the commands about who may call a Mixer: logins and API tokens.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use model::{HumanDuration, Token};

use super::shared::{ApiArgs, one_of};

const ROLES: &[&str] = &[
    "monitor", "reader", "ingester", "author", "operator", "admin", "auditor",
];
const TABLES: &[&str] = &["logs", "traces", "metrics", "messages", "dead_letters"];

#[derive(Debug, ClapArgs)]
pub(crate) struct LoginArgs {
    /// The Mixer's API
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Allow sending the token in clear text to another machine
    #[arg(long)]
    pub(crate) allow_insecure: bool,
    /// PEM file of the authorities that the Mixer's certificate may be of, in the place of the system's (or PLATFORM_CA_FILE)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// PEM file of the certificate that the Mixer asks clients for (or PLATFORM_CLIENT_CERT)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// PEM file of its key (or PLATFORM_CLIENT_KEY)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogoutArgs {
    /// The Mixer's API [default: that of the last login]
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// List the tokens: their roles and scopes, who made them, when they were last used
    List(ApiArgs),
    /// Make a token and print its secret, once
    Create(TokenCreateArgs),
    /// Revoke a token, for ever: it opens nothing from then on
    Revoke {
        /// Its name or id
        token: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Print a new random token for `api.tokens_file`; needs no Mixer
    Generate,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TokenCreateArgs {
    /// What it is called; the user name of PostgreSQL clients
    pub(crate) name: Token,
    /// What it is for, comma separated: monitor, reader, ingester, author, operator, admin or auditor
    #[arg(long = "role", required = true, value_delimiter = ',', value_name = "ROLE", hide_possible_values = true, value_parser = one_of::<String>(ROLES))]
    pub(crate) roles: Vec<String>,
    /// Only rows of these tables, comma separated: logs, traces, metrics, messages, dead_letters
    #[arg(long = "table", value_delimiter = ',', value_name = "TABLE", hide_possible_values = true, value_parser = one_of::<String>(TABLES))]
    pub(crate) tables: Vec<String>,
    /// Only rows of these entities, by name or id, comma separated
    #[arg(long = "entity", value_delimiter = ',', value_name = "ENTITY")]
    pub(crate) entities: Vec<String>,
    /// Only Racks with this label; may be repeated
    #[arg(long = "rack-label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) racks: Vec<(String, String)>,
    /// How long it opens anything, such as 90d [default: for ever]
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires_in: Option<HumanDuration>,
    /// A quota in the place of the Mixer's: requests, queries, scanned_mb, ingest_mb or stored_mb, and a whole number; may be repeated
    #[arg(long = "quota", value_name = "QUOTA=NUMBER", value_delimiter = ',', value_parser = quota)]
    pub(crate) quotas: Vec<(String, u64)>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

fn quota(text: &str) -> Result<(String, u64), String> {
    let wrong = || "a quota is its name, =, and a whole number, such as requests=10".to_owned();
    let (name, number) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), number.parse().map_err(|_| wrong())?))
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text
        .split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "a label is KEY=VALUE".to_owned())
}
