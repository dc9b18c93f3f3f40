//! What clients did and were told, as they note it; [`super::judge`] reads it when a round is over.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::history::{
    linearizable::Op,
    watch::{Object, Written},
};
use tokio::time::Instant;

/// The annotation that holds what was written last.
pub const VALUE: &str = "robustness/value";

/// A kind whose objects are made, changed and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub collection: &'static str,
    /// Where its objects are kept.
    pub prefix: &'static str,
    api_version: &'static str,
    kind: &'static str,
    rest: &'static str,
}

/// How many kinds there are in a run.
pub const N_KINDS: usize = 3;

/// One that is stored the same in all releases, one that is not, and one whose storage version is moved by people.
pub const KINDS: [Kind; N_KINDS] = [MAPS, CLASSES, WIDGETS];

/// The same for runs that begin at 1.33, which does not serve device classes.
pub const SINCE_33: [Kind; N_KINDS] = [MAPS, RANGES, WIDGETS];

const MAPS: Kind = Kind {
    name: "configmaps",
    collection: "/api/v1/namespaces/default/configmaps",
    prefix: "/registry/configmaps/default/",
    api_version: "v1",
    kind: "ConfigMap",
    rest: "{}",
};

/// Stored as v1beta2 by 1.34, as v1 after it.
const CLASSES: Kind = Kind {
    name: "deviceclasses",
    collection: "/apis/resource.k8s.io/v1/deviceclasses",
    prefix: "/registry/deviceclasses/",
    api_version: "resource.k8s.io/v1",
    kind: "DeviceClass",
    rest: r#"{"spec": {}}"#,
};

/// Stored as v1beta1 by 1.33, as v1 after it.
const RANGES: Kind = Kind {
    name: "servicecidrs",
    collection: "/apis/networking.k8s.io/v1/servicecidrs",
    prefix: "/registry/servicecidrs/",
    api_version: "networking.k8s.io/v1",
    kind: "ServiceCIDR",
    rest: r#"{"spec": {"cidrs": ["10.96.0.0/24"]}}"#,
};

const WIDGETS: Kind = Kind {
    name: "widgets",
    collection: "/apis/example.com/v1/namespaces/default/widgets",
    prefix: "/registry/example.com/widgets/default/",
    api_version: "example.com/v1",
    kind: "Widget",
    rest: r#"{"spec": {"n": 1}}"#,
};

impl Kind {
    pub fn object(&self, name: &str, value: &str) -> Value {
        let mut object: Value = serde_json::from_str(self.rest).unwrap();
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": name, "annotations": {VALUE: value}});
        object
    }
}

/// Name, and what was written last; nothing for objects of others.
pub fn read(object: &Value) -> Option<(String, Object)> {
    let value = object["metadata"]["annotations"][VALUE].as_str()?.to_owned();
    let name = object["metadata"]["name"].as_str()?.to_owned();
    Some((name, Object { revision: crate::fixture::revision(object), value, label: String::new() }))
}

/// What is noted.
#[derive(Debug)]
pub struct Ledger {
    start: Instant,
    /// What is written.
    pub kinds: [Kind; N_KINDS],
    pub books: Mutex<Books>,
}

#[derive(Debug, Default)]
pub struct Books {
    /// By number of the kind and name of the object.
    pub ops: BTreeMap<(usize, String), Vec<Op>>,
    /// By number of the kind.
    pub written: [Written; N_KINDS],
    /// By client and what it did.
    pub counts: BTreeMap<(&'static str, &'static str), u64>,
    /// By status code; 0 for none.
    pub codes: BTreeMap<u16, u64>,
    pub denials: Vec<Denial>,
    /// What must not happen, as clients saw it.
    pub faults: Vec<String>,
}

/// Somebody was told that a resource is not there, between these revisions of the store.
#[derive(Debug)]
pub struct Denial {
    pub from: u64,
    pub to: u64,
    pub text: String,
}

impl Ledger {
    pub fn new(kinds: [Kind; N_KINDS]) -> Self {
        Self { start: Instant::now(), kinds, books: Mutex::default() }
    }

    /// Microseconds since the beginning.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap()
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn count(&self, who: &'static str, what: &'static str) {
        *self.books.lock().counts.entry((who, what)).or_default() += 1;
    }

    pub fn fault(&self, text: String) {
        self.books.lock().faults.push(text);
    }

    /// What was asked in the last round is judged; what was written stays known.
    pub fn next_round(&self) {
        let mut books = self.books.lock();
        books.ops.clear();
        books.denials.clear();
        for written in &mut books.written {
            written.acknowledged.clear();
        }
    }
}
