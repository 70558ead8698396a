//! TLS on the managed bus, with a real server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::ConnectOptions;
use tokio::sync::watch;

use super::super::{AclEntry, AclSnapshot, BusAuthorization, BusServer, ManagedServer};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256};

use super::own_authority::{RENEWED, authority_params, rotate_authority};
use super::*;
use crate::tasks::failure_channel;
use crate::testing::{Hand, bus_settings, managed};

const NAMES: [&str; 2] = ["127.0.0.1", "mixer.test"];

fn open(store: &Path, clock: Clock) -> Result<BusCertificates, BusError> {
    BusCertificates::open(store.join("keys"), NAMES.map(str::to_owned).into(), clock)
}

/// The real time, which TLS asks too, and so much more.
fn ahead(seconds: &Arc<AtomicU64>) -> Clock {
    let (real, seconds) = (chassis::system_clock(), Arc::clone(seconds));
    Clock::new(move || real.now().plus(Duration::from_secs(seconds.load(Ordering::SeqCst))))
}

async fn start(managed: ManagedServer) -> BusServer {
    BusServer::start(bus_settings(managed), &failure_channel().0)
        .await
        .unwrap()
}

async fn connects(url: &str, trust: Option<BusTrust>) -> Result<(), String> {
    let options = ConnectOptions::new().connection_timeout(Duration::from_secs(5));
    let options = match trust {
        Some(trust) => trust.secure(options),
        None => options,
    };
    options
        .connect(url)
        .await
        .map(|_| ())
        .map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_trusts_the_stores_authority_connects_and_a_reload_brings_a_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = Arc::new(AtomicU64::new(0));
    let certificates = open(folder.path(), ahead(&seconds)).unwrap();
    let (list, access) = watch::channel(AclSnapshot::default());
    let (applied, mut follows) = watch::channel(0);
    let server = start(ManagedServer {
        certificates: Some(certificates.clone()),
        users: BusAuthorization::new(&chassis::os_entropy(), access, applied).unwrap(),
        ..managed(folder.path())
    })
    .await;
    let url = server.bus().url().to_owned();
    let pinned = || BusTrust::pinned(certificates.authority()).unwrap();
    connects(&url, Some(pinned())).await.unwrap();
    let file = folder.path().join("keys/bus-ca.pem");
    connects(&url, Some(BusTrust::of_file(&file).unwrap())).await.unwrap();
    let refused = connects(&url, None).await.unwrap_err();
    assert!(
        refused.contains("UnknownIssuer"),
        "the system's authorities do not count: {refused}"
    );
    let other = BusTrust::pinned(KeyFingerprint::of(b"another")).unwrap();
    let refused = connects(&url, Some(other)).await.unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let refused = connects(&elsewhere, Some(pinned())).await.unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");

    let served = || std::fs::read(folder.path().join("keys/bus-server.pem")).unwrap();
    let before = served();
    seconds.store(RENEWED.as_secs(), Ordering::SeqCst);
    list.send_modify(|list| {
        list.version = 1;
        list.entries.push(AclEntry {
            key: nkeys::KeyPair::new_user().public_key(),
            entity_id: model::EntityId::for_name("a"),
            name: "a".parse().unwrap(),
            adopted: true,
            consumers: Vec::new(),
        });
    });
    follows.wait_for(|version| *version == 1).await.unwrap();
    assert_ne!(served(), before);
    connects(&url, Some(pinned())).await.unwrap();
    assert!(server.bus().status().connected);
    server.close().await;
}

#[test]
fn the_authority_stays_the_same_and_one_without_its_key_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new().clock();
    let first = open(folder.path(), clock.clone()).unwrap();
    first.renew().unwrap();
    assert_eq!(
        open(folder.path(), clock.clone()).unwrap().authority(),
        first.authority()
    );
    for file in ["bus-ca.key", "bus-server.key"] {
        let mode = std::fs::metadata(folder.path().join("keys").join(file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let (key, pem) = (
        folder.path().join("keys/bus-ca.key"),
        folder.path().join("keys/bus-ca.pem"),
    );
    std::fs::remove_file(&pem).unwrap();
    let again = open(folder.path(), clock.clone()).unwrap();
    assert_eq!(again.authority(), first.authority(), "a start that was cut off goes on");
    assert!(pem.exists());
    let error = BusCertificates::open(folder.path().join("keys"), vec!["ümläut".to_owned()], clock.clone());
    assert!(error.unwrap_err().to_string().contains("snake.tls_names"));
    std::fs::remove_file(&key).unwrap();
    let error = open(folder.path(), clock).unwrap_err();
    assert!(error.to_string().contains("bus-ca.key is missing"), "{error}");
    assert!(!key.exists(), "nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_trusts_any_authority_of_before_trusts_the_one_that_follows_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    assert!(rotate_authority(&keys).unwrap_err().to_string().contains("bus-ca.key"));
    let mut known = vec![open(folder.path(), chassis::system_clock()).unwrap().authority()];
    for _ in 0..7 {
        let [from, to] = rotate_authority(&keys).unwrap();
        assert_eq!(known.last(), Some(&from));
        known.push(to);
    }
    let oldest = known.remove(0);
    let certificates = open(folder.path(), chassis::system_clock()).unwrap();
    assert_eq!(known.last(), Some(&certificates.authority()));
    let server = start(ManagedServer {
        certificates: Some(certificates),
        ..managed(folder.path())
    })
    .await;
    let url = server.bus().url().to_owned();
    for authority in known {
        connects(&url, Some(BusTrust::pinned(authority).unwrap()))
            .await
            .unwrap();
    }
    let file = BusTrust::of_file(&keys.join("bus-ca.pem")).unwrap();
    connects(&url, Some(file)).await.unwrap();
    for unknown in [oldest, KeyFingerprint::of(b"another")] {
        let trust = BusTrust::pinned(unknown).unwrap();
        assert!(connects(&url, Some(trust)).await.is_err(), "{unknown}");
    }
    let published = std::fs::read_to_string(keys.join("bus-ca.pem")).unwrap();
    assert_eq!(
        published.matches("BEGIN").count(),
        1,
        "who copies it trusts no authority of before"
    );
    server.close().await;
}

/// A certificate of an authority, and that authority's after it, with its key.
fn provide(folder: &Path, authority: &rcgen::CertifiedIssuer<'_, KeyPair>) -> ServerTlsFiles {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let files = ServerTlsFiles {
        certificate: folder.join("bus.pem"),
        key: folder.join("bus.key"),
        client_ca: None,
    };
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&files.certificate, format!("{}{}", certificate.pem(), authority.pem())).unwrap();
    files
}

#[test]
fn an_operators_chain_that_racks_would_refuse_is_refused_with_what_to_put_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let made_key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let authority =
        rcgen::CertifiedIssuer::self_signed(authority_params("Authority of the operator"), made_key()).unwrap();
    let files = provide(folder.path(), &authority);
    let take = || BusCertificates::provided(files.clone(), folder.path().join("keys"));
    let whole = std::fs::read_to_string(&files.certificate).unwrap();
    let installed = || std::fs::read_to_string(folder.path().join("keys/bus-server.pem")).unwrap();
    let taken = take().unwrap();
    let Some(alone) = whole.strip_suffix(&authority.pem()) else {
        panic!("{whole}")
    };
    std::fs::write(&files.certificate, alone).unwrap();
    let error = take().unwrap_err().to_string();
    assert!(
        error.contains("bus.pem") && error.contains("that of the authority into it"),
        "{error}"
    );
    // What is given while the Mixer runs leaves the one of before in force.
    assert!(taken.is_due());
    taken.renew().unwrap();
    assert_eq!(
        (installed(), taken.authority()),
        (whole, KeyFingerprint::of(authority.der()))
    );

    let key = made_key();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    let error = take().unwrap_err().to_string();
    assert!(error.contains("CA:TRUE"), "{error}");
    params.is_ca = IsCa::NoCa;
    std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    take().unwrap();

    // When it was in force is the clients' matter, who signed it is looked at all the same.
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(2002, 1, 1));
    let expired = params.signed_by(&key, &authority).unwrap().pem();
    std::fs::write(&files.certificate, format!("{expired}{}", authority.pem())).unwrap();
    take().unwrap();
    let namesake =
        rcgen::CertifiedIssuer::self_signed(authority_params("Authority of the operator"), made_key()).unwrap();
    std::fs::write(&files.certificate, format!("{expired}{}", namesake.pem())).unwrap();
    let error = take().unwrap_err().to_string();
    assert!(error.contains("is not signed by its last one"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_certificate_serves_by_its_own_names_and_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let authority = rcgen::CertifiedIssuer::self_signed(authority_params("Authority of the operator"), key).unwrap();
    let certificates =
        BusCertificates::provided(provide(folder.path(), &authority), folder.path().join("keys")).unwrap();
    assert_eq!(certificates.authority(), KeyFingerprint::of(authority.der()));
    assert!(!folder.path().join("keys/bus-ca.key").exists());
    let (list, access) = watch::channel(AclSnapshot::default());
    let (applied, mut follows) = watch::channel(0);
    // The Mixer's own connections go to 127.0.0.1, which is no name of the certificate.
    let server = start(ManagedServer {
        certificates: Some(certificates.clone()),
        users: BusAuthorization::new(&chassis::os_entropy(), access, applied).unwrap(),
        ..managed(folder.path())
    })
    .await;
    let url = server.bus().url().replace("127.0.0.1", "localhost");
    let pinned = || BusTrust::pinned(certificates.authority()).unwrap();
    connects(&url, Some(pinned())).await.unwrap();
    assert!(!certificates.is_due());
    provide(folder.path(), &authority);
    assert!(certificates.is_due());
    list.send_modify(|list| list.version = 1);
    follows.wait_for(|version| *version == 1).await.unwrap();
    assert!(!certificates.is_due());
    connects(&url, Some(pinned())).await.unwrap();
    let files = ServerTlsFiles {
        certificate: folder.path().join("bus.pem"),
        key: folder.path().join("keys/bus-operator.nk"),
        client_ca: None,
    };
    let error = BusCertificates::provided(files, folder.path().join("keys"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("bus-operator.nk"), "{error}");
    server.close().await;
}
