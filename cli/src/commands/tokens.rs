//! `platform login`, `logout`, `whoami` and `token`: who this user is to a Mixer, and the API tokens of others.

use std::io::{self, BufRead, IsTerminal, Write};

use nix::sys::termios::{self, LocalFlags, SetArg};
use serde_json::{Map, Value, json};

use crate::api_tls::ApiTlsFiles;
use crate::args::{ApiArgs, LoginArgs, LogoutArgs, OutputFormat, TokenArgs, TokenCreateArgs, TokenVerb};
use crate::client::{self, ApiClient, Row};
use crate::confirmation::is_confirmed;
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::login::{LOCAL_MIXER, LoginFile, MixerLogin, refuse_clear_text};
use crate::output::{RowPrinter, plain};
use crate::span_tree::text;

const COLUMNS: &[&str] = &[
    "name",
    "id",
    "roles",
    "scope",
    "quotas",
    "created_by",
    "expires",
    "last_used",
];
const ONE: &[&str] = &[
    "name",
    "id",
    "roles",
    "scope",
    "quotas",
    "created",
    "created_by",
    "expires",
    "last_used",
];

/// Keeps a token, once the Mixer has said whose it is.
pub(crate) fn login(args: &LoginArgs) -> Result<(), Error> {
    let url = args.url.trim_end_matches('/').to_owned();
    if !args.allow_insecure {
        refuse_clear_text(&url)?;
    }
    let token = read_token()?;
    let tls = ApiTlsFiles {
        ca_file: args.ca_file.clone(),
        client_cert: args.client_cert.clone(),
        client_key: args.client_key.clone(),
    };
    let tls = tls.absolute()?;
    let caller = ApiClient::with_token(&url, token.clone(), tls.clone().or_environment()).get("/api/v1/whoami", &())?;
    let caller = client::one(caller, "it does not say who the caller is")?;
    let mut file = LoginFile::read()?;
    let login = MixerLogin {
        token,
        allow_insecure: args.allow_insecure,
        tls,
    };
    file.mixers.insert(url.clone(), login);
    file.default = Some(url.clone());
    let path = file.write()?;
    let who = caller.get("caller").and_then(Value::as_str).unwrap_or_default();
    writeln!(
        io::stderr(),
        "platform: {url} knows you as {who}; kept in {}",
        path.display()
    )?;
    Ok(())
}

/// Forgets the token of a Mixer.
pub(crate) fn logout(args: &LogoutArgs) -> Result<(), Error> {
    let mut file = LoginFile::read()?;
    let url = args
        .url
        .clone()
        .or_else(|| file.default.clone())
        .unwrap_or_else(|| LOCAL_MIXER.to_owned());
    let url = url.trim_end_matches('/').to_owned();
    if file.mixers.remove(&url).is_none() {
        return Err(Error::NotFound(format!("no token is kept for {url}")));
    }
    if file.default.as_ref() == Some(&url) {
        file.default = None;
    }
    file.write()?;
    Ok(())
}

/// A line of standard input, which a terminal does not show.
fn read_token() -> Result<String, Error> {
    let input = io::stdin();
    let shown = if input.is_terminal() {
        write!(io::stderr(), "Token: ")?;
        let shown = termios::tcgetattr(&input).map_err(io::Error::from)?;
        let mut hidden = shown.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        termios::tcsetattr(&input, SetArg::TCSANOW, &hidden).map_err(io::Error::from)?;
        Some(shown)
    } else {
        None
    };
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if let Some(shown) = shown {
        termios::tcsetattr(&input, SetArg::TCSANOW, &shown).map_err(io::Error::from)?;
        writeln!(io::stderr())?;
    }
    read?;
    match line.trim() {
        "" => Err(Error::Usage("no token came on standard input".to_owned())),
        token => Ok(token.to_owned()),
    }
}

pub(crate) fn whoami(api: &ApiArgs) -> Result<(), Error> {
    let caller = ApiClient::new(api).get("/api/v1/whoami", &())?;
    print(caller, &["caller", "roles", "scope"], api)
}

pub(crate) fn run(args: &TokenArgs) -> Result<(), Error> {
    match &args.verb {
        TokenVerb::List(api) => {
            let page = ApiClient::new(api).page("/api/v1/tokens", &())?;
            RowPrinter::from(api).rows(&page.rows, COLUMNS)?;
            super::notes(&page, "no tokens; `platform token create NAME --role ROLE` makes one")
        }
        TokenVerb::Create(args) => create(args),
        TokenVerb::Revoke { token, yes, api } => revoke(token, *yes, api),
        TokenVerb::Generate => Ok(writeln!(io::stdout(), "{}", generate())?),
    }
}

/// Makes a token: its secret goes to standard output, what is said about it to standard error.
fn create(args: &TokenCreateArgs) -> Result<(), Error> {
    let labels: Map<String, Value> = args
        .racks
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    let quotas: Map<String, Value> = args
        .quotas
        .iter()
        .map(|(name, number)| (name.clone(), (*number).into()))
        .collect();
    let mut body = json!({
        "name": args.name,
        "roles": args.roles,
        "quotas": quotas,
        "scope": { "tables": args.tables, "entities": args.entities, "racks": labels },
    });
    if let Some(lifetime) = args.expires_in {
        body["expires_in"] = lifetime.to_string().into();
    }
    let made = ApiClient::new(&args.api).post("/api/v1/tokens", &body)?;
    let mut made = client::one(made, "it is not a token")?;
    if args.api.output != OutputFormat::Table {
        return Ok(RowPrinter::from(&args.api).rows(&[made], ONE)?);
    }
    let secret = made.remove("token");
    let secret = secret
        .as_ref()
        .and_then(Value::as_str)
        .ok_or_else(|| Error::Answer("it has no token".to_owned()))?;
    writeln!(io::stdout(), "{secret}")?;
    let expires = made
        .get("expires")
        .and_then(Value::as_str)
        .map_or_else(String::new, |at| format!(", until {at}"));
    writeln!(
        io::stderr(),
        "platform: token {} for {}{expires}; it is not shown again",
        args.name,
        args.roles.join(" and ")
    )?;
    Ok(())
}

/// Revokes a token that somebody is sure about.
fn revoke(token: &str, is_sure: bool, api: &ApiArgs) -> Result<(), Error> {
    let mut token: model::Token = token
        .parse()
        .map_err(|error: model::BadToken| Error::Usage(error.to_string()))?;
    let client = ApiClient::new(api);
    if !is_sure {
        let all = client.page("/api/v1/tokens", &())?.rows;
        let is_meant = |row: &&Row| ["name", "id"].iter().any(|key| text(row, key) == token.as_str());
        let meant = all.iter().find(is_meant);
        let meant = meant.ok_or_else(|| Error::NotFound(format!("there is no token {token}")))?;
        let roles = meant.get("roles").and_then(Value::as_array).into_iter().flatten();
        let roles: Vec<_> = roles.map(plain).collect();
        let used = match text(meant, "last_used") {
            "" => "never used".to_owned(),
            at => format!("last used {}", RowPrinter::from(api).time_and_age(at)),
        };
        let id = text(meant, "id");
        let (name, roles) = (escape_controls(text(meant, "name")), roles.join(" and "));
        let shown = format!("{name} ({roles}, {used}, {})", escape_controls(id));
        let would = format!("the token {shown} would be revoked for ever");
        let question = format!("Revoke the token {shown} for ever? Whoever uses it is refused at once.");
        if !is_confirmed(&would, &question)? {
            return Err(Error::Usage(format!("the token {token} was not revoked")));
        }
        // Another one may have the name by now.
        token = id
            .parse()
            .map_err(|error: model::BadToken| Error::Answer(error.to_string()))?;
    }
    let gone = client.post(&format!("/api/v1/tokens/{token}/revoke"), &json!({}))?;
    print(gone, ONE, api)
}

/// A token for `api.tokens_file`, of the system's random numbers.
fn generate() -> String {
    let bytes = chassis::os_entropy().bytes::<32>();
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("plt_{}", digits.concat())
}

fn print(answer: Value, columns: &[&str], api: &ApiArgs) -> Result<(), Error> {
    let row = client::one(answer, "it is not a token")?;
    Ok(RowPrinter::from(api).rows(&[row], columns)?)
}
