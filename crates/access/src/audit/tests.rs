//! Which rule decides, what policies are refused, and what an event looks like.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::User;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: ["watch"]
  resources:
  - group: ""
    resources: ["endpoints", "services"]
- level: Request
  resources:
  - group: ""
    resources: ["pods/*", "*/status"]
    resourceNames: ["a"]
  omitStages: [ResponseStarted]
  omitManagedFields: true
- level: RequestResponse
  namespaces: ["kube-system"]
- level: Metadata
  userGroups: ["devs"]
- level: None
  nonResourceURLs: ["/healthz*", "/version"]
- level: RequestResponse
  resources:
  - group: ""
    resources: ["secrets"]
  - group: "apps"
"#;

fn decide(user: &User, verb: &str, target: Target<'_>) -> AuditDecision {
    Policy::parse(POLICY).unwrap().decide(&Attributes { user, verb, target })
}

fn resource<'a>(group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str) -> Target<'a> {
    Target::Resource { group, version: "v1", resource, subresource, namespace, name: "a" }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let check = |name: &str, group: &str, verb: &str, target: Target<'_>, want: Level| {
        let user = User { groups: vec![group.to_owned()], ..User::named(name) };
        assert_eq!(decide(&user, verb, target).level, want, "{name} {verb} {target:?}");
    };
    check("system:kube-proxy", "", "watch", resource("", "services", "", "kube-system"), Level::None);
    check("system:kube-proxy", "", "watch", resource("", "services", "status", "x"), Level::Request);
    check("u", "", "get", resource("", "pods", "", "x"), Level::Request);
    check("u", "", "get", resource("", "pods", "log", "x"), Level::Request);
    check("u", "", "get", resource("", "nodes", "status", ""), Level::Request);
    check("u", "", "get", resource("", "configmaps", "", "kube-system"), Level::RequestResponse);
    check("u", "", "get", resource("", "configmaps", "", "x"), Level::None);
    check("u", "devs", "get", resource("", "configmaps", "", "x"), Level::Metadata);
    check("u", "", "get", Target::Path("/healthz/etcd"), Level::None);
    check("u", "devs", "get", Target::Path("/metrics"), Level::Metadata);
    check("u", "", "get", resource("apps", "deployments", "scale", "x"), Level::RequestResponse);
}

#[test]
fn credentials_are_never_written() {
    let user = User::named("u");
    assert_eq!(decide(&user, "get", resource("", "secrets", "", "x")).level, Level::Metadata);
    let token = resource("", "serviceaccounts", "token", "kube-system");
    assert_eq!(decide(&user, "create", token).level, Level::Metadata);
}

#[test]
fn stages_add_up() {
    let user = User::named("u");
    let decision = decide(&user, "get", resource("", "pods", "", "x"));
    assert_eq!(decision.omit_stages, [Stage::RequestReceived, Stage::ResponseStarted]);
    assert!(decision.omit_managed_fields);
    assert!(!decision.wants(Stage::RequestReceived));
    assert!(decision.wants(Stage::ResponseComplete));
    assert!(decision.wants_request() && !decision.wants_response());
    assert!(!AuditDecision::default().wants(Stage::Panic));
    assert_eq!(
        Policy::default().decide(&Attributes { user: &user, verb: "get", target: Target::Path("/") }).level,
        Level::None
    );
}

#[test]
fn json_policies_are_read_too() {
    let text = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","metadata":{"name":"x"},"rules":[{"level":"Metadata"}]}"#;
    assert!(Policy::parse(text).is_ok());
}

#[test]
fn odd_policies_are_refused() {
    let rules =
        |rules: &str| Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}"));
    assert_eq!(rules("[]"), Err(PolicyError::NoRules));
    assert!(matches!(rules("[{level: Everything}]"), Err(PolicyError::Unreadable(_))));
    assert!(matches!(rules("[{}]"), Err(PolicyError::Unreadable(_))));
    // A misspelt condition would otherwise make a rule fit everything.
    assert!(matches!(rules("[{level: None, userGroup: [a]}]"), Err(PolicyError::Unreadable(_))));
    for wrong in [
        r#"[{level: None, nonResourceURLs: ["healthz"]}]"#,
        r#"[{level: None, nonResourceURLs: ["/a*b"]}]"#,
        r#"[{level: None, nonResourceURLs: ["/a"], namespaces: ["x"]}]"#,
        r#"[{level: None, resources: [{resourceNames: ["x"]}]}]"#,
    ] {
        assert!(matches!(rules(wrong), Err(PolicyError::Invalid(_))), "{wrong}");
    }
    assert_eq!(Policy::parse("kind: Policy\napiVersion: audit.k8s.io/v1beta1"), Err(PolicyError::WrongKind));
    assert_eq!(Policy::parse(&" ".repeat(MAX_BYTES + 1)), Err(PolicyError::TooLarge));
}

#[test]
fn an_event_is_one_line_of_what_upstream_writes() {
    let user = User::named("u");
    let attributes = Attributes { user: &user, verb: "create", target: resource("", "pods", "", "ns") };
    let decision =
        AuditDecision { level: Level::Request, omit_managed_fields: true, ..AuditDecision::default() };
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut event = AuditEvent::received(&decision, &attributes, "id-1", "/api/v1/namespaces/ns/pods", now);
    event.source_ips.push("127.0.0.1".to_owned());
    "kubectl".clone_into(&mut event.user_agent);
    event.set_impersonated(&User::named("other"));
    event.set_request(&json!({"kind": "Pod", "metadata": {"name": "a", "managedFields": [1]}}));
    event.set_response(&json!({"kind": "Pod"}));
    event.set_code(201);
    event.set_stage(Stage::ResponseComplete, now);
    event.annotations.insert("authorization.k8s.io/decision".to_owned(), "allow".to_owned());
    let line = event.to_line();
    assert_eq!(line.matches('\n').count(), 1);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        value,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "auditID": "id-1",
            "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/ns/pods", "verb": "create",
            "user": {"username": "u"}, "impersonatedUser": {"username": "other"}, "sourceIPs": ["127.0.0.1"],
            "userAgent": "kubectl",
            "objectRef": {"resource": "pods", "namespace": "ns", "name": "a", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "requestObject": {"kind": "Pod", "metadata": {"name": "a"}},
            "requestReceivedTimestamp": "2027-01-15T08:00:00.000000Z",
            "stageTimestamp": "2027-01-15T08:00:00.000000Z",
            "annotations": {"authorization.k8s.io/decision": "allow"},
        })
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Policy::parse(&text);
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(text in "[-:a&*\\[\\]{}\"'!|> \n]{0,80}") {
        let _ = Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{text}"));
    }
}
