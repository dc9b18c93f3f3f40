//! Traffic, faults, and a history that must keep every promise: G1 to G5, linearizable objects, complete watches.
//!
//! Start at [`run`]; [`faults`] plans what goes wrong, [`cluster`] suffers it, [`clients`] and [`watchers`] note what they
//! see, [`judge`] says what must not have happened. Each cluster goes through a short round here; `cargo xtask robustness`
//! runs for as long as one likes (docs/robustness.md). Deliberately not here: stories with a known end ([`crate::fleet`],
//! [`crate::migration`]), compaction under watchers ([`crate::watch_soak`]).

mod run;

mod agent;
mod clients;
mod clocks;
mod cluster;
mod control_plane;
mod doors;
mod faults;
mod judge;
mod ledger;
mod processes;
mod seams;
mod season;
mod tenants;
mod trio;
mod unfenced;
mod watchers;

/// On the embedded store.
mod embedded {
    use anyhow::Result;

    use super::{
        cluster::Cluster,
        run::Run,
        seams::{Fence, Ground},
    };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_control_plane_keeps_its_promises() -> Result<()> {
        Run::start("embedded, processes", Cluster::control_plane().await?).await?.go().await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn servers_in_one_process_keep_their_promises() -> Result<()> {
        let cluster = Cluster::seams(Ground::embedded()?, Fence::Kept).await?;
        Run::start("embedded, seams", cluster).await?.go().await
    }
}

/// On three members of etcd.
mod etcd {
    use anyhow::Result;

    use super::{
        cluster::{Cluster, MIGRATION},
        run::Run,
        seams::{Fence, Ground},
    };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn processes_keep_their_promises() -> Result<()> {
        if testkit::etcd::is_missing() {
            return Ok(());
        }
        Run::start("etcd, processes", Cluster::processes(MIGRATION).await?).await?.go().await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn servers_in_one_process_keep_their_promises() -> Result<()> {
        if testkit::etcd::is_missing() {
            return Ok(());
        }
        let cluster = Cluster::seams(Ground::etcd().await?, Fence::Kept).await?;
        Run::start("etcd, seams", cluster).await?.go().await
    }
}

/// Definitions, namespaces and owners are deleted, forced to go and made anew under the same names, while everything goes
/// wrong that can: whatever is gone is gone for a reason, and nothing is there that nobody made.
mod removals {
    /// On the embedded store.
    mod embedded {
        use anyhow::Result;

        use super::super::{
            cluster::Cluster,
            run::Run,
            seams::{Fence, Ground},
        };

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_control_plane_removes_nothing_without_a_reason() -> Result<()> {
            let run = Run::start("embedded, processes, removals", Cluster::control_plane().await?).await?;
            run.with_tenants().await?.go().await
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn servers_in_one_process_remove_nothing_without_a_reason() -> Result<()> {
            let cluster = Cluster::removing_seams(Ground::embedded()?, Fence::Kept).await?;
            Run::start("embedded, seams, removals", cluster).await?.with_tenants().await?.go().await
        }
    }

    /// On three members of etcd.
    mod etcd {
        use anyhow::Result;

        use super::super::{
            cluster::{Cluster, REMOVAL},
            run::Run,
            seams::{Fence, Ground},
        };

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn processes_remove_nothing_without_a_reason() -> Result<()> {
            if testkit::etcd::is_missing() {
                return Ok(());
            }
            let run = Run::start("etcd, processes, removals", Cluster::processes(REMOVAL).await?).await?;
            run.with_tenants().await?.go().await
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn servers_in_one_process_remove_nothing_without_a_reason() -> Result<()> {
            if testkit::etcd::is_missing() {
                return Ok(());
            }
            let cluster = Cluster::removing_seams(Ground::etcd().await?, Fence::Kept).await?;
            Run::start("etcd, seams, removals", cluster).await?.with_tenants().await?.go().await
        }
    }
}

/// `convoy rollout` from 1.33 to 1.36 one release at a time and back: clients of the common address see nothing worse than
/// 503 with Retry-After, and every promise is kept. `cargo xtask soak rollout` goes all the way, ten times.
mod rollouts {
    use anyhow::Result;
    use testkit::{
        etcd::{self, Etcd},
        tools,
    };

    use super::{cluster::Cluster, ledger::SINCE_33, run::Run};

    const THERE_AND_BACK: &[u16] = &[34, 35, 36, 35, 34, 33];
    const A_STEP_AND_BACK: &[u16] = &[34, 33];

    async fn roll(name: &'static str, cluster: Cluster) -> Result<()> {
        let minors = if tools::is_soak() { THERE_AND_BACK } else { A_STEP_AND_BACK };
        Run::start_with(SINCE_33, name, cluster).await?.roll(minors, tools::rounds(1)).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn there_and_back_under_load_on_the_embedded_store() -> Result<()> {
        roll("embedded, rollouts", Cluster::behind_one_address(None).await?).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn there_and_back_under_load_on_etcd() -> Result<()> {
        if etcd::is_missing() {
            return Ok(());
        }
        roll("etcd, rollouts", Cluster::behind_one_address(Some(Etcd::start().await?)).await?).await
    }
}

/// What all this is worth: the same servers and faults, with and without the fence, and without grounds.
mod fence {
    use anyhow::{Result, bail, ensure};
    use testkit::tools;

    use super::{
        clients::{CLASSES, USUAL},
        cluster::{Cluster, round_length},
        faults::{SERVERS, Step, plan, sleepers},
        run::Run,
        seams::{Fence, Ground},
    };

    /// So many times somebody oversleeps before we give up.
    const ROUNDS: usize = 8;

    /// A new cluster need not be brought to its first release.
    fn fresh(mut steps: Vec<Step>) -> Vec<Step> {
        steps.drain(..SERVERS);
        steps
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_oversleeps_is_stopped_by_it() -> Result<()> {
        let cluster = Cluster::seams(Ground::embedded()?, Fence::Kept).await?;
        let mut run = Run::start("fenced", cluster).await?;
        run.round(0, tools::seed(), fresh(sleepers(tools::seed(), 1)), &CLASSES).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_grounds_the_judge_finds_what_was_removed_or_made_wrongly() -> Result<()> {
        let cluster = Cluster::removing_seams(Ground::embedded()?, Fence::WithoutGrounds).await?;
        let mut run = Run::start("without grounds", cluster).await?.with_tenants().await?;
        for round in 0..ROUNDS {
            let seed = tools::seed().wrapping_add(round as u64);
            let steps = plan(seed, run.kinds(), round_length());
            let Err(found) = run.round(round, seed, steps, &USUAL).await else { continue };
            let text = format!("{found:#}");
            tools::report(&format!("without grounds: found as it must be: {text}"));
            ensure!(text.contains("G12: "), "something else: {text}");
            return Ok(());
        }
        bail!("nothing was found in {ROUNDS} rounds without grounds")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_it_the_judge_finds_what_was_stored_wrongly() -> Result<()> {
        let cluster = Cluster::seams(Ground::embedded()?, Fence::Removed).await?;
        let mut run = Run::start("unfenced", cluster).await?;
        for round in 0..ROUNDS {
            let seed = tools::seed().wrapping_add(round as u64);
            let steps = if round == 0 { fresh(sleepers(seed, 1)) } else { sleepers(seed, 1) };
            let Err(found) = run.round(round, seed, steps, &CLASSES).await else { continue };
            let text = format!("{found:#}");
            tools::report(&format!("unfenced: found as it must be: {text}"));
            ensure!(text.contains("G1: ") && text.contains("deviceclasses"), "something else: {text}");
            return Ok(());
        }
        bail!("nothing was found in {ROUNDS} rounds without the fence")
    }
}
