"""A server's sweeps, for Python: `hposvc.connect("http://host:8900").submit("sweep.yaml")`."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hposvc import spec as specs
from hposvc.python.handle import Handle, without_our_frames
from hposvc.remote import cluster_server
from hposvc.remote.server import connection
from hposvc.state.answers import ListedSweep

log = logging.getLogger("hposvc")


@without_our_frames
def connect(url: str, token: str | None = None, home: Path | str | None = None) -> "Server":
    """Return the server at a URL; the first request is made when something is asked of it.

    Args:
        url: http://HOST:8900, https://HOST, or ray+http://HEAD:8265 for the server of a Ray
            cluster to which somebody has submitted.
        token: None: HPOSVC_TOKEN, or the content of the file that HPOSVC_TOKEN_FILE names.
        home: folder of this machine, which caches what long journals come to; None: HPOSVC_HOME,
            or ~/.hposvc.

    Raises:
        SpecError: the URL is none of a server, or the file of the token can't be read.
    """
    return Server(cluster_server.at(url, token, None if home is None else Path(home)))


class SweepDescription(Protocol):
    """A sweep that is not recorded yet: a `hposvc.Sweep`."""

    def sections(self, home: Path) -> dict[str, object]:
        """Return the sections of its spec; a pickled trainable goes below `home`."""


@dataclass(frozen=True, repr=False)
class Server:
    """A server, whose sweeps are read and steered as those of this machine."""

    place: connection.ServedSweeps

    def __repr__(self) -> str:
        return f"Server({self.place.url!r})"

    @without_our_frames
    def ls(
        self, project: str | None = None, tag: str | None = None, since: float | None = None
    ) -> list[ListedSweep]:
        """List the server's sweeps, newest first, as `hposvc -o json ls` prints them.

        Args:
            tag: `name`, or `name=value`.
            since: list only sweeps created at or after this time, in seconds of the epoch.
        """
        return self.place.ls(project, tag, since)

    @without_our_frames
    def load(self, sweep: str) -> Handle:
        """Return the handle of a sweep of the server.

        Args:
            sweep: the sweep's id, the beginning of the id, or `last`.

        Raises:
            NotFound: there is no such sweep, or several ids begin with `sweep`.
        """
        return Handle(self.place, self.place.find(sweep).id)

    @without_our_frames
    def submit(
        self,
        sweep: SweepDescription | Path | str | Mapping[str, object],
        files: Mapping[str, str] | None = None,
        id: str | None = None,
        new: bool = False,
    ) -> Handle:
        """Submit a sweep with the files that it needs; the same sweep again is not begun again.

        Args:
            sweep: a `Sweep`, a spec, or the path of one.
            files: the texts of all files that the sweep needs, by their paths. None: the files of
                the spec's folder, as `hposvc submit` sends them.
            id: id of the sweep; None: a name with a hash of the spec and of the files.
            new: use an id that was never used, so that another sweep starts.

        Raises:
            SpecError: the spec is wrong, here or on the server; or another sweep has the id.
        """
        source = Path(sweep) if isinstance(sweep, str) else sweep
        if not isinstance(source, Path | Mapping):
            source = source.sections(self.place.home.path)
        if files is not None:  # checked there: its code is not here
            text = source.read_text() if isinstance(source, Path) else source
            accepted = self.place.send({"spec": text, "files": dict(files)}, id, new)
        else:
            spec = specs.check_for_server(source)
            accepted = self.place.submit(spec, id, new, log.info)
        return Handle(self.place, accepted.sweep)

    def events(self, since: str | None = None, wait_s: float = 60.0) -> Iterator[dict[str, Any]]:
        """Yield the events of all sweeps as they come, for ever.

        Args:
            since: the cursor of an event, from its key `cursor`: begin after that event, or a few
                events before. None: begin with the first event of all. Only the last event of an
                answer has a cursor of its own; those before it have that of the answer before, so
                that none is lost.
            wait_s: for how long the server lets a request wait for the next event.
        """
        while True:
            query = {"since": since, "limit": connection.PAGE}
            page = self.place.http.get("events", query, wait_s)
            last = len(page["events"]) - 1
            for number, event in enumerate(page["events"]):
                yield {**event, "cursor": page["next"] if number == last else since}
            since = page["next"]
