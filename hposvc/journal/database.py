"""The database of the journal: one for all sweeps of a home, in SQLite or Postgres.

SQLite runs with a write-ahead log and synchronous=FULL: a committed transaction survives a crash of
the machine. Any number of processes may read while one writes.

A driver calls the store through `retry_until_answered`, so a store that is away for a moment (a
failover, a lock, a disk hiccup) delays the sweep but does not end it.

A journal on a full disk, or in a folder that may not be written, can still be read.
"""

import errno
import json
import logging
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import psutil
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    Index,
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
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
)

from cluster.retries import retry
from hposvc.errors import DamagedJournal, StoreError, Unanswered, Unwritable
from hposvc.journal.compression import KIND as PACKED
from trainables.contract import DISK_FULL_ERRNOS, DISK_FULL_TEXT

BUSY_S = 30.0  # how long a writer waits for another writer
POLL_S = 0.01
PATIENCE_S = 60.0  # how long a driver retries while the store does not answer
RETRY_S, LOG_EVERY_S = 0.5, 10.0  # seconds between retries, and between their log lines
CONNECT_S = 5  # timeout for a server to accept a connection
# So that a server that vanished without notice is detected within the patience (libpq's names).
LIBPQ = {"connect_timeout": CONNECT_S, "keepalives_idle": 10, "tcp_user_timeout": 20_000}
# Primary error codes of SQLite for conditions that may pass in a moment.
TRANSIENT_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
# Codes with which SQLite refuses a database whose write-ahead log has no room, or may not be made.
UNSHARED_CODES = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
}
# Bytes beside a journal that `gc` and `rm` give back first: they must write before they can delete.
SPARE = 512 * 1024
DAMAGED_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
CHECKED = 256 * 2**20  # bytes; a larger journal takes seconds to check, so only `doctor` does it
UNWRITABLE = (*DISK_FULL_ERRNOS, errno.EACCES, errno.EPERM, errno.EROFS)
PROBE = 64 * 1024  # bytes; the index of a write-ahead log has 32 KiB
REASON = "reason"  # of a connection that can only read: an errno, in its info
READ_ONLY = "25006"  # Postgres: the server is a standby, until the failover is complete
SCHEMA_LOCK = 0x68706F  # an arbitrary number, the same in all our processes
NETWORK_FILE_SYSTEMS = frozenset(
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
    Column("spec", Text, nullable=False),  # frozen, JSON
    Column("code", Text, nullable=False),  # identity of the trainable at the start, JSON
    Column("listed", Text),  # the sweep's line of `ls`, JSON; null: not computed yet
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
FEED = Table(
    "feed",  # a row for each transaction that wrote events, of all sweeps: see feed.py
    _SCHEMA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("xid", BigInteger, nullable=False),  # Postgres: the transaction's number; SQLite: 0
    Column("sweep", String(200), nullable=False, index=True),
    Column("since", BigInteger, nullable=False),  # the events have the numbers behind this one
    Column("seq", BigInteger, nullable=False),  # up to this one
    Index("feed_order", "xid", "id"),
    sqlite_autoincrement=True,  # the number of a deleted row is not given again
)
REQUESTS = Table(
    "requests",
    _SCHEMA,
    Column("id", Integer, primary_key=True),
    Column("sweep", String(200), nullable=False, index=True),
    Column("time", Float(53), nullable=False),
    Column("verb", String(20), nullable=False),
    Column("trial", String(40)),
    Column("changes", Text),  # new values of limits, JSON; null: none
    Column("by", String(250)),  # user@host
)
LEASES = Table(
    "leases",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("driver", String(40), nullable=False),
    Column("host", String(250), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float(53), nullable=False),  # start of the process, detects a reused pid
    Column("renewed", Float(53), nullable=False),
    Column("machine", String(120), nullable=False),  # boot and process table
)
CLAIMS = Table(
    "claims",  # of the sweeps that share a cluster: see claims.py
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("cluster", String(200), nullable=False, index=True),
    Column("driver", String(40), nullable=False),  # that wrote it
    Column("claim", Text, nullable=False),  # what the sweep holds and wants, JSON
    Column("share", Text, nullable=False),  # what its driver computed from all claims, JSON
    Column("written", Float(53), nullable=False),
)
QUEUE_RULES = Table(
    "queue_rules",  # one row
    _SCHEMA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("journal", String(40), nullable=False),  # tells this database from all others
    Column("body", Text),  # the operator's rules, JSON; null: there are none
)
SUPERVISED = Table(
    "supervised",  # sweeps that a server is to find drivers for
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("asked", String(40), nullable=False),  # tells a request for a driver from a later one
    Column("since", Float(53), nullable=False),  # the first request's time: the place in the queue
    Column("accept_code", Integer, nullable=False),  # 1: go on although the code has changed
    Column("priority", Integer),  # of the sweep's spec; null: 0
)
RUNS = Table(
    "runs",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("trial", String(40), primary_key=True),  # "" is the parent
    Column("run", String(64), nullable=False),
)
CURSORS = Table(
    "sink_cursors",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("sink", String(40), primary_key=True),
    Column("seq", BigInteger, nullable=False),  # the sink has all events up to this number
    Column("registered", Text),  # outcome of registering the best trial; null: none yet
)
OPERATIONS = Table(  # what was asked of the server, by whom, and what became of it
    "operations",
    _SCHEMA,
    Column("id", String(40), primary_key=True),
    Column("verb", String(20), nullable=False),
    Column("sweep", String(200), index=True),
    Column("trial", String(40)),
    Column("by", String(250), nullable=False),
    Column("state", String(10), nullable=False),  # running, done, failed
    Column("created", Float(53), nullable=False),
    Column("ended", Float(53)),
    Column("result", Text),  # JSON
    Column("errors", Text),  # JSON
    Column("server", String(200)),  # the process at work on it; null: the sweep's driver
)
SUBMISSIONS = Table(  # sweeps that came to the server
    "submissions",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("by", String(250), nullable=False),
    Column("digest", String(64), nullable=False),  # SHA-256 of the request
    Column("archive", String(64)),  # SHA-256 of the files; null: the sweep came without files
    Column("time", Float(53), nullable=False),
    Column("operation", String(40), nullable=False),
)
SUBMISSION_KEYS = Table(  # Idempotency-Key of requests
    "submission_keys",
    _SCHEMA,
    Column("by", String(250), primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("sweep", String(200), nullable=False, index=True),
)
TOKENS = Table(
    "tokens",
    _SCHEMA,
    Column("id", String(20), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),  # SHA-256 of the token, hex
    Column("owner", String(200), nullable=False),
    Column("scopes", Text, nullable=False),  # JSON list
    Column("created", Float(53), nullable=False),
    Column("by", String(250), nullable=False),
    Column("expires", Float(53)),  # null: never
    Column("used", Float(53)),  # to the minute; null: never
    Column("revoked", Float(53)),  # null: it was not
)
SESSIONS = Table(
    "sessions",  # of browsers
    _SCHEMA,
    Column("hash", String(64), primary_key=True),  # SHA-256 of the cookie, hex
    Column("token", String(20), nullable=False),
    Column("expires", Float(53), nullable=False),
)
AGENT_ORDERS = Table(
    "agent_orders",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("id", Integer, primary_key=True, autoincrement=False),  # of the order
    Column("trial", String(40), nullable=False),
    Column("body", Text, nullable=False),  # what an agent needs to carry it out, JSON
    Column("state", String(10), nullable=False),  # open, leased, over
    Column("client", String(200)),  # that has it, or had it last
    Column("since", Float(53)),  # when the client got it, for people
    Column("beats", BigInteger, nullable=False),  # grows with each sign of life
    Column("step", BigInteger, nullable=False),  # the last step reported
    Column("low", BigInteger, nullable=False),  # the client may send the steps after this one
    Column("saved", Text),  # the last checkpoint that the client reported, JSON
    Column("decided", BigInteger, nullable=False),  # milestones up to this step are passed
    Column("told", String(10)),  # stop, yield; null: it goes on
    Column("ended", String(10)),  # the kind of the outcome that its client told
)
AGENT_MESSAGES = Table(
    "agent_messages",
    _SCHEMA,
    Column("id", Integer, primary_key=True),
    Column("sweep", String(200), nullable=False, index=True),
    Column("number", Integer, nullable=False),  # of the order
    Column("body", Text, nullable=False),  # JSON
)
AGENT_CLIENTS = Table(
    "agent_clients",
    _SCHEMA,
    Column("sweep", String(200), primary_key=True),
    Column("client", String(200), primary_key=True),
    Column("wants", Integer, nullable=False),  # trials that it asked for and did not get
    Column("looks", BigInteger, nullable=False),  # grows whenever it asks
    Column("host", String(250), nullable=False),
    Column("seen", Float(53), nullable=False),  # for people
)
STUDY_LOG = Table(
    "study_log",  # what Optuna wrote into its studies: see studies.py
    _SCHEMA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # from 0, without gaps
    Column("body", Text, nullable=False),  # JSON
)
STUDY_APPENDS = Table(
    "study_appends",  # what came to the server for the study log, each request once
    _SCHEMA,
    Column("by", String(250), primary_key=True),
    Column("key", String(250), primary_key=True),  # Idempotency-Key of the request
    Column("first", BigInteger, nullable=False),  # number of its first record
    Column("count", Integer, nullable=False),  # of its records
    Column("time", Float(53), nullable=False),
)
# With rows of single sweeps, which go with their sweep; what became of an operation stays.
SWEEP_TABLES = tuple(
    table for table in _SCHEMA.sorted_tables if "sweep" in table.c and table is not OPERATIONS
)


log = logging.getLogger("hposvc")

Answer = TypeVar("Answer")


def retry_until_answered(
    ask: Callable[[], Answer], sweep: str, ended: Callable[[], bool] = lambda: False
) -> Answer:
    """Return the store's answer; while the store does not answer, ask again for `PATIENCE_S`.

    Args:
        ask: must be safe to repeat, even if an earlier call was carried out without an answer.
        ended: whether a user has asked for an end meanwhile.

    Raises:
        Unanswered: the store did not answer for that long.
    """
    began, logged_s = time.monotonic(), -LOG_EVERY_S
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + PATIENCE_S))

    def is_passing(error: Exception, _: float) -> bool:
        nonlocal logged_s
        waited_s = time.monotonic() - began
        if not isinstance(error, Unanswered) or waited_s >= PATIENCE_S or ended():
            return False
        if waited_s - logged_s >= LOG_EVERY_S:
            logged_s = waited_s
            message = "%s: the journal does not answer since %.0f s; retrying until %s: %s"
            log.warning(message, sweep, waited_s, until, error)
        return True

    answer = retry(ask, is_passing, (RETRY_S,))
    if logged_s >= 0:
        waited_s = time.monotonic() - began
        log.warning("%s: the journal answers again, after %.0f s", sweep, waited_s)
    return answer


class Store:
    """An open database.

    Args:
        url: any SQLAlchemy URL; `sqlite:///path/hposvc.db` or `postgresql+psycopg://…`.

    Raises:
        StoreError: the database can't be opened; the message never contains a password.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._file: Path | None = None
        self._checked = False
        self._engine = _engine(url)
        with self.reading() as connection:
            up_to_date = _is_up_to_date(connection)
        if not up_to_date:
            self._make_tables()
        self._file = _file(url)
        self._inode = self._file.stat().st_ino if self._file else 0  # which file it was
        self._make_spare()

    def _make_tables(self) -> None:
        with self.writing() as connection:
            if connection.dialect.name == "postgresql":
                # Two processes creating the tables at the same time would collide.
                connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
            _SCHEMA.create_all(connection)
            _migrate(connection)

    def __str__(self) -> str:
        # The query options are left out, since they may contain a password too.
        return make_url(self.url).set(query={}).render_as_string(hide_password=True)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def check(self, deep: bool = False) -> None:
        """Check once that a database file is whole, before a sweep begins or goes on in it.

        Args:
            deep: check a file of any size, and every event in it.

        Raises:
            DamagedJournal: it is not.
        """
        if self._checked or self._file is None:
            return
        if not deep and self._file.stat().st_size > CHECKED:
            return
        with self.reading() as connection:
            verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            if verdict == "ok" and deep:
                verdict = _unreadable_event(connection) or verdict
        if verdict != "ok":
            raise self._damaged(f"{verdict}".replace("\n", " "))
        self._checked = True

    def _damaged(self, what: str) -> DamagedJournal:
        fix = "nothing more is written into it: hposvc doctor says what is whole, and how to go on"
        return DamagedJournal(f"journal {self} is damaged: {what}", fix)

    def vacuum(self) -> None:
        """Return the space of deleted rows to the disk; Postgres does so by itself.

        Other processes wait meanwhile, for some seconds per GiB.

        Raises:
            StoreError: other processes keep the database busy, or a copy of it does not fit.
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
    def with_spare_room(self) -> Iterator[None]:
        """Let the block write a little although the disk is full, to delete what takes the room."""
        spare = self._spare()
        if spare is not None:
            with suppress(OSError):
                spare.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._make_spare()

    def _spare(self) -> Path | None:
        """Return the file that keeps some room beside a database file."""
        return None if self._file is None else self._file.with_name(f"{self._file.name}-spare")

    def _make_spare(self) -> None:
        """Keep some room for `gc` and `rm`, unless there is hardly any."""
        spare = self._spare()
        if spare is None or spare.exists():
            return
        with suppress(OSError):
            if shutil.disk_usage(spare.parent).free > 2 * SPARE:
                spare.write_bytes(bytes(SPARE))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction for writing, durable when the block is left.

        Raises:
            Unwritable: the journal can only be read.
            StoreError: the disk is full, or the database does not take it for another reason.
        """
        self._open_anew_if_replaced()
        with (
            self._translated_errors(),
            self._engine.execution_options(writing=True).connect() as connection,
        ):
            if REASON in connection.info:
                raise self._unwritable(connection.info[REASON])
            with connection.begin():
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection for reading, with a consistent view of the database."""
        self._open_anew_if_replaced()
        with self._translated_errors(), self._engine.connect() as connection:
            yield connection

    def _open_anew_if_replaced(self) -> None:
        """Close the connections to a file in whose place there is another one, as a copy of before.

        Raises:
            StoreError: the file was deleted. SQLite would go on with what nobody sees any more.
        """
        if self._file is None:
            return
        try:
            inode = self._file.stat().st_ino
        except FileNotFoundError as error:
            fix = "what is written now would be lost"
            raise StoreError(f"journal {self}: its file was deleted", fix) from error
        if inode != self._inode:
            self._inode = inode
            self._engine.dispose()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise errors of the database as errors of the store that name the journal."""
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            reason = _reason(error, _file(self.url))
            if reason is not None:
                raise self._unwritable(reason, f"{error.orig}") from error
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in DAMAGED_CODES:
                raise self._damaged(f"{error.orig}") from error
            kind = Unanswered if _is_transient(error) else StoreError
            raise kind(f"journal {self}: {error.orig}") from error

    def _unwritable(self, reason: int, text: str = "") -> StoreError:
        """Return the error for a write that a full disk, or a lack of rights, does not let in."""
        if reason in DISK_FULL_ERRNOS:
            return StoreError(
                f"no room: journal {self}: {text or os.strerror(reason)}",
                fix="what is written there is whole: free some (hposvc gc, hposvc rm ID), "
                "then hposvc resume goes on",
            )
        remedy = "set HPOSVC_HOME to a folder that you can write"
        return Unwritable(f"journal {self} can't be written: {os.strerror(reason)}", remedy)


def _reason(error: DBAPIError, file: Path | None) -> int | None:
    """Return the errno for which nothing can be written; None: the error has another cause."""
    if "disk is full" in f"{error.orig}" or DISK_FULL_TEXT.search(f"{error.orig}"):
        return errno.ENOSPC
    if file is None or not isinstance(error.orig, sqlite3.Error):
        return None
    if error.orig.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
        return _probe(file) or errno.EACCES
    if error.orig.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return _probe(file)
    return None


def _probe(file: Path) -> int | None:
    """Return the errno for which a database file can't grow; None: it can."""
    try:
        with tempfile.TemporaryFile(dir=file.parent) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
    except OSError as error:
        return error.errno if error.errno in UNWRITABLE else None
    return None if os.access(file, os.W_OK) or not file.exists() else errno.EACCES


def _is_transient(error: DBAPIError) -> bool:
    """Return whether the statement may succeed if repeated in a moment."""
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode & 0xFF in TRANSIENT_CODES
    lost = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
    return lost or getattr(error.orig, "sqlstate", None) == READ_ONLY


def _unreadable_event(connection: Connection) -> str | None:
    """Return which event is no JSON, as text; None: all are."""
    query = select(EVENTS.c.sweep, EVENTS.c.seq, EVENTS.c.body).where(EVENTS.c.kind != PACKED)
    for sweep, seq, body in connection.execute(query.execution_options(yield_per=1000)):
        try:
            json.loads(body)
        except (TypeError, ValueError):
            return f"event {seq} of {sweep} is no JSON"
    return None


def _is_up_to_date(connection: Connection) -> bool:
    """Return whether the database has all tables and columns."""
    columns = inspect(connection).get_multi_columns()
    existing = {name: {column["name"] for column in columns[_, name]} for _, name in columns}
    return all(
        set(table.columns.keys()) <= existing.get(table.name, set())
        for table in _SCHEMA.sorted_tables
    )


def _migrate(connection: Connection) -> None:
    """Bring tables of an earlier version up to date: added columns may all be null."""
    for table in _SCHEMA.sorted_tables:
        existing = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in existing:
                name = connection.dialect.identifier_preparer.quote(column.name)
                kind = column.type.compile(connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}"))


def _file(url: str) -> Path | None:
    """Return the absolute path of a database file; None: the database is on a server."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    return Path(f"{parsed.database}").absolute() if is_file else None


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            ours = LIBPQ if parsed.get_driver_name().startswith("psycopg") else {}
            options = {name: ours[name] for name in ours.keys() - parsed.query.keys()}
            return create_engine(parsed, pool_pre_ping=True, connect_args=options)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        # `from None`, since the cause may quote the password.
        raise StoreError(
            "journal: HPOSVC_DB is not a database URL that this installation can "
            f"open ({type(error).__name__})",
            fix="use sqlite:///FILE or postgresql+psycopg://… (pip install 'hposvc[postgres]')",
        ) from None
    file = parsed.database or ""
    if (
        file.startswith("file:") or "uri" in parsed.query
    ):  # may set locks and mode that we don't see
        plain = unquote(file.removeprefix("file:")).replace("///", "/")
        raise StoreError(
            f"journal {parsed.set(query={})}: a URI of SQLite's own "
            "(file:...?uri=true) is not taken",
            fix=f"write sqlite:///{plain}",
        )
    if file in ("", ":memory:"):
        raise StoreError(f"journal {parsed}: it would vanish with this process", "name a file")
    path = Path(file).absolute()
    _refuse_network(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Absolute: engine local changes the working directory, and connections are opened later too.
    absolute = parsed.set(database=f"{path}")
    engine = create_engine(absolute, connect_args={"timeout": BUSY_S})
    event.listen(engine, "do_connect", partial(_connect, path))
    event.listen(engine, "checkin", _end_if_reading)
    event.listen(engine, "begin", _begin)
    return engine


def _connect(path: Path, dialect: object, record: Any, args: Any, options: Any) -> Any:
    """Open a database file, for reading only if its write-ahead log can't be made."""
    connection = sqlite3.connect(*args, **options)
    try:
        connection.isolation_level = None  # `_begin` sends BEGIN itself
        _enable_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        unshared = error.sqlite_errorcode & 0xFF in UNSHARED_CODES
        reason = _probe(path) if unshared else None
        if reason is None:
            raise
        record.info[REASON] = reason
    return _connect_to_read(path, reason, options)


def _connect_to_read(path: Path, reason: int, options: dict[str, Any]) -> sqlite3.Connection:
    """Open a database file that nobody has open now, for reading without shared memory."""
    if reason in DISK_FULL_ERRNOS:
        connection: sqlite3.Connection = sqlite3.connect(path, isolation_level=None, **options)
        # The index of the write-ahead log stays in this process.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA query_only=ON")
        return connection
    log_file = path.with_name(f"{path.name}-wal")
    if log_file.exists() and log_file.stat().st_size:
        raise StoreError(
            f"journal {path}: what a driver wrote last is in {log_file.name}, which "
            f"can't be read where nothing can be written ({os.strerror(reason)})",
            fix="copy both files to a folder that you can write, and set HPOSVC_HOME to it",
        )
    place = f"{path.as_uri()}?immutable=1"
    unchanging: sqlite3.Connection = sqlite3.connect(
        place, uri=True, isolation_level=None, **options
    )
    return unchanging


def _end_if_reading(connection: object, record: Any) -> None:
    """Close a connection that could only read: the next one may do more, and sees what is new."""
    if REASON in record.info:
        record.invalidate()


def _enable_wal(connection: Any) -> None:
    """Switch to a write-ahead log, retrying while another process opens the same new database.

    SQLite's own timeout does not apply to a change of the journal mode.
    """

    def is_passing(error: Exception, waited_s: float) -> bool:
        code = error.sqlite_errorcode if isinstance(error, sqlite3.OperationalError) else 0
        return code & 0xFF == sqlite3.SQLITE_BUSY and waited_s <= BUSY_S

    retry(lambda: connection.execute("PRAGMA journal_mode=WAL"), is_passing, (POLL_S,))


def _begin(connection: Connection) -> None:
    # A writer takes the write lock at once: a writer reading first could be refused when it writes.
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _refuse_network(path: Path) -> None:
    """Refuse a database on a network file system, where SQLite's locks do not hold."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    for folder in (path, *path.parents):
        if str(folder) in mounts:
            if mounts[str(folder)] in NETWORK_FILE_SYSTEMS:
                raise StoreError(
                    f"journal {path}: {folder} is a network file system ({mounts[str(folder)]}), "
                    "where SQLite can lose data",
                    fix="set HPOSVC_HOME to a local disk, or HPOSVC_DB to a Postgres URL",
                )
            return
