//! Which flags are taken, and what becomes of them.

use crate::{cli::parse_serve, failure::Exit, logging::LogFormat};

use super::*;

fn parse(args: &[&str]) -> ServeFlags {
    parse_serve(args).unwrap_or_else(|it| panic!("{args:?}: {it}"))
}

#[test]
fn defaults_are_kube_apiservers_where_it_has_them() {
    let flags = parse(&[]);
    assert_eq!(flags.serving.secure_port, 6443);
    assert_eq!(flags.serving.bind_address, IpAddr::from([0, 0, 0, 0]));
    assert_eq!(flags.storage.etcd.etcd_prefix, "/registry");
    assert_eq!(flags.storage.etcd_compaction_interval.to_string(), "5m0s");
    assert_eq!(flags.storage.event_ttl.to_string(), "1h0m0s");
    assert_eq!(flags.requests.max_requests_inflight, 400);
    assert_eq!(flags.requests.max_mutating_requests_inflight, 200);
    assert_eq!(flags.requests.request_timeout.to_string(), "1m0s");
    assert_eq!(flags.requests.min_request_timeout, 1800);
    assert_eq!(flags.audit.audit_log_maxsize, 100);
    assert_eq!(flags.authorization.authorization_mode, "RBAC");
    assert!(flags.authentication.anonymous_auth && !flags.api.allow_unenforced_policies);
    assert_eq!(flags.api.emulated_version, catalog::LAST_RELEASE);
    assert_eq!(flags.logging.logging_format, LogFormat::Text);
    assert_eq!(cert_dir(&flags), Path::new("./convoy-data/pki"));
    assert!(needs_pki(&flags));
}

#[test]
fn flags_are_read() {
    let flags = parse(&[
        "--etcd-servers=http://a:1,http://b:2",
        "--etcd-servers",
        "http://c:3",
        "--etcd-prefix=/x",
        "--anonymous-auth=false",
        "--allow-unenforced-policies",
        "--emulated-version=kube=1.33",
        "--runtime-config=api/all=true,batch/v1=false",
        "--service-account-issuer=https://a",
        "--service-account-issuer=https://b",
        "--logging-format=json",
        "--controllers",
        "-namespace,*",
        "-v",
        "4",
    ]);
    assert_eq!(flags.storage.etcd.etcd_servers, ["http://a:1", "http://b:2", "http://c:3"]);
    assert!(!flags.authentication.anonymous_auth && flags.api.allow_unenforced_policies);
    assert_eq!(flags.api.emulated_version, meta::Release::v1(33));
    assert_eq!(flags.authentication.service_account_issuer, ["https://a", "https://b"]);
    assert_eq!(
        flags.controllers.controllers.to_string(),
        "clusterrole-aggregation,expiry,garbage-collector,root-ca-cert-publisher,serviceaccount,serviceaccount-token,storage-version-gc,\
         storage-version-migrator,storage-version-trigger"
    );
    assert_eq!(flags.logging.verbosity, 4);
    assert_eq!(cert_dir(&flags), Path::new("./convoy-pki"));
    Checked::of(&flags).map_err(|it| it.message).unwrap();
    assert_eq!(parse(&["--v=2"]).logging.verbosity, 2);
    assert!(parse(&["--allow-unenforced-policies=true"]).api.allow_unenforced_policies);
}

const OFF: &str = "--feature-gates=UnknownVersionInteroperabilityProxy=false";

#[test]
fn flags_that_make_no_sense_are_wrong_usage_and_name_themselves() {
    for (args, named) in [
        (&["--data-dir=a", "--etcd-servers=http://b"][..], "--etcd-servers"),
        (&["--etcd-prefix=/x"], "--etcd-servers"),
        (&["--etcd-servers=http://a", "--etcd-certfile=x"], "--etcd-keyfile"),
        (&["--tls-cert-file=x"], "--tls-private-key-file"),
        (&["--write-kubeconfig=x", "--tls-cert-file=a", "--tls-private-key-file=b"], "--write-kubeconfig"),
        (&["--bind-address=nowhere"], "--bind-address"),
        (&["--secure-port=70000"], "--secure-port"),
        (&["--request-timeout=5"], "--request-timeout"),
        (&["--emulated-version=1.29"], "1.30 to 1.36"),
        (&["--emulated-version=new"], "--emulated-version"),
        (&["--audit-log-path=x"], "--audit-policy-file"),
        (&["--logging-format=xml"], "--logging-format"),
        (&["--runtime-config=nonsense=true"], "runtime-config"),
        (&["--runtime-config=no.such.group/v1=true"], "no.such.group"),
        (
            &["--runtime-config=internal.apiserver.k8s.io/v1alpha1=false"],
            "invalid value internal.apiserver.k8s.io/v1alpha1=false: convoy needs",
        ),
        (&["--runtime-config=migration.k8s.io/v1alpha1/storagestates=false"], "storagestates=false"),
        (&["--feature-gates=NoSuchGate=true"], "NoSuchGate"),
        (&["--authorization-mode=Nonsense"], "Nonsense"),
        (&["--authorization-mode="], "authorization-mode"),
        (&["--service-account-max-token-expiration=5m"], "--service-account-max-token-expiration"),
        (&["--controllers=*,nodes"], "--controllers"),
        (&["--anonymous-auth=maybe"], "--anonymous-auth"),
        (&["--peer-advertise-ip=192.0.2.1"], "--peer-advertise-port"),
        (&["--peer-advertise-port=6443"], "--peer-advertise-ip"),
        (&["--peer-discovery=oldest"], "--peer-discovery"),
        (
            &[OFF, "--peer-ca-file=x"],
            "--peer-ca-file requires UnknownVersionInteroperabilityProxy feature to be turned on",
        ),
        (
            &[OFF, "--peer-advertise-ip=192.0.2.1", "--peer-advertise-port=1"],
            "--peer-advertise-ip requires UnknownVersionInteroperabilityProxy feature to be turned on",
        ),
        (&["stray"], "stray"),
    ] {
        let refused = parse_serve(args).and_then(|it| Checked::of(&it).map(drop));
        let failure = refused.expect_err(&format!("{args:?} must be refused"));
        assert_eq!(failure.exit, Exit::Usage, "{args:?}");
        assert!(failure.message.contains(named), "{args:?}: {failure}");
        assert_eq!(failure.message.lines().count(), 1, "{args:?}: {failure}");
    }
}

#[test]
fn a_server_with_all_files_given_makes_none() {
    let flags = parse(&[
        "--tls-cert-file=a",
        "--tls-private-key-file=b",
        "--service-account-signing-key-file=c",
        "--client-ca-file=d",
    ]);
    assert!(!needs_pki(&flags));
    let files = tls_files(&flags, None).map_err(|it| it.message).unwrap();
    assert_eq!(files.client_ca.as_deref(), Some(Path::new("d")));
    assert_eq!(files.front_proxy_ca, None);
}

#[test]
fn other_servers_are_believed_by_an_authority_that_is_named_or_made() {
    let own = ["--tls-cert-file=a", "--tls-private-key-file=b"];
    let read = |more: &[&str], pki: Option<&Pki>| {
        peers(&parse(&[&own[..], more].concat()), pki).map_err(|it| it.message)
    };
    // Certificates of their own, and nobody says who vouches for them.
    assert!(read(&[], None).unwrap().is_none());
    let folder = tempfile::tempdir().unwrap();
    let made =
        server::pki::ensure(folder.path(), &ServingNames::standard(), store::SystemClock::shared().now());
    let made = made.map_err(|it| it.to_string()).unwrap();
    assert!(
        read(&[], Some(&made)).unwrap().is_none(),
        "the self-made authority vouches for self-made certificates only"
    );
    let found = peers(&parse(&[]), Some(&made)).map_err(|it| it.message).unwrap().unwrap();
    assert_eq!((&found.ca, &found.certificate), (&made.ca, &made.front_proxy_certificate));
    for (more, missing) in [
        (&["--peer-ca-file=c"][..], "proxy-cert-file"),
        (&["--peer-ca-file=c", "--proxy-client-cert-file=d"], "proxy-key-file"),
    ] {
        let expect = format!("error building peer proxy handler, {missing} not specified");
        assert_eq!(read(more, None).unwrap_err(), expect);
    }
    let all = ["--peer-ca-file=c", "--proxy-client-cert-file=d", "--proxy-client-key-file=e"];
    let found = read(&all, None).unwrap().unwrap();
    assert_eq!((found.ca, found.certificate, found.key), ("c".into(), "d".into(), "e".into()));
}

#[test]
fn the_serving_certificate_knows_the_advertised_address() {
    let flags = parse(&["--advertise-address=192.0.2.9", "--hostname-override=Node-1"]);
    let names = serving_names(&flags.serving);
    assert!(names.ips.contains(&IpAddr::from([192, 0, 2, 9])));
    assert!(names.dns.contains(&"node-1".to_owned()));
    assert!(!names.ips.iter().any(IpAddr::is_unspecified));
    let flags = parse(&["--bind-address=::1"]);
    assert_eq!(advertised(&flags.serving).to_string(), "::1");
}

#[test]
fn unreadable_files_are_failures_that_name_the_file() {
    let failure = tokens(Some(Path::new("/no/such/file"))).map(drop).unwrap_err();
    assert_eq!(failure.exit, Exit::Failed);
    assert!(failure.message.starts_with("cannot read /no/such/file: "), "{failure}");
    let flags = parse(&["--service-account-signing-key-file=/no/such/key"]);
    let failure = crate::token_keys::TokenKeys::load(&flags.authentication, None).map(drop).unwrap_err();
    assert!(failure.message.contains("/no/such/key"), "{failure}");
}

#[test]
fn a_load_balancer_can_be_named_for_the_serving_certificate() {
    let flags =
        parse(&["--tls-san=LB.example,192.0.2.80", "--tls-san", "[2001:db8::80]", "--tls-san=*.b.example"]);
    let names = serving_names(&flags.serving);
    for name in ["lb.example", "*.b.example", "kubernetes.default.svc"] {
        assert!(names.dns.contains(&name.to_owned()), "{name} in {names:?}");
    }
    for ip in ["192.0.2.80", "2001:db8::80", "127.0.0.1"] {
        assert!(names.ips.contains(&ip.parse().unwrap()), "{ip} in {names:?}");
    }
    for wrong in
        ["--tls-san=https://lb.example", "--tls-san=lb.example:6443", "--tls-san=0.0.0.0", "--tls-san="]
    {
        assert!(parse_serve(&[wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn names_for_a_certificate_of_somebody_else_have_no_effect_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let clock = store::SystemClock::shared();
    let mut made = server::pki::ensure(folder.path(), &ServingNames::standard(), clock.now()).unwrap();
    let warning = |args: &[&str], pki: &Pki| unused_tls_san(&parse(args).serving, Some(pki));
    assert_eq!(warning(&["--tls-san=lb"], &made), None);
    let given = ["--tls-san=lb", "--tls-cert-file=a.crt", "--tls-private-key-file=b"];
    assert!(warning(&given, &made).unwrap().contains("the serving certificate a.crt was not made by convoy"));
    made.serving.is_made_here = false;
    assert!(warning(&["--tls-san=lb"], &made).unwrap().contains("apiserver.crt was not made by convoy"));
    assert_eq!(warning(&[], &made), None);
}

#[test]
fn a_broken_policy_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy");
    fs::write(&path, "junk").unwrap();
    let mut flags = parse(&[]).audit;
    flags.audit_policy_file = Some(path.clone());
    let clock = store::SystemClock::shared();
    let metrics = Arc::new(Metrics::new(&clock, "v1.36.0", catalog::LAST_RELEASE));
    let failure = auditor(&flags, &clock, &metrics).map(drop).unwrap_err();
    assert!(failure.message.starts_with(&format!("{} cannot be used: ", path.display())), "{failure}");
    assert_eq!(failure.message.lines().count(), 1, "{failure}");
}
