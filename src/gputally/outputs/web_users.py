"""Passwords before answers: HTTP basic authentication that guesses can neither pass nor slow down."""

from __future__ import annotations

import base64
import hmac
import os
import time
from collections.abc import Callable, Collection, Mapping

from gputally.outputs.http import Answer, Request, Respond

CHECKS_PER_SECOND = 5.0
SECONDS_PER_CHECK = 0.05
"""A check that takes longer counts for several, so that checks never take more than a quarter of the time."""
REMEMBERED = 100
BCRYPT_BYTES = 72
"""What bcrypt looks at of a password; its library refuses longer ones, others cut them."""

DENIED = Answer(401, b"Unauthorized\n", headers=(("WWW-Authenticate", 'Basic realm="gputally"'),))
TOO_MANY = Answer(429, b"too many passwords to check\n", headers=(("Retry-After", "1"),))


def guarded(respond: Respond, users: Mapping[str, str], open_paths: Collection[str] = ()) -> Respond:
    """The same answers, for these users only; everybody gets the open paths."""
    passwords = Passwords(users)

    def answer(request: Request) -> Answer:
        if request.path in open_paths:
            return respond(request)
        given = _credentials(request.headers.get("Authorization", ""))
        right = False if given is None else passwords.right(*given)
        if right is None:
            return TOO_MANY
        return respond(request) if right else DENIED

    return answer


class Passwords:
    """Tells right passwords from wrong ones, a few of them a second; right ones are remembered."""

    def __init__(self, users: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._users = {name.encode(): hashed.encode() for name, hashed in users.items()}
        self._nobody = _dearest(self._users.values())
        self._clock = clock
        self._left, self._left_at = CHECKS_PER_SECOND, clock()
        self._key = os.urandom(32)
        self._seen: dict[bytes, None] = {}

    def right(self, user: bytes, password: bytes) -> bool | None:
        """Whether it is this user's password; None if there were too many checks to say."""
        hashed = self._users.get(user)
        # Under a key that nobody knows, so that no other credentials can be made to match (CVE-2022-46146).
        digest = hmac.digest(self._key, user + b"\0" + password + b"\0" + (hashed or self._nobody), "sha256")
        if digest in self._seen:
            return True
        if not self._may_check():
            return None
        matches = self._check(password, hashed or self._nobody)
        if hashed is None or not matches:
            return False
        while len(self._seen) >= REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[digest] = None
        return True

    def _may_check(self) -> bool:
        now = self._clock()
        self._left = min(CHECKS_PER_SECOND, self._left + (now - self._left_at) * CHECKS_PER_SECOND)
        self._left_at = now
        return self._left >= 1

    def _check(self, password: bytes, hashed: bytes) -> bool:
        import bcrypt  # only here: most nodes have no users

        began = self._clock()
        try:
            return bcrypt.checkpw(password[:BCRYPT_BYTES], hashed)
        except ValueError:
            return False
        finally:
            self._left -= max(1.0, (self._clock() - began) / SECONDS_PER_CHECK)


def _dearest(hashes: Collection[bytes]) -> bytes:
    """A hash that nobody's password has, as slow to check as any: users cannot be told by time."""
    cost = max((hashed[4:6] for hashed in hashes), default=b"10")
    return b"$2b$" + cost + b"$" + b"." * 53


def _credentials(header: str) -> tuple[bytes, bytes] | None:
    kind, _, coded = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except ValueError:
        return None
    return (user, password) if colon else None
