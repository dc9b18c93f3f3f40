"""Sends requests through the Python client as it is told: one line of JSON in, one line of JSON out.

usage: ask.py KUBECONFIG; in: {"method", "path", "accept", "content", "body"}, out: {"code", "retryAfter", "body"} or {"error"}
"""

import json
import sys

from kubernetes import client, config
from kubernetes.client.rest import ApiException


def answer(api, asked):
    headers = {"Accept": asked["accept"], "Content-Type": asked["content"]}
    try:
        url = api.configuration.host + asked["path"]
        response = api.call_api(asked["method"], url, headers, asked["body"], _request_timeout=60)
        body = response.read()
        return {"code": response.status, "retryAfter": "retry-after" in response.getheaders(), "body": body}
    except ApiException as error:
        if not error.status:
            return {"error": str(error)}
        headers = {name.lower() for name in (error.headers or {})}
        return {"code": error.status, "retryAfter": "retry-after" in headers, "body": error.body}
    except Exception as error:  # a connection that broke, in one of urllib3's many words
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    config.load_kube_config(sys.argv[1])
    api = client.ApiClient()
    for line in sys.stdin:
        said = answer(api, json.loads(line))
        body = said.get("body")
        if isinstance(body, bytes):
            said["body"] = body.decode()
        print(json.dumps(said), flush=True)


main()
