//! ClusterTrustBundles: the name says whose authorities they are, so that nobody takes another signer's place.

use meta::{FieldError, FieldErrors, Value, name, object};

use super::value::text;

/// What is wrong with the name of a bundle.
pub(super) fn validate(bundle: &Value, errors: &mut FieldErrors) {
    let (own, signer) = (object::name(bundle), text(bundle, &["spec", "signerName"]));
    let rest = if signer.is_empty() {
        if own.contains(':') {
            let detail = "ClusterTrustBundle without signer name must not have \":\" in its name";
            errors.push(FieldError::invalid("metadata.name", own, detail));
            return;
        }
        own
    } else {
        let prefix = format!("{}:", signer.replace('/', ":"));
        let Some(rest) = own.strip_prefix(&prefix) else {
            let detail =
                format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
            errors.push(FieldError::invalid("metadata.name", own, detail));
            return;
        };
        rest
    };
    for detail in name::dns_subdomain(rest) {
        errors.push(FieldError::invalid("metadata.name", own, detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const BUNDLES: &str = "certificates.k8s.io/v1beta1/clustertrustbundles";

    #[test]
    fn the_name_says_whose_it_is_and_the_signer_stays() {
        let bundle = |name: &str, signer: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": "x"}});
        expect_new(BUNDLES, &bundle("a.example:s:one", "a.example/s"), &[]);
        expect_new(BUNDLES, &bundle("one", ""), &[]);
        expect_new(
            BUNDLES,
            &bundle("b.example:s:one", "a.example/s"),
            &[
                "Invalid metadata.name: Invalid value: \"b.example:s:one\": ClusterTrustBundle for signerName a.example/s must \
               be named with prefix a.example:s:",
            ],
        );
        expect_new(
            BUNDLES,
            &bundle("a:b", ""),
            &[
                "Invalid metadata.name: Invalid value: \"a:b\": ClusterTrustBundle without signer name must not have \":\" in \
               its name",
            ],
        );
        expect_changed(
            BUNDLES,
            &json!({"spec": {"signerName": "b.example/s"}}),
            &json!({"spec": {"signerName": "a.example/s"}}),
            &["Invalid spec.signerName: Invalid value: \"b.example/s\": field is immutable"],
        );
    }
}
