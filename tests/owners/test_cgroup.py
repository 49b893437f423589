"""The cgroup parser over the corpus, over anything at all, and against those who forge paths."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.owners.cgroup import CONTAINERS, JOBS, node_base, parse
from gputally.owners.identity import Identity, as_expect
from tests.owners.corpus import CASES, Case, paths

KINDS = {*CONTAINERS, *JOBS, "pod", "systemd", "user", "host"}
HEX = "a1" * 32
OTHER = "b2" * 32
UID = "11111111-2222-3333-4444-555555555555"
VICTIM = UID.replace("1", "9")
POD = f"/kubepods/burstable/pod{UID}/{HEX}"
FORGED = (
    f"/kubepods.slice/kubepods-pod{VICTIM.replace('-', '_')}.slice/cri-containerd-{OTHER}.scope",
    f"/kubepods/pod{VICTIM}/{OTHER}",
    f"/docker/{OTHER}",
    f"/system.slice/docker-{OTHER}.scope",
    f"/machine.slice/libpod-{OTHER}.scope",
    "/system.slice/slurmstepd.scope/job_666/step_0",
    "/lxc.payload.victim",
    "/user.slice/user-666.slice/session-1.scope",
    "/system.slice/victim.service",
)
words = st.sampled_from(
    [
        *[segment for case in CASES for path in paths(case.content) for segment in path.split("/")],
        "..",
        "kubepods",
        "user.slice",
        "docker",
        "slurmstepd.scope",
        "job_1",
        "x" * 4096,
        "\x00",
        "²",
        "\ud800",
    ]
)
lines = st.builds(
    lambda number, controllers, parts: f"{number}:{controllers}:/{'/'.join(parts)}",
    st.integers(0, 20),
    st.sampled_from(["", "name=systemd", "memory", "cpu,cpuacct"]),
    st.lists(words, max_size=12),
)


def owner(identity: Identity) -> tuple[object, ...]:
    """All that decides who pays."""
    return (identity.kind, identity.pod_uid, identity.container_id, identity.machine, identity.uid)


def test_every_case_of_the_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [case.id for case in CASES if as_expect(parse(case.content)) != case.expect]
    with capsys.disabled():
        print(f"\ncgroup corpus: {len(CASES) - len(wrong)}/{len(CASES)} right")
    assert wrong == []
    assert len(CASES) == 129


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_nobody_is_charged_for_somebody_else(case: Case) -> None:
    content, expect = case.content, case.expect
    got = as_expect(parse(content))
    for name in ("container_id", "pod_uid", "job_id", "machine", "unit"):
        assert got.get(name) in (None, expect.get(name))


@given(st.one_of(st.text(), st.lists(st.one_of(lines, st.text()), max_size=20).map("\n".join)))
def test_any_text_gives_an_identity(text: str) -> None:
    identity = parse(text, base="/docker/x", own_pod=UID)
    assert identity.kind in KINDS
    assert as_expect(identity).keys() >= {"kind", "pod_uid", "container_id"}
    for value in as_expect(identity).values():
        assert not isinstance(value, str) or len(value) <= 256


@given(st.binary(max_size=2000))
def test_any_bytes_give_an_identity(raw: bytes) -> None:
    assert parse(raw.decode("utf-8", "replace")).kind in KINDS


@given(st.sampled_from(CASES), st.lists(st.sampled_from(FORGED), min_size=1, max_size=3), st.booleans())
def test_what_a_container_makes_below_itself_does_not_change_who_it_is(
    case: Case, forged: list[str], below: bool
) -> None:
    content = case.content
    real = parse(content)
    if real.kind in ("systemd", "host", "user", "buildkit") or real.conflict or real.role:
        return  # no container: nothing is below it
    suffix = ("/x" if below else "") + "".join(forged)
    lines = (
        line.removesuffix(" (deleted)") + suffix if owner(parse(line)) == owner(real) else line
        for line in content.splitlines()
    )
    text = "\n".join(lines)
    fake = parse(text)
    if fake.within != real.within:  # a node of kind; whoever names pods must not look it up in our kubelet
        assert fake.within == f"{real.kind}:{real.container_id or real.machine}"
    else:
        assert owner(fake) == owner(real)


@given(st.integers(0, 99999), st.lists(words, max_size=8), st.lists(st.sampled_from(FORGED), max_size=3))
def test_nothing_under_user_slice_is_believed_but_the_users_own_containers(
    uid: int, middle: list[str], forged: list[str]
) -> None:
    identity = parse(f"0::/user.slice/user-{uid}.slice/{'/'.join(middle)}{''.join(forged)}\n")
    assert identity.pod_uid is None
    assert identity.job_id is None
    assert identity.machine is None
    assert identity.uid == uid
    assert identity.kind == "user" or (
        identity.rootless and identity.kind in ("docker", "podman", "containerd")
    )


@pytest.mark.parametrize("service", ["jupyter-kubert-1.service", "agent@k3s.service"])
@pytest.mark.parametrize("forged", FORGED)
def test_a_service_that_runs_nothing_for_others_is_nobody_else(service: str, forged: str) -> None:
    found = parse(f"0::/system.slice/{service}{forged}\n")
    # Podman's containers may live below any service.
    own = ("podman", OTHER, None) if "libpod" in forged else ("systemd", None, service)
    assert (found.kind, found.container_id, found.unit) == own
    assert found.pod_uid is None


@pytest.mark.parametrize("engine", ["containerd", "kubelet", "k3s-agent", "snap.microk8s.daemon-kubelite"])
def test_pods_below_the_service_that_runs_them(engine: str) -> None:
    assert parse(f"0::/system.slice/{engine}.service{POD}\n").pod_uid == UID


@given(st.sampled_from(CASES), st.integers(1, 6))
def test_steps_up_change_nothing_but_their_number(case: Case, up: int) -> None:
    """F27: what is seen from a cgroup namespace of our own."""
    content = case.content
    identity = parse(content)
    if identity.relative or identity.kind != "pod" or identity.within or identity.conflict:
        return
    text = "\n".join(
        ":".join((*line.split(":", 2)[:2], "/.." * up + line.split(":", 2)[2]))
        for line in content.splitlines()
    )
    assert owner(parse(text)) == owner(identity)
    assert parse(text).relative == up


@given(st.sampled_from(CASES))
def test_the_nodes_own_cgroup_is_no_container(case: Case) -> None:
    content = case.content
    identity = parse(content)
    if identity.relative:
        return
    base = f"/docker/{HEX}"
    text = "\n".join(
        ":".join((*line.split(":", 2)[:2], base + line.split(":", 2)[2])) if line.count(":") >= 2 else line
        for line in content.splitlines()
    )
    assert parse(text, base=base) == identity


def test_the_order_of_lines_does_not_matter() -> None:
    for case in CASES:
        backwards = "\n".join(reversed(case.content.splitlines()))
        assert owner(parse(backwards)) == owner(parse(case.content))


@pytest.mark.parametrize(
    "segment",
    [
        "kubepods",
        f"pod{UID}",
        "x-kubepods-",
        "buildkit",
        "a.slice:b:c",
        HEX,
        f"docker-{HEX}.scope",
        "e" * 32 + "/" + "e" * 32 + "-1",
        r"machine-\x2d\x2d\x2d",
        "job_1",
        "user-1.slice",
        "jobid",
        "-pod" * 50,
        ":",
        "..",
        " (deleted)",
    ],
)
def test_four_times_the_text_takes_about_four_times_the_time(segment: str) -> None:
    for head in ("/", "/user.slice/", "/../", "/ecs/", "/x/"):
        texts = ["0::" + head + (segment + "/") * (n // len(segment)) for n in (16_000, 64_000)]
        assert any(_keeps_pace(*texts) for _ in range(5)), "not once, though others use the machine too"


def _keeps_pace(short: str, long: str) -> bool:
    """Whether the long text costs not much more for its length; a quadratic parser would take 16 times."""
    return _cpu_seconds(long) < 10 * _cpu_seconds(short) + 0.01


def _cpu_seconds(text: str) -> float:
    began = time.process_time()
    parse(text)
    parse(text.replace("/", "\n0::/"))
    return time.process_time() - began


def test_our_own_pod_is_where_a_sibling_runs() -> None:
    for folder in (HEX, f"cri-containerd-{HEX}.scope", f"crio-{HEX}.scope", f"docker-{HEX}.scope"):
        identity = parse(f"0::/../{folder}\n", own_pod=UID)
        assert (identity.kind, identity.pod_uid, identity.container_id) == ("pod", UID, HEX)
    assert parse(f"0::/../../{HEX}\n", own_pod=UID).pod_uid is None


@pytest.mark.parametrize("folder", ["", "/burstable", "/besteffort"])
def test_a_pod_in_a_relative_path_is_first_or_below_its_class(folder: str) -> None:
    """F27: only there is it the kubelet's own folder; whoever has a unit can make such folders below it."""
    for up in (1, 2, 3):
        identity = parse(f"0::{'/..' * up}{folder}/pod{UID}/{HEX}\n")
        assert (identity.kind, identity.pod_uid, identity.container_id) == ("pod", UID, HEX)
    for unit in ("/system.slice/job.service", "/job.service", "/job.service/burstable", "/x"):
        identity = parse(f"0::/../../../..{unit}{folder}/pod{UID}/{HEX}\n")
        assert identity.pod_uid is None


def test_a_pod_inside_a_container_says_so() -> None:
    assert parse(f"0::{POD}\n").within is None
    assert parse(f"0::/docker/{OTHER}{POD}\n").within == f"docker:{OTHER}"
    assert parse(f"0::/docker/{OTHER}{POD}\n", base=f"/docker/{OTHER}").within is None
    assert parse(f"0::/lxc.payload.node1{POD}\n").within == "lxc:node1"


def test_lines_that_contradict_each_other_name_nobody() -> None:
    two_pods = parse(f"2:memory:{POD}\n1:cpu:/kubepods/pod{VICTIM}/{OTHER}\n")
    assert as_expect(two_pods) == {"kind": "pod", "pod_uid": None, "container_id": None, "conflict": True}
    two_containers = parse(f"2:memory:/docker/{HEX}\n0::/docker/{OTHER}\n")
    assert (two_containers.container_id, two_containers.conflict) == (None, True)
    two_jobs = parse("2:memory:/slurm/uid_1/job_1/step_0\n1:cpu:/slurm/uid_1/job_2/step_0\n")
    assert (two_jobs.kind, two_jobs.job_id, two_jobs.conflict) == ("slurm", None, True)


def test_lines_of_two_users_name_nobody() -> None:
    session = "0::/user.slice/user-1.slice\n1:name=systemd:/user.slice/user-{}.slice/session-1.scope\n"
    assert (parse(session.format(1)).uid, parse(session.format(1)).conflict) == (1, None)
    assert as_expect(parse(session.format(2))) == {
        "kind": "user",
        "pod_uid": None,
        "container_id": None,
        "conflict": True,
    }
    for folder in (f"docker-{HEX}.scope", "session-1.scope"):
        rootless = f"0::/user.slice/user-1.slice/docker-{HEX}.scope\n"
        rootless += f"1:cpu:/user.slice/user-{{}}.slice/{folder}\n"
        assert (parse(rootless.format(1)).container_id, parse(rootless.format(1)).conflict) == (HEX, None)
        assert (parse(rootless.format(2)).container_id, parse(rootless.format(2)).conflict) == (None, True)
    job = "2:memory:/slurm/uid_1/job_1\n0::/user.slice/user-1.slice\n1:cpu:/user.slice/user-2.slice\n"
    assert (parse(job).job_id, parse(job).conflict) == ("1", None)


def test_a_users_line_does_not_outdo_a_job() -> None:
    text = f"3:memory:/slurm/uid_7/job_5/step_0\n0::/user.slice/user-7.slice/docker-{HEX}.scope\n"
    assert (parse(text).kind, parse(text).job_id) == ("slurm", "5")


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        (f"/libpod_parent/{OTHER}/libpod-{HEX}", "podman", HEX),
        ("/torque/77.head", "torque", "77.head"),
        ("/pbs_jobs.service/jobid/12[3].pbs", "pbs", "12[3].pbs"),
        ("/slurm_n1/uid_5/job_6", "slurm", "6"),
        ("/garden/6f265890-5165-7fab-6b52-18d1", "garden", "6f265890-5165-7fab-6b52-18d1"),
        ("/default/redis-1", "containerd", "redis-1"),
        ("/machine/web.libvirt-qemu", "vm", "web"),
        (f"/nomad/share/{UID}.web", "nomad", UID),
        ("/lxc.monitor/web", "host", None),
        (f"/system.slice/crio-conmon-{HEX}.scope", "host", None),
        (f"/kubepods/pod{UID}/crio-conmon-{HEX}", "pod", None),
        (f"/user.slice/user-5.slice/user@5.service/libpod-conmon-{HEX}.scope", "user", None),
        ("/system.slice/jupyter.service/sshd.service", "systemd", "jupyter.service"),
    ],
)
def test_forms_that_the_corpus_does_not_have(path: str, kind: str, name: str | None) -> None:
    got = parse(f"0::{path}\n")
    known = got.container_id or got.job_id or got.machine or got.alloc_id
    assert got.kind == kind
    assert (known or (got.unit if kind == "systemd" else None)) == name
    assert kind not in ("host", "user") or got.role == "monitor"


def test_a_cgroup_of_podmans_pod() -> None:
    assert parse(f"0::/libpod_parent/{OTHER}/libpod-{HEX}\n").podman_pod == OTHER


def test_where_a_node_begins() -> None:
    assert node_base("0::/init.scope\n") == ""
    assert node_base(f"3:cpu:/docker/{HEX}\n1:name=systemd:/docker/{HEX}/init.scope\n") == f"/docker/{HEX}"
    assert node_base("0::/../../../init.scope\n") == ""
    assert node_base("garbage") == ""
