"""Recording: a machine that asks another one, and keeps its answers for a folder."""

from __future__ import annotations

import datetime
import json
import threading
from asyncio import Future
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gputally import __version__
from gputally.machine import NO_ANSWER, OPEN, Access, Clock, Gpu, Machine
from gputally.machine.file_masks import what_we_use
from gputally.machine.masks import without_secrets
from gputally.machine.messages import trimmed
from gputally.machine.recorded import question
from gputally.model import Namespaces, Process, ProcessKey, SelfUsage, Unreadable

MASKED = ("nvmlDeviceGetSerial",)
"""Answers that name a piece of property and nothing a bug depends on."""


class _Clock:
    """The other machine's clock; waiting for the next moment ends a tick."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def time(self) -> float:
        return self._clock.time()

    async def until(self, monotonic: float, unless: Future[Any] | None = None) -> None:
        self._recorder.end_tick()
        await self._clock.until(monotonic, unless)


class Recorder:
    """Passes every question on; keeps answers, never command lines or environments."""

    def __init__(self, machine: Machine) -> None:
        self.name = machine.name
        self.clock: Clock = _Clock(self, machine.clock)
        self._machine = machine
        self._lock = threading.Lock()  # lanes ask from threads of their own
        self._ticks: list[dict[str, Any]] = []
        self._answers: dict[str, dict[str, Any]] = {}
        self._dcgm_answers: dict[str, Any] = {}
        self._processes: dict[str, dict[str, Any] | None] = {}
        self._outside: dict[str, Any] = {}
        self._files: dict[str, bytes] = {}
        self._usage = SelfUsage()

    def nvml(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """Ask, and keep what was answered or how it failed; until then, that there was no answer."""
        asked = question(call, args)
        self._keep(gpu, asked, {"error": NO_ANSWER, "reason": "no answer while it was recorded"})
        try:
            answer = self._machine.nvml(gpu, call, *args)
        except Unreadable as error:
            self._keep(gpu, asked, {"error": error.code, "reason": str(error)})
            raise
        self._keep(gpu, asked, "masked" if call in MASKED else answer)
        return answer

    def smi(self, arguments: Sequence[str], deadline: float) -> bytes:
        """Ask, and keep what was written: nothing of what we ask for is a secret."""
        asked = f"smi {' '.join(arguments)}"
        try:
            answer = self._machine.smi(arguments, deadline)
        except Unreadable as error:
            self._outside[asked] = {"error": error.code, "reason": str(error)}
            raise
        self._outside[asked] = self._file("nvidia-smi", "csv", answer)
        return answer

    def dcgm(self, call: str, *args: Any) -> Any:
        """Ask, and keep what was answered or how it failed."""
        try:
            answer = self._machine.dcgm(call, *args)
        except Unreadable as error:
            with self._lock:
                self._dcgm_answers[question(call, args)] = {"error": error.code, "reason": str(error)}
            raise
        with self._lock:
            self._dcgm_answers[question(call, args)] = answer
        return answer

    def process(self, pid: int) -> Process | None:
        """Ask, and keep name and cgroup."""
        process = self._machine.process(pid)
        if process is not None:
            self._processes[str(pid)] = {
                "start": process.key.start,
                "comm": process.comm,
                "cgroup": process.cgroup,
                "started_at": process.started_at,
            }
        return process

    def exists(self, pid: int) -> bool:
        """Ask, and keep that it is hidden."""
        there = self._machine.exists(pid)
        if there:
            self._processes.setdefault(str(pid), None)
        return there

    def namespaces(self) -> Namespaces | None:
        """Ask, and keep it."""
        answer = self._machine.namespaces()
        if answer is not None:
            self._outside["namespaces"] = asdict(answer)
        return answer

    def file(self, path: str) -> bytes | None:
        """Ask, and keep only what gputally uses of it: command lines may hold secrets."""
        answer = self._machine.file(path)
        if answer is not None:
            self._outside[f"file {path}"] = what_we_use(path, answer)
        return answer

    def dated(self, path: str, most: int) -> tuple[float, bytes]:
        """Ask, and keep both: it is text that anybody may scrape."""
        try:
            date, content = self._machine.dated(path, most)
        except Unreadable as error:
            self._outside[f"date {path}"] = {"error": error.code, "reason": str(error)}
            raise
        self._outside[f"date {path}"] = date
        self._outside[f"dated {path}"] = self._file("upstream", "prom", content)
        return date, content

    def device(self, path: str) -> int:
        """Ask, and keep the error."""
        error = self._machine.device(path)
        with self._lock:
            self._outside[f"device {path}"] = error
        return error

    def ended(self) -> Sequence[ProcessKey]:
        """Ask, and forget those that went."""
        gone = self._machine.ended()
        for key in gone:
            self._processes.pop(str(key.pid), None)
        return gone

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        """Ask, and keep the message in a file."""
        asked = f"rpc {socket} {method}"
        try:
            answer = await self._machine.rpc(socket, method, request)
        except Unreadable as error:
            self._outside[asked] = {"error": error.code, "reason": str(error)}
            raise
        self._outside[asked] = self._file(method.strip("/").replace("/", "."), "bin", trimmed(method, answer))
        return answer

    def stream(self, socket: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Ask; streams are not kept."""
        return self._machine.stream(socket, method, request)

    async def get(self, url: str, access: Access = OPEN) -> bytes:
        """Ask, and keep what we read of the page, without pod specifications, which may hold secrets."""
        asked = f"get {access.socket}{url}"
        try:
            answer = await self._machine.get(url, access)
        except Unreadable as error:
            self._outside[asked] = {"error": error.code, "reason": str(error)}
            raise
        if access.accept.startswith("text/"):
            self._outside[asked] = self._file("upstream", "prom", answer)
        else:
            self._outside[asked] = self._file("page", "json", without_secrets(answer))
        return answer

    def lines(self, url: str, access: Access = OPEN) -> AsyncIterator[bytes]:
        """Ask; streams are not kept."""
        return self._machine.lines(url, access)

    def folder(self, path: str) -> Mapping[str, str]:
        """Ask, and keep the names."""
        try:
            names = self._machine.folder(path)
        except Unreadable as error:
            self._outside[f"folder {path}"] = {"error": error.code, "reason": str(error)}
            raise
        self._outside[f"folder {path}"] = dict(names)
        return names

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        """Ask, and keep those that were wanted."""
        found = self._machine.flags(commands, wanted)
        self._outside["flags"] = dict(found)
        return found

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        """Ask, and keep those that were wanted."""
        found = self._machine.settings(path, wanted)
        if found:
            self._outside[f"settings {path}"] = dict(found)
        return found

    def variable(self, name: str) -> str:
        """Ask, and keep it: none of those asked for is a secret."""
        value = self._machine.variable(name)
        if value:
            self._outside[f"variable {name}"] = value
        return value

    def self_usage(self) -> SelfUsage:
        """Ask, and keep it."""
        self._usage = self._machine.self_usage()
        return self._usage

    def close(self) -> None:
        """Close the other machine."""
        self._machine.close()

    def end_tick(self) -> None:
        """What was answered since the tick before belongs together."""
        with self._lock:
            answers, self._answers = self._answers, {}
            dcgm_answers, self._dcgm_answers = self._dcgm_answers, {}
        outside, self._outside = self._outside, {}
        self._ticks.append(
            {
                "monotonic": self._machine.clock.monotonic(),
                "time": self._machine.clock.time(),
                "self": asdict(self._usage),
                "processes": dict(self._processes),
                "outside": outside,
                "nvml": answers,
                "dcgm": dcgm_answers,
            }
        )

    def save(self, folder: Path) -> list[Path]:
        """Write the recording into a new folder."""
        folder.mkdir(parents=True, exist_ok=False)
        about = folder / "machine.toml"
        day = datetime.datetime.fromtimestamp(self._machine.clock.time(), datetime.UTC).date()
        about.write_text(
            f'format = 1\norigin = "recorded"\nmachine = "{self.name}"\n'
            f'gputally = "{__version__}"\ntaken = {day.isoformat()}\n',
            encoding="utf-8",
        )
        paths = [about]
        for number, tick in enumerate(self._ticks):
            paths.append(folder / f"tick-{number:03d}.json")
            paths[-1].write_text(_lines(tick), encoding="utf-8")
        for name, content in self._files.items():
            paths.append(folder / name)
            paths[-1].write_bytes(content)
        return paths

    def _file(self, stem: str, kind: str, content: bytes) -> str:
        """The name of the file that holds this; the same content is kept once."""
        for name, known in self._files.items():
            if known == content:
                return name
        name = f"{stem}-{len(self._files):03d}.{kind}"
        self._files[name] = content
        return name

    def _keep(self, gpu: Gpu, asked: str, answer: Any) -> None:
        who = "system" if gpu is None else str(gpu)
        with self._lock:
            self._answers.setdefault(who, {})[asked] = answer


def _lines(tick: Mapping[str, Any]) -> str:
    """JSON with one answer a line, so that two ticks can be compared by eye."""
    parts = [f'"{key}": {json.dumps(tick[key])}' for key in ("monotonic", "time", "self")]
    parts.append(f'"processes": {_object(tick["processes"], 2)}')
    if tick["outside"]:
        parts.append(f'"outside": {_object(tick["outside"], 2)}')
    answers = ",\n  ".join(f'"{who}": {_object(tick["nvml"][who], 4)}' for who in sorted(tick["nvml"]))
    parts.append(f'"nvml": {{\n  {answers}\n}}')
    if tick["dcgm"]:
        parts.append(f'"dcgm": {_object(tick["dcgm"], 2)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _object(entries: Mapping[str, Any], indent: int) -> str:
    space = "\n" + " " * indent
    lines = f",{space}".join(f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries))
    return f"{{{space}{lines}}}" if entries else "{}"
