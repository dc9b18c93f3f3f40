"""Makes properties.txt: the names of the properties of every type, as another project has them.

Usage: properties-from-k8s-openapi.py k8s-openapi/src > properties.txt

Read from the k8s-openapi crate 0.29 (made from the OpenAPI documents of Kubernetes). One line per type and release:
`RELEASE TYPE PROPERTY…`; of a release before the last only what differs from the release after it, and a type that
is not there has no properties and the word `absent`.
"""

import os
import re
import sys


def read(root):
    types = {}
    for folder, _, files in os.walk(root):
        for file in files:
            with open(os.path.join(folder, file), encoding="utf-8") as source:
                text = source.read()
            name = re.search(r"// Generated from definition (\S+)", text)
            if not name or "json_schema!(" not in text or '"properties": {' not in text:
                continue
            body = text[text.find('"properties": {', text.find("json_schema!(")) :]
            types[name[1]] = " ".join(sorted(re.findall(r'^ {16}"([^"]+)": ', body, re.M)))
    return types


after = {}
for minor in (36, 35, 34, 33):
    types = read(f"{sys.argv[1]}/v1_{minor}")
    for name in sorted(types.keys() | after.keys()):
        if types.get(name) != after.get(name):
            print(f"1.{minor} {name} {types.get(name, 'absent')}")
    after = types
