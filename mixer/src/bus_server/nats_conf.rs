//! The generated `nats.conf`, and the ports file with which the server answers.
//!
//! Texts are quoted as JSON, which the server's format accepts; nothing of the configuration is pasted unquoted.

use std::path::{Path, PathBuf};

use model::ByteSize;
use serde::Deserialize;

use super::account_plan::StreamNames;
use super::accounts;
use super::{BusCertificates, BusError, HEADROOM, ManagedServer};

/// Memory for streams in memory and for the server's own bookkeeping of file streams.
const MAX_MEMORY: u64 = 256 << 20;

/// The seconds that a handshake of TLS may take: many Racks come at once after an outage.
const TLS_WITHIN: u32 = 10;

/// The store's share for file streams and everything beside it: lock, configuration, ports file.
#[derive(Debug, Clone)]
pub(super) struct BusStorePaths {
    /// The folder of all.
    pub(super) store: PathBuf,
    /// The configuration.
    pub(super) conf: PathBuf,
}

impl BusStorePaths {
    /// Makes the folder.
    pub(super) fn make(store: &Path) -> Result<Self, BusError> {
        let io = |source| BusError::Io {
            action: "create",
            path: store.to_owned(),
            source,
        };
        durable_fs::create_private_dirs(store)?;
        // The server gets absolute paths: its working folder may be anywhere.
        let store = std::fs::canonicalize(store).map_err(io)?;
        Ok(Self {
            conf: store.join("nats.conf"),
            store,
        })
    }

    /// The folder of the account with the streams.
    pub(super) fn account(store: &Path) -> PathBuf {
        store.join("jetstream").join(accounts::MIXER)
    }

    fn ports(&self, pid: u32) -> PathBuf {
        self.store.join(format!("nats-server_{pid}.ports"))
    }
}

/// The streams of the server, and their domain.
#[derive(Clone)]
pub(super) struct StreamStoreSettings {
    pub(super) domain: String,
    pub(super) streams: StreamNames,
    pub(super) max_store: ByteSize,
}

/// What the configuration is made of.
#[derive(Clone)]
pub(super) struct ServerConfig {
    pub(super) paths: BusStorePaths,
    pub(super) managed: ManagedServer,
    /// Zero until the first server has chosen one; a restart keeps it, so that clients find it.
    pub(super) port: u16,
    pub(super) store_settings: StreamStoreSettings,
}

impl ServerConfig {
    /// Writes the configuration, whole or not at all, readable by us only; and a new certificate before it, where it is time for one.
    pub(super) fn write(&self) -> Result<(), BusError> {
        if let Some(certificates) = &self.managed.certificates {
            certificates.renew()?;
        }
        let text = render(&self.paths, &self.managed, self.port, &self.store_settings);
        Ok(durable_fs::write_atomically(&self.paths.conf, text.as_bytes(), 0o600)?)
    }
}

fn render(paths: &BusStorePaths, managed: &ManagedServer, port: u16, store_settings: &StreamStoreSettings) -> String {
    let authorization = managed.users.render(&store_settings.streams);
    let port = if port == 0 { "-1".to_owned() } else { port.to_string() };
    let store = quote(&paths.store.to_string_lossy());
    let tls = managed.certificates.as_ref().map(render_tls).unwrap_or_default();
    let sync = if managed.durable { "always" } else { "1s" };
    format!(
        "# Written by the Mixer at every start; changes are lost. See [snake] in platform-mixer.toml.\n\
         server_name: {name}\n\
         host: {host}\n\
         port: {port}\n\
         ports_file_dir: {store}\n\
         logtime: false\n\
         max_payload: {max_payload}\n\
         max_pending: 64MB\n\
         write_deadline: \"10s\"\n\
         jetstream {{\n\
         \x20 store_dir: {store}\n\
         \x20 domain: {domain}\n\
         \x20 max_mem: {MAX_MEMORY}\n\
         \x20 max_file: {max_file}\n\
         \x20 sync_interval: {sync}\n\
         }}\n\
         {tls}{authorization}",
        name = quote(&managed.name),
        host = quote(&managed.host),
        max_payload = managed.max_payload.get().saturating_add(HEADROOM),
        domain = quote(&store_settings.domain),
        max_file = store_settings.max_store.get(),
        sync = quote(sync),
    )
}

/// Clients speak TLS or not at all. The greeting comes before it, as every client expects.
fn render_tls(certificates: &BusCertificates) -> String {
    let [certificate, key] = certificates.files().map(|path| quote(&path.to_string_lossy()));
    format!(
        "tls {{\n\
         \x20 cert_file: {certificate}\n\
         \x20 key_file: {key}\n\
         \x20 min_version: \"1.2\"\n\
         \x20 timeout: {TLS_WITHIN}\n\
         }}\n"
    )
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[derive(Deserialize)]
struct PortsFile {
    nats: Vec<String>,
}

/// Removes the ports files that killed servers left behind.
pub(super) fn clear_ports(paths: &BusStorePaths) -> std::io::Result<()> {
    for entry in std::fs::read_dir(&paths.store)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ports") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The port of a running server for its clients; none until it has written it.
pub(super) fn read_port(paths: &BusStorePaths, pid: u32) -> Option<u16> {
    let text = std::fs::read_to_string(paths.ports(pid)).ok()?;
    let file: PortsFile = serde_json::from_str(&text).ok()?;
    file.nats.first()?.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nothing_of_the_configuration_escapes_its_quotes() {
        let managed = ManagedServer {
            name: "a\"\n}".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 0,
            advertised: None,
            store_dir: PathBuf::new(),
            durable: true,
            max_payload: ByteSize::mib(2),
            binary: None,
            sha256: None,
            certificates: None,
            users: crate::testing::bus_users(),
            operator_key: PathBuf::new(),
        };
        let paths = BusStorePaths {
            store: PathBuf::from("/x\"y"),
            conf: PathBuf::new(),
        };
        let store_settings = StreamStoreSettings {
            domain: "flux\" }".to_owned(),
            streams: StreamNames {
                domain: "flux".to_owned(),
                business: "flux-msg".to_owned(),
            },
            max_store: ByteSize::mib(1),
        };
        let text = render(&paths, &managed, 0, &store_settings);
        assert!(text.contains(r#"server_name: "a\"\n}""#), "{text}");
        assert!(text.contains(r#"store_dir: "/x\"y""#), "{text}");
        assert!(text.contains(r#"domain: "flux\" }""#), "{text}");
        assert!(text.contains("port: -1\n"), "{text}");
        assert!(text.contains("max_payload: 2162688\n"), "{text}");
        assert!(text.contains("sync_interval: \"always\"\n"), "{text}");
    }
}
