"""LocalStack's S3 in the foreground, on loopback, for as long as its standard input stays open: run
by the Python of LocalStack's own environment, with a port and an empty folder.

What it would do besides serving S3 is left out: no telemetry, no certificate from the network, no
name server, no other service.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path


def main() -> None:
    """Serve until whoever started this goes, however it ends."""
    port, folder = sys.argv[1:]
    for name in ("home", "volume", "tmp"):
        Path(folder, name).mkdir()
    os.environ.update(
        HOME=f"{folder}/home",
        TMPDIR=f"{folder}/tmp",
        LOCALSTACK_VOLUME_DIR=f"{folder}/volume",
        GATEWAY_LISTEN=f"127.0.0.1:{port}",
        GATEWAY_SERVER="hypercorn",  # the other one listens on every address
        SERVICES="s3",
        STRICT_SERVICE_LOADING="1",
        EAGER_SERVICE_LOADING="1",
        DISABLE_EVENTS="1",
        SKIP_SSL_CERT_DOWNLOAD="1",
        DNS_ADDRESS="0",
    )
    threading.Thread(target=_end_with_input, args=(folder,), daemon=True).start()

    from localstack.runtime.main import main as serve
    from localstack.utils.aws import aws_stack

    aws_stack.CACHE_S3_HOSTNAME_DNS_STATUS = False  # as if it had asked a name server already
    serve()


def _end_with_input(folder: str) -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
