"""Makes resources.txt from a facts file about Kubernetes' built-in APIs.

Usage: from-facts.py kubernetes-api-lifecycle.json > resources.txt

The facts (kinds, scopes, verbs, releases, storage versions) were read from the tags of kubernetes/kubernetes
by the project; this only cuts them down to releases 1.30 to 1.36 and writes them in the form table.rs reads.
Departures from the facts are the tables below.
"""

import json
import sys

FIRST, LAST = 30, 36
ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
EVERY_RELEASE = [f"1.{FIRST}", f"1.{LAST}"]


def own(group, resource, kind, version, prefix):
    """A resource that is not upstream's, or not as it is there, in the form of the facts."""
    facts = {"available": EVERY_RELEASE, "defaultServed": [EVERY_RELEASE], "verbs": ALL, "deprecated": None}
    return {
        "group": group, "resource": resource, "kind": kind, "singular": kind.lower(), "namespaced": False,
        "shortNames": [], "categories": [], "etcdPrefix": prefix, "versions": {version: facts},
        "storageVersion": [[f"1.{FIRST}", version]], "subresources": {"status": {"verbs": ["get", "patch", "update"]}},
    }


# Of migrations one version is served in every release: the older one that upstream had until 1.34 was never on.
OWN = {
    f"{it['resource']}.{it['group']}": it for it in (
        own("migration.k8s.io", "storagestates", "StorageState", "v1alpha1",
            "/registry/migration.k8s.io/storagestates/"),
        own("migration.k8s.io", "storageversionmigrations", "StorageVersionMigration", "v1alpha1",
            "/registry/migration.k8s.io/storageversionmigrations/"),
        own("storagemigration.k8s.io", "storageversionmigrations", "StorageVersionMigration", "v1beta1",
            "/registry/storageversionmigrations/"),
    )
}
# Ours: served in every release, whatever the flags say.
CONVOY = {"storageversions.internal.apiserver.k8s.io", *OWN}
# Stored otherwise than upstream does: upstream pins CRDs to a version that nobody serves.
STORED = {"customresourcedefinitions.apiextensions.k8s.io": [["1.19", "v1"]]}
# What the server tells users of a deprecated version and the facts leave out.
REPLACEMENT = {("endpoints", "v1"): "discovery.k8s.io/v1/EndpointSlice"}


def minor(release):
    return int(release.split(".")[1])


def window(first, last):
    """The part of a range inside 1.30 to 1.36, as text; None when empty."""
    first, last = max(minor(first), FIRST), min(minor(last), LAST)
    return None if first > last else f"1.{first}-1.{last}"


def stored(name, resource):
    """[(minor, group/version)] at each change inside the window, the first entry being what 1.30 stores."""
    changes = []
    for release, version in STORED.get(name, resource["storageVersion"]):
        group, _, version = version.rpartition("/")
        group = "" if group == "core" else group or resource["group"]
        version = f"{group}/{version}" if group else version
        if minor(release) <= FIRST:
            changes = [(FIRST, version)]
        elif minor(release) <= LAST:
            changes.append((minor(release), version))
    return changes


def readable(name, resource):
    """{version: releases} of the storage versions that can be read after they are no longer served."""
    gone = resource.get("undecodableFrom", {})
    known_until = max(minor(facts["available"][1]) for facts in resource["versions"].values())
    out = {}
    for _, stored_as in stored(name, resource):
        version = stored_as.rpartition("/")[2]
        if version in resource["versions"]:
            first, served_until = resource["versions"][version]["available"]
            last = minor(gone[version]) - 1 if version in gone else known_until
            if min(last, LAST) > minor(served_until):
                out[version] = window(first, f"1.{last}")
    return out


def verbs(names):
    return "*" if names == ALL else ",".join(names)


def option(key, value):
    return f" {key}={value}" if value else ""


def served(resource):
    """{version: (releases, facts)} of the versions that some release in the window serves."""
    spans = {version: (window(*facts["available"]), facts) for version, facts in resource["versions"].items()}
    return {version: it for version, it in spans.items() if it[0]}


def write(name, resource, shared):
    versions = served(resource)
    scope = "Namespaced" if resource["namespaced"] else "Cluster"
    print(
        f"resource {resource['group'] or '-'} {resource['resource']} {resource['kind']} {resource['singular']} {scope}"
        + option("short", ",".join(resource["shortNames"]))
        + option("categories", ",".join(resource["categories"]))
        + option("prefix", resource.get("etcdPrefix"))
        + option("shares", shared)
        + (" convoy" if name in CONVOY else "")
    )
    for version, (releases, facts) in versions.items():
        on = facts["defaultServed"]
        assert not on or [on[0][0], on[-1][1]] == facts["available"], (name, version)
        line = f" version {version} {releases} {'on' if on else 'off'} {verbs(facts['verbs'])}"
        if facts["deprecated"] and minor(facts["deprecated"]) <= LAST:
            line += option("deprecated", facts["deprecated"])
            line += option("removed", facts["removed"] or facts.get("plannedRemoval"))
            line += option("replacement", facts.get("replacement") or REPLACEMENT.get((name, version)))
        print(line)
    for version, releases in readable(name, resource).items():
        print(f" readable {version} {releases}")
    for minor_, version in stored(name, resource):
        print(f" stored 1.{minor_} {version}")
    for sub, facts in resource["subresources"].items():
        gate = "" if facts.get("defaultServed", [["1.19"]])[0][0] <= f"1.{FIRST}" else facts["featureGate"]
        ranges = facts.get("available") or {version: [f["available"]] for version, (_, f) in versions.items()}
        for version, spans in ranges.items():
            for span in spans:
                if version in versions and (releases := window(*span)):
                    print(
                        f" subresource {version} {sub} {releases} {verbs(facts['verbs'])}"
                        + option("kind", facts.get("kind"))
                        + option("as", facts.get("groupVersion"))
                        + option("gate", gate)
                    )


def main():
    facts = json.load(open(sys.argv[1]))
    print("# The built-in resources of Kubernetes 1.30 to 1.36; the form is described in src/table.rs.")
    prefixes = {}
    for name, resource in sorted((facts["resources"] | OWN).items(), key=lambda it: (it[1]["group"], it[1]["resource"])):
        if served(resource):
            first = prefixes.setdefault(resource.get("etcdPrefix") or name, name)
            write(name, resource, "" if first == name else first)


main()
