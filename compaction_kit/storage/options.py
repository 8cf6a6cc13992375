"""What pyarrow opens a storage with: endpoints and credentials, as the session has resolved them."""

import os
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from compaction_kit.compat import java_class

# A class of pyarrow.fs and its arguments, such as ("S3FileSystem", (("access_key", "…"), …)).
Files = tuple[str, tuple[tuple[str, Any], ...]]

S3_SCHEMES = ("s3", "s3a", "s3n")
AZURE_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")


def arrow_files(scheme: str, authority: str, spark: SparkSession | None) -> Files | None:
    """Return what pyarrow opens a storage with; None for one that it doesn't know.

    Args:
        scheme: Of the storage's URIs, such as "s3a".
        authority: The bucket, or a container and its account.
        spark: The session whose Hadoop knows endpoints and credentials; None for the environment's.
    """
    if scheme in S3_SCHEMES:
        return "S3FileSystem", tuple(_s3_options(scheme, authority, spark).items())
    if scheme in AZURE_SCHEMES:
        return "AzureFileSystem", tuple(_azure_options(authority, spark).items())
    return ("GcsFileSystem", ()) if scheme == "gs" else None


def _s3_options(scheme: str, bucket: str, spark: SparkSession | None) -> dict[str, Any]:
    """Return the arguments of an S3FileSystem as S3A has them; without a session, the environment's."""
    options: dict[str, Any] = {"allow_delayed_open": True, "connect_timeout": 10, "request_timeout": 60}
    if spark is None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return options | _s3_endpoint(endpoint, "https", False)
    conf = spark._jsparkSession.sessionState().newHadoopConf()

    def get(name: str) -> str | None:
        return conf.get(f"fs.s3a.bucket.{bucket}.{name}") or conf.get(f"fs.s3a.{name}")

    scheme_of_endpoint = "http" if get("connection.ssl.enabled") == "false" else "https"
    options |= _s3_endpoint(get("endpoint"), scheme_of_endpoint, get("path.style.access") != "true")
    if region := get("endpoint.region"):
        options["region"] = region
    return options | _s3_credentials(f"{scheme}://{bucket}/", conf, get, spark)


def _s3_endpoint(endpoint: str | None, scheme: str, is_virtual: bool) -> dict[str, Any]:
    if not endpoint:
        return {}
    begin, separator, host = endpoint.rstrip("/").rpartition("://")
    scheme = begin if separator else scheme
    return {"endpoint_override": host, "scheme": scheme, "force_virtual_addressing": is_virtual}


def _s3_credentials(
    uri: str, conf: Any, get: Callable[[str], str | None], spark: SparkSession
) -> dict[str, Any]:
    """Return the keys that S3A has resolved, also those of a role or a vault."""
    try:
        files = java_class(spark, "org.apache.hadoop.fs.Path")(uri).getFileSystem(conf)
        shared = files.getS3AInternals().shareCredentials("compaction_kit").resolveCredentials()
    except Py4JError:
        # Another implementation than S3A, or an S3A before Hadoop 3.4: what the settings say, if anything.
        keys = {"access_key": get("access.key"), "secret_key": get("secret.key")}
        found = {name: value for name, value in keys.items() if value}
        return found if len(found) == 2 else {}
    if shared is None or shared.accessKeyId() is None:
        return {"anonymous": True}
    found = {"access_key": shared.accessKeyId(), "secret_key": shared.secretAccessKey()}
    if "Session" in shared.getClass().getSimpleName():
        found["session_token"] = shared.sessionToken()
    return found


def _azure_options(authority: str, spark: SparkSession | None) -> dict[str, Any]:
    """Return the arguments of an AzureFileSystem for "container@account.dfs.core.windows.net"."""
    host = authority.partition("@")[2]
    options: dict[str, Any] = {"account_name": host.partition(".")[0]}
    if spark is not None:
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        key = conf.get(f"fs.azure.account.key.{host}") or conf.get("fs.azure.account.key")
        if key:
            options["account_key"] = key
    return options
