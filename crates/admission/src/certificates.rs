//! What may be asked of a signer of certificates, and who may speak for it. Upstream's rules and words.
//!
//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction are about CertificateSigningRequests,
//! ClusterTrustBundleAttest about the authorities that a signer has; what upstream's registry checks of
//! PodCertificateRequests is the same question.

use access::Target;
use base64::{Engine, engine::general_purpose::STANDARD};
use meta::{FieldError, FieldErrors, GroupKind, GroupResource, Status, Value, object};

use crate::{Attributes, Operation, Plugin, Plugins, Rights};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const BUNDLES: &str = "clustertrustbundles";

/// Certificates of this signer are believed by the server itself.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Whether the caller has a verb (first) on a signer (second).
type Speaks<'a> = dyn Fn(&str, &str) -> bool + 'a;

/// Refuses what one of the plugins that are on refuses.
pub(crate) fn check(
    plugins: &Plugins,
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
    rights: &Rights<'_>,
) -> Result<(), Status> {
    if &*attributes.resource.group != GROUP {
        return Ok(());
    }
    let speaks = |verb: &str, signer: &str| speaks_for(attributes, verb, signer, rights);
    match (&*attributes.resource.resource, attributes.subresource, attributes.operation) {
        (REQUESTS, "approval", _) if plugins.has(Plugin::CertificateApproval) => {
            check_signer(&speaks, "approve", new)
        }
        // For the signer that was asked for, whatever the new state says.
        (REQUESTS, "status", Operation::Update) if plugins.has(Plugin::CertificateSigning) => match old {
            Some(old) if !is_signed_anew(new, old) => Ok(()),
            old => check_signer(&speaks, "sign", old.unwrap_or(new)),
        },
        (REQUESTS, "", Operation::Create) if plugins.has(Plugin::CertificateSubjectRestriction) => {
            check_subject(new)
        }
        (BUNDLES, "", Operation::Create | Operation::Update)
            if plugins.has(Plugin::ClusterTrustBundleAttest) =>
        {
            check_bundle(&speaks, new, old)
        }
        // No plugin of upstream's, so nothing switches it off.
        ("podcertificaterequests", "status", Operation::Update) => match old {
            Some(old) => check_pod_request(&speaks, attributes, new, old),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Who says which authorities a signer has decides whom everybody trusts.
fn check_bundle(speaks: &Speaks<'_>, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    let signer = spec(new, "signerName");
    let is_housekeeping = old.is_some_and(|old| access::rbac::write::changes_only_housekeeping(old, new));
    if signer.is_empty() || is_housekeeping || speaks("attest", signer) {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {}", meta::field::quote(signer));
    Err(Status::forbidden(&GroupResource::new(GROUP, BUNDLES), object::name(new), &why))
}

/// Whatever changes in the status of a request of a pod is the signer's word.
fn check_pod_request(
    speaks: &Speaks<'_>,
    attributes: &Attributes<'_>,
    new: &Value,
    old: &Value,
) -> Result<(), Status> {
    let signer = spec(old, "signerName");
    if new.get("status") == old.get("status") || speaks("sign", signer) {
        return Ok(());
    }
    let (user, signer) = (meta::field::quote(&attributes.user.name), meta::field::quote(signer));
    let detail = format!("User {user} is not permitted to \"sign\" for signer {signer}");
    let errors = FieldErrors(vec![FieldError::forbidden("spec.signerName", detail)]);
    Err(errors.into_status(&GroupKind::new(GROUP, "PodCertificateRequest"), object::name(new)))
}

fn is_signed_anew(new: &Value, old: &Value) -> bool {
    let part = |it: &Value, field| it.get("status").and_then(|it| it.get(field)).cloned();
    ["certificate", "conditions"].iter().any(|field| part(new, field) != part(old, field))
}

/// Whether the caller has a verb on a signer, by its name or by all of its domain.
fn speaks_for(attributes: &Attributes<'_>, verb: &str, signer: &str, rights: &Rights<'_>) -> bool {
    let may = |name: &str| {
        let target = Target::Resource {
            group: GROUP,
            version: "*",
            resource: "signers",
            subresource: "",
            namespace: "",
            name,
        };
        rights.has(&access::Attributes { user: attributes.user, verb, target })
    };
    may(signer) || may(&format!("{}/*", signer.split('/').next().unwrap_or_default()))
}

fn check_signer(speaks: &Speaks<'_>, verb: &str, request: &Value) -> Result<(), Status> {
    let signer = spec(request, "signerName");
    if speaks(verb, signer) {
        return Ok(());
    }
    let signer = meta::field::quote(signer);
    Err(forbidden(request, &format!("user not permitted to {verb} requests with signerName {signer}")))
}

fn check_subject(request: &Value) -> Result<(), Status> {
    if spec(request, "signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let pem = STANDARD.decode(spec(request, "request")).unwrap_or_default();
    let organizations = access::certificate::organizations_of_request(&pem)
        .map_err(|why| forbidden(request, &format!("failed to parse CSR: {why}")))?;
    if organizations.iter().any(|it| it == access::user::MASTERS) {
        let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
        return Err(forbidden(request, &why));
    }
    Ok(())
}

fn spec<'a>(request: &'a Value, field: &str) -> &'a str {
    request.get("spec").and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or_default()
}

fn forbidden(request: &Value, why: &str) -> Status {
    Status::forbidden(&GroupResource::new(GROUP, REQUESTS), object::name(request), why)
}
