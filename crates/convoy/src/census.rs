//! `convoy census`: how many objects are stored in which version, and which versions can be dropped.
//!
//! A Convoy server counts along; a store that nobody serves is read key by key; of any other cluster it is inferred from
//! what its API says. Which of the three it was is said.

mod inferred;
pub mod reader;
mod scan;

use clap::Args;
use server::census::{CensusView, ResourceCensus};

use crate::{
    cli::say,
    cluster::{self, Cluster, ClusterFlags},
    failure::{Exit, Failure},
    output::{Output, padded, thousands},
};

/// The flags of `convoy census`.
#[derive(Debug, Args)]
pub struct CensusFlags {
    /// Only these resources, such as widgets.example.com [default: all of which something is stored]
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,

    #[command(flatten)]
    cluster: ClusterFlags,

    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Shows it.
pub fn run(flags: &CensusFlags) -> Result<(), Failure> {
    cluster::block_on(async {
        let cluster = flags.cluster.open().await.map_err(Failure::unknown)?;
        let mut view = read(&cluster).await?;
        for wanted in &flags.resources {
            if view.resources.iter().all(|it| it.resource != *wanted) {
                return Err(Failure::failed(format!("nothing is known of {wanted}")));
            }
        }
        let is_wanted = |it: &ResourceCensus| match flags.resources.is_empty() {
            true => it.objects > 0 || !it.stored_versions.is_empty(),
            false => flags.resources.contains(&it.resource),
        };
        view.resources.retain(is_wanted);
        if !flags.resources.is_empty() {
            view.unknown.clear();
        }
        let document = serde_json::to_value(&view).map_err(|it| Failure::because(&it))?;
        say(&flags.output.document(&document).unwrap_or_else(|| table(&view)));
        Ok(())
    })
}

/// The census of a cluster or of a store.
pub async fn read(cluster: &Cluster) -> Result<CensusView, Failure> {
    let unknown = |message: String| Failure { exit: Exit::Unknown, message };
    match cluster {
        Cluster::Running(client) => match cluster::request(client, "GET", "/convoy/census", None).await {
            Ok(view) => serde_json::from_value(view)
                .map_err(|it| unknown(format!("the answer is not a census: {it}"))),
            Err(Failure { exit: Exit::Unknown, .. }) => inferred::infer(client).await,
            Err(failure) => Err(failure),
        },
        Cluster::Stored(storage) => {
            let scanned = scan::scan(&storage.shared()).await;
            scanned.map_err(|it| unknown(format!("the store could not be read: {it}")))
        }
    }
}

/// What can be said of one version of a custom resource.
pub fn verdict(resource: &ResourceCensus, version: &str) -> (bool, String) {
    if let Some(why) = &resource.uncounted {
        return (false, format!("{version} of {}: {why}, so that nobody knows", resource.resource));
    }
    let (_, group) = resource.resource.split_once('.').unwrap_or_default();
    let may_be = |it: &str| match it.split_once('/') {
        Some((of, stored)) if of == group => stored == version,
        // Damaged or encrypted, or of a cluster that does not say: it may be stored in any version that was ever written.
        _ => resource.stored_versions.iter().any(|it| it == version),
    };
    let count = resource.versions.iter().filter(|(it, _)| may_be(it)).map(|(_, n)| n).sum::<u64>();
    let head = format!(
        "{version} of {}: {} of {} objects",
        resource.resource,
        thousands(count),
        thousands(resource.objects)
    );
    let is_written = resource.written.as_deref().is_some_and(|it| bare(it) == version);
    match (count, is_written) {
        (_, true) => (false, format!("{head}, and it is the version that is written")),
        (0, false) => (true, format!("{head}, safe to drop")),
        (_, false) => (false, format!("{head}, not safe to drop")),
    }
}

fn table(view: &CensusView) -> String {
    let mut rows = vec![["RESOURCE", "STORED AS", "OBJECTS", "WRITTEN NOW"].map(str::to_owned)];
    for resource in &view.resources {
        for (version, n) in &resource.versions {
            let is_written = resource.written.as_ref() == Some(version);
            let written = if is_written { "yes" } else { "" };
            rows.push([resource.resource.clone(), version.clone(), thousands(*n), written.to_owned()]);
        }
    }
    let mut page = padded(&rows).join("\n");
    page.push('\n');
    let verdicts: Vec<String> = view
        .resources
        .iter()
        .flat_map(|it| it.stored_versions.iter().map(move |version| verdict(it, version).1))
        .collect();
    if !verdicts.is_empty() {
        page += &format!("\n{}\n", verdicts.join("\n"));
    }
    for (place, n) in &view.unknown {
        page += &format!("\n{} keys below {place} are of no resource that is known\n", thousands(*n));
    }
    let how = match view.evidence.as_str() {
        "StoreScan" => "every key of the store was read",
        "ApiInference" => {
            "inferred from status.storedVersions of the definitions; built-in resources are left out"
        }
        _ => "counted by the server as objects come and go",
    };
    page + &format!("\nEvidence: {} ({how})\n", view.evidence)
}

/// `example.com/v1` without its group.
pub fn bare(version: &str) -> &str {
    version.rsplit_once('/').map_or(version, |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widgets(versions: &[(&str, u64)], written: &str) -> ResourceCensus {
        let versions = versions.iter().map(|(it, n)| ((*it).to_owned(), *n)).collect();
        let resource = meta::GroupResource::new("example.com", "widgets");
        ResourceCensus {
            written: Some(written.to_owned()),
            stored_versions: vec!["v1alpha1".to_owned(), "v1".to_owned()],
            custom: true,
            ..ResourceCensus::of(&resource, versions)
        }
    }

    #[test]
    fn a_version_can_be_dropped_when_nothing_is_stored_in_it() {
        let done = widgets(&[("example.com/v1", 12_431)], "example.com/v1");
        assert_eq!(
            verdict(&done, "v1alpha1"),
            (true, "v1alpha1 of widgets.example.com: 0 of 12,431 objects, safe to drop".to_owned())
        );
        assert!(!verdict(&done, "v1").0);
        let not_yet = widgets(&[("example.com/v1", 1), ("example.com/v1alpha1", 2)], "example.com/v1");
        assert_eq!(
            verdict(&not_yet, "v1alpha1").1,
            "v1alpha1 of widgets.example.com: 2 of 3 objects, not safe to drop"
        );
        for odd in ["Unknown", "encrypted (aescbc, key key2)", "example.org/v1"] {
            let (is_safe, why) = verdict(&widgets(&[(odd, 2)], "example.com/v1"), "v1alpha1");
            assert!(!is_safe, "{odd}: {why}");
        }
        let empty = widgets(&[], "example.com/v1alpha1");
        assert!(!verdict(&empty, "v1alpha1").0, "what is written next would be in it");
    }

    #[test]
    fn the_page_says_how_it_is_known() {
        let view = CensusView {
            evidence: "StoreScan".to_owned(),
            resources: vec![widgets(&[("example.com/v1", 3)], "example.com/v1")],
            unknown: [("/registry/ships/".to_owned(), 2)].into(),
        };
        let expected = "\
RESOURCE              STORED AS        OBJECTS   WRITTEN NOW
widgets.example.com   example.com/v1   3         yes

v1alpha1 of widgets.example.com: 0 of 3 objects, safe to drop
v1 of widgets.example.com: 3 of 3 objects, and it is the version that is written

2 keys below /registry/ships/ are of no resource that is known

Evidence: StoreScan (every key of the store was read)
";
        assert_eq!(table(&view), expected);
    }
}
