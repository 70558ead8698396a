//! Certificates for tests: an authority and what it signs, as files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// An authority whose certificate is `ca.pem` in its folder.
pub(crate) struct TestAuthority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    pub(crate) fn new(folder: &Path) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let folder = folder.to_owned();
        Self { folder, issuer }
    }

    /// Writes `NAME.pem`, a certificate for this machine, and `NAME.key`.
    pub(crate) fn sign(&self, name: &str) {
        let (key, names) = (
            KeyPair::generate().unwrap(),
            ["localhost".to_owned(), "127.0.0.1".to_owned()],
        );
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.folder.join(name).with_extension("pem"), certificate.pem()).unwrap();
        let file = self.folder.join(name).with_extension("key");
        fs::write(&file, key.serialize_pem()).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }
}
