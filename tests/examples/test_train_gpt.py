"""If this fails, language models learn something else than next tokens, or ranks differ.

Axes: N windows, T tokens.
"""

import math

import pytest
import torch
from tasks import curve
from train_gpt import GptText, caches, corpus, shakespeare

from trainables import Worker


@pytest.fixture(scope="module", autouse=True)
def caches_of_their_own(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


TEXT = "".join(f"{n} and {n} are {2 * n}, not {n * n % 97}.\n" for n in range(200))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "sums.txt"
    file.write_text(TEXT)
    sizes = {"length": 16, "layers": 2, "width": 16, "heads": 2, "dropout": 0.0}
    return GptText(text=str(file), share=0.5, vocabulary=270, batch=23, lr=3e-3, **sizes)


def test_each_token_is_the_target_of_one_window(task):
    corpus = task.corpus()
    (windows_NT,) = corpus.data.train.columns
    (validation_NT,) = corpus.data.validation.columns
    cut = round(0.9 * round(0.5 * len(TEXT)))
    text = corpus.tokenizer.decode(windows_NT[:, 1:].flatten().tolist())
    first = corpus.tokenizer.decode(windows_NT[0, :1].tolist())
    assert TEXT[:cut].startswith(first + text)
    assert len(corpus.tokenizer.encode(TEXT[:cut])) - windows_NT[:, 1:].numel() - 1 < 16
    end = corpus.tokenizer.decode(validation_NT[:, 1:].flatten().tolist())
    assert end in TEXT[cut : round(0.5 * len(TEXT))]
    assert corpus.bytes_per_token == len(end.encode()) / validation_NT[:, 1:].numel()


def test_a_text_is_read_once_on_a_node(task):
    folder = caches()
    before = {file.name: file.stat().st_mtime_ns for file in folder.glob("*/*")}
    first = task.corpus()
    corpus.cache_clear()  # as in another process
    again = task.corpus()
    assert torch.equal(first.data.train.columns[0], again.data.train.columns[0])
    assert first.tokenizer == again.tokenizer
    assert {file.name: file.stat().st_mtime_ns for file in folder.glob("*/*")} == before
    assert [file.name for file in folder.glob("[!.]*-270-*/*")] == ["tokens.pt"]


def test_metrics_are_those_of_the_mean_loss(task, capsys):
    worker = Worker.alone(until=2)
    task.train(worker)
    seen = curve(worker)[-1]
    assert seen["val/perplexity"] == pytest.approx(math.exp(seen["val/loss"]))
    bits = seen["val/loss"] / math.log(2)
    assert seen["val/bits_per_byte"] == pytest.approx(bits / task.corpus().bytes_per_token)
    assert bits < math.log2(270)  # which a guess needs
    printed = capsys.readouterr().out
    assert "step 1: \n" in printed
    assert "step 2: \n" in printed
    assert task.summarize({"val/loss": 1e6})["val/perplexity"] > 1e300


def test_what_is_written_is_what_was_read(tmp_path):
    file = tmp_path / "abc.txt"
    file.write_text("abcdefghijklmnopqrstuvwxyz. " * 300)
    task = GptText(text=str(file), vocabulary=256, length=32, layers=1, width=32, lr=1e-2)
    texts = []

    class Listening(GptText):
        def show(self, model):
            texts.append(self.write(model, "abc", 40))
            return ""

    Listening(**vars(task)).train(Worker.alone(until=8))
    assert texts[-1] == "abcdefghijklmnopqrstuvwxyz. abcdefghijklmno"


def test_shakespeare_is_there_without_a_network():
    text = shakespeare()
    assert 5_000_000 < len(text) < 5_100_000
    assert text.isascii()
    assert "To be, or not to be,--that is the question:--" in text
    data = corpus("shakespeare", 0.01, 256, 64).data
    assert (len(data.train), len(data.validation)) == (708, 78)
