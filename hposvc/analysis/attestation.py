"""Attestations: a sweep's best as a statement in in-toto's form, and checks against the journal.

The journal is meant up to one event, so a statement stays true when its sweep goes on.
Source: in-toto Attestation Framework, spec/v1/statement.md.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hposvc import spec as specs
from hposvc.analysis.envelope import key_id, unseal
from hposvc.analysis.findings import sure_and_gained
from hposvc.errors import NotFound, StoreError, fail
from hposvc.events import Event, Requested
from hposvc.journal.follow import Follow
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import OpenSweep
from hposvc.state import summary
from hposvc.state.sweep import SweepState
from hposvc.text import count, finite
from hposvc.tracking import provenance
from hposvc.tracking.mlflow_server import hide_passwords
from trainables.contract import CheckpointDamaged, Saved
from trainables.storage import checkpoint
from trainables.storage.checkpoint import MANIFEST

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "urn:hposvc:attested-result:1"
LEFT_OUT = ("environment", "notify")  # sections of a spec that may hold secrets
OWN = ("trial", "params", "value", "metrics", "step", "trained_to_end", "device", "estimate")
LONG = ("spec", "metrics", "events")  # parts whose values are one check if none differs
CHANGED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
ROUNDING = 1e-9  # share of a figure by which machines may compute it differently


@dataclass
class JournalPrefix:
    """A sweep as of an event, with a hash of its row and of all events so far."""

    row: SweepRow
    counts: Counter[str] = field(default_factory=Counter)  # of events, by kind

    def __post_init__(self) -> None:
        self.state, self.hash = SweepState(specs.restore(self.row.spec)), hashlib.sha256()
        self._add([self.row.id, self.row.created, self.row.spec, self.row.code])

    def apply(self, event: Event) -> None:
        """Apply an event, and add it to the hash."""
        asked = f" {event.verb}" if isinstance(event, Requested) else ""
        self.counts[event.kind + asked] += 1
        self._add([event.kind, event])
        self.state.apply(event)

    def _add(self, data: object) -> None:
        """Add a line of JSON to the hash, without fields at their defaults: versions add some.

        Nor does the version count: what a journal means stays the same under later ones.
        """

        def essence(part: object) -> dict[str, Any]:
            fields = {k: v for k, v in vars(part).items() if k != "version"}
            return {k: v for k, v in fields.items() if v != getattr(type(part), k, {})}

        text = json.dumps(data, default=essence, sort_keys=True, separators=(",", ":"))
        self.hash.update(f"{text}\n".encode())

    @property
    def checkpoints(self) -> dict[str, Saved]:
        """The recorded checkpoints of the best trials, by sweep, trial and folder."""
        trials = (self.state.trials[name] for name in self.state.front)
        kept = (trial.checkpoint_at(trial.selected[0]) for trial in trials if trial.selected)
        named = {"/".join([self.row.id, *PurePath(it.path).parts[-2:]]): it for it in kept if it}
        return {name: saved for name, saved in named.items() if saved.checksum}

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the events, of manifests, and of checkpoints' files here."""
        digests = {f"{self.row.id}/events": self.hash.hexdigest()}
        for folder, saved in self.checkpoints.items():
            files = checkpoint.hash_files(Path(saved.path)).items()
            digests |= {f"{folder}/{MANIFEST}": saved.checksum}
            digests |= {f"{folder}/{name}": f"{entry['sha256']}" for name, entry in files}
        return digests


def follow(sweep: OpenSweep) -> Follow[JournalPrefix]:
    """Return a sweep so that it can be read up to an event."""
    row = sweep.source.find(sweep.name)
    return Follow(sweep.source, row, lambda: JournalPrefix(row))


def make_statement(sweep: OpenSweep) -> dict[str, Any]:
    """Return the statement about a sweep's best, or its front, as of now.

    Raises:
        NotFound: there is no such sweep, or no value yet.
        StoreError: a file of a checkpoint was changed.
    """
    following = follow(sweep)
    prefix = following.look()
    predicate = predicate_of(prefix, following.seq)
    if not predicate["results"]:
        raise NotFound(f"no trial of {prefix.row.id} has a value, so there is nothing to attest")
    try:
        for saved in prefix.checkpoints.values():
            if Path(saved.path).is_dir():
                checkpoint.verify(saved)
    except CheckpointDamaged as error:
        raise StoreError(f"{error}") from error
    predicate["environment"] = provenance.files({})[provenance.FILES[1]].splitlines()
    subject = [{"name": it, "digest": {"sha256": sha}} for it, sha in prefix.digests().items()]
    kinds = {"_type": STATEMENT, "predicateType": PREDICATE}
    return {**kinds, "subject": subject, "predicate": predicate}


def predicate_of(prefix: JournalPrefix, last: int) -> dict[str, Any]:
    """Return what a statement says that the journal can confirm, up to event `last`."""
    row, state = prefix.row, prefix.state
    data = {
        "sweep": row.id,
        "state": state.state,
        "seed": state.spec.seed,
        "journal": {"last": last, "sha256": prefix.hash.hexdigest()},
        "spec": {key: value for key, value in row.spec.items() if key not in LEFT_OUT},
        "code": row.code,
        "results": [
            {name: getattr(best, name) for name in OWN} | {"data": state.trials[best.trial].data}
            for best in summary.front(row.id, state, {})
        ],
        **{found.topic: found.data for found in sure_and_gained(state)},
        "looks": {
            "trials": len(state.trials),
            "further_trainings": len(state.replicates.trials),
            "finalists": [*state.replicates.finalists],
            "excluded": state.excluded,
            "learned_from": summary.earlier_trials(state),
            "events": prefix.counts,
        },
    }
    # Each text in a line of its own, so that nothing is taken for a password across texts.
    plain: dict[str, Any] = json.loads(hide_passwords(json.dumps(finite(data), indent=0)))
    return plain


@dataclass(frozen=True)
class FigureCheck:
    """A figure of a statement, beside what the journal or the files say."""

    name: str
    stated: Any
    recomputed: Any
    result: Literal["ok", "differs", "not checked"]
    why: str = ""


def verify(
    text: bytes, key: Ed25519PublicKey, open_sweep: Callable[[str], OpenSweep]
) -> Iterator[FigureCheck]:
    """Yield the checks of an envelope that the key's owner must have signed.

    Raises:
        SpecError: the text is no envelope, or holds another kind of statement.
    """
    payload, why = unseal(text, key)
    yield FigureCheck("signature", None, key_id(key), "differs" if why else "ok", why)
    if why:
        return
    statement = json.loads(payload)
    if statement["predicateType"] != PREDICATE:
        raise fail(f"is a {statement['predicateType']}, not {PREDICATE}", "--verify")
    stated = statement["predicate"]
    environment, last = stated.pop("environment", ()), stated["journal"]["last"]
    try:
        following = follow(open_sweep(stated["sweep"]))
        prefix = following.read_to(last)
        yield from compare("", stated, predicate_of(prefix, following.seq))
    except NotFound as error:
        yield FigureCheck("journal", stated["sweep"], None, "not checked", f"{error}")
        return
    except CHANGED as error:
        yield FigureCheck("journal", last, None, "differs", f"its events can't be true: {error!r}")
        return
    why = "it is of the signer's machine, which the journal does not know"
    yield FigureCheck("environment", count(len(environment), "line"), None, "not checked", why)
    found = prefix.digests()
    for name, digest in ((it["name"], it["digest"]["sha256"]) for it in statement["subject"]):
        if name in found:
            yield from compare(name, digest, found[name])
        else:
            yield FigureCheck(name, digest, None, "not checked", "it is not on this machine")
    front = following.look().state.front
    if following.seq > last:
        why = f"the sweep went on to event {following.seq}; its best is now {', '.join(front)}"
        yield FigureCheck("later events", None, following.seq - last, "not checked", why)


def compare(name: str, stated: Any, now: Any) -> Iterator[FigureCheck]:
    """Yield the checks of all figures in two pieces of JSON, by their dotted names."""
    if isinstance(stated, Mapping) and isinstance(now, Mapping):
        keys = [(key, f"{name}.{key}".lstrip(".")) for key in {**stated, **now}]
        checks = [it for key, full in keys for it in compare(full, stated.get(key), now.get(key))]
        whole = name.rpartition(".")[2] in LONG and all(it.result == "ok" for it in checks)
        values = count(len(checks), "value")
        yield from [FigureCheck(name, values, values, "ok")] if whole else checks
    elif isinstance(stated, list) and isinstance(now, list) and len(stated) == len(now):
        for number, pair in enumerate(zip(stated, now, strict=True)):
            yield from compare(f"{name}[{number}]", *pair)
    else:
        floats = isinstance(stated, float) and isinstance(now, float)
        same = stated == now or (floats and math.isclose(stated, now, rel_tol=ROUNDING))
        yield FigureCheck(name, stated, now, "ok" if same else "differs")
