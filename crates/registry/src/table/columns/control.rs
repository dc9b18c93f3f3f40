//! The columns of what governs the cluster itself: certificates, admission policies, flow control, extensions.

use meta::Value;
use serde_json::json;

use super::{
    AGE, Column, NAME, at, count, found, integer, items, number, or_else, short_duration, shown, text,
};

pub(super) const SIGNING_REQUESTS: &[Column] = &[
    NAME,
    AGE,
    text(
        "SignerName",
        "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.",
        |it, _| json!(signer(it)),
    ),
    text("Requestor", "Base64-encoded PKCS#10 CSR data", |it, _| at(it, &["spec", "username"])),
    text(
        "RequestedDuration",
        "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer may issue a certificate with a different validity duration so a client must check the delta between the notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 minutes.",
        |it, _| match found(it, &["spec", "expirationSeconds"]).and_then(Value::as_i64) {
            Some(seconds) => json!(short_duration(seconds)),
            None => json!("<none>"),
        },
    ),
    text("Condition", "Conditions applied to the request, such as approval or denial.", |it, _| {
        json!(signing_state(it))
    }),
];
pub(super) const TRUST_BUNDLES: &[Column] = &[
    NAME,
    text(
        "SignerName",
        "signerName indicates the associated signer, if any.\n\nIn order to create or update a ClusterTrustBundle that sets signerName, you must have the following cluster-scoped permission: group=certificates.k8s.io resource=signers resourceName=<the signer name> verb=attest.\n\nIf signerName is not empty, then the ClusterTrustBundle object must be named with the signer name as a prefix (translating slashes to colons). For example, for the signer name `example.com/foo`, valid ClusterTrustBundle object names include `example.com:foo:abc` and `example.com:foo:v1`.\n\nIf signerName is empty, then the ClusterTrustBundle object's name must not have such a prefix.\n\nList/watch requests for ClusterTrustBundles can filter on this field using a `spec.signerName=NAME` field selector.",
        |it, _| json!(signer(it)),
    ),
];
pub(super) const POD_CERTIFICATE_REQUESTS: &[Column] = &[
    NAME,
    text("PodName", "podName is the name of the pod into which the certificate will be mounted.", |it, _| {
        at(it, &["spec", "podName"])
    }),
    text(
        "ServiceAccountName",
        "serviceAccountName is the name of the service account the pod is running as.",
        |it, _| at(it, &["spec", "serviceAccountName"]),
    ),
    text("NodeName", "nodeName is the name of the node the pod is assigned to.", |it, _| {
        at(it, &["spec", "nodeName"])
    }),
    text(
        "SignerName",
        "signerName indicates the requested signer.\n\nAll signer names beginning with `kubernetes.io` are reserved for use by the Kubernetes project.  There is currently one well-known signer documented by the Kubernetes project, `kubernetes.io/kube-apiserver-client-pod`, which will issue client certificates understood by kube-apiserver.  It is currently unimplemented.",
        |it, _| at(it, &["spec", "signerName"]),
    ),
    text("State", "Is the request Pending, Issued, Denied, or Failed?", |it, _| {
        let mut conditions = items(it, &["status", "conditions"]).iter().map(|it| shown(it, &["type"]));
        let last = conditions.rfind(|it| ["Issued", "Denied", "Failed"].contains(it));
        json!(last.unwrap_or("Pending"))
    }),
];
pub(super) const LEASE_CANDIDATES: &[Column] = &[
    NAME,
    text(
        "LeaseName",
        "LeaseName is the name of the lease for which this candidate is contending. This field is immutable.",
        |it, _| at(it, &["spec", "leaseName"]),
    ),
    text("BinaryVersion", "", |it, _| at(it, &["spec", "binaryVersion"])),
    text("EmulationVersion", "", |it, _| at(it, &["spec", "emulationVersion"])),
    AGE,
];
const ABOUT_PARAM_KIND: &str = "ParamKind specifies the kind of resources used to parameterize this policy";
const PARAM_KIND: Column = text("ParamKind", ABOUT_PARAM_KIND, |it, _| {
    match found(it, &["spec", "paramKind"]).filter(|it| it.is_object()) {
        Some(kind) => json!(format!("{}/{}", shown(kind, &["apiVersion"]), shown(kind, &["kind"]))),
        None => json!("<unset>"),
    }
});
pub(super) const VALIDATING_POLICIES: &[Column] = &[
    NAME,
    number(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
        |it, _| json!(items(it, &["spec", "validations"]).len()),
    ),
    PARAM_KIND,
    AGE,
];
pub(super) const MUTATING_POLICIES: &[Column] = &[
    NAME,
    number(
        "Mutations",
        "Mutation indicates the number of mutations rules defined in this configuration",
        |it, _| json!(items(it, &["spec", "mutations"]).len()),
    ),
    PARAM_KIND,
    AGE,
];
pub(super) const POLICY_BINDINGS: &[Column] = &[
    NAME,
    text(
        "PolicyName",
        "PolicyName indicates the policy definition which the policy binding binded to",
        |it, _| at(it, &["spec", "policyName"]),
    ),
    // The misspelt word is upstream's.
    text("ParamRef", "ParamRef indicates the param resource which sets the configration param", |it, _| {
        json!(parameters(it))
    }),
    AGE,
];
pub(super) const FLOW_SCHEMAS: &[Column] = &[
    NAME,
    text(
        "PriorityLevel",
        "`name` is the name of the priority level configuration being referenced Required.",
        |it, _| at(it, &["spec", "priorityLevelConfiguration", "name"]),
    ),
    text(
        "MatchingPrecedence",
        "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request. The chosen FlowSchema is among those with the numerically lowest (which we take to be logically highest) MatchingPrecedence.  Each MatchingPrecedence value must be ranged in [1,10000]. Note that if the precedence is not specified, it will be set to 1000 as default.",
        |it, _| json!(integer(it, &["spec", "matchingPrecedence"])),
    ),
    text(
        "DistinguisherMethod",
        "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this schema. `nil` specifies that the distinguisher is disabled and thus will always be the empty string.",
        |it, _| match found(it, &["spec", "distinguisherMethod"]).filter(|it| it.is_object()) {
            Some(method) => at(method, &["type"]),
            None => json!("<none>"),
        },
    ),
    AGE,
    text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", |it, _| {
        let conditions = items(it, &["status", "conditions"]);
        match conditions.iter().find(|it| shown(it, &["type"]) == "Dangling") {
            Some(dangling) => at(dangling, &["status"]),
            None => json!("?"),
        }
    }),
];
pub(super) const PRIORITY_LEVELS: &[Column] = &[
    NAME,
    text(
        "Type",
        "`type` indicates whether this priority level is subject to limitation on request execution.  A value of `\"Exempt\"` means that requests of this priority level are not subject to a limit (and thus are never queued) and do not detract from the capacity made available to other priority levels.  A value of `\"Limited\"` means that (a) requests of this priority level _are_ subject to limits and (b) some of the server's limited capacity is made available exclusively to this priority level. Required.",
        |it, _| at(it, &["spec", "type"]),
    ),
    text(
        "NominalConcurrencyShares",
        "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit (NominalCL) of this level. This is the number of execution seats available at this priority level. This is used both for requests dispatched from this priority level as well as requests dispatched from other priority levels borrowing seats from this level. The server's concurrency limit (ServerCL) is divided among the Limited priority levels in proportion to their NCS values:\n\nNominalCL(i)  = ceil( ServerCL * NCS(i) / sum_ncs ) sum_ncs = sum[priority level k] NCS(k)\n\nBigger numbers mean a larger nominal concurrency limit, at the expense of every other priority level.\n\nIf not specified, this field defaults to a value of 30.\n\nSetting this field to zero supports the construction of a \"jail\" for this priority level that is used to hold some request(s)",
        |it, _| limit(it, &[], "nominalConcurrencyShares"),
    ),
    text(
        "Queues",
        "`queues` is the number of queues for this priority level. The queues exist independently at each apiserver. The value must be positive.  Setting it to 1 effectively precludes shufflesharding and thus makes the distinguisher method of associated flow schemas irrelevant.  This field has a default value of 64.",
        |it, _| limit(it, QUEUING, "queues"),
    ),
    text(
        "HandSize",
        "`handSize` is a small positive number that configures the shuffle sharding of requests into queues.  When enqueuing a request at this priority level the request's flow identifier (a string pair) is hashed and the hash value is used to shuffle the list of queues and deal a hand of the size specified here.  The request is put into one of the shortest queues in that hand. `handSize` must be no larger than `queues`, and should be significantly smaller (so that a few heavy flows do not saturate most of the queues).  See the user-facing documentation for more extensive guidance on setting this field.  This field has a default value of 8.",
        |it, _| limit(it, QUEUING, "handSize"),
    ),
    text(
        "QueueLengthLimit",
        "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this priority level at a time; excess requests are rejected.  This value must be positive.  If not specified, it will be defaulted to 50.",
        |it, _| limit(it, QUEUING, "queueLengthLimit"),
    ),
    AGE,
];
pub(super) const COMPONENT_STATUSES: &[Column] = &[
    NAME,
    text("Status", "Status of the component conditions", |it, _| {
        json!(match healthy(it) {
            Some(condition) if shown(condition, &["status"]) == "True" => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        })
    }),
    text("Message", "Message of the component conditions", |it, _| {
        at(healthy(it).unwrap_or(&Value::Null), &["message"])
    }),
    text("Error", "Error of the component conditions", |it, _| {
        at(healthy(it).unwrap_or(&Value::Null), &["error"])
    }),
];
pub(super) const API_SERVICES: &[Column] = &[
    NAME,
    text("Service", "The reference to the service that hosts this API endpoint.", |it, _| {
        match found(it, &["spec", "service"]).filter(|it| it.is_object()) {
            Some(service) => {
                json!(format!("{}/{}", shown(service, &["namespace"]), shown(service, &["name"])))
            }
            None => json!("Local"),
        }
    }),
    text("Available", "Whether this service is available.", |it, _| json!(availability(it))),
    AGE,
];
pub(super) const WEBHOOKS: &[Column] = &[
    NAME,
    number(
        "Webhooks",
        "Webhooks indicates the number of webhooks registered in this configuration",
        |it, _| json!(count(it, "webhooks")),
    ),
    AGE,
];
const QUEUING: &[&str] = &["limitResponse", "queuing"];

fn signer(object: &Value) -> String {
    or_else(shown(object, &["spec", "signerName"]).to_owned(), "<none>")
}

fn signing_state(request: &Value) -> String {
    let has =
        |kind: &str| items(request, &["status", "conditions"]).iter().any(|it| shown(it, &["type"]) == kind);
    let decided = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if shown(request, &["status", "certificate"]).is_empty() { "" } else { ",Issued" };
    format!("{decided}{failed}{issued}")
}

/// Which objects a policy takes its parameters from.
fn parameters(binding: &Value) -> String {
    let Some(reference) = found(binding, &["spec", "paramRef"]).filter(|it| it.is_object()) else {
        return "<unset>".to_owned();
    };
    match (shown(reference, &["namespace"]), shown(reference, &["name"])) {
        (_, "") => match found(reference, &["selector"]).filter(|it| it.is_object()) {
            Some(selector) => go_selector(selector),
            None => "<unset>".to_owned(),
        },
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A label selector as Go prints the struct.
fn go_selector(selector: &Value) -> String {
    let mut labels: Vec<String> = found(selector, &["matchLabels"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort();
    let expressions: Vec<String> = items(selector, &["matchExpressions"])
        .iter()
        .map(|it| {
            let values: Vec<&str> = items(it, &["values"]).iter().filter_map(Value::as_str).collect();
            let (key, operator) = (shown(it, &["key"]), shown(it, &["operator"]));
            format!(
                "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},",
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.join(""),
        expressions.join("")
    )
}

/// A number of a level that has limits.
fn limit(level: &Value, path: &[&str], field: &str) -> Value {
    let limited = found(level, &["spec", "limited"]).filter(|it| it.is_object());
    let limits = limited.and_then(|it| found(it, path)).filter(|it| it.is_object());
    match limits {
        Some(limits) => json!(integer(limits, &[field])),
        None => json!("<none>"),
    }
}

fn healthy(status: &Value) -> Option<&Value> {
    items(status, &["conditions"]).iter().find(|it| shown(it, &["type"]) == "Healthy")
}

fn availability(service: &Value) -> String {
    let conditions = items(service, &["status", "conditions"]);
    match conditions.iter().find(|it| shown(it, &["type"]) == "Available") {
        Some(it) => match (shown(it, &["status"]), shown(it, &["reason"])) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
        None => "Unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columns::testing::expect_cells;

    #[test]
    fn signing_requests_show_what_became_of_them() {
        let request = |status: Value| {
            let spec = json!({"signerName": "example.org/s", "username": "ann", "expirationSeconds": 86400});
            json!({"metadata": {"name": "r"}, "spec": spec, "status": status})
        };
        let row = |state: &str| json!(["r", "<unknown>", "example.org/s", "ann", "24h", state]);
        let conditions = |kinds: &[&str]| -> Value { kinds.iter().map(|it| json!({"type": it})).collect() };
        expect_cells(SIGNING_REQUESTS, &request(json!({})), &row("Pending"));
        let status = json!({"conditions": conditions(&["Approved", "Failed"]), "certificate": "YQ=="});
        expect_cells(SIGNING_REQUESTS, &request(status), &row("Approved,Failed,Issued"));
        let status = json!({"conditions": conditions(&["Approved", "Denied"])});
        expect_cells(SIGNING_REQUESTS, &request(status), &row("Denied"));
    }

    #[test]
    fn flows_and_levels_show_their_numbers() {
        let spec = json!({"priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 5});
        let schema = json!({"metadata": {"name": "f"}, "spec": spec});
        expect_cells(FLOW_SCHEMAS, &schema, &json!(["f", "l", 5, "<none>", "<unknown>", "?"]));
        let mut schema = schema;
        schema["spec"]["distinguisherMethod"] = json!({"type": "ByUser"});
        schema["status"] = json!({"conditions": [{"type": "Dangling", "status": "False"}]});
        expect_cells(FLOW_SCHEMAS, &schema, &json!(["f", "l", 5, "ByUser", "<unknown>", "False"]));

        let exempt = json!({"metadata": {"name": "l"}, "spec": {"type": "Exempt"}});
        let none = "<none>";
        expect_cells(PRIORITY_LEVELS, &exempt, &json!(["l", "Exempt", none, none, none, none, "<unknown>"]));
        let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
        let limited = json!({"nominalConcurrencyShares": 30, "limitResponse": {"queuing": queuing}});
        let level = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": limited}});
        expect_cells(PRIORITY_LEVELS, &level, &json!(["l", "Limited", 30, 64, 6, 50, "<unknown>"]));
    }

    #[test]
    fn bindings_of_policies_name_their_parameters() {
        let shown = |reference: Value| parameters(&json!({"spec": {"paramRef": reference}}));
        assert_eq!(parameters(&json!({"spec": {}})), "<unset>");
        assert_eq!(shown(json!({"name": "p"})), "*/p");
        assert_eq!(shown(json!({"name": "p", "namespace": "n"})), "n/p");
        let expression = json!({"key": "k", "operator": "In", "values": ["a", "b"]});
        assert_eq!(
            shown(json!({"selector": {"matchLabels": {"x": "y"}, "matchExpressions": [expression]}})),
            "&LabelSelector{MatchLabels:map[string]string{x: y,},MatchExpressions:[]LabelSelectorRequirement\
             {LabelSelectorRequirement{Key:k,Operator:In,Values:[a b],},},}"
        );
    }

    #[test]
    fn services_of_the_api_are_local_or_named() {
        let local = json!({"metadata": {"name": "v1."}});
        expect_cells(API_SERVICES, &local, &json!(["v1.", "Local", "Unknown", "<unknown>"]));
        let condition = json!({"type": "Available", "status": "False", "reason": "Gone"});
        let remote = json!({
            "metadata": {"name": "v1.x"}, "spec": {"service": {"namespace": "n", "name": "s"}},
            "status": {"conditions": [condition]},
        });
        expect_cells(API_SERVICES, &remote, &json!(["v1.x", "n/s", "False (Gone)", "<unknown>"]));
    }
}
