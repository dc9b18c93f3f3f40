//! The two documents with which others verify our tokens: `/.well-known/openid-configuration` and `/openid/v1/jwks`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meta::Value;
use serde_json::json;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::VerifyingKey;

/// What the issuer is and where its keys are.
pub fn openid_configuration(issuer: &str, jwks_uri: &str, keys: &[Arc<VerifyingKey>]) -> Value {
    let mut algorithms: Vec<&str> = keys.iter().map(|it| it.algorithm.name()).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

/// The public keys.
pub fn jwks(keys: &[Arc<VerifyingKey>]) -> Value {
    json!({"keys": keys.iter().filter_map(|it| jwk(it)).collect::<Vec<_>>()})
}

fn jwk(key: &VerifyingKey) -> Option<Value> {
    let (_, info) = SubjectPublicKeyInfo::from_der(&key.spki).ok()?;
    let mut jwk = json!({"use": "sig", "kid": key.id, "alg": key.algorithm.name()});
    match info.parsed().ok()? {
        PublicKey::EC(point) => {
            let [4, coordinates @ ..] = point.data() else { return None };
            let (x, y) = coordinates.split_at_checked(32).filter(|(_, y)| y.len() == 32)?;
            jwk["kty"] = json!("EC");
            jwk["crv"] = json!("P-256");
            jwk["x"] = json!(URL_SAFE_NO_PAD.encode(x));
            jwk["y"] = json!(URL_SAFE_NO_PAD.encode(y));
        }
        PublicKey::RSA(rsa) => {
            let plain = |bytes: &[u8]| {
                let start = bytes.iter().position(|it| *it != 0).unwrap_or(bytes.len());
                URL_SAFE_NO_PAD.encode(&bytes[start..])
            };
            jwk["kty"] = json!("RSA");
            jwk["n"] = json!(plain(rsa.modulus));
            jwk["e"] = json!(plain(rsa.exponent));
        }
        _ => return None,
    }
    Some(jwk)
}
