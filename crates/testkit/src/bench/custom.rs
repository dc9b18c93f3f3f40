//! Custom resources next to built-in ones: the same objects, the same load, and what a definition costs.
//!
//! A figure is the time or processor time of the custom resource as a multiple of that of the built-in one. The two
//! are measured in turns, so that what else the machine does falls on both.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::{BUILT_IN, Plan, float, mib, ms, prepare};
use super::table::{Table, Target as Aim};
use crate::convoy::Convoy;
use load::closed_loop::{self, MakeRequest, Subject, always};
use load::fanout::{self, FanOut};
use load::wire::Target;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CUSTOM: Subject = Subject {
    path: "/apis/bench.example/v1/namespaces/bench/settings",
    api_version: "bench.example/v1",
    kind: "Setting",
};

/// The two are measured in turns; objects are named after them.
const TURNS: [&str; 3] = ["first", "second", "third"];
const DEFINITIONS: u64 = 1_000;

pub(super) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    against_built_in(plan, table).await?;
    definitions(plan, table).await
}

/// What a client waits and what the server computes for one request, in microseconds.
#[derive(Default, Clone, Copy)]
struct Cost {
    wait: f64,
    compute: f64,
}

async fn against_built_in(plan: &Plan, table: &mut Table) -> Result<()> {
    let convoy = Convoy::start(plan.options()).await?;
    let target = prepare(&convoy).await?;
    let settings = definition("settings", "Setting", "bench.example", 2);
    install(&convoy, &target, std::slice::from_ref(&settings)).await?;
    let both = [BUILT_IN, CUSTOM];
    for subject in both {
        closed_loop::send_all(&target, 16, 1_000, subject.creates(&target, "listed")).await?;
    }
    let (mut get, mut list, mut create) = ([Cost::default(); 2], [Cost::default(); 2], [Cost::default(); 2]);
    for _ in 0..TURNS.len() {
        for (at, subject) in both.into_iter().enumerate() {
            let one = target.request("GET", &format!("{}/listed-7", subject.path), b"");
            get[at].add(cost(plan, &convoy, &target, 16, 200, always(one)).await?);
            let all = target.request("GET", subject.path, b"");
            list[at].add(cost(plan, &convoy, &target, 8, 200, always(all)).await?);
        }
    }
    for turn in TURNS {
        for (at, subject) in both.into_iter().enumerate() {
            let made = subject.creates(&target, turn);
            create[at].add(cost(plan, &convoy, &target, 16, 201, made).await?);
        }
    }
    for (what, costs) in [("GET", get), ("LIST of 1,000", list), ("CREATE", create)] {
        let [built_in, custom] = costs.map(|it| it.over(float(TURNS.len())));
        let note = format!(
            "{:.0} us instead of {:.0} us for a client, {:.0} us instead of {:.0} us of CPU ({:.2}x); {} turns",
            custom.wait,
            built_in.wait,
            custom.compute,
            built_in.compute,
            custom.compute / built_in.compute,
            TURNS.len()
        );
        let what = format!("custom against built-in: {what}");
        table.add(&what, Aim::AtMost(1.3), custom.wait / built_in.wait, "x", note);
    }
    watches(plan, &target, table).await
}

async fn watches(plan: &Plan, target: &Target, table: &mut Table) -> Result<()> {
    let config = FanOut { watchers: 100, writes_per_second: 200, seconds: plan.seconds };
    let built_in = fanout::run(target, BUILT_IN, config).await?;
    let custom = fanout::run(target, CUSTOM, config).await?;
    let [ours, theirs] = [&custom, &built_in].map(|it| ms(it.percentile(50)));
    let note = format!(
        "from sending the write, 200 writes/s to 100 watchers: p50 {ours} ms instead of {theirs} ms, p99 {} ms instead \
         of {} ms",
        ms(custom.percentile(99)),
        ms(built_in.percentile(99))
    );
    table.add("custom against built-in: watch, p50", Aim::AtMost(1.3), ours / theirs, "x", note);
    Ok(())
}

/// A thousand definitions at once: how long until all can be used, and what each of them costs in memory.
async fn definitions(plan: &Plan, table: &mut Table) -> Result<()> {
    let mut convoy = Convoy::start(plan.options()).await?;
    let target = prepare(&convoy).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let empty = mib(convoy.resident_kib()?);
    let all: Vec<Value> = (0..DEFINITIONS)
        .map(|n| definition(&format!("kinds{n}"), &format!("Kind{n}"), &format!("g{}.example", n % 25), 30))
        .collect();
    let size = all[0].to_string().len();
    let begin = Instant::now();
    install(&convoy, &target, &all).await?;
    let established = begin.elapsed();
    let each = |now: u64| (mib(now) - empty) / float(DEFINITIONS);
    let note = format!(
        "{DEFINITIONS} definitions of {size} bytes, posted over 16 connections, until all are discovered"
    );
    table.add("definitions established", Aim::AtMost(10.0), established.as_secs_f64(), "s", note);

    // The garbage collector watches what discovery shows; then one object of each kind is made, which needs its schema.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let unused = each(convoy.resident_kib()?);
    let request = {
        let target = target.clone();
        move |n: u64| {
            let (group, path) = (n % 25, format!("/apis/g{}.example/v1/namespaces/bench/kinds{n}", n % 25));
            let body = json!({"apiVersion": format!("g{group}.example/v1"), "kind": format!("Kind{n}"),
                "metadata": {"name": "one"}, "spec": {"key": "value"}});
            target.request("POST", &path, body.to_string().as_bytes()).into()
        }
    };
    closed_loop::send_all(&target, 16, DEFINITIONS, Arc::new(request)).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let used = each(convoy.resident_kib()?);
    convoy.term(Duration::from_secs(30)).await?;
    convoy.start_again().await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let again = each(convoy.resident_kib()?);
    let note = format!(
        "{DEFINITIONS} definitions of {size} bytes, one object of each; {unused:.3} MB before there were objects, \
         {again:.3} MB after a restart"
    );
    table.add("memory per definition", Aim::AtMost(0.3), used, "MB", note);
    Ok(())
}

/// Posts definitions and waits until all are established and discovered.
async fn install(convoy: &Convoy, target: &Target, all: &[Value]) -> Result<()> {
    let bodies: Vec<Arc<[u8]>> =
        all.iter().map(|it| target.request("POST", CRDS, it.to_string().as_bytes()).into()).collect();
    let n_bodies = u64::try_from(bodies.len())?;
    let make: MakeRequest = Arc::new(move |number| Arc::clone(&bodies[usize::try_from(number).unwrap_or(0)]));
    closed_loop::send_all(target, 16.min(n_bodies), n_bodies, make).await?;
    let admin = convoy.admin();
    let is_established = |crd: &Value| {
        let conditions = crd["status"]["conditions"].as_array();
        conditions.is_some_and(|it| it.iter().any(|it| it["type"] == "Established" && it["status"] == "True"))
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let list = admin.get(CRDS).await?.expect(200)?;
        if list["items"].as_array().is_some_and(|it| it.len() >= all.len() && it.iter().all(is_established)) {
            break;
        }
        ensure!(Instant::now() < deadline, "definitions are not established");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for crd in all {
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        let path =
            format!("/apis/{}/v1/{}?limit=1", group.as_str().unwrap_or(""), plural.as_str().unwrap_or(""));
        admin.get(&path).await?.expect(200)?;
    }
    Ok(())
}

/// A definition whose objects can look like ConfigMaps, with so many further fields.
fn definition(plural: &str, kind: &str, group: &str, n_fields: usize) -> Value {
    let text = json!({"type": "string", "description": "What this is for, in a sentence of the usual length.", "maxLength": 2_000});
    let fields: serde_json::Map<String, Value> = (0..n_fields)
        .map(|n| (format!("field{n}"), text.clone()))
        .chain([("key".to_owned(), text.clone())])
        .collect();
    let schema = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
        "spec": {"type": "object", "properties": fields},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
}

async fn cost(
    plan: &Plan,
    convoy: &Convoy,
    target: &Target,
    connections: usize,
    expected: u16,
    make: MakeRequest,
) -> Result<Cost> {
    let before = convoy.cpu_time()?;
    let load = closed_loop::run(target, connections, plan.time(), expected, make).await?;
    let used = convoy.cpu_time()?.saturating_sub(before);
    Ok(Cost {
        wait: 1e6 * float(connections) / load.per_second(),
        compute: 1e6 * used.as_secs_f64() / float(load.requests),
    })
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.wait += other.wait;
        self.compute += other.compute;
    }

    fn over(self, turns: f64) -> Cost {
        Cost { wait: self.wait / turns, compute: self.compute / turns }
    }
}
