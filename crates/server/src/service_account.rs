//! ServiceAccount tokens: making them (`serviceaccounts/token`) and believing them.
//!
//! A signature alone is not believed: the account, and what the token is bound to, must still be there with the same uid.

use std::{collections::HashMap, sync::Arc, time::Duration};

use access::{
    TokenIssuer, TokenSpec, TokenVerifier, User, VerifiedServiceAccount,
    review::{self, BoundReference},
    service_account::BoundObject,
};
use arc_swap::ArcSwap;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use meta::{GroupResource, GroupVersion, Status, Value, object};
use parking_lot::Mutex;
use registry::{Registry, Target};
use sha2::{Digest, Sha256};

use crate::{
    admit::Admitter,
    answer::{self, Answer},
    api::{Call, options},
    authenticate::Authenticator,
    body::RequestBody,
    negotiate,
};

/// How long a checked signature is believed without checking it again. Whether the account is there is looked at each time.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
const MAX_REMEMBERED: usize = 4096;

/// How tokens are made.
pub struct TokenSettings {
    /// Signs, and says for whom unless said otherwise.
    pub keys: Arc<Keyring>,
    /// The longest a token may live; `None` for as long as is asked.
    pub max_expiration: Option<Duration>,
}

/// The keys that tokens are signed and checked with now.
///
/// Whoever reads them from files replaces them when those change.
pub struct Keyring(ArcSwap<Keys>);

/// The keys of one moment, and what was checked with them.
pub struct Keys {
    issuer: TokenIssuer,
    verifier: TokenVerifier,
    checked: CheckedTokens,
}

/// Tokens whose signature was checked a moment ago, by the hash of their text.
#[derive(Default)]
struct CheckedTokens(Mutex<HashMap<[u8; 32], (Duration, VerifiedServiceAccount)>>);

impl Keys {
    /// Nothing was checked with them yet.
    pub fn new(issuer: TokenIssuer, verifier: TokenVerifier) -> Self {
        Self { issuer, verifier, checked: CheckedTokens::default() }
    }
}

impl Keyring {
    /// With its first keys.
    pub fn new(keys: Keys) -> Self {
        Self(ArcSwap::from_pointee(keys))
    }

    /// From now on these sign and check. Nothing is believed because others have checked it.
    pub fn replace(&self, keys: Keys) {
        self.0.store(Arc::new(keys));
    }

    /// The audiences of this server.
    pub(crate) fn api_audiences(&self) -> Vec<String> {
        self.0.load().verifier.api_audiences.clone()
    }
}

/// Who a token belongs to, and which audiences it is for.
pub(crate) async fn authenticate(authenticator: &Authenticator, token: &str) -> Option<(User, Vec<String>)> {
    alive(authenticator, checked(authenticator, token)?).await
}

/// The same for a token that may be meant for any of these audiences.
pub(crate) async fn authenticate_for(
    authenticator: &Authenticator,
    token: &str,
    audiences: &[String],
) -> Option<(User, Vec<String>)> {
    let now = authenticator.clock.now();
    alive(
        authenticator,
        authenticator.service_accounts.0.load().verifier.verify_for(token, now, audiences).ok()?,
    )
    .await
}

async fn alive(
    authenticator: &Authenticator,
    verified: VerifiedServiceAccount,
) -> Option<(User, Vec<String>)> {
    let (registry, now) = (&authenticator.registry, authenticator.clock.now());
    // The account may have been made at another server a moment ago: only what the store says now can refuse a token
    // that was signed for it.
    if !is_alive(registry, &verified, now) {
        registry.catch_up().await.ok()?;
        if !is_alive(registry, &verified, now) {
            return None;
        }
    }
    let audiences = verified.audiences.clone();
    Some((verified.into_user(), audiences))
}

fn checked(authenticator: &Authenticator, token: &str) -> Option<VerifiedServiceAccount> {
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let (now, today) = (authenticator.clock.monotonic(), authenticator.clock.now());
    let keys = authenticator.service_accounts.0.load();
    if let Some((until, verified)) = keys.checked.0.lock().get(&hash)
        && now < *until
        && today < verified.expires
    {
        return Some(verified.clone());
    }
    let verified = keys.verifier.verify(token, today).ok()?;
    let mut remembered = keys.checked.0.lock();
    if remembered.len() >= MAX_REMEMBERED {
        remembered.clear();
    }
    remembered.insert(hash, (now + REMEMBERED_FOR, verified.clone()));
    Some(verified)
}

/// Whether the account, and what the token is bound to, are still there.
fn is_alive(registry: &Registry, verified: &VerifiedServiceAccount, now: Timestamp) -> bool {
    let VerifiedServiceAccount { namespace, name, uid, pod, secret, node, .. } = verified;
    let has = |resource: &str, namespace: &str, name: &str, uid: &str| {
        let found = find(registry, resource, namespace, name);
        found.is_some_and(|it| object::uid(&it) == uid && !is_long_gone(&it, now))
    };
    let is_bound = |resource: &str, namespace: &str, bound: &Option<BoundObject>| {
        bound.as_ref().is_none_or(|it| has(resource, namespace, &it.name, &it.uid))
    };
    has("serviceaccounts", namespace, name, uid)
        && is_bound("pods", namespace, pod)
        && is_bound("secrets", namespace, secret)
        // The token of a Pod names its node, too, and lives as long as the Pod.
        && (pod.is_some() || is_bound("nodes", "", node))
}

/// Whether the object should have gone a minute ago and only waits for its finalizers, as upstream counts.
fn is_long_gone(object: &Value, now: Timestamp) -> bool {
    let ends: Option<Timestamp> = object::meta_text(object, "deletionTimestamp").parse().ok();
    ends.is_some_and(|it| it + SignedDuration::from_secs(60) < now)
}

/// A core object from the cache.
pub(crate) fn find(registry: &Registry, resource: &str, namespace: &str, name: &str) -> Option<Value> {
    let kind = registry.kinds().get(&GroupResource::new("", resource))?;
    let target = Target {
        kind,
        group_version: GroupVersion::new("", "v1"),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    };
    let item = registry.item(&target).ok()?;
    serde_json::from_slice(item.text()).ok()
}

/// `POST …/serviceaccounts/{name}/token`
pub(crate) async fn token_request(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::write(call.exchange, "CreateOptions", &registry::Anything)?;
    let (mut request, warnings) = call.read_accepted(&options, body).await?;
    let version = GroupVersion::new("authentication.k8s.io", "v1");
    let owners = call.registry.owners_of_sent(&version, "TokenRequest", "token", &options, &request);
    Admitter::of(call).answered(&call.target, &mut request).await?;
    let Target { namespace, name, .. } = &call.target;
    review::check_token_subject(&request, namespace, name)?;
    let text = call.registry.get(&call.target, "").await?;
    let mut wanted = review::token_request(&request, name)?;
    let account: Value = serde_json::from_slice(&text).map_err(Status::internal)?;
    let settings = &call.dispatch.tokens;
    if wanted.audiences.is_empty() {
        wanted.audiences = settings.keys.api_audiences();
    }
    if let Some(most) = settings.max_expiration {
        wanted.seconds = wanted.seconds.min(i64::try_from(most.as_secs()).unwrap_or(i64::MAX));
    }
    let mut spec = TokenSpec {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: object::uid(&account).to_owned(),
        audiences: wanted.audiences.clone(),
        seconds: wanted.seconds,
        ..TokenSpec::default()
    };
    if let Some(reference) = &wanted.bound {
        bind(call.registry, reference, &mut spec)?;
    }
    let now = call.registry.clock().now();
    let issued = settings.keys.0.load().issuer.issue(&spec, now);
    let mut answered = review::token_request_answer(&request, namespace, name, &wanted, &issued, now);
    if let Some(owners) = owners {
        object::metadata_mut(&mut answered).insert("managedFields".to_owned(), owners);
    }
    let answer = answer::json(call.exchange, 201, Bytes::from(answered.to_string()), format);
    Ok(warnings.iter().fold(answer, |answer, warning| answer.warn(warning)))
}

/// Ties a token to an object, so that it dies with it.
fn bind(registry: &Registry, reference: &BoundReference, token: &mut TokenSpec) -> Result<(), Status> {
    let BoundReference { kind, name, uid, .. } = reference;
    let (resource, slot) = match kind.as_str() {
        "Pod" => ("pods", &mut token.pod),
        "Secret" => ("secrets", &mut token.secret),
        _ => ("nodes", &mut token.node),
    };
    let namespace = if resource == "nodes" { "" } else { token.namespace.as_str() };
    let resource = GroupResource::new("", resource);
    let found = find(registry, &resource.resource, namespace, name)
        .ok_or_else(|| Status::not_found(&resource, name))?;
    let runs_as = found.get("spec").and_then(|it| it.get("serviceAccountName")).and_then(Value::as_str);
    if kind == "Pod" && runs_as.unwrap_or_default() != token.name {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            token.name
        )));
    }
    if !uid.is_empty() && uid != object::uid(&found) {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(&resource, name, &why));
    }
    *slot = Some(BoundObject { name: name.clone(), uid: object::uid(&found).to_owned() });
    Ok(())
}
