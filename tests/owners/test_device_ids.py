"""Ids of devices: a table of every form, and any text without an exception (F44)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.model import Device, DeviceInfo, Instance
from gputally.owners.device_ids import Inventory, Target, marks, parse, parse_dra

A, B = "GPU-11111111-2222-3333-4444-555555555555", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
M1, M2 = "MIG-99999999-8888-7777-6666-555555555555", "MIG-00000000-8888-7777-6666-555555555555"
NODE = Inventory(
    (
        # The order of NVML and that of /dev/nvidiaN need not agree.
        Device(A, 0, info=DeviceInfo(minor_number="1")),
        Device(
            B,
            1,
            info=DeviceInfo(minor_number="0"),
            instances=(Instance(M1, 3, 0, "3g.40gb"), Instance(M2, 7, 0, "1g.10gb")),
        ),
    )
)


@pytest.mark.parametrize(
    ("text", "means", "exclusive"),
    [
        (A, Target(A), True),
        (A.upper().replace("GPU", "GPU"), Target(A), True),
        (f"{A}::3", Target(A), False),
        (f"{A}-7", Target(A), False),
        (M1, Target(B, M1), True),
        (f"{M2}::12", Target(B, M2), False),
        (f"MIG-{B}/3/0", Target(B, M1), True),
        (f"MIG-{B}/3/1", None, True),
        ("nvidia0", Target(B), True),
        ("nvidia1", Target(A), True),
        ("nvidia0/vgpu2", Target(B), False),
        ("nvidia0/gi7", Target(B, M2), True),
        ("nvidia0/gi7/vgpu1", Target(B, M2), False),
        ("nvidia9", None, True),
        ("0", Target(A), True),
        ("1::4", Target(B), False),
        ("GPU-99999999-2222-3333-4444-555555555555", None, True),
    ],
)
def test_every_form_means_its_device(text: str, means: Target | None, exclusive: bool) -> None:
    form = parse(text)
    assert form is not None
    assert (form.means(NODE), form.exclusive) == (means, exclusive)


@pytest.mark.parametrize(
    "text", ["", "GPU-", f"{A}::", f"{A}/3", "nvidia", "nvidia0/", "mlx5_0", f" {A}", f"{A}\n", "٣"]
)
def test_a_form_that_nobody_knows_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("gpu-1", Target(A)),
        ("gpu-0", Target(B)),
        ("gpu-5", None),
        ("gpu-0-mig-3g40gb-9-0", Target(B, M1)),
        ("gpu-0-mig-1g-10gb-19-4", Target(B, M2)),
        ("gpu-0-mig-2g20gb-14-0", None),
    ],
)
def test_dra_names_are_minors_and_profiles_where_no_more_is_told(name: str, means: Target | None) -> None:
    form = parse_dra(name)
    assert form is not None
    assert form.means(NODE) == means


def twins(placement_start: int) -> list[Device]:
    """A GPU with two instances of one profile, the second of which begins there."""
    parts = (
        Instance(M1, 7, 0, "1g.10gb", profile_id=19, placement_start=0),
        Instance(M2, 8, 0, "1g.10gb", profile_id=19, placement_start=placement_start),
    )
    return [Device(B, 0, info=DeviceInfo(minor_number="0"), instances=parts)]


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("gpu-0-mig-1g10gb-19-0", Target(B, M1)),
        ("gpu-0-mig-1g10gb-19-1", Target(B, M2)),
        ("gpu-0-mig-1g10gb-19-2", None),
        ("gpu-0-mig-1g10gb-20-0", None),
    ],
)
def test_two_instances_of_one_profile_are_told_apart_by_where_they_lie(
    name: str, means: Target | None
) -> None:
    form = parse_dra(name)
    assert form is not None
    assert form.means(Inventory(twins(placement_start=1))) == means


def test_where_it_is_not_told_where_they_lie_two_of_one_profile_are_not_guessed_between() -> None:
    node = Inventory(
        [
            Device(
                B,
                0,
                info=DeviceInfo(minor_number="0"),
                instances=(Instance(M1, 7, 0, "1g.10gb"), Instance(M2, 8, 0, "1g.10gb")),
            )
        ]
    )
    form = parse_dra("gpu-0-mig-1g10gb-19-0")
    assert form is not None
    assert form.means(node) is None


def test_an_instance_that_lies_elsewhere_is_a_mark() -> None:
    assert marks(twins(placement_start=1)) != marks(twins(placement_start=2))


@given(st.text(max_size=80))
def test_any_text_is_a_device_of_the_node_or_none(text: str) -> None:
    for form in (parse(text), parse_dra(text)):
        target = form.means(NODE) if form else None
        assert target is None or target.uuid in (A, B)
