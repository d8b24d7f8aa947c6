"""A worker's reload while an issuer's keys cannot be had."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.config.schema import Configuration, JwtSection, LocalEngineSection
from tidegate.domain.principal import Principal
from tidegate.domain.units import Secret
from tidegate.wiring.worker import KEYS_FILE, open_worker

ISSUER = "https://login.example"


def test_known_users_are_let_in_after_it(tmp_path: Path) -> None:
    """The key set is gone at the moment of the reload: the keys that the configuration before it knew stay in force."""
    KeyStore(tmp_path / KEYS_FILE).close()
    key = ec.generate_private_key(ec.SECP256R1())
    key_set = tmp_path / "jwks.json"
    key_set.write_text(json.dumps({"keys": [dict(ECAlgorithm.to_jwk(key.public_key(), as_dict=True)) | {"kid": "one"}]}))
    claims = {"iss": ISSUER, "aud": "tidegate", "exp": wall_clock() + 600, "sub": "ann", "tenant": "acme"}
    token = Secret(jwt.encode(claims, key, "ES256", headers={"kid": "one"}))
    configuration = Configuration(
        local_engine=LocalEngineSection(enabled=False), jwt=(JwtSection(issuer=ISSUER, audience="tidegate", jwks=str(key_set)),)
    )

    async def run() -> None:
        worker = await open_worker(
            configuration, index=0, workers=1, state_directory=tmp_path, engine=None, counter_socket=None, ledger_socket=None
        )

        async def is_let_in() -> bool:
            return isinstance(await worker.gateway.services.authenticator.verify(token, now=asyncio.get_running_loop().time()), Principal)

        try:
            assert await is_let_in()
            key_set.unlink()
            worker.commit(await worker.prepare(configuration))
            assert await is_let_in()
        finally:
            await worker.aclose()

    asyncio.run(run())
