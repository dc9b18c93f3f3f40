//! When a container's image is pulled, as its name says: the newest is asked for every time.
//!
//! Names are read as the Docker reference grammar has them. A name that is none counts as one with a tag of its own,
//! because upstream sets no tag then.

/// The longest name of a repository, without tag and digest.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// `Always` for `nginx` and `nginx:latest`, `IfNotPresent` for everything else.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

fn is_latest(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to a port.
    let after_slash = rest.rfind('/').map_or(0, |it| it + 1);
    let (name, tag) = match rest[after_slash..].split_once(':') {
        Some((last, tag)) => (&rest[..after_slash + last.len()], Some(tag)),
        None => (rest, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    }
}

fn is_name(name: &str) -> bool {
    // A name that looks like an identifier of an image cannot be told from one.
    let is_identifier = name.len() == 64 && name.bytes().all(|it| b"0123456789abcdef".contains(&it));
    if name.is_empty() || is_identifier {
        return false;
    }
    let (domain, path) = match name.split_once('/') {
        Some((domain, path)) if is_domain_like(domain) => (domain, path),
        _ => ("", name),
    };
    let is_short_enough = if domain.is_empty() {
        // The default registry counts.
        let library = if path.contains('/') { "docker.io/" } else { "docker.io/library/" };
        library.len() + path.len() <= MAX_NAME
    } else {
        name.len() <= MAX_NAME
    };
    is_short_enough && (domain.is_empty() || is_domain(domain)) && path.split('/').all(is_component)
}

/// Whether the first part of a name is a registry: it has a dot, a port or capitals, or is `localhost`.
fn is_domain_like(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|it| it.is_ascii_uppercase())
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let is_address = |it: &str| {
        let inner = it.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        inner.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_hexdigit() || it == b':'))
    };
    let is_label = |it: &str| {
        !it.is_empty()
            && !it.starts_with('-')
            && !it.ends_with('-')
            && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    port.is_none_or(is_port) && (is_address(host) || host.split('.').all(is_label))
}

/// Lower-case letters and digits, separated by a dot, one or two underscores, or dashes.
fn is_component(text: &str) -> bool {
    let is_plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let (Some(first), Some(last)) = (text.chars().next(), text.chars().last()) else { return false };
    if !is_plain(first) || !is_plain(last) {
        return false;
    }
    let separators = text.split(is_plain).filter(|it| !it.is_empty());
    separators.into_iter().all(|it| matches!(it, "." | "_" | "__") || it.chars().all(|it| it == '-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|it| is_word(it) || b".-".contains(&it))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hash)) = text.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hash.len() == length && hash.bytes().all(|it| b"0123456789abcdef".contains(&it))
}
