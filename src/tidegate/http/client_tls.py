"""TLS towards upstreams: what is trusted, and how a failed handshake is told to a person.

Certificates and host names are checked unless a setting says otherwise. Trust is the system's (`SSL_CERT_FILE` and
`SSL_CERT_DIR` included); only a machine without any store, as slim containers are, falls back to the list that `certifi` ships.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi


def upstream_context(*, verify: bool) -> ssl.SSLContext:
    """Make the context of one pool. Reads the trust store: call it while starting up, not per request."""
    context = ssl.create_default_context()
    if not system_has_trust():
        context.load_verify_locations(cafile=certifi.where())
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def system_has_trust() -> bool:
    """Say whether OpenSSL finds a certificate file or a directory with something in it."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile:  # either is None where the file or directory does not exist
        return True
    return bool(paths.capath) and any(Path(paths.capath).iterdir())


def explain(problem: OSError) -> str:
    """Say in one clause why a handshake failed and what to do about it."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({problem.verify_message}); if the server is yours, "
            "let it send the whole chain for this host name, or name its CA in SSL_CERT_FILE"
        )
    if isinstance(problem, ssl.SSLError):
        reason = (problem.reason or "handshake failure").replace("_", " ").lower()
        if "wrong version number" in reason or "record layer failure" in reason or "http request" in reason:
            return f"it does not speak TLS on this port ({reason}); if it is a plain server, write http:// in base_url"
        return f"the handshake failed ({reason})"
    return f"the connection broke during the handshake ({problem.strerror or problem}); check that the port speaks TLS"
