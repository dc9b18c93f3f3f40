//! Which names the objects of a resource may have.

use crate::name;

/// How the objects of a resource are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain; what most kinds and all custom resources use.
    #[default]
    Subdomain,
    /// A DNS label, without dots: namespaces, and what becomes part of a host name.
    Label,
    /// A DNS label that starts with a letter: services.
    Dns1035Label,
    /// Anything that can stand in a path: RBAC, which has names such as `system:node`.
    PathSegment,
    /// A subdomain short enough that a job's suffix fits: cron jobs.
    CronJob,
    /// What could be the name of a file: lease candidates.
    ConfigKey,
    /// `<group>.<resource>`: storage versions.
    StorageVersion,
}

/// The rule for a built-in resource.
pub fn name_rule(group: &str, resource: &str) -> NameRule {
    match (group, resource) {
        ("", "namespaces") | ("apps", "statefulsets") => NameRule::Label,
        ("", "services") => NameRule::Dns1035Label,
        ("rbac.authorization.k8s.io", _)
        | ("", "events")
        | ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles")
        | ("apiregistration.k8s.io", "apiservices") => NameRule::PathSegment,
        ("batch", "cronjobs") => NameRule::CronJob,
        ("coordination.k8s.io", "leasecandidates") => NameRule::ConfigKey,
        ("internal.apiserver.k8s.io", "storageversions") => NameRule::StorageVersion,
        _ => NameRule::Subdomain,
    }
}

impl NameRule {
    /// What is wrong with the name.
    pub fn check(self, text: &str) -> Vec<String> {
        match self {
            Self::Subdomain => name::dns_subdomain(text),
            Self::Label => name::dns_label(text),
            Self::Dns1035Label => name::dns_1035_label(text),
            Self::PathSegment => name::path_segment(text),
            Self::CronJob => {
                let mut complaints = name::dns_subdomain(text);
                if text.len() > 52 {
                    complaints.push("must be no more than 52 characters".to_owned());
                }
                complaints
            }
            Self::ConfigKey => name::config_key(text),
            Self::StorageVersion => storage_version(text),
        }
    }

    /// What is wrong with the beginning of a name, as in `generateName`. It may end with a hyphen.
    pub fn check_prefix(self, text: &str) -> Vec<String> {
        match self {
            // Upstream checks these prefixes as if they were names.
            Self::ConfigKey | Self::StorageVersion => return self.check(text),
            Self::PathSegment => return name::path_segment_prefix(text),
            Self::Subdomain | Self::Label | Self::Dns1035Label | Self::CronJob => {}
        }
        // Upstream puts a letter in the place of the last two characters.
        match text.strip_suffix('-') {
            Some(before) if !before.is_empty() => {
                let mut masked = before.to_owned();
                masked.pop();
                masked.push('a');
                self.check(&masked)
            }
            _ => self.check(text),
        }
    }
}

fn storage_version(text: &str) -> Vec<String> {
    let Some((group, resource)) = text.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let mut complaints: Vec<String> =
        name::dns_subdomain(group).into_iter().map(|it| format!("the group segment {it}")).collect();
    complaints
        .extend(name::dns_1035_label(resource).into_iter().map(|it| format!("the resource segment {it}")));
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SV-13: names of StorageVersions, with the longest segments and one more.
    #[test]
    fn a_storage_version_is_named_by_group_and_resource() {
        let group = |length: usize| {
            let labels = ["a".repeat(63), "b".repeat(63), "c".repeat(63)].join(".");
            format!("{labels}.{}", "d".repeat(length - labels.len() - 1))
        };
        for (text, expected) in [
            ("core.pods".to_owned(), &[][..]),
            ("apps.example.com.deployments".to_owned(), &[]),
            ("pods".to_owned(), &["name must be in the form of <group>.<resource>"]),
            (format!("{}.pods", group(253)), &[]),
            (format!("{}.pods", group(254)), &["the group segment must be no more than 253 characters"]),
            (format!("core.{}", "p".repeat(63)), &[]),
            (
                format!("core.{}", "p".repeat(64)),
                &["the resource segment must be no more than 63 characters"],
            ),
        ] {
            assert_eq!(NameRule::StorageVersion.check(&text), expected, "{text}");
        }
        let complaints = NameRule::StorageVersion.check("my_group.1pods");
        let starts: Vec<bool> =
            ["the group segment a lowercase RFC 1123 subdomain", "the resource segment a DNS-1035 label"]
                .into_iter()
                .zip(&complaints)
                .map(|(start, it)| it.starts_with(start))
                .collect();
        assert_eq!(starts, [true, true], "{complaints:?}");
    }
}
