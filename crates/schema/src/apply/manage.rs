//! The entry points: what a write does to `metadata.managedFields`, and what applying a configuration makes of an
//! object. The steps and their order are upstream's.

use super::{
    conflict::ApplyError,
    engine::{Engine, TypeRef, Versioned, Versions},
    last_applied,
    managers::{self, ManagerId, Managers, Operation, Owned},
    remove,
    set::FieldSet,
    shape::Ty,
    typed,
};
use crate::{
    Map, Value,
    model::{Schema, TypeId},
    prune,
};

/// Who owns what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// One write.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The versions of the kind.
    pub versions: &'a dyn Versions,
    /// The version that the client writes in.
    pub api_version: &'a str,
    /// The subresource that it writes through; empty for the object itself.
    pub subresource: &'a str,
    /// Who it says it is; empty if it does not say.
    pub manager: &'a str,
    /// What this write cannot change, and so does not own: `status`, unless it is a write of the status.
    pub ignored: &'a FieldSet,
    /// The time, as it stands in objects.
    pub now: &'a str,
}

/// Says in `new` who owns what, after `live` becomes `new` by anything but apply. Nobody is ever in the way.
///
/// Both are in the request's version. Of an object that is created, `live` is [`blank`]. What `new` says about
/// ownership counts only if it can be read, and if this is not a write of a subresource.
pub fn update(request: &Request<'_>, live: &Value, new: &mut Value) -> Result<(), ApplyError> {
    let owned = owners_before(request, live, new);
    take_managed_fields(new);
    // An object whose owners are not tracked is only tracked from the first apply on.
    let is_tracked = !owned.is_empty() || meta::object::uid(live).is_empty();
    let owned = if is_tracked { update_managers(request, live, new, owned, request.manager)? } else { owned };
    put_managed_fields(new, &owned);
    Ok(())
}

/// The object after a configuration is applied, managedFields included.
///
/// `live` is in the request's version; it is [`blank`] if there is no object yet.
pub fn apply(request: &Request<'_>, live: &Value, config: &Value, force: bool) -> Result<Value, ApplyError> {
    let mut owned = managers::decode(managed_fields(live))
        .map_err(|it| ApplyError::Failed(format!("failed to decode managed fields: {it}")))?;
    check_config(request, live, config)?;
    if owned.is_empty() {
        let TypeRef { schema, ty } = type_of(request)?;
        let nothing = blank(schema, ty);
        owned = update_managers(request, &nothing, live, owned, BEFORE_FIRST_APPLY)?;
    }
    let (mut object, owned) = match apply_managers(request, live, config, owned.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if request.manager == last_applied::MANAGER => {
            let Some(allowed) = last_applied::fields(&engine(request), live, request.api_version) else {
                return Err(ApplyError::Conflicts(conflicts));
            };
            let rest: Vec<_> = conflicts.into_iter().filter(|it| !allowed.contains(&it.path)).collect();
            if !rest.is_empty() {
                return Err(ApplyError::Conflicts(rest));
            }
            apply_managers(request, live, config, owned, true)?
        }
        result => result?,
    };
    if request.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, config);
    }
    put_managed_fields(&mut object, &owned);
    Ok(object)
}

/// If nothing but the times of managers changed, not even those: a repeated write writes nothing.
pub fn keep_times(new: &mut Value, old: &Value) {
    let without_times = |object: &Value| {
        let mut entries = managed_fields(object).cloned().unwrap_or_default();
        for entry in entries.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries
    };
    if managed_fields(new) == managed_fields(old) || without_times(new) != without_times(old) {
        return;
    }
    let (mine, theirs) = (take_managed_fields(new), managed_fields(old).cloned());
    let mut rest = old.clone();
    take_managed_fields(&mut rest);
    let kept = if *new == rest { theirs } else { mine };
    if let Some(entries) = kept {
        meta::object::metadata_mut(new).insert("managedFields".to_owned(), entries);
    }
}

/// Puts managedFields into upstream's order, after somebody changed their times.
pub fn sort_entries(object: &mut Value) {
    if let Ok(owned) = managers::decode(managed_fields(object)) {
        put_managed_fields(object, &owned);
    }
}

/// An object of this type in which nothing is set: what is always written is there, and empty.
pub fn blank(schema: &Schema, ty: TypeId) -> Value {
    let mut nothing = Value::Object(Map::new());
    prune::fill_always(schema, ty, &mut nothing);
    nothing
}

/// Ownership before the write: what the client says, if it says it well, else what is in the object.
fn owners_before(request: &Request<'_>, live: &Value, new: &Value) -> Managers {
    let before = || managers::decode(managed_fields(live)).unwrap_or_default();
    if !request.subresource.is_empty() {
        return before();
    }
    if managers::is_reset(managed_fields(new)) {
        return Managers::new();
    }
    match managers::decode(managed_fields(new)) {
        Ok(owned) if !owned.is_empty() => owned,
        Ok(_) | Err(_) => before(),
    }
}

fn update_managers(
    request: &Request<'_>,
    live: &Value,
    new: &Value,
    owned: Managers,
    manager: &str,
) -> Result<Managers, ApplyError> {
    let id = ManagerId::new(manager, Operation::Update, request.api_version, request.subresource);
    // Nobody is left out: what the manager itself wrote before is compared as well, and joined afterwards.
    let nobody = ManagerId { manager: String::new(), subresource: "\0".to_owned(), ..id.clone() };
    let TypeRef { schema, ty } = type_of(request)?;
    let (mut live, mut new) = (live.clone(), new.clone());
    // Who sets a part of what is always written does not own the whole.
    prune::fill_always(schema, ty, &mut live);
    prune::fill_always(schema, ty, &mut new);
    let live = Versioned::new(&live, request.api_version);
    let changed = Versioned::new(&new, request.api_version);
    let (mut owned, set) = engine(request).update(&live, &changed, owned, &nobody)?;
    let set = set.difference(&system_fields());
    if !set.is_empty() {
        let set = match owned.get(&id) {
            Some(before) => before.set.union(&set),
            None => set,
        };
        let api_version = request.api_version.to_owned();
        owned.insert(id, Owned { set, api_version, time: Some(request.now.to_owned()) });
    }
    managers::cap_updaters(&mut owned);
    Ok(owned)
}

fn apply_managers(
    request: &Request<'_>,
    live: &Value,
    config: &Value,
    owned: Managers,
    force: bool,
) -> Result<(Value, Managers), ApplyError> {
    let id = ManagerId::new(request.manager, Operation::Apply, request.api_version, request.subresource);
    let state = Versioned::new(live, request.api_version);
    let (mut object, mut owned) = engine(request).apply(&state, config, owned, &id, force)?;
    if let Some(own) = owned.get_mut(&id) {
        own.set = own.set.difference(&system_fields());
        if object != *live {
            own.time = Some(request.now.to_owned());
        }
    }
    owned.retain(|_, it| !it.set.is_empty());
    let TypeRef { schema, ty } = type_of(request)?;
    remove::drop_nulls(schema, Ty::Declared(ty), &mut object, Some(live));
    Ok((object, owned))
}

fn check_config(request: &Request<'_>, live: &Value, config: &Value) -> Result<(), ApplyError> {
    if !config.is_object() {
        let kind = crate::go_text::type_name(config);
        return Err(ApplyError::BadRequest(format!(
            "error decoding YAML: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )));
    }
    let own_kind = Some(meta::object::kind(live)).filter(|it| !it.is_empty());
    let is_kind = own_kind.is_none_or(|it| it == meta::object::kind(config));
    if meta::object::api_version(config) != request.api_version || !is_kind {
        return Err(ApplyError::BadRequest(format!("invalid object type: {}", describe_kind(config))));
    }
    if managed_fields(config).is_some_and(|it| !it.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let TypeRef { schema, ty } = type_of(request)?;
    let ty = Ty::Declared(ty);
    refuse("patch", config, &typed::complaints(schema, ty, config))?;
    refuse("live", live, &typed::live_complaints(schema, ty, live))
}

fn refuse(which: &str, object: &Value, complaints: &[String]) -> Result<(), ApplyError> {
    if complaints.is_empty() {
        return Ok(());
    }
    Err(ApplyError::Failed(format!(
        "failed to create typed {which} object ({}/{}; {}): {}",
        meta::object::namespace(object),
        meta::object::name(object),
        describe_kind(object),
        typed::join(complaints)
    )))
}

/// `apps/v1, Kind=Deployment`
fn describe_kind(object: &Value) -> String {
    let api_version = meta::object::api_version(object);
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", meta::object::kind(object))
}

/// What the server decides belongs to nobody.
fn system_fields() -> FieldSet {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

fn engine<'a>(request: &Request<'a>) -> Engine<'a> {
    Engine { versions: request.versions, ignored: request.ignored }
}

fn type_of<'a>(request: &Request<'a>) -> Result<TypeRef<'a>, ApplyError> {
    request
        .versions
        .type_of(request.api_version)
        .ok_or_else(|| ApplyError::Failed(format!("no type found for version {}", request.api_version)))
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed_fields(object: &mut Value, owned: &Managers) {
    take_managed_fields(object);
    if let Some(entries) = managers::encode(owned) {
        meta::object::metadata_mut(object).insert("managedFields".to_owned(), entries);
    }
}
