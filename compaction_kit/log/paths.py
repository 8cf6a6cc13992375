"""Paths of data files and deletion vectors, from what the log writes to what is on disk.

The log writes URIs, relative to the table or absolute (protocol, "Add File and Remove File").
`canonical_paths` is what Delta knows a file by, and `places` is where it is.
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
# What java.net.URI writes as %XX in a path.
_ILLEGAL = re.compile(r'[\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}\s]')
# What java.net.URI doesn't read as a path, and a name that Hadoop has no checksum's name for.
_UNREADABLE = (
    r'[\x00-\x20\x7f"<>\\^`{|}\[\]?#]|%(?:$|[^0-9A-Fa-f]|.$|.[^0-9A-Fa-f])|^[^/:]*:(?:[^/]|$)'
    r"|(?::|%3[Aa])[^/]*$"
)
# ExternalCatalogUtils.charToEscape; a space stays as it is.
_ESCAPED = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def canonical_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Paths of the log as Delta's snapshots have them, by which they tell files apart.

    Without ".", ".." and double slashes, as far as these aren't percent-encoded, and with a scheme
    if they are absolute; not decoded (DeltaLog.CanonicalPathFunction, java.net.URI.normalize). So "a/../b"
    and "b" are one file to Delta, and "%62" and "b" are two, though both are at one place.
    """
    paths = _combined(paths)
    text = paths.buffers()[2]
    if not text or not (_has_at(paths, 0, b"/.%") or re.search(rb"/[/.]", text)):
        return paths
    odd = pc.match_substring_regex(paths, r"^[/.%]|[^:/]//|:////|/\.\.?(?:/|$)")
    folders: dict[str, str] = {}
    mended = [_mended(path, folders) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, pa.array(mended, pa.string()))


def places(paths: pa.Array | pa.ChunkedArray, store: Store) -> pa.Array:
    """Where files are: decoded, normalised, and told whether they are in the table's folder.

    Args:
        paths: As `canonical_paths` gives them.
        store: The table's files.

    Returns:
        Relative to the table for a file in its folder, also where an absolute path or a link leads
        into it; an absolute path ("/…") for a file elsewhere; a URI with "://" for one that isn't
        on a local disk. See `is_outside` and `is_remote`.
    """
    paths = _combined(paths)
    text = paths.buffers()[2]
    is_odd = text and (_has_at(paths, 0, b"/.") or _has_at(paths, -1, b"/"))
    if not text or not (is_odd or any(re.search(sign, text) for sign in (b"%", b":/"))):
        return paths
    odd = pc.match_substring_regex(paths, r"%|^[./]|^[A-Za-z][A-Za-z0-9+.-]*:/|/$")
    folders: dict[str, str] = {}
    found = [_place(path, store, folders) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, pa.array(found, pa.string()))


def is_outside(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Whether each of `places` is outside of the table's folder."""
    return pc.or_(pc.starts_with(found, "/"), is_remote(found))


def is_remote(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Whether each of `places` is not on a local disk."""
    return pc.match_substring(found, "://")


def is_unreadable(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Whether Delta can't open files by such paths: they are no URIs, or Hadoop can't name them."""
    return pc.match_substring_regex(paths, _UNREADABLE)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is that of a folder, or of something in it; both normalised."""
    return path == folder or path.startswith(f"{folder.removesuffix('/')}/")


def log_path(place: str) -> str:
    """What the log writes for a file in the table's folder, as Delta does."""
    # A colon in the first name would end a scheme.
    return _quoted(place).replace(":", "%3A")


def folder_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of a partition; "" and null have the same (ExternalCatalogUtils.getPartitionPathString).

    Args:
        columns: The partition columns in their order.
        values: The value of each, as the log writes it.
    """
    return "/".join(
        f"{escaped(name)}={escaped(value) if value else HIVE_NULL}"
        for name, value in zip(columns, values, strict=True)
    )


def escaped(text: str) -> str:
    """The name or value of a partition column as its folder has it."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def decode_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Paths without percent-encoding."""
    paths = _combined(paths)
    text = paths.buffers()[2]
    if text is None or not re.search(b"%", text):
        return paths
    encoded = pc.match_substring(paths, "%")
    decoded = pa.array([unquote(path) for path in paths.filter(encoded).to_pylist()], pa.string())
    return pc.replace_with_mask(paths, encoded, decoded)


def deletion_vector_file(vector_id: str | None, store: Store) -> str | None:
    """The place of the file that a deletion vector is in; None for none or an inline one.

    Args:
        vector_id: storageType, pathOrInlineDv and @offset run together (protocol, "Deletion
            Vector Descriptor Schema").
        store: The table's files.

    Raises:
        CorruptLogError: It is no id.
    """
    if not vector_id or vector_id[0] == "i":
        return None
    body = _OFFSET.sub("", vector_id[1:])
    if vector_id[0] == "p":
        return _place(_canonical(body), store, {})
    try:
        encoded = body[-_UUID_LENGTH:].encode().translate(_TO_RFC1924)
        name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(encoded))}.bin"
    except ValueError as error:
        raise CorruptLogError(
            f"The deletion vector {show_value(vector_id)} is no UUID: restore the log from a backup."
        ) from error
    prefix = body[:-_UUID_LENGTH]
    return f"{prefix}/{name}" if prefix else name


def _combined(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    return paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths


def _has_at(paths: pa.Array, position: int, characters: bytes) -> bool:
    """Whether the first character (0) or the last (-1) of a path is one of some."""
    offsets = np.frombuffer(paths.buffers()[1], np.int32)[paths.offset : paths.offset + len(paths) + 1]
    is_text = np.diff(offsets) > 0
    places = offsets[:-1][is_text] if position == 0 else offsets[1:][is_text] - 1
    found = np.frombuffer(paths.buffers()[2], np.uint8)[places]
    return any(bool((found == character).any()) for character in characters)


def _split(path: str) -> tuple[str | None, str | None, str]:
    match = _URI.fullmatch(path)
    assert match is not None
    return match[1], match[2], match[3]


def _mended(path: str, folders: dict[str, str]) -> str:
    """`_canonical`; `folders` keeps what it makes of folders, for most files share theirs."""
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
        # FileSystem.makeQualified, which writes it anew.
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


def _normalised(path: str) -> str:
    """A path without ".", ".." and double slashes, as far as that goes (java.net.URI.normalize)."""
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
    """Where a file is; `folders` keeps where folders are, for most files share theirs."""
    folder, slash, name = path.rpartition("/")
    decoded = unquote(name) if "%" in name else name
    if decoded in ("", ".", "..") or "/" in decoded or folder.endswith("/"):
        return _folder(path, store).removesuffix("/")
    key = folder + slash
    if key not in folders:
        folders[key] = _folder(key, store)
    return folders[key] + (name if "://" in folders[key] else decoded)


def _folder(path: str, store: Store) -> str:
    """Where a folder is, with a slash behind it; "" for the table's own."""
    scheme, authority, rest = _split(path)
    if authority or scheme not in (None, "file"):
        return f"{scheme or 'file'}://{authority or ''}{rest}"
    # An absolute one replaces the table's; normpath leaves two slashes at the beginning.
    whole = re.sub("^//", "/", posixpath.normpath(store.place(unquote(rest))))
    for at, root in ((whole, store.root), (store.real(whole), store.real(""))):
        if is_within(at, root):
            return posixpath.join(posixpath.relpath(at, root), "").removeprefix("./")
    return f"{whole.removesuffix('/')}/"
