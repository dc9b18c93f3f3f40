//! Where a webhook is: a URL or a service, and the authorities that vouch for it.

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Uri;
use serde_json::Value;

/// Ports of services that name none.
const HTTPS: u16 = 443;

/// A webhook to call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Where it is.
    pub address: Address,
    /// The authorities that may vouch for it (PEM); empty for those the machine trusts.
    pub ca_bundle: Bytes,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An `https` URL.
    Url(String),
    /// A service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
        /// The path to call.
        path: String,
    },
}

/// Why a client configuration names no webhook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Neither `url` nor `service`, or both.
    #[error("webhook configuration must have either service or URL")]
    NoAddress,
    /// Not a URL that can be called.
    #[error("unable to parse url: {0}")]
    Url(String),
    /// The bundle is not base64.
    #[error("unable to load root certificates: caBundle is not base64")]
    CaBundle,
}

impl Endpoint {
    /// Reads a `clientConfig`, as webhook configurations and custom resource definitions have it.
    pub fn of(client_config: &Value) -> Result<Self, EndpointError> {
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let ca_bundle = text(client_config, "caBundle").unwrap_or_default();
        let ca_bundle = STANDARD.decode(ca_bundle).map_err(|_| EndpointError::CaBundle)?;
        let service = client_config.get("service").filter(|it| it.is_object());
        let address = match (text(client_config, "url"), service) {
            (Some(url), None) => Address::Url(checked(url)?),
            (None, Some(service)) => Address::Service {
                namespace: text(service, "namespace").unwrap_or_default(),
                name: text(service, "name").unwrap_or_default(),
                port: service
                    .get("port")
                    .and_then(Value::as_u64)
                    .map_or(Some(HTTPS), |it| it.try_into().ok())
                    .ok_or_else(|| EndpointError::Url("the port is out of range".to_owned()))?,
                path: text(service, "path").unwrap_or_default(),
            },
            (None, None) | (Some(_), Some(_)) => return Err(EndpointError::NoAddress),
        };
        Ok(Self { address, ca_bundle: ca_bundle.into() })
    }

    /// The URL of one call, as it is requested and as failures name it.
    pub fn url(&self, timeout: Duration) -> String {
        let (base, query) = match &self.address {
            Address::Url(url) => {
                let url = url.split('#').next().unwrap_or_default();
                url.split_once('?').map_or((url.to_owned(), ""), |(base, query)| (base.to_owned(), query))
            }
            Address::Service { namespace, name, port, path } => {
                (format!("https://{name}.{namespace}.svc:{port}/{}", path.trim_start_matches('/')), "")
            }
        };
        let joint = if query.is_empty() { "" } else { "&" };
        format!("{base}?{query}{joint}timeout={}", go_duration(timeout))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Url(url) => f.write_str(url),
            Address::Service { namespace, name, port, path } => {
                write!(f, "https://{name}.{namespace}.svc:{port}/{}", path.trim_start_matches('/'))
            }
        }
    }
}

fn checked(url: String) -> Result<String, EndpointError> {
    let uri: Uri = url.parse().map_err(|it: http::uri::InvalidUri| EndpointError::Url(it.to_string()))?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) {
        return Err(EndpointError::Url(format!("{url} is not an https URL with a host")));
    }
    Ok(url)
}

/// `10s`, `1m0s`, `500ms`: as Go writes durations.
fn go_duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    let fraction = match duration.subsec_millis() {
        0 => String::new(),
        millis => format!(".{millis:03}").trim_end_matches('0').to_owned(),
    };
    if minutes == 0 { format!("{seconds}{fraction}s") } else { format!("{minutes}m{seconds}{fraction}s") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_named_as_upstream_names_them() {
        let check = |config: Value, url: &str| {
            assert_eq!(Endpoint::of(&config).unwrap().url(Duration::from_secs(5)), url);
        };
        check(json!({"url": "https://127.0.0.1:8443/a"}), "https://127.0.0.1:8443/a?timeout=5s");
        check(json!({"url": "https://hook.example"}), "https://hook.example?timeout=5s");
        check(
            json!({"service": {"namespace": "n", "name": "s", "path": "/p"}}),
            "https://s.n.svc:443/p?timeout=5s",
        );
        check(
            json!({"service": {"namespace": "n", "name": "s", "port": 8443}}),
            "https://s.n.svc:8443/?timeout=5s",
        );
    }

    #[test]
    fn configurations_without_one_address_are_refused() {
        let refused = |config: Value| Endpoint::of(&config).unwrap_err();
        assert_eq!(refused(json!({})), EndpointError::NoAddress);
        assert_eq!(refused(json!({"url": "https://a", "service": {"name": "s"}})), EndpointError::NoAddress);
        assert_eq!(refused(json!({"url": "https://a", "caBundle": "%"})), EndpointError::CaBundle);
        assert!(matches!(refused(json!({"url": "http://a"})), EndpointError::Url(_)));
        assert!(matches!(refused(json!({"service": {"name": "s", "port": 70000}})), EndpointError::Url(_)));
    }

    #[test]
    fn durations_read_as_go_writes_them() {
        let check = |millis: u64, text: &str| assert_eq!(go_duration(Duration::from_millis(millis)), text);
        check(500, "500ms");
        check(1500, "1.5s");
        check(30_000, "30s");
        check(60_000, "1m0s");
    }
}
