"""The launchers of Determined: they start the ranks of a trial there, and hposvc does here.

Source: `determined.launch` of Determined 0.38. Each launcher is started by `python3 -m`, and takes
flags of its own and the program of a rank; some take options of another launcher and `--` before.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

MODULE = "determined.launch."
FLAGS = {"--trial": 1, "--port": 1, "--autohorovod": 0, "--no-redirect-stdio": 0}  # their values
HANDING_ON = ("torch_distributed", "horovod", "tensorflow")
BY_RANK = ("torch_distributed", "deepspeed", "wrap_rank")  # hposvc starts the ranks as these do
OF_A_NODE = ("torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun")
OF_TORCH = ("torch.distributed.run", "torch.distributed.launch")
ALONE = ["env", "WORLD_SIZE=${WORLD_SIZE}"]  # so that a rank without peers has its variables too
IN_SHELL = re.compile(rf"\S*python\S*\s+-m\s+{re.escape(MODULE)}(\w+)\s+(--\s+)?(?!-)")


@dataclass(frozen=True)
class Started:
    """A program without the launcher, and how it is started."""

    words: Sequence[str]
    launch: Literal["rank", "node"] = "rank"
    trial: str | None = None  # a trial class of Determined, in place of the program
    done: tuple[str, ...] = ()  # what the user should know


def without_launcher(words: Sequence[str], workers: int) -> Started:
    """Return the program that a launcher starts, and how hposvc starts it."""
    at = next((at for at, word in enumerate(words) if word.startswith(MODULE)), None)
    if at is None or at < 2 or words[at - 1] != "-m":
        return _launched_by_node(words)
    name = words[at].removeprefix(MODULE)
    options: list[str] = []
    rest = [*words[at + 1 :]]
    if name in HANDING_ON and "--" in rest:  # options of the launcher beneath come first
        end = rest.index("--")
        options, rest = rest[:end], rest[end + 1 :]
    flags, program = _flags(rest)
    if name == "wrap_rank":
        program = program[1:]  # without the rank
    if name not in HANDING_ON and program[:1] == ["--"]:
        program = program[1:]
    if "--trial" in flags:
        return Started([], trial=flags["--trial"])
    before = [*words[: at - 2]]
    if name in BY_RANK:
        return _by_rank(before, name, options, program, workers)
    if name == "horovod":
        if "--autohorovod" in flags and workers == 1:
            return Started([*before, *program], done=("the launcher horovod is left out",))
        done = "the launcher horovod becomes horovodrun, which starts the ranks of one node"
        command = ["horovodrun", "-np", "${WORLD_SIZE}", *options, *program]
        return Started([*before, *command], "node", done=(done,))
    if name == "tensorflow":
        done = "the launcher is left out; launch is node, a process on each node, without TF_CONFIG"
        return Started([*before, *program], "node", done=(done,))
    return Started(
        words, done=(f"the launcher {words[at]} is not known; start the ranks yourself",)
    )


def without_launcher_in_shell(text: str) -> tuple[str, str]:
    """Return a shell's commands without the launcher in them, and what was done."""
    match = IN_SHELL.search(text)
    if match and match[1] in BY_RANK and match[1] != "wrap_rank":
        return text.replace(match[0], ""), "the launcher is left out; hposvc starts each rank"
    if MODULE in text:
        return text, "the launcher in it does not run here; take it out, and see launch"
    return text, ""


def _flags(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the flags that a launcher reads itself, and the program behind them."""
    rest, flags = [*words], {}
    while rest and (name := rest[0].partition("=")[0]) in FLAGS:
        word = rest.pop(0)
        taken = FLAGS[name] and "=" not in word and rest
        flags[name] = rest.pop(0) if taken else word.partition("=")[2]
    return flags, rest


def _by_rank(
    before: Sequence[str], name: str, options: Sequence[str], program: Sequence[str], workers: int
) -> Started:
    done = [f"the launcher {name} is left out; hposvc starts each of resources.workers itself"]
    if options:
        done.append(f"the launcher's options are left out: {' '.join(options)}")
    if workers == 1 and name != "wrap_rank":
        done.append("a program that needs no RANK can do without env and the word behind it")
        before = [*ALONE, *before]
    inner = without_launcher(program, 0)
    return Started([*before, *inner.words], inner.launch, inner.trial, (*done, *inner.done))


def _launched_by_node(words: Sequence[str]) -> Started:
    """Return a program as it is, and whether it starts the ranks of its node."""
    name = PurePath(words[0]).name if words else ""
    if name not in OF_A_NODE and not any(word in OF_TORCH for word in words[:3]):
        return Started(words)
    done = "starts the ranks of its node itself: launch is node; see hposvc docs scripts"
    return Started(words, "node", done=(done,))
