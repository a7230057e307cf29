"""A Postgres server for the tests, on a socket in a temporary folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg


class Missing(Exception):
    """No Postgres server can be started on this machine."""


@contextmanager
def start() -> Iterator[str]:
    """Start a server, and yield the socket's folder, its address for the user `tester`."""
    programs, user = find_programs(), find_user()
    folder = Path(tempfile.mkdtemp(prefix="hposvc-pg-"))  # pytest's are closed to other users
    try:
        if user is not None:
            shutil.chown(folder, user)
        data, log = folder / "data", folder / "log"
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        run(user, programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync")
        run(user, programs / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            yield str(folder)
        finally:
            run(user, programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


def stop(folder: str) -> None:
    """Stop the server of this folder as a crash would; `go_on` starts it again."""
    run(find_user(), find_programs() / "pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")


def go_on(folder: str) -> None:
    """Start the server of this folder again; it recovers all committed data."""
    options = f"-k {folder} -c listen_addresses= -c fsync=off"
    place = ("-D", f"{folder}/data", "-l", f"{folder}/log")
    run(find_user(), find_programs() / "pg_ctl", *place, "-o", options, "-w", "start")


def find_programs() -> Path:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or next(map(str, reversed(installed)), None)
    if initdb is None:
        raise Missing("no initdb in PATH or under /usr/lib/postgresql")
    return Path(initdb).resolve().parent


def find_user() -> str | None:
    """Return the user to run as, since Postgres refuses to run as root; None: not root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next((name for name in ("postgres", "nobody") if name in names), None)
    if user is None:
        raise Missing("we are root, and there is no user postgres or nobody to run it as")
    return user


def run(user: str | None, *command: object) -> None:
    arguments = [str(word) for word in command]
    log = subprocess.DEVNULL  # a pipe would stay open as long as the server lives
    subprocess.run(arguments, user=user, check=True, cwd="/", stdout=log, stderr=log, timeout=60)


def create_database(socket: str, name: str) -> str:
    """Create an empty database, and return its URL for SQLAlchemy."""
    with psycopg.connect(host=socket, user="tester", dbname="postgres", autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    return f"postgresql+psycopg://tester@/{name}?host={socket}"
