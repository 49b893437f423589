"""What every return code of NVML means to us: one table, and nothing decided elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gputally.machine import NO_ANSWER
from gputally.model import LIBRARY_MISMATCH, State


class Meaning(Enum):
    """What to do about a code."""

    ABSENT = "there is no such reading; not asked again until the driver or the layout changes"
    EMPTY = "there is nothing now, which is a true answer"
    RETRY = "no reading this time"
    DENIED = "no reading with our rights"
    STATE = "the GPU itself is not well; nothing more is asked of it for a while"
    DRIVER = "the driver is gone or not ours; the library is started anew"


@dataclass(frozen=True)
class Code:
    """One return code."""

    name: str
    meaning: Meaning
    state: State | None = None


SUCCESS = 0
UNINITIALIZED = 1
NOT_FOUND = 6
LIBRARY_NOT_FOUND = 12
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
NO_PERMISSION = 4
NOT_SUPPORTED = 3
TIMEOUT = 10
OPERATING_SYSTEM, UNKNOWN = 17, 999

CODES: dict[int, Code] = {
    UNINITIALIZED: Code("uninitialized", Meaning.DRIVER),
    2: Code("invalid argument", Meaning.RETRY),
    NOT_SUPPORTED: Code("not supported", Meaning.ABSENT, State.UNSUPPORTED),
    NO_PERMISSION: Code("no permission", Meaning.DENIED),
    5: Code("already initialized", Meaning.RETRY),
    NOT_FOUND: Code("not found", Meaning.EMPTY),
    INSUFFICIENT_SIZE: Code("insufficient size", Meaning.RETRY),
    8: Code("insufficient external power", Meaning.STATE, State.FAILING),
    9: Code("driver not loaded", Meaning.DRIVER),
    TIMEOUT: Code("timeout", Meaning.RETRY),
    11: Code("interrupt request issue", Meaning.STATE, State.FAILING),
    12: Code("library not found", Meaning.DRIVER),
    FUNCTION_NOT_FOUND: Code("function not found", Meaning.ABSENT),
    14: Code("corrupted infoROM", Meaning.RETRY),
    15: Code("GPU is lost", Meaning.STATE, State.LOST),
    16: Code("reset required", Meaning.STATE, State.RESET_REQUIRED),
    OPERATING_SYSTEM: Code("operating system", Meaning.RETRY),
    LIBRARY_MISMATCH: Code("library and driver differ", Meaning.DRIVER),
    19: Code("in use", Meaning.RETRY),
    20: Code("out of memory", Meaning.RETRY),
    21: Code("no data", Meaning.EMPTY),
    22: Code("vGPU without ECC", Meaning.ABSENT),
    23: Code("insufficient resources", Meaning.RETRY),
    24: Code("frequency not supported", Meaning.ABSENT),
    25: Code("argument version mismatch", Meaning.ABSENT),
    26: Code("deprecated", Meaning.ABSENT),
    27: Code("not ready", Meaning.EMPTY),
    28: Code("GPU not found", Meaning.STATE, State.LOST),
    29: Code("invalid state", Meaning.RETRY),
    30: Code("reset type not supported", Meaning.ABSENT),
    UNKNOWN: Code("unknown", Meaning.RETRY),
    NO_ANSWER: Code("no answer", Meaning.STATE, State.HUNG),
}

STRANGE = Code("a code that this version does not know", Meaning.RETRY)


def code_of(number: int | None) -> Code:
    """The row of a code."""
    return STRANGE if number is None else CODES.get(number, STRANGE)


def meaning(number: int | None) -> Meaning:
    """What to do about a code."""
    return code_of(number).meaning


def state_of(number: int | None) -> State:
    """How a GPU is that gave up with this code."""
    return code_of(number).state or State.FAILING
