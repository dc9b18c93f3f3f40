//! Paths as definitions have them, and what they find.

use serde_json::json;

use super::*;

fn check(path: &str, found: &[Value]) {
    let object = json!({
        "metadata": {"labels": {"app.kubernetes.io/name": "x"}},
        "spec": {"size": 3, "hosts": ["a", "b", "c"], "ports": [{"name": "x", "port": 1}, {"name": "y", "port": 2}]},
        "status": {"conditions": [
            {"type": "Synced", "status": "False"},
            {"type": "Ready", "status": "True"},
        ]},
    });
    let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let values: Vec<Value> = parsed.find(&object).into_iter().cloned().collect();
    assert_eq!(values, found, "{path}");
}

#[test]
fn paths_find_what_they_name() {
    check(".spec.size", &[json!(3)]);
    check(".spec.nope.deeper", &[]);
    check(".spec.hosts[0]", &[json!("a")]);
    check(".spec.hosts[-1]", &[json!("c")]);
    check(".spec.hosts[-2]", &[json!("b")]);
    check(".spec.hosts[1:]", &[json!("b"), json!("c")]);
    check(".spec.hosts[0:3:2]", &[json!("a"), json!("c")]);
    check(".spec.hosts[*]", &[json!("a"), json!("b"), json!("c")]);
    check(".spec.hosts[0,2]", &[json!("a"), json!("c")]);
    check(".spec.ports[*].name", &[json!("x"), json!("y")]);
    check(".spec['size']", &[json!(3)]);
    check(r".metadata.labels.app\.kubernetes\.io/name", &[json!("x")]);
    check(".metadata.labels['app.kubernetes.io/name']", &[json!("x")]);
    check("..port", &[json!(1), json!(2)]);
    check(".status.conditions[?(@.type==\"Ready\")].status", &[json!("True")]);
    check(".status.conditions[?(@.type == 'Ready')].status", &[json!("True")]);
    check(".spec.ports[?(@.port>1)].name", &[json!("y")]);
    check(".spec.ports[?(@.port<=1)].name", &[json!("x")]);
    check(".spec.ports[?(@.nope)].name", &[]);
    check(".spec.ports[?(@.name!='x')].port", &[json!(2)]);
}

#[test]
fn what_is_no_path_is_refused() {
    for text in
        [".a[", ".a[?(", ".a[?(@.b==)]", "a b", ".a[x]", ".a['b]", ".a[?(@.b==1]", ".a..", ".a[9999999999]"]
    {
        assert!(JsonPath::parse(text).is_err(), "{text}");
    }
    let deep = ".a[?(@".repeat(2000);
    assert!(JsonPath::parse(&deep).is_err());
}

#[test]
fn a_path_that_visits_everything_again_and_again_ends() {
    let wide = json!({"a": vec![json!({"a": vec![json!({"a": 1}); 50]}); 50]});
    let path = JsonPath::parse(&"..a".repeat(20)).unwrap();
    assert!(path.find(&wide).len() <= MAX_VISITS * 2);
}
