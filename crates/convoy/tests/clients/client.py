"""Drives ten kinds through the Python client: every verb, both patch types, selectors, pages, a watch.

usage: client.py KUBECONFIG KINDS.json NAMESPACE; prints one line per kind, fails at the first fault.
"""

import json
import re
import sys
import threading

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"


def snake(kind):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def exercise(fact, namespace):
    api = getattr(client, fact["python"])()
    name = snake(fact["kind"])
    call = lambda verb: getattr(api, f"{verb}_namespaced_{name}")

    def make(suffix, group):
        metadata = {"name": f"py-{suffix}", "labels": {"run": "py", "group": group}}
        return {"apiVersion": fact["apiVersion"], "kind": fact["kind"], "metadata": metadata, **fact["object"]}

    created = call("create")(namespace, make("a", "red"))
    check(created.metadata.uid and created.metadata.resource_version, "uid and resourceVersion are set")
    check(created.metadata.creation_timestamp is not None, "creationTimestamp is set")
    for suffix in "bcd":
        call("create")(namespace, make(suffix, "red" if suffix == "b" else "blue"))
    read = call("read")("py-a", namespace)
    check(read.metadata.uid == created.metadata.uid, "get returns what was created")

    try:
        call("create")(namespace, make("a", "red"))
        raise AssertionError("a second create must fail")
    except ApiException as error:
        check(error.status == 409 and json.loads(error.body)["reason"] == "AlreadyExists", str(error))

    listed = call("list")(namespace, label_selector="run=py")
    check([it.metadata.name for it in listed.items] == ["py-a", "py-b", "py-c", "py-d"], "list is in order")
    red = call("list")(namespace, label_selector="run=py,group in (red)")
    check([it.metadata.name for it in red.items] == ["py-a", "py-b"], "label selector")
    one = call("list")(namespace, field_selector="metadata.name=py-c")
    check([it.metadata.name for it in one.items] == ["py-c"], "field selector")

    names, token = [], None
    while True:
        page = call("list")(namespace, label_selector="run=py", limit=2, _continue=token)
        names += [it.metadata.name for it in page.items]
        token = page.metadata._continue
        if not token:
            break
        check(len(page.items) == 2, "pages have the asked size")
    check(names == ["py-a", "py-b", "py-c", "py-d"], f"pages: {names}")

    seen = []
    stream = watch.Watch()

    def follow():
        events = stream.stream(
            call("list"), namespace, label_selector="run=py",
            resource_version=listed.metadata.resource_version, timeout_seconds=60,
        )
        for event in events:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED" and event["object"].metadata.name == "py-a":
                stream.stop()

    follower = threading.Thread(target=follow)
    follower.start()

    merged = call("patch")("py-a", namespace, fact["merge"], _content_type=MERGE)
    check(merged.metadata.resource_version != created.metadata.resource_version, "merge patch changes")
    patched = call("patch")("py-a", namespace, [fact["json"]], _content_type=JSON)
    check(patched.metadata.resource_version != merged.metadata.resource_version, "JSON patch changes")

    patched.metadata.annotations = {"replaced": "yes"}
    replaced = call("replace")("py-a", namespace, patched)
    check(replaced.metadata.annotations == {"replaced": "yes"}, "replace replaces")
    replaced.metadata.resource_version = created.metadata.resource_version
    try:
        call("replace")("py-a", namespace, replaced)
        raise AssertionError("a stale replace must fail")
    except ApiException as error:
        check(error.status == 409 and json.loads(error.body)["reason"] == "Conflict", str(error))

    call("delete")("py-a", namespace)
    follower.join(60)
    check(not follower.is_alive(), "the watch saw the deletion")
    expected = [("MODIFIED", "py-a")] * 3 + [("DELETED", "py-a")]
    check(seen == expected, f"watch: {seen}")
    try:
        call("read")("py-a", namespace)
        raise AssertionError("a deleted object must be gone")
    except ApiException as error:
        check(error.status == 404 and json.loads(error.body)["reason"] == "NotFound", str(error))

    getattr(api, f"delete_collection_namespaced_{name}")(namespace, label_selector="run=py")
    left = call("list")(namespace, label_selector="run=py")
    check(left.items == [], "deletecollection deletes")
    print("ok", fact["kind"], flush=True)


def main():
    kubeconfig, kinds, namespace = sys.argv[1:4]
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    core.create_namespace({"metadata": {"name": namespace}})
    check(namespace in [it.metadata.name for it in core.list_namespace().items], "the namespace is listed")
    check(client.VersionApi().get_code().major == "1", "version")
    check(len(client.ApisApi().get_api_versions().groups) > 10, "groups")
    with open(kinds, encoding="utf-8") as file:
        for fact in json.load(file):
            try:
                exercise(fact, namespace)
            except Exception:
                print("FAILED", fact["kind"], flush=True)
                raise


main()
