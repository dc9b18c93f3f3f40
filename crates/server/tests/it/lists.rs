//! LIST: selectors, pages, resource versions.

use serde_json::{Value, json};
use store::{Revision, Store};

use crate::harness::{MAPS, TestServer, config_map};

async fn with_maps(n_maps: usize) -> TestServer {
    let server = TestServer::start().await;
    for n in 0..n_maps {
        let mut map = config_map(&format!("m{n:03}"));
        map["metadata"]["labels"] = json!({"n": (n % 3).to_string()});
        server.post(MAPS, map).await.expect(201);
    }
    server
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_shows_all_and_items_have_no_heads() {
    let server = with_maps(5).await;
    let list = server.get(MAPS).await.expect(200).json();
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(names(&list), ["m000", "m001", "m002", "m003", "m004"]);
    assert!(list["items"][0].get("kind").is_none());
    assert!(list["items"][0]["metadata"]["resourceVersion"].is_string());
    let everywhere = server.get("/api/v1/configmaps").await.expect(200).json();
    assert_eq!(names(&everywhere).len(), 5);
}

#[tokio::test]
async fn selectors_choose() {
    let server = with_maps(6).await;
    let list = server.get(&format!("{MAPS}?labelSelector=n%20in%20(1,2)")).await.expect(200).json();
    assert_eq!(names(&list), ["m001", "m002", "m004", "m005"]);
    let list = server.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dm003")).await.expect(200).json();
    assert_eq!(names(&list), ["m003"]);
    let refused = server.get(&format!("{MAPS}?fieldSelector=data.k%3Dv")).await.expect(400);
    assert_eq!(
        refused.message(),
        "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    server.get(&format!("{MAPS}?labelSelector=x%20in%20(")).await.expect(400);
    let phases =
        server.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive").await.expect(200).json();
    assert_eq!(names(&phases), ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test]
async fn pages_show_one_state_whatever_happens_between_them() {
    let server = with_maps(7).await;
    let first = server.get(&format!("{MAPS}?limit=3")).await.expect(200).json();
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    server.post(MAPS, config_map("m0035")).await.expect(201);
    server.ask("DELETE", &format!("{MAPS}/m004"), Value::Null).await.expect(200);
    let mut all = names(&first);
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    while !token.is_empty() {
        let page = server.get(&format!("{MAPS}?limit=3&continue={token}")).await.expect(200).json();
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        all.extend(names(&page));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(all, ["m000", "m001", "m002", "m003", "m004", "m005", "m006"]);
}

/// All names, page by page, and what each page said of the rest.
async fn walk(server: &TestServer, query: &str) -> (Vec<String>, Vec<Option<u64>>) {
    let (mut all, mut left, mut token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{MAPS}?limit=2{query}&continue={token}")).await.expect(200).json();
        all.extend(names(&page));
        left.push(page["metadata"]["remainingItemCount"].as_u64());
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return (all, left);
        }
    }
}

#[tokio::test]
async fn every_page_says_how_many_are_left() {
    let server = with_maps(7).await;
    let (all, left) = walk(&server, "").await;
    assert_eq!((all.len(), left), (7, vec![Some(5), Some(3), Some(1), None]));
    let (all, left) = walk(&server, "&labelSelector=n%20in%20(0,1)").await;
    assert_eq!(all, ["m000", "m001", "m003", "m004", "m006"]);
    assert!(left.iter().all(Option::is_none), "with selectors it would be a guess: {left:?}");
}

/// What cannot be read is counted by the store and not by the cache: a walk that began before is as it was.
#[tokio::test]
async fn a_walk_from_before_something_became_unreadable_is_complete() {
    let server = with_maps(9).await;
    for query in ["", "&labelSelector=n%20in%20(0,1,2)"] {
        let first = server.get(&format!("{MAPS}?limit=2{query}")).await.expect(200).json();
        let mut all = names(&first);
        let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        let keys = (0..6).map(|n| store::Key::new(format!("/registry/configmaps/default/m005{n}")));
        for key in keys.clone() {
            server.store.commit(store::Txn::new().put(&key, "no JSON".into())).await.unwrap();
        }
        while !token.is_empty() {
            let page =
                server.get(&format!("{MAPS}?limit=2{query}&continue={token}")).await.expect(200).json();
            all.extend(names(&page));
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        }
        assert_eq!(all, (0..9).map(|n| format!("m{n:03}")).collect::<Vec<_>>(), "{query}");
        server.get(&format!("{MAPS}?limit=2{query}")).await.expect(500);
        for key in keys {
            server.store.commit(store::Txn::new().delete(&key)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_expired_token_offers_to_go_on_with_the_newest_state() {
    let server = with_maps(5).await;
    let first = server.get(&format!("{MAPS}?limit=2")).await.expect(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.ask("DELETE", &format!("{MAPS}/m003"), Value::Null).await.expect(200);
    let current = server.store.current().await.unwrap();
    server.store.compact(current).await.unwrap();
    let expired = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(410).json();
    assert_eq!(expired["reason"], "Expired");
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let rest = server.get(&format!("{MAPS}?limit=9&continue={token}")).await.expect(200).json();
    assert_eq!(names(&rest), ["m002", "m004"]);
}

#[tokio::test]
async fn resource_versions_mean_what_they_mean_upstream() {
    let server = with_maps(2).await;
    let then = server.get(MAPS).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    server.post(MAPS, config_map("z")).await.expect(201);
    // From here on even answers that may be stale show the new object.
    server.get(&format!("{MAPS}/z")).await.expect(200);
    let exact = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    assert_eq!(names(&server.get(&exact).await.expect(200).json()).len(), 2);
    let newer = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&server.get(&newer).await.expect(200).json()).len(), 3);
    assert_eq!(names(&server.get(&format!("{MAPS}?resourceVersion=0")).await.expect(200).json()).len(), 3);
    server.get(&format!("{MAPS}?resourceVersion=x")).await.expect(400);
    server.get(&format!("{MAPS}?resourceVersionMatch=Exact")).await.expect(422);
    let future = Revision::new(1_000_000);
    let answered = server.get(&format!("{MAPS}?resourceVersion={future}")).await.expect(504);
    assert!(answered.message().contains("Too large resource version"), "{}", answered.message());
}

#[tokio::test]
async fn a_list_names_a_bad_object() {
    let server = with_maps(2).await;
    let key = store::Key::new("/registry/configmaps/default/broken");
    server.store.commit(store::Txn::new().put(&key, "not json".into())).await.unwrap();
    let answered = server.get(MAPS).await.expect(500);
    assert!(answered.message().contains("default/broken"), "{}", answered.message());
    server.get(&format!("{MAPS}/m000")).await.expect(200);
    let answered = server.get(&format!("{MAPS}/broken")).await.expect(500);
    assert!(answered.message().contains("cannot be decoded"), "{}", answered.message());
}

/// Pages from the store are read in tiles of bounded size; all of them together are the list.
#[tokio::test]
async fn a_page_of_large_objects_is_whole() {
    let server = TestServer::start().await;
    for number in 0..12 {
        let mut map = config_map(&format!("m{number:02}"));
        map["data"] = json!({"text": "x".repeat(900_000)});
        server.post(MAPS, map).await.expect(201);
    }
    let first = server.get(&format!("{MAPS}?limit=1")).await.expect(200).json();
    server.ask("DELETE", &format!("{MAPS}/m05"), Value::Null).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    for limit in ["", "&limit=10", "&limit=500"] {
        let page = server.get(&format!("{MAPS}?continue={token}{limit}")).await.expect(200).json();
        let names: Vec<&str> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["metadata"]["name"].as_str().unwrap())
            .collect();
        let expected: Vec<String> = (1..12).map(|it| format!("m{it:02}")).collect();
        let expected = if limit == "&limit=10" { &expected[..10] } else { &expected };
        assert_eq!(names, expected, "{limit}");
    }
}
