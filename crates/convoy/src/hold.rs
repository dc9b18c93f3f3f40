//! `convoy hold`: keeps the storage version of resources where it is, or lets it go.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    cli::say,
    cluster::{self, Cluster, ClusterFlags},
    failure::Failure,
    output::Output,
};

/// The flags of `convoy hold`.
#[derive(Debug, Args)]
pub struct HoldFlags {
    /// The resources, such as deviceclasses.resource.k8s.io
    #[arg(required = true, value_name = "RESOURCE")]
    resources: Vec<String>,

    /// Lift the hold instead
    #[arg(long)]
    release: bool,

    /// Why, for those who wonder
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,

    #[command(flatten)]
    cluster: ClusterFlags,

    /// How to show what is held
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Sets or lifts the holds, one after the other.
pub fn run(flags: &HoldFlags) -> Result<(), Failure> {
    cluster::block_on(async {
        let cluster = flags.cluster.open().await?;
        let Cluster::Running(client) = &cluster else {
            return Err(Failure::failed("a hold is set through a running server: name its kubeconfig"));
        };
        for resource in &flags.resources {
            let request = json!({"resource": resource, "reason": flags.reason, "release": flags.release});
            let answer =
                cluster::ask(client, "POST", "/convoy/hold", request.to_string().into_bytes()).await?;
            let view: Value = serde_json::from_str(&answer).map_err(|it| Failure::because(&it))?;
            let text = flags.output.document(&view).unwrap_or_else(|| {
                let selected = view["selectedVersion"].as_str().unwrap_or("<unset>");
                match flags.release {
                    true => format!("{resource} is no longer held; it is stored as {selected}\n"),
                    false => format!("{resource} is held at {selected}\n"),
                }
            });
            say(&text);
        }
        Ok(())
    })
}
