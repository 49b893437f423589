"""What a busy second costs each consumer of a GPU, learned from how its power follows its mix; pure.

Over blocks of time, E = sum of watts[c] * busy seconds[c]. Least squares with forgetting, pulled towards the
common mean, never negative, and believed only as far as it explains more than the common mean does.

Busy seconds come from samples, and noise in them would pull all watts together. How noisy they are shows in
what the solution leaves unexplained: that much of the noise that whole samples would have is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import mul
from typing import Any, TypeAlias

Consumer: TypeAlias = Hashable
Vector = Sequence[float]
Matrix = Sequence[Vector]

BLOCK = 3.0
"""Seconds that one equation covers."""
REMEMBER = 1200.0
"""Seconds after which an equation counts for a third."""
SAMPLES_A_SECOND = 6.0
RIDGE = 0.003
DOUBT = 3.0
"""How many times more than chance the watts must explain to be believed by half."""
LOWEST, HIGHEST = 0.1, 10.0
WAVER = 1e-3
"""Part of the squared energy that the power of one and the same work goes up and down."""
MOST_CONSUMERS = 16
SWEEPS = 6
SOLVE_AT_LEAST = 30
"""Blocks for which every one is solved at once; later every fourth is enough."""


@dataclass(frozen=True)
class _Sums:
    """Sums over blocks, the older the less they count; vectors and matrices are in the order of `names`."""

    names: tuple[Consumer, ...] = ()
    products: Matrix = ()
    noises: Matrix = ()
    energies: Vector = ()
    squared: float = 0.0
    blocks: float = 0.0


@dataclass(frozen=True)
class Intensity:
    """What one GPU taught so far."""

    watts: Mapping[Consumer, float] = field(default_factory=dict)
    """Learned watts of a busy second, before doubt."""
    mean_watts: float = 0.0
    trust: float = 0.0
    noise: float = 0.0
    """How noisy the samples are: 0 = true shares, 1 = whole samples six times a second."""
    _sums: _Sums = _Sums()
    _busy: Mapping[Consumer, float] = field(default_factory=dict)
    _energy: float = 0.0
    _seconds: float = 0.0
    _unsolved: int = 0

    def weight(self, consumer: Consumer) -> float:
        """Watts of its busy second, as far as they are believed; relative to others of this GPU."""
        learned = self.watts.get(consumer, self.mean_watts)
        return self.mean_watts + self.trust * (learned - self.mean_watts)


def learn(before: Intensity, busy: Mapping[Consumer, float], energy: float, seconds: float) -> Intensity:
    """One more reading: busy seconds of each consumer, and joules above idle of the GPU."""
    block = dict(before._busy)
    for consumer, time in busy.items():
        block[consumer] = block.get(consumer, 0.0) + time
    filled = replace(before, _busy=block, _energy=before._energy + energy, _seconds=before._seconds + seconds)
    return filled if filled._seconds < BLOCK else _close(filled)


def freeze(known: Intensity, kind: type) -> dict[str, Any]:
    """What was learned of consumers of one kind, as plain data; others mean nothing after a restart."""
    sums = _keep(known._sums, [n for n, name in enumerate(known._sums.names) if isinstance(name, kind)], [])
    return {
        **asdict(sums),
        "watts": [known.watts.get(name, known.mean_watts) for name in sums.names],
        "mean_watts": known.mean_watts,
        "trust": known.trust,
        "noise": known.noise,
    }


def thaw(frozen: Mapping[str, Any], name: Callable[[Any], Consumer]) -> Intensity:
    """What `freeze` made of it."""
    names = tuple(name(parts) for parts in frozen["names"])
    parts = {key: frozen[key] for key in ("products", "noises", "energies", "squared", "blocks")}
    watts = dict(zip(names, frozen["watts"], strict=True))
    return Intensity(watts, frozen["mean_watts"], frozen["trust"], frozen["noise"], _Sums(names, **parts))


def _close(full: Intensity) -> Intensity:
    """Turn a full block into an equation, and solve anew."""
    sums = _add_block(_make_room(full._sums, full._busy), full)
    if full._unsolved < 3 and sums.blocks > SOLVE_AT_LEAST:
        return replace(full, _sums=sums, _busy={}, _energy=0.0, _seconds=0.0, _unsolved=full._unsolved + 1)
    mean = max(0.0, sum(sums.energies) / (sum(map(sum, sums.products)) or 1.0))
    clean = [
        [x - full.noise * n for x, n in zip(*rows, strict=True)]
        for rows in zip(sums.products, sums.noises, strict=True)
    ]
    watts = _solve(clean, sums.energies, mean, [full.watts.get(name, mean) for name in sums.names])
    learned = dict(zip(sums.names, watts, strict=True))
    return Intensity(learned, mean, _trust(clean, sums, mean, watts), _noise(sums, watts), sums)


def _make_room(sums: _Sums, busy: Mapping[Consumer, float]) -> _Sums:
    """Without those who have not been busy for long, and with those who are new, as far as there is room."""
    stay = [n for n, name in enumerate(sums.names) if sums.products[n][n] > 1e-3 or name in busy]
    known = [sums.names[n] for n in stay]
    new = [name for name in busy if name not in sums.names][: MOST_CONSUMERS - len(known)]
    if not new and len(known) == len(sums.names):
        return sums
    return _keep(sums, stay, new)


def _keep(sums: _Sums, stay: Sequence[int], new: Sequence[Consumer]) -> _Sums:
    def fit(matrix: Matrix) -> Matrix:
        kept = [[matrix[a][b] for b in stay] + [0.0] * len(new) for a in stay]
        return kept + [[0.0] * (len(stay) + len(new)) for _ in new]

    return replace(
        sums,
        names=(*(sums.names[n] for n in stay), *new),
        products=fit(sums.products),
        noises=fit(sums.noises),
        energies=[sums.energies[n] for n in stay] + [0.0] * len(new),
    )


def _add_block(sums: _Sums, full: Intensity) -> _Sums:
    seconds, energy = full._seconds, full._energy
    keep = math.exp(-seconds / REMEMBER)
    row = [full._busy.get(name, 0.0) for name in sums.names]
    products, noises = [], []
    for n, time in enumerate(row):
        outer = [time * its_time for its_time in row]
        products.append([keep * x + y for x, y in zip(sums.products[n], outer, strict=True)])
        noises.append(
            [keep * x - y / seconds / SAMPLES_A_SECOND for x, y in zip(sums.noises[n], outer, strict=True)]
        )
        noises[n][n] += time / SAMPLES_A_SECOND
    energies = [keep * x + time * energy for x, time in zip(sums.energies, row, strict=True)]
    busy = any(row)
    squared = keep * sums.squared + (energy**2 if busy else 0.0)
    return _Sums(sums.names, products, noises, energies, squared, keep * sums.blocks + busy)


def _solve(products: Matrix, energies: Vector, mean: float, start: Vector) -> list[float]:
    """Coordinate descent from where it was: each consumer in turn takes what the others leave."""
    watts = list(start)
    pull = RIDGE * sum(row[n] for n, row in enumerate(products)) / (len(watts) or 1)
    for _ in range(SWEEPS):
        for n, row in enumerate(products):
            left = energies[n] - _dot(row, watts) + row[n] * watts[n]
            best = (left + pull * mean) / (row[n] + pull) if row[n] + pull > 0 else mean
            watts[n] = min(max(best, LOWEST * mean), HIGHEST * mean)
    return watts


def _noise(sums: _Sums, watts: Vector) -> float:
    """How much of the noise of whole samples would explain what is left, beyond what power itself wavers."""
    left = _unexplained(sums.products, sums, watts) - WAVER * sums.squared
    expected = _form(sums.noises, watts)
    return min(1.0, left / expected) if left > 0 and expected > left * 0.5 else 0.0


def _trust(clean: Matrix, sums: _Sums, mean: float, watts: Vector) -> float:
    """How much better the learned watts explain the energy than the mean does, beyond what chance would."""
    others, freedom = len(watts) - 1, sums.blocks - len(watts)
    if others < 1 or freedom <= 0:
        return 0.0
    alike = _unexplained(clean, sums, [mean] * len(watts))
    gain = (alike - _unexplained(clean, sums, watts)) / others
    left = max(_unexplained(sums.products, sums, watts), WAVER * sums.squared) / freedom
    ratio = max(0.0, gain / left) if left > 0 else 0.0
    return ratio / (ratio + DOUBT)


def _unexplained(products: Matrix, sums: _Sums, watts: Vector) -> float:
    return sums.squared - 2 * _dot(watts, sums.energies) + _form(products, watts)


def _form(matrix: Matrix, watts: Vector) -> float:
    return _dot(watts, [_dot(row, watts) for row in matrix])


def _dot(one: Vector, other: Vector) -> float:
    return float(sum(map(mul, one, other)))
