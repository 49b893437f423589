"""Protobuf by tables: any bytes in, fields or Unreadable out; what a real kubelet sent, read right."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.machine.messages import ANSWERS, LIST, LIST_PODS, POD, PODS, trimmed
from gputally.machine.wire import as_mapping, as_pairs, decode, encode, number, one, pairs, text, texts
from gputally.model import Unreadable

KUBELET = Path(__file__).parent.parent / "data" / "kubelet"
SAMPLE = {1: text("a"), 2: texts("b"), 3: number("c"), 4: pairs("d"), 16: one("e", {1: text("f")})}


@given(
    st.text(), st.lists(st.text()), st.integers(0, 2**63), st.dictionaries(st.text(), st.text()), st.text()
)
def test_what_is_written_is_read(a: str, b: list[str], c: int, d: dict[str, str], f: str) -> None:
    sent = {"a": a, "b": b, "c": c, "d": as_pairs(d), "e": {"f": f}}
    clean = {**sent, "a": a.encode("utf-8", "replace").decode()}
    read = decode(encode(clean, SAMPLE), SAMPLE)
    assert read == clean
    assert as_mapping(read["d"]) == d


@given(st.binary(max_size=300), st.sampled_from(sorted(ANSWERS)))
def test_any_bytes_are_fields_or_unreadable(data: bytes, method: str) -> None:
    with suppress(Unreadable):
        decode(data, ANSWERS[method])


def test_a_number_without_end_and_a_length_past_the_end_are_refused() -> None:
    for data in (b"\x0a", b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x7f", b"\x0b\x0c", b"\x0d\x01"):
        with pytest.raises(Unreadable):
            decode(data, LIST)


@pytest.mark.parametrize(
    "path", sorted(KUBELET.rglob("podresources_v1*_List.bin")), ids=lambda p: p.parent.name
)
def test_a_real_kubelets_list_says_what_its_text_form_says(path: Path) -> None:
    words = path.with_suffix(".txt").read_text()
    read = decode(path.read_bytes(), LIST)["pod_resources"]
    containers = [container for pod in read for container in pod["containers"]]
    ids = [i for c in containers for d in c["devices"] for i in d["device_ids"]]
    claimed = [
        r["device_name"] for c in containers for d in c["dynamic_resources"] for r in d["claim_resources"]
    ]
    assert ids == re.findall(r'device_ids: "(.*)"', words)
    assert claimed == re.findall(r'device_name: "(.*)"', words)
    assert [pod["namespace"] for pod in read] == re.findall(r'  namespace: "(.*)"', words)


def test_a_recording_keeps_no_secret_of_a_pod() -> None:
    spec = {1: text("secret")}
    full = {**POD, 2: one("spec", spec)}
    notes = as_pairs(
        {"kubectl.kubernetes.io/last-applied-configuration": "canary", "kubernetes.io/config.hash": "x"}
    )
    pod = encode({"metadata": {"name": "a", "annotations": notes}, "spec": {"secret": "canary"}}, full)
    answer = b"\x0a" + bytes([len(pod) & 0x7F | 0x80, len(pod) >> 7]) + pod
    assert b"canary" in answer
    kept = trimmed(LIST_PODS, answer)
    assert b"canary" not in kept
    assert decode(kept, PODS)["pods"][0]["metadata"]["annotations"] == [
        {"key": "kubernetes.io/config.hash", "value": "x"}
    ]
