"""Now and then an Xid."""

from __future__ import annotations

from gputally.machine.simulation.rhythm import SLOTS_PER_SECOND, scatter

XIDS = (13, 31, 31, 43, 45, 63, 94)
"""Application faults mostly; sometimes a remapped row or a contained memory error."""
SPELL = 1_800 * SLOTS_PER_SECOND
"""In every half hour of a GPU there is at most one."""
CHANCE = 4
"""Percent of the half hours that have one."""


def xids(seed: int, gpu: int, start: int, end: int) -> list[tuple[int, int]]:
    """(slot, Xid) of what happens to a GPU from one slot to before another."""
    spells = range(max(0, start // SPELL), max(0, (end - 1) // SPELL + 1))
    happened = [_xid(seed, gpu, spell) for spell in spells]
    return [event for event in happened if event is not None and start <= event[0] < end]


def _xid(seed: int, gpu: int, spell: int) -> tuple[int, int] | None:
    noise = scatter((seed << 40) + (gpu << 32) + spell)
    if noise % 100 >= CHANCE:
        return None
    return spell * SPELL + (noise >> 8) % SPELL, XIDS[(noise >> 40) % len(XIDS)]
