//! Credentials of the command line: the API token of each Mixer, as `platform login` keeps them.
//!
//! ```toml
//! # $XDG_CONFIG_HOME/platform/login.toml, or ~/.config/platform/login.toml; mode 0600
//! default = "https://mixer.example:8090"
//! [mixers."https://mixer.example:8090"]
//! token = "plt_…"
//! allow_insecure = false
//! [mixers."https://mixer.example:8090".tls]
//! ca_file = "/etc/company/ca.pem"
//! ```
//!
//! # Invariants
//!
//! - The file is replaced whole, and only its owner may read it; one that others may read is refused.
//! - `PLATFORM_TOKEN` goes before the file. No token is taken from the command line, which every user of the machine can read.
//! - A token goes to the Mixer that it was kept for, and in clear text to loopback alone, unless `allow_insecure` says otherwise.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use crate::api_tls::ApiTlsFiles;
use crate::error::Error;

/// Where a Mixer on this machine listens.
pub(crate) const LOCAL_MIXER: &str = "http://localhost:8090";
const TOKEN: &str = "PLATFORM_TOKEN";
const ALLOW_INSECURE: &str = "PLATFORM_ALLOW_INSECURE";

/// What is kept of a Mixer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MixerLogin {
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) allow_insecure: bool,
    #[serde(default)]
    pub(crate) tls: ApiTlsFiles,
}

/// The file of all Mixers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LoginFile {
    /// The Mixer that is asked where no other is named.
    pub(crate) default: Option<String>,
    pub(crate) mixers: BTreeMap<String, MixerLogin>,
}

impl LoginFile {
    /// Reads it; nothing is kept if it is not there.
    pub(crate) fn read() -> Result<Self, Error> {
        path().map_or_else(|_| Ok(Self::default()), |path| Self::read_from(&path))
    }

    fn read_from(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unreadable(error)),
        };
        let bad = |reason: String| Error::Data {
            path: path.to_owned(),
            reason,
        };
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(bad(format!(
                "others may read its tokens (mode {mode:o}): chmod 600 {}",
                path.display()
            )));
        }
        // The parser's own text would show the line with the secret.
        toml_edit::de::from_str(&text).map_err(|error| bad(error.message().to_owned()))
    }

    /// Replaces the file; where it is.
    pub(crate) fn write(&self) -> Result<PathBuf, Error> {
        let path = path()?;
        self.write_to(&path)?;
        Ok(path)
    }

    fn write_to(&self, path: &Path) -> Result<(), Error> {
        let text = toml_edit::ser::to_string(self).map_err(|error| Error::Usage(error.to_string()))?;
        let fresh = path.with_extension("toml.new");
        let written = || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            match std::fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, path)
        };
        written().map_err(|source| Error::WriteFile {
            path: path.to_owned(),
            source,
        })
    }
}

fn path() -> Result<PathBuf, Error> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let base =
        base.ok_or_else(|| Error::Usage("neither XDG_CONFIG_HOME nor HOME is set: set PLATFORM_TOKEN".to_owned()))?;
    Ok(base.join("platform/login.toml"))
}

/// Where to ask, and with which token.
#[derive(Debug)]
pub(crate) struct ApiCredentials {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) tls: ApiTlsFiles,
}

impl ApiCredentials {
    /// Of the Mixer that is named, or of the default one.
    pub(crate) fn of(named: Option<&str>) -> Result<Self, Error> {
        let file = LoginFile::read()?;
        let url = named
            .or(file.default.as_deref())
            .unwrap_or(LOCAL_MIXER)
            .trim_end_matches('/')
            .to_owned();
        let given = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        let kept = file.mixers.get(&url);
        let allows = kept.is_some_and(|kept| kept.allow_insecure)
            || std::env::var(ALLOW_INSECURE).is_ok_and(|set| set == "true");
        let token = given.or_else(|| kept.map(|kept| kept.token.clone()));
        if token.is_some() && !allows {
            refuse_clear_text(&url)?;
        }
        let tls = kept
            .map(|kept| kept.tls.clone())
            .unwrap_or_default()
            .after_environment();
        Ok(Self { url, token, tls })
    }
}

/// Refuses an address to which a token would go in clear text over a network.
pub(crate) fn refuse_clear_text(url: &str) -> Result<(), Error> {
    let parsed = url.parse::<Uri>().ok();
    let is_encrypted = parsed.as_ref().and_then(Uri::scheme_str) == Some("https");
    if is_encrypted || is_loopback(url) {
        return Ok(());
    }
    let host = parsed.as_ref().and_then(Uri::host).unwrap_or(url);
    Err(Error::Usage(format!(
        "the token would go in clear text to {host}: use https, or allow it with `platform login --allow-insecure` \
         or {ALLOW_INSECURE}=true"
    )))
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let Ok(parsed) = url.parse::<Uri>() else { return false };
    let host = parsed
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|host| host.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_token_goes_in_clear_text_to_loopback_alone() {
        for good in [
            "https://mixer:8090",
            "http://localhost:8090",
            "http://127.0.0.1",
            "http://[::1]:8090/x",
        ] {
            assert!(refuse_clear_text(good).is_ok(), "{good}");
        }
        for bad in [
            "http://mixer:8090",
            "http://localhost.evil/",
            "http://127.0.0.1@evil:80",
            "HTTP://mixer:8090",
            "ftp://localhost.x",
            "http://[2001:db8::1]:1",
        ] {
            assert!(refuse_clear_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_file_is_its_owners_alone_and_one_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("platform/login.toml");
        let login = MixerLogin {
            token: "plt_x".to_owned(),
            allow_insecure: false,
            tls: ApiTlsFiles {
                ca_file: Some("/x/ca.pem".into()),
                ..ApiTlsFiles::default()
            },
        };
        let file = LoginFile {
            default: Some("https://m".to_owned()),
            mixers: [("https://m".to_owned(), login)].into(),
        };
        file.write_to(&path).unwrap();
        file.write_to(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = LoginFile::read_from(&path).unwrap();
        let read = &read.mixers["https://m"];
        assert_eq!(
            (read.token.as_str(), read.tls.ca_file.as_deref()),
            ("plt_x", Some(Path::new("/x/ca.pem")))
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = LoginFile::read_from(&path).unwrap_err();
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
}
