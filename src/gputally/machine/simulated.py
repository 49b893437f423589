"""A simulated machine: a busy GPU node as a function of seed and clock, asked like a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

from gputally.machine import OPEN, Access, Clock
from gputally.machine import Gpu as Whom
from gputally.machine.simulation import Sampler, kubelet, smi
from gputally.machine.simulation.answers import ANSWERS, NO_INSTANCE, NOT_FOUND, NOT_SUPPORTED, Asked
from gputally.machine.simulation.board import BOARD_ANSWERS, instance_uuids, of_instance, of_place
from gputally.machine.simulation.busy_node import DEFAULT_BOARDS, DEFAULT_CAST
from gputally.machine.simulation.cast import Board, Workload
from gputally.machine.simulation.gpu import Gpu
from gputally.machine.simulation.rhythm import SLOT_US, SLOTS_PER_SECOND
from gputally.machine.simulation.roles import (
    LivingPod,
    docker_containers,
    docker_file,
    gpu_uuid,
    pods,
    role_of,
    roles,
)
from gputally.machine.simulation.samplers import SAMPLERS
from gputally.machine.simulation.xids import xids
from gputally.model import Namespaces, Process, ProcessKey, SelfUsage, Unreadable

INVALID_ARGUMENT = 2
FUNCTION_NOT_FOUND = 13
NO_DCGM = -25
WATCH_SECONDS = 1.0
INIT_PID_NAMESPACE = 4_026_531_836
FIXED_USAGE = SelfUsage(cpu_seconds=1.5, resident_bytes=40 * 2**20, open_fds=20, threads=10)


class SimulatedMachine:
    """A computer that is not there.

    A GPU has its own state and may be asked by its own thread; /proc is a pure function of time.
    """

    name = "simulated"

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 1,
        sampler: Sampler = "fraction",
        cast: Sequence[Workload] = DEFAULT_CAST,
        boards: Sequence[Board] = DEFAULT_BOARDS,
        aged: float = 600.0,
        usage: Callable[[], SelfUsage] = lambda: FIXED_USAGE,
    ) -> None:
        if sampler not in SAMPLERS:
            raise ValueError(f"no sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
        self.clock = clock
        self._seed = seed
        self._sampler = sampler
        self._cast = tuple(cast)
        self._usage = usage
        self._slot_0 = clock.monotonic() - aged
        self._epoch = clock.time() - aged
        self._roles = roles(seed, cast)
        self._uuids = [gpu_uuid(seed, index) for index in range(len(boards))]
        self._gpus = {
            uuid: Gpu(board, [role for role in self._roles if role.gpu == index])
            for index, (uuid, board) in enumerate(zip(self._uuids, boards, strict=True))
        }
        self._watched: dict[ProcessKey, int] = {}
        self._told = self._slot()

    def nvml(self, gpu: Whom, call: str, *args: Any) -> Any:
        """Answer one NVML call as plain data, or raise Unreadable with NVML's code."""
        if gpu is None:
            return self._of_system(call)
        if isinstance(gpu, int):
            return self._of_index(gpu, call)
        if gpu.startswith("MIG-"):
            return self._of_instance(gpu, call)
        if call == "nvmlDeviceGetMigDeviceHandleByIndex":
            return of_place(self._asked(gpu), self._seed, *args)
        function = ANSWERS.get(call) or BOARD_ANSWERS.get(call)
        if function is None:
            code = NOT_SUPPORTED if call.startswith("nvmlDevice") else FUNCTION_NOT_FOUND
            raise Unreadable(f"{call}: not supported", code=code)
        return function(self._asked(gpu), *args)

    def dcgm(self, call: str, *args: Any) -> Any:
        """There is no DCGM on a simulated machine."""
        raise Unreadable(f"{call}: there is no DCGM on a simulated machine", code=NO_DCGM)

    def smi(self, arguments: Sequence[str], deadline: float) -> bytes:
        """Write the tables that nvidia-smi would write."""
        return smi.table(arguments, [self._asked(uuid) for uuid in self._uuids])

    def process(self, pid: int) -> Process | None:
        """What the kernel says of a process, which is watched from now on."""
        role = role_of(pid, self._roles)
        process = role.process(self._slot(), self._epoch) if role else None
        if role is None or process is None or process.key.pid != pid:
            return None
        self._watched[process.key] = role.number
        return process

    def exists(self, pid: int) -> bool:
        """Nobody hides here."""
        role = role_of(pid, self._roles)
        living = role.living(self._slot()) if role else None
        return living is not None and living.pid == pid

    def namespaces(self) -> Namespaces | None:
        """The host's own: nothing is hidden."""
        return Namespaces(INIT_PID_NAMESPACE, 1999, "0::/system.slice/gputally.service\n", "0::/init.scope\n")

    def file(self, path: str) -> bytes | None:
        """What Docker keeps of its containers; other files are not there."""
        return docker_file(self._seed, self._cast, self._slot(), path)

    def dated(self, path: str, most: int) -> tuple[float, bytes]:
        """What a dcgm-exporter beside us would have written just now."""
        return self.clock.time(), smi.exporter_text(self._uuids, self._slot())

    def device(self, path: str) -> int:
        """Every device opens."""
        return 0

    def ended(self) -> Sequence[ProcessKey]:
        """Watched processes that went since the question before."""
        slot = self._slot()
        gone = [key for key, role in self._watched.items() if self._roles[role].living(slot) != key]
        for key in gone:
            del self._watched[key]
        return gone

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        """Answer as this node's kubelet and its runtime would."""
        return kubelet.rpc(self.pods(), self._uuids, socket, method)

    async def stream(self, socket: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Tell nothing for a while, and end: whoever follows asks for the list again."""
        await asyncio.sleep(WATCH_SECONDS)
        return
        yield b""

    async def get(self, url: str, access: Access = OPEN) -> bytes:
        """Answer as Docker would, or as a dcgm-exporter beside us; there is no other web server."""
        if access.accept.startswith("text/"):
            return smi.exporter_text(self._uuids, self._slot())
        if not access.socket.endswith("docker.sock"):
            raise Unreadable(f"{url}: nobody listens there")
        return kubelet.docker(docker_containers(self._seed, self._cast, self._slot()))

    async def lines(self, url: str, access: Access = OPEN) -> AsyncIterator[bytes]:
        """There is no web server."""
        raise Unreadable(f"{url}: nobody listens there")
        yield b""

    def folder(self, path: str) -> Mapping[str, str]:
        """List the folders of pod logs."""
        return kubelet.folder(self.pods(), path)

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        """How the kubelet was started."""
        if "kubelet" not in commands:
            raise Unreadable(f"no process runs {' or '.join(sorted(commands))}")
        return {name: value for name, value in kubelet.FLAGS.items() if name in wanted}

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        """It has no such files."""
        return {}

    def variable(self, name: str) -> str:
        """Only where we are."""
        return kubelet.NODE if name == "NODE_NAME" else ""

    def self_usage(self) -> SelfUsage:
        """What this program itself uses, or what it was told to say."""
        return self._usage()

    def close(self) -> None:
        """Nothing is held."""

    def pods(self) -> tuple[LivingPod, ...]:
        """The containers of pods that live now, as the kubelet would know them."""
        return pods(self._seed, self._cast, self._slot())

    def truth(self, gpu: str) -> dict[ProcessKey, int]:
        """Microjoules above idle that each process truly drew so far; for tests, from the GPU's thread."""
        return {key: account.uj for key, account in self._gpu(gpu).accounts.items()}

    def truth_busy_us(self, gpu: str) -> dict[ProcessKey, int]:
        """Microseconds for which each process truly ran so far."""
        return {key: account.slots * SLOT_US for key, account in self._gpu(gpu).accounts.items()}

    def truth_idle_uj(self, gpu: str) -> int:
        """Microjoules that the GPU drew for itself so far."""
        return self._gpu(gpu).idle_uj

    def _of_system(self, call: str) -> Any:
        if call == "nvmlEventSetWait":
            return self._xids()
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlEventSetFree": None,
            "nvmlSystemGetDriverVersion": "580.95.05",
            "nvmlSystemGetCudaDriverVersion": 13000,
            "nvmlDeviceGetCount": len(self._uuids),
        }
        if call not in answers:
            raise Unreadable(f"{call}: no such function", code=FUNCTION_NOT_FOUND)
        return answers[call]

    def _xids(self) -> list[list[Any]]:
        """What happened to the GPUs since the question before."""
        since, self._told = self._told, self._slot()
        return [
            [uuid, xid, NO_INSTANCE, NO_INSTANCE]
            for index, uuid in enumerate(self._uuids)
            for _, xid in xids(self._seed, index, since, self._told)
        ]

    def _of_instance(self, uuid: str, call: str) -> Any:
        # Which GPU it lies on is known from who lives there, so that no other GPU is touched.
        for gpu, index in zip(self._gpus.values(), range(len(self._uuids)), strict=True):
            asked = Asked(gpu, index, self._uuids[index], self._sampler, round(self._epoch * 1e6))
            number = instance_uuids(asked, self._seed).get(uuid)
            if number is not None:
                return of_instance(self._asked(self._uuids[index]), number, call)
        raise Unreadable(f"no MIG instance {uuid}", code=NOT_FOUND)

    def _of_index(self, index: int, call: str) -> str:
        # Touches no GPU: whoever learns the uuids is not yet on the GPU's own thread.
        if call != "nvmlDeviceGetUUID" or not 0 <= index < len(self._uuids):
            raise Unreadable(f"{call}: GPU {index}: invalid argument", code=INVALID_ARGUMENT)
        return self._uuids[index]

    def _asked(self, uuid: str) -> Asked:
        gpu = self._gpu(uuid)
        return Asked(gpu, self._uuids.index(uuid), uuid, self._sampler, round(self._epoch * 1e6))

    def _gpu(self, uuid: str) -> Gpu:
        """The GPU as it is now."""
        if uuid not in self._gpus:
            raise Unreadable(f"no GPU {uuid}", code=NOT_FOUND)
        gpu = self._gpus[uuid]
        gpu.advance(self._slot())
        return gpu

    def _slot(self) -> int:
        # Through microseconds: 0.1 + 0.2 seconds are thirty slots, whatever floats make of it.
        return round((self.clock.monotonic() - self._slot_0) * 1e6) * SLOTS_PER_SECOND // 1_000_000
