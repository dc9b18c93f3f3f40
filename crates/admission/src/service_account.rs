//! ServiceAccount: pods run as an account of their namespace, and find its token, its images' secrets and the cluster's
//! certificate where programs look for them.

use std::time::Duration;

use meta::{GroupResource, Status, Value, field::quote, object};
use rand::RngExt;
use serde_json::json;
use store::SharedClock;

use crate::{Attributes, World};

const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a little, so that it can be told from tokens that were asked for explicitly; as upstream.
const TOKEN_SECONDS: u32 = 3607;
/// A namespace that was just made gets its default account a moment later.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fills in what a pod does not say. Says whether that changed it.
pub(crate) async fn admit(
    world: &dyn World,
    clock: &SharedClock,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<bool, Status> {
    // The kubelet compares mirror pods with its files, so they stay as they are.
    if is_mirror(pod) {
        return check_mirror(attributes, pod).map(|()| false);
    }
    let before = pod.clone();
    if account_name(pod).is_empty() {
        let spec = object::child_mut(object::as_map_mut(pod), "spec");
        spec.insert("serviceAccountName".to_owned(), Value::from(DEFAULT));
        spec.insert("serviceAccount".to_owned(), Value::from(DEFAULT));
    }
    let account = find_account(world, clock, attributes, account_name(pod)).await?;
    if is_token_wanted(&account, pod) {
        mount_token(pod);
    }
    let spec = object::child_mut(object::as_map_mut(pod), "spec");
    let has_pull_secrets =
        spec.get("imagePullSecrets").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let offered = account.get("imagePullSecrets").filter(|it| it.as_array().is_some_and(|it| !it.is_empty()));
    if let Some(secrets) = offered.filter(|_| !has_pull_secrets) {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    check_secrets(attributes, &account, pod)?;
    Ok(*pod != before)
}

/// Refuses a pod that its account may not run as it is.
pub(crate) async fn validate(
    world: &dyn World,
    clock: &SharedClock,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<(), Status> {
    if is_mirror(pod) {
        return check_mirror(attributes, pod);
    }
    let account = find_account(world, clock, attributes, account_name(pod)).await?;
    check_secrets(attributes, &account, pod)
}

fn is_mirror(pod: &Value) -> bool {
    pod.get("metadata").and_then(|it| it.get("annotations")).is_some_and(|it| it.get(MIRROR).is_some())
}

fn account_name(pod: &Value) -> &str {
    text(pod.get("spec").unwrap_or(&Value::Null), "serviceAccountName")
}

fn check_mirror(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    let volumes = list(pod.get("spec"), "volumes");
    let sources = || volumes.iter().flat_map(|it| list(it.get("projected"), "sources"));
    if !account_name(pod).is_empty() {
        Err(forbidden(attributes, "a mirror pod may not reference service accounts"))
    } else if volumes.iter().any(|it| it.get("secret").is_some())
        || sources().any(|it| it.get("secret").is_some())
    {
        Err(forbidden(attributes, "a mirror pod may not reference secrets"))
    } else if sources().any(|it| it.get("serviceAccountToken").is_some()) {
        Err(forbidden(attributes, "a mirror pod may not use ServiceAccountToken volume projections"))
    } else {
        Ok(())
    }
}

async fn find_account(
    world: &dyn World,
    clock: &SharedClock,
    attributes: &Attributes<'_>,
    name: &str,
) -> Result<Value, Status> {
    let namespace = attributes.namespace;
    let n_attempts = if name == DEFAULT { ATTEMPTS } else { 1 };
    for attempt in 0..n_attempts {
        if attempt > 0 {
            clock.sleep(PAUSE).await;
        }
        if let Some(account) = world.core_object("serviceaccounts", namespace, name).await? {
            return Ok(account);
        }
    }
    let why = format!(
        "error looking up service account {namespace}/{name}: serviceaccount {} not found",
        quote(name)
    );
    Err(forbidden(attributes, &why))
}

/// The pod's own word counts, then the account's; else it is wanted.
fn is_token_wanted(account: &Value, pod: &Value) -> bool {
    let own = pod.get("spec").and_then(|it| it.get("automountServiceAccountToken"));
    let of_account = account.get("automountServiceAccountToken");
    [own, of_account].into_iter().flatten().find_map(Value::as_bool).unwrap_or(true)
}

fn mount_token(pod: &mut Value) {
    let spec = object::child_mut(object::as_map_mut(pod), "spec");
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let existing =
        volumes.map(|it| text(it, "name")).find(|it| it.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let volume = existing.clone().unwrap_or_else(volume_name);
    let mut is_needed = false;
    for field in ["initContainers", "containers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter(|it| it.is_object()) {
            // What is mounted there already was put there on purpose.
            if list(Some(container), "volumeMounts").iter().any(|it| text(it, "mountPath") == MOUNT_PATH) {
                continue;
            }
            is_needed = true;
            let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
            push(container, "volumeMounts", mount);
        }
    }
    if is_needed && existing.is_none() {
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]);
        let volume = json!({"name": volume, "projected": {"sources": sources, "defaultMode": 420}});
        if !spec.get("volumes").is_some_and(Value::is_array) {
            spec.insert("volumes".to_owned(), json!([]));
        }
        if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
            volumes.push(volume);
        }
    }
}

fn volume_name() -> String {
    let mut rng = rand::rng();
    let suffix = (0..5).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    VOLUME_PREFIX.chars().chain(suffix).collect()
}

fn push(container: &mut Value, field: &str, item: Value) {
    let list = &mut container[field];
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    } else {
        *list = json!([item]);
    }
}

/// An account may say that its pods use no secrets but those that it names.
fn check_secrets(attributes: &Attributes<'_>, account: &Value, pod: &Value) -> Result<(), Status> {
    let annotations = account.get("metadata").and_then(|it| it.get("annotations"));
    let enforced = annotations.and_then(|it| it.get(ENFORCE)).and_then(Value::as_str);
    if !matches!(enforced, Some("true" | "True" | "TRUE" | "t" | "T" | "1")) {
        return Ok(());
    }
    let name = object::name(account);
    let is_mountable =
        |secret: &str| list(Some(account), "secrets").iter().any(|it| text(it, "name") == secret);
    let refuse = |what: String, kind: &str| {
        let why =
            format!("{what} is not allowed because service account {name} does not reference that {kind}");
        Err(forbidden(attributes, &why))
    };
    for volume in list(pod.get("spec"), "volumes") {
        if let Some(secret) = volume.get("secret").map(|it| text(it, "secretName"))
            && !is_mountable(secret)
        {
            return refuse(format!("volume with secret.secretName=\"{secret}\""), "secret");
        }
    }
    for (field, called) in [("initContainers", "init container"), ("containers", "container")] {
        for container in list(pod.get("spec"), field) {
            let own = text(container, "name");
            for variable in list(Some(container), "env") {
                let reference = variable.get("valueFrom").and_then(|it| it.get("secretKeyRef"));
                if let Some(secret) = reference.map(|it| text(it, "name"))
                    && !is_mountable(secret)
                {
                    let variable = text(variable, "name");
                    let what = format!(
                        "{called} {own} with envVar {variable} referencing secret.secretName=\"{secret}\""
                    );
                    return refuse(what, "secret");
                }
            }
            for source in list(Some(container), "envFrom") {
                if let Some(secret) = source.get("secretRef").map(|it| text(it, "name"))
                    && !is_mountable(secret)
                {
                    let what =
                        format!("{called} {own} with envFrom referencing secret.secretName=\"{secret}\"");
                    return refuse(what, "secret");
                }
            }
        }
    }
    let offered = list(Some(account), "imagePullSecrets");
    for (index, secret) in list(pod.get("spec"), "imagePullSecrets").iter().enumerate() {
        let secret = text(secret, "name");
        if !offered.iter().any(|it| text(it, "name") == secret) {
            return refuse(format!("imagePullSecrets[{index}].name=\"{secret}\""), "imagePullSecret");
        }
    }
    Ok(())
}

fn forbidden(attributes: &Attributes<'_>, why: &str) -> Status {
    Status::forbidden(&GroupResource::new("", "pods"), attributes.name, why)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: Option<&'a Value>, field: &str) -> &'a [Value] {
    value.and_then(|it| it.get(field)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
