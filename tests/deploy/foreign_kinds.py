"""Which keys the kinds of operators have, as their definitions list them; only those that we use.

Those of prometheus-operator were compared with its definitions; the others were not."""

from collections.abc import Iterator
from typing import Any

ANY: None = None
"""Whatever is below has no keys of its own, or is a core object."""

RELABELING = {"action": ANY, "sourceLabels": ANY, "targetLabel": ANY, "regex": ANY, "replacement": ANY}
LIMITS = {"sampleLimit": ANY, "bodySizeLimit": ANY, "labelValueLengthLimit": ANY}
ENDPOINT = {
    "port": ANY,
    "path": ANY,
    "interval": ANY,
    "scrapeTimeout": ANY,
    "honorLabels": ANY,
    "scheme": ANY,
    "relabelings": RELABELING,
    "metricRelabelings": RELABELING,
}
SELECTION = {"jobLabel": ANY, "selector": {"matchLabels": ANY}, "namespaceSelector": {"matchNames": ANY}}
PARAMETERS = {"parameters": {"name": ANY, "value": ANY, "description": ANY}}
TEMPLATE = {
    "name": ANY,
    "inputs": PARAMETERS,
    "metadata": {"annotations": ANY},
    "tolerations": ANY,
    "container": ANY,
    "sidecars": ANY,
    "steps": ANY,
    "script": ANY,
}
WORKFLOW = {
    "entrypoint": ANY,
    "activeDeadlineSeconds": ANY,
    "arguments": PARAMETERS,
    "templates": TEMPLATE,
}
RULE = {"record": ANY, "alert": ANY, "expr": ANY, "for": ANY, "labels": ANY, "annotations": ANY}
TRIGGER = {
    "type": ANY,
    "metricType": ANY,
    "metadata": {
        "serverAddress": ANY,
        "query": ANY,
        "threshold": ANY,
        "activationThreshold": ANY,
        "ignoreNullValues": ANY,
    },
}

SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "PodMonitor": ("monitoring.coreos.com/v1", {**SELECTION, **LIMITS, "podMetricsEndpoints": ENDPOINT}),
    "ServiceMonitor": ("monitoring.coreos.com/v1", {**SELECTION, **LIMITS, "endpoints": ENDPOINT}),
    "ScrapeConfig": (
        "monitoring.coreos.com/v1alpha1",
        {
            **LIMITS,
            "jobName": ANY,
            "metricsPath": ANY,
            "scrapeInterval": ANY,
            "scrapeTimeout": ANY,
            "honorLabels": ANY,
            "scheme": ANY,
            "kubernetesSDConfigs": {
                "role": ANY,
                "namespaces": {"names": ANY},
                "selectors": {"role": ANY, "label": ANY},
            },
            "relabelings": RELABELING,
            "metricRelabelings": RELABELING,
        },
    ),
    "PrometheusRule": (
        "monitoring.coreos.com/v1",
        {"groups": {"name": ANY, "interval": ANY, "rules": {**RULE, "keep_firing_for": ANY}}},
    ),
    "Application": (
        "argoproj.io/v1alpha1",
        {
            "project": ANY,
            "source": {
                "repoURL": ANY,
                "targetRevision": ANY,
                "path": ANY,
                "helm": {
                    "valueFiles": ANY,
                    "parameters": {"name": ANY, "value": ANY, "forceString": ANY},
                },
            },
            "destination": {"server": ANY, "namespace": ANY},
            "syncPolicy": {
                "automated": {"prune": ANY, "selfHeal": ANY},
                "syncOptions": ANY,
                "managedNamespaceMetadata": {"labels": ANY},
            },
        },
    ),
    "WorkflowTemplate": ("argoproj.io/v1alpha1", WORKFLOW),
    "Workflow": ("argoproj.io/v1alpha1", WORKFLOW),
    "ScaledObject": (
        "keda.sh/v1alpha1",
        {
            "scaleTargetRef": {"name": ANY},
            "minReplicaCount": ANY,
            "maxReplicaCount": ANY,
            "pollingInterval": ANY,
            "cooldownPeriod": ANY,
            "fallback": {"failureThreshold": ANY, "replicas": ANY},
            "triggers": TRIGGER,
        },
    ),
}

CONSTRAINTS = {
    "apiVersion": ANY,
    "kind": ANY,
    "metadata": ANY,
    "users": ANY,
    "groups": ANY,
    "priority": ANY,
    **{
        f"allow{what}": ANY
        for what in (
            "HostPID",
            "HostDirVolumePlugin",
            "HostNetwork",
            "HostPorts",
            "HostIPC",
            "PrivilegedContainer",
            "PrivilegeEscalation",
            "edCapabilities",
        )
    },
    "readOnlyRootFilesystem": ANY,
    "defaultAddCapabilities": ANY,
    "requiredDropCapabilities": ANY,
    **{what: {"type": ANY} for what in ("runAsUser", "fsGroup", "supplementalGroups", "seLinuxContext")},
    "seccompProfiles": ANY,
    "volumes": ANY,
}

FOREIGN: dict[str, tuple[str, dict[str, Any]]] = {
    kind: (version, {"apiVersion": ANY, "kind": ANY, "metadata": ANY, "spec": spec})
    for kind, (version, spec) in SPECS.items()
} | {"SecurityContextConstraints": ("security.openshift.io/v1", CONSTRAINTS)}


def unknown_keys(thing: dict[str, Any]) -> list[str]:
    """Keys of an object that its kind does not have."""
    version, tree = FOREIGN[thing["kind"]]
    wrong = [] if thing["apiVersion"] == version else [f"{thing['kind']} is not in {thing['apiVersion']}"]
    return wrong + list(_unknown(thing, tree, thing["kind"]))


def _unknown(thing: Any, tree: dict[str, Any] | None, path: str) -> Iterator[str]:
    if tree is None:
        return
    if isinstance(thing, list):
        for index, item in enumerate(thing):
            yield from _unknown(item, tree, f"{path}[{index}]")
        return
    for key, below in thing.items():
        if key not in tree:
            yield f"{path}.{key}"
        else:
            yield from _unknown(below, tree[key], f"{path}.{key}")
