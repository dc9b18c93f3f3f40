//! What is stored, read from the store of a cluster that is not ours, where somebody says where that is.
//!
//! Writes still go through the API; only the proof is better than a second pass. Deliberately not here: any store.

use futures_util::future::BoxFuture;
use meta::GroupResource;

use super::super::engine::{Class, Evidence, Failure, Look, Task, Trouble};

/// Reads what a cluster stores.
pub trait StoreReader: Send + Sync + 'static {
    /// Some objects of a resource behind a key; from the first one on if that is empty.
    fn read<'a>(
        &'a self,
        resource: &'a GroupResource,
        after: &'a str,
    ) -> BoxFuture<'a, Result<StoredPage, Trouble>>;

    /// Whether a namespace is stored there that has this uid.
    fn holds<'a>(&'a self, namespace: &'a str, uid: &'a str) -> BoxFuture<'a, Result<bool, Trouble>>;
}

/// Some stored objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredPage {
    /// Each by `namespace/name`, or the name, and how it is stored.
    pub objects: Vec<(String, Form)>,
    /// The last key, if there are more.
    pub next: Option<String>,
}

/// How an object is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// In this version, such as `example.com/v1`.
    Version(String),
    /// Nobody but the servers can tell.
    Encrypted,
    /// It does not say.
    Damaged,
}

/// What a page says about a task.
pub(super) fn judge(task: &Task, page: StoredPage) -> Result<Look, Trouble> {
    let mut look = Look {
        evidence: Evidence::StoreScan,
        objects: u64::try_from(page.objects.len()).unwrap_or(u64::MAX),
        left: 0,
        failures: Vec::new(),
        next: page.next,
        doubt: "",
    };
    for (object, form) in page.objects {
        match form {
            Form::Version(version) if version == task.version => {}
            Form::Version(_) => look.left += 1,
            Form::Encrypted => {
                return Err(Trouble::Never(format!(
                    "{object} is encrypted in etcd, where nobody can see its version: leave --verify-etcd-servers out, \
                     and the API servers are asked instead"
                )));
            }
            Form::Damaged => look.failures.push(Failure {
                class: Class::Undecodable,
                object,
                message: "what is stored does not say in which version it is".to_owned(),
            }),
        }
    }
    Ok(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            resource: GroupResource::new("example.com", "widgets"),
            version: "example.com/v2".to_owned(),
            epoch: 1,
            namespaces: Vec::new(),
            selector: String::new(),
            dry_run: false,
            batch: 10,
            at_once: 1,
        }
    }

    fn page(forms: &[Form]) -> StoredPage {
        let objects = forms.iter().enumerate().map(|(n, it)| (format!("default/w{n}"), it.clone()));
        StoredPage { objects: objects.collect(), next: None }
    }

    #[test]
    fn only_what_is_stored_as_wanted_is_proven() {
        let (new, old) = (Form::Version("example.com/v2".into()), Form::Version("example.com/v1".into()));
        let all = judge(&task(), page(&[new.clone(), new.clone()])).unwrap();
        assert_eq!((all.evidence, all.objects, all.left), (Evidence::StoreScan, 2, 0));
        let some = judge(&task(), page(&[new.clone(), old])).unwrap();
        assert_eq!((some.objects, some.left), (2, 1));
        let damaged = judge(&task(), page(&[Form::Damaged, new])).unwrap();
        assert_eq!(damaged.failures[0].object, "default/w0");
        let sealed = judge(&task(), page(&[Form::Encrypted])).unwrap_err().to_string();
        assert!(sealed.contains("default/w0 is encrypted"), "{sealed}");
    }
}
