//! What kubectl does with kinds that users define: from `get crd` to `delete ns`.

use super::Kubectl;

/// A definition as people write it, and what kubectl does with its objects.
const GADGETS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .spec.colour}]
    additionalPrinterColumns:
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Size, type: integer, jsonPath: .spec.replicas, priority: 1}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        description: A gadget of the shop.
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, default: grey, description: What it is painted with.}
              replicas: {type: integer, minimum: 0}
          status:
            type: object
            properties:
              replicas: {type: integer}
";

/// A file of the test.
fn file(kubectl: &Kubectl<'_>, name: &str, text: &str) -> String {
    let path = kubectl.convoy.home().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn define(kubectl: &Kubectl<'_>) -> String {
    let crd = file(kubectl, "crd.yaml", GADGETS);
    kubectl.ok(&format!("apply -f {crd}"));
    kubectl.ok("wait --for=condition=Established --timeout=30s crd/gadgets.shop.example");
    crd
}

pub(super) fn resources(kubectl: &Kubectl<'_>) {
    let write = |name: &str, text: &str| file(kubectl, name, text);
    let crd = write("crd.yaml", GADGETS);
    assert!(kubectl.ok(&format!("apply -f {crd}")).contains("gadgets.shop.example created"));
    kubectl.ok("wait --for=condition=Established --timeout=30s crd/gadgets.shop.example");
    assert!(kubectl.ok(&format!("apply -f {crd}")).contains("unchanged"));
    let definitions = kubectl.ok("get crd");
    assert!(
        definitions.contains("gadgets.shop.example") && definitions.contains("CREATED AT"),
        "{definitions}"
    );
    let described = kubectl.ok("describe crd gadgets.shop.example");
    assert!(described.contains("the initial names have been accepted"), "{described}");
    let gadget = |name: &str, colour: &str| {
        let text = format!(
            "apiVersion: shop.example/v1\nkind: Gadget\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{replicas: 2, colour: {colour}}}\n"
        );
        write(&format!("{name}.yaml"), &text)
    };
    let (one, two) = (gadget("one", "red"), gadget("two", "blue"));
    assert!(kubectl.ok(&format!("apply --server-side -f {one}")).contains("serverside-applied"));
    assert!(kubectl.ok(&format!("apply -f {two}")).contains("created"));
    assert!(kubectl.ok(&format!("apply -f {two}")).contains("unchanged"));
    let green = gadget("two", "green");
    assert!(kubectl.ok(&format!("apply -f {green}")).contains("configured"));
    assert!(kubectl.ok(&format!("apply -f {}", gadget("two", "blue"))).contains("configured"));
    let wide = kubectl.ok("-n shop get gd -o wide");
    assert!(wide.contains("COLOUR") && wide.contains("SIZE") && wide.contains("red"), "{wide}");
    assert!(!kubectl.ok("-n shop get gadgets").contains("SIZE"));
    let blue = kubectl.ok("-n shop get gadgets --field-selector spec.colour=blue -o name");
    assert_eq!(blue.trim(), "gadget.shop.example/two");
    assert!(kubectl.ok("-n shop get all -o name").contains("gadget.shop.example/one"));
    let explained = kubectl.ok("explain gadget.spec.colour");
    assert!(explained.contains("What it is painted with."), "{explained}");
    let whole = kubectl.ok("explain gadgets --recursive");
    assert!(whole.contains("A gadget of the shop.") && whole.contains("replicas\t<integer>"), "{whole}");
    assert!(kubectl.refused("explain gadget.spec.nothing").contains("does not exist"));
    let other = kubectl.refused("-n shop get gadgets --field-selector spec.replicas=2");
    assert!(other.contains("field label not supported: spec.replicas"), "{other}");
    let taken =
        kubectl.refused(&format!("apply --server-side --field-manager=painter -f {}", gadget("one", "pink")));
    assert!(taken.contains("conflict") && taken.contains(".spec.colour"), "{taken}");
    let forced =
        format!("apply --server-side --field-manager=painter --force-conflicts -f {}", gadget("one", "pink"));
    assert!(kubectl.ok(&forced).contains("serverside-applied"));
    assert!(
        kubectl
            .refused("-n shop scale gadget/one --current-replicas=9 --replicas=5")
            .contains("Expected replicas to be 9")
    );
    assert!(kubectl.ok("-n shop scale gadget/one --replicas=5").contains("scaled"));
    assert_eq!(kubectl.ok("-n shop get gadget one -o 'jsonpath={.spec.replicas}'"), "5");
    let refused = kubectl.refused("-n shop patch gadget one --type=merge -p '{\"spec\":{\"replicas\":-1}}'");
    assert!(refused.contains("should be greater than or equal to 0"), "{refused}");
    assert!(kubectl.ok("-n shop delete gadget one").contains("deleted"));
    kubectl.ok("delete crd gadgets.shop.example --timeout=30s");
    // kubectl remembers for hours what there was, and asks for it.
    kubectl.refused("-n shop get gadgets");
    assert!(kubectl.refused("get crd gadgets.shop.example").contains("NotFound"));
}

const GADGET: &str = "apiVersion: shop.example/v1\nkind: Gadget";
const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap";

/// Makes an object that belongs to another one, if it does; returns how kubectl calls it.
fn make(kubectl: &Kubectl<'_>, head: &str, name: &str, owner: Option<&str>) -> String {
    let mut text = format!("{head}\nmetadata:\n  name: {name}\n  namespace: shop\n");
    if let Some(owner) = owner {
        let uid = kubectl.ok(&format!("-n shop get gadget {owner} -o 'jsonpath={{.metadata.uid}}'"));
        text.push_str(&format!(
            "  ownerReferences:\n  - {{apiVersion: shop.example/v1, kind: Gadget, name: {owner}, uid: {uid}, blockOwnerDeletion: true}}\n"
        ));
    }
    let path = file(kubectl, "made.yaml", &text);
    kubectl.ok(&format!("create -f {path} -o name")).trim().to_owned()
}

/// An owner, what it owns, and what that owns.
fn family(kubectl: &Kubectl<'_>, suffix: &str) -> [String; 3] {
    let [owner, child] = ["owner", "child"].map(|it| format!("{it}-{suffix}"));
    [
        make(kubectl, GADGET, &owner, None),
        make(kubectl, GADGET, &child, Some(&owner)),
        make(kubectl, CONFIG_MAP, &format!("grandchild-{suffix}"), Some(&child)),
    ]
}

/// `delete --cascade` for custom resources that own each other and built-in ones.
pub(super) fn cascades(kubectl: &Kubectl<'_>) {
    define(kubectl);
    // Who deletes in the foreground is answered when the owner is gone, and that goes last.
    let [owner, child, grandchild] = family(kubectl, "foreground");
    kubectl.ok(&format!("-n shop delete {owner} --cascade=foreground --timeout=60s"));
    for gone in [owner, child, grandchild] {
        assert!(kubectl.refused(&format!("-n shop get {gone}")).contains("NotFound"), "{gone}");
    }
    let [owner, child, grandchild] = family(kubectl, "background");
    kubectl.ok(&format!("-n shop delete {owner} --cascade=background --timeout=60s"));
    kubectl.ok(&format!("-n shop wait --for=delete {child} {grandchild} --timeout=60s"));
    let [owner, child, grandchild] = family(kubectl, "orphan");
    kubectl.ok(&format!("-n shop delete {owner} --cascade=orphan --timeout=60s"));
    let left = kubectl.json(&format!("-n shop get {child} -o json"));
    assert_eq!(left["metadata"].get("ownerReferences"), None, "{left}");
    let kept = kubectl.json(&format!("-n shop get {grandchild} -o json"));
    assert_eq!(kept["metadata"]["ownerReferences"][0]["name"], "child-orphan", "{kept}");
    kubectl.ok("-n shop delete gadgets --all --timeout=60s");
}

/// `delete ns` takes custom resources along, and no others.
pub(super) fn namespaces(kubectl: &Kubectl<'_>) {
    for name in ["doomed", "spared"] {
        kubectl.ok(&format!("create namespace {name}"));
        for number in 0..5 {
            let text = format!("{GADGET}\nmetadata: {{name: g-{number}, namespace: {name}}}\n");
            kubectl.ok(&format!("create -f {}", file(kubectl, "in-namespace.yaml", &text)));
        }
    }
    kubectl.ok("delete namespace doomed --timeout=60s");
    let left = kubectl.ok("get gadgets --all-namespaces -o 'jsonpath={.items[*].metadata.namespace}'");
    assert_eq!(left, ["spared"; 5].join(" "));
    kubectl.ok("delete namespace spared --timeout=60s");
    kubectl.ok("delete crd gadgets.shop.example --timeout=30s");
}
