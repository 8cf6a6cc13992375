"""Convert paths of data files and deletion vectors between the log and the disk.

The log has URIs, relative to the table or absolute (protocol, "Add File and Remove File").
`canonical_paths` returns the form that identifies a file for Delta, `places` the file's location.
"""

import base64
import posixpath
import re
import uuid
from collections.abc import Callable, Sequence
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError, show_value
from compaction_kit.storage import Store

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
TO_RFC1924 = bytes.maketrans(_Z85, _RFC1924)
_PREFIX_AND_UUID = re.compile(r"(.*?)(.{20})(?:@\d+)?")
# Scheme, authority (null if there is none) and path of a URI.
_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?=/))?(?://([^/]*))?(.*)", re.DOTALL)
# Characters that java.net.URI writes as %XX in a path.
_ILLEGAL = re.compile(r'[\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}\s]')
# Paths that java.net.URI refuses, and names for which Hadoop can't name the checksum file.
_UNREADABLE = (
    r'[\x00-\x20\x7f"<>\\^`{|}\[\]?#]|%(?:$|[^0-9A-Fa-f]|.$|.[^0-9A-Fa-f])|^[^/:]*:(?:[^/]|$)'
    r"|(?::|%3[Aa])[^/]*$"
)
# ExternalCatalogUtils.charToEscape; a space isn't escaped.
_ESCAPED = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def canonical_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert paths of the log to the form by which Delta's snapshots identify files.

    Paths that begin with "/" are decoded and get a scheme, as in FileSystem.makeQualified; other paths stay
    encoded (DeltaLog.CanonicalPathFunction). So "%62" and "b" are two files for Delta, although they have the
    same location. Delta also removes "." and "..", which no writer is known to write.
    """
    paths = one_array(paths)
    is_absolute = pc.starts_with(paths, "/")
    if not pc.any(is_absolute).as_py():
        return paths
    return _convert(paths, is_absolute, lambda path: f"file://{_quoted(unquote(path))}")


def places(paths: pa.Array | pa.ChunkedArray, store: Store) -> pa.Array:
    """Return the decoded and normalised locations of files, from the paths of `canonical_paths`.

    A file in the table's folder has a path relative to it, even if the log has an absolute path; other local
    files have an absolute path ("/…"), and files that aren't on a local disk a URI with "://". Symbolic links
    are not followed.
    """
    paths = one_array(paths)
    text = paths.buffers()[2]
    begins_odd = any(pc.any(pc.starts_with(paths, character)).as_py() for character in "/.")
    if not text or not (begins_odd or re.search(rb"%|:/|/[/.]", text)):
        return paths
    odd = pc.match_substring_regex(paths, r"%|^[./]|/[/.]|^[A-Za-z][A-Za-z0-9+.-]*:/")
    return _convert(paths, odd, lambda path: _place(path, store))


def is_remote(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return whether each location from `places` is not on a local disk."""
    return pc.match_substring(found, "://")


def is_unreadable(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return whether Delta can't open files with such paths: invalid URIs, or names that Hadoop refuses."""
    return pc.match_substring_regex(paths, _UNREADABLE)


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is in a folder, or is the folder; both must be normalised."""
    return path == folder or path.startswith(f"{folder.removesuffix('/')}/")


def log_path(place: str) -> str:
    """Return the path that Delta writes in the log for a file in the table's folder."""
    # A colon in the first part of the path would make that part a URI scheme.
    return _quoted(place).replace(":", "%3A")


def folder_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """Return a partition's folder from its values as the log writes them; "" and null give the same."""
    # ExternalCatalogUtils.getPartitionPathString.
    return "/".join(
        f"{escaped(name)}={escaped(value) if value else HIVE_NULL}"
        for name, value in zip(columns, values, strict=True)
    )


def escaped(text: str) -> str:
    """Escape the name or value of a partition column for the name of its folder."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def deletion_vector_file(vector_id: str | None, store: Store) -> str | None:
    """Return the location of the file that holds a deletion vector; None if there is none, or it is inline.

    The id is storageType, pathOrInlineDv and @offset (protocol, "Deletion Vector Descriptor Schema").
    """
    if not vector_id or vector_id[0] == "i":
        return None
    if vector_id[0] == "p":
        return _place(re.sub(r"@\d+$", "", vector_id[1:]), store)
    try:
        # A UUID may itself end with @ and digits.
        found = _PREFIX_AND_UUID.fullmatch(vector_id[1:])
        prefix, encoded = found.groups() if found else ("", "")
        number = base64.b85decode(encoded.encode().translate(TO_RFC1924))
        return posixpath.join(prefix, f"deletion_vector_{uuid.UUID(bytes=number)}.bin")
    except ValueError:
        raise CorruptLogError(
            f"The deletion vector {show_value(vector_id)} has no valid UUID: restore the log from a backup."
        ) from None


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy of a single chunk (`combine_chunks` would copy it)."""
    if isinstance(values, pa.Array):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _convert(paths: pa.Array, odd: pa.Array, convert: Callable[[str], str]) -> pa.Array:
    """Convert the odd paths; folders of files with plain names are converted once."""
    folders: dict[str, str] = {}
    converted = []
    for path in paths.filter(odd).to_pylist():
        folder, slash, name = path.rpartition("/")
        if not slash or name in ("", ".", "..") or "%" in name or ":" in name:
            converted.append(convert(path))
            continue
        if folder not in folders:
            folders[folder] = convert(f"{folder}/-")[:-1]
        converted.append(folders[folder] + name)
    return pc.replace_with_mask(paths, odd, pa.array(converted, pa.string()))


def _split(path: str) -> tuple[str | None, str | None, str]:
    match = _URI.fullmatch(path)
    assert match is not None
    return match[1], match[2], match[3]


def _quoted(text: str) -> str:
    return _ILLEGAL.sub(lambda match: quote(match[0], safe=""), text)


def _place(path: str, store: Store) -> str:
    scheme, authority, rest = _split(path)
    is_plain = scheme in (None, "file") and not authority
    if is_plain and store.is_local:
        whole = re.sub("^//", "/", posixpath.normpath(posixpath.join(store.root, unquote(rest))))
        root = store.root.removesuffix("/")
        return whole[len(root) + 1 :] if is_within(whole, store.root) else whole
    if is_plain and rest.startswith("/"):
        return f"file://{rest}"
    uri = f"{scheme or 'file'}://{authority or ''}{rest}"
    if store.is_local:
        return uri
    scheme, authority, rest = _split(f"{store.root}/{unquote(rest)}" if is_plain else unquote(uri))
    whole = f"{scheme}://{authority or ''}{posixpath.normpath(f'/{rest}').replace('//', '/')}"
    inside = store.relative(whole)
    return whole if inside is None else inside
