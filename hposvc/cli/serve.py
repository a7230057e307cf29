"""The verbs that start a server, and the hidden ones that servers call.

They are not in hposvc/verbs, which the server imports.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, ray_address, shared_options, verb
from hposvc.views.console import console, note

if TYPE_CHECKING:
    from hposvc.driver.loop import Watcher

PEM = click.Path(path_type=Path)


@verb
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8900,
    show_default=True,
    help="Listen on this port; 0: on any free one.",
)
@click.option(
    "--drivers",
    type=click.IntRange(1),
    metavar="N",
    help="Drive N sweeps at once, by default one for each CPU; the others wait.",
)
@click.option(
    "--cluster",
    metavar="URL",
    help="Drive sweeps as jobs of the Ray cluster whose dashboard is at http://HEAD:8265.",
)
@click.option("--tls-cert", type=PEM, metavar="FILE", help="Serve HTTPS with this certificate.")
@click.option("--tls-key", type=PEM, metavar="FILE", help="Use this key with it.")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Believe X-Forwarded-For of a proxy in front of this server, which does TLS.",
)
@click.option("--read-only", is_flag=True, help="Show sweeps; refuse whatever changes something.")
def serve_command(
    shared: Shared,
    host: str,
    port: int,
    drivers: int | None,
    cluster: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    read_only: bool,
) -> None:
    """Serve this home's sweeps to a team, over HTTP, with pages for browsers.

    Each submitted sweep has a driver of its own, a process or a job, which outlives the server.
    """
    from hposvc.server import config, serving
    from hposvc.server.service import Listening

    sweeps = shared.open_home()

    def begun(url: str) -> None:
        note(f"hposvc serves {sweeps.home.path} on {url}; Ctrl-C ends it, not its sweeps")

    listening = Listening(host, port, tls_cert, tls_key, behind_proxy)
    serving.serve(sweeps, listening, config.read(), drivers, cluster, read_only, begun)


@verb
@click.argument("sweep", required=False, metavar="[ID]", shell_complete=complete_sweep)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Listen on this port, in place of any free one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def ui_command(shared: Shared, sweep: str | None, port: int, no_browser: bool) -> None:
    """Open sweeps in a browser: the list, or the sweep ID.

    It serves pages of this home to this machine only, and changes nothing.
    """
    import webbrowser

    from hposvc.server import config, serving
    from hposvc.server.service import Listening

    server = shared.find_server()
    place = server or shared.open_home()
    path = f"/sweeps/{place.find(sweep).id}" if sweep else "/"

    def begun(url: str) -> None:
        note(f"{url}{path}")
        if not no_browser:
            webbrowser.open(url + path)

    if server is not None:
        begun(server.http.url)
    else:
        listening, home = Listening("127.0.0.1", port), shared.open_home()
        serving.serve(home, listening, config.read(), read_only=True, begun=begun)


@click.command(hidden=True)
@click.argument("sweep")
@click.option("--payload", help="Of a job; without one, this is a process of the server's machine.")
@ray_address
@shared_options
@click.pass_obj
def supervised_command(
    shared: Shared, sweep: str, payload: str | None, address: str | None
) -> None:
    """Drive a sweep that a server supervises; only servers call this."""
    from hposvc.server import supervised
    from hposvc.views.live import LiveView

    @contextmanager
    def watching(sweep: str) -> "Iterator[list[Watcher]]":
        with LiveView(sweep, console(sys.stderr)) as view:
            yield [view]

    if payload is None:
        supervised.drive(shared.open_home(), sweep, watching, address)
    else:
        from hposvc.server import driver_job

        driver_job.drive(payload, watching)


@click.command("cluster-server", hidden=True)
@click.option("--payload", required=True)
def cluster_server_command(payload: str) -> None:
    """Serve the sweeps of a Ray cluster; only the first submit to it calls this, as a job."""
    from hposvc.server import server_job

    server_job.serve(payload, lambda url: note(f"hposvc serves this cluster on {url}"))
