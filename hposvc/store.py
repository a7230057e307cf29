"""Where the journal lives: one database for all sweeps of a home, SQLite or Postgres.

SQLite runs with a write-ahead log and synchronous=FULL: a transaction that returned survives a
crash of the machine. Any number of processes may read while one writes.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError

from trainables.checkpoints.room import NO_ROOM

BUSY_S = 30.0  # how long a writer waits for another
POLL_S = 0.01
SCHEMA_LOCK = 0x68706F  # any number that is ours
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "afs", "9p"}
)

_SCHEMA = MetaData()
SWEEPS = Table(
    "sweeps",
    _SCHEMA,
    Column("id", String(200), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("project", String(200), nullable=False),
    Column("created", Float(53), nullable=False),
    Column("version", Integer, nullable=False),  # of the events
    Column("spec", Text, nullable=False),  # frozen, JSON
    Column("code", Text, nullable=False),  # what the trainable was at the start, JSON
    Column("listed", Text),  # what `ls` shows of it, JSON; null: nobody worked it out
)
EVENTS = Table(
    "events",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(20), nullable=False),
    Column("time", Float(53), nullable=False),
    Column("body", Text, nullable=False),
)
REQUESTS = Table(
    "requests",
    _SCHEMA,
    Column("id", Integer, primary_key=True),
    Column("sweep", String(200), nullable=False, index=True),
    Column("time", Float(53), nullable=False),
    Column("verb", String(20), nullable=False),
    Column("trial", String(40)),
    Column("changes", Text),  # of a limit, JSON; null: none
    Column("by", String(250)),  # user@host
)
LEASES = Table(
    "leases",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("driver", String(40), nullable=False),
    Column("host", String(250), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float(53), nullable=False),  # of the process, tells a reused pid
    Column("renewed", Float(53), nullable=False),
)
RUNS = Table(
    "runs",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("trial", String(40), primary_key=True),  # "" is the parent
    Column("run", String(64), nullable=False),
)
CURSORS = Table(
    "cursors",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("seq", BigInteger, nullable=False),  # MLflow has all events up to this one
    Column("registered", Text),  # what became of the best trial in its registry; null: nothing yet
)


class StoreError(Exception):
    """The store is out of reach, or is not one that a journal can live in."""


class Store:
    """An open database.

    Args:
        url: any SQLAlchemy URL; `sqlite:///path/hposvc.db` or `postgresql+psycopg://…`.

    Raises:
        StoreError: it can't be opened; the message never holds a password.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _engine(url)
        with self.writing() as connection:
            if connection.dialect.name == "postgresql":
                # Two that make the tables at once would run into each other.
                connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
            _SCHEMA.create_all(connection)
            _migrate(connection)

    def __str__(self) -> str:
        # Options may hold a password too.
        return make_url(self.url).set(query={}).render_as_string(hide_password=True)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def vacuum(self) -> None:
        """Give room that rows have left back to the disk; Postgres does so by itself.

        Others wait meanwhile, for some seconds a GiB.

        Raises:
            StoreError: they keep it busy, or there is no room for the copy that it needs.
        """
        if self._engine.dialect.name != "sqlite":
            return
        with closing(self._engine.raw_connection()) as connection:
            try:
                connection.cursor().execute("VACUUM")
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                raise StoreError(f"journal {self}: not made smaller: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, durable when the block is left."""
        with self._named(), self._engine.execution_options(writing=True).begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self._named(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise StoreError(f"journal {self}: {error.orig}{_remedy(error)}") from error


def _remedy(error: DBAPIError) -> str:
    """What to do where a disk is full; empty where it is not that."""
    if "disk is full" not in f"{error.orig}" and not NO_ROOM.search(f"{error.orig}"):
        return ""
    return "; what is written there is whole: free some (hposvc gc), then hposvc resume goes on"


def _migrate(connection: Connection) -> None:
    """Give tables of an earlier version the columns that came since; all of them may be null."""
    for table in _SCHEMA.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                name = connection.dialect.identifier_preparer.quote(column.name)
                kind = column.type.compile(connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}"))


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        # The cause is left out, since it may quote the password.
        raise StoreError(
            "journal: HPOSVC_DB is not a database URL that this installation can open "
            f"({type(error).__name__}); use sqlite:///FILE or postgresql+psycopg://… "
            "(pip install 'hposvc[postgres]')"
        ) from None
    if parsed.database in (None, "", ":memory:"):
        raise StoreError(f"journal {parsed}: it would vanish with this process; name a file")
    path = Path(parsed.database).absolute()
    _refuse_network(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    _log_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _log_ahead(connection: Any) -> None:
    """SQLite waits for nobody where it changes the mode, which all want who open a new database."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _begin(connection: Connection) -> None:
    # A writer takes its place at once: one that reads first could be refused when it writes.
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _refuse_network(path: Path) -> None:
    """SQLite's locks do not hold on network file systems."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    for folder in (path, *path.parents):
        if str(folder) in mounts:
            if mounts[str(folder)] in NETWORK:
                raise StoreError(
                    f"journal {path}: {folder} is a network file system ({mounts[str(folder)]}), "
                    "where SQLite can lose data; set HPOSVC_HOME to a local disk, "
                    "or HPOSVC_DB to a Postgres URL"
                )
            return
