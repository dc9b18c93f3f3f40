//! Resources of a Pod as a whole, from what its containers say.
//!
//! The containers of a Pod run side by side, so their needs add up; init containers run one after the other before, so
//! the greediest counts, together with the sidecars (init containers that are restarted) started before it.

use std::collections::BTreeMap;

use meta::{Map, Value};
use schema::check::{canonical_quantity, quantity_nanos};

/// Fills in `spec.resources` of a Pod that has some of it.
pub(super) fn fill_pod_level(spec: &mut Map) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    let read = |field: &str| resources.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut limits, mut requests) = (read("limits"), read("requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    for (name, total) in totals(spec, "limits") {
        if is_huge_page(&name) && !requests.contains_key(&name) && !limits.contains_key(&name) {
            limits.insert(name, Value::from(total));
        }
    }
    if !limits.is_empty() {
        for (name, total) in totals(spec, "requests") {
            if matches!(name.as_str(), "cpu" | "memory") && !requests.contains_key(&name) {
                requests.insert(name, Value::from(total));
            }
        }
        for (name, limit) in &limits {
            if is_supported(name) && !requests.contains_key(name) {
                requests.insert(name.clone(), limit.clone());
            }
        }
    }
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    for (field, value) in [("limits", limits), ("requests", requests)] {
        if !value.is_empty() {
            resources.insert(field.to_owned(), Value::Object(value));
        }
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// An amount, and how the first who named it wrote it.
#[derive(Clone)]
struct Amount {
    nanos: i128,
    is_binary: bool,
}

type Amounts = BTreeMap<String, Amount>;

/// What all containers together need.
fn totals(spec: &Map, field: &str) -> BTreeMap<String, String> {
    let mut total = Amounts::new();
    for container in containers(spec, "containers") {
        add(&mut total, &amounts(container, field));
    }
    let (mut sidecars, mut before) = (Amounts::new(), Amounts::new());
    for container in containers(spec, "initContainers") {
        let mut own = amounts(container, field);
        if container.get("restartPolicy").is_some_and(|it| it == "Always") {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut before, &own);
    }
    raise(&mut total, &before);
    total.into_iter().filter_map(|(name, amount)| Some((name, written(&amount)?))).collect()
}

fn containers<'a>(spec: &'a Map, list: &str) -> impl Iterator<Item = &'a Map> {
    let items = spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_object)
}

fn amounts(container: &Map, field: &str) -> Amounts {
    let amounts = container.get("resources").and_then(|it| it.get(field)).and_then(Value::as_object);
    let amounts = amounts.into_iter().flatten().filter(|(name, _)| is_supported(name));
    amounts
        .filter_map(|(name, value)| {
            let text = value.as_str()?;
            let amount = Amount { nanos: quantity_nanos(text)?, is_binary: text.ends_with('i') };
            Some((name.clone(), amount))
        })
        .collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(sum) => sum.nanos = sum.nanos.saturating_add(amount.nanos),
            None => {
                total.insert(name.clone(), amount.clone());
            }
        }
    }
}

fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if total.get(name).is_none_or(|it| it.nanos < amount.nanos) {
            total.insert(name.clone(), amount.clone());
        }
    }
}

fn written(amount: &Amount) -> Option<String> {
    const NANOS: i128 = 1_000_000_000;
    let plain = if amount.is_binary && amount.nanos % (NANOS * 1024) == 0 {
        format!("{}Ki", amount.nanos / (NANOS * 1024))
    } else {
        format!("{}n", amount.nanos)
    };
    canonical_quantity(&plain).ok()
}
