"""A first spec, written as people would: short, with words where they may want another value."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hposvc import spec as specs
from hposvc.drafts import examples
from hposvc.drafts.imported.conversion import flow
from hposvc.drafts.printed import HELD_OUT, NUMBER
from hposvc.drafts.ranges import Domain, first_range, holds, preset_of, unit_of, words
from hposvc.drafts.source import (
    TASKS,
    Argument,
    SourceProgram,
    objects_with_parameters,
    read_object,
    read_script,
)
from hposvc.errors import fail
from hposvc.spec import json_schema
from hposvc.spec.parsing.document import read_text
from hposvc.text import number
from searchers import nearest

HIGH = (
    *("acc", "accuracy", "auc", "f1", "r2", "score", "reward", "return", "bleu", "rouge", "map"),
    *("iou", "dice", "precision", "recall", "psnr", "ssim", "ndcg", "top1", "kappa", "win"),
)
SCHEMA = "hposvc.schema.json"
SEEDS = ("seed", "random_seed", "random-seed", "random_state", "random-state")
TRIALS, EPOCHS = 20, 9


@dataclass(frozen=True)
class Draft:
    """Contents of a first spec."""

    name: str
    target: str  # the script's path, or module:Name
    program: SourceProgram
    domains: Mapping[str, Domain]  # of what is searched
    metric: str
    goal: str
    length: int | None  # steps of a trial; None: until it ends
    trials: int = TRIALS

    @property
    def is_script(self) -> bool:
        """Whether the target is a script that is started anew for each trial."""
        return ":" not in self.target

    @property
    def unknown(self) -> list[str]:
        """The names that the program cannot do without, and for which the spec has nothing."""
        return [
            argument.name
            for argument in self.program.arguments
            if argument.required
            and argument.name not in self.domains
            and not self._sets_length(argument)
            and argument.name not in self._seeds
        ]

    def with_only(self, names: str) -> "Draft":
        """Return the draft with these parameters only, also those that nobody would guess.

        Raises:
            SpecError: the program has no such argument, or nothing tells its range.
        """
        known = {argument.name: argument for argument in self.program.arguments}
        domains = dict[str, Domain]()
        for name in (word.lstrip("-") for word in names.replace(",", " ").split()):
            if name not in known:
                raise fail(f"no such argument {name!r}", fix=nearest(name, known))
            domain = self.domains.get(name) or first_range(known[name], asked=True)
            if domain is None:
                raise fail(f"nothing tells a range of {name}", fix="write it into the spec later")
            domains[name] = domain
        return replace(self, domains=domains)

    def about(self, metric: str) -> "Draft":
        """Return the draft with another metric, and the goal that fits its name."""
        return self if metric == self.metric else replace(self, metric=metric, goal=goal_of(metric))

    def text(self, schema: bool) -> str:
        """Return the spec as YAML.

        Args:
            schema: whether editors find its schema beside it.
        """
        return "\n".join(self._lines(schema)) + "\n"

    def _lines(self, schema: bool) -> Iterator[str]:
        if schema:
            yield f"# yaml-language-server: $schema={SCHEMA}"
        yield "# `hposvc plan` says what it would cost, `hposvc run` runs it."
        yield "version: 1"
        yield f"name: {self.name}"
        yield from self._code()
        yield f"metric: {{name: {flow(self.metric)}, goal: {self.goal}}}"
        if self.length is not None:
            yield f"fidelity: {{unit: {self._unit}, max: {self.length}}}"
        yield ""
        yield "parameters:"
        arguments = {argument.name: argument for argument in self.program.arguments}
        for name, domain in self.domains.items():
            own = "values" in domain or arguments[name].domain  # the code's
            found = preset_of(arguments[name], self.program.calls)
            note = f"  # {found.preset}: {found.source}" if found else "" if own else "  # a guess"
            yield f"  {flow(name)}: {_flow(domain)}{note}"
        for name in self.unknown:
            yield f"  # {flow(name)}: the code needs it; write a value, or a range"
        if left := self._left_out:
            yield f"# Not searched, they keep their values: {', '.join(left)}."
        defaults = {name: arguments[name].default for name in self.domains}
        domains = self.domains.items()
        today = {name: defaults[name] for name, domain in domains if holds(domain, defaults[name])}
        if today:
            # A logarithmic range has no 0.
            others = [f"{name} ({defaults[name]})" for name in defaults if name not in today]
            yield "# Tried first: the values of today."
            if others:
                yield f"# Without {', '.join(others)}, which the ranges do not have."
            yield f"initial: [{_flow(today)}]"
            yield "# baseline: {seeds: 5}  # trains them five times more: how noisy the metric is"
        yield ""
        if self.length is not None:
            yield "scheduler: asha  # trains poor trials briefly"
        yield f"trials: {{max: {self.trials}}}"
        if self.program.of_ranks:
            yield "# Ranks of a trial, started as torchrun would; add gpus_per_worker: 1 on GPUs."
            yield "resources: {workers: 2}"
        else:
            yield "# resources: {gpus_per_worker: 1}"

    def _code(self) -> Iterator[str]:
        if not self.is_script:
            yield f"trainable: {self.target}"
            return
        arguments = [
            argument for argument in self.program.arguments if argument.name in self.domains
        ]
        script = shlex.quote(self.target) if self.program.to_stderr else self.target
        items = ["python", script, *self._own_items(), _list_of(arguments)]
        if self.program.to_stderr:
            yield "# A logger writes to standard error; 2>&1 sends it where metrics are looked for."
            items = ["sh", "-c", f"exec {' '.join(items)} 2>&1"]
        yield f"command: {json.dumps(items, ensure_ascii=False)}"
        for name in self._seeds:
            yield f"# --{name} gets another number in each trial, by which `hposvc why` tells luck."
            yield "# If the script also splits its data by it, each trial gets a split of its own:"
            yield "# then let it split by a fixed number."
        if self.program.writes:
            yield f"# Every trial writes the same files: {', '.join(self.program.writes[:3])}."
            yield '# Give each its own, as in "--save=${HPOSVC_TRIAL}.pt"; or read the variable'
            yield "# HPOSVC_TRIAL in the script."
        if self.program.logs_to_wandb:
            yield "# Beside wandb.log({...}), call hposvc.report({...}) with the same metrics."
        if not self.program.reports:
            patterns = dict(self.program.patterns)
            group = re.sub(r"\W", "_", self.metric)
            pattern = patterns.get(self.metric, rf"\b{group}\b\W+?(?P<{group}>{NUMBER})")
            if not self.program.metrics:
                yield "# No printed metric was found: write its name and its pattern here. Or"
                yield "# call hposvc.report({...}) in the script, and leave out this line."
            else:
                yield "# Finds the metric in what the script prints. Or let it call hposvc.report."
            if self.program.steps_from_0:
                yield "# Its steps begin with 0, ours with 1: so lines are counted instead."
            yield f"collect: {{stdout: '{pattern.replace(chr(39), chr(39) * 2)}'}}"

    def _own_items(self) -> Iterator[str]:
        """Yield what makes the program as long as the spec says, with other chance each time."""
        lengths = [each.name for each in self.program.arguments if self._sets_length(each)]
        yield from (f"--{name}=${{HPOSVC_TOTAL}}" for name in lengths[:1])
        yield from (f"--{name}=${{HPOSVC_SEED}}" for name in self._seeds)

    def _sets_length(self, argument: Argument) -> bool:
        by_argument = self.is_script and not self.program.reads_wandb and self.length is not None
        return by_argument and bool(unit_of(argument))

    @property
    def _seeds(self) -> list[str]:
        """The arguments that are seeds; a program that reads W&B's config has none."""
        arguments = () if self.program.reads_wandb or not self.is_script else self.program.arguments
        return [each.name for each in arguments if each.kind == "int" and each.name in SEEDS]

    @property
    def _left_out(self) -> list[str]:
        """The arguments that keep the code's own values."""
        names = {*self.domains, *self.unknown, *self._seeds}
        arguments = [each for each in self.program.arguments if not self._sets_length(each)]
        return [each.name for each in arguments if each.name not in names]

    @property
    def _unit(self) -> str:
        usual = "epoch" if self.program.metrics == TASKS else "step"
        return next(
            (unit for argument in self.program.arguments if (unit := unit_of(argument))), usual
        )


def draft(source: str) -> Draft:
    """Return a first draft of a spec for code.

    Args:
        source: a script's path, `module:Name` or `path/to/file.py:Name`.

    Raises:
        SpecError: the source can't be read, or nothing of it looks like a hyperparameter.
    """
    program = read_object(source) if ":" in source else read_script(Path(source))
    return propose(source, program)


def write(draft: Draft, path: Path | None) -> str:
    """Write a draft into a new file, with the schema beside it, and return its text.

    Args:
        path: the file; None: only return the text.

    Raises:
        FileExistsError: there is such a file.
        SpecError: the draft is no spec, such as by a name of a metric.
    """
    text = draft.text(schema=path is not None)
    specs.load(read_text(text, f"{path or 'spec'}"))
    if path is not None:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        path.with_name(SCHEMA).write_text(schema(), encoding="utf-8")
    return text


def schema() -> str:
    """Return the JSON Schema of a spec, with the words of the page `spec`.

    Raises:
        SpecError: the package was installed without its pages.
    """
    page = (examples.pages() / "reference" / "spec.md").read_text(encoding="utf-8")
    return json.dumps(json_schema.build(json_schema.meanings(page)), indent=1) + "\n"


def propose(target: str, program: SourceProgram) -> Draft:
    """Return a first draft for a program.

    Args:
        target: the script's path, or `module:Name`.

    Raises:
        SpecError: nothing of the program looks like a hyperparameter.
    """
    script = ":" not in target
    domains = {
        argument.name: domain
        for argument in program.arguments
        if (domain := first_range(argument, calls=program.calls)) is not None
        and not (script and _twisted(argument, program))
    }
    if not domains:
        raise fail("nothing to search was found", fix=f"{_advice(target, program)}", place=target)
    metric = _metric(program.metrics)
    lengths = [argument for argument in program.arguments if unit_of(argument)]
    length = lengths[0].default if lengths and program.metrics else None
    if program.metrics == TASKS:
        length = EPOCHS
    name = re.sub(r"[^A-Za-z0-9._-]", "-", Path(target.rpartition(":")[2]).stem).strip("-._")
    return Draft(
        name=name.lower() or "sweep",
        target=target,
        program=program,
        domains=domains,
        metric=metric,
        goal=goal_of(metric),
        length=length if isinstance(length, int) and length > 1 else None,
    )


def _advice(target: str, program: SourceProgram) -> str:
    """Return what to do with a program in which nothing to search was found."""
    if program.arguments:
        names = ", ".join(argument.name for argument in program.arguments)
        return f"nothing tells a range of {names}; write `parameters` yourself (hposvc docs spec)"
    if ":" in target:
        return "it reads no key of its first argument; let it take f(config), and read config[NAME]"
    if name := next(objects_with_parameters(Path(target)), None):
        return f"it has no arguments, but `hposvc init {name}` reads that function or class"
    return "it has no arguments of argparse, click, absl or tyro; see hposvc docs your-code"


def goal_of(metric: str) -> str:
    """Return which way a metric is better, by its name."""
    return "minimize" if set(words(metric)).isdisjoint(HIGH) else "maximize"


def _metric(names: tuple[str, ...]) -> str:
    """Return the metric that is most likely the one to optimise."""

    def rank(name: str) -> tuple[bool, bool]:
        parts = {*words(name)}
        return not parts.isdisjoint(HELD_OUT), not parts.isdisjoint((*HIGH, "loss", "error"))

    return max(names, key=rank, default="loss")


def _twisted(argument: Argument, program: SourceProgram) -> bool:
    """Return whether no list of arguments of ours writes this one beside the others."""
    switches = {each.switch for each in program.arguments if each.kind == "bool"}
    if argument.switch == "on_off":
        return "_" in argument.name or "on" in switches
    return argument.kind == "bool" and not argument.switch


def _list_of(arguments: list[Argument]) -> str:
    """Return the placeholder that writes the arguments as the program reads them."""
    switches = {argument.switch for argument in arguments}
    if "tyro" in switches:
        return "${args_tyro}"
    if "on_off" in switches:
        return "${args_hyphens_no}"
    return "${args_no_boolean_flags}" if "on" in switches else "${args}"


def _flow(mapping: Mapping[str, object]) -> str:
    """Return a mapping as one line of YAML."""
    return f"{{{', '.join(f'{flow(key)}: {_scalar(value)}' for key, value in mapping.items())}}}"


def _scalar(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, float):
        text = number(value, 6)
        return text if re.search(r"[.e]", text) else f"{text}.0"
    return flow(value)
