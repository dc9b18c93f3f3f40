//! Facts on which a controller's removal or finalizer write rests, stated so that the server can require them in the
//! same store transaction.
//!
//! **Why.** A controller decides on what it read a moment ago. It may have been paused, cut off or slow since then, and
//! the namespace, definition or owner that it read about may have been made anew under the same name. Leases and clocks
//! cannot exclude that; a requirement of the transaction can.
//!
//! **Form.** A controller sends the facts with its request in the header [`HEADER`]. They only make a request stricter.
//! A server that does not know the header ignores it, as a stock kube-apiserver does.
//!
//! Deliberately not here: how a fact becomes a requirement (`registry/grounds.rs`).

use serde::{Deserialize, Serialize};

/// The request header that carries the facts, as JSON.
pub const HEADER: &str = "convoy-grounds";

/// A request carries at most this many facts: a store bounds the requirements of a transaction.
pub const MAX_FACTS: usize = 16;

/// The cause in a 409 by which programs recognise that a fact does not hold.
pub const REASON: &str = "GroundsNotMet";

/// The finalizer by which a namespace waits for its contents, among `spec.finalizers`.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Where an object is, or was.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Place {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace; empty for cluster-scoped resources.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// One fact about one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fact {
    /// The object with this uid is there, is being deleted, and still waits for `finalizer`.
    Deleting {
        /// Where it is.
        object: Place,
        /// Which of all objects that ever had this name it is.
        uid: String,
        /// One of `metadata.finalizers` or, of a namespace, of `spec.finalizers`.
        finalizer: String,
    },
    /// The object with this uid is not there: nothing has its name, or another object has.
    Gone {
        /// Where it was seen or, with `kind`, where objects of that kind are.
        object: Place,
        /// Its uid; empty if nothing at all may have the name.
        uid: String,
        /// Set if the object was never seen there and only its kind is known: the resource must have this kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
    },
    /// The Lease is held by `holder`, in this term.
    Leads {
        /// The Lease's namespace.
        namespace: String,
        /// The Lease's name.
        name: String,
        /// `spec.holderIdentity`
        holder: String,
        /// `spec.leaseTransitions`, which grows whenever somebody else takes the Lease.
        transitions: i64,
    },
}

impl Fact {
    /// The object that the fact is about.
    pub fn place(&self) -> Place {
        match self {
            Self::Deleting { object, .. } | Self::Gone { object, .. } => object.clone(),
            Self::Leads { namespace, name, .. } => Place {
                group: "coordination.k8s.io".to_owned(),
                resource: "leases".to_owned(),
                namespace: namespace.clone(),
                name: name.clone(),
            },
        }
    }

    /// The fact that a namespace is being emptied.
    pub fn namespace_ends(name: &str, uid: &str) -> Self {
        let (group, resource, namespace) = (String::new(), "namespaces".to_owned(), String::new());
        let object = Place { group, resource, namespace, name: name.to_owned() };
        Self::Deleting { object, uid: uid.to_owned(), finalizer: NAMESPACE_FINALIZER.to_owned() }
    }
}

/// The facts that justify a write, all of which must hold when it is committed.
///
/// There is no default: whoever removes something says why. [`Grounds::asked_for`] is for what somebody asked for by
/// this very request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grounds(Vec<Fact>);

impl Grounds {
    /// The write was asked for; nothing but the object's own state is required.
    pub const fn asked_for() -> Self {
        Self(Vec::new())
    }

    /// The write is right because of these facts.
    pub fn because(facts: impl IntoIterator<Item = Fact>) -> Self {
        Self(facts.into_iter().collect())
    }

    /// The same with more facts.
    #[must_use]
    pub fn and(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        self.0.extend(facts);
        self
    }

    /// All facts.
    pub fn facts(&self) -> &[Fact] {
        &self.0
    }

    /// The value of the header, in ASCII; `None` if there is nothing to say.
    pub fn to_header(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let text = serde_json::to_string(self).expect("facts must serialize");
        let mut header = String::with_capacity(text.len());
        for letter in text.chars() {
            if letter.is_ascii() {
                header.push(letter);
            } else {
                letter
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|it| header.push_str(&format!("\\u{it:04x}")));
            }
        }
        Some(header)
    }

    /// Reads the value of the header, or says what is wrong with it.
    pub fn from_header(value: &[u8]) -> Result<Self, String> {
        let grounds: Self = serde_json::from_slice(value).map_err(|it| it.to_string())?;
        if grounds.0.len() > MAX_FACTS {
            return Err(format!("there are {} facts, at most {MAX_FACTS} are allowed", grounds.0.len()));
        }
        let is_segment = |it: &str| !it.is_empty() && !it.contains('/');
        let is_whole = |it: &Place| {
            is_segment(&it.resource)
                && is_segment(&it.name)
                && !it.namespace.contains('/')
                && !it.group.contains('/')
        };
        match grounds.0.iter().map(Fact::place).find(|it| !is_whole(it)) {
            Some(place) => Err(format!("{place:?} is not the place of an object")),
            None => Ok(grounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place {
            group: "example.org".into(),
            resource: "widgets".into(),
            namespace: "a".into(),
            name: name.into(),
        }
    }

    #[test]
    fn facts_survive_the_header() {
        let grounds = Grounds::because([
            Fact::namespace_ends("a", "u-1"),
            Fact::Gone { object: place("x"), uid: "u-2".into(), kind: None },
            Fact::Gone { object: place("ÿ😀"), uid: "u-3".into(), kind: Some("Widget".into()) },
            Fact::Leads {
                namespace: "kube-system".into(),
                name: "l".into(),
                holder: "me".into(),
                transitions: 3,
            },
        ]);
        let header = grounds.to_header().unwrap();
        assert!(header.is_ascii(), "{header}");
        assert_eq!(Grounds::from_header(header.as_bytes()), Ok(grounds));
        assert_eq!(Grounds::asked_for().to_header(), None);
    }

    #[test]
    fn what_is_no_fact_is_refused() {
        let refused = [
            "",
            "{}",
            r#"[{"fact": "hearsay"}]"#,
            r#"[{"fact": "gone", "object": {"resource": "pods", "name": ""}, "uid": "u"}]"#,
            r#"[{"fact": "gone", "object": {"resource": "pods", "name": "a/b"}, "uid": "u"}]"#,
            r#"[{"fact": "gone", "object": {"resource": "pods", "name": "a"}, "uid": "u", "maybe": true}]"#,
        ];
        for text in refused {
            assert!(Grounds::from_header(text.as_bytes()).is_err(), "{text}");
        }
        let many = Grounds::because((0..=MAX_FACTS).map(|it| Fact::namespace_ends("a", &it.to_string())));
        assert!(Grounds::from_header(many.to_header().unwrap().as_bytes()).is_err());
    }
}
