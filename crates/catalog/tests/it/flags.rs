//! What `--emulated-version`, `--runtime-config` and `--feature-gates` do to a catalog.

use catalog::{Catalog, CatalogError, FIRST_RELEASE, FeatureGates, LAST_RELEASE, RuntimeConfig, Verb};
use meta::Release;

fn catalog(minor: u16, runtime_config: &str, gates: &str) -> Result<Catalog, CatalogError> {
    let release = Release::v1(minor);
    let gates = FeatureGates::parse(gates, release).unwrap();
    Catalog::new(release, &RuntimeConfig::parse(runtime_config).unwrap(), &gates)
}

fn serves(catalog: &Catalog, path: &str) -> bool {
    let [group, version, resource] = path.split('/').collect::<Vec<_>>()[..] else { panic!("{path}") };
    catalog.find(group, version, resource).is_some()
}

#[test]
fn a_release_outside_of_the_window_is_refused() {
    for minor in [29, 37] {
        let text = catalog(minor, "", "").unwrap_err().to_string();
        assert_eq!(text, format!("emulation version 1.{minor} is not between [1.30, 1.36]"));
    }
    assert_eq!((FIRST_RELEASE, LAST_RELEASE), (Release::v1(30), Release::v1(36)));
}

#[test]
fn a_group_or_version_that_never_existed_is_refused() {
    for (runtime_config, text) in [
        ("nope/v1=true,also.nope/v1/things=false", "unknown api groups also.nope,nope"),
        ("nope/v1=true,nope/v2=true", "unknown api groups nope"),
        ("apps/v7=true", "group version apps/v7 that has not been registered"),
        ("/v2=true", "group version v2 that has not been registered"),
        // Upstream had it until 1.34, never on by itself.
        (
            "storagemigration.k8s.io/v1alpha1=true",
            "group version storagemigration.k8s.io/v1alpha1 that has not been registered",
        ),
    ] {
        assert_eq!(catalog(36, runtime_config, "").unwrap_err().to_string(), text);
    }
}

#[test]
fn a_version_of_another_release_has_no_effect() {
    let catalog =
        catalog(33, "resource.k8s.io/v1=true,flowcontrol.apiserver.k8s.io/v1beta3=true", "").unwrap();
    assert!(!serves(&catalog, "resource.k8s.io/v1/resourceclaims"));
    assert!(!serves(&catalog, "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"));
    assert!(!catalog.has_group("resource.k8s.io"));
    assert!(!catalog.has_group_version("flowcontrol.apiserver.k8s.io", "v1beta3"));
}

#[test]
fn versions_and_resources_can_be_switched_on_and_off() {
    let catalog = catalog(
        36,
        "resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta2/resourceslices=false,batch/v1=false,apps/v1/daemonsets=false",
        "",
    )
    .unwrap();
    assert!(serves(&catalog, "resource.k8s.io/v1beta2/resourceclaims"));
    assert!(serves(&catalog, "resource.k8s.io/v1beta2/devicetaintrules"));
    assert!(!serves(&catalog, "resource.k8s.io/v1beta2/resourceslices"));
    assert!(serves(&catalog, "resource.k8s.io/v1/resourceslices"));
    assert!(!serves(&catalog, "apps/v1/daemonsets"));
    assert!(!catalog.has_group("batch"));
    let groups: Vec<_> = catalog.groups().iter().map(|it| &*it.name).collect();
    assert!(!groups.contains(&"batch"));
    let claims = catalog.definition("resource.k8s.io", "resourceclaims").unwrap();
    let versions: Vec<_> = claims.versions.iter().map(|it| it.as_str()).collect();
    assert_eq!(versions, ["v1", "v1beta2"]);
}

#[test]
fn the_betas_that_were_on_can_be_switched_off() {
    assert!(serves(&catalog(31, "", "").unwrap(), "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"));
    let catalog = catalog(31, "api/beta=false", "").unwrap();
    assert!(!serves(&catalog, "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"));
    assert!(serves(&catalog, "flowcontrol.apiserver.k8s.io/v1/flowschemas"));
}

/// SV-6: a gate that is on while its API is off cannot come about.
#[test]
fn our_own_resources_cannot_be_switched_off() {
    for minor in 30..=36 {
        for off in [
            "internal.apiserver.k8s.io/v1alpha1",
            "migration.k8s.io/v1alpha1",
            "migration.k8s.io/v1alpha1/storagestates",
            "storagemigration.k8s.io/v1beta1",
            "storagemigration.k8s.io/v1beta1/storageversionmigrations",
        ] {
            let refused = catalog(minor, &format!("{off}=false"), "").unwrap_err().to_string();
            assert!(refused.starts_with(&format!("invalid value {off}=false: convoy needs")), "{refused}");
            catalog(minor, &format!("{off}=true"), "").unwrap();
        }
        // General keys are about the resources of Kubernetes.
        let catalog = catalog(minor, "api/all=false,api/alpha=false,api/beta=false", "").unwrap();
        let served: Vec<_> = catalog.served().iter().map(ToString::to_string).collect();
        assert_eq!(
            served,
            [
                "internal.apiserver.k8s.io/v1alpha1/storageversions",
                "migration.k8s.io/v1alpha1/storagestates",
                "migration.k8s.io/v1alpha1/storageversionmigrations",
                "storagemigration.k8s.io/v1beta1/storageversionmigrations",
            ]
        );
        assert!(!catalog.has_group(""));
    }
}

#[test]
fn a_gated_subresource_follows_its_gate() {
    let resize = |minor, gates: &str| {
        let catalog = catalog(minor, "", gates).unwrap();
        catalog.find("", "v1", "pods").unwrap().offers(Some("resize"), Verb::Patch)
    };
    assert!(!resize(31, "InPlacePodVerticalScaling=true"));
    assert!(!resize(32, ""));
    assert!(resize(32, "InPlacePodVerticalScaling=true"));
    assert!(resize(33, ""));
    assert!(!resize(33, "InPlacePodVerticalScaling=false"));
    assert!(resize(36, ""));
}

#[test]
fn verbs_and_subresources_are_looked_up() {
    let catalog = catalog(36, "", "").unwrap();
    let namespaces = catalog.find("", "v1", "namespaces").unwrap();
    assert!(namespaces.offers(None, Verb::Delete) && !namespaces.offers(None, Verb::DeleteCollection));
    assert!(
        namespaces.offers(Some("finalize"), Verb::Update) && !namespaces.offers(Some("finalize"), Verb::Get)
    );
    assert!(!namespaces.offers(Some("scale"), Verb::Get));
    assert!(catalog.find("", "v1", "pod").is_none() && catalog.find("", "v2", "pods").is_none());
    assert_eq!(&*catalog.find_kind("apps", "v1", "Deployment").unwrap().definition.resource, "deployments");
    let scale = catalog.find("apps", "v1", "deployments").unwrap().subresource("scale").unwrap();
    assert_eq!(
        (&*scale.kind, scale.group_version.as_ref().unwrap().to_string()),
        ("Scale", "autoscaling/v1".into())
    );
}

#[test]
fn deprecated_versions_warn_in_upstreams_words() {
    let warning = |minor, path: &str| {
        let catalog = catalog(minor, "api/all=true", "").unwrap();
        let [group, version, resource] = path.split('/').collect::<Vec<_>>()[..] else { panic!("{path}") };
        catalog.find(group, version, resource).unwrap().warning()
    };
    assert_eq!(warning(32, "/v1/endpoints"), None);
    assert_eq!(
        warning(33, "/v1/endpoints").unwrap(),
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    );
    assert_eq!(
        warning(30, "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas").unwrap(),
        "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 FlowSchema"
    );
    assert_eq!(warning(36, "/v1/componentstatuses").unwrap(), "v1 ComponentStatus is deprecated in v1.19+");
    assert_eq!(warning(36, "/v1/pods"), None);
}

/// The bound is wide because debug builds on a busy machine are slow; the figure is printed for people.
#[test]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn a_catalog_and_its_documents_are_made_quickly() {
    let start = std::time::Instant::now();
    let catalog = catalog(36, "", "").unwrap();
    let made = start.elapsed();
    let documents = catalog::discovery::documents(&catalog, "127.0.0.1:6443");
    println!("catalog in {made:?}, documents in {:?}", start.elapsed() - made);
    println!("aggregated document of {} bytes", documents.aggregated_apis_v2.body.len());
    assert!(start.elapsed().as_secs() < 2);
}
