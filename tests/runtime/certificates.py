"""Where do the certificates of the tests come from? An authority made for each of them."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLIENT_ONLY", "DAY", "SERVER_ONLY", "Authority", "Files"]

DAY = datetime.timedelta(days=1)
SERVER_ONLY = (ExtendedKeyUsageOID.SERVER_AUTH,)
CLIENT_ONLY = (ExtendedKeyUsageOID.CLIENT_AUTH,)


@dataclass(frozen=True)
class Files:
    """A certificate and its key on disk."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates and writes them into a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(self._name, self._name, self._key.public_key(), -DAY, 10 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        common_names: tuple[str, ...] | None = None,
        alternatives: tuple[str, ...] = ("localhost", "127.0.0.1", "::1"),
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = DAY,
        purposes: tuple[x509.ObjectIdentifier, ...] = (*SERVER_ONLY, *CLIENT_ONLY),
        passphrase: bytes | None = None,
    ) -> Files:
        """A certificate for `name`, valid from `begins` to `ends`, both counted from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = (name,) if common_names is None else common_names
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names])
        builder = (
            _builder(subject, self._name, key.public_key(), begins, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(each) for each in alternatives]), critical=False
            )
        files = Files(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        certificate = builder.sign(self._key, hashes.SHA256())
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption()
                if passphrase is None
                else serialization.BestAvailableEncryption(passphrase),
            )
        )
        return files

    def revoke(self, *revoked: Files) -> Path:
        """The list of what was taken back."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - DAY)
            .next_update(now + DAY)
        )
        for files in revoked:
            certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now - DAY).build())
        path = self._directory / "revocations.pem"
        signed = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return path


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begins: datetime.timedelta,
    ends: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
