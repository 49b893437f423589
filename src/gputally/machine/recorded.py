"""A recorded computer: a folder of answers, one file per tick, each with only what changed."""

from __future__ import annotations

import errno
import json
import tomllib
from asyncio import Future
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gputally.machine import OPEN, Access, BadRecording, Gpu
from gputally.machine.clocks import sleep
from gputally.model import Namespaces, Process, ProcessKey, SelfUsage, Unreadable

NOT_SUPPORTED = 3
NO_DCGM = -25
ANY_ARGUMENTS = (
    "nvmlDeviceGetProcessUtilization",
    "dcgmConnect_v2",
    "dcgmGroupCreate",
    "dcgmWatchFields",
    "dcgmWatchPidFields",
    "dcgmEntitiesGetLatestValues",
)
"""Calls whose arguments only say how to ask, or how much of the answer is already known."""
TOLD_ONCE = ("nvmlEventSetWait",)
"""Calls that tell what happened since they were last asked: of each tick, to the first who asks."""


def question(call: str, args: Sequence[Any]) -> str:
    """A call as it is written in a recording; lists of what is wanted are left out, answers name it."""
    named = [] if call in (*ANY_ARGUMENTS, *TOLD_ONCE) else [a for a in args if not isinstance(a, list)]
    return f"{call}({', '.join(map(str, named))})" if named else call


class RecordedClock:
    """The time of the recording; after its last tick, time goes on and the answers stay."""

    def __init__(self, moments: Sequence[tuple[float, float]], paced: bool) -> None:
        self._moments = moments
        self._paced = paced
        self._extra = 0.0
        self.tick = 0

    def monotonic(self) -> float:
        """Seconds on the recorded machine's clock."""
        return self._moments[self.tick][0] + self._extra

    def time(self) -> float:
        """Seconds since the epoch on the recorded machine."""
        return self._moments[self.tick][1] + self._extra

    async def until(self, monotonic: float, unless: Future[Any] | None = None) -> None:
        """Go on to the next tick of the recording; in its own time if paced."""
        await sleep(max(0.0, monotonic - self.monotonic()) if self._paced else 0.0, unless)
        if self.tick + 1 < len(self._moments):
            self.tick += 1
        else:
            self._extra += max(0.0, monotonic - self.monotonic())


class RecordedMachine:
    """Answers as another computer once did."""

    name = "recorded"

    def __init__(self, folder: str, *, paced: bool = False) -> None:
        self._folder = Path(folder)
        self._frames = _frames(self._folder)
        self.clock = RecordedClock([(f["monotonic"], f["time"]) for f in self._frames], paced)
        self._watched: set[ProcessKey] = set()
        self._told = -1

    def nvml(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """The answer of this tick; what was not recorded is not supported."""
        answers = self._frames[self.clock.tick]["nvml"]
        who = "system" if gpu is None else str(gpu)
        answer = answers.get(who, {}).get(
            question(call, args), {"error": NOT_SUPPORTED, "reason": "not recorded"}
        )
        _check_answer(answer, f"{call}: ")
        return self._once(answer) if call in TOLD_ONCE else answer

    def dcgm(self, call: str, *args: Any) -> Any:
        """The answer of this tick; on a machine recorded without DCGM its library is not there."""
        missing = {"error": NO_DCGM, "reason": "not recorded"}
        answer = self._frames[self.clock.tick]["dcgm"].get(question(call, args), missing)
        _check_answer(answer, f"{call}: ")
        return answer

    def smi(self, arguments: Sequence[str], deadline: float) -> bytes:
        """What it wrote at this tick."""
        asked = f"smi {' '.join(arguments)}"
        if asked not in self._frames[self.clock.tick]["outside"]:
            raise Unreadable("nvidia-smi: not recorded", errno.ENOENT)
        return self._bytes(asked)

    def _once(self, answer: Any) -> Any:
        told, self._told = self._told, self.clock.tick
        return [] if told == self.clock.tick else answer

    def process(self, pid: int) -> Process | None:
        """The process as it was at this tick."""
        recorded = self._frames[self.clock.tick]["processes"].get(str(pid))
        if recorded is None:
            return None
        process = Process(
            ProcessKey(pid, recorded["start"]),
            recorded["comm"],
            recorded["cgroup"],
            recorded.get("started_at"),
        )
        self._watched.add(process.key)
        return process

    def exists(self, pid: int) -> bool:
        """Whether the recording knows of it; one that was hidden is null there."""
        return str(pid) in self._frames[self.clock.tick]["processes"]

    def namespaces(self) -> Namespaces | None:
        """Where the recording program stood."""
        recorded = self._frames[self.clock.tick]["outside"].get("namespaces")
        return None if recorded is None else Namespaces(**recorded)

    def file(self, path: str) -> bytes | None:
        """What was kept of the file at this tick."""
        text = self._frames[self.clock.tick]["outside"].get(f"file {path}")
        return None if text is None else str(text).encode()

    def dated(self, path: str, most: int) -> tuple[float, bytes]:
        """The file and its date at this tick."""
        return float(self._answer(f"date {path}")), self._bytes(f"dated {path}")

    def device(self, path: str) -> int:
        """How opening it went at this tick; what was not asked had no error."""
        return int(self._frames[self.clock.tick]["outside"].get(f"device {path}", 0))

    def ended(self) -> Sequence[ProcessKey]:
        """Processes that this tick no longer has."""
        now = self._frames[self.clock.tick]["processes"]
        gone = [key for key in self._watched if (now.get(str(key.pid)) or {}).get("start") != key.start]
        self._watched.difference_update(gone)
        return sorted(gone, key=lambda key: key.pid)

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        """The answer of this tick."""
        return self._bytes(f"rpc {socket} {method}")

    async def stream(self, socket: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Streams are not recorded: what they bring is in the next list."""
        raise Unreadable(f"{method}: streams are not recorded")
        yield b""

    async def get(self, url: str, access: Access = OPEN) -> bytes:
        """The page of this tick."""
        return self._bytes(f"get {access.socket}{url}")

    async def lines(self, url: str, access: Access = OPEN) -> AsyncIterator[bytes]:
        """Streams are not recorded."""
        raise Unreadable(f"{url}: streams are not recorded")
        yield b""

    def folder(self, path: str) -> Mapping[str, str]:
        """The folder at this tick."""
        return dict(self._answer(f"folder {path}"))

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        """What was found of these flags."""
        found: Mapping[str, str] = self._answer("flags")
        return {name: value for name, value in found.items() if name in wanted}

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        """What was found of these settings."""
        found: Mapping[str, str] = self._frames[self.clock.tick]["outside"].get(f"settings {path}", {})
        return {name: value for name, value in found.items() if name in wanted}

    def variable(self, name: str) -> str:
        """The variable where it was recorded."""
        return str(self._frames[self.clock.tick]["outside"].get(f"variable {name}", ""))

    def self_usage(self) -> SelfUsage:
        """What the recording exporter used."""
        return SelfUsage(**self._frames[self.clock.tick]["self"])

    def close(self) -> None:
        """There is nothing to let go of."""

    def _answer(self, asked: str) -> Any:
        answer = self._frames[self.clock.tick]["outside"].get(
            asked, {"error": None, "reason": "not recorded"}
        )
        _check_answer(answer)
        return answer

    def _bytes(self, asked: str) -> bytes:
        name = str(self._answer(asked))
        if "/" in name or name.startswith("."):
            raise BadRecording(f"{self._folder}: {asked} is answered by {name!r}, which is no file of it")
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise BadRecording(f"{self._folder / name}: {error.strerror}") from None


def _check_answer(answer: Any, prefix: str = "") -> None:
    if isinstance(answer, dict) and "error" in answer:
        raise Unreadable(f"{prefix}{answer.get('reason', 'error')}", answer["error"])


def _frames(folder: Path) -> list[dict[str, Any]]:
    """The ticks in order, each laid over the one before."""
    _check(folder)
    paths = sorted(folder.glob("tick-*.json"))
    if not paths:
        raise BadRecording(f"{folder}: no tick-*.json; `gputally record {folder}` makes a recording")
    frames: list[dict[str, Any]] = []
    for path in paths:
        try:
            frame = json.loads(path.read_text(encoding="utf-8"))
            frames.append(_over(frames[-1] if frames else {}, frame))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise BadRecording(
                f"{path}: not a tick of a recording ({type(error).__name__}: {error})"
            ) from None
    return frames


def _check(folder: Path) -> None:
    path = folder / "machine.toml"
    try:
        about = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadRecording(f"{path}: not there, so {folder} is no recording") from None
    except NotADirectoryError:
        raise BadRecording(f"{folder} is a file, and a recording is a folder") from None
    except OSError as error:
        raise BadRecording(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadRecording(f"{path}: {error}") from None
    if about.get("format") != 1:
        raise BadRecording(
            f"{path}: format {about.get('format')!r} is not known to this version, which reads 1"
        )


def _over(before: Mapping[str, Any], frame: Mapping[str, Any]) -> dict[str, Any]:
    nvml = {who: dict(answers) for who, answers in before.get("nvml", {}).items()}
    for who, answers in frame.get("nvml", {}).items():
        nvml.setdefault(who, {}).update(answers)
    return {
        "monotonic": float(frame["monotonic"]),
        "time": float(frame["time"]),
        "nvml": nvml,
        "dcgm": {**before.get("dcgm", {}), **frame.get("dcgm", {})},
        "processes": dict(frame.get("processes", before.get("processes", {}))),
        "outside": {**before.get("outside", {}), **frame.get("outside", {})},
        "self": dict(frame.get("self", before.get("self", {}))),
    }
