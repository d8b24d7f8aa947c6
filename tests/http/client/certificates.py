"""A certificate authority for tests: nothing of it is trusted by the machine."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidegate.http.client_tls import upstream_context


class Authority:
    """A certificate authority and one server certificate, made for the test."""

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test CA")])
        self.certificate = _signed(name, name, key, key, x509.BasicConstraints(ca=True, path_length=0))
        server_key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.DNSName("model.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        server_certificate = _signed(subject, name, server_key, key, names)
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        chain, private = folder / "server.pem", folder / "server.key"
        chain.write_bytes(server_certificate.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            server_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server_context.load_cert_chain(chain, private)
        self.server_context.set_alpn_protocols(["http/1.1"])

    def trusting(self) -> ssl.SSLContext:
        context = upstream_context(verify=True)
        context.load_verify_locations(self.ca_file)
        return context


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.BasicConstraints | x509.SubjectAlternativeName,
) -> x509.Certificate:
    today = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=2))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(signer, hashes.SHA256())
    )
