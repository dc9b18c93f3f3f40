//! Who somebody is, and who says so.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use access::{TokenIssuer, TokenVerifier};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, Request};
use http_body_util::BodyExt;
use meta::Release;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use server::{
    body::full_body,
    listen::Peer,
    pki::{self, Pki, ServingNames},
    service_account::{Keyring, Keys},
    tls::{Tls, TlsFiles},
};
use store::{Clock, ManualClock, MemoryStore, SharedStore, SystemClock, fault::FaultStore};

use crate::harness::{MAPS, TestServer};

const USER: (&str, &str) = ("authorization", "Bearer usertoken");
const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// A request for a certificate with this organization.
fn signing_request(name: &str, signer: &str, organization: &str) -> Value {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"],
            "username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"forged": ["yes"]}}})
}

/// Everything that the server fills in from who asks: whatever the client says about it counts for nothing.
#[tokio::test]
async fn nobody_says_for_somebody_else_who_they_are() {
    let server = TestServer::start().await;
    server.post(ACCOUNTS, json!({"metadata": {"name": "robot"}})).await.expect(201);
    let alice = [
        ADMIN,
        ("impersonate-user", "alice"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-scopes", "a"),
    ];
    let forged = json!({"username": "root", "uid": "0", "groups": ["x"], "extra": {"forged": ["yes"]}});
    let truth = json!({"username": "alice", "uid": "7", "groups": ["system:masters", "system:authenticated"],
        "extra": {"scopes": ["a"]}});
    let of_alice = |found: &Value| {
        let fields = ["username", "uid", "groups", "extra"];
        json!(
            fields
                .map(|it| (it, found[it].clone()))
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
        )
    };
    let list = [
        (REQUESTS, signing_request("a", "example.com/s", "dev"), "/spec"),
        (
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json!({"status": {"userInfo": forged}}),
            "/status/userInfo",
        ),
    ];
    for (path, body, place) in list {
        let made = server.send("POST", path, &alice, body).await.expect(201).json();
        assert_eq!(of_alice(made.pointer(place).unwrap()), truth, "{path}");
    }
    let apply = [&alice[..], &[("content-type", "application/apply-patch+yaml")]].concat();
    let path = format!("{REQUESTS}/b?fieldManager=m");
    let made = server.send("PATCH", &path, &apply, signing_request("b", "example.com/s", "dev")).await;
    assert_eq!(of_alice(&made.expect(201).json()["spec"]), truth);
    // Later nobody changes it, nor anything else that was asked for.
    let one = format!("{REQUESTS}/a");
    let before = server.get(&one).await.expect(200).json();
    let mut put = before.clone();
    put["spec"] = signing_request("a", CLIENT_SIGNER, "system:masters")["spec"].clone();
    server.ask("PUT", &one, put).await.expect(200);
    server.patch(&one, "merge", json!({"spec": {"username": "root", "groups": ["x"]}})).await.expect(200);
    server.patch(&format!("{one}/status"), "merge", json!({"spec": {"username": "root"}})).await.expect(200);
    assert_eq!(server.get(&one).await.expect(200).json()["spec"], before["spec"]);
    // A token speaks for the account of the path.
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": {"name": "robot"}, "spec": {}, "status": {"token": "x"}});
    let made = server.send("POST", &format!("{ACCOUNTS}/robot/token"), &alice, body).await.expect(201).json();
    let claims = made["status"]["token"].as_str().unwrap().split('.').nth(1).unwrap().to_owned();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    // Whether something is allowed is asked for the caller.
    let review =
        json!({"spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answered = server.send("POST", path, &alice, review).await.expect(201).json();
    assert_eq!(answered["status"]["allowed"], true);
}

/// Gives `user` a rule everywhere.
async fn grant(server: &TestServer, rules: &Value, probe: (&str, &str, &str)) {
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    server.post(&format!("/apis/{group}/v1/clusterroles"), role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "user", "apiGroup": group}],
    });
    server.post(&format!("/apis/{group}/v1/clusterrolebindings"), binding).await.expect(201);
    let (group, resource, verb) = probe;
    let review =
        json!({"spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": verb}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    while server.send("POST", path, &[USER], review.clone()).await.json()["status"]["allowed"] != true {
        tokio::task::yield_now().await;
    }
}

/// With a signer beside the server each of these would be a certificate that makes its holder an administrator.
#[tokio::test]
async fn certificates_are_asked_for_approved_and_signed_by_those_who_may() {
    let server = TestServer::start().await;
    let masters = signing_request("masters", CLIENT_SIGNER, "system:masters");
    let refused = server.post(REQUESTS, masters).await.expect(403);
    assert_eq!(
        refused.message(),
        "certificatesigningrequests.certificates.k8s.io \"masters\" is forbidden: use of \
         kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    );
    let mut broken = signing_request("broken", CLIENT_SIGNER, "dev");
    broken["spec"]["request"] = json!("AAAA");
    assert!(server.post(REQUESTS, broken).await.code >= 400);
    server.post(REQUESTS, signing_request("other", "example.com/s", "system:masters")).await.expect(201);
    server.post(REQUESTS, signing_request("a", CLIENT_SIGNER, "dev")).await.expect(201);
    // Nobody approves through the status, an administrator neither.
    let status = format!("{REQUESTS}/a/status");
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let refused = server.patch(&status, "merge", approved).await.expect(422);
    assert!(
        refused.message().contains("updates may not add a condition of type \"Approved\""),
        "{}",
        refused.text
    );
    let requests = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/status"],
        "verbs": ["get", "patch"]});
    let signers = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["sign"],
        "resourceNames": ["example.com/*"]});
    let probe = json!({"apiGroups": ["p"], "resources": ["p"], "verbs": ["get"]});
    grant(&server, &json!([requests, signers, probe]), ("p", "p", "get")).await;
    let merge = [USER, ("content-type", "application/merge-patch+json")];
    let signed = json!({"status": {"certificate": STANDARD.encode("x")}});
    let refused = server.send("PATCH", &status, &merge, signed.clone()).await.expect(403);
    assert_eq!(
        refused.message(),
        "certificatesigningrequests.certificates.k8s.io \"a\" is forbidden: user not permitted to sign requests with \
         signerName \"kubernetes.io/kube-apiserver-client\""
    );
    let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    server.send("PATCH", &status, &merge, failed).await.expect(403);
    server.send("PATCH", &status, &merge, json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    server.send("PATCH", &format!("{REQUESTS}/other/status"), &merge, signed).await.expect(200);
    let again = json!({"status": {"certificate": STANDARD.encode("y")}});
    server.patch(&format!("{REQUESTS}/other/status"), "merge", again).await.expect(422);
}

/// Asks with a header that is no text.
async fn code_with(server: &TestServer, peer: Peer, path: &str, headers: &[(&str, &[u8])]) -> (u16, String) {
    let mut request = Request::get(path).body(full_body(String::new())).unwrap();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
    }
    let response = server.server.chain().serve(request, Arc::new(peer), None).await;
    let (parts, body) = response.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), String::from_utf8_lossy(&text).into_owned())
}

fn nobody() -> Peer {
    Peer::without_certificate(([127, 0, 0, 1], 0).into())
}

/// Left out, they would make the caller somebody else: the impersonator, the proxy, or nobody in particular.
#[tokio::test]
async fn identity_headers_that_cannot_be_read_are_refused() {
    let server = TestServer::start().await;
    let admin: (&str, &[u8]) = ("authorization", b"Bearer admintoken");
    for name in ["impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-scopes"] {
        let alice: (&str, &[u8]) = ("impersonate-user", b"alice");
        let headers: Vec<(&str, &[u8])> = vec![admin, (name, b"a\xff"), alice];
        assert_eq!(code_with(&server, nobody(), MAPS, &headers).await.0, 400, "{name}");
    }
    assert_eq!(code_with(&server, nobody(), MAPS, &[admin, ("impersonate-user", b"\xff")]).await.0, 400);
    for value in [&b"Bearer \xff"[..], b"\xff", b"Bearer admintoken\xc3\xbc"] {
        assert_eq!(code_with(&server, nobody(), "/version", &[("authorization", value)]).await.0, 401);
    }
    assert_eq!(code_with(&server, nobody(), "/version", &[]).await.0, 200);
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A server that trusts the certificates of a folder, and what a client with one of them looks like to it.
async fn trusting(
    pki: &Pki,
    front_proxy_ca: &Path,
    clock: &Arc<ManualClock>,
) -> (TestServer, impl Fn(&Path) -> Peer + use<>) {
    let files = TlsFiles {
        certificate: pki.serving_certificate.clone(),
        private_key: pki.serving_key.clone(),
        client_ca: Some(pki.ca.clone()),
        front_proxy_ca: Some(front_proxy_ca.to_owned()),
    };
    let tls = Arc::new(Tls::load(files, clock.clone()).unwrap());
    let trusted = Arc::clone(&tls);
    let server = TestServer::start_as(Release::v1(36), |settings| {
        settings.trust = Box::new(move || trusted.trust());
        settings.request_header.allowed_names = vec!["front-proxy-client".to_owned()];
    })
    .await;
    let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
    (server, move |path: &Path| Peer::with_certificates(address, chain(path), &tls.trust()))
}

#[tokio::test]
async fn a_proxy_whose_headers_cannot_be_read_speaks_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(SystemClock::new().now());
    let pki = pki::ensure(folder.path(), &ServingNames::standard(), clock.now()).unwrap();
    // One authority for both, so that the proxy's certificate would name a user, too.
    for authority in [&pki.front_proxy_ca, &pki.ca] {
        let (server, peer) = trusting(&pki, authority, &clock).await;
        if authority == &pki.front_proxy_ca {
            let proxy = || peer(&pki.front_proxy_certificate);
            let (code, text) = code_with(&server, proxy(), MAPS, &[("x-remote-user", b"bob")]).await;
            assert!(code == 403 && text.contains("User \\\"bob\\\""), "{text}");
            let user: (&str, &[u8]) = ("x-remote-user", b"bob");
            for name in ["x-remote-user", "x-remote-group", "x-remote-uid", "x-remote-extra-a"] {
                let headers: Vec<(&str, &[u8])> = vec![(name, b"a\xff"), user];
                assert_eq!(code_with(&server, proxy(), MAPS, &headers).await.0, 401, "{name}");
            }
            assert_eq!(code_with(&server, proxy(), "/version", &[("x-remote-user", b"\xff")]).await.0, 401);
        }
        // A user's certificate is one, whoever else its authority vouches for.
        assert_eq!(code_with(&server, peer(&pki.admin_certificate), MAPS, &[]).await.0, 200);
    }
}

#[tokio::test]
async fn a_certificate_that_expires_on_an_open_connection_is_not_anonymous() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(SystemClock::new().now());
    let pki = pki::ensure(folder.path(), &ServingNames::standard(), clock.now()).unwrap();
    let (server, peer) = trusting(&pki, &pki.front_proxy_ca, &clock).await;
    let admin = peer(&pki.admin_certificate);
    clock.advance(Duration::from_secs(366 * 86_400));
    assert_eq!(code_with(&server, admin, "/version", &[]).await.0, 401);
    // It does not stand in the way of another credential.
    let admin = peer(&pki.admin_certificate);
    let token: (&str, &[u8]) = ("authorization", b"Bearer admintoken");
    assert_eq!(code_with(&server, admin, MAPS, &[token]).await.0, 200);
}

fn token_request(bound: &Value) -> Value {
    let spec = if bound.is_null() { json!({}) } else { json!({"boundObjectRef": bound}) };
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

async fn token(server: &TestServer, bound: &Value) -> String {
    let made = server.post(&format!("{ACCOUNTS}/robot/token"), token_request(bound)).await.expect(201).json();
    format!("Bearer {}", made["status"]["token"].as_str().unwrap())
}

async fn code(server: &TestServer, token: &str) -> u16 {
    server.send("GET", MAPS, &[("authorization", token)], Value::Null).await.code
}

/// Whether a token stops being accepted once the server has seen why.
async fn ends(server: &TestServer, token: &str) -> bool {
    for _ in 0..2_000 {
        if code(server, token).await == 401 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test]
async fn tokens_end_with_what_they_are_bound_to() {
    let server = TestServer::start_still(Release::v1(36), |_| {}).await;
    server.post(ACCOUNTS, json!({"metadata": {"name": "robot", "finalizers": ["a.b/c"]}})).await.expect(201);
    server.post(ACCOUNTS, json!({"metadata": {"name": "other"}})).await.expect(201);
    server.post("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await.expect(201);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "other",
        "containers": [{"name": "c", "image": "i"}]}});
    server.post(pods, pod).await.expect(201);
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
    let refused = server.post(&format!("{ACCOUNTS}/robot/token"), token_request(&bound)).await.expect(400);
    assert_eq!(
        refused.message(),
        "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name."
    );
    let of_node = token(&server, &json!({"apiVersion": "v1", "kind": "Node", "name": "n"})).await;
    let plain = token(&server, &Value::Null).await;
    assert_eq!((code(&server, &of_node).await, code(&server, &plain).await), (403, 403));
    server.ask("DELETE", "/api/v1/nodes/n", Value::Null).await.expect(200);
    assert!(ends(&server, &of_node).await, "it outlived its node");
    assert_eq!(code(&server, &plain).await, 403);
    // An account that only waits for its finalizers lives for another minute, as upstream.
    server.ask("DELETE", &format!("{ACCOUNTS}/robot"), Value::Null).await.expect(200);
    assert_eq!(code(&server, &plain).await, 403);
    for _ in 0..62 {
        server.pass_a_second();
    }
    assert!(ends(&server, &plain).await, "it outlived its account");
}

#[tokio::test]
async fn a_token_of_the_file_is_for_this_server_only() {
    let server = TestServer::start().await;
    let review = async |audiences: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": "usertoken", "audiences": audiences}});
        let answered =
            server.post("/apis/authentication.k8s.io/v1/tokenreviews", body).await.expect(201).json();
        (answered["status"]["authenticated"] == true, answered["status"]["audiences"].clone())
    };
    let own = json!(["https://kubernetes.default.svc"]);
    assert_eq!(review(json!([])).await, (true, own.clone()));
    assert_eq!(review(json!(["vault", "https://kubernetes.default.svc"])).await, (true, own));
    assert_eq!(review(json!(["vault"])).await, (false, Value::Null));
}

fn issuer() -> TokenIssuer {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    TokenIssuer::new(&key, "https://kubernetes.default.svc").unwrap()
}

fn keyring(issuer: &TokenIssuer) -> Keyring {
    Keyring::new(Keys::new(issuer.clone(), TokenVerifier::of(issuer)))
}

/// A key that is taken away was taken away for a reason: what it signed is not believed for another moment.
#[tokio::test]
async fn keys_of_tokens_are_replaced_while_the_server_runs() {
    let (old, new) = (issuer(), issuer());
    let keys = Arc::new(keyring(&old));
    let given = Arc::clone(&keys);
    let server = TestServer::start_still(Release::v1(36), |it| it.token_keys = given).await;
    server.post(ACCOUNTS, json!({"metadata": {"name": "robot"}})).await.expect(201);
    let first = token(&server, &Value::Null).await;
    assert_eq!(code(&server, &first).await, 403);

    // Both are believed, the new one signs.
    let mut both = TokenVerifier::of(&new);
    both.keys.push(old.public_key());
    keys.replace(Keys::new(new.clone(), both));
    let second = token(&server, &Value::Null).await;
    assert_eq!((code(&server, &first).await, code(&server, &second).await), (403, 403));

    keys.replace(Keys::new(new.clone(), TokenVerifier::of(&new)));
    assert_eq!((code(&server, &first).await, code(&server, &second).await), (401, 403));
}

/// The account was made at another server a moment ago.
#[tokio::test]
async fn a_token_is_refused_only_by_what_the_store_says() {
    let issuer = issuer();
    let inner = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let (slow, faults) = FaultStore::new(inner.clone(), SystemClock::shared());
    let with_key = |settings: &mut server::server::Settings| {
        settings.token_keys = Arc::new(keyring(&issuer));
    };
    let first = TestServer::start_on(inner, Release::v1(36), with_key).await;
    let second = TestServer::start_on(SharedStore::new(slow), Release::v1(36), with_key).await;
    faults.delay(Duration::from_millis(300));
    first.post(ACCOUNTS, json!({"metadata": {"name": "robot"}})).await.expect(201);
    let made = token(&first, &Value::Null).await;
    assert_eq!(code(&second, &made).await, 403);
}
