"""Key sets from files and URLs: which keys are taken, and when they are fetched."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tidegate.adapters.jwt.compact import Algorithm, Refusal
from tidegate.adapters.jwt.key_set import MAX_DOCUMENT_BYTES, parse_key_set
from tidegate.adapters.jwt.key_source import REFRESH_S, RETRY_S, JwksUrl
from tidegate.adapters.jwt.verifier import JwtVerifier
from tidegate.config.schema import JwtSection
from tidegate.domain.principal import Principal
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError, TidegateError, UpstreamUnavailable
from tidegate.gateway.authenticate import CachedAuthenticator, KeyMatch

URL = "https://login.example/jwks.json"
DEADLINE_S = 5.0
WALL_NOW = 1_000_000.0
Jwk = dict[str, object]


class NoKeys:
    """A book without API keys."""

    def match(self, token: str, *, wall_now: float) -> KeyMatch | None: ...

    def why_not(self, token: str, *, wall_now: float) -> str:  # noqa: ARG002  as the protocol has them
        return "there are none"


class SigningKey:
    def __init__(self, name: str) -> None:
        self.name = name
        self.private = ec.generate_private_key(ec.SECP256R1())

    def jwk(self) -> Jwk:
        return dict(ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)) | {"kid": self.name}

    def token(self, *, subject: str = "ann") -> str:
        claims = {"iss": "https://login.example", "aud": "tidegate", "exp": WALL_NOW + 1e6, "sub": subject, "tenant": "acme"}
        return jwt.encode(claims, self.private, "ES256", headers={"kid": self.name})


def document(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


class Endpoint:
    """A key set's URL: counts the fetches, answers what it is told to, and can be held up."""

    def __init__(self, answer: bytes | BaseException) -> None:
        self.answer = answer
        self.fetches = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, url: str) -> bytes:
        assert url == URL
        self.fetches += 1
        await self.gate.wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def verifier(self, *, before: JwtVerifier | None = None) -> JwtVerifier:
        return JwtVerifier([JwtSection(issuer="https://login.example", audience="tidegate", jwks=URL)], fetch=self.fetch, before=before)

    def authenticator(self) -> CachedAuthenticator:
        return CachedAuthenticator(keys=NoKeys(), wall_clock=lambda: WALL_NOW, tokens=self.verifier())


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage().partition(":")[0])

    logger = logging.getLogger("tidegate.adapters.jwt.key_source")
    collector = Collector()
    logger.addHandler(collector)
    yield lines
    logger.removeHandler(collector)


@pytest.fixture(scope="module")
def first() -> SigningKey:
    return SigningKey("first")


@pytest.fixture(scope="module")
def second() -> SigningKey:
    return SigningKey("second")


def accepted(answer: Principal | TidegateError) -> bool:
    return isinstance(answer, Principal)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  nothing here has an event to offer
            await asyncio.sleep(0)


def test_an_unknown_key_name_under_load_is_one_fetch(first: SigningKey, second: SigningKey) -> None:
    """Fifty concurrent requests with a key that was just rotated in share one fetch, and all pass."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        authenticator = endpoint.authenticator()
        assert accepted(await authenticator.verify(Secret(first.token()), now=0.0))
        endpoint.answer = document(first, second)
        endpoint.gate.clear()
        tokens = [Secret(second.token(subject=f"user-{number}")) for number in range(50)]
        assert [authenticator.known(token, now=RETRY_S) for token in tokens] == [None] * 50

        waiting = [asyncio.ensure_future(authenticator.verify(token, now=RETRY_S)) for token in tokens]
        await until(lambda: endpoint.fetches == 2)
        endpoint.gate.set()
        answers = await asyncio.gather(*waiting)

        assert all(map(accepted, answers))
        assert endpoint.fetches == 2

    asyncio.run(run())


def test_invented_key_names_do_not_hammer_the_provider(first: SigningKey) -> None:
    """A stranger who invents key names causes one fetch per 30 s; the refusal in between needs no waiting."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        authenticator = endpoint.authenticator()
        strangers = [Secret(SigningKey(f"invented-{number}").token()) for number in range(5)]
        for now in (0.0, 1.0, RETRY_S - 1, RETRY_S, RETRY_S + 1):
            for token in strangers:
                assert not accepted(await authenticator.verify(token, now=now))
        assert endpoint.fetches == 2
        assert authenticator.known(strangers[0], now=RETRY_S + 2) is not None

    asyncio.run(run())


def test_a_key_refused_before_its_rotation_passes_after_it(first: SigningKey, second: SigningKey) -> None:
    """A refusal for an unknown key is not remembered: the token passes once the key set has its key."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        authenticator = endpoint.authenticator()
        token = Secret(second.token())
        assert not accepted(await authenticator.verify(token, now=0.0))
        endpoint.answer = document(second)

        assert not accepted(await authenticator.verify(token, now=RETRY_S - 1))
        assert accepted(await authenticator.verify(token, now=RETRY_S))

    asyncio.run(run())


@pytest.mark.parametrize(
    "failure",
    [UpstreamUnavailable("refused"), OSError("unreachable"), TimeoutError(), b"<html>", b'{"keys": []}', b"x" * (MAX_DOCUMENT_BYTES + 1)],
    ids=["tidegate-error", "os-error", "timeout", "no-json", "no-keys", "too-large"],
)
def test_a_fetch_that_fails_keeps_the_old_keys(
    first: SigningKey, second: SigningKey, failure: bytes | BaseException, log_lines: list[str]
) -> None:
    """Whatever goes wrong, known keys go on working, the trouble is logged once, and the next try can succeed."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        authenticator = endpoint.authenticator()
        assert accepted(await authenticator.verify(Secret(first.token()), now=0.0))
        endpoint.answer = failure
        for now in (RETRY_S, 2 * RETRY_S):
            assert not accepted(await authenticator.verify(Secret(second.token()), now=now))
        assert accepted(await authenticator.verify(Secret(first.token(subject="bob")), now=2 * RETRY_S))

        endpoint.answer = document(second)
        assert accepted(await authenticator.verify(Secret(second.token()), now=3 * RETRY_S))
        assert endpoint.fetches == 4

    asyncio.run(run())

    assert log_lines == ["key_set.became_unavailable", "key_set.became_available"]


def passes(verifier: JwtVerifier, key: SigningKey, *, now: float = 0.0) -> bool:
    verdict = verifier.check(key.token(), now=now, wall_now=WALL_NOW)
    return verdict is not None and verdict.principal is not None


def test_a_reload_while_the_issuer_is_down_keeps_the_old_keys(first: SigningKey, second: SigningKey, log_lines: list[str]) -> None:
    """Known keys go on working in the verifier that follows; once the issuer is back, its keys take their place. It is logged once."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        before = endpoint.verifier()
        await before.warm_up(now=0.0)
        endpoint.answer = OSError("unreachable")
        after = endpoint.verifier(before=endpoint.verifier(before=before))
        await after.warm_up(now=1.0)
        await before.close()
        assert passes(after, first, now=1.0)
        assert endpoint.fetches == 2, "a reload asks, however short a time ago the last one did"

        endpoint.answer = document(second)
        await after.obtain_key(second.token(), now=1.0 + RETRY_S)
        assert (passes(after, first, now=2.0 + RETRY_S), passes(after, second, now=2.0 + RETRY_S)) == (False, True)

    asyncio.run(run())

    assert log_lines == ["key_set.became_unavailable", "key_set.became_available"]


def test_a_reload_that_changes_where_the_keys_are_forgets_the_old_ones(tmp_path: Path, first: SigningKey) -> None:
    """Keys of another place are not this issuer's any more; of the same file they stay, though it is gone at that moment."""
    path = tmp_path / "jwks.json"
    path.write_bytes(document(first))

    def verifier(place: str, before: JwtVerifier | None) -> JwtVerifier:
        section = JwtSection(issuer="https://login.example", audience="tidegate", jwks=place)
        return JwtVerifier([section], fetch=Endpoint(b"").fetch, before=before)

    before = verifier(str(path), None)
    assert passes(before, first)
    path.unlink()
    assert passes(verifier(str(path), before), first)
    assert not passes(verifier(URL, before), first)
    assert not passes(verifier(str(tmp_path / "other.json"), before), first)


def test_issuers_are_asked_at_the_same_time(first: SigningKey) -> None:
    """Several that do not answer cost the time of one; a fault of one is told after all have ended."""

    async def run() -> None:
        endpoints = [Endpoint(document(first)) for _ in range(3)]
        by_url = {f"https://login.example/{number}": endpoint for number, endpoint in enumerate(endpoints)}

        async def fetch(url: str) -> bytes:
            return await by_url[url].fetch(URL)

        verifier = JwtVerifier([JwtSection(issuer=url, audience="tidegate", jwks=url) for url in by_url], fetch=fetch)
        for endpoint in endpoints:
            endpoint.gate.clear()
        endpoints[0].answer = ZeroDivisionError("a bug")
        warming = asyncio.ensure_future(verifier.warm_up(now=0.0))
        await until(lambda: [endpoint.fetches for endpoint in endpoints] == [1, 1, 1])
        for endpoint in endpoints:
            endpoint.gate.set()
        with pytest.raises(ZeroDivisionError):
            await warming

    asyncio.run(run())


def test_keys_are_refreshed_hourly_by_use_without_waiting(first: SigningKey, second: SigningKey) -> None:
    """An hour after the last fetch a use answers at once and starts one fetch behind it, which retires the old key."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        verifier = endpoint.verifier()

        def refusal(now: float) -> Refusal | None:
            verdict = verifier.check(first.token(), now=now, wall_now=WALL_NOW)
            assert verdict is not None
            return verdict.refusal

        await verifier.warm_up(now=0.0)
        endpoint.answer = document(second)
        endpoint.gate.clear()
        assert refusal(REFRESH_S - 1) is None
        await asyncio.sleep(0)
        assert endpoint.fetches == 1

        assert refusal(REFRESH_S) is None
        await until(lambda: endpoint.fetches == 2)
        assert refusal(REFRESH_S + 1) is None
        endpoint.gate.set()
        await verifier.warm_up(now=REFRESH_S + 2)

        assert refusal(REFRESH_S + 3) is Refusal.UNKNOWN_KEY
        assert endpoint.fetches == 2

    asyncio.run(run())


def test_a_client_that_leaves_does_not_cancel_the_fetch_of_others(first: SigningKey) -> None:
    """Of two requests that wait for one fetch, one is cancelled; the other gets its answer from the same fetch."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        endpoint.gate.clear()
        authenticator = endpoint.authenticator()
        leaving, staying = (asyncio.ensure_future(authenticator.verify(Secret(first.token(subject=name)), now=0.0)) for name in "ab")
        await until(lambda: endpoint.fetches == 1)
        leaving.cancel()
        await until(leaving.done)
        endpoint.gate.set()

        assert accepted(await staying)
        assert endpoint.fetches == 1

    asyncio.run(run())


def test_closing_abandons_a_fetch_under_way(first: SigningKey) -> None:
    """After `close` no task is left, and a second close is harmless."""

    async def run() -> None:
        endpoint = Endpoint(document(first))
        endpoint.gate.clear()
        verifier = endpoint.verifier()
        warming = asyncio.ensure_future(verifier.warm_up(now=0.0))
        await until(lambda: endpoint.fetches == 1)
        await verifier.close()
        await verifier.close()
        with pytest.raises(asyncio.CancelledError):
            await warming
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_fault_in_the_fetch_is_logged_and_not_hidden(log_lines: list[str]) -> None:
    """An exception that is no failure of the provider reaches the waiter and the log."""

    async def run() -> None:
        source = JwksUrl(URL, fetch=Endpoint(ZeroDivisionError("a bug")).fetch)
        with pytest.raises(ZeroDivisionError):
            await source.refresh(now=0.0)
        await asyncio.sleep(0)

    asyncio.run(run())

    assert log_lines == ["key_set.fetch_failed_unexpectedly"]


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, first: SigningKey, second: SigningKey, log_lines: list[str]) -> None:
    """Replaced, broken and missing files: new keys are taken within a second of use, broken ones leave the old in force."""
    path = tmp_path / "jwks.json"
    verifier = JwtVerifier([JwtSection(issuer="https://login.example", audience="tidegate", jwks=str(path))])

    def passes(now: float) -> tuple[bool, bool]:
        verdicts = [verifier.check(key.token(), now=now, wall_now=WALL_NOW) for key in (first, second)]
        assert all(verdict is not None for verdict in verdicts)
        assert all(verdict.refusal in {None, Refusal.UNKNOWN_KEY} for verdict in verdicts if verdict)
        of_first, of_second = (verdict.principal is not None for verdict in verdicts if verdict)
        return of_first, of_second

    assert passes(0.0) == (False, False)
    path.write_bytes(document(first))
    assert passes(0.5) == (False, False)
    assert passes(1.0) == (True, False)
    path.write_bytes(document(second))
    os.utime(path, ns=(1, 1))
    assert passes(1.5) == (True, False)
    assert passes(2.0) == (False, True)
    path.write_bytes(b"{half writ")
    assert passes(3.0) == (False, True)
    path.unlink()
    assert passes(4.0) == (False, True)
    path.write_bytes(document(first, second))
    assert passes(5.0) == (True, True)
    assert log_lines == ["key_set.became_unavailable", "key_set.became_available"] + ["key_set.became_unavailable"] * 2 + [
        "key_set.became_available"
    ]


def rsa_jwk(bits: int, **members: object) -> Jwk:
    return dict(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, bits).public_key(), as_dict=True)) | members


def test_only_strong_signing_keys_of_our_kinds_are_taken(first: SigningKey) -> None:
    """Weak, foreign, encryption-only, shared-secret and broken keys are left out; the rest of the document counts."""
    good = rsa_jwk(2048, kid="good", use="sig", alg="RS256", key_ops=["verify"])
    p384 = dict(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True))
    bad: list[object] = [
        rsa_jwk(1024, kid="weak"),
        good | {"kid": "encrypts", "use": "enc"},
        good | {"kid": "signs", "key_ops": ["sign"]},
        good | {"kid": "other-algorithm", "alg": "PS256"},
        good | {"kid": "hmac", "alg": "HS256"},
        good | {"kid": "exponent-one", "e": "AQ"},
        good | {"kid": "exponent-even", "e": "Ag"},
        good | {"kid": "padded", "n": str(good["n"]) + "=="},
        good | {"kid": 7},
        {"kty": "RSA", "kid": "empty"},
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256"},
        {"kty": "OKP", "crv": "Ed25519", "kid": "okp", "x": "AAAA"},
        p384 | {"kid": "p384"},
        p384 | {"kid": "p384-mislabelled", "crv": "P-256"},
        first.jwk() | {"kid": "off-curve", "x": "AAAA"},
        "not an object",
        None,
    ]

    keys = parse_key_set(json.dumps({"keys": [*bad, good, first.jwk()], "extra": 1}).encode(), source="here")

    assert len(keys) == 2
    assert keys.find(Algorithm.RS256, "good") is not None
    assert keys.find(Algorithm.ES256, "first") is not None
    assert keys.find(Algorithm.ES256, "good") is keys.find(Algorithm.HS256, "shared") is None


def test_a_published_private_key_is_used_as_a_public_one(first: SigningKey) -> None:
    """A document that gives away its private part by mistake still verifies, and the private part is not kept."""
    leaked = dict(ECAlgorithm.to_jwk(first.private, as_dict=True)) | {"kid": "first"}
    assert "d" in leaked

    keys = parse_key_set(json.dumps({"keys": [leaked]}).encode(), source="here")

    assert keys.find(Algorithm.ES256, "first") is not None


def test_a_token_without_a_key_name_needs_a_set_with_one_key(first: SigningKey, second: SigningKey) -> None:
    """With one key of the algorithm it is meant; with two, guessing is refused."""
    one, two = (parse_key_set(document(*keys), source="here") for keys in ((first,), (first, second)))

    assert one.find(Algorithm.ES256, None) is one.find(Algorithm.ES256, "first")
    assert two.find(Algorithm.ES256, None) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "is no JSON Web Key Set"),
        (b"[]", "is no JSON Web Key Set"),
        (b'{"keys": {}}', "is no JSON Web Key Set"),
        (b'{"keys": [], "keys": []}', "is no JSON Web Key Set"),
        (b'{"keys": [' + b"1," * 64 + b"1]}", "more than 64 keys"),
        (b'{"keys": [{"kty": "oct"}]}', "has no usable signing key"),
    ],
)
def test_a_document_that_is_no_key_set_says_so(text: bytes, complaint: str) -> None:
    """Each kind of unusable document has its own sentence, with the place it came from."""
    with pytest.raises(ConfigurationError, match=complaint) as error:
        parse_key_set(text, source="https://login.example/keys")

    assert "https://login.example/keys" in error.value.message
