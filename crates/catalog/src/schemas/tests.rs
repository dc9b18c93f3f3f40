//! Cases of `schemas`.

use meta::Release;
use schema::model::{ListKind, Scalar, Type};

use super::{Schemas, read};

fn schemas() -> Schemas {
    Schemas::new(Release::v1(36))
}

#[test]
fn kinds_lists_and_options_are_found() {
    let schemas = schemas();
    for (group, version, kind, name) in [
        ("", "v1", "Pod", "io.k8s.api.core.v1.Pod"),
        ("", "v1", "PodList", "io.k8s.api.core.v1.PodList"),
        ("apps", "v1", "Deployment", "io.k8s.api.apps.v1.Deployment"),
        ("apps", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
        ("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
        ("policy", "v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole", "io.k8s.api.rbac.v1.ClusterRole"),
    ] {
        let id = schemas.kind(group, version, kind).unwrap();
        assert_eq!(schemas.schema().name(id), name);
        assert_eq!(&*schemas.schema().object(id).unwrap().name, name);
    }
    assert_eq!(schemas.kind("apps", "v1", "Pod"), None);
    assert_eq!(schemas.kind("", "v1", "Container"), None);
}

#[test]
fn fields_of_inlined_messages_are_fields_of_their_holders() {
    let schemas = schemas();
    let schema = schemas.schema();
    let volume = schema.object(schema.find("io.k8s.api.core.v1.Volume").unwrap()).unwrap();
    assert_eq!(volume.inlined.len(), 1);
    assert_eq!(volume.inlined[0].number, 2);
    assert_eq!(schema.name(volume.inlined[0].ty), "io.k8s.api.core.v1.VolumeSource");
    let config_map = volume.field("configMap").unwrap();
    assert_eq!((config_map.within, config_map.number), (2, 19));
    assert_eq!(volume.field("name").unwrap().within, 0);
    assert!(volume.field("volumeSource").is_none());

    // Two levels: a rule within a rule with operations within a named one.
    let rule = schema.find("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations").unwrap();
    let rule = schema.object(rule).unwrap();
    assert_eq!(rule.field("operations").unwrap().within, 2);
    assert_eq!(rule.field("apiGroups").unwrap().within, 2);
}

#[test]
fn merge_rules_come_from_the_table() {
    let schemas = schemas();
    let schema = schemas.schema();
    let container = schema.object(schema.find("io.k8s.api.core.v1.Container").unwrap()).unwrap();
    let ports = container.field("ports").unwrap();
    assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
    let Type::List(list) = schema.get(ports.ty) else { panic!("{:?}", schema.get(ports.ty)) };
    assert_eq!(list.kind, ListKind::Map(["containerPort".into(), "protocol".into()].into()));
    let port = schema.object(list.element).unwrap();
    assert_eq!(port.field("protocol").unwrap().default, Some("TCP".into()));
    assert!(port.field("containerPort").unwrap().is_required);

    let selector = schema.object(schema.find("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").unwrap());
    assert!(selector.unwrap().is_atomic);
    let user = schema.object(schema.find("io.k8s.api.authentication.v1.UserInfo").unwrap()).unwrap();
    let Type::Map(extra) = schema.get(user.field("extra").unwrap().ty) else { panic!("extra is no map") };
    assert!(matches!(schema.get(extra.value), Type::List(it) if it.is_wrapped));
    // The element list of an ephemeral container is known by its holder only.
    let ephemeral = schema.object(schema.find("io.k8s.api.core.v1.EphemeralContainer").unwrap()).unwrap();
    assert_eq!(ephemeral.field("env").unwrap().patch.merge_key.as_deref(), Some("name"));
}

#[test]
fn scalars_with_a_form_of_their_own_are_told_apart() {
    let schemas = schemas();
    let schema = schemas.schema();
    for (ty, field, scalar) in [
        ("io.k8s.api.coordination.v1.LeaseSpec", "renewTime", Scalar::MicroTime),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp", Scalar::Time),
        ("io.k8s.api.core.v1.EmptyDirVolumeSource", "sizeLimit", Scalar::Quantity),
        ("io.k8s.api.core.v1.HTTPGetAction", "port", Scalar::IntOrString),
        ("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", "request", Scalar::Bytes),
    ] {
        let object = schema.object(schema.find(ty).unwrap()).unwrap();
        let found = schema.get(object.field(field).unwrap().ty);
        assert!(matches!(found, Type::Scalar(it) if *it == scalar), "{ty}.{field} is {found:?}");
    }
}

#[test]
fn fields_are_known_in_their_releases() {
    let is_known = |minor: u16, ty: &str, field: &str| {
        let schemas = Schemas::new(Release::v1(minor));
        let schema = schemas.schema();
        schema.object(schema.find(ty).unwrap()).unwrap().field(field).unwrap().is_known
    };
    assert!(!is_known(33, "io.k8s.api.core.v1.Container", "restartPolicyRules"));
    assert!(is_known(34, "io.k8s.api.core.v1.Container", "restartPolicyRules"));
    assert!(is_known(33, "io.k8s.api.core.v1.Container", "image"));
}

#[test]
fn a_line_that_is_not_understood_is_named() {
    for text in [
        "package core/v1 io.k8s.api.core.v1 - v1\ntype Pod maybe",
        "package core/v1 io.k8s.api.core.v1 - v1\n spec 2 PodSpec",
        "package core/v1 io.k8s.api.core.v1 - v1\nsomething Pod",
        "# a comment\ntype Pod",
    ] {
        assert_eq!(read::parse(text).unwrap_err().to_string(), "line 2 of the table of types cannot be read");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this measures")]
fn reading_the_table_takes_no_time_worth_mentioning() {
    let start = std::time::Instant::now();
    let _schemas = schemas();
    // Five milliseconds are the budget of a release build; this is a debug build on a busy machine.
    assert!(start.elapsed() < std::time::Duration::from_secs(2));
}
