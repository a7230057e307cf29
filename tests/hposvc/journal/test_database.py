"""The journal's database: opened by many at once, refused in places where it would not last."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections import namedtuple

import psutil
import pytest
from small_disk import fill, read_only, small
from sqlalchemy import insert, select

from hposvc.errors import DamagedJournal, StoreError, Unwritable
from hposvc.journal.database import CURSORS, SPARE, Store

SECRET = "hunter2"
OPEN = """
import sys
from hposvc.journal.database import Store
print("ready", flush=True)
for url in sys.stdin:
    Store(url.strip()).close()
    print("open", flush=True)
"""


def all_open(urls):
    """Have six processes open each of these at the same moment, and return their error output."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for url in ["", *urls]:  # "": wait until all are ready
        for child in children if url else []:
            child.stdin.write(f"{url}\n")
            child.stdin.flush()
        for child in children:
            child.stdout.readline()
    return [child.communicate(timeout=60)[1] for child in children]


@pytest.mark.full
def test_many_may_open_a_new_store_at_once(database):
    assert all_open([database]) == [""] * 6


@pytest.mark.full
def test_many_may_open_a_new_file_at_once_time_after_time(tmp_path):
    """SQLite does not wait for a change of the journal mode: without retries 2 of 160 failed."""
    assert all_open([f"sqlite:///{tmp_path}/{number}.db" for number in range(60)]) == [""] * 6


def test_a_writer_takes_its_place_before_it_reads(database):
    """The second of two transactions that read and then write sees what the first wrote."""
    store = Store(database)
    with store.writing() as connection:
        connection.execute(insert(CURSORS).values(sweep="s", sink="a", seq=0))

    def count():
        mine = Store(database)
        for _ in range(20):
            with mine.writing() as connection:
                row = connection.execute(select(CURSORS.c.seq).with_for_update()).scalar_one()
                connection.execute(CURSORS.update().values(seq=row + 1))
        mine.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.reading() as connection:
        assert connection.execute(select(CURSORS.c.seq)).scalar_one() == 80
    store.close()


def test_an_error_in_a_transaction_takes_all_of_it_back(database):
    store = Store(database)

    def fail() -> None:
        with store.writing() as connection:
            connection.execute(insert(CURSORS).values(sweep="s", sink="a", seq=1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.reading() as connection:
        assert connection.execute(select(CURSORS)).all() == []
    store.close()


def test_sqlite_waits_for_the_disk_and_lets_others_read(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'journal.db'}")
    with store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://me:{SECRET}@localhost:1/db",
        f"postgresql+psycopg://me:{SECRET}@localhost:{SECRET}/db",
        f"postgresql+psycopg://me:a/{SECRET}@localhost/db",
        f"nonsense {SECRET}",
    ],
)
def test_a_store_out_of_reach_is_named_without_its_password(url):
    with pytest.raises(StoreError, match=r"^journal") as raised:
        Store(url)
    error = raised.value
    assert SECRET not in str(error)
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


def test_a_password_is_not_part_of_a_store_s_name(postgres):
    store = Store(f"postgresql+psycopg://tester:{SECRET}@/postgres?host={postgres}")
    assert SECRET not in str(store)
    assert "tester" in str(store)
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_journal_in_memory_is_refused(url):
    with pytest.raises(StoreError, match="vanish with this process; name a file"):
        Store(url)


@pytest.mark.parametrize("form", ["file:{}?uri=true", "file:{}?mode=ro&uri=true", "{}?uri=true"])
def test_a_uri_of_sqlite_is_refused_with_the_form_that_is_right(tmp_path, monkeypatch, form):
    """With a URI we could not tell whether its file is on a network, or was deleted."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x y.db"
    with pytest.raises(StoreError, match="not taken") as caught:
        Store("sqlite:///" + form.format(path))
    assert not [*tmp_path.iterdir()]
    Store(str(caught.value).partition("write ")[2]).close()
    assert [file.name for file in tmp_path.glob("*.db")] == ["x y.db"]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "lustre", "fuse.sshfs"])
def test_sqlite_on_a_network_file_system_is_refused_with_the_remedy(tmp_path, monkeypatch, kind):
    mount = namedtuple("mount", ["mountpoint", "fstype"])
    mounts = [mount("/", "ext4"), mount(str(tmp_path), kind)]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    with pytest.raises(StoreError, match=rf"network file system \({kind}\).*HPOSVC_DB"):
        Store(f"sqlite:///{tmp_path / 'deep' / 'journal.db'}")
    assert not (tmp_path / "deep").exists()


def test_a_local_disk_below_a_network_mount_is_taken(tmp_path, monkeypatch):
    mount = namedtuple("mount", ["mountpoint", "fstype"])
    mounts = [mount("/", "nfs"), mount(str(tmp_path), "ext4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    Store(f"sqlite:///{tmp_path / 'journal.db'}").close()


def test_a_file_that_is_no_database_is_said_to_be_one(tmp_path):
    file = tmp_path / "journal.db"
    file.write_text("something else entirely, and long enough to be looked at " * 20)
    with pytest.raises(StoreError, match=r"journal.db is damaged: file is not a database"):
        Store(f"sqlite:///{file}")


def test_a_full_disk_is_told_as_what_it_is(tmp_path):
    """A full disk is simulated by SQLite's own limit on pages."""
    store = Store(f"sqlite:///{tmp_path / 'journal.db'}")

    def fill() -> None:
        with store.writing() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")
            for number in range(2000):
                values = {"sweep": f"s{number}" * 20, "sink": "a", "seq": number}
                connection.execute(insert(CURSORS).values(values))

    with pytest.raises(StoreError, match="full"):
        fill()
    assert sqlite3.connect(tmp_path / "journal.db").execute("PRAGMA integrity_check").fetchone()


def test_a_journal_whose_file_was_deleted_takes_nothing_more(tmp_path):
    """SQLite goes on writing to the deleted file, and all of it is lost at the end."""
    store = Store(f"sqlite:///{tmp_path / 'hposvc.db'}")
    (tmp_path / "hposvc.db").unlink()
    with pytest.raises(StoreError, match="its file was deleted"), store.writing():
        pass
    store.close()


def test_a_relative_journal_is_found_from_another_folder(tmp_path, monkeypatch):
    """Engine local changes the working directory to the spec's folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = Store("sqlite:///hposvc.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with store.writing() as connection:
        assert connection.execute(select(CURSORS)).all() == []
    store.close()


def test_a_column_that_an_earlier_version_lacked_is_added_and_empty(database):
    store = Store(database)
    with store.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE sink_cursors DROP COLUMN registered")
        connection.exec_driver_sql("INSERT INTO sink_cursors VALUES ('s', 'mlflow', 7)")
    store.close()
    store = Store(database)
    with store.reading() as connection:
        assert connection.execute(select(CURSORS)).all() == [("s", "mlflow", 7, None)]
    store.close()


def write_one(store, sweep="s"):
    with store.writing() as connection:
        connection.execute(insert(CURSORS).values(sweep=sweep, sink="a", seq=1))


def names(store):
    with store.reading() as connection:
        return sorted(connection.execute(select(CURSORS.c.sweep)).scalars())


LEAVE = """
import os, sys
from sqlalchemy import insert
from hposvc.journal.database import CURSORS, Store
store = Store(sys.argv[1])
with store.writing() as connection:
    connection.execute(insert(CURSORS).values(sweep="s", sink="a", seq=1))
os._exit(0)
"""


@pytest.fixture(params=["closed", "killed", "killed, without its index", "open"])
def written(request, tmp_path):
    """Return a function that writes a row into a journal, whose writer then ends in some way."""
    opened = []

    def write(folder):
        url = f"sqlite:///{folder / 'journal.db'}"
        if request.param.startswith("killed"):
            subprocess.run([sys.executable, "-c", LEAVE, url], check=True)
        else:
            opened.append(Store(url))
            write_one(opened[0])
        if request.param == "closed":
            opened.pop().close()
        if "index" in request.param:
            (folder / "journal.db-shm").unlink()
        return url

    yield write
    for store in opened:
        store.close()


def test_a_full_disk_lets_readers_read_and_rm_write(tmp_path, written):
    with small(tmp_path / "disk", 2 * 2**20) as disk:
        url = written(disk)
        fill(disk)
        store = Store(url)
        assert names(store) == ["s"]
        with pytest.raises(StoreError, match=r"^no room: journal .*/disk/journal.db.*hposvc gc"):
            write_one(store, "t" * 200_000)  # more than is left in the pages of the file
        with store.with_spare_room():
            write_one(store, "u")
        (disk / "fill").unlink()
        write_one(store, "v")
        assert names(store) == ["s", "u", "v"]
        store.close()
        Store(url).close()
        assert (disk / "journal.db-spare").stat().st_size == SPARE


def test_a_journal_that_may_not_be_written_can_be_read(tmp_path, written, request):
    (tmp_path / "home").mkdir()
    url = written(tmp_path / "home")
    with read_only(tmp_path / "home"):
        if "index" in request.node.name:
            with pytest.raises(StoreError, match=r"in journal.db-wal.*copy both files"):
                Store(url)
            return
        store = Store(url)
        assert names(store) == ["s"]
        with pytest.raises(Unwritable, match=r"can't be written.*set HPOSVC_HOME to a folder"):
            write_one(store, "t")
        store.close()


@pytest.mark.parametrize("left", [-4096, 4096 * 5, 4096 * 4 + 7, 100, "hole"])
def test_a_damaged_journal_is_said_to_be_damaged_and_takes_nothing(tmp_path, left):
    file = tmp_path / "journal.db"
    store = Store(f"sqlite:///{file}")
    for number in range(200):
        write_one(store, f"{number}" * 20)
    store.close()
    before = file.read_bytes()
    if left == "hole":
        middle = len(before) // 4096 * 3 // 4 * 4096
        file.write_bytes(before[:middle] + os.urandom(4096) + before[middle + 4096 :])
    else:
        file.write_bytes(before[:left])
    damaged = file.read_bytes()
    with pytest.raises(DamagedJournal, match=r"is damaged: .*hposvc doctor says what is whole"):
        Store(f"sqlite:///{file}").check()
    assert file.read_bytes() == damaged
