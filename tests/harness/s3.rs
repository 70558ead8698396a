//! A real S3 server on the loopback interface: SeaweedFS, one process, a folder of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ClientOptions, ObjectStoreExt, RetryConfig};

use crate::process::Process;
use crate::{Failure, tool};

/// Who may do everything.
pub const KEY: &str = "platformtest";
/// Their secret.
pub const SECRET: &str = "platformsecret";
/// The bucket that there is.
pub const BUCKET: &str = "telemetry";

/// A running server. Dropped, it is killed.
#[derive(Debug)]
pub struct TestS3 {
    process: Process,
    folder: tempfile::TempDir,
    ports: Vec<u16>,
}

fn start(folder: &Path, ports: &[u16]) -> Result<Process, Failure> {
    let mut args: Vec<String> = [
        "-v=0",
        "mini",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-webdav=false",
        "-admin.ui=false",
    ]
    .map(str::to_owned)
    .into();
    args.extend([
        format!("-dir={}", folder.join("data").display()),
        format!("-bucket={BUCKET}"),
        "-master.telemetry=false".to_owned(),
        "-s3.autoCreateBucket=false".to_owned(),
        "-s3.port.lance=0".to_owned(),
        "-s3.port.iceberg=0".to_owned(),
    ]);
    let named = [
        "s3.port",
        "s3.port.grpc",
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
        "admin.port",
        "admin.port.grpc",
    ];
    args.extend(named.iter().zip(ports).map(|(name, port)| format!("-{name}={port}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    std::fs::create_dir_all(folder.join("data"))?;
    let envs = [
        ("AWS_ACCESS_KEY_ID".to_owned(), KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), SECRET.to_owned()),
    ];
    Process::start_with(&tool("weed")?, &args, folder, &folder.join("weed.log"), &envs)
}

impl TestS3 {
    /// Starts the server and waits until its bucket takes objects.
    ///
    /// # Errors
    /// If it does not within a minute.
    pub async fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let ports = (0..10).map(|_| crate::free_port()).collect::<Result<Vec<_>, _>>()?;
        let process = start(folder.path(), &ports)?;
        let server = Self { process, folder, ports };
        server.ready().await?;
        Ok(server)
    }

    /// Kills it.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill9()
    }

    /// Starts it again, with what it had.
    ///
    /// # Errors
    /// If it does not come.
    pub async fn start_again(&mut self) -> Result<(), Failure> {
        self.process = start(self.folder.path(), &self.ports)?;
        self.ready().await
    }

    async fn ready(&self) -> Result<(), Failure> {
        let client = self.client(BUCKET, KEY, SECRET)?;
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let done = client.put(&ObjectPath::from("ready"), "ready".into()).await;
            match done {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// A client of this server, see [`client`].
    ///
    /// # Errors
    /// If the settings do not fit.
    pub fn client(&self, bucket: &str, key: &str, secret: &str) -> Result<Arc<AmazonS3>, Failure> {
        client(&self.url(), bucket, key, secret)
    }
}

/// A client as the Mixer makes it, without retries of its own.
///
/// # Errors
/// If the settings do not fit.
pub fn client(url: &str, bucket: &str, key: &str, secret: &str) -> Result<Arc<AmazonS3>, Failure> {
    let retry = RetryConfig {
        max_retries: 0,
        backoff: BackoffConfig::default(),
        ..RetryConfig::default()
    };
    let client = AmazonS3Builder::new()
        .with_endpoint(url)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(bucket)
        .with_access_key_id(key)
        .with_secret_access_key(secret)
        .with_checksum_algorithm(Checksum::SHA256)
        .with_retry(retry)
        .with_client_options(
            ClientOptions::new()
                .with_timeout(Duration::from_secs(60))
                .with_allow_http(true),
        )
        .build()?;
    Ok(Arc::new(client))
}
