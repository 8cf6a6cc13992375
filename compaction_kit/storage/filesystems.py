"""Open the pyarrow file system of a URI, with the endpoints and credentials that the session has resolved.

S3 is opened with the options of the session's S3A, or those of the environment without a session; Azure and
Google with the environment's credentials; every other scheme by the session's Hadoop, in the driver only.
"""

import contextlib
import errno
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.active import active_spark
from compaction_kit.compat import has_jvm, java_class
from compaction_kit.errors import StorageError, reason_of
from compaction_kit.session import get_spark
from compaction_kit.storage.store import MOST_REQUESTS, S3_SCHEMES

# Credentials of a role expire, so they are resolved again after this time.
_FRESH_SECONDS = 600
_OPENED: dict[tuple[str, str, str], tuple[float, fs.FileSystem]] = {}
_LOCK = threading.Lock()
_STATUS = re.compile(
    r"FileStatus\{path=(.*?); isDirectory=(true|false); (?:length=(\d+); )?.*?modification_time=(\d+);"
)


def open_filesystem(root: str) -> fs.FileSystem:
    """Return the file system of a URI; `store.path_of` returns the paths for it."""
    scheme, _, rest = root.partition(":")
    authority = rest.removeprefix("//").partition("/")[0] if rest.startswith("//") else ""
    session = active_spark()
    spark = session if session is not None and has_jvm(session) else None
    key = (scheme, authority, "" if spark is None else str(spark.sparkContext.applicationId))
    with _LOCK:
        since, found = _OPENED.get(key) or (0.0, None)
        if found is None or time.monotonic() - since > _FRESH_SECONDS:
            # A file system uses as many connections as there are I/O threads when it is made.
            pa.set_io_thread_count(max(MOST_REQUESTS, pa.io_thread_count()))
            found = _open(scheme, authority, root, spark)
            _OPENED[key] = time.monotonic(), found
        return found


def _open(scheme: str, authority: str, root: str, spark: SparkSession | None) -> fs.FileSystem:
    if scheme in S3_SCHEMES:
        # With delayed open, writing a small object takes one request instead of three.
        options: dict[str, Any] = {"allow_delayed_open": True, "connect_timeout": 10, "request_timeout": 60}
        # The default of 3 tries is used up in 2 s if a store asks for fewer requests ("503 Slow Down").
        options["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=6)
        return fs.S3FileSystem(**options, **_s3_options(f"{scheme}://{authority}/", authority, spark))
    if scheme in ("gs", "gcs"):
        # By default the client retries for 15 minutes, also on a machine without credentials.
        user = "anonymous@" if "CLOUD_STORAGE_EMULATOR_ENDPOINT" in os.environ else ""
        return fs.FileSystem.from_uri(f"gs://{user}{authority}/?retry_limit_seconds=20")[0]
    if scheme in ("abfs", "abfss"):
        return fs.FileSystem.from_uri(f"{scheme}://{authority}/")[0]
    session = spark or get_spark()
    if not has_jvm(session):
        raise StorageError(
            f"{root} can't be reached over Spark Connect, as only Hadoop reaches it: open it with a session "
            "that has a JVM, such as get_spark() returns."
        )
    return fs.PyFileSystem(_Hadoop(session, root))


def _s3_options(uri: str, bucket: str, spark: SparkSession | None) -> dict[str, Any]:
    """Return a bucket's endpoint, region and credentials from S3A, or the environment's endpoint."""
    if spark is None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return _s3_endpoint(endpoint, "https", False)
    conf = spark._jsparkSession.sessionState().newHadoopConf()

    def get(name: str) -> str | None:
        return conf.getTrimmed(f"fs.s3a.bucket.{bucket}.{name}") or conf.getTrimmed(f"fs.s3a.{name}")

    def is_set(name: str, default: bool) -> bool:
        general = conf.getBoolean(f"fs.s3a.{name}", default)
        return bool(conf.getBoolean(f"fs.s3a.bucket.{bucket}.{name}", general))

    scheme = "https" if is_set("connection.ssl.enabled", True) else "http"
    options = _s3_endpoint(get("endpoint"), scheme, not is_set("path.style.access", False))
    if region := get("endpoint.region"):
        options["region"] = region
    try:
        # This also resolves keys of a role or a vault.
        found = java_class(spark, "org.apache.hadoop.fs.Path")(uri).getFileSystem(conf)
        shared = found.getS3AInternals().shareCredentials("compaction_kit").resolveCredentials()
    except Py4JError:
        # Without S3A, or with an S3A before Hadoop 3.4, keys in the settings are used, if there are any.
        keys = {"access_key": get("access.key"), "secret_key": get("secret.key")}
        return options | (keys if all(keys.values()) else {})
    if shared is None or shared.accessKeyId() is None:
        return options | {"anonymous": True}
    options |= {"access_key": shared.accessKeyId(), "secret_key": shared.secretAccessKey()}
    is_temporary = "Session" in shared.getClass().getSimpleName()
    return options | ({"session_token": shared.sessionToken()} if is_temporary else {})


def _s3_endpoint(endpoint: str | None, scheme: str, is_virtual: bool) -> dict[str, Any]:
    if not endpoint:
        return {}
    begin, _, host = endpoint.rstrip("/").rpartition("://")
    return {"endpoint_override": host, "scheme": begin or scheme, "force_virtual_addressing": is_virtual}


class _Hadoop(fs.FileSystemHandler):
    """A file system of the session's Hadoop; files are copied to the driver's disk to be read."""

    def __init__(self, spark: SparkSession, root: str):
        self._path = java_class(spark, "org.apache.hadoop.fs.Path")
        self._to_list = java_class(spark, "org.apache.hadoop.util.functional.RemoteIterators").toList
        with _converting(root):
            self._fs = self._path(root).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def get_type_name(self) -> str:
        return "hadoop"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        found = []
        for path in paths:
            try:
                with _converting(path):
                    ((_, info),) = _parsed(self._fs.getFileStatus(self._path(path)))
                found.append(fs.FileInfo(path, **info))
            except FileNotFoundError:
                found.append(fs.FileInfo(path, fs.FileType.NotFound))
        return found

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = selector.base_dir
        try:
            with _converting(folder):
                listed = self._to_list(self._fs.listStatusIterator(self._path(folder)))
        except FileNotFoundError:
            # The store asks with allow_not_found.
            return []
        found = [fs.FileInfo(f"{folder}/{name}", **info) for name, info in _parsed(listed)]
        if selector.recursive:
            for info in [info for info in found if info.type == fs.FileType.Directory]:
                found += self.get_file_info_selector(fs.FileSelector(info.path, recursive=True))
        return found

    def open_input_file(self, path: str) -> pa.NativeFile:
        with tempfile.TemporaryDirectory(prefix="compaction-kit-") as folder:
            copy = os.path.join(folder, "file")
            with _converting(path):
                # The last argument means: write no checksum file.
                self._fs.copyToLocalFile(False, self._path(path), self._path(f"file:{copy}"), True)
            # The mapped file stays readable after the folder is deleted.
            return pa.memory_map(copy)

    def delete_file(self, path: str) -> None:
        with _converting(path):
            self._fs.delete(self._path(path), False)

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotImplementedError("only Spark writes by Hadoop")

    open_input_stream = open_output_stream = open_append_stream = copy_file = move = create_dir = _refuse
    delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse


@contextlib.contextmanager
def _converting(path: str) -> Iterator[None]:
    try:
        yield
    except (Py4JError, PySparkException) as error:
        if "FileNotFoundException" in str(error):
            raise FileNotFoundError(errno.ENOENT, "it doesn't exist", path) from None
        raise OSError(errno.EIO, reason_of(error), path) from None


def _parsed(statuses: Any) -> list[tuple[str, dict[str, Any]]]:
    """Parse Hadoop's FileStatus objects as text, because each field would be a call into the JVM."""
    kinds = {"true": fs.FileType.Directory, "false": fs.FileType.File}
    found = []
    for path, is_folder, size, millis in _STATUS.findall(statuses.toString()):
        info = {"type": kinds[is_folder], "mtime_ns": int(millis) * 1_000_000, "size": int(size or 0)}
        found.append((path.rpartition("/")[2], info))
    return found
