"""Token, certificate and kubeconfig of the embedded cluster.

The server runs commands as its user, so no other user may reach it. The token is in one file that only its owner can
read. The certificate exists because clients send a token over TLS only (kubectl silently omits it otherwise). All are
new at each start and worthless after the end. They must never appear in a log or a repr.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from actors.errors import SettingsError

__all__ = ["ServerCredentials", "new_credentials", "remove_kubeconfig", "write_kubeconfig"]

_TOKEN_BYTES: Final = 32
_VALID_FOR: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(hours=1)
"""A year outlives any run; an hour back tolerates a clock that is corrected meanwhile."""
_NAMES: Final = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)
_HEADER: Final = "# Written by executor-pods for its embedded cluster; overwritten at its start, removed at its end.\n"


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """The server's token and certificate."""

    token: str = field(repr=False)
    authority: bytes
    """The certificate (PEM) that a client has to trust."""
    tls: ssl.SSLContext = field(repr=False)


def new_credentials() -> ServerCredentials:
    """Create a token, and a certificate for the loopback names. The authority's key is not kept."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "executor-pods embedded cluster")])
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _certificate(name, name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        _certificate(subject, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return ServerCredentials(
        token=secrets.token_urlsafe(_TOKEN_BYTES),
        authority=authority.public_bytes(Encoding.PEM),
        tls=_server_context(private + certificate.public_bytes(Encoding.PEM)),
    )


def write_kubeconfig(path: Path, server: str, credentials: ServerCredentials, namespace: str) -> None:
    """Write a kubeconfig that only its owner can read. Never overwrite a file of another program.

    Raises SettingsError if the path is taken or cannot be written.
    """
    authority = base64.b64encode(credentials.authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "local", "user": {"token": credentials.token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local", "namespace": namespace}}],
        "current-context": "local",
    }
    try:
        if os.path.lexists(path) and not _has_header(path):
            raise SettingsError(
                f"kubeconfig {path}: exists and was not written by executor-pods; allowed: an unused path"
            )
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_HEADER + yaml.safe_dump(config, sort_keys=False))
        Path(temporary).replace(path)
    except OSError as error:
        raise SettingsError(f"kubeconfig {path}: cannot be written: {error.strerror}") from error


def remove_kubeconfig(path: Path, credentials: ServerCredentials) -> None:
    """Remove the file that `write_kubeconfig` wrote, unless it was replaced."""
    try:
        if _has_header(path) and credentials.token in path.read_text(encoding="utf-8"):
            path.unlink()
    except OSError:
        pass  # the file or its directory was removed already


def _has_header(path: Path) -> bool:
    """Return whether this is a plain file with our header: links and devices are never replaced."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER.encode()


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # the machine's clock, not an injected one: clients check validity against theirs
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID_FOR)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _server_context(key_and_certificate: bytes) -> ssl.SSLContext:
    """Load key and certificate. The ssl module needs a file: a private one, for a moment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.NamedTemporaryFile(prefix="executor-pods-") as file:  # mode 0600
        file.write(key_and_certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context
