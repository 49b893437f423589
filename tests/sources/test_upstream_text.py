"""Another exporter's text: read strictly, joined with the pods on its GPUs, and otherwise left as it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families as plain

from gputally.foreign import ForeignFamily
from gputally.joined import with_pods
from gputally.model import Device, Grant, Holder, Instance, Owner, Process, ProcessKey, Snapshot, Unreadable
from gputally.outputs.foreign import write
from gputally.sources.upstream import named
from gputally.sources.upstream_gpus import local
from gputally.sources.upstream_text import LONGEST_LINE, MOST_LABELS, MOST_SAMPLES, read_text

DATA = Path(__file__).parent.parent / "data" / "dcgm-exporter"
G0, G1 = (f"GPU-{n}0000000-1111-2222-3333-444444444444" for n in (1, 2))
NODE = (Device(G0, 0), Device(G1, 1))
A, B = Owner("pod", "ml", "a", "main"), Owner("pod", "ml", "b", "main")


def openmetrics(text: str) -> list[Metric]:
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def families(text: str) -> tuple[ForeignFamily, ...]:
    return read_text(text.encode(), 0)[0]


def shown(text: str, *grants: Grant, names: tuple[str, str, str] = ("pod", "namespace", "container")) -> str:
    foreign, _ = local(families(text), NODE)
    return write(with_pods(Snapshot(0, 0, NODE, grants=grants, foreign=foreign), names)).plain.decode()


@pytest.mark.parametrize("name", ["devices.prom", "kubernetes-8-pods.prom"])
def test_what_a_real_dcgm_exporter_wrote_comes_out_byte_for_byte(name: str) -> None:
    page = (DATA / name).read_bytes()
    read, losses = read_text(page, 0)
    kept, refused = local(read, named(read))
    text = write(kept)
    assert not losses.samples
    assert not refused.samples
    assert text.plain == page
    told = [s for family in plain(text.plain.decode()) for s in family.samples]
    again = [s for family in openmetrics(text.openmetrics.decode()) for s in family.samples]
    assert len(told) == len(again) == text.samples > 50


def test_pods_of_granted_gpus_are_added_and_nothing_else_changes() -> None:
    text = (
        "# HELP t Temp, in \\\\ C.\n# TYPE t gauge\n"
        f't{{gpu="0",uuid="{G0}"}} 3.100000e+01\nt{{gpu="1",uuid="{G1}"}} 0x1\n'
    ).replace("0x1", "+07")
    expected = text.replace(f'"{G0}"}}', f'"{G0}",pod_name="a",pod_namespace="ml",container_name="main"}}')
    assert shown(text, Grant(A, G0), names=("pod_name", "pod_namespace", "container_name")) == expected
    assert shown(text) == text


@pytest.mark.parametrize(
    "labels",
    [f'uuid="{G0}"', f'UUID="{G0}"', f'UUID="{G0.upper().replace("GPU", "gpu")}"', 'gpu="0"', f'gpu="{G0}"'],
)
def test_a_gpu_is_known_by_uuid_or_index(labels: str) -> None:
    assert 'pod="a"' in shown(f"t{{{labels}}} 1\n", Grant(A, G0))


def test_a_gpu_that_two_pods_have_is_nobodys_and_shown_once() -> None:
    text = f't{{gpu="0",uuid="{G0}"}} 1\n'
    assert shown(text, Grant(A, G0), Grant(B, G0)) == text


def test_two_containers_of_one_pod_are_one_pod() -> None:
    other = A._replace(container="sidecar")
    assert 'pod="a",namespace="ml",container=""' in shown(
        f't{{uuid="{G0}"}} 1\n', Grant(A, G0), Grant(other, G0)
    )


def test_whoever_is_on_a_gpu_that_is_granted_to_nobody() -> None:
    process = Process(ProcessKey(7, 1), "train", "0::/")
    devices = (Device(G0, 0, holders=(Holder(7, None),)),)
    foreign, _ = local(families('t{gpu="0"} 1\n'), devices)
    for owner, expected in ((A, True), (Owner("docker", container="x"), False)):
        snapshot = Snapshot(0, 0, devices, {7: process}, {process.key: owner}, foreign=foreign)
        assert (b'pod="a"' in write(with_pods(snapshot)).plain) is expected


def test_series_that_say_whose_they_are_are_left_alone() -> None:
    text = f't{{uuid="{G0}",pod="other",namespace="",container=""}} 1\n'
    assert shown(text, Grant(A, G0)) == text
    filled = shown(f't{{uuid="{G0}",pod="",namespace="",container="",x="y"}} 1\n', Grant(A, G0))
    assert filled == f't{{uuid="{G0}",pod="a",namespace="ml",container="main",x="y"}} 1\n'


def test_a_mig_instance_has_its_own_pod() -> None:
    instances = (Instance("MIG-a", 1, 0), Instance("MIG-b", 2, 0))
    devices = (Device(G0, 0, instances=instances),)
    text = f't{{UUID="{G0}",GPU_I_ID="1"}} 1\nt{{UUID="{G0}",GPU_I_ID="2"}} 2\nt{{uuid="MIG-b"}} 3\n'
    foreign, _ = local(families(text), devices)
    grants = (Grant(A, G0, "MIG-a"), Grant(B, G0, "MIG-b"))
    lines = (
        write(with_pods(Snapshot(0, 0, devices, grants=grants, foreign=foreign))).plain.decode().splitlines()
    )
    assert ["a" if 'pod="a"' in line else "b" for line in lines] == ["a", "b", "b"]


def test_series_of_other_gpus_are_refused_and_counted() -> None:
    text = (
        f't{{uuid="{G0}"}} 1\nt{{uuid="GPU-elsewhere"}} 1\nt{{gpu="9"}} 1\ngo_goroutines 9\nt{{uuid="0"}} 1\n'
    )
    kept, losses = local(families(text), NODE)
    assert [len(family.samples) for family in kept] == [1]
    assert losses.samples == {"upstream_foreign_gpu": 3, "upstream_without_gpu": 1}
    assert local(families(text), ())[0] == ()


def test_labels_are_escaped_as_ours_are() -> None:
    value = 'a\\b"c\nd}e{f,g=h'
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    text = f't{{uuid="{G0}",x="{escaped}"}} 1\n'
    assert dict(families(text)[0].samples[0].labels)["x"] == value
    assert shown(text) == text


def test_numbers_that_are_none_or_old_are_dropped_and_counted() -> None:
    text = 't{gpu="0"} NaN\nt{gpu="1"} 1 5000\nt{gpu="2"} 1 500000\nt{gpu="3"} +Inf\n'
    found, losses = read_text(text.encode(), 100)
    assert losses.samples == {"upstream_nan": 1, "upstream_old": 1}
    assert [sample.value for sample in found[0].samples] == ["1", "+Inf"]
    assert b"500000" not in write(found).plain, "node_exporter refuses files with timestamps"


def test_equal_series_and_names_that_are_taken_are_left_out() -> None:
    found = families('t{gpu="0",a="b"} 1\nt{a="b",gpu="0"} 2\nours{gpu="0"} 3\n')
    text = write(found, {"ours"})
    assert text.plain == b't{gpu="0",a="b"} 1\n'
    assert text.collisions == 2


def test_histograms_and_summaries_hold_together() -> None:
    text = (
        "# TYPE h histogram\n"
        'h_bucket{gpu="0",le="+Inf"} 2\nh_sum{gpu="0"} 3\nh_count{gpu="0"} 2\n'
        "# TYPE s summary\n"
        's{gpu="0",quantile="0.5"} 2\ns_sum{gpu="0"} 3\ns_count{gpu="0"} 2\n'
        "# TYPE c_total counter\n"
        'c_total{gpu="0"} 3\n'
        "# TYPE c2 counter\n"
        'c2{gpu="0"} 3\n'
    )
    found = families(text)
    assert [family.name for family in found] == ["h", "s", "c_total", "c2"]
    assert write(found).plain.decode() == text
    assert len(list(openmetrics(write(found).openmetrics.decode()))) == 8


@pytest.mark.parametrize(
    "text",
    [
        "<html><body>Not found</body></html>\n",
        '{"error": "no"}\n',
        "t\n",
        "t 1 2 3\n",
        "t{gpu=0} 1\n",
        't{gpu="0"\n',
        't{gpu="0"} one\n',
        't{gpu="0"} 1_0\n',
        't{gpu="0"} ١\n',
        't{gpu="0",gpu="1"} 1\n',
        't{gpu="0" x="1"} 1\n',
        '{"t",gpu="0"} 1\n',
        't{gpu="0"} 1',
        't{gpu="0"} 1 # {trace="x"} 1\n',
        "# TYPE t nonsense\n",
        "t{" + ",".join(f'l{n}="x"' for n in range(MOST_LABELS + 1)) + "} 1\n",
        't{gpu="0",x="' + "y" * LONGEST_LINE + '"} 1\n',
        't{gpu="0"} 1\n' * (MOST_SAMPLES + 1),
        "\x00\x01\x02\n",
    ],
    ids=range(19),
)
def test_a_page_that_is_not_wholly_understood_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(Unreadable, match="upstream: "):
        read_text(text.encode(), 0)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Unreadable, match="UTF-8"):
        read_text(b't{gpu="\xff"} 1\n', 0)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# a comment\n", "# EOF\n", 't{gpu="0",} 1\n', 't {gpu="0"} 1\r\n', "t 1\n"]
)
def test_what_is_plain_text_is_read(text: str) -> None:
    families(text)


def test_a_hard_line_is_read_in_no_time() -> None:
    began = time.process_time()
    for text in (
        't{gpu="' + "\\\\" * 30_000 + "\n",
        "t{" + 'a="' * 20_000 + "\n",
        "t" + " " * 60_000 + "{\n",
    ):
        with pytest.raises(Unreadable):
            families(text)
    assert time.process_time() - began < 5
