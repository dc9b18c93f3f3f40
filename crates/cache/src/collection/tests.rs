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
    assert_eq!(collection.counts(), counts);
    let named: Vec<String> =
        collection.unreadable().into_iter().map(|(key, _)| key.as_str().to_owned()).collect();
    assert_eq!(named, unreadable);
    let snapshot = collection.snapshot();
    let listed: Vec<&str> = snapshot.range(PREFIX, None).map(|it| it.key().as_str()).collect();
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
                let is_seen = |it| matches!(it, Value::Stored(_));
                match (is_seen(before), is_seen(value)) {
                    (false, false) => {}
                    (false, true) => expected.push((revision, EventType::Added)),
                    (true, true) => expected.push((revision, EventType::Modified)),
                    (true, false) => expected.push((revision, EventType::Deleted)),
                }
            }
            collection.apply(events);
            check(&collection, &model);
            let mut got = Vec::new();
            while let Some(Step::Event(change)) = watcher.try_next() {
                got.push((change.revision.get(), change.event()));
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
    contents.put(entry.key.clone(), collection.read(&entry));
    collection.replace(contents, Revision::new(9));
    let old = [event(5, 1, Value::Stored(1)), event(8, 2, Value::Stored(1)), event(9, 1, Value::Nothing)];
    collection.apply(old.into_iter().map(|it| collection.prepare(it)).collect());
    check(&collection, &BTreeMap::from([(1, Value::Stored(2))]));
    assert_eq!(collection.snapshot().revision(), Revision::new(9));
    assert!(collection.watch(Revision::new(8), "").is_err());
    let mut watcher = collection.watch(Revision::new(9), "").unwrap();
    assert!(watcher.try_next().is_none());
}

#[test]
fn an_item_that_did_not_change_is_not_held_twice() {
    let collection = collection(CollectionSpec::new(PREFIX, false));
    let Event::Put(entry) = event(7, 1, Value::Stored(2)) else { unreachable!("a put was asked for") };
    collection.apply(vec![collection.prepare(Event::Put(entry.clone()))]);
    let known = collection.get(entry.key.as_str()).unwrap();
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
    assert_eq!(collection.len(), N);
}
