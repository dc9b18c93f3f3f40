//! The addresses of all API servers of a cluster, as far as it says them itself.
//!
//! # Guarantees
//! An answer names every server: kube-apiserver lists its address in the EndpointSlice of the Service `default/kubernetes`,
//! and holds a Lease of its own in `kube-system`. Where there are as many addresses as live Leases, each address is one
//! server. Where servers share an address, or say nothing, there is no answer.
//!
//! # Assumptions
//! A server renews its Lease every ten seconds for as long as it can write. One that has not for two minutes does not.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use meta::{Value, time};

use crate::api::Collection;
use crate::error::Error;

/// A Lease that is so much older than the latest one is of a server that is gone.
const GONE: SignedDuration = SignedDuration::from_mins(2);

/// All of them, such as `10.0.0.1:6443`, in order.
///
/// # Errors
/// Why that cannot be told.
pub async fn listed(client: &Client) -> Result<Vec<String>, String> {
    let slices = Collection::namespaced("discovery.k8s.io", "v1", "default", "endpointslices");
    let slices = all(client, &slices, "kubernetes.io/service-name=kubernetes").await;
    let leases = Collection::namespaced("coordination.k8s.io", "v1", "kube-system", "leases");
    let leases = all(client, &leases, "apiserver.kubernetes.io/identity=kube-apiserver").await;
    let (slices, leases) = (slices.map_err(|it| it.text())?, leases.map_err(|it| it.text())?);
    each(&slices, &leases).map(|it| it.into_iter().collect())
}

async fn all(client: &Client, collection: &Collection, labels: &str) -> Result<Vec<Value>, Error> {
    Ok(collection.list_where(client, "", labels, None).await?.open().0)
}

/// The whole decision. Pure.
fn each(slices: &[Value], leases: &[Value]) -> Result<BTreeSet<String>, String> {
    let addresses: BTreeSet<String> = slices.iter().flat_map(addresses).collect();
    let renewed: Vec<Timestamp> =
        leases.iter().filter_map(|it| time::parse_time(it.pointer("/spec/renewTime")?.as_str()?)).collect();
    let Some(latest) = renewed.iter().max().copied() else {
        return Err(
            "no API server has a Lease in kube-system, so that it is not known how many there are".to_owned()
        );
    };
    let n_live = renewed.iter().filter(|it| **it + GONE >= latest).count();
    if addresses.len() != n_live {
        return Err(format!(
            "{n_live} API servers hold a Lease, and the Service default/kubernetes lists {} addresses",
            addresses.len()
        ));
    }
    Ok(addresses)
}

/// Each address of a slice with each of its ports for HTTPS.
fn addresses(slice: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_secure = |it: &&Value| it["name"].as_str().is_none_or(|it| it == "https" || it.is_empty());
    let ports: Vec<u64> =
        list(&slice["ports"]).iter().filter(is_secure).filter_map(|it| it["port"].as_u64()).collect();
    let hosts = list(&slice["endpoints"]).iter().flat_map(|it| list(&it["addresses"])).collect::<Vec<_>>();
    let hosts = hosts
        .iter()
        .filter_map(Value::as_str)
        .map(|it| if it.contains(':') { format!("[{it}]") } else { it.to_owned() });
    hosts.flat_map(|host| ports.iter().map(move |port| format!("{host}:{port}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(addresses: &[&str]) -> Value {
        let endpoints: Vec<Value> = addresses.iter().map(|it| json!({"addresses": [it]})).collect();
        json!({"endpoints": endpoints, "ports": [{"name": "https", "port": 6443}]})
    }

    fn lease(renewed: &str) -> Value {
        json!({"spec": {"renewTime": format!("2026-11-16T{renewed}.000000Z")}})
    }

    #[test]
    fn each_address_must_be_one_server() {
        let check = |addresses: &[&str], leases: &[&str], expect: Result<&[&str], &str>| {
            let leases: Vec<Value> = leases.iter().map(|it| lease(it)).collect();
            let found = each(&[slice(addresses)], &leases);
            match expect {
                Ok(expect) => assert_eq!(found.unwrap().iter().collect::<Vec<_>>(), expect),
                Err(expect) => assert!(found.unwrap_err().contains(expect)),
            }
        };
        check(&["10.0.0.1"], &["12:00:00"], Ok(&["10.0.0.1:6443"]));
        check(&["10.0.0.2", "10.0.0.1"], &["12:00:00", "12:00:09"], Ok(&["10.0.0.1:6443", "10.0.0.2:6443"]));
        check(&["fd00::1"], &["12:00:00"], Ok(&["[fd00::1]:6443"]));
        // One that is gone does not count.
        check(&["10.0.0.1"], &["11:50:00", "12:00:00"], Ok(&["10.0.0.1:6443"]));
        // Behind one address there are two.
        check(&["10.0.0.1"], &["11:59:55", "12:00:00"], Err("2 API servers hold a Lease"));
        check(&["10.0.0.1"], &[], Err("no API server has a Lease"));
        check(&[], &["12:00:00"], Err("lists 0 addresses"));
    }
}
