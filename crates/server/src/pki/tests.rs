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
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = ServingNames::standard();
    let pki = ensure(folder.path(), &names, now()).unwrap();
    let ca = fs::read(&pki.ca).unwrap();
    fs::write(&pki.service_account_public_key, "half").unwrap();
    fs::remove_file(&pki.front_proxy_ca).unwrap();
    // A start that ended while files waited for each other, and one that ended after the first of them was in its place.
    ensure(other.path(), &names, now()).unwrap();
    fs::create_dir(folder.path().join(".new")).unwrap();
    fs::write(folder.path().join(".new/admin.key"), "half").unwrap();
    fs::create_dir(folder.path().join(".ready")).unwrap();
    for name in ["ca.key", "apiserver.crt", "apiserver.key"] {
        fs::remove_file(folder.path().join(name)).unwrap();
        fs::copy(other.path().join(name), folder.path().join(".ready").join(name)).unwrap();
    }
    fs::copy(folder.path().join(".ready/ca.key"), folder.path().join("ca.key")).unwrap();
    fs::remove_file(folder.path().join(".ready/ca.key")).unwrap();
    fs::copy(other.path().join("ca.crt"), folder.path().join(".ready/ca.crt")).unwrap();
    ensure(folder.path(), &names, now()).unwrap();
    assert_eq!(fs::read(&pki.ca).unwrap(), fs::read(other.path().join("ca.crt")).unwrap());
    assert_ne!(fs::read(&pki.ca).unwrap(), ca);
    let complete = contents(folder.path());
    assert!(!complete.iter().any(|(name, _)| name.starts_with('.') && name != ".lock"));
    ensure(folder.path(), &names, now()).unwrap();
    assert_eq!(contents(folder.path()), complete);
}

/// A serving certificate as another tool makes it, for one name and two days.
fn brought_along(folder: &Path, name: &str) {
    let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["api.example.com".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver");
    params.not_before = rcgen::date_time_ymd(2026, 11, 15);
    params.not_after = rcgen::date_time_ymd(2026, 11, 17);
    fs::write(folder.join(format!("{name}.crt")), params.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), pair.serialize_pem()).unwrap();
}

/// Servers overwrote a certificate that an operator had put into the directory, because it lacked names of theirs.
#[test]
fn keys_that_somebody_brought_along_are_used_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["apiserver", "admin", "front-proxy-client"] {
        brought_along(folder.path(), name);
    }
    let brought = contents(folder.path());
    let names = ServingNames::standard();
    for day in [0, 1, 20, 400] {
        let pki = ensure(folder.path(), &names, later(day)).unwrap();
        let now = contents(folder.path());
        for file in &brought {
            assert!(now.contains(file), "{} changed on day {day}", file.0);
        }
        assert_eq!(pki.serving, Origin { is_made_here: false, is_vouched_for: false });
        let trusted = &pki.authorities_for_clients;
        for path in [&pki.ca, &pki.serving_certificate] {
            let pem = fs::read_to_string(path).unwrap();
            assert!(trusted.contains(&pem), "{} is not trusted", path.display());
        }
    }
}

/// A certificate that an operator signed with the self-made authority is the operator's, too.
#[test]
fn certificates_of_releases_without_a_mark_are_told_from_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    let pki = ensure(folder.path(), &names, now()).unwrap();
    let authority = KeyPair::from_pem(&fs::read_to_string(folder.path().join("ca.key")).unwrap()).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&fs::read_to_string(&pki.ca).unwrap(), authority).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["lb.example.com".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver");
    params.use_authority_key_identifier_extension = true;
    params.not_before = rcgen::date_time_ymd(2026, 11, 14);
    for (until, is_ours) in
        [(rcgen::date_time_ymd(2027, 11, 15), true), (rcgen::date_time_ymd(2027, 11, 14), false)]
    {
        params.not_after = until;
        let pair = KeyPair::generate().unwrap();
        let pem = params.signed_by(&pair, &issuer).unwrap().pem();
        fs::write(&pki.serving_certificate, &pem).unwrap();
        fs::write(&pki.serving_key, pair.serialize_pem()).unwrap();
        let found = ensure(folder.path(), &names, now()).unwrap();
        let is_kept = fs::read_to_string(&pki.serving_certificate).unwrap() == pem;
        assert_eq!((is_kept, found.serving.is_vouched_for), (!is_ours, true));
        assert!(describe(&pki.serving_certificate).1.contains(&"lb.example.com".to_owned()));
    }
}

#[test]
fn half_a_pair_is_an_error_that_says_what_to_do() {
    for name in ["apiserver", "admin", "front-proxy-client"] {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        brought_along(folder.path(), name);
        brought_along(other.path(), name);
        let (crt, key) = (format!("{name}.crt"), format!("{name}.key"));
        let check = |expected: &str| {
            let before = contents(folder.path());
            let error = ensure(folder.path(), &ServingNames::standard(), now()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.ends_with(
                "; put the pair that belongs together there, or move both away and new ones are made"
            ));
            let after = contents(folder.path());
            assert!(before.iter().all(|it| after.contains(it)), "{expected}: nothing changes");
        };
        fs::copy(other.path().join(&key), folder.path().join(&key)).unwrap();
        check(&format!("{key} is not the key of"));
        fs::write(folder.path().join(&crt), "garbage").unwrap();
        check(&format!("{crt} does not hold a PEM certificate"));
        fs::remove_file(folder.path().join(&crt)).unwrap();
        check(&format!("{key} is there, but"));
        fs::copy(other.path().join(&crt), folder.path().join(&crt)).unwrap();
        fs::write(folder.path().join(&key), "garbage").unwrap();
        check(&format!("{key} does not hold a PEM private key"));
        fs::remove_file(folder.path().join(&key)).unwrap();
        check(&format!("{crt} is there, but"));
    }
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
    fs::remove_file(&pki.admin_key).unwrap();
    let error = ensure(folder.path(), &names, now()).unwrap_err().to_string();
    assert!(error.contains("must be made anew, but ca.key is not there"), "{error}");
}

/// The parts of a name: `ca` is `ca.crt` and `ca.key`.
fn pair(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")))
}

/// Appends one file to another.
fn append(from: &Path, to: &Path) {
    let both = [fs::read(to).unwrap(), fs::read(from).unwrap()].concat();
    fs::write(to, both).unwrap();
}

/// Who vouches for a certificate, as TLS sees it: the first authority of a file, and none of the others.
fn is_vouched_for(certificate: &Path, authority: &Path) -> bool {
    let (certificate, authority) = (
        CertificateDer::from_pem_file(certificate).unwrap(),
        CertificateDer::from_pem_file(authority).unwrap(),
    );
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let parsed = rustls::server::ParsedCertificate::try_from(&certificate).unwrap();
    let at = rustls_pki_types::UnixTime::since_unix_epoch(Duration::from_secs(
        now().as_second().try_into().unwrap(),
    ));
    let algorithms = provider.signature_verification_algorithms.all;
    rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], at, algorithms).is_ok()
}

/// Two authorities at once were an error, or the first one in the file signed though its key had gone.
#[test]
fn an_authority_is_replaced_step_by_step() {
    let (folder, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folder, new) = (folder.path(), new.path());
    let names = ServingNames::standard();
    let pki = ensure(folder, &names, now()).unwrap();
    ensure(new, &names, now()).unwrap();
    let old = tempfile::tempdir().unwrap();
    for name in ["ca", "front-proxy-ca"] {
        fs::copy(pair(folder, name).0, pair(old.path(), name).0).unwrap();
        // Both are trusted, and nothing is made anew.
        append(&pair(new, name).0, &pair(folder, name).0);
    }
    let before = contents(folder);
    let found = renew(folder, &names, now()).unwrap();
    assert_eq!(contents(folder), before);
    assert!(found.serving.is_vouched_for);
    assert!(found.authorities_for_clients.contains(&fs::read_to_string(new.join("ca.crt")).unwrap()));

    // The other key signs, wherever its certificate stands in the file.
    for name in ["ca", "front-proxy-ca"] {
        fs::copy(pair(new, name).1, pair(folder, name).1).unwrap();
    }
    renew(folder, &names, now()).unwrap();
    assert!(is_vouched_for(&pki.serving_certificate, &new.join("ca.crt")));
    assert!(!is_vouched_for(&pki.serving_certificate, &old.path().join("ca.crt")));
    let made = contents(folder);
    let changed: Vec<_> =
        made.iter().zip(&before).filter(|(new, old)| new != old).map(|(new, _)| &new.0).collect();
    let leaves = ["admin", "apiserver", "ca.key", "front-proxy-ca.key", "front-proxy-client"];
    assert!(changed.iter().all(|it| leaves.iter().any(|leaf| it.starts_with(leaf))), "{changed:?}");
    assert_eq!(changed.len(), 8, "{changed:?}");
    renew(folder, &names, now()).unwrap();
    assert_eq!(contents(folder), made);

    // The old one is gone.
    for name in ["ca", "front-proxy-ca"] {
        fs::copy(pair(new, name).0, pair(folder, name).0).unwrap();
    }
    let found = renew(folder, &names, now()).unwrap();
    assert_eq!(found.authorities_for_clients, fs::read_to_string(new.join("ca.crt")).unwrap());
    assert!(!changed.is_empty() && fs::read(&pki.admin_key).unwrap() == made[2].1, "nothing else changes");
}

/// An expired certificate of the same key does not stand in the way of the one that replaced it.
#[test]
fn the_certificate_that_signs_is_one_that_has_not_expired() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    ensure(folder.path(), &names, now()).unwrap();
    let files = ["ca", "front-proxy-ca"].map(|it| pair(folder.path(), it).0);
    let old = files.each_ref().map(|it| fs::read_to_string(it).unwrap());
    files.iter().for_each(|it| fs::remove_file(it).unwrap());
    ensure(folder.path(), &names, later(2_000)).unwrap();
    for (file, old) in files.iter().zip(&old) {
        let new = fs::read_to_string(file).unwrap();
        fs::write(file, format!("{old}{new}")).unwrap();
    }
    renew(folder.path(), &names, later(4_000)).unwrap();
    fs::write(&files[0], &old[0]).unwrap();
    let error = renew(folder.path(), &names, later(4_000)).unwrap_err().to_string();
    assert!(error.contains("has expired"), "{error}");
}

/// A shell empties a file before it writes to it.
#[test]
fn a_running_server_makes_no_authority_for_one_that_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    ensure(folder.path(), &names, now()).unwrap();
    for name in ["ca.crt", "front-proxy-ca.crt", "sa.key"] {
        let path = folder.path().join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "").unwrap();
        let before = contents(folder.path());
        let error = renew(folder.path(), &names, now()).unwrap_err().to_string();
        assert!(error.ends_with("is missing or empty, and a running server makes no new one"), "{error}");
        assert_eq!(contents(folder.path()), before);
        fs::write(&path, whole).unwrap();
    }
    assert!(renew(folder.path(), &names, now()).is_ok());
}

#[test]
fn what_is_signed_is_looked_at_again_when_its_roots_change() {
    let folder = tempfile::tempdir().unwrap();
    let names = ServingNames::standard();
    ensure(folder.path(), &names, now()).unwrap();
    let roots = Roots::read(folder.path()).unwrap();
    fs::remove_file(folder.path().join("admin.crt")).unwrap();
    fs::remove_file(folder.path().join("admin.key")).unwrap();
    ensure(folder.path(), &names, now()).unwrap();
    assert_eq!(Roots::read(folder.path()).unwrap(), roots, "leaves are no roots");
    append(&folder.path().join("front-proxy-ca.crt"), &folder.path().join("ca.crt"));
    assert_ne!(Roots::read(folder.path()).unwrap(), roots);
}

/// While the key of tokens is replaced, those of both keys are believed.
#[test]
fn keys_of_tokens_beside_the_one_that_signs_are_kept() {
    let (folder, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = ServingNames::standard();
    let pki = ensure(folder.path(), &names, now()).unwrap();
    let new = ensure(new.path(), &names, now()).unwrap();
    append(&new.service_account_public_key, &pki.service_account_public_key);
    let both = fs::read(&pki.service_account_public_key).unwrap();
    ensure(folder.path(), &names, now()).unwrap();
    assert_eq!(fs::read(&pki.service_account_public_key).unwrap(), both);
    fs::copy(&new.service_account_key, &pki.service_account_key).unwrap();
    renew(folder.path(), &names, now()).unwrap();
    assert_eq!(fs::read(&pki.service_account_public_key).unwrap(), both);

    // A mistake is not mended by losing the other keys.
    let mut broken = both.clone();
    broken.truncate(both.len() - 40);
    fs::write(&pki.service_account_public_key, &broken).unwrap();
    renew(folder.path(), &names, now()).unwrap_err();
    assert_eq!(fs::read(&pki.service_account_public_key).unwrap(), broken);
    // What the key that signs does not belong to was left by another one.
    fs::write(&pki.service_account_public_key, &both[..both.len() / 2]).unwrap();
    renew(folder.path(), &names, now()).unwrap();
    let found = fs::read(&pki.service_account_public_key).unwrap();
    assert_eq!(found, fs::read(&new.service_account_public_key).unwrap());
}

#[test]
fn names_that_cannot_be_in_a_certificate_are_told_apart() {
    for name in ["lb.example", "LB-1.example.com", "*.example.com", "a_b"] {
        assert!(is_dns_name(name), "{name}");
    }
    for name in ["", "*", "*.", "a b", "a.*.b", "https://lb", "lb:6443"] {
        assert!(!is_dns_name(name), "{name}");
    }
}
