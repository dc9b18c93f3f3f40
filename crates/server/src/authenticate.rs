//! Who asks. Tried in upstream's order: front proxy, client certificate, bearer token; then nobody in particular.
//!
//! Anonymous callers get no further than health and version, whatever RBAC says. How each kind of credential is
//! checked is in `access`; here is only where credentials are found in a request.

use std::sync::Arc;

use access::{RequestHeaderConfig, TokenFile, User};
use http::header::AUTHORIZATION;
use meta::Status;
use registry::Registry;

use crate::{
    chain::{Chain, Envelope, Exchange},
    metrics::Metrics,
    service_account::{self, Keyring},
    tls::Trust,
};

/// Everything that can vouch for a caller.
pub struct Authenticator {
    /// `--token-auth-file`
    pub tokens: Option<TokenFile>,
    /// ServiceAccount tokens.
    pub service_accounts: Arc<Keyring>,
    /// Where accounts are looked up.
    pub registry: Arc<Registry>,
    /// Which headers a front proxy uses.
    pub request_header: RequestHeaderConfig,
    /// Which authority signed a certificate.
    pub trust: Box<dyn Fn() -> Arc<Trust> + Send + Sync>,
    /// Whether callers without credentials get as far as authorization.
    pub allow_anonymous: bool,
    /// Counts attempts.
    pub metrics: Arc<Metrics>,
    /// The time, for tokens.
    pub clock: store::SharedClock,
}

/// The caller, or 401.
pub(crate) async fn step(chain: &Chain, exchange: &Exchange) -> Result<Arc<User>, Status> {
    let authenticator = &chain.authenticator;
    let found = authenticator.find(exchange).await;
    let result = match found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => authenticator.anonymous(exchange),
        Err(NotRecognized) => Err(Status::unauthorized()),
    };
    authenticator.metrics.authentication_attempt(if result.is_ok() { "success" } else { "failure" });
    result
}

/// Credentials were sent, and nobody knows them.
#[derive(Clone, Copy, Debug)]
pub struct NotRecognized;

impl Authenticator {
    async fn find(&self, exchange: &Exchange) -> Result<Option<Arc<User>>, NotRecognized> {
        // A credential that is not recognized makes way for the next one. If there is none, the caller is not anonymous.
        let mut has_failed = false;
        if let Some(chain) = &exchange.peer.certificates {
            let by = exchange.peer.verified(&(self.trust)());
            // Authorities come and go, and certificates expire, while connections live.
            has_failed = !by.any();
            if by.front_proxy_ca {
                if exchange.peer.is_named_as_proxy(&self.request_header.allowed_names) {
                    if let Some(user) = self.front_proxy(exchange)? {
                        return Ok(Some(user));
                    }
                } else {
                    // With one authority for both it may be the certificate of a user.
                    has_failed = true;
                }
            }
            if by.client_ca {
                let user = access::user_from_certificate(&chain[0]).map_err(|_| NotRecognized)?;
                return Ok(Some(authenticated(user)));
            }
        }
        let token = match exchange.headers.get(AUTHORIZATION) {
            Some(value) => value.to_str().map_err(|_| NotRecognized)?,
            None => "",
        };
        match bearer(token) {
            // Another scheme is no credential of ours; upstream treats it as none.
            None | Some("") if has_failed => Err(NotRecognized),
            None | Some("") => Ok(None),
            Some(token) => self.token(token).await.map(Some),
        }
    }

    /// Who a bearer token belongs to.
    pub async fn token(&self, token: &str) -> Result<Arc<User>, NotRecognized> {
        if let Some(user) = self.tokens.as_ref().and_then(|it| it.lookup(token)) {
            return Ok(user);
        }
        let (user, _) = service_account::authenticate(self, token).await.ok_or(NotRecognized)?;
        Ok(Arc::new(user))
    }

    fn front_proxy(&self, exchange: &Envelope) -> Result<Option<Arc<User>>, NotRecognized> {
        let mut headers: Vec<(&str, &str)> = Vec::new();
        for (name, value) in
            exchange.headers.iter().filter(|it| self.request_header.is_identity(it.0.as_str()))
        {
            // Left out, it would make the caller the proxy itself, or somebody without that group.
            headers.push((name.as_str(), str::from_utf8(value.as_bytes()).map_err(|_| NotRecognized)?));
        }
        Ok(access::user_from_headers(&self.request_header, headers.iter().copied()).map(authenticated))
    }

    /// Whether the other side of the connection is a server of this cluster: it shows a front proxy's certificate.
    pub(crate) fn is_peer(&self, exchange: &Envelope) -> bool {
        let peer = &exchange.peer;
        peer.verified(&(self.trust)()).front_proxy_ca
            && peer.is_named_as_proxy(&self.request_header.allowed_names)
    }

    /// Nobody in particular: only health and version are open to them.
    fn anonymous(&self, exchange: &Exchange) -> Result<Arc<User>, Status> {
        if !self.allow_anonymous {
            return Err(Status::unauthorized());
        }
        let user = User::anonymous();
        if exchange.info.resource.is_some() || is_open(&exchange.info.path) {
            // Resources are refused by authorization, with upstream's words.
            return Ok(Arc::new(user));
        }
        let attributes = crate::authorize::attributes(exchange, &user);
        Err(access::forbidden_status(&attributes, ""))
    }
}

/// What everybody may ask for.
fn is_open(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"].iter().any(|it| path == *it || path.starts_with(&format!("{it}/")))
        || matches!(path, "/version" | "/version/")
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn authenticated(mut user: User) -> Arc<User> {
    user.add_authenticated_group();
    Arc::new(user)
}
