"""What the pods may do: as little as their profile needs, in every rendered profile and manifest."""

from collections.abc import Iterator

import pytest

from tests.deploy.chart import (
    DEPLOY,
    PROFILES,
    Object,
    containers,
    documents,
    one,
    plain_manifests,
    pod,
    rendered,
)

PRIVILEGED = {"privileged"}
WITH_ADMIN = {"volume mounts, MIG, accounting", "privileged"}
EVERY = pytest.mark.parametrize("profile", PROFILES)


def restricted(spec: Object) -> Iterator[str]:
    """What Pod Security "restricted" has against a pod."""
    if any(spec.get(key) for key in ("hostPID", "hostNetwork", "hostIPC")):
        yield "a namespace of the host"
    shared = spec.get("securityContext", {})
    for volume in spec.get("volumes", []):
        if not volume.keys() - {"name"} <= {"configMap", "secret", "projected", "emptyDir", "downwardAPI"}:
            yield f"volume {volume['name']}"
    for container in containers(spec):
        own = {**shared, **container.get("securityContext", {})}
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            yield "privileges"
        if own.get("runAsNonRoot") is not True or own.get("runAsUser") == 0:
            yield "root"
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            yield "capabilities"
        if own.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield "seccomp"
        if any(port.get("hostPort") for port in container.get("ports", [])):
            yield "a port of the host"


@pytest.mark.parametrize("profile", [name for name in PROFILES if name.startswith("device-only")])
def test_device_only_passes_restricted(profile: str) -> None:
    assert list(restricted(pod(rendered(profile)))) == []


def test_attribution_would_not() -> None:
    assert {"a namespace of the host", "root", "volume pod-logs"} <= set(restricted(pod(rendered("default"))))


@EVERY
def test_the_pod_that_helm_tests_with_passes_restricted(profile: str) -> None:
    assert list(restricted(one(rendered(profile), "Pod")["spec"])) == []


@EVERY
def test_no_profile_has_more_than_it_says(profile: str) -> None:
    spec = pod(rendered(profile))
    assert not spec["hostNetwork"]
    assert "hostIPC" not in spec
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(spec):
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"] is True
        assert "command" not in container
        if profile in PRIVILEGED:
            assert own["privileged"] is True
            continue
        assert own["privileged"] is False
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"]["drop"] == ["ALL"]
        assert own["capabilities"].get("add", []) == (["SYS_ADMIN"] if profile in WITH_ADMIN else [])


@EVERY
def test_mounts_of_the_node_are_read_only_and_few(profile: str) -> None:
    spec = pod(rendered(profile))
    paths = {volume["name"]: volume.get("hostPath", {}).get("path", "") for volume in spec.get("volumes", [])}
    for container in containers(spec):
        for mount in container.get("volumeMounts", []):
            assert mount["readOnly"] or mount["name"] in ("state", "textfile")
    assert not set(paths.values()) & {
        "/",
        "/proc",
        "/sys",
        "/dev",
        "/run",
        "/var/run",
        "/etc",
        "/var/lib/kubelet",
    }
    assert not [path for path in paths.values() if "docker.sock" in path]
    assert bool({"state", "textfile"} & paths.keys()) is (profile == "textfile")


@EVERY
def test_rights_in_the_cluster_are_to_read_pods_and_watch_nodes_at_most(profile: str) -> None:
    for thing in rendered(profile):
        if thing["kind"] in ("ClusterRole", "Role"):
            for rule in thing["rules"]:
                assert set(rule["verbs"]) <= {"get", "list", "watch"}
                assert set(rule["resources"]) <= {"pods", "nodes/pods", "nodes"}
                assert "nodes" not in rule["resources"] or rule["verbs"] == ["watch"]


@EVERY
def test_probes_never_collect_and_the_pod_has_limits(profile: str) -> None:
    (main,) = pod(rendered(profile))["containers"]
    for probe, path in (("livenessProbe", "/-/healthy"), ("readinessProbe", "/-/ready")):
        asked = main[probe].get("httpGet", {}).get("path")
        assert asked == path or "tcpSocket" in main[probe]
    assert main["resources"]["limits"]["memory"]
    assert {"NODE_NAME", "POD_NAME", "POD_UID", "POD_NAMESPACE"} <= {entry["name"] for entry in main["env"]}


@pytest.mark.parametrize("profile", ["OpenShift", "volume mounts, MIG, accounting", "privileged"])
def test_constraints_of_openshift_allow_what_the_pod_has_and_no_more(profile: str) -> None:
    objects = rendered(profile)
    constraints, spec = one(objects, "SecurityContextConstraints"), pod(objects)
    assert constraints["users"] == ["system:serviceaccount:gputally:gputally"]
    assert constraints["allowHostPID"] is spec["hostPID"]
    assert constraints["allowPrivilegedContainer"] is (profile in PRIVILEGED)
    added = {
        name
        for one in containers(spec)
        for name in one["securityContext"].get("capabilities", {}).get("add", [])
    }
    assert added <= set(constraints["allowedCapabilities"])
    kinds = {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]}
    assert kinds <= set(constraints["volumes"])
    assert constraints["allowHostNetwork"] is constraints["allowHostIPC"] is False


def test_only_the_gke_manifests_are_privileged_and_images_are_not_invented() -> None:
    for path in plain_manifests():
        for thing in documents(path):
            if thing.get("kind") != "DaemonSet":
                continue
            spec = thing["spec"]["template"]["spec"]
            privileged = any(one["securityContext"].get("privileged") for one in containers(spec))
            assert privileged is (path.parent.name in ("gke", "dcgm-exporter"))
            assert {container["image"] for container in containers(spec)} == {"gputally:set-me"}


def test_the_sidecar_has_no_rights() -> None:
    (template,) = documents(DEPLOY / "argo" / "workflow-sidecar.yaml")
    (sidecar,) = template["spec"]["templates"][0]["sidecars"]
    assert list(restricted({"containers": [sidecar]})) == []
