"""Reads a dashboard with Grafana's own types, and prints each path of it that they do not know or change."""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(path, stated, understood):
    if isinstance(stated, dict) and isinstance(understood, dict):
        for key, value in stated.items():
            yield from differences(f"{path}.{key}", value, understood.get(key))
    elif isinstance(stated, list) and isinstance(understood, list) and len(stated) == len(understood):
        for at, value in enumerate(stated):
            yield from differences(f"{path}[{at}]", value, understood[at])
    elif stated != understood:
        yield f"{path}: {stated!r} is understood as {understood!r}"


register_default_plugins()
with open(sys.argv[1]) as file:
    dashboard = json.load(file)
understood = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
print(*differences("", dashboard, understood), sep="\n", end="")
