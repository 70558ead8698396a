//! Checks of values that go beyond a key's type: addresses that are open to others, keys that do not go together, what this version
//! does not have.

use chassis::config::{ConfigErrors, ConfigProblem, Settings};

use super::{BusServerConfig, MixerConfig, ServerMode};
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

/// Addresses that others can reach although nobody is asked who they are.
pub(super) fn exposed(settings: &Settings, config: &MixerConfig) -> Vec<ConfigProblem> {
    let (api, postgres, snake) = (&config.api, &config.postgres, &config.snake);
    let is_guarded = snake.server == ServerMode::External || snake.token.is_some();
    let cases = [
        ("api.host", api.host, "api.allow_insecure", api.allow_insecure, ""),
        (
            "postgres.host",
            postgres.host,
            "postgres.allow_insecure",
            postgres.allow_insecure,
            "",
        ),
        (
            "snake.host",
            snake.host,
            "snake.allow_insecure",
            snake.allow_insecure || is_guarded,
            "set PLATFORM_SNAKE_TOKEN, ",
        ),
    ];
    let mut problems = Vec::new();
    for (key, host, allow, is_allowed, guard) in cases {
        if !host.is_loopback() && !is_allowed {
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

/// A hash of the server's program that cannot be one.
pub(super) fn bad_hash(settings: &Settings, snake: &BusServerConfig) -> Option<ConfigProblem> {
    let text = snake.server_sha256.as_ref()?;
    let fits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (!fits).then(|| ConfigProblem::BadValue {
        place: settings.place("snake.server_sha256"),
        key: "snake.server_sha256",
        value: format!("{text:?}"),
        wanted: "64 hexadecimal digits, as sha256sum prints them".to_owned(),
    })
}
