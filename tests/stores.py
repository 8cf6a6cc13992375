"""A server of S3 in the tests' own process, which counts requests, and fails as a test asks it to."""

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from pyarrow.fs import FileSelector, S3FileSystem, copy_files

BUCKET = "kit"
ACCESS_KEY, SECRET_KEY = "kit-access", "kit-hidden"
# Settings for a session that reads tables on the server by s3a://.
S3A = {
    "fs.s3a.access.key": ACCESS_KEY,
    "fs.s3a.secret.key": SECRET_KEY,
    "fs.s3a.path.style.access": "true",
    "fs.s3a.connection.ssl.enabled": "false",
    "fs.s3a.endpoint.region": "us-east-1",
}
# Takes a request's method and path; returns the status and code of an S3 error, "" to drop the
# connection, or None to answer the request.
Fault = Callable[[str, str], tuple[int, str] | str | None]


class Request(NamedTuple):
    """A request, such as a HEAD of "/kit/table/part-0.parquet", with "uploads=" as its query."""

    method: str
    path: str
    query: str


class Server:
    """Answers S3's requests with moto, in memory.

    Attributes:
        requests: All requests since the list was last cleared.
        fault: Called for each request.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]):
        self._app = app
        self.requests: list[Request] = []
        self.fault: Fault | None = None
        self.address = ""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1").decode()
        self.requests.append(Request(method, path, environ["QUERY_STRING"]))
        fault = self.fault and self.fault(method, path)
        if fault is None:
            return self._app(environ, start_response)
        if isinstance(fault, str):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("dropped, as asked")
        # Read the rest of the request, which would otherwise be taken for the next one.
        is_chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "")
        environ["wsgi.input"].read(-1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0))
        status, code = fault
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        start_response(f"{status} {code}", [("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of an S3FileSystem."""
        return {
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "region": "us-east-1",
            "scheme": "http",
            "endpoint_override": self.address,
            "allow_delayed_open": True,
        }

    @property
    def s3a(self) -> dict[str, str]:
        """Hadoop's settings for s3a://."""
        return S3A | {"fs.s3a.endpoint": f"http://{self.address}"}

    def filesystem(self) -> S3FileSystem:
        return S3FileSystem(**self.options)

    def upload(self, folder: Path, name: str) -> str:
        """Copy a folder, and all that is in it, into the bucket; returns its s3a URI."""
        copy_files(str(folder), f"{BUCKET}/{name}", destination_filesystem=self.filesystem())
        return f"s3a://{BUCKET}/{name}"

    def names(self, name: str) -> set[str]:
        """The objects below a folder of the bucket, by their paths from there."""
        found = self.filesystem().get_file_info(
            FileSelector(f"{BUCKET}/{name}", recursive=True, allow_not_found=True)
        )
        return {info.path.removeprefix(f"{BUCKET}/{name}/") for info in found if info.is_file}


@contextmanager
def s3_server() -> Iterator[Server]:
    """A server on a free port of this machine, with one bucket."""
    # Import these here, because they take a second and most tests don't need them.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    server = Server(DomainDispatcherApplication(create_backend_app))
    listening = make_server("127.0.0.1", 0, server, threaded=True, request_handler=Quiet)
    server.address = f"127.0.0.1:{listening.server_port}"
    thread = Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    S3FileSystem(**server.options, allow_bucket_creation=True).create_dir(BUCKET)
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
