//! TLS of our servers: certificates that change, clients that are not let in, the suite that is chosen.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::Permissions;

use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A certificate that signs itself, in two files, and the certificate.
fn certificate(folder: &Path, name: &str) -> (ServerTlsFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let files = ServerTlsFiles {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        client_ca: None,
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
    (files, made.cert.der().clone())
}

/// Whether a client that trusts a certificate gets an answer.
async fn is_trusted(server: &ServerTls, trusted: &CertificateDer<'static>, name: &'static str) -> bool {
    let provider = rustls::crypto::ring::default_provider();
    let suite = chosen_suite(server, (trusted, name), provider).await;
    suite.is_some()
}

/// The suite by which a client with these gets an answer.
async fn chosen_suite(
    server: &ServerTls,
    (trusted, name): (&CertificateDer<'static>, &'static str),
    provider: CryptoProvider,
) -> Option<CipherSuite> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let (ours, theirs) = duplex(1 << 16);
    let asking = async {
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(ServerName::try_from(name).unwrap(), theirs).await?;
        stream.write_all(b"?").await?;
        stream.read_u8().await?;
        Ok::<_, io::Error>(stream.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite()))
    };
    let answering = async {
        let mut stream = server.accept(ours, SECOND).await?;
        let asked = stream.read_u8().await?;
        stream.write_all(&[asked]).await?;
        stream.flush().await
    };
    let (asked, _) = tokio::join!(asking, answering);
    asked.ok().flatten()
}

#[tokio::test]
async fn aes_with_128_bits_comes_first_but_for_clients_that_prefer_chacha() {
    let dir = tempfile::tempdir().unwrap();
    let (files, certificate) = certificate(dir.path(), "mixer.test");
    let server = ServerTls::open(files).unwrap();
    let all = rustls::crypto::ring::default_provider;
    let first = |suite: CipherSuite| {
        let mut provider = all();
        provider.cipher_suites.sort_by_key(|known| known.suite() != suite);
        provider
    };
    let only = |suite: CipherSuite| {
        let mut provider = all();
        provider.cipher_suites.retain(|known| known.suite() == suite);
        provider
    };
    let [aes128, aes256, chacha] = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    let of_old = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    for (provider, chosen) in [
        (all(), aes128),
        (first(aes256), aes128),
        (only(aes256), aes256),
        (first(chacha), chacha),
        (only(of_old), of_old),
    ] {
        let suite = chosen_suite(&server, (&certificate, "mixer.test"), provider).await;
        assert_eq!(suite, Some(chosen));
    }
}

#[tokio::test]
async fn a_certificate_is_read_again_when_it_changes_and_a_bad_one_leaves_the_former_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let (files, first) = certificate(dir.path(), "mixer.test");
    let server = ServerTls::open(files.clone()).unwrap();
    assert!(is_trusted(&server, &first, "mixer.test").await);
    let (_, second) = certificate(dir.path(), "mixer.test");
    tokio::time::pause();
    tokio::time::advance(LOOK).await;
    tokio::time::resume();
    server.loaded().stamps.clear();
    assert!(is_trusted(&server, &second, "mixer.test").await);
    assert!(!is_trusted(&server, &first, "mixer.test").await);
    std::fs::write(&files.certificate, "no certificate").unwrap();
    tokio::time::pause();
    tokio::time::advance(LOOK).await;
    tokio::time::resume();
    server.loaded().stamps.clear();
    assert!(is_trusted(&server, &second, "mixer.test").await);
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_where_one_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (files, own) = certificate(dir.path(), "mixer.test");
    let asking = ServerTlsFiles {
        client_ca: Some(files.certificate.clone()),
        ..files
    };
    let server = ServerTls::open(asking).unwrap();
    assert!(!is_trusted(&server, &own, "mixer.test").await);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = certificate(dir.path(), "mixer.test");
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    let refused = ServerTls::open(files.clone()).unwrap_err().to_string();
    assert!(
        refused.contains("chmod 600") && refused.contains("key.pem"),
        "{refused}"
    );
    let swapped = ServerTlsFiles {
        certificate: files.key.clone(),
        ..files.clone()
    };
    let refused = ServerTls::open(swapped).unwrap_err().to_string();
    assert!(refused.contains("has no certificate"), "{refused}");
    std::fs::remove_file(&files.certificate).unwrap();
    assert!(ServerTls::open(files).unwrap_err().to_string().contains("cert.pem"));
}

#[tokio::test]
async fn when_the_certificate_expires_is_known_also_if_it_has_expired() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = certificate(dir.path(), "mixer.test");
    let key = rcgen::KeyPair::generate().unwrap();
    for (year, expires) in [(2002, 1_009_843_200), (2099, 4_070_908_800)] {
        let mut params = rcgen::CertificateParams::new(["mixer.test".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(year, 1, 1));
        std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        let server = ServerTls::open(files.clone()).unwrap();
        assert_eq!(server.certificate_expires(), Some(expires), "{year}");
    }
}
