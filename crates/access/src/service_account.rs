//! ServiceAccount tokens: issued as JWTs that are bound to an account and perhaps an object, and verified again.
//!
//! Only ES256 and RS256 exist here, and the key decides which: a token's header cannot choose its algorithm.
//! Deliberately not here: whether the account, or the object that the token is bound to, still exists with that uid.
//! The caller checks that on every use.

mod jwt;
mod key;
mod oidc;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use key::{KeyError, VerifyingKey};
pub use oidc::{jwks, openid_configuration};

use crate::User;
use crate::user::{CREDENTIAL_ID, service_account_username};
use key::SigningKey;

/// By how much the clocks of servers may differ before a fresh token of one is refused by another.
const LEEWAY_SECONDS: i64 = 10;

/// What a token is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSpec {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub pod: Option<BoundObject>,
    pub secret: Option<BoundObject>,
    pub node: Option<BoundObject>,
    pub audiences: Vec<String>,
    /// How long the token is good for.
    pub seconds: i64,
    /// When the use of the token should be warned about: it should have been renewed by then.
    pub warn_after: Option<Timestamp>,
    /// The token's id; made up if there is none.
    pub jti: Option<String>,
}

/// An object that a token dies with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundObject {
    pub name: String,
    #[serde(default)]
    pub uid: String,
}

/// A new token. It is a secret: it has no `Debug` that shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedToken {
    pub token: String,
    pub jti: String,
    pub expires: Timestamp,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedToken")
            .field("jti", &self.jti)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Signs tokens.
#[derive(Clone)]
pub struct TokenIssuer {
    key: Arc<SigningKey>,
    issuer: String,
}

impl std::fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssuer").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Checks tokens.
#[derive(Clone, Debug, Default)]
pub struct TokenVerifier {
    pub keys: Vec<Arc<VerifyingKey>>,
    pub issuers: Vec<String>,
    pub api_audiences: Vec<String>,
}

/// What a good token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedServiceAccount {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub pod: Option<BoundObject>,
    pub secret: Option<BoundObject>,
    pub node: Option<BoundObject>,
    /// The token's audiences that were asked for.
    pub audiences: Vec<String>,
    pub jti: String,
    pub expires: Timestamp,
    pub warn_after: Option<Timestamp>,
}

/// Why a token is not accepted. Clients see only 401; this is for logs, and holds nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("not a ServiceAccount token of this server")]
    NotOurs,
    #[error("the token is malformed")]
    Malformed,
    #[error("no key verifies the token")]
    NoKey,
    #[error("the token's signature is wrong")]
    BadSignature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token is meant for another audience")]
    WrongAudience,
}

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Audiences,
    exp: i64,
    #[serde(default)]
    iat: i64,
    iss: String,
    #[serde(default)]
    jti: String,
    #[serde(default)]
    nbf: i64,
    sub: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: KubernetesClaims,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KubernetesClaims {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<BoundObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<BoundObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<BoundObject>,
    serviceaccount: BoundObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnafter: Option<i64>,
}

/// `aud` is a text or a list of texts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Audiences {
    Many(Vec<String>),
    One(String),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl TokenIssuer {
    /// Signs with an EC P-256 (or RSA) private key in PEM, as `issuer`.
    pub fn new(private_key_pem: &str, issuer: impl Into<String>) -> Result<Self, KeyError> {
        Ok(Self { key: Arc::new(SigningKey::from_pem(private_key_pem)?), issuer: issuer.into() })
    }

    /// What `iss` says.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The public half of the key.
    pub fn public_key(&self) -> Arc<VerifyingKey> {
        Arc::clone(&self.key.public)
    }

    /// A new token.
    pub fn issue(&self, spec: &TokenSpec, now: Timestamp) -> IssuedToken {
        let iat = now.as_second();
        let exp = iat.saturating_add(spec.seconds.max(0)).min(Timestamp::MAX.as_second());
        let jti = spec.jti.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let claims = Claims {
            aud: Audiences::Many(spec.audiences.clone()),
            exp,
            iat,
            iss: self.issuer.clone(),
            jti: jti.clone(),
            nbf: iat,
            sub: service_account_username(&spec.namespace, &spec.name),
            kubernetes: KubernetesClaims {
                namespace: spec.namespace.clone(),
                node: spec.node.clone(),
                pod: spec.pod.clone(),
                secret: spec.secret.clone(),
                serviceaccount: BoundObject { name: spec.name.clone(), uid: spec.uid.clone() },
                warnafter: spec.warn_after.map(Timestamp::as_second),
            },
        };
        let claims = serde_json::to_vec(&claims).expect("claims must serialize");
        let token = jwt::sign(&self.key, &claims);
        let expires = Timestamp::from_second(exp).expect("the time must be in range after it was limited");
        IssuedToken { token, jti, expires }
    }
}

impl TokenVerifier {
    /// Accepts what the issuer issues.
    pub fn of(issuer: &TokenIssuer) -> Self {
        let name = issuer.issuer().to_owned();
        Self { keys: vec![issuer.public_key()], issuers: vec![name.clone()], api_audiences: vec![name] }
    }

    /// Checks a token that was sent to this API server.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedServiceAccount, TokenError> {
        self.verify_for(token, now, &self.api_audiences)
    }

    /// Checks a token that may be meant for any of these audiences.
    pub fn verify_for(
        &self,
        token: &str,
        now: Timestamp,
        audiences: &[String],
    ) -> Result<VerifiedServiceAccount, TokenError> {
        let parts = jwt::split(token)?;
        // Whose token it is decides before any signature is computed, so that foreign tokens cost little.
        let claims: Claims = serde_json::from_slice(&parts.claims).map_err(|_| TokenError::NotOurs)?;
        if !self.issuers.contains(&claims.iss) {
            return Err(TokenError::NotOurs);
        }
        jwt::verify(&parts, &self.keys)?;
        let now = now.as_second();
        if now >= claims.exp {
            return Err(TokenError::Expired);
        }
        if now.saturating_add(LEEWAY_SECONDS) < claims.nbf.max(claims.iat) {
            return Err(TokenError::NotYetValid);
        }
        claims.into_verified(audiences)
    }
}

impl Claims {
    fn into_verified(self, wanted: &[String]) -> Result<VerifiedServiceAccount, TokenError> {
        let KubernetesClaims { namespace, node, pod, secret, serviceaccount, warnafter } = self.kubernetes;
        let BoundObject { name, uid } = serviceaccount;
        let is_complete = !namespace.is_empty() && !name.is_empty() && !uid.is_empty();
        if !is_complete || self.sub != service_account_username(&namespace, &name) {
            return Err(TokenError::Malformed);
        }
        let mut audiences = match self.aud {
            Audiences::Many(list) => list,
            Audiences::One(one) => vec![one],
        };
        audiences.retain(|it| wanted.contains(it));
        if audiences.is_empty() {
            return Err(TokenError::WrongAudience);
        }
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| TokenError::Malformed);
        Ok(VerifiedServiceAccount {
            namespace,
            name,
            uid,
            pod,
            secret,
            node,
            audiences,
            jti: self.jti,
            expires: time(self.exp)?,
            warn_after: warnafter.map(time).transpose()?,
        })
    }
}

impl VerifiedServiceAccount {
    /// The user that requests with this token are made by.
    pub fn into_user(self) -> User {
        let mut user = User::service_account(&self.namespace, &self.name, &self.uid);
        let mut extra = BTreeMap::new();
        if !self.jti.is_empty() {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", self.jti)]);
        }
        for (kind, bound) in [("pod", self.pod), ("node", self.node)] {
            if let Some(BoundObject { name, uid }) = bound {
                extra.insert(format!("authentication.kubernetes.io/{kind}-name"), vec![name]);
                if !uid.is_empty() {
                    extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), vec![uid]);
                }
            }
        }
        user.extra = extra;
        user.add_authenticated_group();
        user
    }
}
