"""Writes what discovery must show in each release, straight from the facts file: one file per release.

Usage: from-facts.py kubernetes-api-lifecycle.json [directory]

Deliberately shares nothing with data/from-facts.py, which makes the table that the crate ships.
Verbs are letters: c(reate) d(elete) D(eletecollection) g(et) l(ist) p(atch) u(pdate) w(atch).
"""

import json
import pathlib
import sys

LETTERS = dict(create="c", delete="d", deletecollection="D", get="g", list="l", patch="p", update="u", watch="w")
facts = json.loads(pathlib.Path(sys.argv[1]).read_text())
here = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent)
releases = facts["releases"]
window = releases[releases.index("1.30") : releases.index("1.36") + 1]


def within(release, ranges):
    return any(releases.index(a) <= releases.index(release) <= releases.index(b) for a, b in ranges)


def at(release, history):
    """The value that holds in a release, of a list of [release, value]."""
    value = None
    for since, it in history:
        if releases.index(since) <= releases.index(release):
            value = it
    return value


def letters(verbs):
    return "".join(LETTERS[it] for it in sorted(verbs))


def subresources(release, version, resource):
    for name, sub in sorted(resource["subresources"].items()):
        if "available" in sub and not within(release, sub["available"].get(version, [])):
            continue
        if "defaultServed" in sub and not within(release, sub["defaultServed"]):
            continue
        kind = at(release, sub.get("kindHistory", [["1.19", sub.get("kind", resource["kind"])]]))
        group_version = at(release, sub.get("groupVersionHistory", [["1.19", sub.get("groupVersion", "")]]))
        yield f"{name}:{group_version + '/' if group_version else ''}{kind}:{letters(sub['verbs'])}"


def lines(release):
    for name, resource in facts["resources"].items():
        here_now = [v for v, it in resource["versions"].items() if within(release, [it["available"]])]
        on_now = [v for v in here_now if within(release, resource["versions"][v]["defaultServed"])]
        for version in here_now:
            it = resource["versions"][version]
            path = "/".join(filter(None, [resource["group"], version, resource["resource"]]))
            preferred = ["all"] * (version == here_now[0]) + ["default"] * (on_now[:1] == [version])
            deprecated = it["deprecated"] and releases.index(release) >= (
                releases.index(it["deprecated"]) if it["deprecated"] in releases else 99
            )
            stored = at(release, resource["storageVersion"]) or ""
            if stored and "/" not in stored:
                stored = f"{resource['group'] or 'core'}/{stored}"
            yield " ".join(
                [
                    path,
                    "on" if version in on_now else "off",
                    resource["kind"],
                    resource["singular"],
                    "Namespaced" if resource["namespaced"] else "Cluster",
                    "short=" + ",".join(resource["shortNames"]),
                    "categories=" + ",".join(at(release, resource.get("categoriesHistory", [["1.19", resource["categories"]]]))),
                    "verbs=" + letters(at(release, it.get("verbsHistory", [["1.19", it["verbs"]]]))),
                    "subresources=" + ",".join(subresources(release, version, resource)),
                    "|",
                    "preferred=" + ",".join(preferred),
                    "stored=" + stored,
                    "prefix=" + resource.get("etcdPrefix", ""),
                    "deprecated=" + (it["deprecated"] if deprecated else ""),
                ]
            )


for release in window:
    (here / f"{release}.txt").write_text("".join(sorted(f"{it}\n" for it in lines(release))))

with (here / "transitions.txt").open("w") as out:
    for step in facts["transitions"]:
        if step["from"] in window and step["to"] in window:
            for change in step["storageChanges"]:
                yes = [key for key in ("oldDecodesNew", "newDecodesOld") if change[key]]
                print(step["from"], step["to"], change["resource"], change["from"], change["to"], ",".join(yes) or "neither", file=out)

with (here / "lifetimes.txt").open("w") as out:
    for name, resource in facts["resources"].items():
        for version in sorted({it for it in (at(release, resource["storageVersion"]) for release in window) if it}):
            if version in resource["versions"]:
                since = resource["versions"][version]["available"][0]
                print(name, version, since, resource.get("undecodableFrom", {}).get(version, "never"), file=out)
