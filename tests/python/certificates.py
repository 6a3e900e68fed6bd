"""Certificates for a test, made by the command openssl: a CA, what it signs, and the configuration file.

    files = Certificates(tmp_path)
    with Cluster(node(), workers=2, env=files.env()) as cluster: ...
"""

import json
import secrets
import subprocess
import time

PASSWORD = "hunter2"
AUTHORITY = """
[ca]
default_ca = own
[own]
database = {name}.index
new_certs_dir = .
serial = {name}.number
crlnumber = {name}.lists
certificate = {name}.pem
private_key = {name}.key
default_md = sha256
policy = policy
x509_extensions = node
unique_subject = no
[policy]
commonName = supplied
[node]
basicConstraints = CA:FALSE
"""


class Certificates:
    """A folder with `ca.pem`, `server.*`, `client.*` and `tls.json`.

    ca        the name of the CA
    kind      what the configuration names: "pem", "sealed" (PEM with an encrypted key), "p12" (as OpenSSL 3 writes it), "old" (as
              OpenSSL 1.1 did)
    password  what opens them, but for "pem"
    """

    def __init__(self, folder, ca="a CA", kind="pem", password=PASSWORD):
        self.folder = folder
        self.kind = kind
        self.password = password
        self.name = ca
        folder.mkdir(exist_ok=True)
        self.ca()
        for name in ("server", "client"):
            self.sign(name)
        self.configure()

    def ca(self):
        """Makes a CA with a new key, in the place of the old one."""
        self.openssl("req", "-x509", *self.key("ca"), "-out", "ca.pem", "-days", "30", "-subj", f"/CN={self.name}",
                     "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def list(self, file, *revoked, md="sha256"):
        """A revocation list of the CA's, with these certificates on it."""
        (self.folder / "index.txt").write_text("")
        (self.folder / "number").write_text("01\n")
        (self.folder / "list.conf").write_text("[ca]\ndefault_ca = it\n[it]\ndatabase = index.txt\ncrlnumber = number\n"
                                               "certificate = ca.pem\nprivate_key = ca.key\n")
        for certificate in revoked:
            self.openssl("ca", "-config", "list.conf", "-md", md, "-revoke", certificate)
        self.openssl("ca", "-config", "list.conf", "-gencrl", "-md", md, "-crldays", "30", "-out", file)

    @staticmethod
    def key(name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]

    def openssl(self, *words, **more):
        run = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, timeout=60, **more)
        assert run.returncode == 0, f"openssl {' '.join(words)}: {run.stderr}"
        return run.stdout

    def sign(self, file, *more, name=None):
        """A certificate in every form, for this name or that of its file."""
        name, subject = file, name or file
        self.openssl("req", *self.key(name), "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        (self.folder / "node.ext").write_text("basicConstraints=CA:FALSE\n")
        extensions = more or ("-extfile", "node.ext")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                     "-days", "200", "-out", f"{name}.crt", *extensions)
        both = (self.folder / f"{name}.crt").read_text() + (self.folder / f"{name}.key").read_text()
        (self.folder / f"{name}.pem").write_text(both)
        word = f"pass:{self.password}"
        self.openssl("pkcs8", "-topk8", "-in", f"{name}.key", "-passout", word, "-out", f"{name}.locked")
        both = (self.folder / f"{name}.crt").read_text() + (self.folder / f"{name}.locked").read_text()
        (self.folder / f"{name}.sealed").write_text(both)
        export = ["pkcs12", "-export", "-inkey", f"{name}.key", "-in", f"{name}.crt", "-passout", word]
        self.openssl(*export, "-out", f"{name}.p12")
        self.openssl(*export, "-legacy", "-out", f"{name}.old")

    def authority(self, name="ca"):
        """A configuration for `openssl ca`, which can do what `openssl x509` can't: revoke, and sign until a second."""
        (self.folder / f"{name}.cnf").write_text(AUTHORITY.format(name=name))
        (self.folder / f"{name}.index").touch()
        if not (number := self.folder / f"{name}.number").exists():
            number.write_text(f"{secrets.token_hex(8)}\n")
            (self.folder / f"{name}.lists").write_text("01\n")
        return ["ca", "-batch", "-notext", "-config", f"{name}.cnf"]

    def sign_until(self, name, seconds):
        """A certificate that ends so many seconds from now."""
        self.sign(name)
        end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
        words = ["-in", f"{name}.csr", "-out", f"{name}.crt", "-enddate", end]
        self.openssl(*self.authority(), *words)
        (self.folder / f"{name}.pem").write_text((self.folder / f"{name}.crt").read_text() + (self.folder / f"{name}.key").read_text())

    def sign_through(self, name, between="between"):
        """A certificate that another CA has signed, whose own is signed by ours; each file has both."""
        if not (self.folder / f"{between}.pem").exists():
            (self.folder / f"{between}.ext").write_text("basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n")
            self.sign(between, "-extfile", f"{between}.ext")
            (self.folder / f"{between}.pem").write_text((self.folder / f"{between}.crt").read_text())
        self.sign(name)
        self.openssl(*self.authority(between), "-in", f"{name}.csr", "-out", f"{name}.crt", "-days", "200")
        crt, key, more = ((self.folder / file).read_text() for file in (f"{name}.crt", f"{name}.key", f"{between}.pem"))
        (self.folder / f"{name}.pem").write_text(crt + more + key)
        (self.folder / f"{name}.alone").write_text(crt + key)
        word = f"pass:{self.password}"
        export = ["pkcs12", "-export", "-inkey", f"{name}.key", "-in", f"{name}.crt", "-certfile", f"{between}.pem", "-passout", word]
        self.openssl(*export, "-out", f"{name}.p12")
        self.openssl(*export, "-legacy", "-out", f"{name}.old")

    def revocations(self, file, ca="ca", revoke=()):
        """The list of this CA, in DER, with these certificates on it."""
        for name in revoke:
            self.openssl(*self.authority(ca), "-revoke", f"{name}.crt")
        self.openssl(*self.authority(ca), "-gencrl", "-crldays", "30", "-out", f"{file}.pem")
        self.openssl("crl", "-in", f"{file}.pem", "-outform", "DER", "-out", file)

    def named(self, file, *names):
        """A certificate with these subject alternative names ("URI:muster:node:3", "DNS:host")."""
        words = [f"subjectAltName={','.join(names)}"] if names else []
        (self.folder / f"{file}.ext").write_text("\n".join(["basicConstraints=CA:FALSE", *words, ""]))
        self.sign(file, "-extfile", f"{file}.ext")

    def process(self, name, client=(), server=None):
        """The settings of a process that shows certificates with these names: where it dials, and where it is dialled."""
        ends = {"client": client, "server": client if server is None else server}
        for end, names in ends.items():
            self.named(f"{name}-{end}", *names)
        own = {f"{end}_cert_path": f"{name}-{end}.{self.kind}" for end in ends}
        (self.folder / f"{name}.json").write_text(json.dumps({**own, "ca_cert_path": "ca.pem"}))
        return {**self.env(), "MUSTER_CONFIG_FILE_PATH": self.folder / f"{name}.json"}

    def configure(self, **more):
        ends = {f"{name}_cert_path": f"{name}.{self.kind}" for name in ("server", "client")}
        entries = {**ends, "ca_cert_path": "ca.pem", **more}
        (self.folder / "tls.json").write_text(json.dumps(entries))

    def env(self):
        """The settings of a process that has these files."""
        words = ("MUSTER_SERVER_PASSWORD", "MUSTER_CLIENT_PASSWORD")
        return {**self.bare_env(), **({} if self.kind == "pem" else dict.fromkeys(words, self.password))}

    def bare_env(self):
        """The settings of a process that has these files, without the password."""
        return {"MUSTER_ENABLE_SSL": 1, "MUSTER_CONFIG_FILE_PATH": self.folder / "tls.json"}


def s_client(files, port, *words):
    """OpenSSL connects, and says which version and suite both have chosen; or the alert that it gets."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", "ca.pem", *words]
    run = subprocess.run(command, cwd=files.folder, input="", capture_output=True, text=True, timeout=60)
    return run.stdout + run.stderr
