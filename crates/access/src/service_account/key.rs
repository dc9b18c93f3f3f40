//! The keys that sign and verify tokens, read from PEM. Where the files lie is the caller's matter.

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{PemObject, SectionKind};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The largest PEM text that is read.
const MAX_PEM_BYTES: usize = 1 << 20;

/// Why a key cannot be used. Key material never appears in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("no EC P-256 or RSA private key in PEM form found")]
    NoPrivateKey,
    #[error("no EC P-256 or RSA key in PEM form found")]
    NoKey,
    #[error("the key is malformed, or neither EC P-256 nor RSA of at least 2048 bits")]
    Unusable,
}

/// How a key signs; a JWT calls it `alg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Es256,
    Rs256,
}

impl Algorithm {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
        }
    }
}

/// A public key that tokens are verified with.
pub struct VerifyingKey {
    pub(super) id: String,
    pub(super) algorithm: Algorithm,
    pub(super) spki: Vec<u8>,
    parsed: ParsedPublicKey,
}

impl std::fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyingKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// A private key that tokens are signed with.
pub(super) struct SigningKey {
    pub(super) public: Arc<VerifyingKey>,
    private: PrivateKey,
}

enum PrivateKey {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl VerifyingKey {
    /// All keys of a PEM text: public keys, certificates, or the public halves of private keys.
    pub fn all_from_pem(pem: &str) -> Result<Vec<Arc<Self>>, KeyError> {
        let mut keys = Vec::new();
        for (kind, der) in sections(pem)? {
            let key = match kind {
                SectionKind::PublicKey => Self::from_spki(der)?,
                SectionKind::Certificate => {
                    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| KeyError::Unusable)?;
                    Self::from_spki(certificate.public_key().raw.to_vec())?
                }
                SectionKind::PrivateKey | SectionKind::EcPrivateKey | SectionKind::RsaPrivateKey => {
                    PrivateKey::from_der(kind, &der)?.public()?
                }
                _ => continue,
            };
            keys.push(Arc::new(key));
        }
        if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(keys) }
    }

    /// The id that tokens name it by: a hash of the public key.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.verify_sig(message, signature).is_ok()
    }

    fn from_spki(spki: Vec<u8>) -> Result<Self, KeyError> {
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(&spki));
        let (algorithm, parsed) = match ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &spki) {
            Ok(parsed) => (Algorithm::Es256, parsed),
            Err(_) => {
                let parsed = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &spki);
                (Algorithm::Rs256, parsed.map_err(|_| KeyError::Unusable)?)
            }
        };
        Ok(Self { id, algorithm, spki, parsed })
    }
}

impl SigningKey {
    pub(super) fn from_pem(pem: &str) -> Result<Self, KeyError> {
        for (kind, der) in sections(pem)? {
            if matches!(
                kind,
                SectionKind::PrivateKey | SectionKind::EcPrivateKey | SectionKind::RsaPrivateKey
            ) {
                let private = PrivateKey::from_der(kind, &der)?;
                return Ok(Self { public: Arc::new(private.public()?), private });
            }
        }
        Err(KeyError::NoPrivateKey)
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.private {
            PrivateKey::Ec(pair) => {
                let signature = pair.sign(&random, message).expect("an EC key must be able to sign");
                signature.as_ref().to_vec()
            }
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .expect("an RSA key must be able to sign");
                signature
            }
        }
    }
}

impl PrivateKey {
    fn from_der(kind: SectionKind, der: &[u8]) -> Result<Self, KeyError> {
        let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = match kind {
            SectionKind::EcPrivateKey => EcdsaKeyPair::from_private_key_der(signing, der).ok().map(Self::Ec),
            SectionKind::RsaPrivateKey => RsaKeyPair::from_der(der).ok().map(Self::Rsa),
            _ => {
                let ec = EcdsaKeyPair::from_pkcs8(signing, der).ok().map(Self::Ec);
                ec.or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Self::Rsa))
            }
        };
        pair.ok_or(KeyError::Unusable)
    }

    fn public(&self) -> Result<VerifyingKey, KeyError> {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Ec(pair) => pair.public_key().as_der(),
            Self::Rsa(pair) => pair.public_key().as_der(),
        }
        .map_err(|_| KeyError::Unusable)?;
        VerifyingKey::from_spki(der.as_ref().to_vec())
    }
}

fn sections(pem: &str) -> Result<Vec<(SectionKind, Vec<u8>)>, KeyError> {
    if pem.len() > MAX_PEM_BYTES {
        return Err(KeyError::Unusable);
    }
    let all = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().map_err(|_| KeyError::Unusable)
}
