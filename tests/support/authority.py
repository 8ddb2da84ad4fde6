"""A certificate authority of the tests' own."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass
class Authority:
    """Issues certificates for servers; ``bundle`` is what a client must trust."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def bundle(self) -> Path:
        return self.folder / "ca.pem"

    def context(self, *hosts: str, is_expired: bool = False) -> ssl.SSLContext:
        """A server's context with a certificate for these names and addresses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(*hosts, is_expired=is_expired))
        return context

    def issue(self, *hosts: str, is_expired: bool = False) -> Path:
        """A file with a key, and the certificate of it for these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.timezone.utc)
        end = now - DAY if is_expired else now + DAY
        names = [_general_name(host) for host in hosts]
        certificate = (
            _builder(hosts[0], issuer=self.certificate.subject, key=key, start=now - 3 * DAY, end=end)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_key_identifier(self.key), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        path = self.folder / f"{'-'.join(hosts).replace(':', '_')}{is_expired}.pem"
        path.write_bytes(_pem_of_key(key) + certificate.public_bytes(serialization.Encoding.PEM))
        return path


def build_authority(folder: Path) -> Authority:
    """A new authority whose files lie in ``folder``."""
    folder.mkdir(exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vmnest test authority")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder("vmnest test authority", issuer=subject, key=key, start=now - 3 * DAY, end=now + 3 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(folder, key, certificate)
    authority.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return authority


def _builder(
    name: str, *, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime.datetime, end: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that nobody trusts by default."""
    return build_authority(tmp_path_factory.mktemp("authority"))
