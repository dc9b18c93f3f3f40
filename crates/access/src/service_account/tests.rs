//! Tokens round trip, and everything else is refused without a panic.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meta::Value;
use proptest::prelude::*;
use rcgen::KeyPair;
use serde_json::json;

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc";

fn issuer() -> TokenIssuer {
    TokenIssuer::new(&KeyPair::generate().unwrap().serialize_pem(), ISSUER).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn later(seconds: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + seconds).unwrap()
}

fn spec() -> TokenSpec {
    TokenSpec {
        namespace: "ns".to_owned(),
        name: "robot".to_owned(),
        uid: "u-1".to_owned(),
        pod: Some(BoundObject { name: "p".to_owned(), uid: "pu".to_owned() }),
        node: Some(BoundObject { name: "n".to_owned(), uid: String::new() }),
        audiences: vec![ISSUER.to_owned(), "other".to_owned()],
        seconds: 3600,
        jti: Some("j".to_owned()),
        ..TokenSpec::default()
    }
}

fn decode(token: &str, part: usize) -> Value {
    let part = token.split('.').nth(part).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn a_token_says_what_upstreams_says() {
    let issuer = issuer();
    let issued = issuer.issue(&spec(), now());
    assert_eq!(decode(&issued.token, 0), json!({"alg": "ES256", "kid": issuer.public_key().id()}));
    assert_eq!(
        decode(&issued.token, 1),
        json!({
            "aud": [ISSUER, "other"], "exp": 1_800_003_600, "iat": 1_800_000_000, "nbf": 1_800_000_000,
            "iss": ISSUER, "jti": "j", "sub": "system:serviceaccount:ns:robot",
            "kubernetes.io": {
                "namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u-1"},
                "pod": {"name": "p", "uid": "pu"}, "node": {"name": "n", "uid": ""},
            },
        })
    );
    assert_eq!(issued.expires, later(3600));
    assert!(!format!("{issued:?}").contains(&issued.token));
}

#[test]
fn a_good_token_becomes_a_user() {
    let issuer = issuer();
    let token = issuer.issue(&spec(), now()).token;
    let verified = TokenVerifier::of(&issuer).verify(&token, later(10)).unwrap();
    assert_eq!(verified.audiences, [ISSUER]);
    let user = verified.into_user();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:robot", "u-1"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    let extra: Vec<_> =
        user.extra.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
    assert_eq!(
        extra,
        [
            "authentication.kubernetes.io/credential-id=JTI=j",
            "authentication.kubernetes.io/node-name=n",
            "authentication.kubernetes.io/pod-name=p",
            "authentication.kubernetes.io/pod-uid=pu",
        ]
    );
}

#[test]
fn wrong_tokens_are_refused() {
    let (issuer, stranger) = (issuer(), issuer_named("https://else"));
    let verifier = TokenVerifier::of(&issuer);
    let token = issuer.issue(&spec(), now()).token;
    let check = |token: &str, at: Timestamp, want: TokenError| {
        assert_eq!(verifier.verify(token, at), Err(want));
    };
    check(&token, later(3600), TokenError::Expired);
    check(&token, later(-60), TokenError::NotYetValid);
    assert!(verifier.verify(&token, later(-5)).is_ok(), "clocks may differ a little");
    check(&stranger.issue(&spec(), now()).token, now(), TokenError::NotOurs);
    let impostor = issuer_named(ISSUER).issue(&spec(), now()).token;
    check(&impostor, now(), TokenError::NoKey);
    let elsewhere = TokenSpec { audiences: vec!["other".to_owned()], ..spec() };
    check(&issuer.issue(&elsewhere, now()).token, now(), TokenError::WrongAudience);
    let nameless = TokenSpec { uid: String::new(), ..spec() };
    check(&issuer.issue(&nameless, now()).token, now(), TokenError::Malformed);
    for text in ["", "a", "a.b", "a.b.c", "..", "....", "eyJhbGciOiJub25lIn0.e30."] {
        check(text, now(), TokenError::NotOurs);
    }
    check(&"x".repeat(1 << 20), now(), TokenError::NotOurs);
}

fn issuer_named(name: &str) -> TokenIssuer {
    TokenIssuer::new(&KeyPair::generate().unwrap().serialize_pem(), name).unwrap()
}

#[test]
fn the_header_cannot_choose_the_algorithm() {
    let issuer = issuer();
    let token = issuer.issue(&spec(), now()).token;
    let verifier = TokenVerifier::of(&issuer);
    let (header, rest) = token.split_once('.').unwrap();
    let original: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
    for alg in ["none", "HS256", "RS256", "ES384"] {
        let mut header = original.clone();
        header["alg"] = json!(alg);
        let forged = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()));
        assert_eq!(verifier.verify(&forged, now()), Err(TokenError::NoKey), "{alg}");
    }
    let without_id = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#));
    assert_eq!(verifier.verify(&without_id, now()), Err(TokenError::BadSignature));
}

#[test]
fn audiences_can_be_asked_for() {
    let issuer = issuer();
    let token = issuer.issue(&spec(), now()).token;
    let verifier = TokenVerifier::of(&issuer);
    let verified = verifier.verify_for(&token, now(), &["other".to_owned(), "third".to_owned()]).unwrap();
    assert_eq!(verified.audiences, ["other"]);
}

#[test]
fn rsa_keys_sign_and_verify() {
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = aws_lc_rs::encoding::AsDer::as_der(&pair).unwrap();
    let body = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let issuer = TokenIssuer::new(&pem, ISSUER).unwrap();
    let token = issuer.issue(&spec(), now()).token;
    assert_eq!(decode(&token, 0)["alg"], "RS256");
    let keys = VerifyingKey::all_from_pem(&pem).unwrap();
    let verifier = TokenVerifier { keys, ..TokenVerifier::of(&issuer) };
    assert!(verifier.verify(&token, now()).is_ok());
    assert_eq!(jwks(&verifier.keys)["keys"][0]["e"], "AQAB");
}

#[test]
fn keys_are_read_from_public_and_private_pem() {
    let pair = KeyPair::generate().unwrap();
    let private = TokenIssuer::new(&pair.serialize_pem(), ISSUER).unwrap().public_key();
    for pem in [pair.serialize_pem(), pair.public_key_pem()] {
        let keys = VerifyingKey::all_from_pem(&pem).unwrap();
        assert_eq!(keys.len(), 1);
        assert_eq!(keys[0].id(), private.id());
    }
    assert_eq!(VerifyingKey::all_from_pem("").unwrap_err(), KeyError::NoKey);
    assert_eq!(TokenIssuer::new(&pair.public_key_pem(), ISSUER).unwrap_err(), KeyError::NoPrivateKey);
    let wrong = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(TokenIssuer::new(wrong, ISSUER).unwrap_err(), KeyError::Unusable);
}

#[test]
fn others_can_find_the_keys() {
    let issuer = issuer();
    let keys = [issuer.public_key()];
    let key = &jwks(&keys)["keys"][0];
    assert_eq!((key["kty"].as_str(), key["crv"].as_str()), (Some("EC"), Some("P-256")));
    assert_eq!(key["x"].as_str().unwrap().len(), 43);
    let document = openid_configuration(ISSUER, "https://x/openid/v1/jwks", &keys);
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
}

proptest! {
    #[test]
    fn any_text_is_refused(text in "\\PC{0,200}") {
        prop_assert!(TokenVerifier::of(&issuer()).verify(&text, now()).is_err());
    }

    #[test]
    fn any_claims_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let token = format!("{}.{}.AA", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#), URL_SAFE_NO_PAD.encode(&bytes));
        prop_assert!(TokenVerifier::of(&issuer()).verify(&token, now()).is_err());
    }
}
