"""If these fail, the example of fine-tuning learns from other data than it says, or not at all."""

from collections import Counter
from dataclasses import replace

import pytest
from train_glosses import CLASSES, VALIDATION, Glosses, glosses, installed, tokenized

from trainables import Worker


def test_there_is_a_gloss_for_each_noun_of_wordnet():
    texts, labels = glosses()
    assert len(texts) == len(labels) == 82_115
    assert set(labels) == set(range(CLASSES))
    assert Counter(labels).most_common(1)[0][1] / len(labels) == pytest.approx(0.141, abs=1e-3)
    assert texts[0].startswith("that which is perceived or known or inferred")
    assert not any('"' in text for text in texts[3:5])


def test_more_samples_leave_what_it_is_judged_by():
    few, many = tokenized(20, 12), tokenized(40, 12)
    assert (few.train.columns[0] == many.train.columns[0][:20]).all()
    for mine, other in zip(few.validation.columns, many.validation.columns, strict=True):
        assert len(mine) == VALIDATION
        assert (mine == other).all()
    assert few.train.columns[0].shape == (20, 12)


@pytest.mark.full
def test_a_short_run_learns_more_than_the_largest_class():
    worker = replace(Worker.alone(until=1), metrics=("val/accuracy",))
    task = Glosses(lr=1e-2, samples=384, length=12)
    task.train(worker)
    assert worker.reports[0].metrics["val/accuracy"] > 0.3
    trained = sum(
        weight.numel() for weight in task.build_model().parameters() if weight.requires_grad
    )
    assert trained == 6 * 2 * 8 * (384 + 384) + 384 * 26 + 26


def test_what_is_not_installed_is_named_with_how_to():
    with pytest.raises(FileNotFoundError, match=r"no-such .* needed; pip install 'hposvc\[exam"):
        installed("no-such", "no/file")
