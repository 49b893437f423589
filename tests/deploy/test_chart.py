"""The chart renders under every profile into objects that Kubernetes knows, and refuses the rest."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from gputally import __version__
from tests.deploy.chart import (
    CHART,
    PROFILES,
    Object,
    containers,
    documents,
    helm,
    one,
    plain_manifests,
    pod,
    rendered,
    with_image,
)
from tests.deploy.foreign_kinds import FOREIGN, unknown_keys

EVERY = pytest.mark.parametrize("profile", PROFILES)


def problems(thing: Object) -> list[str]:
    """What is wrong with an object: by the schema of its kind, or by our own list of its keys."""
    if thing["kind"] in FOREIGN:
        return unknown_keys(thing)
    try:
        kubernetes_validate.validate(thing, "1.37", strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{thing['kind']}: {error.path}: {error.message}"]
    return []


def test_a_wrong_object_is_found_out() -> None:
    good = one(rendered("default"), "Service")
    assert problems({**good, "spec": {**good["spec"], "ports": "many"}})
    assert problems({**good, "spec": {**good["spec"], "unheardOf": 1}})
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        problems({**good, "kind": "Unheard"})


@EVERY
def test_lint_has_no_complaint(profile: str) -> None:
    done = helm("lint", with_image(PROFILES[profile]), "--strict")
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@EVERY
def test_every_object_is_one_that_kubernetes_knows(profile: str) -> None:
    found = [problem for thing in rendered(profile) for problem in problems(thing)]
    assert found == []
    assert not [thing for thing in rendered(profile) if not thing["metadata"]["name"]]


def test_plain_manifests_are_objects_that_kubernetes_knows() -> None:
    skipped = ("kustomization.yaml", "scrape_configs.yaml")
    paths = [path for path in plain_manifests() if path.name not in skipped]
    things = [thing for path in paths for thing in documents(path) if "kind" in thing]
    assert len(things) > 30
    assert [problem for thing in things for problem in problems(thing)] == []


def test_the_default_can_be_read_in_one_sitting() -> None:
    done = helm("template", with_image({}), "--skip-tests")
    assert len(done.stdout.splitlines()) < 150
    kinds = sorted(thing["kind"] for thing in rendered("default"))
    assert kinds == ["DaemonSet", "Pod", "Service", "ServiceAccount"]


REFUSED: list[tuple[Object, str]] = [
    ({"image": {"tag": "1"}}, "image: repository is required"),
    ({"image": {"repository": "a"}}, "image: tag is required"),
    ({"image": {"repository": "a", "tag": "not a tag"}}, "image.tag: Does not match pattern"),
    ({"port": "abc"}, "port: Invalid type. Expected: integer, given: string"),
    ({"port": 70000}, "port: Must be less than or equal to 65535"),
    ({"profile": "all"}, 'profile must be one of the following: "attribution", "device-only"'),
    ({"names": "environ"}, 'must be one of the following: "logs", "podsApi", "api", "kubelet", "cri"'),
    ({"names": ["logs", "environ"]}, "names.1 must be one of the following"),
    ({"names": []}, "names: Array must have at least 1 items"),
    ({"monitor": {"kind": "both"}}, 'must be one of the following: "none", "annotations"'),
    ({"monitor": {"interval": "often"}}, "monitor.interval: Does not match pattern"),
    ({"gpu": {"access": "magic"}}, "gpu.access must be one of the following"),
    ({"gpu": {"access": "privileged"}}, "gpu.access privileged needs gpu.hostDriver.path"),
    ({"cri": {"socket": "/run/cri-dockerd.sock"}}, "cri.socket: Does not match pattern"),
    ({"settings": {"Interval": "5s"}}, "settings"),
    ({"unheardOf": 1}, "Additional property unheardOf is not allowed"),
    ({"monitor": {"honorLabels": False}}, "Additional property honorLabels is not allowed"),
    ({"profile": "device-only", "gpu": {"access": "volumeMounts"}}, "use runtimeClass or cdi"),
    ({"profile": "device-only", "mig": {"monitor": True}}, "profile device-only has no rights"),
    ({"pause": {"by": "force"}}, 'pause.by must be one of the following: "evict", "yield"'),
    ({"pause": {"label": "a b"}}, "pause.label: Does not match pattern"),
    ({"rules": {"pricePerKwh": "cheap"}}, "rules.pricePerKwh: Does not match pattern"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_used_is_refused_with_the_reason(values: Object, message: str) -> None:
    done = helm("template", values if "image" in values else with_image(values))
    assert done.returncode != 0
    assert message in done.stderr


def arguments(profile: str) -> list[str]:
    """The flags of the program."""
    (container,) = pod(rendered(profile))["containers"]
    return list(container["args"])


def test_each_source_of_names_gets_what_it_needs_and_no_more() -> None:
    needs: dict[str, tuple[set[str], list[Any]]] = {
        "logs": ({"/var/log/pods", "/var/log/containers"}, []),
        "podsApi": ({"/var/lib/kubelet/pods-api"}, []),
        "api": (set(), [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]),
        "kubelet": (set(), [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]),
        "cri": ({"/run/containerd"}, []),
    }
    for name, (folders, rights) in needs.items():
        objects = tuple(yaml.safe_load_all(helm("template", with_image({"names": name})).stdout))
        spec = pod(objects)
        mounted = {volume["hostPath"]["path"] for volume in spec["volumes"]}
        assert mounted == folders | {"/var/lib/kubelet/pod-resources"}, name
        roles = [thing["rules"] for thing in objects if thing["kind"] == "ClusterRole"]
        assert roles == ([rights] if rights else []), name
        assert spec["automountServiceAccountToken"] is bool(rights)
        flags = spec["containers"][0]["args"]
        assert ("--kubernetes.api=off" in flags) is (name != "api")
        assert any(flag.startswith("--kubelet.url") for flag in flags) is (name == "kubelet")
        assert any(flag.startswith("--cri.socket") for flag in flags) is (name == "cri")


def terms(values: Object) -> list[Object]:
    """On which nodes the pod may be."""
    objects = tuple(yaml.safe_load_all(helm("template", with_image(values)).stdout))
    affinity = pod(objects).get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    return list(required["nodeSelectorTerms"])


def may_be_on(labels: dict[str, str], terms: list[Object]) -> bool:
    """Whether the scheduler would have it on a node with these labels."""

    def holds(rule: Object) -> bool:
        key, value = rule["key"], labels.get(rule["key"])
        there = {"In": value in rule.get("values", []), "Exists": key in labels}
        return there.get(rule["operator"], key not in labels)

    return not terms or any(all(map(holds, term["matchExpressions"])) for term in terms)


@pytest.mark.parametrize("values", [{}, {"nodeLabels": []}, {"nodeLabels": ["a=b"]}], ids=str)
def test_whoever_manages_gpus_can_evict_the_pod_by_a_label(values: Object) -> None:
    here = {"nvidia.com/gpu.present": "true", "a": "b"}
    client, other = "nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.dcgm-exporter"
    rules = terms(values)
    assert may_be_on(here, rules), "an older operator, or none, does not know the label"
    assert may_be_on({**here, client: "true", other: "false"}, rules)
    for value in ("paused-for-mig-change", "paused-for-driver-upgrade", "false"):
        assert not may_be_on({**here, client: value}, rules)
    assert may_be_on({client: "true"}, rules) is ("nodeLabels" in values and not values["nodeLabels"])
    rules = terms({**values, "pause": {"label": other}})
    assert may_be_on({**here, client: "false"}, rules)
    assert not may_be_on({**here, other: "paused-for-mig-change"}, rules)
    for stays in ({"label": ""}, {"by": "yield"}):
        assert may_be_on({**here, client: "paused-for-mig-change"}, terms({**values, "pause": stays}))
    assert terms({"nodeLabels": [], "pause": {"by": "yield"}}) == []


def test_a_pod_that_yields_may_watch_nodes_and_no_other_may() -> None:
    for profile in PROFILES:
        objects = rendered(profile)
        rules = [rule for thing in objects if thing["kind"] == "ClusterRole" for rule in thing["rules"]]
        label = [flag for flag in arguments(profile) if flag.startswith("--kubernetes.pause-label=")]
        rights = [rule for rule in rules if "nodes" in rule["resources"]]
        if PROFILES[profile].get("pause", {}).get("by") != "yield":
            assert (rights, label) == ([], [])
            continue
        assert rights == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["watch"]}]
        assert label[0].startswith("--kubernetes.pause-label=nvidia.com/gpu.deploy.")
        assert pod(objects)["automountServiceAccountToken"] is True
    ports = one(rendered("yield"), "NetworkPolicy")["spec"]["egress"][0]["ports"]
    assert [port["port"] for port in ports] == [443, 6443]


def test_settings_become_flags() -> None:
    flags = arguments("textfile")
    assert {"--interval=10s", "--process-metrics=on", "--process-metrics.top=10"} <= set(flags)


def test_mig_parents_get_their_variable_and_accounting_its_container() -> None:
    spec = pod(rendered("volume mounts, MIG, accounting"))
    first, main = containers(spec)
    assert first["args"] == ["accounting", "enable"]
    assert {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in main["env"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "/var/run/nvidia-container-devices"} in main["env"]
    assert first["volumeMounts"] == [
        {"name": "all-gpus", "mountPath": "/var/run/nvidia-container-devices/all", "readOnly": True}
    ]


def test_gpus_asked_of_a_device_plugin_are_beside_the_limits() -> None:
    (main,) = containers(pod(rendered("host driver")))
    assert main["resources"]["limits"] == {"memory": "128Mi", "nvidia.com/gpu": "1"}
    assert {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"} in main["env"]


def test_only_one_way_of_scraping_is_there_at_a_time() -> None:
    ways = {"PodMonitor", "ServiceMonitor", "ScrapeConfig"}
    for profile in PROFILES:
        objects = rendered(profile)
        found = [thing["kind"] for thing in objects if thing["kind"] in ways]
        annotations = one(objects, "DaemonSet")["spec"]["template"]["metadata"].get("annotations", {})
        assert len(found) + ("prometheus.io/scrape" in annotations) <= 1


def test_every_monitor_keeps_the_labels_of_the_workload() -> None:
    for profile in PROFILES:
        for thing in rendered(profile):
            if thing["kind"] not in ("PodMonitor", "ServiceMonitor", "ScrapeConfig"):
                continue
            spec = thing["spec"]
            (endpoint,) = spec.get("podMetricsEndpoints") or spec.get("endpoints") or [spec]
            assert endpoint["honorLabels"] is True
            assert {"action": "labeldrop", "regex": "pod|namespace|container"} in endpoint["relabelings"]
            assert any(step.get("targetLabel") == "node" for step in endpoint["relabelings"])
            assert spec["sampleLimit"] > 10_000
            assert {"bodySizeLimit", "labelValueLengthLimit"} <= spec.keys()


def test_the_chart_is_of_the_version_of_the_program() -> None:
    (chart,) = documents(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_rules_and_dashboards_are_rendered_one_by_one() -> None:
    objects = rendered("every source of names")
    rules = [thing for thing in objects if thing["kind"] == "PrometheusRule"]
    boards = [thing for thing in objects if thing["kind"] == "ConfigMap"]
    assert len(rules) == len(list((CHART / "files" / "rules").glob("*.yaml")))
    assert len(boards) == len(list((CHART / "files" / "dashboards").glob("*.json")))
    for board in boards:
        assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert all(name.endswith(".json") for name in board["data"])
