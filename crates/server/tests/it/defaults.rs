//! What the server fills in: what it answered can be sent back, and nothing changes.

use serde_json::{Value, json};

use crate::harness::TestServer;

fn template(restart: &str) -> Value {
    let container = json!({
        "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"port": 80}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    });
    let spec = json!({
        "restartPolicy": restart, "serviceAccountName": "a", "containers": [container],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
    });
    json!({"metadata": {"labels": {"app": "d"}}, "spec": spec})
}

#[tokio::test]
async fn what_was_answered_can_be_sent_back_and_changes_nothing() {
    let server = TestServer::start().await;
    let selector = json!({"matchLabels": {"app": "d"}});
    let always = json!({"selector": selector, "template": template("Always")});
    let claim = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let mut stateful = always.clone();
    stateful["volumeClaimTemplates"] = json!([claim]);
    let claimed = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let volume =
        json!({"hostPath": {"path": "/d"}, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    for (collection, spec) in [
        ("/apis/apps/v1/namespaces/default/deployments", always.clone()),
        ("/apis/apps/v1/namespaces/default/daemonsets", always),
        ("/apis/apps/v1/namespaces/default/statefulsets", stateful),
        ("/api/v1/namespaces/default/replicationcontrollers", json!({"template": template("Always")})),
        ("/apis/batch/v1/namespaces/default/jobs", json!({"template": template("Never")})),
        ("/api/v1/namespaces/default/pods", template("Never")["spec"].clone()),
        ("/api/v1/namespaces/default/services", json!({"type": "NodePort", "ports": [{"port": 80}]})),
        ("/api/v1/namespaces/default/persistentvolumeclaims", claimed),
        ("/api/v1/persistentvolumes", volume),
    ] {
        let body = json!({"metadata": {"name": "x"}, "spec": spec});
        let created = server.post(collection, body).await.expect(201).json();
        let path = format!("{collection}/x");
        let got = server.get(&path).await.expect(200).json();
        assert_eq!(got, created);
        let put = server.ask("PUT", &path, got).await.expect(200).json();
        assert_eq!(put, created, "{collection}");
    }
}

#[tokio::test]
async fn a_job_with_a_generated_name_labels_its_pods_with_it() {
    let server = TestServer::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let body = json!({"metadata": {"generateName": "j-"}, "spec": {"template": template("Never")}});
    let job = server.post(jobs, body).await.expect(201).json();
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["job-name"], job["metadata"]["name"]);
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], job["metadata"]["uid"]);
    let selected = &job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
    assert_eq!(selected, &job["metadata"]["uid"]);
}
