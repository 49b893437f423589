"""What a busy second costs each consumer of a GPU, learned from how its power follows its mix; pure.

Over blocks of time, E = sum of watts[c] * busy seconds[c]. Least squares with forgetting, pulled towards the
common mean, never negative, and believed only as far as it explains more than the common mean does.

Busy seconds come from samples, and noise in them would pull all watts together. How noisy they are shows in
what the solution leaves unexplained: that much of the noise that whole samples would have is taken out.

A tick only adds up. Equations are solved after pauses, which grow with what is known and with the consumers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain, repeat
from operator import add, mul
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

Consumer: TypeAlias = Hashable
Vector = Sequence[float]
Matrix = Sequence[Vector]

BLOCK = 3.0
"""Seconds that one equation covers."""
REMEMBER = 1200.0
"""Seconds after which an equation counts for a third."""
SAMPLES_A_SECOND = 6.0
RIDGE = 0.001
DOUBT = 3.0
"""How many times more than chance the watts must explain to be believed by half."""
LOWEST, HIGHEST = 0.1, 10.0
WAVER = 1e-3
"""Part of the squared energy that the power of one and the same work goes up and down."""
MOST_CONSUMERS = 16
SWEEPS = 6
PAUSE = 12.0
"""Seconds between solutions, once there are many equations and as long as there are few consumers."""
FEW_CONSUMERS = 8


class _Sums(NamedTuple):
    """Sums over blocks, the older the less they count; vectors are in the order of the names."""

    products: Matrix = ()
    """Busy seconds x busy seconds of each with those before it and itself."""
    energies: Vector = ()
    """Busy seconds x joules."""
    times: Vector = ()
    squared: float = 0.0
    """Joules x joules."""
    seconds: float = 0.0
    blocks: float = 0.0


class _Block(NamedTuple):
    """What becomes one equation."""

    times: Vector = ()
    energy: float = 0.0
    seconds: float = 0.0


class _Past(NamedTuple):
    """All equations so far."""

    names: Mapping[Consumer, None] = MappingProxyType({})
    sums: _Sums = _Sums()
    full: tuple[_Block, ...] = ()
    """Blocks that are not in the sums yet."""
    open: _Block = _Block()
    pause: float = 0.0
    """Seconds until they are solved again."""
    told: Sequence[Consumer] = ()
    """Of whom the newest reading told."""
    at: Sequence[int] = ()
    """Where each of the names is among them; one after the last for those who are not."""


class Intensity(NamedTuple):
    """What one GPU taught so far."""

    watts: Mapping[Consumer, float] = MappingProxyType({})
    """Learned watts of a busy second, before doubt."""
    mean_watts: float = 0.0
    trust: float = 0.0
    noise: float = 0.0
    """How noisy the samples are: 0 = true shares, 1 = whole samples six times a second."""
    past: _Past = _Past()

    def weight(self, consumer: Consumer) -> float:
        """Watts of its busy second, as far as they are believed; relative to others of this GPU."""
        learned = self.watts.get(consumer, self.mean_watts)
        return self.mean_watts + self.trust * (learned - self.mean_watts)


def learn(
    before: Intensity, consumers: Sequence[Consumer], busy: Vector, energy: float, seconds: float
) -> Intensity:
    """One more reading: consumers, each once, their busy seconds, and joules above idle of the GPU."""
    watts, mean, trust, noise, past = before
    names, sums, full, (times, joules, lasted), pause, told, at = past
    if told != consumers:
        names, at = _meet(names, consumers)
    seconds_of = [*busy, 0.0]
    more = [seconds_of[n] for n in at]
    block = _Block([*map(add, chain(times, repeat(0.0)), more)], joules + energy, lasted + seconds)
    if block.seconds >= BLOCK:
        full, block = (*full, block), _Block()
    past = _Past(names, sums, full, block, pause - seconds, consumers, at)
    if past.pause > 0:
        return Intensity(watts, mean, trust, noise, past)
    return _solve(before, _rest(_fold(past), hash((energy, seconds, *sums.energies))))


def _meet(
    names: Mapping[Consumer, None], consumers: Sequence[Consumer]
) -> tuple[Mapping[Consumer, None], list[int]]:
    """The names with newcomers, as many as may be learned, and where each is among the consumers."""
    names = dict.fromkeys([*dict.fromkeys([*names, *consumers])][: max(len(names), MOST_CONSUMERS)])
    places = {consumer: place for place, consumer in enumerate(consumers)}
    return names, [places.get(name, len(consumers)) for name in names]


def freeze(known: Intensity, kind: type) -> dict[str, Any]:
    """What was learned of consumers of one kind, as plain data; others mean nothing after a restart."""
    past = _fold(known.past)
    past = _pick(past, [n for n, name in enumerate(_solvable(past)) if isinstance(name, kind)])
    return {
        "names": list(past.names),
        **past.sums._asdict(),
        "watts": [known.watts.get(name, known.mean_watts) for name in past.names],
        "mean_watts": known.mean_watts,
        "trust": known.trust,
        "noise": known.noise,
    }


def thaw(frozen: Mapping[str, Any], name: Callable[[Any], Consumer]) -> Intensity:
    """What `freeze` made of it, now or when it still wrote all of the noise."""
    names = [name(parts) for parts in frozen["names"]]
    if "noises" in frozen:
        frozen = {**frozen, **_without_noises(frozen["products"], frozen["noises"], frozen["blocks"])}
    sums = _Sums(**{key: frozen[key] for key in _Sums._fields})
    watts = dict(zip(names, frozen["watts"], strict=True))
    past = _rest(_Past(dict.fromkeys(names), sums, at=[0] * len(names)), hash(tuple(sums.energies)))
    return Intensity(watts, frozen["mean_watts"], frozen["trust"], frozen["noise"], past)


def _without_noises(products: Matrix, noises: Matrix, blocks: float) -> dict[str, Any]:
    """The noise of whole samples is what busy seconds and the length of a block make it."""
    return {
        "products": [row[: n + 1] for n, row in enumerate(products)],
        "times": [
            SAMPLES_A_SECOND * noise[n] + row[n] / BLOCK
            for n, (row, noise) in enumerate(zip(products, noises, strict=True))
        ],
        "seconds": BLOCK * blocks,
    }


def _fold(past: _Past) -> _Past:
    """Full blocks added to the sums, without those who have not been busy for long."""
    if not past.full:
        return past
    sums, size = past.sums, len(past.names)
    keep = math.exp(-sum(block.seconds for block in past.full) / REMEMBER)
    columns = list(zip(*(_pad(block.times, size) for block in past.full), strict=True))
    joules = [block.energy for block in past.full]
    worked = [block for block in past.full if any(block.times)]
    products = [
        [keep * x + sum(map(mul, column, other)) for x, other in zip(row, columns, strict=False)]
        for row, column in zip(_grow(sums.products, size), columns, strict=True)
    ]
    added = _Sums(
        products,
        [
            keep * x + _dot(column, joules)
            for x, column in zip(_pad(sums.energies, size), columns, strict=True)
        ],
        [keep * x + sum(column) for x, column in zip(_pad(sums.times, size), columns, strict=True)],
        keep * sums.squared + sum(block.energy**2 for block in worked),
        keep * sums.seconds + sum(block.seconds for block in worked),
        keep * sums.blocks + len(worked),
    )
    stay = [n for n, row in enumerate(products) if row[n] > 1e-3 or any(columns[n])]
    folded = past._replace(sums=added, full=())
    return folded if len(stay) == size else _pick(folded, stay)


def _pad(vector: Vector, size: int) -> Vector:
    return vector if len(vector) == size else [*vector, *[0.0] * (size - len(vector))]


def _grow(triangle: Matrix, size: int) -> Matrix:
    return [*triangle, *([0.0] * (n + 1) for n in range(len(triangle), size))]


def _pick(past: _Past, stay: Sequence[int]) -> _Past:
    names, sums, times = list(past.names), past.sums, _pad(past.open.times, len(past.names))
    return past._replace(
        names=dict.fromkeys(names[n] for n in stay),
        sums=sums._replace(
            products=[[sums.products[a][b] for b in stay if b <= a] for a in stay],
            energies=[sums.energies[n] for n in stay],
            times=[sums.times[n] for n in stay],
        ),
        open=past.open._replace(times=[times[n] for n in stay]),
        told=(),
        at=[0] * len(stay),
    )


def _solvable(past: _Past) -> list[Consumer]:
    """Those who are in an equation; newer ones come after them."""
    return list(past.names)[: len(past.sums.times)]


def _rest(past: _Past, number: int) -> _Past:
    """A pause as long as little changes, and of a length of its own, lest all GPUs be solved in one tick."""
    size, blocks = len(past.names), past.sums.blocks
    settled = PAUSE * max(1.0, (size / FEW_CONSUMERS) ** 2)
    pause = max(2 * BLOCK, min(settled, blocks * size / MOST_CONSUMERS), BLOCK * (size + 1 - blocks))
    return past._replace(pause=pause * (0.75 + number % 128 / 256))


def _solve(known: Intensity, past: _Past) -> Intensity:
    """What the equations say, starting from what was known."""
    sums, names = past.sums, _solvable(past)
    size = len(names)
    rows = [[*row, *(below[n] for below in sums.products[n + 1 :])] for n, row in enumerate(sums.products)]
    squares = sum(map(sum, rows))
    mean = max(0.0, sum(sums.energies) / (squares or 1.0))
    if size < 2 or sums.blocks <= size:
        return Intensity(known.watts, mean, 0.0, known.noise, past)
    watts = _descend(rows, sums, mean, known.noise, [known.watts.get(name, mean) for name in names])
    alike = _judge(sums, [mean] * size, mean * mean * squares)
    found = _judge(sums, watts, _dot(watts, [_dot(row, watts) for row in rows]))
    gain = (alike.left - known.noise * alike.sampled - found.left + known.noise * found.sampled) / (size - 1)
    learned = dict(zip(names, watts, strict=True))
    return Intensity(learned, mean, _trust(gain, found, sums, size), _noise(found, sums), past)


def _descend(rows: Matrix, sums: _Sums, mean: float, noise: float, start: Vector) -> list[float]:
    """Coordinate descent: each consumer in turn takes what the others leave."""
    per_time = noise / SAMPLES_A_SECOND
    per_product = 1 + per_time * sums.blocks / sums.seconds
    less = [per_time * time for time in sums.times]
    own = [per_product * row[n] - less[n] for n, row in enumerate(rows)]
    pull = RIDGE * sum(own) / len(own)
    lowest, highest = LOWEST * mean, HIGHEST * mean
    turns = [
        (n, row, energy + pull * mean, lessened - pull, self + pull)
        for n, (row, energy, lessened, self) in enumerate(zip(rows, sums.energies, less, own, strict=True))
        if self + pull > 0
    ]
    watts = [w if self + pull > 0 else mean for w, self in zip(start, own, strict=True)]
    for _ in range(SWEEPS):
        for n, row, wanted, kept, steep in turns:
            now = watts[n]
            best = now + (wanted - per_product * sum(map(mul, row, watts)) + kept * now) / steep
            watts[n] = lowest if best < lowest else highest if best > highest else best
    return watts


class _Judged(NamedTuple):
    """Squared joules that some watts leave unexplained, and those that whole samples would."""

    left: float
    sampled: float


def _judge(sums: _Sums, watts: Vector, form: float) -> _Judged:
    own = _dot(sums.times, [w * w for w in watts])
    sampled = (own - form * sums.blocks / sums.seconds) / SAMPLES_A_SECOND
    return _Judged(sums.squared - 2 * _dot(watts, sums.energies) + form, sampled)


def _trust(gain: float, found: _Judged, sums: _Sums, size: int) -> float:
    """How much better the learned watts explain the energy than the mean does, beyond what chance would."""
    left = max(found.left, WAVER * sums.squared) / (sums.blocks - size)
    ratio = max(0.0, gain / left) if left > 0 else 0.0
    return ratio / (ratio + DOUBT)


def _noise(found: _Judged, sums: _Sums) -> float:
    """How much of the noise of whole samples would explain what is left, beyond what power itself wavers."""
    left = found.left - WAVER * sums.squared
    return min(1.0, left / found.sampled) if left > 0 and found.sampled > left * 0.5 else 0.0


def _dot(one: Vector, other: Vector) -> float:
    return float(sum(map(mul, one, other)))
