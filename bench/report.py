"""The figures as tables for a terminal, and whether the targets are met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.daemon import GPUTALLY, NVITOP, WITH_KUBERNETES
from bench.measure import HOUR, SCRAPES_AN_HOUR, Cost
from bench.node import GPUS

MIB = 2**20
TIMES_CHEAPER = 25
MOST_RESIDENT = 45 * MIB
MOST_SAG = 0.15
"""How far the middle may hang below a straight line, of the whole growth; of a square it hangs 0.22 at 64."""
WIDTH = 46


@dataclass(frozen=True)
class Row:
    """One figure of every run."""

    text: str
    value: Callable[[Cost], float | None]
    shape: str = ".2f"


ROWS = (
    Row("CPU of an hour (s)", lambda c: c.cpu_hour, ".1f"),
    Row("CPU of one tick (ms)", lambda c: None if c.cpu_tick is None else c.cpu_tick * 1e3),
    Row("CPU of one publication, beyond its tick (ms)", lambda c: c.cpu_publication * 1e3),
    Row("CPU of one scrape (ms)", lambda c: c.cpu_scrape * 1e3),
    Row("CPU of all three (ms)", lambda c: c.cpu_round * 1e3),
    Row("resident memory (MiB)", lambda c: c.resident_bytes / MIB, ".1f"),
    Row("start to first scrape (s)", lambda c: c.start_seconds),
    Row("samples of a scrape", lambda c: c.samples, ",d"),
    Row("bytes of a scrape", lambda c: c.text_bytes, ",d"),
    Row("bytes of it on the wire, gzip", lambda c: c.wire_bytes, ",d"),
    Row("workloads or processes told apart", lambda c: c.workloads, ",d"),
    Row("NVML calls of a tick", lambda c: c.calls_tick, ".0f"),
    Row("NVML calls of a tick that is published", lambda c: c.calls_publication, ".0f"),
    Row("collections read", lambda c: c.readings, ",d"),
)

GROWTH = (
    Row("CPU of one tick (µs)", lambda c: None if c.cpu_tick is None else c.cpu_tick * 1e6),
    Row("CPU of one publication, beyond its tick (µs)", lambda c: c.cpu_publication * 1e6),
    Row("CPU of one scrape (µs)", lambda c: c.cpu_scrape * 1e6),
    Row("CPU of all three (µs)", lambda c: c.cpu_round * 1e6),
    Row("resident memory (KiB)", lambda c: c.resident_bytes / 1024),
    Row("samples of a scrape", lambda c: c.samples),
    Row("bytes of a scrape", lambda c: c.text_bytes, ".0f"),
)

NOTES = f"""\
gputally: ticks of 1 s, published each 5 s. nvitop-exporter: every collection, each 1 s, is published.
CPU figures are means of all rounds, read from the kernel's CPU clock of the process; those of an hour are
extrapolated from them, with a scrape each {HOUR // SCRAPES_AN_HOUR} s. The fake NVML answers at once: what
a driver's own work costs comes on top, in proportion to the NVML calls."""


def report(costs: Sequence[Cost], without: str = "") -> str:
    """All there is to say about a run; `without` is why there are no figures with Kubernetes."""
    ours, theirs, pods = (
        [cost for cost in costs if cost.program == program.name]
        for program in (GPUTALLY, NVITOP, WITH_KUBERNETES)
    )
    targets = [*_targets(ours, theirs), *_kubernetes_targets(ours, theirs, pods, without)]
    return "\n".join([*_table([*ours, *pods], theirs), *_growth(ours, theirs), *targets, "", NOTES])


def _table(ours: Sequence[Cost], theirs: Sequence[Cost]) -> Iterator[str]:
    yield ""
    yield _line(f"{GPUS} GPUs", [GPUTALLY.name], [NVITOP.name], 10 * len(ours))
    yield _line("processes, all busy", _heads(ours), _heads(theirs))
    for row in ROWS:
        yield _line(row.text, _shown(row, ours), _shown(row, theirs))
    rounds = {cost.processes: cost.cpu_round for cost in theirs}
    ratios = [f"1/{rounds[own.processes] / own.cpu_round:.1f}" for own in ours]
    yield _line("gputally's CPU of all three, of theirs", ratios, [])


def _heads(costs: Sequence[Cost]) -> list[str]:
    return [f"{c.processes} pods" if c.program == WITH_KUBERNETES.name else str(c.processes) for c in costs]


def _growth(ours: Sequence[Cost], theirs: Sequence[Cost]) -> Iterator[str]:
    if len(ours) < 2:
        return
    spans = [f"{few.processes}-{many.processes}" for few, many in _steps(ours)]
    yield ""
    yield _line("growth per process, between", spans, spans)
    for row in GROWTH:
        yield _line(row.text, _slopes_shown(row, ours), _slopes_shown(row, theirs))


def _targets(ours: Sequence[Cost], theirs: Sequence[Cost]) -> Iterator[str]:
    own = ours[-1]
    yield ""
    yield f"targets, at {own.processes} processes"
    yield from _cheap_and_small(own, theirs[-1])
    if len(ours) > 1:
        mine, yours = (_slope(lambda c: c.cpu_round, each[0], each[-1]) for each in (ours, theirs))
        yield _verdict(
            mine * TIMES_CHEAPER <= yours,
            f"growth per process small, at most 1/{TIMES_CHEAPER} of nvitop-exporter's: "
            f"{mine * 1e6:.1f} µs of {yours * 1e6:.0f} µs, 1/{yours / mine:.1f}",
        )
    if len(ours) > 2:
        sag = max(_sag(ours[0], middle, own) for middle in ours[1:-1])
        yield _verdict(
            sag <= MOST_SAG,
            f"growth linear, between at most {MOST_SAG:.0%} of it below a straight line: {max(sag, 0.0):.0%}",
        )
    if own.workloads < own.processes:
        yield f"  note: these {own.processes} processes count as {own.workloads} workloads here"


def _kubernetes_targets(
    ours: Sequence[Cost], theirs: Sequence[Cost], pods: Sequence[Cost], without: str
) -> Iterator[str]:
    yield ""
    if not pods:
        yield f"with Kubernetes: not measured. {without}".rstrip()
        return
    plain, own = ours[-1], pods[-1]
    yield f"targets, with {own.processes} processes in as many pods"
    yield from _cheap_and_small(own, theirs[-1])
    yield (
        f"  note: Kubernetes adds {(own.cpu_hour - plain.cpu_hour) / HOUR * 1e3:.2f} ms of CPU a second and "
        f"{(own.resident_bytes - plain.resident_bytes) / MIB:.1f} MiB"
    )


def _cheap_and_small(own: Cost, other: Cost) -> Iterator[str]:
    times = other.cpu_round / own.cpu_round
    wanted = other.cpu_round / TIMES_CHEAPER * 1e3
    yield _verdict(
        times >= TIMES_CHEAPER,
        f"tick + publication + scrape at most 1/{TIMES_CHEAPER} of nvitop-exporter's collection + scrape: "
        f"1/{times:.1f} ({own.cpu_round * 1e3:.2f} ms; {wanted:.2f} ms would do)",
    )
    yield _verdict(
        own.resident_bytes <= MOST_RESIDENT,
        f"resident memory at most {MOST_RESIDENT // MIB} MiB: {own.resident_bytes / MIB:.1f} MiB",
    )


def _verdict(met: bool, text: str) -> str:
    return f"  {'met   ' if met else 'missed'}  {text}"


def _steps(costs: Sequence[Cost]) -> list[tuple[Cost, Cost]]:
    return list(pairwise(costs))


def _slope(value: Callable[[Cost], float], few: Cost, many: Cost) -> float:
    return (value(many) - value(few)) / (many.processes - few.processes)


def _sag(few: Cost, middle: Cost, many: Cost) -> float:
    """How much less the middle costs than a straight line says, as a part of the growth."""
    growth = many.cpu_round - few.cpu_round
    straight = (middle.processes - few.processes) / (many.processes - few.processes) * growth
    return (few.cpu_round + straight - middle.cpu_round) / growth


def _slopes_shown(row: Row, costs: Sequence[Cost]) -> list[str]:
    if row.value(costs[0]) is None:
        return ["-"] * (len(costs) - 1)
    return [format(_slope(lambda c: row.value(c) or 0.0, *step), row.shape) for step in _steps(costs)]


def _shown(row: Row, costs: Sequence[Cost]) -> list[str]:
    values = [row.value(cost) for cost in costs]
    return ["-" if value is None else format(value, row.shape) for value in values]


def _line(text: str, ours: Sequence[str], theirs: Sequence[str], width: int = 10) -> str:
    cells = ["".join(f"{cell:>{width}}" for cell in side) for side in (ours, theirs)]
    return f"{text:<{WIDTH}}{cells[0]}   {cells[1]}".rstrip()
