"""A machine on which nobody outside answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from gputally.machine import OPEN, Access, Gpu
from gputally.model import Unreadable


class Silent:
    """Every question to somebody outside is Unreadable."""

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        raise Unreadable("nobody is there")

    async def stream(self, socket: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        raise Unreadable("nobody is there")
        yield b""

    async def get(self, url: str, access: Access = OPEN) -> bytes:
        raise Unreadable("nobody is there")

    async def lines(self, url: str, access: Access = OPEN) -> AsyncIterator[bytes]:
        raise Unreadable("nobody is there")
        yield b""

    def nvml(self, gpu: Gpu, call: str, *args: Any) -> Any:
        raise Unreadable("nobody is there")

    def dcgm(self, call: str, *args: Any) -> Any:
        raise Unreadable("nobody is there")

    def smi(self, arguments: Sequence[str], deadline: float) -> bytes:
        raise Unreadable("nobody is there")

    def device(self, path: str) -> int:
        raise Unreadable("nothing is there")

    def dated(self, path: str, most: int) -> tuple[float, bytes]:
        raise Unreadable("nothing is there")

    def folder(self, path: str) -> Mapping[str, str]:
        raise Unreadable("nothing is there")

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        raise Unreadable("nobody is there")

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        return {}

    def variable(self, name: str) -> str:
        return ""
