//! `convoy migrate`: has stored objects rewritten in the version that is written now, and shows how far that is.
//!
//! It asks for the migration; servers carry it out (`convoy serve`, or `convoy controllers` beside any other cluster).
//! With `--local` this process carries it out itself, through the API.

mod follow;
mod steer;

use std::io::Write;

use clap::Args;
use controllers::migration::annotation;
use meta::GroupResource;
use serde_json::{Map, Value, json};

use crate::{
    cli::say,
    cluster::{Cluster, ClusterFlags, block_on, request},
    failure::{Exit, Failure},
    output::Output,
    remote::{self, RemoteFlags},
};

/// Where migrations are asked for.
const MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";

/// The flags of `convoy migrate`.
#[derive(Debug, Args)]
pub struct MigrateFlags {
    /// The resources, such as widgets.example.com; with --cancel, --pause and --resume also names of migrations
    #[arg(value_name = "RESOURCE", required_unless_present = "all")]
    resources: Vec<String>,

    /// Every custom resource of which status.storedVersions lists more than one version
    #[arg(long, conflicts_with = "resources")]
    all: bool,

    /// Count what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Only objects in this namespace; may be repeated. status.storedVersions stays as it is then
    #[arg(short, long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Only objects that this label selector selects. status.storedVersions stays as it is then
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    selector: String,

    /// Objects per second; 0 for as many as possible [default: 500]
    #[arg(long, value_name = "N")]
    rate: Option<u64>,

    /// Evidence that is good enough to narrow status.storedVersions, such as SecondPassOneEndpoint
    #[arg(long, value_name = "EVIDENCE")]
    accept_evidence: Vec<String>,

    /// Ask for it and do not wait
    #[arg(long, conflicts_with = "local")]
    no_wait: bool,

    /// Carry it out in this process, through the API, instead of leaving it to a controller
    #[arg(long)]
    local: bool,

    /// End the migrations of these resources, or of these names; whatever they froze is let go
    #[arg(long, conflicts_with_all = ["pause", "resume", "dry_run", "local"])]
    cancel: bool,

    /// Pause them
    #[arg(long, conflicts_with_all = ["resume", "dry_run", "local"])]
    pause: bool,

    /// Go on with them
    #[arg(long, conflicts_with_all = ["dry_run", "local"])]
    resume: bool,

    /// How to show what became of them
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    #[command(flatten)]
    remote: RemoteFlags,

    #[command(flatten)]
    cluster: ClusterFlags,
}

/// One migration that the command was about.
pub(crate) struct Told {
    pub(crate) resource: String,
    pub(crate) name: String,
    /// What was done to it by the command.
    pub(crate) action: &'static str,
    /// As it was seen last.
    pub(crate) status: Value,
}

/// The document that stands for all of them.
pub(crate) fn document(all: &[Told]) -> Value {
    let one = |it: &Told| {
        let mut one = json!({"resource": it.resource, "name": it.name, "action": it.action});
        if !it.status.is_null() {
            one["status"] = it.status.clone();
        }
        one
    };
    json!({"migrations": all.iter().map(one).collect::<Vec<_>>()})
}

impl MigrateFlags {
    /// A line for people; programs get everything at the end.
    fn tell(&self, line: &str) {
        if self.output == Output::Table {
            say(line);
        }
    }

    fn show(&self, all: &[Told]) {
        if let Some(text) = self.output.document(&document(all)) {
            say(&text);
        }
    }
}

/// Does it.
pub fn run(flags: &MigrateFlags) -> Result<(), Failure> {
    block_on(async {
        let Cluster::Running(client) = flags.cluster.open().await? else {
            return Err(Failure::usage("objects are migrated through a running server: name its kubeconfig"));
        };
        check_served(&client).await?;
        let resources = if flags.all { stuck(&client).await? } else { flags.resources.clone() };
        if resources.is_empty() {
            flags.tell("status.storedVersions lists one version everywhere: there is nothing to migrate\n");
            flags.show(&[]);
            return Ok(());
        }
        if flags.cancel || flags.pause || flags.resume {
            return steer::steer(flags, &client, &resources).await;
        }
        if flags.local {
            warn_of_others(&client).await;
            let work = ask_and_follow(flags, &client, &resources);
            return remote::beside(&flags.remote, &flags.cluster, &resources, work).await;
        }
        ask_and_follow(flags, &client, &resources).await
    })
}

async fn ask_and_follow(
    flags: &MigrateFlags,
    client: &kube::Client,
    resources: &[String],
) -> Result<(), Failure> {
    let mut asked = Vec::new();
    for resource in resources {
        let mut made = request(client, "POST", MIGRATIONS, Some(&order(flags, resource))).await?;
        let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        flags.tell(&format!("{resource}: migration {name}\n"));
        asked.push(Told {
            resource: resource.clone(),
            name,
            action: "asked for",
            status: made["status"].take(),
        });
    }
    let mut worst = Exit::Ok;
    if !flags.no_wait {
        for told in &mut asked {
            let (run, mut object) = follow::follow(client, &told.resource, &told.name).await?;
            flags.tell(&format!("{}: {}\n", told.resource, follow::ending(&run)));
            told.status = object["status"].take();
            worst = if worst == Exit::Ok { follow::exit(run.phase) } else { worst };
        }
    }
    flags.show(&asked);
    match worst {
        Exit::Ok => Ok(()),
        exit => Err(Failure { exit, message: "not everything was migrated".to_owned() }),
    }
}

/// The object by which a migration is asked for.
fn order(flags: &MigrateFlags, resource: &str) -> Value {
    let GroupResource { group, resource: plural } = GroupResource::from(resource);
    let mut annotations = Map::new();
    let mut set = |key: &str, value: String| {
        if !value.is_empty() {
            annotations.insert(key.to_owned(), Value::from(value));
        }
    };
    set(annotation::NAMESPACES, flags.namespace.join(","));
    set(annotation::SELECTOR, flags.selector.clone());
    set(annotation::RATE, flags.rate.map(|it| it.to_string()).unwrap_or_default());
    set(annotation::ACCEPT, flags.accept_evidence.join(","));
    set(annotation::DRY_RUN, if flags.dry_run { "true".to_owned() } else { String::new() });
    json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
        "metadata": {"generateName": format!("{resource}-"), "annotations": annotations},
        "spec": {"resource": {"group": &*group, "resource": &*plural, "version": ""}},
    })
}

/// Two that carry out the same migrations do everything twice.
async fn warn_of_others(client: &kube::Client) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}", remote::LEASE);
    let lease = request(client, "GET", &path, None).await.unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str().filter(|it| !it.is_empty());
    if let Some(holder) = holder {
        let _ = writeln!(
            std::io::stderr().lock(),
            "`convoy controllers` holds the Lease {} ({holder}): if it still runs, leave --local out",
            remote::LEASE
        );
    }
}

/// The custom resources whose definitions list more versions than the one that is written.
async fn stuck(client: &kube::Client) -> Result<Vec<String>, Failure> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let list = request(client, "GET", path, None).await?;
    let several = |crd: &&Value| crd["status"]["storedVersions"].as_array().is_some_and(|it| it.len() > 1);
    let names = list["items"].as_array().into_iter().flatten().filter(several);
    Ok(names.filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

async fn check_served(client: &kube::Client) -> Result<(), Failure> {
    match request(client, "GET", "/apis/migration.k8s.io/v1alpha1", None).await {
        Ok(_) => Ok(()),
        Err(Failure { exit: Exit::Unknown, .. }) => Err(Failure::failed(
            "the cluster has no StorageVersionMigrations: run `convoy controllers --print-manifests=once | kubectl apply -f -` \
             first",
        )),
        Err(failure) => Err(failure),
    }
}
