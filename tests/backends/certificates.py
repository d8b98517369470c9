"""Certificate authorities and certificates for tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """A CA whose files are below this folder."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(_name(name), self._key.public_key(), is_ca=True, lives=(-1, 1))
        self.file = self._write(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def _write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def _certificate(self, subject, public_key, *, lives, is_ca=False, dns=(), addresses=()):
        now = datetime.now(UTC)
        begins, ends = (now + timedelta(days=days) for days in lives)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_name(self.name))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_ca:
            usage = {name: name in {"key_cert_sign", "crl_sign", "digital_signature"} for name in (
                "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
                "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
            )}  # fmt: skip
            builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        names = [*map(x509.DNSName, dns), *(x509.IPAddress(ip_address(one)) for one in addresses)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, name, *, dns=(), addresses=(), lives=(-1, 1), to=""):
        """Files of a certificate and its key, valid from and until so many days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(_name(name), key.public_key(), lives=lives, dns=dns, addresses=addresses)
        stem = to or f"{self.name}-{name}"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = certificate.public_bytes(serialization.Encoding.PEM)
        return self._write(f"{stem}.pem", public), self._write(f"{stem}.key", private)
