//! What is on the disk after one start, after several, and after several at once.

use std::{os::unix::fs::PermissionsExt, sync::Barrier, time::Duration};

use rustls_pki_types::{CertificateDer, pem::PemObject};

use super::*;

fn now() -> Timestamp {
    "2026-11-15T21:30:00Z".parse().unwrap()
}

fn later(days: u64) -> Timestamp {
    now() + Duration::from_secs(days * 86_400)
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap())
        .map(|it| (it.file_name().into_string().unwrap(), fs::read(it.path()).unwrap()))
        .collect();
    all.sort();
    all
}

/// Common name, organization, DNS names and addresses, as other tools read them.
fn describe(path: &Path) -> (String, Vec<String>, Vec<String>) {
    let der = CertificateDer::from_pem_file(path).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    let subject = parsed.subject().to_string();
    let (mut dns, mut ips) = (Vec::new(), Vec::new());
    if let Some(names) = parsed.subject_alternative_name().unwrap() {
        for name in &names.value.general_names {
            match name {
                x509_parser::extensions::GeneralName::DNSName(name) => dns.push((*name).to_owned()),
                x509_parser::extensions::GeneralName::IPAddress(ip) => ips.push(format!("{ip:?}")),
                other => panic!("{other:?}"),
            }
        }
    }
    (subject, dns, ips)
}

#[test]
fn a_first_start_makes_everything_and_keys_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("deep/pki");
    let mut names = ServingNames::standard();
    names.add_dns("Host-1");
    names.add_ip("192.0.2.7".parse().unwrap());
    names.add_ip("0.0.0.0".parse().unwrap());
    let pki = ensure(&folder, &names, now()).unwrap();

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = contents(&folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        files,
        [
            ".lock",
            "admin.crt",
            "admin.key",
            "apiserver.crt",
            "apiserver.key",
            "ca.crt",
            "ca.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
            "front-proxy-client.crt",
            "front-proxy-client.key",
            "sa.key",
            "sa.pub"
        ]
    );
    for name in files.iter().filter(|it| it.ends_with(".key")) {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
    let (subject, dns, ips) = describe(&pki.serving_certificate);
    assert_eq!(subject, "CN=kube-apiserver");
    for name in ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", "host-1"] {
        assert!(dns.contains(&name.to_owned()), "{name} in {dns:?}");
    }
    assert!(
        ips.contains(&"[10, 96, 0, 1]".to_owned()) && ips.contains(&"[192, 0, 2, 7]".to_owned()),
        "{ips:?}"
    );
    assert_eq!(describe(&pki.admin_certificate).0, "O=system:masters, CN=kubernetes-admin");
    assert_eq!(describe(&pki.front_proxy_certificate).0, "CN=front-proxy-client");
    assert!(fs::read_to_string(&pki.service_account_key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(
        fs::read_to_string(&pki.service_account_public_key)
            .unwrap()
            .starts_with("-----BEGIN PUBLIC KEY-----")
    );
}

#[test]
fn later_starts_change_nothing_until_something_is_about_to_expire() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    ensure(folder.path(), &names, now()).unwrap();
    let first = contents(folder.path());
    ensure(folder.path(), &names, later(300)).unwrap();
    assert_eq!(contents(folder.path()), first);

    ensure(folder.path(), &names, later(340)).unwrap();
    let changed: Vec<_> = contents(folder.path())
        .into_iter()
        .zip(first)
        .filter(|(new, old)| new != old)
        .map(|(new, _)| new.0)
        .collect();
    let leaves = ["admin", "apiserver", "front-proxy-client"];
    let expected: Vec<_> = leaves.iter().flat_map(|it| [format!("{it}.crt"), format!("{it}.key")]).collect();
    assert_eq!(changed, expected, "authorities and the service account key stay");
}

#[test]
fn servers_that_start_at_once_share_one_set() {
    let folder = tempfile::tempdir().unwrap();
    let barrier = Barrier::new(8);
    let seen: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8u8)
            .map(|n| {
                let (barrier, folder) = (&barrier, folder.path());
                scope.spawn(move || {
                    let mut names = ServingNames::standard();
                    names.add_ip(IpAddr::from([192, 0, 2, n]));
                    barrier.wait();
                    let pki = ensure(folder, &names, now()).unwrap();
                    [&pki.ca, &pki.front_proxy_ca, &pki.service_account_key, &pki.admin_key]
                        .map(|it| fs::read(it).unwrap())
                })
            })
            .collect();
        starts.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(seen.iter().all(|it| *it == seen[0]), "all servers see the same authorities and keys");
    let (_, _, ips) = describe(&folder.path().join("apiserver.crt"));
    for n in 0..8 {
        assert!(ips.contains(&format!("[192, 0, 2, {n}]")), "no address of server {n} in {ips:?}");
    }
    assert!(!contents(folder.path()).iter().any(|(name, _)| name.starts_with('.') && name != ".lock"));
}

#[test]
fn what_an_interrupted_start_left_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    let pki = ensure(folder.path(), &names, now()).unwrap();
    let ca = fs::read(&pki.ca).unwrap();
    fs::remove_file(&pki.admin_key).unwrap();
    fs::write(&pki.serving_certificate, "").unwrap();
    fs::write(&pki.service_account_public_key, "half").unwrap();
    fs::remove_file(&pki.front_proxy_ca).unwrap();
    ensure(folder.path(), &names, now()).unwrap();
    let complete = contents(folder.path());
    ensure(folder.path(), &names, now()).unwrap();
    assert_eq!(contents(folder.path()), complete);
    assert_eq!(fs::read(&pki.ca).unwrap(), ca);
}

#[test]
fn a_certificate_of_another_authority_is_made_anew() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = ServingNames::standard();
    let pki = ensure(one.path(), &names, now()).unwrap();
    let other = ensure(two.path(), &names, now()).unwrap();
    for (from, to) in [(&other.admin_certificate, &pki.admin_certificate), (&other.admin_key, &pki.admin_key)]
    {
        fs::copy(from, to).unwrap();
    }
    ensure(one.path(), &names, now()).unwrap();
    assert_ne!(fs::read(&pki.admin_certificate).unwrap(), fs::read(&other.admin_certificate).unwrap());
}

#[test]
fn a_broken_authority_is_told_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    let pki = ensure(folder.path(), &names, now()).unwrap();
    let other = tempfile::tempdir().unwrap();
    ensure(other.path(), &names, now()).unwrap();

    fs::copy(other.path().join("ca.key"), folder.path().join("ca.key")).unwrap();
    let error = ensure(folder.path(), &names, now()).unwrap_err().to_string();
    assert!(error.contains("ca.key is not the key of"), "{error}");

    fs::write(&pki.ca, "garbage").unwrap();
    let error = ensure(folder.path(), &names, now()).unwrap_err().to_string();
    assert!(error.contains("ca.crt does not hold a PEM certificate; put it right"), "{error}");
    assert_eq!(fs::read(&pki.ca).unwrap(), b"garbage");

    let error = ensure(other.path(), &names, later(4_000)).unwrap_err().to_string();
    assert!(error.contains("has expired"), "{error}");
}

#[test]
fn an_unusable_directory_is_one_clear_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ensure(&file, &ServingNames::standard(), now()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot use the certificate directory {}", file.display()));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn an_authority_without_its_key_serves_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    let pki = ensure(folder.path(), &names, now()).unwrap();
    fs::remove_file(folder.path().join("ca.key")).unwrap();
    ensure(folder.path(), &names, now()).unwrap();
    fs::remove_file(&pki.admin_certificate).unwrap();
    let error = ensure(folder.path(), &names, now()).unwrap_err().to_string();
    assert!(error.contains("must be made anew, but ca.key is not there"), "{error}");
}
