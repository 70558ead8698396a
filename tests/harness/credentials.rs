//! Credentials for a Mixer that asks for some: a certificate that signs itself, and a file with the token of an administrator.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, binary};

/// A certificate for loopback that signs itself, and its key (0600), in files of the folder.
///
/// # Errors
/// If they cannot be made.
pub fn self_signed(folder: &Path) -> Result<(String, String), Failure> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let (certificate, key) = (folder.join("mixer.pem"), folder.join("mixer.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    write_private(&key, &made.signing_key.serialize_pem())?;
    Ok((certificate.display().to_string(), key.display().to_string()))
}

/// A file for `api.tokens_file` with the token of an administrator, and that token.
///
/// # Errors
/// If it cannot be made.
pub fn admin_token(folder: &Path) -> Result<(PathBuf, String), Failure> {
    let done = Command::new(binary("platform")?).args(["token", "generate"]).output()?;
    let admin = String::from_utf8(done.stdout)?.trim().to_owned();
    let file = folder.join("tokens.toml");
    let text = format!("[[token]]\nname = \"admin\"\ntoken = \"{admin}\"\nroles = [\"admin\"]\n");
    write_private(&file, &text)?;
    Ok((file, admin))
}

fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?)
}
