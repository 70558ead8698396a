//! Checks of values that go beyond a key's type: addresses that are open to others, keys that do not go together, what this version
//! does not have.

use std::net::IpAddr;

use chassis::config::{ConfigErrors, ConfigProblem, Settings};

use crate::bus_server::check_stream_subjects;

/// What is right for the tools, and refused at a start of the Mixer.
///
/// # Errors
/// All of it at once.
pub fn check_start(settings: &Settings) -> Result<(), ConfigErrors> {
    ConfigErrors::unless_empty(
        bad_subjects(settings)
            .into_iter()
            .chain(unsupported(settings))
            .collect(),
    )
}

/// Keys of the specification that this version does not have: who sets one is told so.
fn unsupported(settings: &Settings) -> impl Iterator<Item = ConfigProblem> + '_ {
    let is_set = |key: &'static str| settings.some_text(key).is_some();
    let without_proxy = "is not in this version: remove it and put a TLS-terminating proxy in front";
    [
        (
            "observability.tier",
            settings.text("observability.tier") == "otlp",
            "\"otlp\" is not in this version: use \"embedded\"",
        ),
        (
            "observability.otlp.messages.enabled",
            settings.bool("observability.otlp.messages.enabled"),
            "true is not in this version: set it to false",
        ),
        ("api.tls_cert", is_set("api.tls_cert"), without_proxy),
        ("api.tls_key", is_set("api.tls_key"), without_proxy),
        (
            "api.tokens_file",
            is_set("api.tokens_file"),
            "is not in this version: remove it and keep api.host on loopback",
        ),
    ]
    .into_iter()
    .filter(|(_, is_set, _)| *is_set)
    .map(|(key, _, sentence)| ConfigProblem::Conflict {
        place: settings.place(key),
        key,
        sentence: sentence.to_owned(),
    })
}

/// Subjects that the bus's streams cannot capture.
fn bad_subjects(settings: &Settings) -> Option<ConfigProblem> {
    let checked = check_stream_subjects(settings.list("snake.stream_subjects"));
    checked.err().map(|(subject, reason)| ConfigProblem::Conflict {
        place: settings.place("snake.stream_subjects"),
        key: "snake.stream_subjects",
        sentence: format!("{subject:?} {reason}"),
    })
}

/// The address of a host key; a problem if it is none.
pub(super) fn host(settings: &Settings, key: &'static str, problems: &mut Vec<ConfigProblem>) -> IpAddr {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    match settings.text(key) {
        "localhost" => loopback,
        text => text.parse().unwrap_or_else(|_| {
            problems.push(ConfigProblem::BadValue {
                place: settings.place(key),
                key,
                value: format!("{text:?}"),
                wanted: "an IP address such as 127.0.0.1 or 0.0.0.0, or localhost".to_owned(),
            });
            loopback
        }),
    }
}

/// Addresses that others can reach although nobody is asked who they are.
pub(super) fn exposed(settings: &Settings, api: IpAddr, postgres: IpAddr, snake: IpAddr) -> Vec<ConfigProblem> {
    let managed = settings.text("snake.server") == "managed";
    let cases = [
        ("api.host", api, "api.allow_insecure", false, ""),
        ("postgres.host", postgres, "postgres.allow_insecure", false, ""),
        (
            "snake.host",
            snake,
            "snake.allow_insecure",
            !managed || settings.some_text("snake.token").is_some(),
            "set PLATFORM_SNAKE_TOKEN, ",
        ),
    ];
    let mut problems = Vec::new();
    for (key, host, allow, guarded, guard) in cases {
        if !host.is_loopback() && !guarded && !settings.bool(allow) {
            problems.push(ConfigProblem::Conflict {
                place: settings.place(key),
                key,
                sentence: format!(
                    "{host} can be reached from other machines without authentication: use 127.0.0.1, {guard}or set \
                     {allow} = true on a trusted network"
                ),
            });
        }
    }
    problems
}

/// Users of a server that is somebody else's.
pub(super) fn credentials_of_another(settings: &Settings) -> Option<ConfigProblem> {
    let another = settings.text("snake.server") == "external" && settings.text("snake.rack_credentials") == "on";
    another.then(|| ConfigProblem::Conflict {
        place: settings.place("snake.rack_credentials"),
        key: "snake.rack_credentials",
        sentence:
            "the users of an external server are kept by whoever runs it: set it to auto, or snake.server to managed"
                .to_owned(),
    })
}

pub(super) fn bad_hash(settings: &Settings) -> Option<ConfigProblem> {
    let text = settings.some_text("snake.server_sha256")?;
    let fits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (!fits).then(|| ConfigProblem::BadValue {
        place: settings.place("snake.server_sha256"),
        key: "snake.server_sha256",
        value: format!("{text:?}"),
        wanted: "64 hexadecimal digits, as sha256sum prints them".to_owned(),
    })
}
