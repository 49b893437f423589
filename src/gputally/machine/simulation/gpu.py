"""The physics of one GPU: who runs in which slot, what it draws, and what the driver remembers of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gputally.machine.simulation.cast import Board, Sharing, Workload
from gputally.machine.simulation.rhythm import SLOT_US, SLOTS_PER_SECOND
from gputally.machine.simulation.roles import Burst, Role
from gputally.model import ProcessKey

WINDOWS_PER_SECOND = 6
WINDOWS_KEPT = 72
QUANTUM_SLOTS = 10
"""The energy counter moves every 100 ms."""
LONG_GONE = ProcessKey(0, 0)
"""Bears the truth of processes that ended so long ago that they are not kept apart."""
ACCOUNTS_KEPT = 4_096

_NEVER = Burst(1 << 62, 1 << 62, 0, 0)


@dataclass(eq=False, slots=True)
class Account:
    """What one process truly did on this GPU."""

    key: ProcessKey
    workload: Workload | None = None
    slots: int = 0
    uj: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What the driver's sampler saw in a sixth of a second."""

    start: int
    end: int
    busy: int
    """Slots in which anybody ran."""
    dynamic_uj: int
    """All that was drawn above idle until its end."""
    ran: dict[Account, int] = field(hash=False)
    """Slots in which each process ran."""
    owner: Account | None
    """Who ran in its last slot."""


class Gpu:
    """A GPU up to the slot to which it was advanced; to be asked by one thread at a time."""

    def __init__(self, board: Board, roles: Sequence[Role]) -> None:
        self.board = board
        self.roles = roles
        self.slot = 0
        self.idle_slot_uj = board.idle_watts * SLOT_US
        self.dynamic_uj = 0
        self.counter_uj = 0
        """The energy counter: all that was drawn until the last quantum."""
        self.temperature_mc = _resting_mc(board.idle_watts * 1000)
        self.windows: deque[Window] = deque(maxlen=WINDOWS_KEPT)
        self.accounts: dict[ProcessKey, Account] = {}
        self._capacity_uj = (board.limit_watts - board.idle_watts) * SLOT_US
        self._seats = [_Seat(role, _engine(board.sharing, role)) for role in roles]
        self._window = _OpenWindow(0, 0, _window_end(0))

    def advance(self, slot: int) -> None:
        """Live on to the beginning of that slot; what comes out does not depend on the steps taken."""
        quantum = slot - slot % QUANTUM_SLOTS
        if quantum > self.slot:
            self._run(quantum)
            self.counter_uj = self.dynamic_uj + self.idle_uj
        self._run(slot)

    @property
    def idle_uj(self) -> int:
        """What the GPU drew for itself."""
        return self.idle_slot_uj * self.slot

    @property
    def power_mw(self) -> int:
        """Average over the last second."""
        return self._power_mw(WINDOWS_PER_SECOND)

    def _run(self, until: int) -> None:
        """Go from stretch to stretch, each as long as the same processes want the GPU."""
        slot = self.slot
        while slot < until:
            stop = min(until, self._window.end)
            wanting = []
            for seat in self._seats:
                burst = seat.burst
                while burst.end <= slot:
                    burst = seat.next()
                if burst.start > slot:
                    if burst.start < stop:
                        stop = burst.start
                else:
                    wanting.append(seat)
                    if burst.end < stop:
                        stop = burst.end
            if wanting:
                self._serve(wanting, slot, stop - slot)
            slot = self.slot = stop
            if slot == self._window.end:
                self._close_window()

    def _serve(self, wanting: list[_Seat], start: int, slots: int) -> None:
        """Fair turns within an engine, least recently served first; all engines at once, under the cap."""
        self._window.busy += slots
        engines: dict[int, list[_Seat]] = {}
        for seat in wanting:
            engines.setdefault(seat.engine, []).append(seat)
        peaks = {engine: max(seat.burst.slot_uj for seat in seats) for engine, seats in engines.items()}
        everything = sum(peaks.values())
        for engine, seats in engines.items():
            beside = everything - peaks[engine]
            seats.sort(key=_served_at)
            for place, seat in enumerate(seats[:slots]):
                turns = (slots - place - 1) // len(seats) + 1
                wanted = seat.burst.slot_uj
                drawn = wanted * self._capacity_uj // max(self._capacity_uj, beside + wanted)
                self._charge(seat, turns, drawn * turns)
                seat.served_at = start + place + (turns - 1) * len(seats)

    def _charge(self, seat: _Seat, slots: int, uj: int) -> None:
        account = seat.account
        if account is None or seat.turn != seat.burst.turn:
            account = self._open_account(seat)
        account.slots += slots
        account.uj += uj
        self.dynamic_uj += uj
        ran = self._window.ran
        ran[account] = ran.get(account, 0) + slots

    def _open_account(self, seat: _Seat) -> Account:
        if len(self.accounts) > ACCOUNTS_KEPT:
            self._forget_the_oldest()
        seat.turn = seat.burst.turn
        account = seat.account = Account(seat.role.key(seat.turn), seat.role.workload)
        self.accounts[account.key] = account
        return account

    def _forget_the_oldest(self) -> None:
        seated = {seat.account for seat in self._seats}
        gone = self.accounts.setdefault(LONG_GONE, Account(LONG_GONE))
        oldest = next(a for a in self.accounts.values() if a is not gone and a not in seated)
        gone.slots += oldest.slots
        gone.uj += oldest.uj
        del self.accounts[oldest.key]

    def _close_window(self) -> None:
        window = self._window
        last = [seat.account for seat in self._seats if seat.served_at == window.end - 1]
        # Several run at once under MPS; the sampler sees one of them, now this, now that.
        owner = last[window.number % len(last)] if last else None
        self.windows.append(Window(window.start, window.end, window.busy, self.dynamic_uj, window.ran, owner))
        self._window = _OpenWindow(window.number + 1, window.end, _window_end(window.number + 1))
        self.temperature_mc += (_resting_mc(self._power_mw(1)) - self.temperature_mc) // 120

    def _power_mw(self, windows: int) -> int:
        seen = len(self.windows)
        if not seen:
            return self.board.idle_watts * 1000
        newest = self.windows[-1]
        before = self.windows[-1 - windows] if seen > windows else None
        since, drawn = (before.end, before.dynamic_uj) if before else (0, 0)
        return self.board.idle_watts * 1000 + (newest.dynamic_uj - drawn) * 1000 // (
            (newest.end - since) * SLOT_US
        )


class _Seat:
    """A role on this GPU: the burst it is in or waits for, and when it was served."""

    __slots__ = ("_coming", "account", "burst", "engine", "role", "served_at", "turn")

    def __init__(self, role: Role, engine: int) -> None:
        self.role = role
        self.engine = engine
        self.served_at = -1
        self.turn = -1
        self.account: Account | None = None
        self._coming = role.bursts()
        self.burst = next(self._coming, _NEVER)

    def next(self) -> Burst:
        """Go on to the burst after this one."""
        self.burst = next(self._coming, _NEVER)
        return self.burst


@dataclass(slots=True)
class _OpenWindow:
    number: int
    start: int
    end: int
    busy: int = 0
    ran: dict[Account, int] = field(default_factory=dict)


def _served_at(seat: _Seat) -> int:
    return seat.served_at


def _engine(sharing: Sharing, role: Role) -> int:
    """Those of one engine take turns; engines run at once."""
    if sharing is Sharing.MPS:
        return role.number
    return role.workload.instance or 0 if sharing is Sharing.MIG else 0


def _window_end(number: int) -> int:
    return (number + 1) * SLOTS_PER_SECOND // WINDOWS_PER_SECOND


def _resting_mc(power_mw: int) -> int:
    """The temperature, in thousandths of a degree, to which that power leads in the end."""
    return 28_000 + power_mw * 64 // 1000
