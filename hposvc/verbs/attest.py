"""`attest`: a sweep's best as a signed statement; hposvc/analysis/attestation.py makes it."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from hposvc.analysis.attestation import make_statement
from hposvc.analysis.attestation import verify as checks_of
from hposvc.analysis.envelope import PUBLIC_KEY, home_key, read_key, seal
from hposvc.errors import NOT_FOUND, shorten
from hposvc.journal.home import Home
from hposvc.open_sweep import OpenSweep
from hposvc.reporting import writing
from hposvc.text import NONE, listed
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit, make_table, note, show

DIFFERS = 20  # exit code: a signature, a figure or a file is another
FILE, READ = (click.Path(exists=it, path_type=Path, dir_okay=False) for it in (False, True))


@verb
@click.argument("sweep", metavar="[ID]", required=False, shell_complete=complete_sweep)
@click.option("--out", type=FILE, help="Write this file; by default ID-result.json, here.")
@click.option("--key", type=FILE, help="Sign with this key; by default with the home's own.")
@click.option("--verify", type=READ, help="Check this file, in place of writing one.")
@click.option("--public-key", type=FILE, help="Demand this signer; by default the home's own key.")
def attest_command(
    shared: Shared,
    sweep: str | None,
    out: Path | None,
    key: Path | None,
    verify: Path | None,
    public_key: Path | None,
) -> int:
    """Write a sweep's best, and what stands behind it, into a signed file; or check such a file.

    The file is an in-toto statement in a DSSE envelope, signed by an ed25519 key in PEM. With
    --verify every figure is computed again from the journal: the exit code is 20 if one differs,
    and 4 if the sweep is not here.
    """
    if verify is None and sweep is not None and public_key is None:
        written = attest(shared.open_sweep(sweep), shared.find_home(), out, key)
        if not shared.json({"file": f"{written}"}):
            emit(f"{written}\n")
        return 0
    if verify is None or sweep or out or key:
        raise click.UsageError("give ID, perhaps with --out and --key, or --verify")
    signer = read_key(public_key or shared.find_home().path / PUBLIC_KEY, "--public-key")
    checks = [*checks_of(verify.read_bytes(), signer, shared.open_sweep)]
    if not shared.json([asdict(check) for check in checks]):
        table = make_table("figure", "stated", "recomputed", "result")
        table.columns[0].no_wrap = True
        for it in checks:
            result = ": ".join(filter(None, (it.result, it.why)))
            table.add_row(it.name, _cell(it.stated), _cell(it.recomputed), result)
        show(table)
    if wrong := [check.name for check in checks if check.result == "differs"]:
        note(f"not as stated: {listed(wrong, 5)}")
        return DIFFERS
    return NOT_FOUND if checks[-1].name == "journal" else 0


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)  # numbers with all digits
    return NONE if value is None else shorten(text)


def attest(sweep: OpenSweep, home: Home, out: Path | None = None, key: Path | None = None) -> Path:
    """Write the signed statement about a sweep's best, and return its file; see `Handle.attest`."""
    signer = home_key(home) if key is None else read_key(key, "--key")
    statement = make_statement(sweep)
    file = out or Path(f"{statement['predicate']['sweep']}-result.json")
    envelope = seal(json.dumps(statement, allow_nan=False).encode(), signer)
    return writing.write(file.parent, {file.name: json.dumps(envelope, indent=1) + "\n"})[0]
