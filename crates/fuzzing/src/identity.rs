//! Who somebody claims to be: tokens, certificates, headers; and the policy by which requests are written down.

use access::{
    Attributes, Impersonation, Policy, RequestHeaderConfig, Target, TokenFile, TokenVerifier, User,
    certificate::check_allowed_name, service_account::VerifyingKey, user_from_certificate, user_from_headers,
};
use jiff::Timestamp;

/// The public half of a key whose private half was thrown away after it had signed the tokens in the corpus.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEncZM1aq4F/2sLYyWFhwMxB3WqevL
un0BA7WgdJ+YSQnzflPtJQFA7cG4W4cAEseA1wlHY3qB3jz6UI5b92Qpgw==
-----END PUBLIC KEY-----
";
const ISSUER: &str = "https://fuzz.example";

/// When the tokens in the corpus were issued.
const NOW: i64 = 1_800_000_000;

/// A ServiceAccount token, and the same bytes as keys in PEM.
pub(crate) fn token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = VerifyingKey::all_from_pem(&text);
    let verifier = TokenVerifier {
        keys: VerifyingKey::all_from_pem(KEY).expect("the key must be readable"),
        issuers: vec![ISSUER.to_owned()],
        api_audiences: vec![ISSUER.to_owned()],
    };
    let now = Timestamp::from_second(NOW).expect("the time must be in range");
    let Ok(account) = verifier.verify(&text, now) else { return };
    // Nobody can sign, so what is accepted was in the corpus, and a change of one letter spoils it.
    assert!(account.namespace == "ns" && account.name == "sa" && account.uid == "uid");
    let expires = account.expires;
    assert!(verifier.verify(&text, expires).is_err());
    assert!(account.into_user().name == "system:serviceaccount:ns:sa");
}

/// A file of static tokens.
pub(crate) fn token_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(file) = TokenFile::parse(&text) else { return };
    assert!(file.lookup("").is_none(), "no token must not be a token");
    for line in text.lines() {
        let token = line.split(',').next().unwrap_or_default();
        if let Some(user) = file.lookup(token) {
            assert!(user.groups.iter().any(|it| it == "system:authenticated"));
        }
    }
}

/// A client certificate.
pub(crate) fn certificate(data: &[u8]) {
    if let Ok(user) = user_from_certificate(data) {
        assert!(!user.name.is_empty());
        assert!(user.groups.iter().any(|it| it == "system:authenticated"));
        assert!(check_allowed_name(data, &[]).is_ok());
        assert!(check_allowed_name(data, std::slice::from_ref(&user.name)).is_ok());
    }
}

/// Header lines that say on whose behalf a request is made.
pub(crate) fn headers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let headers = text.lines().filter_map(|it| it.split_once(": "));
    if let Some(user) = user_from_headers(&RequestHeaderConfig::standard(), headers.clone()) {
        assert!(!user.name.is_empty());
    }
    match Impersonation::from_headers(headers) {
        Ok(Some(wish)) => {
            // Nobody becomes somebody else unchecked.
            assert!(!wish.checks.is_empty());
            let caller = User::default();
            for check in &wish.checks {
                assert!(matches!(check.attributes(&caller).target, Target::Resource { .. }));
            }
        }
        Ok(None) => {}
        Err(status) => assert!((400..=500).contains(&status.code)),
    }
}

/// An audit policy, asked about a few requests.
pub(crate) fn audit_policy(data: &[u8]) {
    let Ok(policy) = Policy::parse(&String::from_utf8_lossy(data)) else { return };
    let user = User { name: "a".to_owned(), groups: vec!["g".to_owned()], ..User::default() };
    let pod = Target::Resource {
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "log",
        namespace: "ns",
        name: "p",
    };
    for target in [pod, Target::Path("/healthz")] {
        let _ = policy.decide(&Attributes { user: &user, verb: "get", target });
    }
}
