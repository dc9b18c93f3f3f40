//! The columns of services and what stands before and behind them.

use std::collections::BTreeSet;

use meta::Value;
use serde_json::json;

use super::{AGE, Column, NAME, at, found, integer, items, labels, or_else, selector, shown, text, wide};

/// How many names or addresses stand in a cell.
const MAX_SHOWN: usize = 3;

pub(super) const SERVICES: &[Column] = &[
    NAME,
    text(
        "Type",
        "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. \"ExternalName\" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types",
        |it, _| at(it, &["spec", "type"]),
    ),
    text(
        "Cluster-IP",
        "clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
        |it, _| {
            let first = items(it, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
            json!(first.unwrap_or("<none>"))
        },
    ),
    text(
        "External-IP",
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system.",
        |it, _| json!(external(it)),
    ),
    text(
        "Port(s)",
        "The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
        |it, _| json!(service_ports(it)),
    ),
    AGE,
    wide(
        "Selector",
        "Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/",
        |it, _| json!(labels(found(it, &["spec", "selector"]), "<none>")),
    ),
];
pub(super) const ENDPOINTS: &[Column] = &[
    NAME,
    text(
        "Endpoints",
        "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to the IPs they share. A single address with multiple ports, some of which are ready and some of which are not (because they come from different containers) will result in the address being displayed in different subsets for the different ports. No address will appear in both Addresses and NotReadyAddresses in the same subset. Sets of addresses and ports that comprise a service.",
        |it, _| json!(addresses(it)),
    ),
    AGE,
];
pub(super) const ENDPOINT_SLICES: &[Column] = &[
    NAME,
    text(
        "AddressType",
        "addressType specifies the type of address carried by this EndpointSlice. All addresses in this slice must be the same type. This field is immutable after creation. The following address types are currently supported: * IPv4: Represents an IPv4 Address. * IPv6: Represents an IPv6 Address. * FQDN: Represents a Fully Qualified Domain Name.",
        |it, _| at(it, &["addressType"]),
    ),
    text(
        "Ports",
        "ports specifies the list of network ports exposed by each endpoint in this slice. Each port must have a unique name. When ports is empty, it indicates that there are no defined ports. When a port is defined with a nil port value, it indicates \"all ports\". Each slice may include a maximum of 100 ports.",
        |it, _| json!(slice_ports(it)),
    ),
    text(
        "Endpoints",
        "endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 endpoints.",
        |it, _| {
            let endpoints = items(it, &["endpoints"]);
            let all: Vec<&str> =
                endpoints.iter().flat_map(|it| items(it, &["addresses"])).filter_map(Value::as_str).collect();
            json!(first_few(&all, "<unset>"))
        },
    ),
    AGE,
];
pub(super) const INGRESSES: &[Column] = &[
    NAME,
    text(
        "Class",
        "The name of the IngressClass resource that should be used for additional configuration",
        |it, _| json!(or_else(shown(it, &["spec", "ingressClassName"]).to_owned(), "<none>")),
    ),
    text("Hosts", "Hosts that incoming requests are matched against before the ingress rule", |it, _| {
        json!(hosts(items(it, &["spec", "rules"])))
    }),
    text("Address", "Address is a list containing ingress points for the load-balancer", |it, _| {
        json!(balancer(it))
    }),
    text("Ports", "Ports of TLS configurations that open", |it, _| {
        json!(if items(it, &["spec", "tls"]).is_empty() { "80" } else { "80, 443" })
    }),
    AGE,
];
pub(super) const NETWORK_POLICIES: &[Column] = &[
    NAME,
    text(
        "Pod-Selector",
        "Selects the pods to which this NetworkPolicy object applies.  The array of ingress rules is applied to any pods selected by this field. Multiple network policies can select the same set of pods.  In this case, the ingress rules for each are combined additively. This field is NOT optional and follows standard label selector semantics. An empty podSelector matches all pods in this namespace.",
        |it, _| json!(selector(found(it, &["spec", "podSelector"]))),
    ),
    AGE,
];
pub(super) const INGRESS_CLASSES: &[Column] = &[
    NAME,
    text("Controller", "Controller that is responsible for handling this class", |it, _| {
        at(it, &["spec", "controller"])
    }),
    text("Parameters", "A reference to a resource with additional parameters", |it, _| {
        let Some(it) = found(it, &["spec", "parameters"]).filter(|it| it.is_object()) else {
            return json!("<none>");
        };
        let group = match found(it, &["apiGroup"]).and_then(Value::as_str) {
            Some(group) => format!(".{group}"),
            None => String::new(),
        };
        json!(format!("{}{group}/{}", shown(it, &["kind"]), shown(it, &["name"])))
    }),
    AGE,
];
pub(super) const SERVICE_CIDRS: &[Column] = &[
    NAME,
    text(
        "CIDRs",
        "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.",
        |it, _| {
            let blocks: Vec<&str> = items(it, &["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
            json!(blocks.join(","))
        },
    ),
    AGE,
];
pub(super) const IP_ADDRESSES: &[Column] = &[
    NAME,
    text(
        "ParentRef",
        "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent object.",
        |it, _| json!(parent(it)),
    ),
];

fn first_few(all: &[&str], nothing: &str) -> String {
    if all.is_empty() {
        return nothing.to_owned();
    }
    let mut text = all[..all.len().min(MAX_SHOWN)].join(",");
    if all.len() > MAX_SHOWN {
        text.push_str(&format!(" + {} more...", all.len() - MAX_SHOWN));
    }
    text
}

/// What an address belongs to: `services/ns/name`.
fn parent(address: &Value) -> String {
    let Some(parent) = found(address, &["spec", "parentRef"]).filter(|it| it.is_object()) else {
        return "<none>".to_owned();
    };
    let resource = match shown(parent, &["group"]) {
        "" => shown(parent, &["resource"]).to_lowercase(),
        group => format!("{}.{group}", shown(parent, &["resource"])).to_lowercase(),
    };
    let place = [resource.as_str(), shown(parent, &["namespace"]), shown(parent, &["name"])];
    let place: Vec<&str> = place.into_iter().filter(|it| !it.is_empty()).collect();
    place.join("/")
}

/// Where a load balancer can be reached.
fn balancer(object: &Value) -> String {
    let points = items(object, &["status", "loadBalancer", "ingress"]);
    let texts: BTreeSet<&str> = points
        .iter()
        .map(|it| match shown(it, &["ip"]) {
            "" => shown(it, &["hostname"]),
            ip => ip,
        })
        .filter(|it| !it.is_empty())
        .collect();
    texts.into_iter().collect::<Vec<_>>().join(",")
}

fn external(service: &Value) -> String {
    let given: Vec<&str> =
        items(service, &["spec", "externalIPs"]).iter().filter_map(Value::as_str).collect();
    match shown(service, &["spec", "type"]) {
        "ExternalName" => shown(service, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            let balancer = balancer(service);
            let balanced = (!balancer.is_empty()).then_some(balancer.as_str());
            let all: Vec<&str> = balanced.into_iter().chain(given).collect();
            or_else(all.join(","), "<pending>")
        }
        _ => or_else(given.join(","), "<none>"),
    }
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = items(service, &["spec", "ports"])
        .iter()
        .map(|it| {
            let (port, protocol) = (integer(it, &["port"]), shown(it, &["protocol"]));
            match integer(it, &["nodePort"]) {
                0 => format!("{port}/{protocol}"),
                node => format!("{port}:{node}/{protocol}"),
            }
        })
        .collect();
    or_else(ports.join(","), "<none>")
}

/// The hosts of the first rules. What is counted as "more" are rules, with hosts or not.
fn hosts(rules: &[Value]) -> String {
    let named = rules.iter().enumerate().filter(|(_, it)| !shown(it, &["host"]).is_empty());
    let named: Vec<(usize, &str)> = named.map(|(n, it)| (n, shown(it, &["host"]))).take(MAX_SHOWN).collect();
    let text = named.iter().map(|(_, host)| *host).collect::<Vec<_>>().join(",");
    match named.last() {
        None => "*".to_owned(),
        Some((last, _)) if named.len() == MAX_SHOWN && last + 1 < rules.len() => {
            format!("{text} + {} more...", rules.len() - MAX_SHOWN)
        }
        Some(_) => text,
    }
}

fn slice_ports(slice: &Value) -> String {
    let ports: Vec<String> = items(slice, &["ports"])
        .iter()
        .map(|it| match (found(it, &["port"]).and_then(Value::as_i64), found(it, &["name"])) {
            (Some(port), _) => port.to_string(),
            (None, Some(Value::String(name))) => name.clone(),
            (None, _) => "*".to_owned(),
        })
        .collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    first_few(&ports, "<unset>")
}

fn addresses(endpoints: &Value) -> String {
    let mut all: Vec<String> = Vec::new();
    for subset in items(endpoints, &["subsets"]) {
        let ips = items(subset, &["addresses"]).iter().map(|it| shown(it, &["ip"]));
        let ports = items(subset, &["ports"]);
        if ports.is_empty() {
            all.extend(ips.map(str::to_owned));
        } else {
            let hosts: Vec<&str> = ips.collect();
            for port in ports {
                all.extend(hosts.iter().map(|ip| {
                    let port = integer(port, &["port"]);
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }));
            }
        }
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    first_few(&all, "<none>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columns::testing::expect_cells;

    #[test]
    fn services_show_where_they_are_reached() {
        let service = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}});
        expect_cells(
            SERVICES,
            &service,
            &json!([
                "s",
                "LoadBalancer",
                "10.0.0.1",
                "<pending>",
                "80:30080/TCP,53/UDP",
                "<unknown>",
                "<none>"
            ]),
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let addresses: Vec<Value> = (1..6).map(|it| json!({"ip": format!("10.0.0.{it}")})).collect();
        let endpoints =
            json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 1}]}]});
        expect_cells(
            ENDPOINTS,
            &endpoints,
            &json!(["e", "10.0.0.1:1,10.0.0.2:1,10.0.0.3:1 + 2 more...", "<unknown>"]),
        );
        let ingress =
            json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": "a.example"}], "tls": [{}]}});
        expect_cells(INGRESSES, &ingress, &json!(["i", "<none>", "a.example", "", "80, 443", "<unknown>"]));
    }

    #[test]
    fn classes_and_addresses_name_what_they_refer_to() {
        let parameters = json!({"apiGroup": "g", "kind": "K", "name": "p"});
        let class =
            json!({"metadata": {"name": "c"}, "spec": {"controller": "x/y", "parameters": parameters}});
        expect_cells(INGRESS_CLASSES, &class, &json!(["c", "x/y", "K.g/p", "<unknown>"]));
        let parent = json!({"resource": "services", "namespace": "n", "name": "s"});
        let address = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}});
        expect_cells(IP_ADDRESSES, &address, &json!(["10.0.0.1", "services/n/s"]));
        assert_eq!(hosts(&[json!({"host": "a"}), json!({}), json!({"host": "b"})]), "a,b");
        let many: Vec<Value> = ["a", "b", "c", "", ""].iter().map(|it| json!({"host": it})).collect();
        assert_eq!(hosts(&many), "a,b,c + 2 more...");
    }
}
