//! Builds the engine's object store from `observability.embedded.storage.url` and the `AWS_…` variables.
//!
//! | variable | what |
//! |---|---|
//! | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | who we are |
//! | `AWS_ENDPOINT_URL` (or `AWS_ENDPOINT`) | where, if it is not AWS |
//! | `AWS_REGION` (or `AWS_DEFAULT_REGION`) | the region; `us-east-1` if it is not set |
//! | `AWS_WEB_IDENTITY_TOKEN_FILE`, `AWS_CONTAINER_CREDENTIALS_…` | credentials that a platform hands out, instead of keys |
//!
//! # Invariants
//!
//! - Secrets come from the environment only; nothing of them is in a message.
//! - Unencrypted HTTP is for the loopback interface, or where a key says so.
//!
//! # Not here
//!
//! What is stored where, retries beyond one request, what a refusal means: the engine.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::{AckDurability, RemoteMode, RemoteSettings, S3ClientSettings};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::config::StorageConfig;

/// Where a bucket is if nothing says it.
const DEFAULT_REGION: &str = "us-east-1";
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a URL cannot be an object store. Each names the key or the variable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// Another kind of store, or none.
    #[error("observability.embedded.storage.url = {url:?} is not supported: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Nothing says who we are.
    #[error("there are no credentials for {url}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    Credentials {
        /// The URL.
        url: String,
    },
    /// Bytes would be readable on their way.
    #[error(
        "the object store's address {endpoint} (AWS_ENDPOINT_URL) is not encrypted: use https, or set \
         observability.embedded.storage.allow_http = true on a trusted network"
    )]
    Unencrypted {
        /// The address.
        endpoint: String,
    },
    /// A variable or address that the client does not understand.
    #[error("the object store cannot be used: {0}")]
    Client(String),
    /// A reader without anything to read.
    #[error("observability.embedded.storage.read_only = true needs observability.embedded.storage.url")]
    NothingToRead,
    /// Racks would keep everything for ever.
    #[error("ingest.floor = \"bucket\" needs observability.embedded.storage.url and an upload_interval above 0s")]
    NothingToWaitFor,
    /// The bus would drop what nobody has uploaded yet.
    #[error(
        "ingest.floor = \"bucket\": the bus keeps telemetry for too short a time; set \
         snake.telemetry_stream_max_age ({age:?}) to twice observability.embedded.storage.upload_interval ({interval:?}) or more"
    )]
    ShortBus {
        /// How long telemetry stays on the bus.
        age: Duration,
        /// The time between two uploads.
        interval: Duration,
    },
}

/// The object store of a configuration, if it names one. `variables` are those of the process; `bus_age` is how long telemetry
/// stays on the bus.
///
/// # Errors
/// If it cannot be one; nothing was asked of it yet.
pub fn remote(
    config: &StorageConfig,
    (floor, bus_age): (AckDurability, Duration),
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Option<RemoteSettings>, BucketError> {
    if floor == AckDurability::Bucket && (config.url.is_none() || config.upload_interval.is_zero()) {
        return Err(BucketError::NothingToWaitFor);
    }
    let interval = config.upload_interval;
    // An age of zero is none.
    if floor == AckDurability::Bucket && !bus_age.is_zero() && bus_age < interval * 2 {
        return Err(BucketError::ShortBus { age: bus_age, interval });
    }
    let Some(url) = &config.url else {
        return if config.read_only {
            Err(BucketError::NothingToRead)
        } else {
            Ok(None)
        };
    };
    let mode = if config.read_only {
        RemoteMode::Read
    } else {
        RemoteMode::Write
    };
    let remote = of_url(url, config.allow_http, variables)?;
    Ok(Some(RemoteSettings {
        mode,
        floor,
        upload_interval: config.upload_interval,
        cache_size: config.cache_size,
        ..remote
    }))
}

/// The object store of a URL.
///
/// # Errors
/// As [`remote`].
pub fn of_url(
    url: &str,
    allow_http: bool,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<RemoteSettings, BucketError> {
    let (bucket, prefix) = parse(url)?;
    let variables: Vec<(AmazonS3ConfigKey, String)> = variables
        .filter(|(name, value)| name.starts_with("AWS_") && !value.is_empty())
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
        .collect();
    let value = |wanted: AmazonS3ConfigKey| {
        let found = variables.iter().find(|(key, _)| *key == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let keys = value(AmazonS3ConfigKey::AccessKeyId).is_some() && value(AmazonS3ConfigKey::SecretAccessKey).is_some();
    let handed_out = [
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    if !keys && handed_out.into_iter().all(|key| value(key).is_none()) {
        return Err(BucketError::Credentials { url: url.to_owned() });
    }
    let endpoint = value(AmazonS3ConfigKey::Endpoint).map(str::to_owned);
    let unencrypted = endpoint.as_deref().is_some_and(|at| !at.starts_with("https://"));
    if unencrypted && !allow_http && !endpoint.as_deref().is_some_and(is_loopback) {
        return Err(BucketError::Unencrypted {
            endpoint: endpoint.unwrap_or_default(),
        });
    }
    let is_virtual_hosted = value(AmazonS3ConfigKey::VirtualHostedStyleRequest)
        .is_some_and(|value| ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str()));
    let region = value(AmazonS3ConfigKey::Region).or_else(|| value(AmazonS3ConfigKey::DefaultRegion));
    let client = S3ClientSettings {
        region: region.unwrap_or(DEFAULT_REGION).to_owned(),
        path_style: endpoint.is_some() && !is_virtual_hosted,
        endpoint,
    };
    let mut builder = AmazonS3Builder::new();
    for (key, value) in variables {
        if !matches!(key, AmazonS3ConfigKey::Bucket) {
            builder = builder.with_config(key, value);
        }
    }
    // The engine makes a call again; below it only what never reached the store is worth another try.
    let retry = RetryConfig {
        max_retries: 1,
        retry_timeout: PATIENCE,
        backoff: BackoffConfig::default(),
    };
    let options = ClientOptions::new()
        .with_timeout(PATIENCE)
        .with_connect_timeout(Duration::from_secs(5))
        .with_allow_http(unencrypted);
    let store = builder
        .with_bucket_name(bucket)
        .with_checksum_algorithm(Checksum::SHA256)
        .with_allow_http(unencrypted)
        .with_retry(retry)
        .with_client_options(options)
        .build()
        .map_err(|error| BucketError::Client(error.to_string()))?;
    let store = Arc::new(store);
    Ok(RemoteSettings {
        multipart: Some(Arc::clone(&store) as _),
        client: Some(client),
        host: host(),
        ..RemoteSettings::new(url, store, prefix)
    })
}

/// The bucket and the prefix of a URL.
fn parse(url: &str) -> Result<(&str, Path), BucketError> {
    let wrong = |reason| BucketError::Url {
        url: url.to_owned(),
        reason,
    };
    let Some(rest) = url.strip_prefix("s3://") else {
        return Err(wrong(match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("gs" | "gcs" | "az" | "abfs" | "azure") => {
                "this version is built for S3 only: use the store's S3-compatible address, with AWS_ENDPOINT_URL, and an s3:// URL"
            }
            _ => "give s3://bucket or s3://bucket/prefix",
        }));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_');
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(fits) {
        return Err(wrong(
            "a bucket's name has 3 to 63 lower-case letters, digits, dots and dashes",
        ));
    }
    let prefix = Path::parse(prefix.trim_end_matches('/'));
    let prefix = prefix.map_err(|_| wrong("the prefix must be plain names with single slashes between them"))?;
    Ok((bucket, prefix))
}

/// Whether an address is one of this machine's own.
fn is_loopback(endpoint: &str) -> bool {
    let uri: Option<http::Uri> = endpoint.parse().ok();
    let host = uri.as_ref().and_then(http::Uri::host);
    host.is_some_and(|host| {
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        host == "localhost" || address.is_some_and(|address| address.is_loopback())
    })
}

/// This machine's name.
fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hush")];

    fn of(url: &str, allow_http: bool, more: &[(&str, &str)]) -> Result<RemoteSettings, BucketError> {
        let all = KEYS.iter().chain(more);
        of_url(
            url,
            allow_http,
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn a_url_is_a_bucket_and_a_prefix() {
        for (url, bucket, prefix) in [
            ("s3://telemetry", "telemetry", ""),
            ("s3://telemetry/", "telemetry", ""),
            ("s3://telemetry/plant/a/", "telemetry", "plant/a"),
        ] {
            assert_eq!(parse(url).unwrap(), (bucket, Path::from(prefix)), "{url}");
        }
        for url in [
            "gs://b/p",
            "telemetry",
            "s3://",
            "s3://Bucket/x",
            "s3://bucket/a//b",
            "file:///x",
        ] {
            let refused = of(url, false, &[]).unwrap_err().to_string();
            assert!(refused.contains("observability.embedded.storage.url"), "{refused}");
        }
    }

    #[test]
    fn without_credentials_the_variables_are_named_and_secrets_are_in_no_message() {
        let refused = of_url("s3://telemetry", false, std::iter::empty()).unwrap_err();
        assert!(refused.to_string().contains("AWS_SECRET_ACCESS_KEY"), "{refused}");
        let remote = of("s3://telemetry", false, &[]).unwrap();
        assert!(!format!("{remote:?}").contains("hush"));
    }

    #[test]
    fn others_are_told_where_the_bucket_is_and_no_secret() {
        let told = |more: &[(&str, &str)]| of("s3://telemetry", false, more).unwrap().client.unwrap();
        let (endpoint, region) = (
            ("AWS_ENDPOINT_URL", "https://s3.example"),
            ("AWS_REGION", "eu-central-1"),
        );
        let aws = |region: &str| S3ClientSettings {
            endpoint: None,
            region: region.to_owned(),
            path_style: false,
        };
        assert_eq!(told(&[]), aws("us-east-1"));
        assert_eq!(told(&[("AWS_DEFAULT_REGION", "us-west-2")]), aws("us-west-2"));
        assert_eq!(
            told(&[("AWS_DEFAULT_REGION", "us-west-2"), region]),
            aws("eu-central-1")
        );
        let elsewhere = S3ClientSettings {
            endpoint: Some("https://s3.example".to_owned()),
            path_style: true,
            ..aws("eu-central-1")
        };
        assert_eq!(told(&[endpoint, region]), elsewhere);
        let virtual_hosted = ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true");
        assert!(!told(&[endpoint, region, virtual_hosted]).path_style);
    }

    #[test]
    fn unencrypted_addresses_are_for_the_loopback_or_where_a_key_says_so() {
        for endpoint in [
            "http://127.0.0.1:8333",
            "http://localhost:1",
            "http://[::1]:9",
            "https://s3.example",
        ] {
            assert!(
                of("s3://telemetry", false, &[("AWS_ENDPOINT_URL", endpoint)]).is_ok(),
                "{endpoint}"
            );
        }
        let far = [("AWS_ENDPOINT_URL", "http://10.0.0.5:9000")];
        let refused = of("s3://telemetry", false, &far).unwrap_err();
        assert!(matches!(refused, BucketError::Unencrypted { .. }), "{refused}");
        // A variable alone does not allow it.
        let allowed = [far[0], ("AWS_ALLOW_HTTP", "true")];
        assert!(of("s3://telemetry", false, &allowed).is_err());
        assert!(of("s3://telemetry", true, &far).is_ok());
    }
}
