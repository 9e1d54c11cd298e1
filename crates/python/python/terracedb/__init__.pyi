"""Terrace: sorted bytes on disk behind a dict, in your process."""

from collections.abc import Callable, Iterable, Iterator as _Iterator, Mapping
from os import PathLike
from types import GenericAlias, TracebackType
from typing import Any, Generic, TypeVar, Union, final, overload
from typing_extensions import Self

__version__: str
__all__: list[str]

_Bytes = Union[bytes, bytearray, memoryview]
_Path = Union[str, PathLike[str]]
_T = TypeVar("_T")
_Backups = list["Backup"]

class Reader:
    """Keys and values, to be read: what stores, column families and snapshots have in common."""

    @property
    def name(self) -> str:
        """The name of the column family."""
    @overload
    def get(self, key: _Bytes, default: None = None, /) -> bytes | None: ...
    @overload
    def get(self, key: _Bytes, default: _T, /) -> bytes | _T: ...
    def __getitem__(self, key: _Bytes) -> bytes: ...
    def __contains__(self, key: _Bytes) -> bool: ...
    def multi_get(self, keys: Iterable[_Bytes]) -> list[bytes | None]:
        """The values of several keys as of one moment, `None` for those that are absent."""
    def expires_at(self, key: _Bytes) -> float | None:
        """When the value of a key expires, in seconds since 1970; `None` if it does not."""
    def keys(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
    ) -> Iterator[bytes]:
        """The keys from `start` on and below `end`, in order or back from the last, as of now."""
    def values(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
    ) -> Iterator[bytes]:
        """The values of such a range."""
    def items(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of such a range."""
    def __iter__(self) -> Iterator[bytes]: ...
    def __reversed__(self) -> Iterator[bytes]: ...
    def estimate(self, start: _Bytes | None = None, end: _Bytes | None = None) -> dict[str, int]:
        """About how many `keys` and `bytes` a range holds."""

class ColumnFamily(Reader):
    """A column family: a key space of its own within a store."""

    def put(self, key: _Bytes, value: _Bytes, *, ttl: float | None = None) -> None:
        """Sets a key to a value; with `ttl`, until that many seconds from now."""
    def __setitem__(self, key: _Bytes, value: _Bytes) -> None: ...
    def set_option(self, name: str, value: Any) -> None:
        """Changes an option of the family, such as `filter`, and stores it with the family."""
    def option(self, name: str) -> str | None:
        """What such an option is now; `None` for other names."""
    def delete(self, key: _Bytes) -> None:
        """Removes a key, whether it is there or not."""
    def __delitem__(self, key: _Bytes) -> None:
        """Removes a key; `KeyError` if it is absent, for which it is read first."""
    def delete_range(self, start: _Bytes, end: _Bytes) -> None:
        """Removes every key from `start` on and below `end`, at the cost of one write."""
    def merge(self, key: _Bytes, operand: _Bytes) -> None:
        """Merges an operand into the value of a key, as the family's option `merge_operator` says."""
    @overload
    def pop(self, key: _Bytes) -> bytes: ...
    @overload
    def pop(self, key: _Bytes, default: _T, /) -> bytes | _T:
        """Removes a key and gives its value. Two calls, not one step: use a transaction where that matters."""
    def update(self, entries: Mapping[_Bytes, _Bytes] | Iterable[tuple[_Bytes, _Bytes]]) -> None:
        """Writes all entries as one batch."""
    def ingest(self, paths: Iterable[_Path], *, move: bool = False, below: bool = False) -> int:
        """Makes files of `SstWriter` part of the family, all of them as one write or none; gives the number of entries.

        With `move` the files are removed afterwards; with `below` existing entries count where both have a key.
        """
    def bulk_loader(self, *, memory: int | str | None = None, below: bool = False) -> BulkLoader:
        """Begins a load of entries in any order, which are sorted with bounded memory (`"64MiB"`) and ingested as one write.

        With `below` existing entries count where both have a key.
        """
    def compact(self, start: _Bytes | None = None, end: _Bytes | None = None) -> None:
        """Merges a range down to the last level, dropping what nobody can see any more."""

@final
class Db(ColumnFamily):
    """An open store, which is its default column family as well. All threads may use it.

    Options are those of `Options`, `AdvancedOptions` and `CfOptions`, by name: `memory_budget="64MiB"`,
    `sync="batch"`, `compression=["none", "lz4"]`.
    """

    def __new__(
        cls,
        path: _Path,
        *,
        read_only: bool = False,
        column_families: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Self: ...
    @property
    def path(self) -> Any:
        """The directory, from the root of the file system on."""
    def close(self) -> None:
        """Flushes and closes the store; also at the end of a `with` block. A second time does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def snapshot(self) -> Snapshot:
        """The store at this moment."""
    def batch(self) -> Batch:
        """Writes that become visible together."""
    def transaction(self) -> Transaction:
        """A transaction that begins now."""
    def transact(self, function: Callable[[Transaction], _T], *, attempts: int = 100) -> _T:
        """Calls `function` with a transaction and commits it, again if it conflicts; gives what it returns.

        The transaction has ended whatever comes of it: an exception of `function` drops it.
        """
    def column_family(self, name: str) -> ColumnFamily:
        """The column family called `name`."""
    def create_column_family(self, name: str, **options: Any) -> ColumnFamily:
        """Creates a column family. Its options are stored with it."""
    def drop_column_family(self, name: str) -> None:
        """Drops a column family with all its keys."""
    def column_families(self) -> list[str]:
        """The names of all column families."""
    def updates_since(self, seqno: int, *, synced_only: bool = False) -> Updates:
        """What was committed from a sequence number on, in all column families; `UpdatesGoneError` if that is too old.

        The option `log_retention_bytes` says how much of the log is kept for it. With `synced_only` it gives only
        what no crash takes back.
        """
    def latest_seqno(self) -> int:
        """The sequence number of the newest write that reads see; 0 in an empty store."""
    def oldest_update(self) -> int:
        """The oldest number that `updates_since` takes now; one above the newest if there is none."""
    def sync(self) -> None:
        """Makes everything written so far durable."""
    def flush(self) -> None:
        """Writes all memtables to sorted files."""
    def wait_idle(self) -> None:
        """Waits until no flush or compaction is running or wanted."""
    def collect_garbage(self, min_share: float = 0.3) -> None:
        """Collects segments of the value log with at least this share of garbage."""
    def checkpoint(self, path: _Path) -> None:
        """Makes a directory, new or empty, a store with the present contents of this one."""
    def verify(self) -> int:
        """Checks every sorted file; gives their number."""
    def refresh(self) -> bool:
        """Shows in a read-only store what was written since; whether there is anything new."""
    def set_option(self, name: str, value: Any) -> None:
        """Changes an option of the open store, such as `memory_budget` in bytes; those of column families, of all of them."""
    def option(self, name: str) -> str | None:
        """What such an option is now; `None` for other names."""
    def metrics(self) -> str:
        """The state of the store and what it did since the open, for people."""
    def metrics_prometheus(self) -> str:
        """The same in the format of Prometheus."""

@final
class Snapshot(Reader):
    """The whole store as of one moment; it reads the default column family."""

    def column_family(self, name: str) -> Reader:
        """A column family at the same moment."""
    def close(self) -> None:
        """Lets go of the moment; also at the end of a `with` block."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Iterator(_Iterator[_T], Generic[_T]):
    """Keys, values or both of a range, as of the moment when it was made.

    Until its end, or until it is closed, it holds its store open, unless `Db.close` is called, and keeps what it shows on disk.
    """

    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T: ...
    def close(self) -> None:
        """Lets go of the store and of what the iterator keeps on disk; also at the end of a `with` block."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Batch:
    """Writes that become visible together. A `with` block commits it, or drops it if an exception leaves it."""

    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: float | None = None,
        family: ColumnFamily | None = None,
    ) -> None: ...
    def __setitem__(self, key: _Bytes, value: _Bytes) -> None: ...
    def delete(self, key: _Bytes, *, family: ColumnFamily | None = None) -> None: ...
    def __delitem__(self, key: _Bytes) -> None: ...
    def delete_range(
        self, start: _Bytes, end: _Bytes, *, family: ColumnFamily | None = None
    ) -> None: ...
    def merge(
        self, key: _Bytes, operand: _Bytes, *, family: ColumnFamily | None = None
    ) -> None: ...
    def __len__(self) -> int:
        """The number of operations."""
    def clear(self) -> None:
        """Removes all operations."""
    def commit(self, *, sync: str | None = None) -> None:
        """Writes all of it, or nothing; the batch has ended afterwards. `sync` is `"none"` or `"batch"`."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class SstWriter:
    """A sorted file that is written outside a store, for `ingest`; options are those of a column family.

    An encrypted store ingests files that are written with its `encryption_key_file`, and no others. A `with` block finishes
    the file, or removes it if an exception leaves it.
    """

    def __new__(cls, path: _Path, *, encryption_key_file: _Path | None = None, **options: Any) -> Self: ...
    @property
    def path(self) -> Any:
        """Where the file lies, from the root of the file system on."""
    def put(self, key: _Bytes, value: _Bytes, *, expires_at: float | None = None) -> None:
        """Adds a key, above all before it; with `expires_at`, until then, in seconds since 1970."""
    def __setitem__(self, key: _Bytes, value: _Bytes) -> None: ...
    def delete(self, key: _Bytes) -> None:
        """Adds a key that the ingestion deletes."""
    def __delitem__(self, key: _Bytes) -> None: ...
    def delete_range(self, start: _Bytes, end: _Bytes) -> None:
        """The ingestion deletes every key of the range that the store has, none of this file; in any order."""
    def merge(self, key: _Bytes, operand: _Bytes) -> None:
        """Adds an operand that the ingestion merges into the value of its key."""
    def estimated_bytes(self) -> int:
        """About how long the file would be if it were finished now."""
    def finish(self) -> int:
        """Finishes the file and makes it durable; gives the number of its keys, those that it deletes among them."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class BulkLoader:
    """A load of entries in any order, as one write: of those with the same key the last one counts.

    A `with` block finishes it, or drops it if an exception leaves it.
    """

    def put(self, key: _Bytes, value: _Bytes, *, expires_at: float | None = None) -> None:
        """Sets a key; with `expires_at`, until then, in seconds since 1970."""
    def __setitem__(self, key: _Bytes, value: _Bytes) -> None: ...
    def delete(self, key: _Bytes) -> None:
        """Deletes a key, also if the store has it."""
    def __delitem__(self, key: _Bytes) -> None: ...
    def finish(self) -> int:
        """Sorts what was given and makes it part of the store, durably; gives the number of entries and deletions."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Backups:
    """A directory of backups, which share the files that did not change between them. All threads may use it.

    With `encryption_key_file` they are encrypted, as backups of an encrypted store must be. Backups under keys that are not
    given, and those of a directory that is not encrypted if keys are given, are refused with `UnsupportedError`.
    """

    def __new__(cls, path: _Path, *, encryption_key_file: _Path | None = None) -> Self: ...
    def create(self, db: Db, *, as_is: bool = False) -> Backup:
        """Backs an open store up: what was acknowledged before the call is in it, and writes go on meanwhile.

        A store with a damaged SST that no backup has is refused with `CorruptionError`; with `as_is` the backup has it as it is.
        """
    def list(self) -> _Backups:
        """All backups, the oldest first."""
    def verify(self, id: int) -> None:
        """Reads every byte of a backup and compares it with what was written; `CorruptionError` names the first damage."""
    def restore(self, id: int, target: _Path) -> None:
        """Makes a directory, new or empty, the store that was backed up; after an error nothing is left there."""
    def remove(self, id: int) -> int:
        """Removes a backup; gives the bytes of the files that only it had."""
    def keep_latest(self, keep: int) -> int:
        """Removes all backups but the `keep` latest, none if the record of one that would stay is damaged; gives the bytes of the files that went."""
    def close(self) -> None:
        """Lets other processes open the directory; also at the end of a `with` block."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Backup:
    """What a directory has of one backup."""

    @property
    def id(self) -> int:
        """Its number: later ones are larger."""
    @property
    def created_at(self) -> float | None:
        """When it was made, in seconds since 1970; `None` if its record is damaged."""
    @property
    def size_bytes(self) -> int | None:
        """The bytes that a restore writes; `None` if its record is damaged."""
    @property
    def damage(self) -> str | None:
        """What is wrong with its record."""

@final
class Transaction:
    """Reads at one moment, sees its own writes, commits whole or not at all; nobody waits for it.

    The commit is refused with `ConflictError` if a key that it read has been written since: run it again, or
    use `Db.transact`. A `with` block commits it, or drops it if an exception leaves it.
    """

    def get(
        self,
        key: _Bytes,
        default: _T | None = None,
        *,
        family: ColumnFamily | None = None,
        track: bool = True,
    ) -> bytes | _T | None: ...
    def __getitem__(self, key: _Bytes) -> bytes: ...
    def __contains__(self, key: _Bytes) -> bool: ...
    def items(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        limit: int | None = None,
        family: ColumnFamily | None = None,
    ) -> list[tuple[bytes, bytes]]:
        """The first `limit` entries from `start` on and below `end`, with the transaction's own writes in their places.

        What others write into the range that was read is a conflict, also a key that was absent. With `limit` entries that range
        ends after the last of them.
        """
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: float | None = None,
        family: ColumnFamily | None = None,
    ) -> None: ...
    def __setitem__(self, key: _Bytes, value: _Bytes) -> None: ...
    def delete(self, key: _Bytes, *, family: ColumnFamily | None = None) -> None: ...
    def __delitem__(self, key: _Bytes) -> None: ...
    def delete_range(
        self, start: _Bytes, end: _Bytes, *, family: ColumnFamily | None = None
    ) -> None: ...
    def merge(
        self, key: _Bytes, operand: _Bytes, *, family: ColumnFamily | None = None
    ) -> None: ...
    def commit(self, *, sync: str | None = None) -> None: ...
    def rollback(self) -> None:
        """Ends the transaction with nothing written."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class MergeOperator:
    """What operands do to values, as functions: a value of the option `merge_operator`.

    `full_merge(key, existing, operands)` makes a value of what was there, `None` if nothing, and of the operands, the
    oldest first. `partial_merge(key, operands)` makes one operand of several, or gives `None`. Both must be pure; all threads call
    them, and they must not use the store. An exception is a `MergeFailedError` of the read, and the operands stay.
    The name is stored: change it when the meaning of operands changes.
    """

    def __new__(
        cls,
        name: str,
        full_merge: Callable[[bytes, bytes | None, list[bytes]], _Bytes],
        partial_merge: Callable[[bytes, list[bytes]], _Bytes | None] | None = None,
    ) -> Self: ...
    @staticmethod
    def associative(
        name: str, merge: Callable[[bytes, bytes | None, bytes], _Bytes]
    ) -> MergeOperator:
        """The operator of a function `merge(key, existing, operand)`, where values and operands are the same kind of thing."""
    @property
    def name(self) -> str:
        """The name that is stored with the column family."""

@final
class CompactionFilter:
    """Which entries compactions keep, as a function: a value of the option `compaction_filter`.

    `filter(key, value)` says `True` to keep an entry, `False` to remove it, or bytes to give it that value. With `keys_only`
    the value is `None` and is not read; with `flushes` flushes ask, too; with `ignores_snapshots` reads at a snapshot can find less
    than before. Threads of the store call it, and it must not use the store. An exception keeps the entry; the first
    one is shown by `sys.unraisablehook`.
    """

    def __new__(
        cls,
        name: str,
        filter: Callable[[bytes, bytes | None], bool | _Bytes],
        *,
        keys_only: bool = False,
        flushes: bool = False,
        ignores_snapshots: bool = False,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """The name in events."""

@final
class Updates(_Iterator[UpdateBatch]):
    """A change feed: an iterator over committed batches, in the order of their commits.

    It ends where reads end now; a later loop over it goes on with what has come since. It keeps the log that it has
    not read and holds its store open, unless `Db.close` is called: close it when it is not needed.
    """

    def __iter__(self) -> Self: ...
    def __next__(self) -> UpdateBatch: ...
    @property
    def next_seqno(self) -> int:
        """The sequence number that comes next."""
    def close(self) -> None:
        """Lets go of the store and of the log that it has not read; also at the end of a `with` block."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class UpdateBatch:
    """Writes that were committed together; their sequence numbers are consecutive."""

    @property
    def first_seqno(self) -> int:
        """The sequence number of the first operation."""
    @property
    def last_seqno(self) -> int:
        """The sequence number of the last operation: go on with the one after it."""
    def __len__(self) -> int:
        """The number of operations."""
    def updates(self) -> list[Update]:
        """The operations in their order."""
    def to_batch(self, target: Db) -> Batch:
        """The same operations for another store, in its column families of the same names.

        Those of families that were dropped since are left out. `NoSuchFamilyError` if the target lacks one,
        `InvalidArgumentError` for ingested files.
        """

@final
class Update:
    """One operation. What it does not have is `None`."""

    @property
    def seqno(self) -> int:
        """Its sequence number."""
    @property
    def kind(self) -> str:
        """`put`, `delete`, `delete_range`, `merge` or `ingested`."""
    @property
    def family(self) -> str | None:
        """The name of its column family, unless that was dropped since."""
    @property
    def key(self) -> bytes:
        """The key, or the first one of a range."""
    @property
    def value(self) -> bytes | None:
        """The value that was put, or the operand that was merged."""
    @property
    def end(self) -> bytes | None:
        """The first key after a deleted range, or the largest one of an ingested file."""
    @property
    def expires_at(self) -> float | None:
        """When the value that was put expires, in seconds since 1970."""

def repair(
    path: _Path,
    *,
    dry_run: bool = False,
    from_lost: bool = False,
    encryption_key_file: _Path | None = None,
) -> dict[str, Any]:
    """Makes the store in `path` one that opens, out of what is sound of it.

    Gives whether it `was_sound`, and what was `saved`, what is `lost` and what else is worth knowing (`notes`), each a list of
    sentences. With `dry_run` nothing is written. With `from_lost`, the last resort, it first takes back what earlier opens
    and repairs moved to `lost` in the directory: deleted keys may come back. An encrypted store is repaired with its
    `encryption_key_file`.
    """

class Error(Exception):
    """What a store could not do. One of no subclass is a defect of Terrace, as its message says, or an error of another kind."""

class CorruptionError(Error): ...
class IoError(Error): ...
class DiskFullError(Error): ...
class PoisonedError(Error): ...
class WriteStoppedError(Error): ...
class ReadOnlyError(Error): ...
class ConflictError(Error): ...
class InvalidArgumentError(Error): ...
class LockedError(Error): ...
class NotAStoreError(Error): ...
class NoSuchFamilyError(Error): ...
class UnsupportedError(Error): ...
class NotInMemoryError(Error): ...
class OutdatedError(Error): ...
class ClosedError(Error): ...
class ForkedError(Error): ...

class UpdatesGoneError(Error):
    oldest: int
    """The first sequence number from which on every update is in the log."""

class MergeFailedError(Error): ...
