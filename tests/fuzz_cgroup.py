"""Fuzz target of the cgroup parser: `python -m tests.fuzz_cgroup [SECONDS]`.

With atheris installed it is led by coverage; without, by splicing the corpus. Either way it ends.
"""

from __future__ import annotations

import random
import sys
import time

from gputally.owners.cgroup import CONTAINERS, JOBS, parse
from gputally.owners.identity import as_expect
from tests.owners.corpus import CASES

KINDS = {*CONTAINERS, *JOBS, "pod", "systemd", "user", "host"}


def check(raw: bytes) -> None:
    """Whatever the bytes are, there is an identity, soon, and nothing believed under user.slice."""
    text = raw.decode("utf-8", "replace")
    began = time.process_time()
    identity = parse(text)
    assert time.process_time() - began < 5
    assert identity.kind in KINDS
    assert all(not isinstance(v, str) or len(v) <= 256 for v in as_expect(identity).values())
    below = parse("0::/user.slice/user-7.slice/" + text.replace("\n", ""))
    assert (below.pod_uid, below.machine, below.job_id) == (None, None, None)


def splice(seconds: float, seed: int = 1) -> int:
    """Cut and join cases of the corpus for so long; tells how many were tried."""
    chance, tried = random.Random(seed), 0
    pieces = [case.content.encode() for case in CASES]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        one, other = chance.choice(pieces), chance.choice(pieces)
        raw = bytearray(one[: chance.randrange(len(one) + 1)] + other[chance.randrange(len(other) + 1) :])
        for _ in range(chance.randrange(8)):
            if raw:
                raw[chance.randrange(len(raw))] = chance.randrange(256)
        check(bytes(raw))
        tried += 1
    return tried


def main() -> None:
    """Fuzz for so many seconds."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    try:
        import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        print(f"{splice(seconds)} inputs, without atheris")
        return
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds:.0f}", "-max_len=8192"], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
