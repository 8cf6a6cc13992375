"""Convert paths of data files and deletion vectors between the log and the disk.

The log has URIs, relative to the table or absolute (protocol, "Add File and Remove File").
`canonical_paths` gives the form by which Delta identifies a file, `places` the file's location.
"""

import base64
import posixpath
import re
import uuid
from collections.abc import Sequence
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError, show_value
from compaction_kit.storage import Store

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_RFC1924 = bytes.maketrans(_Z85, _RFC1924)
_UUID_LENGTH = 20
_OFFSET = re.compile(r"@\d+$")
# Scheme, authority (null if there is none) and path of a URI.
_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?=/))?(?://([^/]*))?(.*)", re.DOTALL)
# Characters that java.net.URI writes as %XX in a path.
_ILLEGAL = re.compile(r'[\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}\s]')
# Paths that java.net.URI refuses, and names for which Hadoop can't name the checksum file.
_UNREADABLE = (
    r'[\x00-\x20\x7f"<>\\^`{|}\[\]?#]|%(?:$|[^0-9A-Fa-f]|.$|.[^0-9A-Fa-f])|^[^/:]*:(?:[^/]|$)'
    r"|(?::|%3[Aa])[^/]*$"
)
_EMPTY_AUTHORITY = r"^([A-Za-z][A-Za-z0-9+.-]*:)//(/)"
# Upper-case letters in a scheme or a host, lower-case ones in a percent-encoded character.
_OTHER_CASE = r"^[A-Za-z0-9+.-]*[A-Z][A-Za-z0-9+.-]*:|^[a-z0-9+.-]+://[^/]*[A-Z]|%[0-9A-F]?[a-f]"
# ExternalCatalogUtils.charToEscape; a space stays as it is.
_ESCAPED = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def canonical_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert paths of the log to the form by which Delta's snapshots identify files.

    It has no ".", ".." and double slashes, except percent-encoded ones; absolute paths have a scheme; nothing
    is decoded (DeltaLog.CanonicalPathFunction, java.net.URI.normalize). So for Delta "a/../b" and "b" are
    the same file, but "%62" and "b" are two files, although their location is the same.
    """
    paths = one_array(paths)
    text = paths.buffers()[2]
    if not text or not (_has_at(paths, 0, b"/.%") or re.search(rb"/[/.]", text)):
        return paths
    odd = pc.match_substring_regex(paths, r"^[/.%]|[^:/]//|:////|/\.\.?(?:/|$)")
    folders: dict[str, str] = {}
    canonical = [_canonical_cached(path, folders) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, pa.array(canonical, pa.string()))


def equal_uris(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Write paths from `canonical_paths` so that those which are equal URIs are equal text.

    Schemes, hosts and the digits of percent-encoded characters have no case, and an empty authority is none:
    "file:///a" and "file:/a" are equal (java.net.URI.equals).
    """
    paths = one_array(paths)
    text = paths.buffers()[2]
    if not text or not any(re.search(sign, text) for sign in (b":/", b"%[0-9A-F]?[a-f]")):
        return paths
    if re.search(b":///", text):
        paths = pc.replace_substring_regex(paths, _EMPTY_AUTHORITY, r"\1\2")
    odd = pc.match_substring_regex(paths, _OTHER_CASE)
    cased = [_in_one_case(path) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, pa.array(cased, pa.string()))


def places(paths: pa.Array | pa.ChunkedArray, store: Store) -> pa.Array:
    """Return the locations of files, decoded and normalised.

    Args:
        paths: Paths from `canonical_paths`.
        store: The table's files.

    Returns:
        A path relative to the table for a file in its folder, even if the log has an absolute path
        or one through a link; an absolute path ("/…") for other local files; a URI with "://" for files
        that aren't on a local disk. See `is_outside` and `is_remote`.
    """
    paths = one_array(paths)
    text = paths.buffers()[2]
    is_odd = text and (_has_at(paths, 0, b"/.") or _has_at(paths, -1, b"/"))
    if not text or not (is_odd or any(re.search(sign, text) for sign in (b"%", b":/"))):
        return paths
    odd = pc.match_substring_regex(paths, r"%|^[./]|^[A-Za-z][A-Za-z0-9+.-]*:/|/$")
    folders: dict[str, str] = {}
    found = [_place(path, store, folders) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, pa.array(found, pa.string()))


def is_outside(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return whether each location from `places` is outside of the table's folder."""
    return pc.or_(pc.starts_with(found, "/"), is_remote(found))


def is_remote(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return whether each location from `places` is not on a local disk."""
    return pc.match_substring(found, "://")


def is_unreadable(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return whether Delta can't open files with such paths: invalid URIs, or names that Hadoop refuses."""
    return pc.match_substring_regex(paths, _UNREADABLE)


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or in it; both are normalised."""
    return path == folder or path.startswith(f"{folder.removesuffix('/')}/")


def log_path(place: str) -> str:
    """Return the path that Delta writes in the log for a file in the table's folder."""
    # A colon in the first part would make it a scheme.
    return _quoted(place).replace(":", "%3A")


def folder_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the folder of a partition, the same for "" and null.

    Source: ExternalCatalogUtils.getPartitionPathString.

    Args:
        columns: The partition columns in their order.
        values: The value of each, as the log writes it.
    """
    return "/".join(
        f"{escaped(name)}={escaped(value) if value else HIVE_NULL}"
        for name, value in zip(columns, values, strict=True)
    )


def escaped(text: str) -> str:
    """Escape the name or value of a partition column for the name of its folder."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def decode_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Decode percent-encoded paths."""
    paths = one_array(paths)
    text = paths.buffers()[2]
    if text is None or not re.search(b"%", text):
        return paths
    encoded = pc.match_substring(paths, "%")
    decoded = pa.array([unquote(path) for path in paths.filter(encoded).to_pylist()], pa.string())
    return pc.replace_with_mask(paths, encoded, decoded)


def deletion_vector_file(vector_id: str | None, store: Store) -> str | None:
    """Return the location of the file that holds a deletion vector; None if there is none, or it is inline.

    Args:
        vector_id: storageType, pathOrInlineDv and @offset, concatenated (protocol, "Deletion Vector
            Descriptor Schema").
        store: The table's files.

    Raises:
        CorruptLogError: The id is invalid.
    """
    if not vector_id or vector_id[0] == "i":
        return None
    body = _OFFSET.sub("", vector_id[1:])
    if vector_id[0] == "p":
        return _place(_canonical(body), store, {})
    try:
        encoded = body[-_UUID_LENGTH:].encode().translate(_TO_RFC1924)
        name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(encoded))}.bin"
    except ValueError:
        raise CorruptLogError(
            f"The deletion vector {show_value(vector_id)} has no valid UUID: restore the log from a backup."
        ) from None
    prefix = body[:-_UUID_LENGTH]
    return f"{prefix}/{name}" if prefix else name


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; a single chunk as it is, which `combine_chunks` would copy."""
    if isinstance(values, pa.Array):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _has_at(paths: pa.Array, position: int, characters: bytes) -> bool:
    """Return whether the first (0) or last (-1) character of any path is one of `characters`."""
    offsets = np.frombuffer(paths.buffers()[1], np.int32)[paths.offset : paths.offset + len(paths) + 1]
    is_text = np.diff(offsets) > 0
    places = offsets[:-1][is_text] if position == 0 else offsets[1:][is_text] - 1
    found = np.frombuffer(paths.buffers()[2], np.uint8)[places]
    return any(bool((found == character).any()) for character in characters)


def _split(path: str) -> tuple[str | None, str | None, str]:
    match = _URI.fullmatch(path)
    assert match is not None
    return match[1], match[2], match[3]


def _canonical_cached(path: str, folders: dict[str, str]) -> str:
    """Return `_canonical(path)`; `folders` caches the result for folders, which many files share."""
    folder, slash, name = path.rpartition("/")
    if not slash or name in ("", ".", "..") or "%" in name or ":" in name:
        return _canonical(path)
    if folder not in folders:
        folders[folder] = _canonical(f"{folder}/-")[:-1]
    return folders[folder] + name


def _canonical(path: str) -> str:
    scheme, authority, rest = _split(path)
    normalised = _normalised(rest)
    if scheme is None and not authority and unquote(normalised).startswith("/"):
        # As FileSystem.makeQualified does.
        whole = re.sub("/+", "/", unquote(normalised))
        whole = whole.rstrip("/") or "/"
        normalised = _normalised(whole)
        return f"file:{'//' if normalised == whole else ''}{_quoted(normalised)}"
    if normalised == rest:
        return path
    if scheme is None and not authority and ":" in normalised.partition("/")[0]:
        normalised = f"./{normalised}"
    begin = f"{scheme}:" if scheme else ""
    return f"{begin}//{authority}{normalised}" if authority else f"{begin}{normalised}"


def _in_one_case(path: str) -> str:
    scheme, authority, rest = _split(re.sub("%..", lambda match: match[0].upper(), path))
    user, at, host = (authority or "").rpartition("@")
    begin = f"{scheme.lower()}:" if scheme else ""
    return f"{begin}//{user}{at}{host.lower()}{rest}" if authority else f"{begin}{rest}"


def _normalised(path: str) -> str:
    """Remove ".", ".." and double slashes where possible (java.net.URI.normalize)."""
    *folders, name = path.split("/")
    if path.startswith("./") and ":" in path[2:].partition("/")[0]:
        return path
    kept: list[str] = []
    for part in folders:
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    root = "/" if path.startswith("/") else ""
    return root + "/".join([*kept, name])


def _quoted(text: str) -> str:
    return _ILLEGAL.sub(lambda match: quote(match[0], safe=""), text)


def _place(path: str, store: Store, folders: dict[str, str]) -> str:
    """Return a file's location; `folders` caches those of folders, which many files share."""
    folder, slash, name = path.rpartition("/")
    decoded = unquote(name) if "%" in name else name
    if decoded in ("", ".", "..") or "/" in decoded or folder.endswith("/"):
        return _folder(path, store).removesuffix("/")
    key = folder + slash
    if key not in folders:
        folders[key] = _folder(key, store)
    return folders[key] + (name if "://" in folders[key] and store.is_local else decoded)


def _folder(path: str, store: Store) -> str:
    """Return a folder's location, ended by a slash; "" for the table's own folder."""
    scheme, authority, rest = _split(path)
    if authority or scheme not in (None, "file"):
        found = f"{scheme or 'file'}://{authority or ''}{rest}"
        return found if store.is_local else _in_store(unquote(found), store)
    if not store.is_local:
        return f"file://{rest}" if rest.startswith("/") else _in_store(f"{store.root}/{unquote(rest)}", store)
    # store.place leaves an absolute path as it is; normpath keeps two slashes at the beginning.
    whole = re.sub("^//", "/", posixpath.normpath(store.place(unquote(rest))))
    for at, root in ((whole, store.root), (store.real(whole), store.real(""))):
        if is_within(at, root):
            return posixpath.join(posixpath.relpath(at, root), "").removeprefix("./")
    return f"{whole.removesuffix('/')}/"


def _in_store(uri: str, store: Store) -> str:
    """Return the location of a folder that isn't on a local disk, ended by a slash, given by its URI."""
    scheme, authority, rest = _split(uri)
    whole = f"{scheme}://{authority or ''}{posixpath.normpath(f'/{rest}').replace('//', '/').rstrip('/')}/"
    inside = store.relative(whole)
    return whole if inside is None else inside
