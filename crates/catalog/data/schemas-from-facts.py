"""Makes schemas.txt: what the built-in kinds of Kubernetes 1.30 to 1.36 look like.

Usage: schemas-from-facts.py protobuf-facts.json merge-facts.json resources.txt pointers.txt go-fields.txt own-types.txt k8s-openapi/src > schemas.txt

The facts (messages, field numbers, types, the releases that have them; list types and merge keys) were read from
the tags of kubernetes/kubernetes by the project; own-types.txt has what is ours. The last argument is the source of the k8s-openapi crate 0.29: from
it come the names that differ between JSON and protobuf, the messages that JSON shows as part of others, and which
fields are required. The form of the output is described in src/schemas/read.rs.
"""

import json
import os
import re
import sys

FIRST, LAST = 30, 36
GROUPS = {
    "": "core",
    "internal.apiserver.k8s.io": "apiserverinternal",
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
    "rbac.authorization.k8s.io": "rbac",
}
META = "k8s.io.apimachinery.pkg.apis.meta.v1"
# Not resources of their own, but sent or answered.
MORE = {
    "k8s.io.api.autoscaling.v1.Scale", "k8s.io.api.policy.v1.Eviction", "k8s.io.api.authentication.v1.TokenRequest",
    "k8s.io.api.core.v1.Binding", "k8s.io.api.core.v1.List", "k8s.io.api.core.v1.SerializedReference",
    *(f"{META}.{it}Options" for it in ("Delete", "Create", "Update", "Patch", "List", "Get", "Apply")),
    *(f"{META}.{it}" for it in ("Status", "WatchEvent", "List", "PartialObjectMetadata",
                                "PartialObjectMetadataList", "APIGroup", "APIGroupList", "APIResourceList",
                                "APIVersions")),
}
SPECIAL = {
    f"{META}.Time": "time", f"{META}.MicroTime": "microtime", f"{META}.Duration": "duration",
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "quantity",
    "k8s.io.apimachinery.pkg.api.resource.QuantityValue": "quantity",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "intorstring",
}
# JSON of any shape. They stay types with a name, because protobuf has a form for each.
ANY = ("RawExtension", "FieldsV1", "JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool",
       "JSONSchemaPropsOrStringArray")
WRAPPED = ("Verbs", "ExtraValue")
# Where protobuf and JSON differ in the name only; checked against k8s-openapi where it has the type.
RENAMED = {"Webhooks": "webhooks", "Expression": "expression", "Name": "name", "uID": "uid", "aPIGroup": "apiGroup"}
NOT_REQUIRED = {("LocalObjectReference", "name"), ("JSONSchemaProps", "required")}
# Defaults that upstream declares in the schema.
DEFAULTS = {
    ("ContainerPort", "protocol"): "TCP", ("ServicePort", "protocol"): "TCP",
    ("AzureDiskVolumeSource", "cachingMode"): "ReadWrite", ("AzureDiskVolumeSource", "fsType"): "ext4",
    ("AzureDiskVolumeSource", "kind"): "Shared", ("AzureDiskVolumeSource", "readOnly"): False,
    ("ISCSIVolumeSource", "iscsiInterface"): "default", ("ISCSIPersistentVolumeSource", "iscsiInterface"): "default",
    ("RBDVolumeSource", "pool"): "rbd", ("RBDVolumeSource", "user"): "admin",
    ("RBDVolumeSource", "keyring"): "/etc/ceph/keyring", ("RBDPersistentVolumeSource", "pool"): "rbd",
    ("RBDPersistentVolumeSource", "user"): "admin", ("RBDPersistentVolumeSource", "keyring"): "/etc/ceph/keyring",
    ("ScaleIOVolumeSource", "fsType"): "xfs", ("ScaleIOVolumeSource", "storageMode"): "ThinProvisioned",
    ("ScaleIOPersistentVolumeSource", "fsType"): "xfs",
    ("ScaleIOPersistentVolumeSource", "storageMode"): "ThinProvisioned",
}


def open_name(message):
    return message.replace("k8s.io.", "io.k8s.", 1).replace("_", "-")


def read_openapi(root):
    """{type: (properties, required)}, the newest release that has the type deciding what is required."""
    types = {}
    for minor in range(33, LAST + 1):
        for folder, _, files in os.walk(f"{root}/v1_{minor}"):
            for file in files:
                with open(os.path.join(folder, file), encoding="utf-8") as source:
                    text = source.read()
                name = re.search(r"// Generated from definition (\S+)", text)
                body = text[text.find("json_schema!(") :]
                if not name or "json_schema!(" not in text:
                    continue
                names = re.findall(r'^ {16}"([^"]+)": ', body[body.find('"properties": {') :], re.M)
                required = body.find('"required": [')
                required = re.findall(r'^ {16}"([^"]+)",$', body[required:], re.M) if required >= 0 else []
                properties = types.get(name[1], (set(), set()))[0] | (set(names) if '"properties": {' in body else set())
                types[name[1]] = (properties, set(required))
    return types


def read_go_fields(path):
    """{PACKAGE.TYPE: {field: (is written always, Go's type or None) or None if nothing is known}}"""
    fields = {}
    for line in open(path, encoding="utf-8"):
        if not line.startswith("#"):
            name, *words = line.split()
            pairs = ((word.partition("=")[0], word.partition("=")[2]) for word in words)
            fields[name] = {it.rstrip("!-"): None if it.endswith("-") else (it.endswith("!"), go or None)
                            for it, go in pairs}
    return fields


def read_pointers(path):
    """{"PACKAGE.TYPE FIELD"}"""
    rows = (line.split() for line in open(path, encoding="utf-8") if not line.startswith("#"))
    return {f"{row[0]} {field}" for row in rows for field in row[1:]}


def read_own(path):
    """{package: (its line, {type: (its line, [lines of fields])})}"""
    packages = {}
    for line in open(path, encoding="utf-8").read().splitlines():
        words = line.split()
        if line.startswith("package"):
            types = packages.setdefault(words[2], (line, {}))[1]
        elif line.startswith("type"):
            fields = types.setdefault(words[1], (line, []))[1]
        elif line.startswith(" "):
            fields.append(line)
    return packages


class Facts:
    def __init__(self, protobuf, merge, pointers, go_fields, openapi):
        self.pointers, self.go_fields = pointers, go_fields
        self.messages, self.history = protobuf["messages"], protobuf["history"]
        self.merge, self.openapi = merge, openapi
        self.inlined_by = {}
        for message in self.messages:
            for name, (_, card, kind, *_) in self.messages[message].items():
                if card == "optional" and self.is_inlined(message, name, kind):
                    self.inlined_by.setdefault(self.resolve(message, kind), []).append(message)

    def resolve(self, message, kind):
        near = f"{message.rsplit('.', 1)[0]}.{kind}"
        return near if near in self.messages else kind if kind in self.messages else None

    def siblings(self, message):
        """The type itself, then those of the same name in other versions of the group, newest and stable first."""
        group, version, short = message.rsplit(".", 2)
        others = [it for it in self.messages if it.startswith(f"{group}.v") and it.endswith(f".{short}")
                  and it.count(".") == message.count(".")]
        return [message] + sorted(others, key=lambda it: len(it.rsplit(".", 2)[1]))

    def properties(self, message):
        found = (self.openapi.get(open_name(it)) for it in self.siblings(message))
        return next((it for it in found if it and it[0]), None)

    def is_inlined(self, message, name, kind):
        inner = self.resolve(message, kind)
        known = self.properties(message)
        if inner is None or inner in SPECIAL or known is None or name in known[0]:
            return False
        # The field is nowhere in JSON, but the fields of its message are.
        return bool(set(self.messages[inner]) & known[0] - set(self.messages[message])) or "Rule" in kind

    def json_name(self, message, name):
        known = self.properties(message)
        known = known[0] if known else set()
        if name in known:
            return name
        dashed = re.sub("([A-Z])", lambda it: "-" + it[1].lower(), name)
        for other in (f"${name}", dashed, RENAMED.get(name)):
            if other in known:
                return other
        return RENAMED.get(name, name) if not known or name[0].isupper() else name

    def rules(self, message, name):
        """List type, merge key and so on, from the type itself, those that show it as a part of theirs, or siblings."""
        for it in [message, *self.inlined_by.get(message, []), *self.siblings(message)]:
            found = self.merge.get(open_name(it), {}).get(name)
            if found:
                return found
        return {}

    def is_atomic(self, message):
        """Whether the type is owned as a whole. What is said of a sibling counts only where there is no such type any more."""
        if self.openapi.get(open_name(message)):
            return self.merge.get(open_name(message), {}).get(".", {}).get("mapType") == "atomic"
        return self.rules(message, ".").get("mapType") == "atomic"

    def is_required(self, message, name):
        for it in [message, *self.inlined_by.get(message, [])]:
            known = self.properties(it)
            if known and name in known[0]:
                # The crate always has these; Kubernetes does not insist on them.
                short = message.rsplit(".", 1)[1]
                return name in known[1] and name != "metadata" and (short, name) not in NOT_REQUIRED
        return False

    def span(self, name):
        history = self.history.get(name)
        if not history:
            return ""
        first, last = (int(history[it].split(".")[1]) for it in ("from", "to"))
        return (f" since={first}" if first > FIRST else "") + (f" until={last}" if last < LAST else "")


class Writer:
    def __init__(self, facts):
        self.facts, self.aliases = facts, {}

    def alias(self, package):
        parts = package.split(".")
        return "/".join(parts[-2:]) if re.fullmatch(r"v\d.*", parts[-1]) else parts[-1]

    def reference(self, message, kind):
        target = self.facts.resolve(message, kind)
        if target is None:
            return kind
        if target in SPECIAL:
            return SPECIAL[target]
        package, short = target.rsplit(".", 1)
        return short if package == message.rsplit(".", 1)[0] else f"{self.alias(package)}.{short}"

    def field(self, message, proto_name):
        facts = self.facts
        number, card, *kinds = facts.messages[message][proto_name]
        name = facts.json_name(message, proto_name)
        kind = self.reference(message, kinds[-1])
        kind = {"optional": kind, "repeated": f"[]{kind}", "map": f"{{}}{kind}"}[card]
        flags = ""
        if card == "optional" and facts.is_inlined(message, proto_name, kinds[-1]):
            flags += " inline"
        rules = facts.rules(message, name)
        if rules.get("listType") == "set":
            flags += " set"
        if rules.get("listType") == "map":
            flags += " keys=" + ",".join(rules["listMapKeys"])
        if rules.get("mapType") == "atomic":
            flags += " atomic"
        strategy = rules.get("patchStrategy", "").split(",")
        if "merge" in strategy:
            flags += " merge" + (f"={rules['patchMergeKey']}" if "patchMergeKey" in rules else "")
        if "retainKeys" in strategy:
            flags += " retain"
        if "replace" in strategy:
            flags += " replace"
        is_required = facts.is_required(message, name)
        if is_required:
            flags += " required"
        package, short = message.rsplit(".", 1)
        # What nothing is known of is new: what it must have it always has, and its main parts.
        always, go = facts.go_fields.get(f"{self.alias(package)}.{short}", {}).get(name, (False, None)) or (
            is_required or name in ("metadata", "spec", "status"), None)
        if always:
            flags += " always"
        if go:
            flags += f" go={go}"
        if f"{self.alias(package)}.{short} {name}" in facts.pointers:
            flags += " pointer"
        default = DEFAULTS.get((message.rsplit(".", 1)[1], name))
        if default is not None:
            flags += f" default={json.dumps(default)}"
        return f" {name} {number} {kind}{flags}{facts.span(f'{message}.{proto_name}')}"

    def type(self, message, is_kind):
        facts = self.facts
        short = message.rsplit(".", 1)[1]
        if short in ANY and "apps" not in message:
            return [f"any {short}"]
        if short in WRAPPED:
            return [f"wrapped {short} string"]
        atomic = " atomic" if facts.is_atomic(message) else ""
        lines = [f"type {short}{' kind' if is_kind else ''}{atomic}"]
        known = facts.properties(message)
        has_type_meta = (is_kind and short != "WatchEvent") or bool(known and {"apiVersion", "kind"} <= known[0])
        lines += [f" {it} 0 string" for it in ("apiVersion", "kind") if has_type_meta and it not in facts.messages[message]]
        return lines + [self.field(message, it) for it in sorted(facts.messages[message])]


def with_own(lines, own):
    """The lines of a type of Kubernetes, with what is added to it."""
    return [lines[0], *sorted(lines[1:] + own, key=lambda it: (it.split()[1] != "0", it))]


def kinds_of(resources, messages, own):
    """The messages of all kinds and their lists, and the group and version of each package."""
    kinds, packages, group, kind = set(MORE), {}, "", ""
    rows = open(resources, encoding="utf-8").read().splitlines()
    for line in rows:
        words = line.split()
        if line.startswith("resource"):
            group, kind = ("" if words[1] == "-" else words[1]), words[3]
        elif words and words[0] in ("version", "readable"):
            short = GROUPS.get(group, group.split(".")[0])
            found = [it for it in (f"k8s.io.api.{short}.{words[1]}", *(
                f"k8s.io.{it}.pkg.apis.{short}.{words[1]}" for it in ("apiextensions_apiserver", "kube_aggregator")))
                if f"{it}.{kind}" in messages]
            if not found and f"io.k8s.api.{short}.{words[1]}" not in own:
                print(f"no message for {group} {words[1]} {kind}", file=sys.stderr)
            for package in found:
                packages[package] = (group or "-", words[1])
                kinds |= {f"{package}.{kind}", f"{package}.{kind}List"} & set(messages)
    packages[META] = ("meta.k8s.io", "v1")
    for it in kinds & set(messages):
        package = it.rsplit(".", 1)[0]
        if package not in packages:
            print("no group for", package, file=sys.stderr)
    return kinds & set(messages), packages


def reach(facts, kinds):
    todo, seen = list(kinds), set()
    while todo:
        message = todo.pop()
        if message in seen or message in SPECIAL:
            continue
        seen.add(message)
        for _, _, *types in facts.messages[message].values():
            todo += [it for it in (facts.resolve(message, kind) for kind in types) if it]
    return seen


def main():
    protobuf, merge, resources, pointers, go_fields, own_types, openapi = sys.argv[1:]
    facts = Facts(json.load(open(protobuf)), json.load(open(merge)), read_pointers(pointers),
                  read_go_fields(go_fields), read_openapi(openapi))
    own = read_own(own_types)
    kinds, packages = kinds_of(resources, facts.messages, own)
    writer = Writer(facts)
    # Line of the package, and the lines of its types, by name.
    written = {package: (line, {name: [head, *fields] for name, (head, fields) in types.items()})
               for package, (line, types) in own.items()}
    for message in reach(facts, kinds):
        package, short = message.rsplit(".", 1)
        group, version = packages.get(package, ("-", "-"))
        line = f"package {writer.alias(package)} {open_name(package)} {group} {version}"
        types = written.setdefault(open_name(package), (line, {}))[1]
        lines = writer.type(message, message in kinds)
        types[short] = with_own(lines, types[short][1:]) if short in types else lines
    print("# The types of the built-in kinds, Kubernetes 1.30 to 1.36; the form is described in src/schemas/read.rs.")
    print("# Made by schemas-from-facts.py.")
    for _, (line, types) in sorted(written.items()):
        print(line)
        for _, lines in sorted(types.items()):
            print("\n".join(lines))


main()
