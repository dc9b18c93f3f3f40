//! Questions, answers, and refusals in upstream's words.
#![allow(clippy::needless_pass_by_value, reason = "literals read better without references")]

use serde_json::json;

use super::*;
use crate::{IssuedToken, PolicyRule};

fn sar(spec: Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

fn pods() -> Value {
    json!({"namespace": "ns", "verb": "get", "resource": "pods", "name": "a"})
}

#[test]
fn questions_are_read() {
    let review = sar(
        json!({"user": "u", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}, "resourceAttributes": pods()}),
    );
    let (user, asked) = subject_access_review(&review).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups.len()), ("u", "1", 1));
    assert_eq!(user.extra["k"], ["v"]);
    let attributes = asked.for_user(&user);
    assert_eq!(attributes.verb, "get");
    assert_eq!(
        asked.target,
        OwnedTarget::Resource {
            group: String::new(),
            version: "*".to_owned(),
            resource: "pods".to_owned(),
            subresource: String::new(),
            namespace: "ns".to_owned(),
            name: "a".to_owned(),
        }
    );
    let review = sar(json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}));
    let asked = self_subject_access_review(&review).unwrap();
    assert_eq!(asked.target, OwnedTarget::Path("/metrics".to_owned()));
}

#[test]
fn unclear_questions_are_refused() {
    let message = |spec: Value| subject_access_review(&sar(spec)).unwrap_err().message;
    let path = json!({"path": "/x", "verb": "get"});
    assert_eq!(
        message(json!({"user": "u"})),
        "SubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: \"null\": \
         exactly one of nonResourceAttributes or resourceAttributes must be specified"
    );
    assert_eq!(
        message(json!({"user": "u", "resourceAttributes": pods(), "nonResourceAttributes": path})),
        "SubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: \
         {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes"
    );
    assert_eq!(
        message(json!({"resourceAttributes": pods()})),
        "SubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": \
         at least one of user or group must be specified"
    );
    let mut named = sar(json!({"user": "u", "resourceAttributes": pods()}));
    named["metadata"] = json!({"name": "x", "creationTimestamp": null, "managedFields": [{}]});
    assert!(subject_access_review(&named).unwrap_err().message.ends_with("must be empty"));
    assert_eq!(subject_access_review(&json!(null)).unwrap_err().code, 422);
}

#[test]
fn local_questions_stay_in_their_namespace() {
    let mut review = sar(json!({"user": "u", "resourceAttributes": pods()}));
    review["metadata"] = json!({"namespace": "ns"});
    assert!(local_subject_access_review(&review, "ns").is_ok());
    assert!(
        local_subject_access_review(&review, "other")
            .unwrap_err()
            .message
            .contains("must match metadata.namespace")
    );
    let path = sar(json!({"user": "u", "nonResourceAttributes": {"path": "/x", "verb": "get"}}));
    let message = local_subject_access_review(&path, "ns").unwrap_err().message;
    assert!(message.contains("disallowed on this kind of request"), "{message}");
}

#[test]
fn answers_say_what_was_decided() {
    let review = sar(json!({"user": "u"}));
    let status = |verdict: Verdict| access_review_answer(&review, &verdict)["status"].clone();
    assert_eq!(status(Verdict::NoOpinion(String::new())), json!({"allowed": false}));
    assert_eq!(status(Verdict::Allow("RBAC: x".to_owned())), json!({"allowed": true, "reason": "RBAC: x"}));
    assert_eq!(
        status(Verdict::Deny("no".to_owned())),
        json!({"allowed": false, "denied": true, "reason": "no"})
    );
}

#[test]
fn rules_are_listed() {
    let review = json!({"spec": {"namespace": "ns"}});
    assert_eq!(self_subject_rules_review(&review).unwrap(), "ns");
    assert_eq!(self_subject_rules_review(&json!({})).unwrap_err().message, "no namespace on request");
    let rules = Rules {
        resource_rules: vec![PolicyRule::resources(&[""], &["pods"], &["get"])],
        non_resource_rules: vec![PolicyRule::urls(&["/x"], &["get"])],
        errors: Vec::new(),
        is_incomplete: false,
    };
    assert_eq!(
        rules_review_answer(&review, &rules)["status"],
        json!({
            "resourceRules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            "nonResourceRules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}],
            "incomplete": false,
        })
    );
}

#[test]
fn tokens_are_reviewed() {
    let review = json!({"kind": "TokenReview", "spec": {"token": "t", "audiences": ["a"]}});
    let read = token_review(&review).unwrap();
    assert_eq!((read.token.as_str(), read.audiences.len()), ("t", 1));
    assert!(!format!("{read:?}").contains("\"t\""));
    assert_eq!(token_review(&json!({})).unwrap_err().code, 400);
    let user = User::named("u");
    let audiences = ["https://kubernetes.default.svc".to_owned()];
    assert_eq!(
        token_review_answer(&review, Ok((&user, &audiences)))["status"],
        json!({"authenticated": true, "user": {"username": "u"}, "audiences": ["https://kubernetes.default.svc"]})
    );
    assert_eq!(token_review_answer(&review, Err("bad"))["status"], json!({"user": {}, "error": "bad"}));
}

#[test]
fn tokens_are_requested() {
    let request = |spec: Value| token_request(&json!({"spec": spec}), "robot");
    assert_eq!(request(json!({})).unwrap().seconds, 3600);
    assert_eq!(
        request(json!({"expirationSeconds": 5})).unwrap_err().message,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: \
         may not specify a duration less than 10 minutes"
    );
    assert!(request(json!({"expirationSeconds": 1i64 << 33})).is_err());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"});
    assert_eq!(request(json!({"boundObjectRef": pod})).unwrap().bound.unwrap().name, "p");
    assert_eq!(request(json!({"boundObjectRef": {"kind": "Job"}})).unwrap_err().code, 400);
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let issued = IssuedToken { token: "t".to_owned(), jti: "j".to_owned(), expires: now };
    let wanted = request(json!({"audiences": ["a"]})).unwrap();
    let answer = token_request_answer(&json!({}), "ns", "robot", &wanted, &issued, now);
    assert_eq!(answer["status"], json!({"token": "t", "expirationTimestamp": "2027-01-15T08:00:00Z"}));
    assert_eq!(
        answer["spec"],
        json!({"audiences": ["a"], "expirationSeconds": 3600, "boundObjectRef": null})
    );
}

#[test]
fn one_can_ask_who_one_is() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let answer = self_subject_review_answer(&json!({"kind": "SelfSubjectReview"}), &User::named("u"), now);
    assert_eq!(
        answer,
        json!({"kind": "SelfSubjectReview", "metadata": {"creationTimestamp": "2027-01-15T08:00:00Z"},
               "status": {"userInfo": {"username": "u"}}})
    );
}
