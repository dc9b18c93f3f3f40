//! Migration through the public API. T numbers are those of the acceptance list.

use std::{sync::Arc, time::Duration};

use controllers::migration::api::{ApiEngine, Reach, Settings, StoreReader, StoredPage};
use controllers::migration::engine::{Agreement, Batch, Class, Engine, Evidence, Look, Task, Trouble};
use futures_util::future::BoxFuture;
use meta::GroupResource;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{Cluster, Expiry, POLICY};

fn widgets() -> GroupResource {
    GroupResource::from("widgets.example.com")
}

fn engine(cluster: &Cluster) -> ApiEngine {
    cluster.engine(Reach::EveryServer, Settings::default())
}

/// A task for all objects under the present agreement.
async fn task(engine: &ApiEngine) -> Task {
    let Ok(Agreement::Agreed { version, epoch }) = engine.agreement(&widgets()).await else {
        panic!("no agreement");
    };
    Task {
        resource: widgets(),
        version,
        epoch,
        namespaces: Vec::new(),
        selector: String::new(),
        dry_run: false,
        batch: 100,
        at_once: 8,
    }
}

/// All steps of a rewrite, added up.
async fn rewrite(engine: &ApiEngine, task: &Task) -> Result<Batch, Trouble> {
    let (mut sum, mut position) = (Batch::default(), String::new());
    loop {
        let batch = engine.rewrite(task, &position).await?;
        sum.migrated += batch.migrated;
        sum.unchanged += batch.unchanged;
        sum.failures.extend(batch.failures);
        match batch.next {
            Some(next) => position = next,
            None => return Ok(sum),
        }
    }
}

async fn verify(engine: &ApiEngine, task: &Task) -> Result<Look, Trouble> {
    let mut look = engine.verify(task, "").await?;
    while let Some(next) = look.next.take() {
        let more = engine.verify(task, &next).await?;
        look.objects += more.objects;
        look.left += more.left;
        look.failures.extend(more.failures);
        look.next = more.next;
    }
    Ok(look)
}

fn later(why: &str) -> Trouble {
    Trouble::Later(why.to_owned())
}

#[tokio::test(start_paused = true)]
async fn everything_is_rewritten_once_and_then_proven() {
    let cluster = Cluster::filled(&["a", "b"], 250);
    cluster.with(|it| it.servers.insert("b", Some("v2")));
    let engine = engine(&cluster);
    let task = task(&engine).await;
    assert_eq!(task.version, "example.com/v2");
    let first = engine.rewrite(&task, "").await.unwrap();
    assert_eq!((first.migrated, first.remaining), (100, Some(400)));
    let rest = rewrite(&engine, &task).await.unwrap();
    assert_eq!((rest.migrated, rest.unchanged, rest.failures.len()), (400, 100, 0));
    assert_eq!(cluster.with(|it| it.stored_in("v2")), 500);
    let look = verify(&engine, &task).await.unwrap();
    assert_eq!((look.evidence, look.objects, look.left), (Evidence::SecondPassAllEndpoints, 1000, 0));
    assert_eq!(cluster.with(|it| it.count("b PATCH")), 500);
    assert!(cluster.with(|it| (5..=16).contains(&it.most_active)));
}

/// T6. What is being deleted is not passed over.
#[tokio::test(start_paused = true)]
async fn three_bad_objects_among_a_thousand_are_named_and_the_others_migrated() {
    let cluster = Cluster::filled(&["a"], 1000);
    cluster.with(|it| {
        it.get("a", "w0100").refusal = Some((422, POLICY));
        it.get("a", "w0500").refusal = Some((422, "Widget \"w0500\" is invalid: spec.size: Required value"));
        let terminating = "Widget \"w0999\" is invalid: metadata.finalizers: Forbidden: it is being deleted";
        it.get("a", "w0999").refusal = Some((422, terminating));
    });
    let engine = engine(&cluster);
    let task = task(&engine).await;
    let batch = rewrite(&engine, &task).await.unwrap();
    assert_eq!(batch.migrated, 997);
    let failures: Vec<_> = batch.failures.iter().map(|it| (it.class, it.object.as_str())).collect();
    assert_eq!(
        failures,
        [(Class::Denied, "a/w0100"), (Class::Invalid, "a/w0500"), (Class::Invalid, "a/w0999")]
    );
    assert_eq!(batch.failures[0].message, POLICY);
    let look = verify(&engine, &task).await.unwrap();
    assert_eq!((look.left, look.failures.len()), (0, 3));
}

/// T20: one object that cannot be read holds up nobody but those behind it, and what was not reached is named.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_because_of_one_object_is_walked_around_it() {
    let cluster = Cluster::filled(&["a", "b", "c"], 30);
    cluster.with(|it| it.get("b", "w0010").is_undecodable = true);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    let batch = rewrite(&engine, &task).await.unwrap();
    assert_eq!((batch.migrated, cluster.with(|it| it.stored_in("v2"))), (70, 70));
    let failures: Vec<_> = batch.failures.iter().map(|it| (it.class, it.object.as_str())).collect();
    assert_eq!(failures, [(Class::Undecodable, "b/*, behind w0009")]);
    let look = verify(&engine, &task).await.unwrap();
    assert_eq!((look.objects, look.left, look.failures.len()), (70, 0, 1));
    // In steps of any size; also if it is the first, or the only one.
    cluster.with(|it| it.get("a", "w0000").is_undecodable = true);
    for batch in [1, 7] {
        let look = verify(&engine, &Task { batch, ..task.clone() }).await.unwrap();
        assert_eq!((look.objects, look.left, look.failures.len()), (40, 0, 2), "{batch}");
        assert_eq!(look.failures[0].object, "a/*");
    }
    cluster.with(|it| it.objects.values_mut().for_each(|it| it.is_undecodable = false));
    assert_eq!(verify(&engine, &task).await.unwrap().left, 20);
}

/// What cannot be read is in none of the namespaces there are: then nothing is proven.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_namespace_that_is_gone_is_no_proof() {
    let cluster = Cluster::filled(&["a", "b", "c"], 10);
    cluster.with(|it| {
        it.get("b", "w0003").is_undecodable = true;
        it.gone = vec!["b"];
    });
    let engine = engine(&cluster);
    let task = task(&engine).await;
    for batch in [1, 7, 100] {
        let look = verify(&engine, &Task { batch, ..task.clone() }).await.unwrap();
        let failures: Vec<_> = look.failures.iter().map(|it| (it.class, it.object.as_str())).collect();
        assert_eq!(failures, [(Class::Undecodable, "all")], "{batch}");
    }
}

/// An etcd, by what it holds.
struct Shelf(&'static str);

impl StoreReader for Shelf {
    fn read<'a>(
        &'a self,
        _resource: &'a GroupResource,
        _after: &'a str,
    ) -> BoxFuture<'a, Result<StoredPage, Trouble>> {
        Box::pin(std::future::ready(Ok(StoredPage::default())))
    }

    fn holds<'a>(&'a self, namespace: &'a str, uid: &'a str) -> BoxFuture<'a, Result<bool, Trouble>> {
        Box::pin(std::future::ready(Ok(namespace == "kube-system" && uid == self.0)))
    }
}

/// An empty store proves nothing unless it is the cluster's.
#[tokio::test(start_paused = true)]
async fn the_store_of_another_cluster_proves_nothing() {
    let cluster = Cluster::filled(&["a"], 10);
    let other = engine(&cluster).reading(Arc::new(Shelf("another")));
    let task = task(&other).await;
    let refused = verify(&other, &task).await.unwrap_err();
    assert!(matches!(&refused, Trouble::Never(why) if why.contains("--verify-etcd-prefix")), "{refused}");
    let own = engine(&cluster).reading(Arc::new(Shelf("the-cluster")));
    let look = verify(&own, &task).await.unwrap();
    assert_eq!((look.evidence, look.doubt), (Evidence::StoreScan, ""));
    // Who is behind an address is not known, and may write anything.
    let balanced = cluster.engine(Reach::SharedAddress, Settings::default());
    let look = verify(&balanced.reading(Arc::new(Shelf("the-cluster"))), &task).await.unwrap();
    assert!(look.doubt.contains("one address"), "{look:?}");
}

/// T11.
#[tokio::test(start_paused = true)]
async fn a_list_that_expires_goes_on_where_it_was() {
    for (expiry, n_patches) in [(Expiry::WithToken, 500), (Expiry::WithoutToken, 600)] {
        let cluster = Cluster::filled(&["a"], 500);
        let engine = engine(&cluster);
        let task = task(&engine).await;
        let first = engine.rewrite(&task, "").await.unwrap();
        cluster.with(|it| it.expired.push(expiry));
        let mut position = first.next;
        while let Some(at) = position {
            position = engine.rewrite(&task, &at).await.unwrap().next;
        }
        assert_eq!(cluster.with(|it| (it.stored_in("v2"), it.count("PATCH"))), (500, n_patches));
    }
}

/// T12.
#[tokio::test(start_paused = true)]
async fn a_conversion_webhook_that_is_down_is_waited_for_with_the_reason() {
    let cluster = Cluster::filled(&["a"], 150);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    cluster.with(|it| it.is_webhook_down = true);
    let why = "the conversion webhook of widgets.example.com does not answer: \
               conversion webhook for example.com/v1, Kind=Widget failed: connection refused";
    assert_eq!(engine.rewrite(&task, "").await, Err(later(why)));
    assert_eq!(cluster.with(|it| it.count("PATCH")), 0);
    cluster.with(|it| it.is_webhook_down = false);
    assert_eq!(rewrite(&engine, &task).await.unwrap().migrated, 150);
}

/// T14.
#[tokio::test(start_paused = true)]
async fn a_storage_version_that_is_not_served_is_known_from_the_definition() {
    let cluster = Cluster::filled(&["a"], 10);
    cluster.with(|it| it.served = vec!["v1"]);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    assert_eq!(task.version, "example.com/v2");
    assert_eq!(rewrite(&engine, &task).await.unwrap().migrated, 10);
    assert_eq!(verify(&engine, &task).await.unwrap().left, 0);
}

/// T16. A conflict is no success: the object is written back in its new state.
#[tokio::test(start_paused = true)]
async fn others_may_write_at_the_same_time() {
    let cluster = Cluster::filled(&["a"], 200);
    cluster.with(|it| it.others = 60);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    let batch = rewrite(&engine, &task).await.unwrap();
    assert_eq!((batch.migrated, batch.failures), (200, vec![]));
    assert_eq!(cluster.with(|it| (it.stored_in("v2"), it.others)), (200, 0));
    cluster.with(|it| it.others = 60);
    let look = verify(&engine, &task).await.unwrap();
    assert_eq!((look.objects, look.left, look.failures.len()), (200, 0, 0));
    // The right to list is enough.
    assert_eq!(cluster.with(|it| it.count("GET /apis/example.com/v2/namespaces/a/widgets/")), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_others_never_leave_alone_is_named() {
    let cluster = Cluster::filled(&["a"], 1);
    cluster.with(|it| it.others = usize::MAX);
    let engine = engine(&cluster);
    let batch = rewrite(&engine, &task(&engine).await).await.unwrap();
    assert_eq!((batch.migrated, batch.failures[0].class), (0, Class::Conflict));
    assert_eq!(cluster.with(|it| it.count("PATCH")), 5);
}

/// T7, as far as the engine sees it. What differs is defined by a definition, so that it does not last.
#[tokio::test(start_paused = true)]
async fn servers_that_write_different_versions_are_no_agreement() {
    let cluster = Cluster::filled(&["a"], 10);
    cluster.with(|it| it.servers.insert("b", Some("v2")));
    let engine = engine(&cluster);
    let task = task(&engine).await;
    cluster.with(|it| it.servers.insert("b", Some("v1")));
    let why = "the API server a writes widgets.example.com in example.com/v2, b in example.com/v1";
    assert_eq!(engine.agreement(&widgets()).await, Ok(Agreement::Following(why.to_owned())));
    assert_eq!(engine.rewrite(&task, "").await, Err(Trouble::Disagreement(why.to_owned())));
    cluster.with(|it| it.servers.insert("b", None));
    let Err(Trouble::Later(why)) = engine.agreement(&widgets()).await else { panic!("agreement without b") };
    assert!(why.starts_with("the API server b does not say what it serves: "), "{why}");
    assert_eq!(engine.verify(&task, "").await, Err(Trouble::Later(why)));
    assert_eq!(cluster.with(|it| it.count("PATCH")), 0);
}

/// T15 and T19.
#[tokio::test(start_paused = true)]
async fn a_flip_there_and_back_is_another_epoch_and_a_description_is_not() {
    let cluster = Cluster::filled(&["a"], 10);
    cluster.with(|it| it.definition = Some(("v2", vec!["v2"])));
    let engine = engine(&cluster);
    let task = task(&engine).await;
    cluster.with(|it| it.description = "new words");
    assert_eq!(self::task(&engine).await.epoch, task.epoch);
    cluster.with(|it| it.definition = Some(("v2", vec!["v2", "v1"])));
    let trouble = engine.rewrite(&task, "").await.unwrap_err();
    assert_eq!(
        trouble.to_string(),
        "the API servers agreed anew to write widgets.example.com in example.com/v2"
    );
    assert!(matches!(trouble, Trouble::Disagreement(_)));
    assert_eq!(cluster.with(|it| it.count("PATCH")), 0);
}

/// As after a flip, which discovery shows before requests follow it (kubernetes#130235).
#[tokio::test(start_paused = true)]
async fn a_server_that_lags_behind_what_it_says_is_found_by_the_second_pass() {
    let cluster = Cluster::filled(&["a"], 50);
    cluster.with(|it| {
        it.servers.insert("b", Some("v2"));
        it.lagging.insert("b", "v1");
    });
    let engine = engine(&cluster);
    let task = task(&engine).await;
    assert_eq!(rewrite(&engine, &task).await.unwrap().migrated, 50);
    let look = verify(&engine, &task).await.unwrap();
    assert_eq!((look.objects, look.left), (100, 50));
}

#[tokio::test(start_paused = true)]
async fn storage_version_objects_are_believed() {
    let cluster = Cluster::filled(&["a"], 1);
    let server = |id: &str, version: &str| json!({"apiServerID": id, "encodingVersion": version});
    let both = |version: &str| json!([server("s1", "example.com/v2"), server("s2", version)]);
    let engine = engine(&cluster);
    let status =
        json!({"commonEncodingVersion": "example.com/v2", "storageVersions": both("example.com/v2")});
    let mut counted = status.clone();
    cluster.with(|it| it.storage = Some(status));
    let first = task(&engine).await;
    for epoch in [3, 4] {
        counted["epoch"] = json!(epoch);
        cluster.with(|it| it.storage = Some(counted.clone()));
        assert_ne!(task(&engine).await.epoch, first.epoch);
        assert!(matches!(engine.rewrite(&first, "").await, Err(Trouble::Disagreement(_))));
    }
    cluster.with(|it| it.storage = Some(json!({"storageVersions": both("example.com/v1")})));
    let why = "the API servers write different versions: s1 writes example.com/v2, s2 writes example.com/v1";
    assert_eq!(engine.agreement(&widgets()).await, Ok(Agreement::Following(why.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn what_changes_in_the_second_pass_is_left() {
    let cluster = Cluster::filled(&["a"], 50);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    rewrite(&engine, &task).await.unwrap();
    cluster.with(|it| (0..7).for_each(|number| it.get("a", &format!("w{number:04}")).stored = "v1"));
    assert_eq!(verify(&engine, &task).await.unwrap().left, 7);
    assert_eq!(verify(&engine, &task).await.unwrap().left, 0);
    let balanced = cluster.engine(Reach::SharedAddress, Settings::default());
    assert_eq!(verify(&balanced, &task).await.unwrap().evidence, Evidence::SecondPassOneEndpoint);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_policy_denies_is_written_through_its_status() {
    let cluster = Cluster::filled(&["a"], 20);
    cluster.with(|it| {
        it.has_status = true;
        it.get("a", "w0003").refusal = Some((422, POLICY));
        let down = "Internal error occurred: failed calling webhook \"a.b.c\": no endpoints available";
        it.get("a", "w0004").refusal = Some((500, down));
    });
    let engine = engine(&cluster);
    let batch = rewrite(&engine, &task(&engine).await).await.unwrap();
    assert_eq!((batch.migrated, batch.failures), (20, vec![]));
    assert_eq!(cluster.with(|it| it.count("/status")), 2);
}

/// T18: without the right to read definitions the hash has to do.
#[tokio::test(start_paused = true)]
async fn missing_rights_are_told() {
    let cluster = Cluster::filled(&["a"], 3);
    cluster.with(|it| it.forbidden = vec!["crd", "patch"]);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    let batch = rewrite(&engine, &task).await.unwrap();
    assert_eq!(batch.failures.len(), 3);
    assert!(batch.failures.iter().all(|it| it.class == Class::Forbidden));
    cluster.with(|it| it.forbidden = vec!["crd"]);
    assert_eq!(rewrite(&engine, &task).await.unwrap().migrated, 3);
    cluster.with(|it| it.forbidden = vec!["crd", "list"]);
    let why = "widgets.example.com cannot be listed: User \"u\" cannot list resource \"widgets\"";
    assert_eq!(engine.rewrite(&task, "").await, Err(later(why)));
}

#[tokio::test(start_paused = true)]
async fn a_server_with_too_much_to_do_is_left_alone_for_as_long_as_it_asks() {
    let cluster = Cluster::filled(&["a"], 100);
    cluster.with(|it| it.throttled = (4, 7));
    let engine = engine(&cluster);
    let task = task(&engine).await;
    let begin = Instant::now();
    assert_eq!(rewrite(&engine, &task).await.unwrap().migrated, 100);
    assert!((7..9).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    let refused = cluster.with(|it| {
        let patches: Vec<Instant> =
            it.log.iter().filter(|it| it.1.contains("PATCH")).map(|it| it.0).collect();
        assert!(patches[4] - patches[3] >= Duration::from_secs(7));
        // Two are under way afterwards, not four.
        patches[6] - patches[5]
    });
    assert!(refused >= Duration::from_millis(5), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept() {
    let cluster = Cluster::filled(&["a"], 200);
    let mut settings = Settings::default();
    settings.rate = 20;
    let engine = cluster.engine(Reach::EveryServer, settings);
    let task = task(&engine).await;
    let begin = Instant::now();
    assert_eq!(rewrite(&engine, &task).await.unwrap().migrated, 200);
    assert!((10..11).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_object_that_always_fails_blocks_no_other() {
    let cluster = Cluster::filled(&["a"], 300);
    cluster.with(|it| it.get("a", "w0000").refusal = Some((500, "something is wrong with this one")));
    let engine = engine(&cluster);
    let mut task = task(&engine).await;
    // Also if it is alone on its page.
    task.batch = 1;
    let batch = rewrite(&engine, &task).await.unwrap();
    assert_eq!((batch.migrated, batch.failures.len()), (299, 1));
    assert_eq!(batch.failures[0].class, Class::Transient);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_in_the_middle_is_an_outage_and_not_the_objects_fault() {
    let cluster = Cluster::filled(&["a"], 200);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    let first = engine.rewrite(&task, "").await.unwrap();
    cluster.with(|it| it.is_webhook_down = true);
    let trouble = engine.rewrite(&task, &first.next.clone().unwrap()).await.unwrap_err();
    assert!(matches!(&trouble, Trouble::Later(why) if why.contains("conversion webhook")), "{trouble}");
    cluster.with(|it| it.is_webhook_down = false);
    assert_eq!(engine.rewrite(&task, &first.next.unwrap()).await.unwrap().migrated, 100);
}

/// Neither for ever, nor for as long as all tries of all objects would take.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_any_more_ends_the_step() {
    let cluster = Cluster::filled(&["a"], 500);
    let engine = engine(&cluster);
    let task = Task { batch: 500, ..task(&engine).await };
    cluster.with(|it| it.is_hanging = true);
    let begin = Instant::now();
    let trouble = engine.rewrite(&task, "").await.unwrap_err();
    assert_eq!(trouble, later("nothing became of any object of widgets.example.com for 90s"));
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
    cluster.with(|it| it.is_hanging = false);
    assert_eq!(engine.rewrite(&task, "").await.unwrap().migrated, 500);
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_not_blamed_while_the_way_around_it_may_open() {
    let cluster = Cluster::filled(&["a"], 1);
    cluster.with(|it| {
        it.has_status = true;
        it.get("a", "w0000").refusal = Some((422, POLICY));
        it.forbidden = vec!["status"];
    });
    let engine = engine(&cluster);
    let batch = rewrite(&engine, &task(&engine).await).await.unwrap();
    assert_eq!((batch.failures[0].class, batch.failures[0].message.as_str()), (Class::Denied, POLICY));
    cluster.with(|it| it.forbidden = vec!["status-for-now"]);
    let batch = rewrite(&engine, &task(&engine).await).await.unwrap();
    assert_eq!(batch.failures[0].class, Class::Transient);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_migrated_is_refused_at_once() {
    let cluster = Cluster::filled(&["a"], 3);
    let engine = engine(&cluster);
    let task = task(&engine).await;
    cluster.with(|it| it.verbs = vec!["get", "list"]);
    let why = "widgets.example.com does not support patch";
    assert_eq!(engine.rewrite(&task, "").await, Err(Trouble::Never(why.to_owned())));
    // The definition is gone, and every server says so.
    cluster.with(|it| it.definition = None);
    assert_eq!(engine.rewrite(&task, "").await, Err(Trouble::Gone));
    assert_eq!(engine.agreement(&widgets()).await, Ok(Agreement::Absent));
    cluster.with(|it| it.servers.insert("a", None));
    assert!(matches!(engine.rewrite(&task, "").await, Err(Trouble::Later(_))));
}

#[tokio::test(start_paused = true)]
async fn namespaces_and_labels_choose_and_a_dry_run_counts() {
    let cluster = Cluster::filled(&["a", "b", "c"], 150);
    cluster.with(|it| it.get("a", "w0001").label = "round");
    let engine = engine(&cluster);
    let all = task(&engine).await;
    let dry = rewrite(&engine, &Task { dry_run: true, ..all.clone() }).await.unwrap();
    assert_eq!((dry.migrated, cluster.with(|it| it.count("PATCH"))), (450, 0));
    let labelled = Task { selector: "kind=round".to_owned(), ..all.clone() };
    assert_eq!(rewrite(&engine, &labelled).await.unwrap().migrated, 1);
    let some = Task { namespaces: vec!["a".to_owned(), "c".to_owned()], ..all };
    let batch = rewrite(&engine, &some).await.unwrap();
    assert_eq!((batch.migrated, batch.unchanged), (299, 1));
    assert_eq!(cluster.with(|it| (it.stored_in("v1"), it.stored_in("v2"))), (150, 300));
}

#[tokio::test(start_paused = true)]
async fn the_agreement_is_looked_at_every_half_minute() {
    let cluster = Cluster::new();
    let engine = engine(&cluster);
    let begin = Instant::now();
    engine.changed().await;
    assert!((15..=30).contains(&begin.elapsed().as_secs()));
}
