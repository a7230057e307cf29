"""Reading what a program can be told, and what it says."""

import logging
import re
import sys
import textwrap

import pytest

from hposvc.drafts.ranges import first_range
from hposvc.drafts.source import Argument, read_object, read_script
from hposvc.errors import SpecError


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def test_the_arguments_of_argparse(script):
    program = read_script(
        script(
            """
            parser.add_argument("-l", "--lr", type=float, default=1e-3)
            parser.add_argument("--layers", type=int, default=2, help="how many")
            parser.add_argument("--opt", choices=["sgd", "adam"], default="sgd")
            parser.add_argument("--ema", action="store_true")
            parser.add_argument("--bias", action=argparse.BooleanOptionalAction, default=True)
            parser.add_argument("data")
            """
        )
    )
    assert program.arguments == (
        Argument("lr", "float", 1e-3),
        Argument("layers", "int", 2),
        Argument("opt", "text", "sgd", ("sgd", "adam")),
        Argument("ema", "bool", False, (), "on"),
        Argument("bias", "bool", True, (), "on_off"),
    )


def test_the_options_of_click(script):
    program = read_script(
        script(
            """
            @click.option("--lr", default=0.1)
            @click.option("--opt", type=click.Choice(["sgd", "adam"]))
            @click.option("--ema", is_flag=True)
            @click.option("--bias/--no-bias", default=True)
            def main(lr, opt, ema, bias): ...
            """
        )
    )
    assert program.arguments == (
        Argument("lr", "float", 0.1),
        Argument("opt", "text", None, ("sgd", "adam")),
        Argument("ema", "bool", False, (), "on"),
        Argument("bias", "bool", True, (), "on_off"),
    )


def test_the_flags_of_absl(script):
    program = read_script(
        script(
            """
            flags.DEFINE_float("lr", 1e-3, "step size", lower_bound=0.0)
            LAYERS = flags.DEFINE_integer("layers", 2, "how many")
            flags.DEFINE_enum("opt", "sgd", ["sgd", "adam"], "optimizer")
            flags.DEFINE_bool("ema", False, "whether to average")
            flags.DEFINE_string("data", None, "where it is", required=True)
            """
        )
    )
    assert program.arguments == (
        Argument("lr", "float", 1e-3),
        Argument("layers", "int", 2),
        Argument("opt", "text", "sgd", ("sgd", "adam")),
        Argument("ema", "bool", False, (), "value"),
        Argument("data", "text", required=True),
    )


@pytest.mark.parametrize(
    ("cli", "prefix"), [("tyro.cli(Options)", ""), ("tyro.cli(train)", "options.")]
)
def test_the_dataclasses_and_functions_of_tyro(script, cli, prefix):
    program = read_script(
        script(
            f"""
            @dataclass
            class Optimizer:
                lr: float
                kind: Literal["sgd", "adam"] = "sgd"
                ema: bool = False

            @dataclass
            class Options:
                optimizer: Optimizer = field(default_factory=Optimizer)
                layers: int = 2

            def train(options: Options): ...

            {cli}
            """
        )
    )
    assert program.arguments == (
        Argument(f"{prefix}optimizer.lr", "float", required=True),
        Argument(f"{prefix}optimizer.kind", "text", "sgd", ("sgd", "adam")),
        Argument(f"{prefix}optimizer.ema", "bool", False, (), "tyro"),
        Argument(f"{prefix}layers", "int", 2),
    )


def test_lines_of_a_logger_go_to_standard_error(script):
    program = read_script(script("logging.info('step %d: loss %.4f', step, loss)"))
    ((metric, pattern),) = program.patterns
    assert (metric, program.to_stderr) == ("loss", True)
    found = re.search(pattern, "I1125 00:30:00 7 train.py:1] step 3: loss 0.2500")
    assert found.groupdict() == {"step": "3", "loss": "0.2500"}


@pytest.mark.parametrize(
    ("loop", "line", "from_0"),
    [
        ("range(9)", "{epoch}", True),
        ("range(0, 9)", "{epoch}", True),
        ("tqdm(range(first, last))", "{epoch:03d}", True),
        ("range(9)", "{epoch + 1}", False),
        ("range(1, 10)", "{epoch}", False),
        ("range(first, last + 1)", "{epoch}", False),
    ],
)
def test_steps_that_are_printed_from_0_are_counted_instead(script, loop, line, from_0):
    """A step 0 is refused: the first trial would fail by it."""
    text = f"for epoch in {loop}:\n    print(f'epoch {line}: loss {{x}}')"
    program = read_script(script(text))
    ((_, pattern),) = program.patterns
    assert program.steps_from_0 is from_0
    assert re.search(pattern, "epoch 7: loss 0.25").groupdict() == (
        {"loss": "0.25"} if from_0 else {"step": "7", "loss": "0.25"}
    )


def test_the_number_of_a_rank_is_no_metric(script):
    program = read_script(script("print(f'[GPU{rank}] epoch {epoch}: loss {x}')"))
    assert program.metrics == ("loss",)


def test_a_script_that_starts_its_ranks_itself_is_started_once(script):
    setup = "dist.init_process_group('nccl')\n"
    assert read_script(script(setup)).of_ranks
    assert not read_script(script(setup + "mp.spawn(main, nprocs=2)\n")).of_ranks


def test_the_fields_of_a_class_and_the_keys_of_a_function(script):
    path = script(
        """
        Kind = Literal["a", "b"]

        class Net(Task):
            lr: float = 0.1
            kind: Kind = "a"
            width: Literal[8, 16] = 8

        class Plain:
            def __init__(self, lr=0.1, depth=3): ...

        def train(config, worker):
            rate, decay = config["lr"], config.get("decay", 1e-4)
            worker.report(1, {"loss": rate})
        """
    )
    net = read_object(f"{path}:Net")
    assert net.metrics == ("val/loss",)
    assert net.arguments == (
        Argument("lr", "float", 0.1),
        Argument("batch", "int", 64),
        Argument("kind", "text", "a", ("a", "b")),
        Argument("width", "int", 8, (8, 16)),
    )
    assert [each.name for each in read_object(f"{path}:Plain").arguments] == ["lr", "depth"]
    train = read_object(f"{path}:train")
    assert train.metrics == ("loss",)
    assert train.arguments == (
        Argument("lr", "text", required=True),
        Argument("decay", "float", 1e-4),
    )
    with pytest.raises(SpecError, match="no class or function 'Nets'; it has Net, Plain, train"):
        read_object(f"{path}:Nets")


def test_what_is_no_source_is_named(script, tmp_path):
    with pytest.raises(SpecError, match="is no Python"):
        read_script(script("def"))
    with pytest.raises(SpecError, match="cannot be read: no such file"):
        read_script(tmp_path / "none.py")
    with pytest.raises(SpecError, match="there is no module nowhere"):
        read_object("nowhere:Net")


def test_an_objective_of_optuna_has_its_own_ranges(script):
    path = script(
        """
        def objective(trial):
            lr = trial.suggest_float("lr", 1e-5, 0.1, log=True)
            layers = trial.suggest_int("layers", low=1, high=3)
            kind = trial.suggest_categorical("kind", ["a", "b"])
            tail = trial.suggest_float("tail", 0, layers)
            trial.report(lr, 1)
        """
    )
    program = read_object(f"{path}:objective")
    assert program.metrics == ("value",)
    domains = {each.name: first_range(each) for each in program.arguments}
    assert domains == {
        "lr": {"min": 1e-5, "max": 0.1, "log": True},
        "layers": {"min": 1, "max": 3, "type": "int"},
        "kind": {"values": ["a", "b"]},
        "tail": None,
    }


def test_a_script_for_wandb_has_the_configuration_of_its_run(script):
    program = read_script(
        script(
            """
            wandb.init(project="p", config={"lr": 0.1, "epochs": 9, **more})
            wandb.log({"val_loss": loss})
            """
        )
    )
    assert program.arguments == (Argument("lr", "float", 0.1), Argument("epochs", "int", 9))
    assert (program.metrics, program.logs_to_wandb) == (("val_loss",), True)


PRINTED = [  # what a script does, and the metrics that are found in its last line
    ("print('loss: {:.4f}, done'.format(x))", {"loss": "0.2345"}),
    (
        "print('Test set: loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\\n'.format(x, 9, 10, 90))",
        {"loss": "0.2345", "Accuracy": "9"},
    ),
    (
        "print('| epoch {:3d} | time: {:5.2f}s | valid loss {:5.2f} |'.format(epoch, 1.5, x))",
        {"step": "3", "loss": "0.23"},
    ),
    ("print('{1} loss {0:.2e}'.format(x, 'train'))", {"loss": "2.35e-01"}),
    ("print('loss {value:6.3f} ({share:.1%})'.format(value=x, share=0.5))", {"loss": "0.235"}),
    (
        "print('epoch %d/%d train loss %.4f val loss %7.4f' % (epoch, 9, 1.0, x))",
        {"step": "3", "loss": "1.0000", "val_loss": "0.2345"},
    ),
    ("print('loss %(loss).4f at 100%%' % {'loss': x})", {"loss": "0.2345"}),
    ("print('loss: ' + str(x) + '; next')", {"loss": "0.23451"}),
    ("print('epoch', epoch, 'loss', x, sep=': ')", {"step": "3", "loss": "0.23451"}),
    ("print('epoch:', epoch, 'loss:', round(x, 2))", {"step": "3", "loss": "0.23"}),
    ("line = f'[loss: {x:8.4f}]'\nprint(line)", {"loss": "0.2345"}),
    ("line = 'loss {:.2f};'\nprint(line.format(x))", {"loss": "0.23"}),
    ("line = 'loss %.2f;'\nprint(line % (x,))", {"loss": "0.23"}),
    ("print('{{}} {} loss {}'.format('a', x))", {"loss": "0.23451"}),
    ("print(f'loss {x:{8}.{2}f}, n {12345:,}')", {"loss": "0.23"}),
    ("print(f'reward {-x: .3f} [{1 - x:<8.2f}]')", {"reward": "-0.235"}),
    ("print('acc\\t', x, '\\x1b[0m')", {"acc": "0.23451"}),
    ("print('loss', 1, file=sys.stderr)\nprint('acc', x)", {"acc": "0.23451"}),
    ("print(f'acc {x:.1%} loss {-x:.3g}.')", {"acc": "23.5", "loss": "-0.235"}),
    ("sys.stdout.write('loss={:.1e}\\n'.format(x / 1000))", {"loss": "2.3e-04"}),
    ("log.info('loss %.3f, lr %g', x, 0.1)", {"loss": "0.235", "lr": "0.1"}),
    ("log.info('loss {:.3f}.'.format(x))", {"loss": "0.235"}),
    ("log.log(20, 'loss %.3f', x)", {"loss": "0.235"}),
]


@pytest.mark.parametrize(("code", "expected"), PRINTED)
def test_a_metric_is_found_in_what_the_code_really_prints(script, capsys, code, expected):
    logger = logging.Logger("a script")
    logger.addHandler(logging.StreamHandler(sys.stdout))
    exec(code, {"x": 0.23451, "epoch": 3, "sys": sys, "log": logger})
    (line,) = capsys.readouterr().out.splitlines()[:1]
    program = read_script(script(code))
    found = {}
    for _, pattern in program.patterns:
        found |= re.search(pattern, line).groupdict()
    assert found == expected


@pytest.mark.parametrize(
    "last", ["", "print('Train loss: {:.3f}'.format(x))", "print('At the end test loss %.3f' % x)"]
)
def test_lines_of_held_out_data_come_first(script, last):
    program = read_script(
        script(
            f"""
            print('lr {{:.3f}}'.format(x))
            print('Train loss: {{:.3f}}'.format(x))
            print('Epoch {{}}: test loss {{:.3f}}, acc {{:.2f}}'.format(3, x, y))
            {last}
            """
        )
    )
    assert program.metrics == ("loss", "acc", "lr")
    assert dict(program.patterns)["loss"].startswith("Epoch (?P<step>")


def test_files_that_every_trial_would_write_are_found(script):
    program = read_script(
        script(
            """
            parser.add_argument("--save", default="model.pt")
            parser.add_argument("--output-dir", default="out")
            parser.add_argument("--resume-checkpoint", default="old.pt")
            parser.add_argument("--save-every", default="5")
            parser.add_argument("--output-activation", default="relu")
            parser.add_argument("--output-format", default="out.json")
            parser.add_argument("--save-to", choices=["a.pt", "b.pt"], default="a.pt")
            parser.add_argument("--export")
            torch.save(model.state_dict(), "best.pt")
            torch.save(model.state_dict(), args.save)
            open("config.json")
            open("results.json", "w")
            """
        )
    )
    calls = ("torch.save to best.pt", "open to results.json")
    assert program.writes == ("--save model.pt", "--output-dir out", *calls)
