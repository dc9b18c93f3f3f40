//! The outer form of a token: `header.claims.signature`, each in base64url. What the claims mean is not known here.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;

use super::TokenError;
use super::key::{SigningKey, VerifyingKey};

/// The longest token that is looked at.
const MAX_BYTES: usize = 16 << 10;

/// A token taken apart, nothing of it believed yet.
pub(super) struct Parts<'a> {
    pub(super) claims: Vec<u8>,
    header: Header,
    /// `header.claims`, which is what was signed.
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

pub(super) fn sign(key: &SigningKey, claims: &[u8]) -> String {
    let header = json!({"alg": key.public.algorithm.name(), "kid": key.public.id});
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

pub(super) fn split(token: &str) -> Result<Parts<'_>, TokenError> {
    if token.len() > MAX_BYTES {
        return Err(TokenError::NotOurs);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::NotOurs);
    let header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::NotOurs)?;
    Ok(Parts { claims: decode(claims)?, header, signed, signature: decode(signature)? })
}

/// Whether one of the keys made the signature. A key id narrows the choice to that key.
pub(super) fn verify(parts: &Parts<'_>, keys: &[Arc<VerifyingKey>]) -> Result<(), TokenError> {
    let Header { alg, kid } = &parts.header;
    let fits = |key: &&Arc<VerifyingKey>| key.algorithm.name() == alg && (kid.is_empty() || key.id == *kid);
    let mut candidates = keys.iter().filter(fits).peekable();
    if candidates.peek().is_none() {
        return Err(TokenError::NoKey);
    }
    if candidates.any(|it| it.verifies(parts.signed.as_bytes(), &parts.signature)) {
        Ok(())
    } else {
        Err(TokenError::BadSignature)
    }
}
