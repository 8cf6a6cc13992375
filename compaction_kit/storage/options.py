"""What pyarrow opens a storage with: endpoints and credentials, as the session has resolved them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from compaction_kit.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A class of pyarrow.fs and its arguments, such as ("S3FileSystem", (("access_key", "…"), …)).
Files = tuple[str, tuple[tuple[str, Any], ...]]

# Requests in flight: 2,000 small files at 30 ms a request take 2.4 s by 64, 1.8 s by 128 and by 256.
MOST_REQUESTS = 128
S3_SCHEMES = ("s3", "s3a", "s3n")
AZURE_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
# In the address from which a client of Azure gets its tokens.
_TENANT = re.compile(r"^https://[^/]+/([^/]+)/")


def arrow_files(scheme: str, authority: str, spark: SparkSession | None) -> Files | None:
    """Return what pyarrow opens a storage with; None for one that it doesn't know.

    Args:
        scheme: Of the storage's URIs, such as "s3a".
        authority: The bucket, or a container and its account.
        spark: The session whose Hadoop knows endpoints and credentials; None for the environment's.

    Raises:
        StorageError: The name lacks Azure's account.
    """
    if scheme in S3_SCHEMES:
        return "S3FileSystem", tuple(_s3_options(scheme, authority, spark).items())
    if scheme in AZURE_SCHEMES:
        return "AzureFileSystem", tuple(_azure_options(authority, spark).items())
    return ("GcsFileSystem", tuple(_google_options(spark).items())) if scheme == "gs" else None


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
    from py4j.protocol import Py4JError

    from compaction_kit.compat import java_class

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
    """Return the arguments of an AzureFileSystem for "container@account.dfs.core.windows.net".

    Raises:
        StorageError: No account is named.
    """
    host = authority.partition("@")[2]
    account, _, service = host.partition(".")
    if not account:
        raise StorageError(
            f"{authority} names no account of Azure: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…"
        )
    options: dict[str, Any] = {"account_name": account}
    if cloud := service.partition(".")[2]:
        options |= {f"{name}_storage_authority": f".{name}.{cloud}" for name in ("blob", "dfs")}
    found = _azure_credentials(host, spark) if spark else {}
    return options | (found or _azure_connection(account))


def _azure_credentials(host: str, spark: SparkSession) -> dict[str, str]:
    """Return what Hadoop's settings, or its credential stores, have for an account: a key, a token, a client.

    The names are those of Hadoop's AbfsConfiguration (ConfigurationKeys).
    """
    conf = spark._jsparkSession.sessionState().newHadoopConf()

    def get(name: str) -> str | None:
        secret = conf.getPassword(f"fs.azure.{name}.{host}") or conf.getPassword(f"fs.azure.{name}")
        return "".join(secret) if secret else None

    if key := get("account.key"):
        return {"account_key": key}
    if token := get("sas.fixed.token"):
        return {"sas_token": token}
    client, secret = get("account.oauth2.client.id"), get("account.oauth2.client.secret")
    tenant = _TENANT.search(get("account.oauth2.client.endpoint") or "")
    if client and secret and tenant:
        return {"client_id": client, "client_secret": secret, "tenant_id": tenant[1]}
    return {}


def _azure_connection(account: str) -> dict[str, str]:
    """Return what the environment's connection string has for an account; Azurite has one too."""
    pairs = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    given = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    if given.get("AccountName") != account:
        return {}
    names = {"AccountKey": "account_key", "SharedAccessSignature": "sas_token"}
    options = {option: given[name] for name, option in names.items() if name in given}
    endpoint = urlsplit(given.get("BlobEndpoint", ""))
    if endpoint.path.strip("/") == account:
        # As emulators have it: the account is no part of the host, and both services are one.
        for name in ("blob", "dfs"):
            options[f"{name}_storage_authority"] = endpoint.netloc
            options[f"{name}_storage_scheme"] = endpoint.scheme
    return options


def _google_options(spark: SparkSession | None) -> dict[str, Any]:
    """Return the arguments of a GcsFileSystem as Google's connector for Hadoop has them.

    Credentials are those of the machine (GOOGLE_APPLICATION_CREDENTIALS, or its service account); an emulator
    that the environment names wants none.
    """
    conf = spark._jsparkSession.sessionState().newHadoopConf() if spark else {}
    # By default the client tries for 15 minutes, also where a machine has no credentials.
    options: dict[str, Any] = {"retry_time_limit": timedelta(seconds=20)}
    root = conf.get("fs.gs.storage.root.url") or os.environ.get("CLOUD_STORAGE_EMULATOR_ENDPOINT")
    if root:
        options |= {"scheme": urlsplit(root).scheme, "endpoint_override": urlsplit(root).netloc}
    if conf.get("fs.gs.auth.type") == "UNAUTHENTICATED" or "CLOUD_STORAGE_EMULATOR_ENDPOINT" in os.environ:
        options["anonymous"] = True
    return options
