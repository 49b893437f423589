"""Questions to a Prometheus server over its HTTP API, each within a deadline."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from gputally.model import Unreadable

MOST_BYTES = 64 * 2**20

Series = list[tuple[Mapping[str, str], float]]


class PrometheusApi:
    """One Prometheus, or what answers like it; every failure is an Unreadable that says what to do."""

    def __init__(self, url: str, deadline: float, token: str = "", ca_file: str | None = None) -> None:
        """`deadline` is a moment of the monotonic clock by which all questions are answered."""
        self._url = url.rstrip("/")
        self._deadline = deadline
        self._headers = {"Accept": "application/json", "User-Agent": "gputally-verify"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise Unreadable(f"certificates cannot be read from {ca_file}: {error}") from None
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirect()
        )

    def query(self, expression: str) -> Series:
        """The instant vector that an expression yields now."""
        data = self._ask("query", {"query": expression})
        try:
            return [(series["metric"], float(series["value"][1])) for series in data["result"]]
        except (KeyError, IndexError, TypeError, ValueError):
            raise Unreadable(f"{self._url} answers, but not like Prometheus") from None

    def target_errors(self) -> dict[str, str]:
        """Why targets could not be scraped, by instance; empty where the server does not tell."""
        try:
            targets = self._ask("targets", {"state": "active"})["activeTargets"]
            return {t["labels"]["instance"]: t["lastError"] for t in targets if t["lastError"]}
        except (Unreadable, KeyError, TypeError):
            return {}

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Any:
        body = self._get(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        try:
            answer = json.loads(body)
        except ValueError:
            raise Unreadable(_not_json(self._url, body)) from None
        if not isinstance(answer, dict) or "data" not in answer or answer.get("status") != "success":
            told = answer.get("error") if isinstance(answer, dict) else None
            raise Unreadable(f"{self._url} refuses: {told or 'its answer is not one of Prometheus'}")
        return answer["data"]

    def _get(self, url: str) -> bytes:
        """The body of an answer, in time whatever hangs: a name server, headers that come drop by drop."""
        box: list[bytes | Unreadable] = []
        thread = threading.Thread(target=lambda: box.append(self._try(url)), daemon=True)
        thread.start()
        thread.join(max(0.0, self._deadline - time.monotonic()))
        found = box[0] if box else Unreadable(f"{self._url} did not answer in time")
        if isinstance(found, Unreadable):
            raise found
        return found

    def _try(self, url: str) -> bytes | Unreadable:
        # The scheme was checked where the address was read.
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310
        try:
            return self._fetch(request)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                return Unreadable(f"{self._url} did not answer in time")
            return Unreadable(f"{self._url} cannot be reached: {reason}")
        except Unreadable as error:
            return error

    def _fetch(self, request: urllib.request.Request) -> bytes:
        left = max(0.1, self._deadline - time.monotonic())
        try:
            with self._opener.open(request, timeout=left) as answer:
                return self._read(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (400, 422, 503) and error.headers.get_content_type() == "application/json":
                    return self._read(error)
            raise Unreadable(_refused(self._url, error)) from None

    def _read(self, answer: Any) -> bytes:
        body: bytes = answer.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise Unreadable(f"{self._url} answers more than {MOST_BYTES >> 20} MiB")
        return body


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token must not follow a redirect to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _not_json(url: str, body: bytes) -> str:
    page = body[:200].lstrip().lower().startswith((b"<!doctype", b"<html"))
    what = "a web page" if page else "something that is not JSON"
    return f"{url} answers {what}: is it the address of Prometheus, and is there a login in front of it?"


def _refused(url: str, error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        where = error.headers.get("Location", "elsewhere")
        return f"{url} redirects to {where}: name the address of Prometheus itself, or log in with a token"
    if error.code in (401, 403):
        return f"{url} answers {error.code}: it wants a token (--prometheus.token-file)"
    return f"{url} answers {error.code}: is it the address of Prometheus?"
