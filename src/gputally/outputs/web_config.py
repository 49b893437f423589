"""TLS and users of the web server, from a file as Prometheus' exporter-toolkit reads it."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
# Python cannot ask for a certificate without verifying it. RequestClientCert lets in whoever has none or any,
# which is what not asking does; RequireAnyClientCert is taken for the stricter kind, never for a weaker one.
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,
    "RequireAnyClientCert": ssl.CERT_REQUIRED,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
TOP = ("tls_server_config", "basic_auth_users")
FILES = ("cert_file", "key_file", "client_ca_file")
TLS = (*FILES, "client_auth_type", "min_version")
BCRYPT = re.compile(r"\$2[abxy]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}")
"""Up to cost 14: one check of a higher cost would hold everything else up for seconds."""

Stamp = tuple[tuple[int, int, int] | None, ...]


class BadWebConfig(Exception):
    """A web config that cannot be used; the text names the file and the key."""


@dataclass(frozen=True)
class Tls:
    """How connections are secured."""

    origin: str
    """The web config that says so."""
    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    client_auth_type: str = "NoClientCert"
    min_version: str = "TLS12"


@dataclass(frozen=True)
class WebConfig:
    """What a web config says; without one, plain HTTP for everybody."""

    tls: Tls | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Name -> bcrypt hash of the password."""


def read(path: str | None) -> WebConfig:
    """The web config in this file, checked; raises BadWebConfig."""
    if path is None:
        return WebConfig()
    said = _section(path, "the file", _load(path), TOP)
    tls = _section(path, "tls_server_config", said.get("tls_server_config"), TLS)
    users = _section(path, "basic_auth_users", said.get("basic_auth_users"))
    for name, hashed in users.items():
        if not isinstance(hashed, str) or not BCRYPT.fullmatch(hashed):
            raise BadWebConfig(
                f"{path}: basic_auth_users.{name} must be a bcrypt hash of cost 4 to 14, such as $2y$10$..."
            )
    return WebConfig(_tls(path, tls) if tls else None, users)


def _load(path: str) -> object:
    import yaml  # only here: most nodes have no web config, and need not pay for it

    try:
        return yaml.safe_load(Path(path).read_bytes())
    except OSError as error:
        raise BadWebConfig(f"--web.config.file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise BadWebConfig(f"--web.config.file {path} is no YAML{place}") from None


def _section(path: str, name: str, said: object, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a mapping of the file says, if it has only keys that are known."""
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise BadWebConfig(f"{path}: {name} must be a mapping of keys to values")
    for key in said:
        if not isinstance(key, str):
            raise BadWebConfig(f"{path}: {name} has the key {key!r}, which must be a text: put it in quotes")
        if known and key not in known:
            raise BadWebConfig(f"{path}: {name} has the unknown key {key!r}; there is {', '.join(known)}")
    return said


def _tls(path: str, said: Mapping[str, Any]) -> Tls:
    for key, value in said.items():
        if not isinstance(value, str) or not value:
            raise BadWebConfig(f"{path}: tls_server_config.{key} must be a text that is not empty")
    for key in ("cert_file", "key_file"):
        if key not in said:
            raise BadWebConfig(f"{path}: tls_server_config.{key} is missing")
    for key, allowed in (("client_auth_type", list(CLIENT_AUTH)), ("min_version", list(VERSIONS))):
        if said.get(key, allowed[0]) not in allowed:
            raise BadWebConfig(
                f"{path}: tls_server_config.{key} {said[key]!r} is none of {', '.join(allowed)}"
            )
    files = {key: os.path.join(os.path.dirname(path), said[key]) for key in FILES if key in said}
    tls = Tls(path, **{**said, **files})
    _check_client_auth(tls)
    return tls


def _check_client_auth(tls: Tls) -> None:
    if tls.client_auth_type == "NoClientCert" and tls.client_ca_file:
        raise BadWebConfig(
            f"{tls.origin}: tls_server_config.client_ca_file has no effect without client_auth_type"
        )
    if CLIENT_AUTH[tls.client_auth_type] != ssl.CERT_NONE and not tls.client_ca_file:
        raise BadWebConfig(
            f"{tls.origin}: tls_server_config.client_ca_file is missing; "
            f"certificates for {tls.client_auth_type} are verified with it"
        )


class Certificates:
    """The TLS context made of files, and made anew when they have changed."""

    def __init__(self, tls: Tls) -> None:
        self._tls, self._stamp, self._failing = tls, _stamp(tls), False
        self.context = _context(tls)

    def renewed(self) -> ssl.SSLContext | None:
        """Another context if the files have changed and can be used; they may be half written."""
        stamp = _stamp(self._tls)
        if stamp == self._stamp:
            return None
        try:
            self.context = _context(self._tls)
        except BadWebConfig as error:
            if not self._failing:
                log.warning("certificates have changed and cannot be used, the old ones stay: %s", error)
            self._failing = True
            return None
        self._stamp, self._failing = stamp, False
        log.info("certificates have changed; new connections get them")
        return self.context


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[tls.min_version]
    for key in FILES:
        _check_readable(tls, key)
    try:  # without a password given, a key that needs one would be asked for on the terminal
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except (OSError, ValueError) as error:
        raise BadWebConfig(
            f"{tls.origin}: tls_server_config.cert_file {tls.cert_file} and key_file {tls.key_file} are no "
            f"certificate and its key without a password, in PEM ({_reason(error)})"
        ) from None
    try:
        if tls.client_ca_file:
            context.load_verify_locations(tls.client_ca_file)
    except (OSError, ValueError) as error:
        raise BadWebConfig(
            f"{tls.origin}: tls_server_config.client_ca_file {tls.client_ca_file} "
            f"has no certificates in PEM ({_reason(error)})"
        ) from None
    context.verify_mode = CLIENT_AUTH[tls.client_auth_type]
    return context


def _check_readable(tls: Tls, key: str) -> None:
    try:
        if path := getattr(tls, key):
            open(path, "rb").close()
    except OSError as error:
        raise BadWebConfig(
            f"{tls.origin}: tls_server_config.{key} {path} cannot be read: {error.strerror}"
        ) from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def _stamp(tls: Tls) -> Stamp:
    """What differs once one of the files is another."""
    return tuple(_seen(path) for path in (tls.cert_file, tls.key_file, tls.client_ca_file) if path)


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
