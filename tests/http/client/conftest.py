"""Fixtures of the upstream client's tests."""

from __future__ import annotations

import ssl

import pytest
from tests.http.client.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def self_signed(authority: Authority) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Give the server's context and one that trusts it."""
    return authority.server_context, authority.trusting()
