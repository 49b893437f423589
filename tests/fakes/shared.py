"""Files that a test and a C library both map; the compiler checks that they mean the same layout."""

import ctypes
import mmap
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

HERE = Path(__file__).parent
COMPILER = shlex.split(os.environ.get("CC", "cc"))


class Text:
    """A C string that Python sees as str; surrogates stand for bytes that are not UTF-8."""

    def __init__(self, field: Any) -> None:
        self.field = field

    def __get__(self, struct: ctypes.Structure | None, owner: type) -> Any:
        if struct is None:
            return self.field
        return self.field.__get__(struct, owner).decode(errors="surrogateescape")

    def __set__(self, struct: ctypes.Structure, value: str) -> None:
        text = value.encode(errors="surrogateescape")
        if len(text) >= self.field.size:
            raise ValueError(f"longer than {self.field.size - 1} bytes: {value}")
        self.field.__set__(struct, text)


Struct = TypeVar("Struct", bound=ctypes.Structure)


def layout(struct: type[Struct]) -> type[Struct]:
    """Makes the annotations of a class its C fields, in order."""
    hints = get_type_hints(struct, include_extras=True)
    struct._fields_ = [(name, hint.__metadata__[0]) for name, hint in hints.items()]
    for name, hint in hints.items():
        if hint.__origin__ is str:
            setattr(struct, name, Text(getattr(struct, name)))
    return struct


I32 = Annotated[int, ctypes.c_int32]
U32 = Annotated[int, ctypes.c_uint32]
U64 = Annotated[int, ctypes.c_uint64]
Text96 = Annotated[str, ctypes.c_char * 96]


def create(path: Path, struct: type[Struct]) -> Struct:
    """Makes the file, which begins with its own size."""
    size = ctypes.sizeof(struct)
    path.write_bytes(size.to_bytes(8, sys.byteorder).ljust(size, b"\0"))
    with path.open("r+b") as file:
        return struct.from_buffer(mmap.mmap(file.fileno(), 0))


def assertions(header: str, structs: Iterable[type[ctypes.Structure]]) -> Iterator[str]:
    """C that compiles only if every size and offset is the same there."""
    yield f'#include "{header}"'
    yield "#include <stddef.h>"
    for struct in structs:
        name = f"struct {struct.__name__.lower()}"
        yield _assert(f"sizeof({name})", ctypes.sizeof(struct))
        for field, *_ in struct._fields_:
            yield _assert(f"offsetof({name}, {field})", getattr(struct, field).offset)
            yield _assert(f"sizeof((({name} *)0)->{field})", getattr(struct, field).size)


def _assert(expression: str, value: int) -> str:
    return f'_Static_assert({expression} == {value}, "Python and C differ");'


def compiles(folder: Path, source: str) -> bool:
    """Whether the compiler takes it, beside the headers of the fakes."""
    (folder / "check.c").write_text(source)
    command = [*COMPILER, "-c", f"-I{HERE}", str(folder / "check.c"), "-o", str(folder / "check.o")]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
