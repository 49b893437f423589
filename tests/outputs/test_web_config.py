"""TLS and passwords on a real daemon, with real certificates."""

import base64
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import bcrypt
import pytest
import trustme
import yaml

from gputally.outputs.http import Answer, Request
from gputally.outputs.web_config import BadWebConfig, Certificates, read
from gputally.outputs.web_users import Passwords, guarded
from tests.daemon import GPUTALLY, PATIENCE, Daemon, environment

SIMULATED = ("--machine", "simulated", "--interval", "1s")
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = {"ann": HASH}


class Secure(Daemon):
    """`gputally serve` behind TLS."""

    listening = r"listening on https://127\.0\.0\.1:(\d+)/"

    def scrape(self, context: ssl.SSLContext, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
        """Status and body of one answer, on a connection of its own."""
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers=headers)
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def certify(folder: Path, ca: trustme.CA) -> None:
    """A certificate and its key, as `cert.pem` and `key.pem`, and who signs clients', as `ca.pem`."""
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    ca.cert_pem.write_to_path(folder / "ca.pem")


def config(folder: Path, users: Mapping[str, str] | None = None, **tls: str) -> tuple[str, str]:
    """The flag for a web config with TLS, whose paths are relative to it."""
    path = folder / "web.yml"
    said: dict[str, object] = {"tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem", **tls}}
    path.write_text(yaml.safe_dump(said | ({"basic_auth_users": dict(users)} if users else {})))
    return "--web.config.file", str(path)


def trusting(ca: trustme.CA, own: trustme.CA | None = None) -> ssl.SSLContext:
    """What a client needs that trusts `ca`, and has a certificate from `own`."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if own is not None:
        own.issue_cert("client@example.org").configure_cert(context)
    return context


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_https_for_those_who_trust_us_and_nothing_else(tmp_path: Path, ca: trustme.CA) -> None:
    certify(tmp_path, ca)
    with Secure(*SIMULATED, *config(tmp_path)) as daemon:
        status, body = daemon.scrape(trusting(ca))
        assert (status, b"gputally_" in body) == (200, True)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            daemon.scrape(trusting(trustme.CA()))
        with pytest.raises(OSError):  # noqa: PT011 - however the connection ends, there is no answer
            daemon.get("/metrics")
        assert daemon.scrape(trusting(ca))[0] == 200
        assert daemon.terminate() == 0


def test_the_least_version_is_held(tmp_path: Path, ca: trustme.CA) -> None:
    certify(tmp_path, ca)
    with Secure(*SIMULATED, *config(tmp_path, min_version="TLS13")) as daemon:
        old = trusting(ca)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"(?i)version|eof|reset"):
            daemon.scrape(old)
        assert daemon.scrape(trusting(ca))[0] == 200


@pytest.mark.parametrize(
    ("kind", "without", "stranger"),
    [
        ("RequireAndVerifyClientCert", False, False),
        ("RequireAnyClientCert", False, False),
        ("VerifyClientCertIfGiven", True, False),
        ("RequestClientCert", True, True),
    ],
)
def test_client_certificates(
    tmp_path: Path, ca: trustme.CA, kind: str, without: bool, stranger: bool
) -> None:
    certify(tmp_path, ca)
    with Secure(*SIMULATED, *config(tmp_path, client_auth_type=kind, client_ca_file="ca.pem")) as daemon:
        assert daemon.scrape(trusting(ca, ca))[0] == 200
        for context, allowed in ((trusting(ca), without), (trusting(ca, trustme.CA()), stranger)):
            if allowed:
                assert daemon.scrape(context)[0] == 200
            else:
                with pytest.raises(OSError):  # noqa: PT011 - an alert or a reset, whichever comes first
                    daemon.scrape(context)


def test_a_changed_certificate_is_served_without_a_restart(tmp_path: Path, ca: trustme.CA) -> None:
    certify(tmp_path, ca)
    with Secure(*SIMULATED, *config(tmp_path)) as daemon:
        assert daemon.scrape(trusting(ca))[0] == 200
        another = trustme.CA()
        issued = another.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        daemon.line("the old ones stay")
        assert daemon.scrape(trusting(ca))[0] == 200
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        daemon.line("certificates have changed; new")
        assert daemon.scrape(trusting(another))[0] == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            daemon.scrape(trusting(ca))


def test_passwords_and_health_without(tmp_path: Path, ca: trustme.CA) -> None:
    certify(tmp_path, ca)
    with Secure(*SIMULATED, *config(tmp_path, USERS)) as daemon:
        trust = trusting(ca)
        assert daemon.scrape(trust)[0] == 401
        assert daemon.scrape(trust, Authorization=basic("ann", "secret"))[0] == 200
        assert daemon.scrape(trust, Authorization=basic("ann", "wrong"))[0] == 401
        assert daemon.scrape(trust, "/", Authorization=basic("bob", "secret"))[0] == 401
        for path in ("/-/healthy", "/healthz"):
            assert daemon.scrape(trust, path)[0] == 200
        daemon.until(lambda: daemon.scrape(trust, "/-/ready")[0] == 200)


def test_passwords_without_tls_and_metrics_on_a_path_of_health(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(yaml.safe_dump({"basic_auth_users": USERS}))
    flags = ("--web.config.file", str(tmp_path / "web.yml"), "--web.telemetry-path", "/healthz")
    with Daemon(*SIMULATED, *flags) as daemon:
        denied = daemon.get("/healthz")
        assert (denied.status, denied.headers["WWW-Authenticate"]) == (401, 'Basic realm="gputally"')
        assert daemon.get("/healthz", {"Authorization": basic("ann", "secret")}).status == 200
        assert daemon.get("/-/healthy").status == 200


GOOD_TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour: red", "'colour'"),
        (GOOD_TLS + ", cipher_suites: [x]}", "'cipher_suites'"),
        ("tls_server_config: {cert_file: cert.pem}", "tls_server_config.key_file is missing"),
        ("tls_server_config: {cert_file: gone.pem, key_file: key.pem}", "tls_server_config.cert_file"),
        ("tls_server_config: {cert_file: key.pem, key_file: cert.pem}", "tls_server_config.cert_file"),
        (GOOD_TLS + ", min_version: TLS10}", "tls_server_config.min_version"),
        (GOOD_TLS + ", client_auth_type: Maybe}", "tls_server_config.client_auth_type"),
        (GOOD_TLS + ", client_auth_type: RequireAnyClientCert}", "tls_server_config.client_ca_file"),
        (GOOD_TLS + ", client_ca_file: ca.pem}", "tls_server_config.client_ca_file"),
        (
            GOOD_TLS + ", client_ca_file: key.pem, client_auth_type: RequireAndVerifyClientCert}",
            "tls_server_config.client_ca_file",
        ),
        ("basic_auth_users: {ann: secret}", "basic_auth_users.ann"),
        ("basic_auth_users: {ann: $2y$31$" + 53 * "." + "}", "basic_auth_users.ann"),
        ("basic_auth_users: {7: x}", "basic_auth_users has the key 7"),
        ("basic_auth_users: [ann]", "basic_auth_users"),
        ("- a", "the file"),
        ("a: [", "is no YAML, line 1"),
        ("a: 2001-99-99", "is no YAML"),
        ("\0", "is no YAML"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_key(tmp_path: Path, ca: trustme.CA, text: str, named: str) -> None:
    certify(tmp_path, ca)
    path = tmp_path / "web.yml"
    path.write_text(text)
    with pytest.raises(BadWebConfig) as error:
        Certificates(tls) if (tls := read(str(path)).tls) else None
    assert str(path) in str(error.value)
    assert named in str(error.value)
    assert HASH not in str(error.value)


@pytest.mark.parametrize("text", ["colour: red", "tls_server_config: {cert_file: a, key_file: b}", None])
def test_a_bad_file_ends_the_program_before_it_listens(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "web.yml"
    if text is not None:
        path.write_text(text)
    words = ["serve", *SIMULATED, "--web.listen-address", "127.0.0.1:0", "--web.config.file", str(path)]
    done = subprocess.run(
        [*GPUTALLY, *words], env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_encrypted_key_is_refused_and_not_asked_for(tmp_path: Path, ca: trustme.CA) -> None:
    certify(tmp_path, ca)
    words = ["openssl", "pkcs8", "-topk8", "-passout", "pass:long enough", "-in", "key.pem", "-out", "locked"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE)
    tls = read(config(tmp_path, key_file="locked")[1]).tls
    assert tls is not None
    with pytest.raises(BadWebConfig, match="without a password"):
        Certificates(tls)


def test_an_empty_file_means_plain_http_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("")
    said = read(str(path))
    assert (said.tls, said.users) == (None, {})


class Hand:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_guesses_are_few_and_hold_up_nobody_who_was_right() -> None:
    clock = Hand()
    passwords = Passwords(USERS, clock)
    assert passwords.right(b"ann", b"secret") is True
    told = [passwords.right(b"ann", b"%d" % guess) for guess in range(20)]
    assert told == [False] * 4 + [None] * 16
    assert passwords.right(b"nobody", b"secret") is None
    assert passwords.right(b"ann", b"secret") is True
    clock.now += 0.2
    assert [passwords.right(b"bob", b"secret"), passwords.right(b"bob", b"x")] == [False, None]


def test_the_memory_of_passwords_is_bounded_and_each_user_has_an_own_one() -> None:
    clock = Hand()
    hashes = {f"u{n}": bcrypt.hashpw(b"p%d" % n, bcrypt.gensalt(4)).decode() for n in range(120)}
    passwords = Passwords(hashes, clock)
    for n in range(120):
        clock.now += 1
        assert passwords.right(b"u%d" % n, b"p%d" % n) is True
        assert passwords.right(b"u%d" % n, b"p%d" % (n + 1)) is False
    assert len(passwords._seen) == 100


def test_a_long_password_is_cut_as_bcrypt_does() -> None:
    long = 80 * b"x"
    passwords = Passwords({"ann": bcrypt.hashpw(long[:72], bcrypt.gensalt(4)).decode()})
    assert passwords.right(b"ann", long) is True


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !", "Basic é", "Bearer x", "Basic YW5u", "Basic " + 9 * "A"]
)
def test_headers_that_say_no_password_are_denied(header: str) -> None:
    respond = guarded(lambda _: Answer(200), USERS)
    assert respond(Request("GET", "/", "", {"Authorization": header})).status == 401
