//! What the forms of an object cost the server: another version, another encoding, an apply.
//!
//! Each figure is processor time of the whole server for one request, less that of the same request without the form
//! in question, so that it holds on any transport.

use anyhow::Result;
use serde_json::{Value, json};

use super::plan::{Plan, float, prepare};
use super::table::{Table, Target as Aim};
use crate::convoy::Convoy;
use load::closed_loop::{self, always};
use load::wire::Target;

const SCALERS: &str = "namespaces/bench/horizontalpodautoscalers/scaler";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/bench/deployments/web";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const APPLY: &str = "application/apply-patch+yaml";

pub(super) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    let convoy = Convoy::start(plan.options()).await?;
    let target = prepare(&convoy).await?;
    let apply = |path: &str, body: &Value| {
        let path = format!("{path}?fieldManager=bench&force=true");
        target.request_as("PATCH", &path, body.to_string().as_bytes(), JSON, APPLY)
    };
    let get = |path: &str, accept: &str| target.request_as("GET", path, b"", accept, JSON);
    let (v1, v2) = (format!("/apis/autoscaling/v1/{SCALERS}"), format!("/apis/autoscaling/v2/{SCALERS}"));
    let size = once(&target, apply(&v2, &scaler())).await?;
    let deployment = deployment();
    once(&target, apply(DEPLOYMENT, &deployment)).await?;

    let stored = micros(plan, &convoy, &target, get(&v2, JSON)).await?;
    let converted = micros(plan, &convoy, &target, get(&v1, JSON)).await?;
    let per_kb = (converted - stored) * 1000.0 / float(size);
    let note = format!(
        "an autoscaler of {size} bytes, stored as v2: GET as v1 {converted:.0} us of CPU, as v2 {stored:.0} us"
    );
    table.add("conversion, per KB", Aim::None, per_kb, "us", note);

    let text = micros(plan, &convoy, &target, get(DEPLOYMENT, JSON)).await?;
    let binary = micros(plan, &convoy, &target, get(DEPLOYMENT, PROTOBUF)).await?;
    let note = format!("GET of a Deployment: {binary:.0} us of CPU as protobuf, {text:.0} us as JSON");
    table.add("protobuf against JSON", Aim::None, binary / text, "x", note);

    let bytes = deployment.to_string().len();
    let applied = micros(plan, &convoy, &target, apply(DEPLOYMENT, &deployment)).await?;
    let note = format!("a Deployment of {bytes} bytes, applied again: nothing is written");
    table.add("apply of a 3 KB object", Aim::None, applied, "us", note);
    Ok(())
}

/// Sends one request that must work; returns the size of the answer.
async fn once(target: &Target, request: Vec<u8>) -> Result<usize> {
    let reply = target.connect().await?.exchange(&request).await?;
    anyhow::ensure!(reply.status < 300, "the server answered {}", reply.status);
    Ok(reply.bytes)
}

/// The server's processor time for one request.
async fn micros(plan: &Plan, convoy: &Convoy, target: &Target, request: Vec<u8>) -> Result<f64> {
    let before = convoy.cpu_time()?;
    let load = closed_loop::run(target, 8, plan.time(), 200, always(request)).await?;
    let used = convoy.cpu_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() * 1e6 / float(load.requests))
}

fn scaler() -> Value {
    let resource = |name: &str, value: &str| {
        let target = json!({"type": "AverageValue", "averageValue": value});
        json!({"type": "Resource", "resource": {"name": name, "target": target}})
    };
    let cpu = json!({"type": "Utilization", "averageUtilization": 50});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaler"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 9,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": cpu}},
                resource("memory", "1Gi"),
                {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
        },
    })
}

/// About 3 KB as people write it.
fn deployment() -> Value {
    let variables: Vec<Value> = (0..40)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("the value of setting {n}")}))
        .collect();
    let labels = json!({"app": "web"});
    let container =
        json!({"name": "web", "image": "web:1", "env": variables, "ports": [{"containerPort": 80}]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}
