//! Endpoints, EndpointSlices and Services: addresses that would lead a caller to itself or to its own link, and what is no
//! address. The server itself calls webhooks there.

use std::net::IpAddr;

use meta::{FieldError, FieldErrors, Value};

use super::value::{items, text};

pub(super) fn validate(resource: &str, object: &Value, errors: &mut FieldErrors) {
    match resource {
        "endpoints" => {
            for (n, subset) in items(object, &["subsets"]).iter().enumerate() {
                for part in ["addresses", "notReadyAddresses"] {
                    for (m, address) in items(subset, &[part]).iter().enumerate() {
                        check(text(address, &["ip"]), format!("subsets[{n}].{part}[{m}].ip"), errors);
                    }
                }
            }
        }
        "endpointslices" if text(object, &["addressType"]) != "FQDN" => {
            for (n, endpoint) in items(object, &["endpoints"]).iter().enumerate() {
                for (m, address) in items(endpoint, &["addresses"]).iter().enumerate() {
                    let field = format!("endpoints[{n}].addresses[{m}]");
                    check(address.as_str().unwrap_or_default(), field, errors);
                }
            }
        }
        _ => {}
    }
}

/// What is kept of an old object is not looked at again.
pub(super) fn validate_changed(resource: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    let part = if resource == "endpoints" { "subsets" } else { "endpoints" };
    if new.get(part) != old.get(part) {
        validate(resource, new, errors);
    }
}

/// The addresses of a Service. Upstream takes only those of the range that it gives out.
pub(super) fn validate_service(service: &Value, errors: &mut FieldErrors) {
    let (first, all) = (text(service, &["spec", "clusterIP"]), items(service, &["spec", "clusterIPs"]));
    let mut addresses: Vec<&str> = all.iter().map(|it| it.as_str().unwrap_or_default()).collect();
    if addresses.first().is_none_or(|it| *it != first) {
        addresses.insert(0, first);
    }
    for (n, address) in addresses.into_iter().enumerate().filter(|it| !matches!(it.1, "" | "None")) {
        check(address, format!("spec.clusterIPs[{n}]"), errors);
    }
}

/// What is kept of an old one is not looked at again.
pub(super) fn validate_changed_service(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let addresses = |it: &Value| {
        let spec = it.get("spec").unwrap_or(&Value::Null);
        (spec.get("clusterIP").cloned(), spec.get("clusterIPs").cloned())
    };
    if addresses(new) != addresses(old) {
        validate_service(new, errors);
    }
}

fn check(address: &str, field: String, errors: &mut FieldErrors) {
    let Ok(ip) = address.parse::<IpAddr>() else {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(field, address, detail));
        return;
    };
    if let Err(detail) = check_leads_elsewhere(ip) {
        errors.push(FieldError::invalid(field, address, detail));
    }
}

/// Whether an address leads neither to whoever calls it nor to their own link; else why not, in upstream's words.
pub fn check_leads_elsewhere(ip: IpAddr) -> Result<(), &'static str> {
    // An IPv4 address in IPv6 clothes leads to the same place.
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    let is_link_local_multicast = match ip {
        IpAddr::V4(it) => it.octets()[..3] == [224, 0, 0],
        IpAddr::V6(it) => it.segments()[0] & 0xff0f == 0xff02,
    };
    if ip.is_unspecified() {
        Err("may not be unspecified (0.0.0.0 or ::)")
    } else if ip.is_loopback() {
        Err("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    } else if is_link_local {
        Err("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    } else if is_link_local_multicast {
        Err("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const ENDPOINTS: &str = "v1/endpoints";
    const SLICES: &str = "discovery.k8s.io/v1/endpointslices";

    #[test]
    fn addresses_that_lead_back_are_refused() {
        let subsets = |part: &str, ip: &str| json!({"subsets": [{part: [{"ip": "192.0.2.1"}, {"ip": ip}]}]});
        for (ip, why) in [
            ("0.0.0.0", "may not be unspecified (0.0.0.0 or ::)"),
            ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("127.9.9.9", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("::ffff:127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("169.254.169.254", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("224.0.0.7", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
            ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ] {
            for part in ["addresses", "notReadyAddresses"] {
                let line = format!("Invalid subsets[0].{part}[1].ip: Invalid value: {ip:?}: {why}");
                expect_new(ENDPOINTS, &subsets(part, ip), &[&line]);
                expect_changed(ENDPOINTS, &subsets(part, ip), &json!({}), &[&line]);
                expect_changed(ENDPOINTS, &subsets(part, ip), &subsets(part, ip), &[]);
            }
            let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1", ip]}]});
            let line = format!("Invalid endpoints[0].addresses[1]: Invalid value: {ip:?}: {why}");
            expect_new(SLICES, &slice, &[&line]);
            let named = json!({"addressType": "FQDN", "endpoints": [{"addresses": [ip]}]});
            expect_new(SLICES, &named, &[]);
        }
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        for ip in ["", "localhost", "127.1", "2130706433", "metadata.internal", "10.0.0.1:80", "fe80::1%eth0"]
        {
            for part in ["addresses", "notReadyAddresses"] {
                let line = format!("Invalid subsets[0].{part}[1].ip: Invalid value: {ip:?}: {why}");
                expect_new(ENDPOINTS, &subsets(part, ip), &[&line]);
            }
            let slice = json!({"addressType": "IPv6", "endpoints": [{"addresses": [ip]}]});
            let line = format!("Invalid endpoints[0].addresses[0]: Invalid value: {ip:?}: {why}");
            expect_new(SLICES, &slice, &[&line]);
        }
        let named = json!({"addressType": "FQDN", "endpoints": [{"addresses": ["example.com"]}]});
        expect_new(SLICES, &named, &[]);
        expect_new(ENDPOINTS, &subsets("addresses", "10.0.0.1"), &[]);
        expect_new(ENDPOINTS, &subsets("addresses", "2001:db8::1"), &[]);
    }

    #[test]
    fn services_have_no_address_that_leads_back() {
        const SERVICES: &str = "v1/services";
        let service = |fields: serde_json::Value| {
            let mut spec = json!({"type": "ClusterIP", "sessionAffinity": "None",
                "ports": [{"port": 443, "protocol": "TCP"}]});
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({"spec": spec})
        };
        let loopback = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        let line = |n: usize, ip: &str, why: &str| {
            format!("Invalid spec.clusterIPs[{n}]: Invalid value: {ip:?}: {why}")
        };
        let own = service(json!({"clusterIP": "127.0.0.1"}));
        expect_new(SERVICES, &own, &[&line(0, "127.0.0.1", loopback)]);
        expect_changed(SERVICES, &own, &service(json!({})), &[&line(0, "127.0.0.1", loopback)]);
        expect_changed(SERVICES, &own, &own, &[]);
        let second = service(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "::1"]}));
        expect_new(SERVICES, &second, &[&line(1, "::1", loopback)]);
        let named = service(json!({"clusterIP": "localhost"}));
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        expect_new(SERVICES, &named, &[&line(0, "localhost", why)]);
        for fields in [
            json!({}),
            json!({"clusterIP": ""}),
            json!({"clusterIP": "None", "clusterIPs": ["None"]}),
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
        ] {
            expect_new(SERVICES, &service(fields), &[]);
        }
    }
}
