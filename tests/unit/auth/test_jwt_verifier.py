"""The JWT verifier: what it accepts, and the ways of cheating that it refuses."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tidegate.adapters.jwt.compact import MAX_TOKEN_CHARACTERS, Refusal, parse_token
from tidegate.adapters.jwt.verifier import JwtVerifier
from tidegate.config.schema import JwtSection
from tidegate.domain.principal import Principal
from tidegate.domain.units import KeyId, Secret, TenantId, UserId
from tidegate.errors import ConfigurationError

ISSUER = "https://login.example"
AUDIENCE = "tidegate"
SHARED = "a shared secret of more than 32 bytes"
WALL_NOW = 1_000_000.0
LEEWAY_S = 30.0
ISSUER_MARK = hashlib.sha256(ISSUER.encode()).hexdigest()[:8]

Claims = Mapping[str, object]
GOOD: Claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": WALL_NOW + 600, "sub": "ann", "tenant": "acme", "tier": "vip"}


class Provider:
    """An identity provider with an RSA and an EC key, both published in one key set."""

    def __init__(self, directory: Path) -> None:
        self.rsa_key = rsa.generate_private_key(65537, 2048)
        self.ec_key = ec.generate_private_key(ec.SECP256R1())
        self.key_set = directory / "jwks.json"
        rsa_jwk = RSAAlgorithm.to_jwk(self.rsa_key.public_key(), as_dict=True) | {"kid": "rsa-1", "use": "sig"}
        ec_jwk = ECAlgorithm.to_jwk(self.ec_key.public_key(), as_dict=True) | {"kid": "ec-1", "alg": "ES256"}
        self.key_set.write_text(json.dumps({"keys": [rsa_jwk, ec_jwk]}))

    def rs256(self, claims: Claims = GOOD, *, kid: str | None = "rsa-1", headers: Claims | None = None) -> str:
        return jwt.encode(dict(claims), self.rsa_key, "RS256", headers=dict(headers or {}) | ({"kid": kid} if kid is not None else {}))

    def es256(self, claims: Claims = GOOD, *, kid: str | None = "ec-1") -> str:
        return jwt.encode(dict(claims), self.ec_key, "ES256", headers={"kid": kid} if kid is not None else {})

    def public_pem(self) -> bytes:
        return self.rsa_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(tmp_path_factory.mktemp("provider"))


@pytest.fixture(scope="module")
def verifier(provider: Provider) -> JwtVerifier:
    return JwtVerifier([JwtSection(issuer=ISSUER, audience=AUDIENCE, jwks=str(provider.key_set), leeway_s=LEEWAY_S)])


@pytest.fixture(scope="module")
def shared_verifier() -> JwtVerifier:
    return JwtVerifier([JwtSection(issuer=ISSUER, audience=AUDIENCE, algorithms=("HS256",), secret=Secret(SHARED), leeway_s=LEEWAY_S)])


def judge(verifier: JwtVerifier, token: str, *, wall_now: float = WALL_NOW) -> Principal | Refusal:
    verdict = verifier.check(token, now=0.0, wall_now=wall_now)
    assert verdict is not None
    assert (verdict.principal is None) != (verdict.refusal is None)
    assert (verdict.expires_at is None) == (verdict.principal is None)
    assert bool(verdict.why) == (verdict.refusal is not None)
    return verdict.principal or verdict.refusal or Refusal.MALFORMED


def segment(content: object) -> str:
    encoded = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(encoded).rstrip(b"=").decode()


def hs256(header: object, claims: object, secret: bytes = SHARED.encode()) -> str:
    """Sign anything at all with HMAC-SHA-256, as an attacker would, without a library's scruples."""
    signing_input = f"{segment(header)}.{segment(claims)}"
    return f"{signing_input}.{segment(hmac.digest(secret, signing_input.encode(), 'sha256'))}"


def test_a_good_token_is_the_principal_of_its_claims(provider: Provider, verifier: JwtVerifier, shared_verifier: JwtVerifier) -> None:
    """RS256, ES256 and HS256 tokens give tenant, user, tier and a key id of issuer and subject; the token's end includes the leeway."""
    expected = Principal(key_id=KeyId(f"jwt:{ISSUER_MARK}:ann"), tenant=TenantId("acme"), user=UserId("ann"), tier="vip")
    by_name = [judge(verifier, token) for token in (provider.rs256(), provider.es256())]
    alone = [judge(verifier, token) for token in (provider.rs256(kid=None), provider.es256(kid=None))]
    shared = judge(shared_verifier, hs256({"alg": "HS256", "typ": "JWT"}, GOOD))
    verdict = verifier.check(provider.rs256(), now=0.0, wall_now=WALL_NOW)

    assert [*by_name, *alone, shared] == [expected] * 5
    assert verdict is not None
    assert verdict.expires_at == WALL_NOW + 600 + LEEWAY_S


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "nOnE", "", None, 7, ["RS256"], "rs256", "hs256", "HS512", "PS256", "RS256 ", "EdDSA"]
)
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_an_algorithm_that_is_not_exactly_ours_is_refused(verifier: JwtVerifier, algorithm: object, signature: str) -> None:
    """`none` in every spelling, other families, wrong case and wrong types never reach a key."""
    header = {"typ": "JWT"} if algorithm is None else {"typ": "JWT", "alg": algorithm}

    assert judge(verifier, f"{segment(header)}.{segment(GOOD)}.{signature}") is Refusal.ALGORITHM


def test_a_public_key_is_no_shared_secret(provider: Provider, verifier: JwtVerifier) -> None:
    """HS256 signed with the published RSA key (PEM, with and without its last newline, and as JSON) is refused, whatever key it names."""
    pem = provider.public_pem()
    secrets = [pem, pem.rstrip(), provider.key_set.read_bytes()]
    headers: list[dict[str, object]] = [{"alg": "HS256"}, {"alg": "HS256", "kid": "rsa-1"}, {"alg": "HS256", "kid": "ec-1"}]

    assert {judge(verifier, hs256(header, GOOD, secret)) for secret in secrets for header in headers} == {Refusal.ALGORITHM}


def test_a_public_key_is_no_shared_secret_where_both_are_trusted(provider: Provider) -> None:
    """An issuer with a secret and a key set keeps the two apart in both directions."""
    section = JwtSection(
        issuer=ISSUER, audience=AUDIENCE, algorithms=("HS256", "RS256", "ES256"), secret=Secret(SHARED), jwks=str(provider.key_set)
    )
    verifier = JwtVerifier([section])
    relabelled = provider.rs256().split(".")
    relabelled[0] = segment({"alg": "HS256", "kid": "rsa-1"})

    assert judge(verifier, hs256({"alg": "HS256", "kid": "rsa-1"}, GOOD, provider.public_pem())) is Refusal.SIGNATURE
    assert judge(verifier, ".".join(relabelled)) is Refusal.SIGNATURE
    assert judge(verifier, hs256({"alg": "RS256", "kid": "rsa-1"}, GOOD)) is Refusal.SIGNATURE
    assert isinstance(judge(verifier, hs256({"alg": "HS256", "kid": "rsa-1"}, GOOD)), Principal)
    assert isinstance(judge(verifier, provider.rs256()), Principal)


def test_a_key_name_only_finds_keys_of_the_tokens_algorithm(provider: Provider, verifier: JwtVerifier) -> None:
    """Naming the other key, an unknown one, or a path gives no key; it may be known later, so the refusal does not last."""
    tokens = [provider.rs256(kid=name) for name in ("ec-1", "unknown", "../../dev/null", "rsa-1' OR '1'='1")] + [
        provider.es256(kid="rsa-1")
    ]

    verdicts = [verifier.check(token, now=0.0, wall_now=WALL_NOW) for token in tokens]

    assert [(verdict.refusal, verdict.lasting) for verdict in verdicts if verdict] == [(Refusal.UNKNOWN_KEY, False)] * 5


def test_a_token_of_a_stranger_is_refused(verifier: JwtVerifier, shared_verifier: JwtVerifier) -> None:
    """A right header and right claims under a wrong key do not pass."""
    stranger_rsa, stranger_ec = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())

    assert judge(verifier, jwt.encode(dict(GOOD), stranger_rsa, "RS256", headers={"kid": "rsa-1"})) is Refusal.SIGNATURE
    assert judge(verifier, jwt.encode(dict(GOOD), stranger_ec, "ES256", headers={"kid": "ec-1"})) is Refusal.SIGNATURE
    assert judge(shared_verifier, hs256({"alg": "HS256"}, GOOD, b"another secret of more than 32 bytes")) is Refusal.SIGNATURE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("jwk", {"kty": "oct", "k": "AAAA"}),
        ("jku", "https://evil.example/jwks.json"),
        ("x5u", "https://evil.example/cert.pem"),
        ("crit", ["exp"]),
        ("crit", []),
        ("b64", False),
        ("zip", "DEF"),
        ("enc", "A128GCM"),
        ("kid", 7),
        ("kid", ""),
        ("kid", "x" * 257),
        ("typ", "logout+jwt"),
        ("typ", 7),
    ],
)
def test_header_fields_that_steer_verification_are_refused(shared_verifier: JwtVerifier, field: str, value: object) -> None:
    """Keys brought along, addresses of keys, critical extensions and foreign types are refused even under a good signature."""
    assert judge(shared_verifier, hs256({"alg": "HS256", field: value}, GOOD)) is Refusal.HEADER_FIELD


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_access_token_types_are_accepted(shared_verifier: JwtVerifier, typ: str) -> None:
    """Both usual types pass, in any case; so does a certificate thumbprint, which is not looked at."""
    assert isinstance(judge(shared_verifier, hs256({"alg": "HS256", "typ": typ, "x5t": "AAAA"}, GOOD)), Principal)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exp": None}, Refusal.CLAIMS),
        ({"exp": "1000600"}, Refusal.CLAIMS),
        ({"exp": True}, Refusal.CLAIMS),
        ({"exp": -1}, Refusal.CLAIMS),
        ({"exp": 10**400}, Refusal.CLAIMS),
        ({"exp": (WALL_NOW + 600) * 1e6}, Refusal.CLAIMS),
        ({"exp": WALL_NOW - LEEWAY_S}, Refusal.EXPIRED),
        ({"exp": WALL_NOW - LEEWAY_S + 1}, None),
        ({"nbf": WALL_NOW + LEEWAY_S + 1}, Refusal.NOT_YET_VALID),
        ({"nbf": WALL_NOW + LEEWAY_S}, None),
        ({"nbf": "soon"}, Refusal.CLAIMS),
        ({"iat": WALL_NOW + LEEWAY_S + 1}, Refusal.NOT_YET_VALID),
        ({"iat": WALL_NOW - 1e5}, None),
        ({"iat": [1]}, Refusal.CLAIMS),
        ({"iss": None}, Refusal.ISSUER),
        ({"iss": ISSUER + "/"}, Refusal.ISSUER),
        ({"iss": [ISSUER]}, Refusal.ISSUER),
        ({"iss": {"a": ISSUER}}, Refusal.ISSUER),
        ({"aud": None}, Refusal.AUDIENCE),
        ({"aud": "other"}, Refusal.AUDIENCE),
        ({"aud": AUDIENCE + "x"}, Refusal.AUDIENCE),
        ({"aud": ["other", AUDIENCE]}, None),
        ({"aud": ["other"]}, Refusal.AUDIENCE),
        ({"aud": [[AUDIENCE]]}, Refusal.AUDIENCE),
        ({"aud": {AUDIENCE: 1}}, Refusal.AUDIENCE),
        ({"tenant": None}, Refusal.CLAIMS),
        ({"tenant": ""}, Refusal.CLAIMS),
        ({"tenant": ["acme"]}, Refusal.CLAIMS),
        ({"tenant": "a\nb"}, Refusal.CLAIMS),
        ({"tenant": "x" * 201}, Refusal.CLAIMS),
        ({"tenant": 42}, None),
        ({"tier": None}, None),
        ({"tier": {"a": 1}}, Refusal.CLAIMS),
        ({"sub": None}, Refusal.CLAIMS),
        ({"sub": 42}, None),
    ],
)
def test_claims_are_checked(shared_verifier: JwtVerifier, change: Claims, expected: Refusal | None) -> None:
    """Each claim is of its type, in its range, and the times hold with the leeway; None removes a claim."""
    claims = {name: value for name, value in {**GOOD, **change}.items() if value is not None}

    verdict = judge(shared_verifier, hs256({"alg": "HS256"}, claims))

    assert (verdict if isinstance(verdict, Refusal) else None) == expected


def test_a_token_that_is_only_early_is_not_refused_for_good(shared_verifier: JwtVerifier) -> None:
    """A token from the near future is refused now and accepted when its time has come."""
    token = hs256({"alg": "HS256"}, {**GOOD, "nbf": WALL_NOW + 100})
    early = shared_verifier.check(token, now=0.0, wall_now=WALL_NOW)

    assert early is not None
    assert (early.refusal, early.lasting) == (Refusal.NOT_YET_VALID, False)
    assert isinstance(judge(shared_verifier, token, wall_now=WALL_NOW + 70), Principal)


def test_a_changed_payload_is_refused(provider: Provider, verifier: JwtVerifier) -> None:
    """Claims swapped under a genuine signature do not pass."""
    header, _, signature = provider.rs256().split(".")

    assert judge(verifier, f"{header}.{segment({**GOOD, 'sub': 'root'})}.{signature}") is Refusal.SIGNATURE


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        (b'{"alg":"HS256","alg":"HS256"}', GOOD),
        (b'{"alg":"none","alg":"HS256"}', GOOD),
        ({"alg": "HS256"}, json.dumps(GOOD).encode().replace(b'{"iss"', b'{"sub":"root","iss"')),
        ({"alg": "HS256"}, b'{"a":{"b":1,"b":2}}'),
        ({"alg": "HS256"}, b'{"exp":NaN}'),
        ({"alg": "HS256"}, b'{"exp":Infinity}'),
        ({"alg": "HS256"}, b"[" * 6000),
        ({"alg": "HS256"}, b'{"a":' * 2000),
        ({"alg": "HS256"}, b'{"exp":' + b"9" * 6000 + b"}"),
        ({"alg": "HS256"}, b'["iss"]'),
        ({"alg": "HS256"}, b"\xff\xfe{}"),
        ({"alg": "HS256"}, b"{"),
        ([], GOOD),
        (b"", GOOD),
    ],
)
def test_json_that_two_readers_could_read_differently_is_refused(shared_verifier: JwtVerifier, header: object, claims: object) -> None:
    """Repeated names, NaN, deep nesting, endless numbers, non-objects and broken text are malformed, and nothing raises."""
    assert judge(shared_verifier, hs256(header, claims)) is Refusal.MALFORMED


def test_a_huge_token_is_refused_unread(shared_verifier: JwtVerifier) -> None:
    """One character over the bound is too long; a good token just under it passes."""
    padding = 11_900
    longest = hs256({"alg": "HS256"}, {**GOOD, "groups": "x" * padding})

    assert len(longest) <= MAX_TOKEN_CHARACTERS
    assert isinstance(judge(shared_verifier, longest), Principal)
    assert judge(shared_verifier, "a" * (MAX_TOKEN_CHARACTERS + 1)) is Refusal.TOO_LONG


@given(st.text(alphabet=st.one_of(st.sampled_from("ey.-_=+/ \n{}"), st.characters(codec="utf-8"))))
def test_any_text_can_be_parsed(text: str) -> None:
    """Text that is no token is a refusal, never an exception."""
    assert isinstance(parse_token(text), Refusal)


GENUINE = hs256({"alg": "HS256"}, GOOD)


@given(position=st.integers(0, len(GENUINE) - 1), character=st.sampled_from("ABCXYZabcxyz0189-_.="))
def test_no_character_of_a_token_can_be_changed(shared_verifier: JwtVerifier, position: int, character: str) -> None:
    """Any one character changed (also one that base64 decoders tend to ignore) makes another token, and it is refused."""
    changed = GENUINE[:position] + character + GENUINE[position + 1 :]

    assert isinstance(judge(shared_verifier, changed), Principal) == (changed == GENUINE)


def test_a_signature_has_one_spelling(shared_verifier: JwtVerifier) -> None:
    """The last character's spare bits, which lenient base64 decoders ignore, cannot be used to make a second good token."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

    accepted = [character for character in alphabet if isinstance(judge(shared_verifier, GENUINE[:-1] + character), Principal)]

    assert accepted == [GENUINE[-1]]


@pytest.mark.parametrize("subject", ["x" * 97, "名前", "a b", "#" + "0" * 32, 'a"b'])
def test_an_unwieldy_subject_is_counted_under_its_hash(shared_verifier: JwtVerifier, subject: str) -> None:
    """Long or unusual subjects keep the key id short and plain; the user stays as it was."""
    principal = judge(shared_verifier, hs256({"alg": "HS256"}, {**GOOD, "sub": subject}))

    assert isinstance(principal, Principal)
    assert principal.key_id == f"jwt:{ISSUER_MARK}:#{hashlib.sha256(subject.encode()).hexdigest()[:32]}"
    assert principal.user == subject


def test_claims_are_found_under_their_configured_names() -> None:
    """Tenant, user and tier come from the claims that the issuer's section names; limits are counted under `sub`."""
    section = JwtSection(
        issuer=ISSUER,
        audience=AUDIENCE,
        algorithms=("HS256",),
        secret=Secret(SHARED),
        tenant_claim="org",
        user_claim="email",
        tier_claim="plan",
    )
    claims = {**GOOD, "org": "globex", "email": "bob@globex.example", "plan": "free"}

    principal = judge(JwtVerifier([section]), hs256({"alg": "HS256"}, claims))

    assert principal == Principal(
        key_id=KeyId(f"jwt:{ISSUER_MARK}:ann"), tenant=TenantId("globex"), user=UserId("bob@globex.example"), tier="free"
    )


def test_issuers_do_not_vouch_for_each_other() -> None:
    """A token of one issuer's secret that claims to come from the other is refused."""
    sections = [
        JwtSection(issuer=issuer, audience=AUDIENCE, algorithms=("HS256",), secret=Secret(f"{issuer} {SHARED}"))
        for issuer in ("https://one.example", "https://two.example")
    ]
    verifier = JwtVerifier(sections)
    secret = f"https://one.example {SHARED}".encode()

    assert isinstance(judge(verifier, hs256({"alg": "HS256"}, {**GOOD, "iss": "https://one.example"}, secret)), Principal)
    assert judge(verifier, hs256({"alg": "HS256"}, {**GOOD, "iss": "https://two.example"}, secret)) is Refusal.SIGNATURE


def test_one_issuer_may_have_two_audiences() -> None:
    """Two sections of one issuer are told apart by audience."""
    sections = [
        JwtSection(issuer=ISSUER, audience=audience, algorithms=("HS256",), secret=Secret(SHARED), tenant_claim=f"{audience}_tenant")
        for audience in ("blue", "green")
    ]
    claims = {**GOOD, "aud": "green", "blue_tenant": "b", "green_tenant": "g"}

    principal = judge(JwtVerifier(sections), hs256({"alg": "HS256"}, claims))

    assert isinstance(principal, Principal)
    assert principal.tenant == "g"


def test_verdicts_are_counted_by_reason() -> None:
    """Operators see why tokens are refused, which clients never do."""
    section = JwtSection(issuer=ISSUER, audience=AUDIENCE, algorithms=("HS256",), secret=Secret(SHARED))
    verifier = JwtVerifier([section])
    for token in (hs256({"alg": "HS256"}, GOOD), "x", "x", hs256({"alg": "HS256"}, {**GOOD, "exp": 1})):
        judge(verifier, token)

    statistics = verifier.statistics()

    assert statistics.accepted == 1
    assert statistics.refused == {Refusal.MALFORMED: 2, Refusal.EXPIRED: 1}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"algorithms": ("none",), "secret": Secret(SHARED)}, "may name HS256, RS256 and ES256"),
        ({"algorithms": ("rs256",), "jwks": "x.json"}, "in capitals"),
        ({"algorithms": ()}, "`algorithms` is empty"),
        ({"algorithms": ("HS256",)}, "`secret` and the algorithm HS256 belong together"),
        ({"jwks": "x.json", "secret": Secret(SHARED)}, "`secret` and the algorithm HS256 belong together"),
        ({"algorithms": ("RS256",)}, "set `jwks`, or"),
        ({"algorithms": ("HS256",), "secret": Secret(SHARED), "jwks": "x.json"}, "`jwks` and the algorithms RS256"),
        ({"algorithms": ("HS256",), "secret": Secret("s3cret-canary")}, "shorter than 32 bytes"),
        ({"jwks": "http://login.example/jwks.json"}, "use https"),
        ({"jwks": "https://login.example/jwks.json"}, "point `jwks` at a file"),
    ],
)
def test_a_section_that_cannot_work_is_refused_at_start(settings: dict[str, Any], complaint: str) -> None:
    """Each mistake is a `ConfigurationError` that names the issuer and the setting, and shows no secret."""
    section = JwtSection(**{"issuer": ISSUER, "audience": AUDIENCE, **settings})

    with pytest.raises(ConfigurationError) as error:
        JwtVerifier([section])

    assert complaint in error.value.message
    assert ISSUER in error.value.message
    assert "canary" not in error.value.message


def test_a_public_key_configured_as_a_secret_is_refused_at_start(provider: Provider) -> None:
    """The mistake that makes algorithm confusion possible is caught before it can."""
    section = JwtSection(issuer=ISSUER, audience=AUDIENCE, algorithms=("HS256",), secret=Secret(provider.public_pem().decode()))

    with pytest.raises(ConfigurationError, match="which everyone may know"):
        JwtVerifier([section])


def test_a_gateway_without_jwt_does_not_load_the_libraries() -> None:
    """Importing everything here, and a verifier without issuers, loads neither PyJWT nor cryptography."""
    program = (
        "import sys; import tidegate.gateway.authenticate, tidegate.adapters.jwt.verifier as v; v.JwtVerifier([]);"
        " sys.exit(bool({'jwt', 'cryptography'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    finished = subprocess.run([sys.executable, "-c", program], env=environment, check=False, timeout=20)

    assert finished.returncode == 0
