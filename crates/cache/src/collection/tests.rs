//! Random histories against a simple model, and what an object costs.

use bytes::Bytes;
use proptest::prelude::*;
use store::SystemClock;

use super::*;
use crate::{EventType, FieldSpec, Step};

const PREFIX: &str = "/registry/things/";

fn collection(spec: CollectionSpec) -> Arc<Collection> {
    let progress = Arc::new(Progress::new(SystemClock::shared()));
    Arc::new(Collection::new(spec, &CacheConfig::default(), progress))
}

/// What a key is made to hold: nothing, something unreadable, or an object of a stored version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Nothing,
    Unreadable,
    Stored(u8),
}

/// What a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Event(u64, EventType),
    Undecodable,
}

fn event(revision: u64, key: u8, value: Value) -> Event {
    let (key, modified) = (Key::new(format!("{PREFIX}{key}")), Revision::new(revision));
    let value = match value {
        Value::Nothing => return Event::Delete(key, modified),
        Value::Unreadable => Bytes::from_static(b"?"),
        Value::Stored(version) => {
            format!(r#"{{"apiVersion":"v{version}","kind":"T","metadata":{{}}}}"#).into()
        }
    };
    Event::Put(Entry { key, value, created: Revision::new(1), modified, lease: None })
}

fn check(collection: &Collection, model: &BTreeMap<u8, Value>) {
    let mut counts: BTreeMap<StorageVersion, u64> = BTreeMap::new();
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    for (key, value) in model {
        match value {
            Value::Nothing => {}
            Value::Unreadable => unreadable.push(format!("{PREFIX}{key}")),
            Value::Stored(version) => {
                *counts.entry(StorageVersion::new(format!("v{version}"))).or_default() += 1;
                readable.push(format!("{PREFIX}{key}"));
            }
        }
    }
    assert_eq!(collection.counts().unwrap(), counts);
    let named: Vec<String> =
        collection.unreadable().unwrap().into_iter().map(|(key, _)| key.as_str().to_owned()).collect();
    assert_eq!(named, unreadable);
    let snapshot = collection.snapshot().unwrap();
    let listed: Vec<&str> = snapshot.readable(PREFIX, None).map(|it| it.key().as_str()).collect();
    assert_eq!(listed, readable);
    assert_eq!(snapshot.len_in(PREFIX), readable.len());
    assert_eq!(collection.n_keys(), (readable.len() + unreadable.len()) as u64);
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Nothing),
        1 => Just(Value::Unreadable),
        5 => (1_u8..4).prop_map(Value::Stored),
    ]
}

proptest! {
    /// Counts, lists and watchers agree with the history, whatever it is and however it is batched.
    #[test]
    fn counts_and_changes_follow_any_history(
        batches in prop::collection::vec(prop::collection::vec((0_u8..8, value()), 1..6), 1..20),
    ) {
        let collection = collection(CollectionSpec::new(PREFIX, false));
        let mut watcher = collection.watch(Revision::ZERO, PREFIX).unwrap();
        let (mut model, mut revision) = (BTreeMap::new(), 0);
        for batch in batches {
            let mut expected = Vec::new();
            let mut events = Vec::new();
            for (key, value) in batch {
                revision += 1;
                events.push(collection.prepare(event(revision, key, value)));
                let before = model.insert(key, value).unwrap_or(Value::Nothing);
                match (before, value) {
                    (Value::Nothing, Value::Nothing) => {}
                    (_, Value::Unreadable) | (Value::Unreadable, Value::Nothing) => {
                        expected.push((key, Seen::Undecodable));
                    }
                    (Value::Nothing | Value::Unreadable, Value::Stored(_)) => {
                        expected.push((key, Seen::Event(revision, EventType::Added)));
                    }
                    (Value::Stored(_), Value::Stored(_)) => {
                        expected.push((key, Seen::Event(revision, EventType::Modified)));
                    }
                    (Value::Stored(_), Value::Nothing) => {
                        expected.push((key, Seen::Event(revision, EventType::Deleted)));
                    }
                }
            }
            collection.apply(events);
            check(&collection, &model);
            let mut got = Vec::new();
            while let Some(step) = watcher.try_next() {
                let (key, seen) = match step {
                    Step::Event(change) => {
                        (change.key().clone(), Seen::Event(change.revision.get(), change.event()))
                    }
                    Step::Undecodable(key, _) => (key, Seen::Undecodable),
                    Step::Progress(_) | Step::Ended(_) => unreachable!("nobody asked, and nothing is lost"),
                };
                got.push((key.as_str().trim_start_matches(PREFIX).parse::<u8>().unwrap(), seen));
            }
            prop_assert_eq!(got, expected);
        }
    }
}

#[test]
fn events_that_the_list_already_showed_are_passed_over() {
    let collection = collection(CollectionSpec::new(PREFIX, false));
    let mut contents = Contents::default();
    let Event::Put(entry) = event(7, 1, Value::Stored(2)) else { unreachable!("a put was asked for") };
    contents.put(entry.key.clone(), entry.modified, collection.read(&entry));
    collection.replace(contents, Revision::new(9));
    let old = [event(5, 1, Value::Stored(1)), event(8, 2, Value::Stored(1)), event(9, 1, Value::Nothing)];
    collection.apply(old.into_iter().map(|it| collection.prepare(it)).collect());
    check(&collection, &BTreeMap::from([(1, Value::Stored(2))]));
    assert_eq!(collection.snapshot().unwrap().revision(), Revision::new(9));
    assert!(collection.watch(Revision::new(8), "").is_err());
    let mut watcher = collection.watch(Revision::new(9), "").unwrap();
    assert!(watcher.try_next().is_none());
}

proptest! {
    /// However a load and the feed take turns, and whatever the portions show, the newest state of every key is left.
    #[test]
    fn a_load_beside_the_feed_ends_in_the_newest_state(
        history in prop::collection::vec((0_u8..8, value()), 1..60),
        reads in prop::collection::vec((0_usize..8, 0_usize..8), 8),
        from_source in any::<bool>(),
    ) {
        let old = collection(CollectionSpec::new(PREFIX, false));
        let new = collection(CollectionSpec::new(PREFIX, false));
        let events: Vec<Event> =
            history.iter().zip(1..).map(|((key, value), revision)| event(revision, *key, *value)).collect();
        // What the store shows at a revision, for the keys of one portion.
        let portion = |up_to: usize, key: u8| -> Option<Prepared> {
            let last = history[..up_to].iter().rposition(|(it, _)| *it == key)?;
            let Event::Put(entry) = &events[last] else { return None };
            let value = Some(new.read(entry));
            Some(Prepared { key: entry.key.clone(), revision: entry.modified, value })
        };
        let begins = history.len() / 4;
        let mut fed = begins;
        old.apply(events[..begins].iter().map(|it| old.prepare(it.clone())).collect());
        let source = old.snapshot().unwrap();
        new.begin(from_source.then(|| source.clone()));
        for (key, (ahead, behind)) in (0_u8..8).zip(reads) {
            new.expect_portion();
            // A store that is as far as the feed or further answers; the feed goes on until the answer is taken in.
            let shown = (fed + ahead).min(history.len());
            let next = (fed + behind).min(history.len());
            new.apply(events[fed..next].iter().map(|it| new.prepare(it.clone())).collect());
            fed = next;
            let loaded = match source.get(&format!("{PREFIX}{key}")) {
                _ if !from_source => portion(shown, key),
                Some(item) => Some(Prepared {
                    key: item.key().clone(),
                    revision: item.revision(),
                    value: Some(new.reread(item)),
                }),
                None => source.unreadable("").find(|(it, _)| it.as_str() == format!("{PREFIX}{key}")).map(
                    |(key, it)| Prepared {
                        key: key.clone(),
                        revision: it.revision,
                        value: Some(Err(it.why.clone())),
                    },
                ),
            };
            prop_assert!(new.take(loaded.into_iter().collect()));
            prop_assert_eq!(new.snapshot().err(), Some(Closed));
        }
        new.apply(events[fed..].iter().map(|it| new.prepare(it.clone())).collect());
        new.finish();
        check(&new, &history.into_iter().collect());
    }
}

#[test]
fn a_closed_collection_answers_nothing() {
    let collection = collection(CollectionSpec::new(PREFIX, false));
    collection.apply(vec![collection.prepare(event(1, 1, Value::Stored(1)))]);
    let mut watcher = collection.watch(Revision::ZERO, PREFIX).unwrap();
    assert!(matches!(watcher.try_next(), Some(Step::Event(_))));
    assert_eq!(watcher.position(), Some(Revision::new(1)));
    collection.close();
    // What happens from now on is not seen here; a bookmark must not say that it was delivered, and none must say less
    // than what a client has already seen.
    collection.progress.publish(Revision::new(9));
    assert_eq!(watcher.position(), None);
    assert_eq!(collection.get("x").err(), Some(GetError::Closed(Closed)));
    assert_eq!(collection.snapshot().err(), Some(Closed));
    assert_eq!(collection.watch(Revision::new(1), PREFIX).err(), Some(WatchError::Closed(Closed)));
    assert_eq!((collection.counts(), collection.stored()), (Err(Closed), Err(Closed)));
    assert_eq!((collection.len(), collection.is_empty()), (Err(Closed), Err(Closed)));
    assert_eq!((collection.n_unknown(), collection.unreadable()), (Err(Closed), Err(Closed)));
    assert!(matches!(watcher.try_next(), Some(Step::Ended(_))));
    assert!(!collection.is_open());
}

#[test]
fn values_that_cannot_be_served_are_no_less_than_there_is() {
    let collection = collection(CollectionSpec::new(PREFIX, true));
    let put = |key: &str, value: &'static [u8], revision: u64| {
        let (key, modified) = (Key::new(format!("{PREFIX}{key}")), Revision::new(revision));
        let value = Bytes::from_static(value);
        collection.prepare(Event::Put(Entry { key, value, created: modified, modified, lease: None }))
    };
    collection.apply(vec![put("a/1", b"{}", 1), put("b/1", b"?", 2), put("b/2", b"{}", 3)]);
    let snapshot = collection.snapshot().unwrap();
    let (a, b) = (format!("{PREFIX}a/"), format!("{PREFIX}b/"));
    assert_eq!(snapshot.range(&a, None).unwrap().count(), 1);
    for (prefix, after) in [(PREFIX, None), (b.as_str(), None), (PREFIX, Some(a.as_str()))] {
        let found = snapshot.range(prefix, after).err().unwrap();
        assert_eq!((found.n_keys, found.first[0].0.as_str()), (1, format!("{PREFIX}b/1").as_str()));
        assert_eq!(found.first[0].1.revision, Revision::new(2));
    }
    let behind = format!("{PREFIX}b/1");
    assert_eq!(snapshot.range(&b, Some(&behind)).unwrap().count(), 1);
    assert!(matches!(collection.get(&behind), Err(GetError::Undecodable(_))));
    assert!(matches!(collection.get(&format!("{PREFIX}b/3")), Ok(None)));
}

#[test]
fn an_item_gets_the_fields_of_another_collection_and_shares_its_text() {
    let collection = collection(CollectionSpec::new(PREFIX, true));
    let key = Key::new(format!("{PREFIX}default/a"));
    let text = r#"{"apiVersion":"v1","kind":"T","metadata":{"name":"a","uid":"u","labels":{"l\u0061":"m","b":"c"}},"spec":{"color":"r\u0065d","size":3}}"#;
    let modified = Revision::new(7);
    let entry =
        Entry { key, value: text.into(), created: modified, modified, lease: Some(store::LeaseId(4)) };
    let item = collection.read(&entry).unwrap();
    let fields = ["spec.size", "spec.color"].map(FieldSpec::new).to_vec();
    let spec = CollectionSpec { fields, ..CollectionSpec::new(PREFIX, true) };
    let other = self::collection(spec.clone());
    let (reread, parsed) = (other.reread(&item).unwrap(), other.read(&entry).unwrap());
    assert_eq!(reread.text().as_ptr(), item.text().as_ptr());
    for it in [&reread, &parsed] {
        assert_eq!((it.field(0), it.field(1), it.uid(), it.name()), ("3", "red", "u", "a"));
        assert_eq!((it.label("la"), it.label("b"), it.labels().len()), (Some("m"), Some("c"), 2));
        assert_eq!((it.revision(), it.created(), it.lease()), (modified, modified, Some(store::LeaseId(4))));
        assert_eq!((it.namespace(), it.body().len()), ("default", item.body().len()));
    }
}

#[test]
fn an_item_that_did_not_change_is_not_held_twice() {
    let collection = collection(CollectionSpec::new(PREFIX, false));
    let Event::Put(entry) = event(7, 1, Value::Stored(2)) else { unreachable!("a put was asked for") };
    collection.apply(vec![collection.prepare(Event::Put(entry.clone()))]);
    let known = collection.get(entry.key.as_str()).unwrap().unwrap();
    assert!(Arc::ptr_eq(&known, &collection.read(&entry).unwrap()));
}

/// A ConfigMap-like object of about 1 KB with the metadata that objects usually have.
pub(crate) fn typical(number: usize) -> String {
    let head = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"object-{number}","namespace":"default","uid":"3e1c8a52-9d0f-4c66-8a5e-{number:012}","creationTimestamp":"2026-11-15T21:10:53Z","labels":{{"app.kubernetes.io/name":"demo","app.kubernetes.io/part-of":"bench","tier":"t{}"}},"annotations":{{"example.com/owner":"team"}}}},"data":{{"value":""#,
        number % 7
    );
    let filler = 1000 - head.len() - 3;
    format!("{head}{}\"}}}}", "x".repeat(filler))
}

#[test]
fn an_object_costs_at_most_one_and_a_half_times_its_json() {
    const N: usize = 10_000;
    let fields = ["status.phase", "spec.nodeName"].map(FieldSpec::new).to_vec();
    let collection =
        collection(CollectionSpec { prefix: PREFIX.into(), namespaced: true, fields, versions: Vec::new() });
    let mut json = 0;
    let rounded = |bytes: usize| bytes.div_ceil(16) * 16 + 8;
    let mut cost = 0;
    for number in 0..N {
        let text = typical(number);
        json += text.len();
        let key = Key::new(format!("{PREFIX}default/object-{number}"));
        let revision = Revision::new(number as u64 + 1);
        let entry = Entry { key, value: text.into(), created: revision, modified: revision, lease: None };
        let item = collection.read(&entry).unwrap();
        // Every allocation with what an allocator adds; `Bytes` makes one more when first shared.
        cost += rounded(size_of::<Item>() + 16) + rounded(item.text.len()) + rounded(24);
        cost += rounded(item.key.as_str().len() + 16);
        cost += rounded(size_of_val(&*item.spans));
        // A node of the tree is at least half full; two thirds is what random inserts give.
        cost += size_of::<(Key, Arc<Item>)>() * 3 / 2;
        collection.apply(vec![collection.prepare(Event::Put(entry))]);
    }
    println!(
        "{N} objects: JSON {} KiB, held in {} KiB: {:.2}x",
        json >> 10,
        cost >> 10,
        cost as f64 / json as f64
    );
    assert!(cost * 2 <= json * 3);
    assert_eq!(collection.len(), Ok(N));
}
