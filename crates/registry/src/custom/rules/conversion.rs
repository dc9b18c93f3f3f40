//! How a definition says objects are converted.

use meta::{FieldError, FieldErrors, Value, name};

use super::{choice, text};

pub(super) fn check(crd: &Value, _old: Option<&Value>, errors: &mut FieldErrors) {
    let Some(conversion) = crd.pointer("/spec/conversion").filter(|it| !it.is_null()) else { return };
    let strategy = text(crd, "/spec/conversion/strategy");
    choice("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    let webhook = conversion.get("webhook").filter(|it| !it.is_null());
    let client = webhook.and_then(|it| it.get("clientConfig")).filter(|it| !it.is_null());
    let reviews = webhook.and_then(|it| it.get("conversionReviewVersions")).and_then(Value::as_array);
    let reviews: Vec<&str> = reviews.into_iter().flatten().filter_map(Value::as_str).collect();
    // Upstream's internal form has these two beside the strategy.
    let (at_client, at_reviews) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.push(FieldError::forbidden(at_client, detail));
        }
        if !reviews.is_empty() {
            errors.push(FieldError::forbidden(at_reviews, detail));
        }
        return;
    }
    match client {
        None => errors.push(FieldError::required(at_client, "required when strategy is set to Webhook")),
        Some(client) => check_client(client, at_client, errors),
    }
    check_reviews(&reviews, at_reviews, errors);
}

fn check_client(client: &Value, path: &str, errors: &mut FieldErrors) {
    let url = client.get("url").and_then(Value::as_str);
    let service = client.get("service").filter(|it| !it.is_null());
    match (url, service) {
        (Some(url), None) => check_url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => check_service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

/// What upstream accepts as the address of a webhook.
pub(super) fn check_url(url: &str, path: &str, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let refuse =
        |detail: String, errors: &mut FieldErrors| errors.push(FieldError::invalid(path, url, detail));
    let Some((scheme, rest)) = url.split_once("://") else {
        return refuse(format!("'https' is the only allowed URL scheme{FORM}"), errors);
    };
    if scheme != "https" {
        refuse(format!("'https' is the only allowed URL scheme{FORM}"), errors);
    }
    let (rest, fragment) = rest.split_once('#').map_or((rest, ""), |(rest, it)| (rest, it));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, it)| (rest, it));
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() {
        refuse(format!("host must be specified{FORM}"), errors);
    }
    if host.contains('@') {
        refuse("user information is not permitted in the URL".to_owned(), errors);
    }
    if !fragment.is_empty() {
        refuse("fragments are not permitted in the URL".to_owned(), errors);
    }
    if !query.is_empty() {
        refuse("query parameters are not permitted in the URL".to_owned(), errors);
    }
}

fn check_service(service: &Value, path: &str, errors: &mut FieldErrors) {
    let own = |field: &str| service.get(field).and_then(Value::as_str).unwrap_or_default();
    if own("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), "service name is required"));
    }
    if own("namespace").is_empty() {
        errors.push(FieldError::required(format!("{path}.namespace"), "service namespace is required"));
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64)
        && !(1..=65535).contains(&port)
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid_shown(format!("{path}.port"), port.to_string(), detail));
    }
    let web_path = own("path");
    if web_path.is_empty() || web_path == "/" {
        return;
    }
    let place = format!("{path}.path");
    let segments: Vec<&str> = web_path.trim_start_matches('/').trim_end_matches('/').split('/').collect();
    if !web_path.starts_with('/') {
        errors.push(FieldError::invalid(&place, web_path, "must start with a '/'"));
    }
    for (at, segment) in segments.iter().enumerate() {
        if segment.is_empty() {
            errors.push(FieldError::invalid(&place, web_path, format!("segment[{at}] may not be empty")));
        } else if let Some(complaint) = name::dns_subdomain(segment).first() {
            errors.push(FieldError::invalid(&place, web_path, format!("segment[{at}]: {complaint}")));
        }
    }
}

fn check_reviews(reviews: &[&str], path: &str, errors: &mut FieldErrors) {
    if reviews.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (at, version) in reviews.iter().enumerate() {
        let place = format!("{path}[{at}]");
        if reviews[..at].contains(version) {
            errors.push(FieldError::invalid(place, version, "duplicate version"));
            continue;
        }
        for complaint in name::dns_1035_label(version) {
            errors.push(FieldError::invalid(&place, version, complaint));
        }
    }
    if !reviews.iter().any(|it| matches!(*it, "v1" | "v1beta1")) {
        let shown = Value::from(reviews.to_vec()).to_string();
        errors.push(FieldError::invalid_shown(path, shown, "must include at least one of v1, v1beta1"));
    }
}
