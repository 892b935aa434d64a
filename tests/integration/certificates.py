"""Certificates for tests, made with openssl: an authority, and what it signs."""

import pathlib

import harness


class Authority:
    def __init__(self, directory, name="test-authority"):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.name, self.certificate, self.key = name, self.directory / f"{name}.crt", self.directory / f"{name}.key"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.certificate)

    def sign(self, name, subject=None, days=2, password=None):
        """(key file, certificate file, file with both). A host's certificate is for localhost and 127.0.0.1."""
        key, request, certificate, both = (self.directory / f"{name}.{end}" for end in ("key", "csr", "crt", "pem"))
        encryption = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        openssl("req", "-newkey", "rsa:2048", *encryption, "-subj", subject or f"/CN={name}", "-keyout", key, "-out", request)
        extensions = self.directory / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        # openssl x509 takes no days below 1; an end in the past is that of its `ca`.
        if days > 0:
            openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days,
                    "-extfile", extensions, "-out", certificate)
        else:
            configuration, index = self.directory / "ca.cnf", self.directory / "index"
            index.write_text("")
            configuration.write_text(f"[ca]\ndefault_ca=d\n[d]\ndatabase={index}\nnew_certs_dir={self.directory}\nrand_serial=yes\n"
                                     "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
            openssl("ca", "-batch", "-config", configuration, "-in", request, "-cert", self.certificate, "-keyfile", self.key,
                    "-startdate", "200101000000Z", "-enddate", "210101000000Z", "-notext", "-out", certificate)
        both.write_text(key.read_text() + certificate.read_text())
        return key, certificate, both


def openssl(*words):
    harness.run("openssl", *words, within=120)
