//! The keys of service account tokens: read from the files that flags name, else from the self-made ones, and read again
//! when they change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use access::{TokenIssuer, TokenVerifier, service_account::VerifyingKey};
use parking_lot::Mutex;
use server::{
    follow,
    pki::Pki,
    service_account::{Keyring, Keys},
};
use store::SharedClock;

use crate::{
    failure::Failure,
    flags::AuthenticationFlags,
    settings::{read, wrong},
};

/// The files, and what is in use of them.
pub struct TokenKeys {
    files: Files,
    keyring: Arc<Keyring>,
    contents: Mutex<Contents>,
}

/// Where keys are, and for whom they are.
struct Files {
    signing: PathBuf,
    verifying: Verifying,
    issuers: Vec<String>,
    api_audiences: Vec<String>,
}

/// What tokens are checked with.
enum Verifying {
    /// `--service-account-key-file`
    With(Vec<PathBuf>),
    /// The key that signs, and whatever else is in this file.
    WithSigningKeyAnd(Option<PathBuf>),
}

/// What stands in the files.
#[derive(PartialEq, Eq)]
struct Contents {
    signing: String,
    verifying: Vec<String>,
}

impl TokenKeys {
    /// Reads the files.
    pub fn load(flags: &AuthenticationFlags, pki: Option<&Pki>) -> Result<Self, Failure> {
        let files = Files::of(flags, pki)?;
        let contents = files.read()?;
        let keyring = Arc::new(Keyring::new(files.keys(&contents)?));
        Ok(Self { files, keyring, contents: Mutex::new(contents) })
    }

    /// What signs and checks.
    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// Reads the files again whenever they have changed, for ever.
    pub async fn follow_files(self: Arc<Self>, clock: SharedClock) {
        follow::files("keys of service account tokens", clock, move || {
            let keys = Arc::clone(&self);
            follow::aside(move || keys.reload().map_err(|it| it.to_string()))
        })
        .await;
    }

    /// Reads the files again. Says whether something changed; on an error everything stays as it was.
    fn reload(&self) -> Result<bool, Failure> {
        let contents = self.files.read()?;
        let mut before = self.contents.lock();
        if *before == contents {
            return Ok(false);
        }
        self.keyring.replace(self.files.keys(&contents)?);
        *before = contents;
        Ok(true)
    }
}

impl Files {
    fn of(flags: &AuthenticationFlags, pki: Option<&Pki>) -> Result<Self, Failure> {
        let given = &flags.service_account_signing_key_file;
        let made = pki.filter(|_| given.is_none());
        let signing = given.clone().or_else(|| made.map(|it| it.service_account_key.clone()));
        let verifying = match flags.service_account_key_file.as_slice() {
            [] => Verifying::WithSigningKeyAnd(made.map(|it| it.service_account_public_key.clone())),
            files => Verifying::With(files.to_vec()),
        };
        let issuers = flags.service_account_issuer.clone();
        let audiences = &flags.api_audiences;
        Ok(Self {
            signing: signing.ok_or_else(|| Failure::usage("--service-account-signing-key-file is needed"))?,
            verifying,
            api_audiences: if audiences.is_empty() { issuers.clone() } else { audiences.clone() },
            issuers,
        })
    }

    fn verifying(&self) -> &[PathBuf] {
        match &self.verifying {
            Verifying::With(files) => files,
            Verifying::WithSigningKeyAnd(file) => file.as_slice(),
        }
    }

    fn read(&self) -> Result<Contents, Failure> {
        let verifying = self.verifying().iter().map(|it| read(it)).collect::<Result<_, _>>()?;
        Ok(Contents { signing: read(&self.signing)?, verifying })
    }

    fn keys(&self, contents: &Contents) -> Result<Keys, Failure> {
        let name = self.issuers.first().cloned().unwrap_or_default();
        let issuer = TokenIssuer::new(&contents.signing, name).map_err(|it| wrong(&self.signing, &it))?;
        let mut keys = match &self.verifying {
            Verifying::With(_) => Vec::new(),
            Verifying::WithSigningKeyAnd(_) => vec![issuer.public_key()],
        };
        for (path, pem) in self.verifying().iter().zip(&contents.verifying) {
            keys.extend(all_from_pem(path, pem)?);
        }
        let (issuers, api_audiences) = (self.issuers.clone(), self.api_audiences.clone());
        Ok(Keys::new(issuer, TokenVerifier { keys, issuers, api_audiences }))
    }
}

fn all_from_pem(path: &Path, pem: &str) -> Result<Vec<Arc<VerifyingKey>>, Failure> {
    VerifyingKey::all_from_pem(pem).map_err(|it| wrong(path, &it))
}
