"""Uploads with tuspy as it is published; kills and restarts the server meanwhile.

check.py FOREBAY DIRECTORY [CERTIFICATE KEY]: prints `ok NAME` or `FAILED NAME: why` for each check. With a certificate
the server speaks HTTPS; the environment (REQUESTS_CA_BUNDLE, SSL_CERT_FILE) has it, too.
"""

import io
import os
import random
import subprocess
import sys
import urllib.request

from tusclient import client

PROGRAM, DIRECTORY = sys.argv[1:3]
TLS = sys.argv[3:5]


class Server:
    """A running `forebay serve`."""

    def __init__(self):
        self.address = "127.0.0.1:0"
        self.start()

    def start(self):
        data = os.path.join(DIRECTORY, "data")
        options = ["--data", data, "--listen", self.address, "--set", "cache.enabled=false"]
        if TLS:
            options += ["--tls-cert", TLS[0], "--tls-key", TLS[1]]
        with open(os.path.join(DIRECTORY, "server.log"), "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve", *options], stdout=subprocess.PIPE, stderr=log
            )
        line = self.process.stdout.readline().decode()
        self.address = line.split("//")[1].strip()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def url(self, route):
        return f"{'https' if TLS else 'http'}://{self.address}{route}"

    def uploader(self, data, name, **options):
        tus = client.TusClient(self.url("/v1/uploads"))
        metadata = {"filename": name, "namespace": "py"}
        return tus.uploader(file_stream=io.BytesIO(data), metadata=metadata, **options)

    def same(self, name, data):
        with urllib.request.urlopen(self.url(f"/v1/files/py/{name}")) as answer:
            found = answer.read()
        assert found == data, f"{name}: {len(found)} bytes, or others"


def one_request(server):
    data = random.randbytes(200_000)
    server.uploader(data, "one.bin").upload()
    server.same("one.bin", data)


def chunks(server):
    data = random.randbytes(1_000_001)
    server.uploader(data, "chunks.bin", chunk_size=70_000).upload()
    server.same("chunks.bin", data)


def checksums(server):
    data = random.randbytes(500_000)
    server.uploader(data, "checked.bin", chunk_size=90_000, upload_checksum=True).upload()
    server.same("checked.bin", data)


def resumed(server):
    data = random.randbytes(800_000)
    first = server.uploader(data, "resumed.bin", chunk_size=100_000)
    first.upload(stop_at=300_000)
    second = server.uploader(data, "resumed.bin", chunk_size=100_000, url=first.url)
    assert second.offset == 300_000, second.offset
    second.upload()
    server.same("resumed.bin", data)


def kills_of_the_server(server):
    data = random.randbytes(4_000_000)
    first = server.uploader(data, "killed.bin", chunk_size=250_000)
    first.upload(stop_at=1_000_000)
    url, acknowledged = first.url, first.offset
    while acknowledged < len(data):
        server.kill()
        server.start()
        again = server.uploader(data, "killed.bin", chunk_size=250_000, url=url, retries=3)
        assert again.offset == acknowledged, f"{again.offset}, not {acknowledged}"
        again.upload(stop_at=min(acknowledged + 750_000, len(data)))
        acknowledged = again.offset
    server.kill()
    server.start()
    server.same("killed.bin", data)


def main():
    server = Server()
    failed = False
    checks = [one_request, chunks, checksums, resumed, kills_of_the_server]
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            check(server)
            print(f"ok {name}", flush=True)
        except Exception as error:  # noqa: BLE001: whatever it is, the check failed
            failed = True
            print(f"FAILED {name}: {error!r}", flush=True)
    server.kill()
    sys.exit(failed)


main()
