//! Namespaces on servers that are not well.

use serde_json::json;

use crate::fake::{CONFIG_MAPS, Fake, PODS, WIDGETS};

#[tokio::test(start_paused = true)]
async fn pods_go_first_and_the_rest_when_they_are_gone() {
    let fake = Fake::new();
    fake.add(PODS, "held", &["example.org/hold"]);
    fake.add(CONFIG_MAPS, "one", &[]);
    fake.add(WIDGETS, "two", &[]);
    fake.run("namespace");
    fake.until(|it| it.trouble("NamespaceFinalizersRemaining").is_some()).await;
    fake.with(|it| {
        assert_eq!(it.count("DELETE /api/v1/namespaces/a/pods"), 1);
        assert_eq!(it.count("DELETE"), 1);
        let remaining = "Some resources are remaining: pods. has 1 resource instances";
        assert_eq!(it.trouble("NamespaceContentRemaining"), Some(remaining));
        assert_eq!(it.namespace.as_ref().unwrap()["status"]["phase"], "Terminating");
        it.content.get_mut(PODS).unwrap().clear();
    });
    fake.until(|it| it.is_gone()).await;
    fake.with(|it| assert_eq!(it.count("DELETE"), 3));
}

#[tokio::test(start_paused = true)]
async fn without_complete_discovery_nothing_is_touched() {
    // The last one fails in the older form only, where every group is asked.
    for (begin, has_aggregated_discovery) in [("GET /apis", true), ("GET /apis/example.org", false)] {
        let fake = Fake::new();
        fake.add(CONFIG_MAPS, "one", &[]);
        fake.with(|it| it.has_aggregated_discovery = has_aggregated_discovery);
        fake.with(|it| it.faults.push((begin, 503)));
        let running = fake.run("namespace");
        fake.until(|it| it.count(begin) > 5).await;
        fake.with(|it| {
            assert_eq!(it.count("DELETE"), 0, "{begin}");
            let why = it.trouble("NamespaceDeletionDiscoveryFailure").unwrap();
            assert!(why.contains("on purpose: 503"), "{why}");
            it.faults.clear();
        });
        fake.until(|it| it.is_gone()).await;
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_group_counts_as_unknown() {
    let fake = Fake::new();
    fake.with(|it| it.freshness = "Stale");
    fake.run("namespace");
    fake.until(|it| it.trouble("NamespaceDeletionDiscoveryFailure").is_some_and(|it| it.contains("stale")))
        .await;
    fake.with(|it| it.freshness = "Current");
    fake.until(|it| it.is_gone()).await;
}

#[tokio::test(start_paused = true)]
async fn servers_without_aggregated_discovery_are_asked_group_by_group() {
    let fake = Fake::new();
    fake.with(|it| it.has_aggregated_discovery = false);
    fake.add(CONFIG_MAPS, "one", &[]);
    fake.add(WIDGETS, "two", &[]);
    fake.run("namespace");
    fake.until(|it| it.is_gone()).await;
    fake.with(|it| assert!(it.content.values().all(Vec::is_empty)));
}

/// 404 among them: a server that does not serve what discovery lists may be older than another that does.
#[tokio::test(start_paused = true)]
async fn a_resource_that_cannot_be_listed_keeps_the_namespace() {
    for code in [0, 403, 404, 503] {
        let fake = Fake::new();
        fake.add(CONFIG_MAPS, "one", &[]);
        fake.with(|it| it.faults.push(("GET /apis/example.org/v2/namespaces/a/widgets", code)));
        fake.run("namespace");
        fake.until(|it| it.trouble("NamespaceDeletionContentFailure").is_some()).await;
        tokio::time::sleep(std::time::Duration::from_secs(90)).await;
        fake.with(|it| {
            assert!(!it.is_gone(), "{code}");
            assert!(it.content[CONFIG_MAPS].is_empty(), "what is known is deleted all the same");
            assert_eq!(it.count("PUT /api/v1/namespaces/a/finalize"), 0, "{code}");
            it.faults.clear();
        });
        fake.until(|it| it.is_gone()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn collections_that_cannot_be_deleted_whole_are_deleted_one_by_one() {
    let fake = Fake::new();
    for n in 0..5 {
        fake.add(WIDGETS, &format!("w-{n}"), &[]);
    }
    // The rule also hits the single objects unless it is lifted after the first refusal.
    fake.with(|it| it.faults.push(("DELETE /apis/example.org/v2/namespaces/a/widgets", 405)));
    fake.run("namespace");
    fake.until(|it| it.count("DELETE") >= 2).await;
    fake.with(|it| it.faults.clear());
    fake.until(|it| it.is_gone()).await;
    fake.with(|it| {
        let first = it.log.iter().position(|it| it.starts_with("DELETE")).unwrap();
        let second = it.log[first + 1..].iter().find(|it| it.starts_with("DELETE")).unwrap();
        assert_eq!(second, "DELETE /apis/example.org/v2/namespaces/a/widgets/w-0");
    });
}

#[tokio::test(start_paused = true)]
async fn other_finalizers_of_the_namespace_stay() {
    let fake = Fake::new();
    fake.with(|it| {
        it.namespace.as_mut().unwrap()["spec"]["finalizers"] = json!(["kubernetes", "example.org/mine"])
    });
    fake.run("namespace");
    fake.until(|it| it.count("PUT /api/v1/namespaces/a/finalize") == 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    fake.with(|it| {
        let namespace = it.namespace.as_ref().unwrap();
        assert_eq!(namespace["spec"]["finalizers"], json!(["example.org/mine"]));
        assert_eq!(namespace["status"]["conditions"].as_array().unwrap().len(), 5);
        assert_eq!(it.count("PUT"), 3, "{:?}", it.log);
    });
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_are_not_deleted_are_not_touched() {
    let fake = Fake::new();
    fake.add(CONFIG_MAPS, "one", &[]);
    fake.with(|it| {
        drop(it.namespace.as_mut().unwrap()["metadata"].as_object_mut().unwrap().remove("deletionTimestamp"))
    });
    fake.run("namespace");
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    fake.with(|it| assert_eq!(it.log, Vec::<String>::new()));
}

#[tokio::test(start_paused = true)]
async fn content_that_nobody_serves_is_told_and_waited_for() {
    let fake = Fake::new();
    fake.with(|it| it.has_unserved_content = true);
    fake.run("namespace");
    let told = "Some resources are remaining: keys that no server serves: 2 under /registry/relics/";
    fake.until(|it| it.trouble("NamespaceContentRemaining") == Some(told)).await;
    tokio::time::sleep(std::time::Duration::from_secs(90)).await;
    fake.with(|it| {
        assert!(!it.is_gone());
        it.has_unserved_content = false;
    });
    fake.until(|it| it.is_gone()).await;
}
