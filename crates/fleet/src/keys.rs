//! Where the records are: everything below `/convoy/`, outside the API.

use meta::GroupResource;
use store::{Key, Range};

use crate::Identity;

/// What all keys begin with.
pub const ROOT: &str = "/convoy/";

/// The modes of the cluster.
pub fn cluster() -> Key {
    Key::new("/convoy/cluster")
}

/// The record of one member.
pub fn member(identity: &Identity) -> Key {
    Key::new(format!("/convoy/members/{identity}"))
}

/// All members.
pub fn members() -> Range {
    Range::prefix("/convoy/members/")
}

/// The notes of servers that are kept out.
pub fn refusals() -> Range {
    Range::prefix("/convoy/refused/")
}

/// Written by every join: whoever decided on a list of members requires it unchanged.
pub fn joined() -> Key {
    Key::new("/convoy/joined")
}

/// Written whenever a version comes into use that was not in use before: a join requires it unchanged, because
/// the newcomer must be able to read what is written.
pub fn moved() -> Key {
    Key::new("/convoy/moved")
}

/// The fence record of a resource.
pub fn fence(resource: &GroupResource) -> Key {
    fence_of_mirror(&mirror_name(resource))
}

/// The fence record that a StorageVersion object of this name mirrors.
pub fn fence_of_mirror(name: &str) -> Key {
    Key::new(format!("/convoy/fences/{name}"))
}

/// All fence records.
pub fn fences() -> Range {
    Range::prefix("/convoy/fences/")
}

/// The name of a resource's StorageVersion object: `core.pods`, `apps.deployments`.
pub fn mirror_name(resource: &GroupResource) -> String {
    let GroupResource { group, resource } = resource;
    if group.is_empty() { format!("core.{resource}") } else { format!("{group}.{resource}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lie_below_one_prefix() {
        assert_eq!(fence(&GroupResource::new("", "pods")).as_str(), "/convoy/fences/core.pods");
        let deployments = fence(&GroupResource::new("apps", "deployments"));
        assert_eq!(deployments.as_str(), "/convoy/fences/apps.deployments");
        assert!(fences().contains(deployments.as_str()));
        let member = member(&Identity::new("apiserver-a"));
        assert!(members().contains(member.as_str()));
        assert!(!members().contains(joined().as_str()));
    }
}
