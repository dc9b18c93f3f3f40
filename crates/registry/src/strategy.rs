//! How kinds differ: a table of small facts, and the few kinds that need code when they are written.
//!
//! Deliberately not here: the steps that all kinds share; those are in `write` and `delete`.

mod job;
mod quality;
mod signing;

use base64::{Engine, engine::general_purpose::STANDARD};
use meta::{Map, Value, object};

use crate::custom::prepare;

/// What is special about a kind.
#[derive(Clone, Copy, Debug)]
pub struct Strategy {
    /// `metadata.generation` counts changes of the spec.
    pub has_generation: bool,
    /// A PUT without a resourceVersion overwrites.
    pub can_update_unconditionally: bool,
    /// A PUT of an object that is not there creates it.
    pub can_create_on_update: bool,
    /// A client may set `status` when it creates the object.
    pub keeps_status_on_create: bool,
    /// A DELETE answers with the object that is gone instead of a Status.
    pub returns_deleted: bool,
    /// Code of its own.
    pub special: Special,
}

/// The kinds with code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Nothing special.
    None,
    /// Has finalizers in its spec and a phase.
    Namespace,
    /// Is deleted gracefully once it runs on a node, and has a phase and a quality of service.
    Pod,
    /// Finds its Pods by labels that the server chooses.
    Job,
    /// Waits for a claim.
    PersistentVolume,
    /// Waits for a volume.
    PersistentVolumeClaim,
    /// `stringData` is written into `data`.
    Secret,
    /// A definition: it has a list of versions in which objects are stored, and waits for its objects.
    Definition,
    /// Says who asks for a certificate, and is approved and signed step by step.
    SigningRequest,
    /// A kind that a user defined.
    Custom,
}

impl Strategy {
    /// The strategy of a built-in kind.
    pub fn of(group: &str, resource: &str) -> Self {
        Self {
            has_generation: has_generation(group, resource),
            can_update_unconditionally: !needs_resource_version(group, resource),
            can_create_on_update: matches!(
                (group, resource),
                ("", "endpoints" | "events" | "limitranges")
                    | ("events.k8s.io", "events")
                    | ("coordination.k8s.io", "leases")
                    | ("rbac.authorization.k8s.io", _)
            ),
            returns_deleted: returns_deleted(group, resource),
            keeps_status_on_create: matches!((group, resource), ("", "nodes")),
            special: match (group, resource) {
                ("", "namespaces") => Special::Namespace,
                ("", "pods") => Special::Pod,
                ("", "persistentvolumes") => Special::PersistentVolume,
                ("", "persistentvolumeclaims") => Special::PersistentVolumeClaim,
                ("batch", "jobs") => Special::Job,
                ("", "secrets") => Special::Secret,
                ("certificates.k8s.io", "certificatesigningrequests") => Special::SigningRequest,
                ("apiextensions.k8s.io", "customresourcedefinitions") => Special::Definition,
                _ => Special::None,
            },
        }
    }

    /// The strategy of all kinds that users define.
    pub(crate) fn of_user() -> Self {
        Self {
            has_generation: true,
            can_update_unconditionally: false,
            can_create_on_update: false,
            keeps_status_on_create: false,
            returns_deleted: false,
            special: Special::Custom,
        }
    }

    /// Fills in what a new object of the kind always has.
    pub(crate) fn prepare_create(&self, object: &mut Value, has_status: bool) {
        if has_status && !self.keeps_status_on_create {
            object::as_map_mut(object).remove("status");
        }
        if self.has_generation {
            object::metadata_mut(object).insert("generation".to_owned(), Value::from(1));
        } else {
            object::metadata_mut(object).remove("generation");
        }
        match self.special {
            Special::None | Special::Job | Special::SigningRequest | Special::Custom => {}
            Special::Namespace => prepare_namespace(object),
            Special::Pod => {
                let quality = quality::of_pod(object);
                set_default(object, "status", "phase", "Pending");
                set_default(object, "status", "qosClass", quality);
            }
            Special::PersistentVolume => {
                let now = object::meta_text(object, "creationTimestamp").to_owned();
                set_default(object, "status", "phase", "Pending");
                set_default(object, "status", "lastPhaseTransitionTime", &now);
            }
            Special::PersistentVolumeClaim => set_default(object, "status", "phase", "Pending"),
            Special::Secret => fold_string_data(object),
            Special::Definition => {
                prepare::fill_in(object);
                prepare::note_storage(object);
            }
        }
    }

    /// Adds what the server makes up for a new object and no manager owns.
    pub(crate) fn complete_new(&self, object: &mut Value) {
        if self.special == Special::Job {
            job::select_own_pods(object);
        }
    }

    /// Notes who asked for a new object, in place of what the object says about that.
    pub(crate) fn note_requester(&self, object: &mut Value, requester: Option<Map>) {
        if self.special == Special::SigningRequest {
            signing::note_requester(object, requester);
        }
    }

    /// Takes from the old object what an update of the main resource cannot change.
    pub(crate) fn prepare_update(&self, new: &mut Value, old: &Value, has_status: bool) {
        if has_status {
            copy_field(new, old, "status");
        }
        match self.special {
            Special::Namespace => {
                let finalizers = old.get("spec").and_then(|it| it.get("finalizers")).cloned();
                if let Some(finalizers) = finalizers {
                    object::child_mut(object::as_map_mut(new), "spec")
                        .insert("finalizers".to_owned(), finalizers);
                }
                label_namespace(new);
            }
            Special::Secret => fold_string_data(new),
            Special::SigningRequest => copy_field(new, old, "spec"),
            Special::Definition => {
                prepare::fill_in(new);
                prepare::note_storage(new);
            }
            Special::None
            | Special::Pod
            | Special::Job
            | Special::PersistentVolume
            | Special::PersistentVolumeClaim
            | Special::Custom => {}
        }
        if self.has_generation {
            let generation = object::meta_number(old, "generation");
            let is_same = match self.special {
                // Without a status of its own, all fields of a custom object count.
                Special::Custom => is_same_but(new, old, &["metadata", "apiVersion", "kind"]),
                _ => is_same_but(new, old, &["metadata", "status", "apiVersion", "kind"]),
            };
            let next = if is_same { generation } else { generation + 1 };
            object::metadata_mut(new).insert("generation".to_owned(), Value::from(next));
        }
    }

    /// Takes from the old object what a write of the status cannot change: everything but the status and parts of
    /// the metadata.
    pub(crate) fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let status = object::as_map_mut(new).remove("status");
        let metadata = object::as_map_mut(new).remove("metadata");
        *new = old.clone();
        let map = object::as_map_mut(new);
        match status {
            Some(status) => map.insert("status".to_owned(), status),
            None => map.remove("status"),
        };
        if self.special == Special::SigningRequest {
            signing::keep_decisions(new, old);
        }
        let Some(Value::Object(metadata)) = metadata else { return };
        let own = object::metadata_mut(new);
        let fields: &[&str] = match self.special {
            Special::Custom => &["managedFields", "resourceVersion"],
            _ => &["annotations", "finalizers", "labels", "managedFields", "resourceVersion"],
        };
        for field in fields.iter().copied() {
            match metadata.get(field) {
                Some(value) => own.insert(field.to_owned(), value.clone()),
                None => own.remove(field),
            };
        }
    }
}

fn has_generation(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("apps", "deployments" | "statefulsets" | "daemonsets" | "replicasets")
            | ("", "replicationcontrollers" | "podtemplates" | "pods")
            | ("batch", "jobs" | "cronjobs")
            | ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies")
            | ("policy", "poddisruptionbudgets")
            | ("discovery.k8s.io", "endpointslices")
            | ("scheduling.k8s.io", "priorityclasses" | "workloads" | "podgroups")
            | ("admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io" | "migration.k8s.io", _)
            | ("apiextensions.k8s.io", "customresourcedefinitions")
            | ("resource.k8s.io", "deviceclasses" | "resourceslices" | "devicetaintrules")
    )
}

fn returns_deleted(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        (
            "",
            "pods"
                | "podtemplates"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
                | "services"
                | "serviceaccounts"
        ) | (
            "storage.k8s.io",
            "csidrivers" | "csinodes" | "storageclasses" | "volumeattachments" | "volumeattributesclasses"
        ) | ("resource.k8s.io", _)
    )
}

fn needs_resource_version(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        (
            "coordination.k8s.io"
                | "admissionregistration.k8s.io"
                | "apiextensions.k8s.io"
                | "internal.apiserver.k8s.io"
                | "migration.k8s.io"
                | "storagemigration.k8s.io",
            _
        ) | ("node.k8s.io", "runtimeclasses")
            | ("storage.k8s.io", "csidrivers" | "csinodes" | "csistoragecapacities" | "volumeattachments")
            | ("apiregistration.k8s.io", "apiservices")
    )
}

fn prepare_namespace(object: &mut Value) {
    label_namespace(object);
    let map = object::as_map_mut(object);
    let spec = object::child_mut(map, "spec");
    let finalizers = spec.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|it| it == "kubernetes")
    {
        finalizers.push(Value::from("kubernetes"));
    }
    let mut status = Map::new();
    status.insert("phase".to_owned(), Value::from("Active"));
    map.insert("status".to_owned(), Value::Object(status));
}

fn label_namespace(object: &mut Value) {
    let name = object::name(object).to_owned();
    let labels = object::child_mut(object::metadata_mut(object), "labels");
    labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
}

/// `stringData` is only for writing: its values go into `data` in base64 and win there.
fn fold_string_data(object: &mut Value) {
    let map = object::as_map_mut(object);
    map.entry("type").or_insert_with(|| Value::from("Opaque"));
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    let data = object::child_mut(map, "data");
    for (key, text) in texts {
        if let Value::String(text) = text {
            data.insert(key, Value::from(STANDARD.encode(text)));
        }
    }
}

fn set_default(object: &mut Value, parent: &str, field: &str, value: &str) {
    let parent = object::child_mut(object::as_map_mut(object), parent);
    parent.entry(field).or_insert_with(|| Value::from(value));
}

fn copy_field(new: &mut Value, old: &Value, field: &str) {
    let map = object::as_map_mut(new);
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

fn is_same_but(new: &Value, old: &Value, ignored: &[&str]) -> bool {
    let fields = |it: &Value| -> Vec<(String, Value)> {
        let map = it.as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(field, _)| !ignored.contains(&field.as_str())).collect()
    };
    fields(new) == fields(old)
}
