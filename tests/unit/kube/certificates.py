"""Certificate authorities for tests, and their certificates."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, certificate: Path, key: Path) -> None:
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)


class Authority:
    """Signs certificates for this machine's loopback address, or for clients."""

    def __init__(self, name: str, *, plain: bool = False) -> None:
        """`plain`: its certificates have no key identifiers, as those of many clusters."""
        self._plain = plain
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def pem(self) -> bytes:
        """What those trust who trust it."""
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)  # noqa: FBT003 - signs
        built = _built(self._name, self._name, self._key.public_key(), DAY)
        identity = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        if not self._plain:
            built = built.add_extension(identity, critical=False)
        return built.add_extension(usage, critical=True).sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def sign(self, name: str = "somebody", *, valid_for: timedelta = DAY) -> Pair:
        """A new certificate; one that has expired if it is valid for less than nothing."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = _built(subject, self._name, key.public_key(), valid_for).add_extension(loopback, critical=False)
        if not self._plain:
            built = built.add_extension(signer, critical=False)
        return Pair(
            built.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )

    def server(self, folder: Path, *, clients: Authority | None = None) -> ssl.SSLContext:
        """TLS as a server that this authority knows; if `clients` is given, it lets only those in whom that knows."""
        files = folder / "server.crt", folder / "server.key"
        self.sign().write(*files)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem.decode())
        return context


def _built(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid_for: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + valid_for)
    )
