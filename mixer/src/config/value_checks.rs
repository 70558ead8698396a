//! Checks of values that go beyond a key's type: addresses that are open to others, keys that do not go together, what this version
//! does not have.

use chassis::config::{ConfigErrors, ConfigProblem, Settings, is_guarded_bus, is_local_bus, without_credentials};
use http::uri::Authority;

use super::{ApiConfig, BusServerConfig, BusTlsMode, MixerConfig, ObservabilityTier, ServerMode};
use crate::access::{AuthMode, DualControlAction};
use crate::bus_server::check_stream_subjects;
use crate::export::{CollectorTarget, header_map};

/// What is right for the tools, and refused at a start of the Mixer.
///
/// # Errors
/// All of it at once.
pub fn check_start(settings: &Settings) -> Result<(), ConfigErrors> {
    ConfigErrors::unless_empty(bad_subjects(settings).into_iter().collect())
}

/// A collector that is not named, or cannot be one, and what does not go together with it.
pub(super) fn bad_export(settings: &Settings, config: &MixerConfig) -> Vec<ConfigProblem> {
    let (otlp, storage) = (&config.otlp, &config.storage);
    let is_only = config.observability.tier == ObservabilityTier::Otlp;
    if !(is_only || otlp.forward) {
        return Vec::new();
    }
    let switch = if is_only {
        "observability.tier"
    } else {
        "observability.otlp.forward"
    };
    let (grpc, http) = ("observability.otlp.endpoint", "observability.otlp.endpoint_http");
    let mut problems = Vec::new();
    let mut problem = |key: &'static str, sentence: String| {
        problems.push(ConfigProblem::Conflict {
            place: settings.place(key),
            key,
            sentence,
        });
    };
    match (&otlp.endpoint, &otlp.endpoint_http) {
        (None, None) => problem(
            switch,
            format!("telemetry goes to a collector, and none is named: set {grpc} (gRPC) or {http}"),
        ),
        (Some(_), Some(_)) => problem(http, format!("{grpc} is set, too: remove one of the two")),
        _ => {}
    }
    for (key, endpoint, target) in [
        (
            grpc,
            &otlp.endpoint,
            CollectorTarget::grpc as fn(&str, bool) -> Result<CollectorTarget, String>,
        ),
        (http, &otlp.endpoint_http, CollectorTarget::http),
    ] {
        if let Some(Err(reason)) = endpoint.as_ref().map(|endpoint| target(endpoint, otlp.insecure)) {
            problem(key, reason);
        }
    }
    let headers = otlp.headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
    if let Err(reason) = header_map(headers) {
        problem("observability.otlp.headers", reason);
    }
    if is_only && otlp.forward {
        problem(
            "observability.otlp.forward",
            "with observability.tier = \"otlp\" telemetry is sent to the collector anyway: remove it".to_owned(),
        );
    }
    if storage.read_only {
        problem(
            switch,
            "observability.embedded.storage.read_only is true: a Mixer that ingests nothing has nothing to send"
                .to_owned(),
        );
    } else if storage.url.is_some() {
        problem(
            switch,
            "observability.embedded.storage.url is set: what waits for the collector is on this machine only, and no object \
             store can be used beside it"
                .to_owned(),
        );
    }
    problems
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
    let otlp = &config.otlp_receiver;
    let is_encrypted = api.tls_files().is_some();
    let is_external = snake.server == ServerMode::External;
    let cases = [
        (
            ("api.host", "without encryption"),
            api.host,
            "api.allow_insecure",
            api.allow_insecure || is_encrypted,
            "set api.tls_cert and api.tls_key, ",
        ),
        (
            ("postgres.host", "without encryption"),
            postgres.host,
            "postgres.allow_insecure",
            postgres.allow_insecure || is_encrypted,
            "set api.tls_cert and api.tls_key, ",
        ),
        (
            ("otlp.host", "without encryption"),
            otlp.host,
            "otlp.allow_insecure",
            otlp.allow_insecure || is_encrypted,
            "set api.tls_cert and api.tls_key, ",
        ),
        (
            ("snake.host", "without encryption"),
            snake.host,
            "snake.allow_insecure",
            snake.allow_insecure || is_external || snake.tls != BusTlsMode::Off,
            "set snake.tls = \"auto\", ",
        ),
    ];
    let mut problems = Vec::new();
    let others = [(postgres.enabled, postgres.host), (otlp.enabled, otlp.host)];
    let is_open = |(enabled, host): (bool, std::net::IpAddr)| enabled && !host.is_loopback();
    if api.auth == AuthMode::Off && (!api.host.is_loopback() || others.into_iter().any(is_open)) {
        problems.push(ConfigProblem::Conflict {
            place: settings.place("api.auth"),
            key: "api.auth",
            sentence:
                "off is for loopback only, and api.host, postgres.host or otlp.host is not: use auto, own or tokens"
                    .to_owned(),
        });
    }
    let (is_local, place) = match is_external {
        true => (is_local_bus(&snake.url), without_credentials(&snake.url)),
        false => (snake.host.is_loopback(), snake.host.to_string()),
    };
    if config.enrollment.auto_adopt && !(is_local || snake.allow_insecure) {
        problems.push(ConfigProblem::Conflict {
            place: settings.place("enrollment.auto_adopt"),
            key: "enrollment.auto_adopt",
            sentence: format!(
                "it admits everybody who reaches the bus, and {place} can be reached from other machines: give each Rack an invite \
                 (`platform racks invite`), or set snake.allow_insecure = true on a trusted network"
            ),
        });
    }
    if is_external && !(is_guarded_bus(&snake.url) || snake.allow_insecure) {
        problems.push(ConfigProblem::Conflict {
            place: settings.place("snake.url"),
            key: "snake.url",
            sentence: format!(
                "{place} is on another machine and is spoken to without encryption: use tls:// addresses, or set \
                 snake.allow_insecure = true on a trusted network"
            ),
        });
    }
    for ((key, lacks), host, allow, is_allowed, guard) in cases {
        if !host.is_loopback() && !is_allowed {
            problems.push(ConfigProblem::Conflict {
                place: settings.place(key),
                key,
                sentence: format!(
                    "{host} can be reached from other machines {lacks}: use 127.0.0.1, {guard}or set {allow} = true on \
                     a trusted network"
                ),
            });
        }
    }
    problems
}

/// A certificate without its key, or the other way round.
pub(super) fn half_of_tls(settings: &Settings, config: &MixerConfig) -> Option<ConfigProblem> {
    let (api, snake) = (&config.api, &config.snake);
    let of_bus = match (&snake.tls_cert, &snake.tls_key) {
        (Some(_), None) => Some(("snake.tls_cert", "snake.tls_key")),
        (None, Some(_)) => Some(("snake.tls_key", "snake.tls_cert")),
        _ => None,
    };
    let (key, missing) = match (&api.tls_cert, &api.tls_key, &api.tls_client_ca) {
        (Some(_), None, _) => ("api.tls_cert", "api.tls_key"),
        (None, Some(_), _) => ("api.tls_key", "api.tls_cert"),
        (None, None, Some(_)) => ("api.tls_client_ca", "api.tls_cert"),
        _ => of_bus?,
    };
    Some(ConfigProblem::Conflict {
        place: settings.place(key),
        key,
        sentence: format!("it needs {missing}, which is not set"),
    })
}

/// A key of an operator for a server that has none.
pub(super) fn needless_operator(settings: &Settings, snake: &BusServerConfig) -> Option<ConfigProblem> {
    let is_needless = snake.operator_key.is_some() && snake.server == ServerMode::Managed;
    is_needless.then(|| ConfigProblem::Conflict {
        place: settings.place("snake.operator_key"),
        key: "snake.operator_key",
        sentence: "it is for snake.server = \"external\": a managed server has its accounts from the Mixer without it"
            .to_owned(),
    })
}

/// Hosts of the API that cannot be any.
pub(super) fn bad_hosts(settings: &Settings, api: &ApiConfig) -> Option<ConfigProblem> {
    let is_host = |host: &&String| {
        host.parse::<Authority>()
            .is_ok_and(|parsed| !parsed.as_str().contains('@'))
    };
    let bad = api.allowed_hosts.iter().find(|host| !is_host(host))?;
    Some(ConfigProblem::BadValue {
        place: settings.place("api.allowed_hosts"),
        key: "api.allowed_hosts",
        value: format!("{bad:?}"),
        wanted: "host names, each with a port or without: \"mixer.example\"".to_owned(),
    })
}

/// A second person that cannot be had, or that nobody needs to wait for.
pub(super) fn bad_second_person(settings: &Settings, config: &MixerConfig) -> Option<ConfigProblem> {
    let (key, api) = ("api.second_person", &config.api);
    let place = || settings.place(key);
    let is_known = |word: &&String| word.parse::<DualControlAction>().is_ok();
    if let Some(bad) = api.second_person.iter().find(|word| !is_known(word)) {
        return Some(ConfigProblem::BadValue {
            place: place(),
            key,
            value: format!("{bad:?}"),
            wanted: "\"approve\", \"activate\", or both".to_owned(),
        });
    }
    let has_approve = api.dual_control().contains(&DualControlAction::Approve);
    let sentence = if !api.second_person.is_empty() && api.auth == AuthMode::Off {
        "with api.auth = \"off\" nobody is told apart, and there is no second person: use auto, own or tokens"
    } else if has_approve && config.enrollment.auto_adopt {
        "enrollment.auto_adopt admits every Rack without anybody's approval: set it to false"
    } else {
        return None;
    };
    Some(ConfigProblem::Conflict {
        place: place(),
        key,
        sentence: sentence.to_owned(),
    })
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
