//! The modes of the bus: what a Rack may do is the same in all of them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::*;

/// Who runs the server, and how it knows its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BusMode {
    /// The Mixer, by a list of keys.
    Clear,
    /// The same, with TLS.
    Tls,
    /// Somebody else, by JWTs that the Mixer signs.
    Operator,
}

/// One test of each case in each mode.
macro_rules! in_every_mode {
    ($($case:ident),+ $(,)?) => {
        mod in_clear {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(super::BusMode::Clear).await;
            })+
        }
        mod with_tls {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(super::BusMode::Tls).await;
            })+
        }
        mod by_jwt {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(super::BusMode::Operator).await;
            })+
        }
    };
}
pub(super) use in_every_mode;

/// A folder with a Mixer whose bus is in some mode; a server that is not the Mixer's ends with this.
pub(super) struct ModeGround {
    folder: PathBuf,
    flags: Vec<(&'static str, String)>,
    server: Option<Child>,
}

impl Drop for ModeGround {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl BusMode {
    /// Makes what a Mixer in this folder needs for it.
    pub(super) async fn ground(self, folder: &Path) -> ModeGround {
        let mut ground = ModeGround {
            folder: folder.to_owned(),
            flags: Vec::new(),
            server: None,
        };
        match self {
            Self::Clear => {}
            Self::Tls => ground.flags.push(("snake.tls", "on".to_owned())),
            Self::Operator => ground.found_operator().await,
        }
        ground
    }
}

impl ModeGround {
    async fn found_operator(&mut self) {
        let lines = crate::bus_operator::found(
            &config(&self.folder, &[]),
            &chassis::system_clock(),
            &chassis::os_entropy(),
        );
        let lines = lines.unwrap();
        let nats = self.folder.join("nats");
        std::fs::create_dir(&nats).unwrap();
        let conf = format!(
            "port: -1\nhost: \"127.0.0.1\"\nports_file_dir: {nats:?}\nmax_payload: 2162688\n\
             jetstream {{ store_dir: {nats:?}, domain: flux, max_file_store: 512MB }}\n{lines}"
        );
        std::fs::write(nats.join("nats.conf"), conf).unwrap();
        let log = std::fs::File::create(nats.join("log")).unwrap();
        let server = Command::new(nats_server())
            .args(["-c", "nats.conf"])
            .current_dir(&nats)
            .stderr(log)
            .spawn()
            .unwrap();
        let ports = nats.join(format!("nats-server_{}.ports", server.id()));
        self.server = Some(server);
        let ports = eventually("the server's port", || async {
            serde_json::from_slice::<serde_json::Value>(&std::fs::read(&ports).ok()?).ok()
        })
        .await;
        let key = self.folder.join("data/keys/nats-signing.nk");
        self.flags = vec![
            ("snake.server", "external".to_owned()),
            ("snake.url", ports["nats"][0].as_str().unwrap().to_owned()),
            ("snake.operator_key", key.display().to_string()),
        ];
    }

    /// Starts its Mixer.
    pub(super) async fn start(&self, flags: &[(&str, &str)]) -> Mixer {
        let of_mode = self.flags.iter().map(|(key, value)| (*key, value.as_str()));
        let all: Vec<(&str, &str)> = of_mode.chain(flags.iter().copied()).collect();
        start(&self.folder, &all).await
    }
}
