from simulated_sweeps import make_spec
from sweep_stories import begin, report
from watched_sweeps import failing, watched

from hposvc.events import Ended, Finished
from hposvc.views.watch.lines import print_lines


def said(capsys):
    return [line[9:] for line in capsys.readouterr().out.splitlines()]


def test_a_running_sweep_is_summed_up_and_followed_to_its_end(capsys):
    source, follow = watched(make_spec(), failing(2))
    source.events += [
        *begin(3, 5.0),
        report(3, 6.0, 9, 0.25),
        Ended(7.0, 3, "t0003"),
    ]
    first = iter([[], [Finished(8.0, "COMPLETED", "trials")]])
    read = source.read

    def arriving(name, after):
        source.events += next(first)
        return read(name, after)

    source.read = arriving
    print_lines(source, follow, starts_drivers=False)
    lines = said(capsys)
    assert lines[0].startswith("3 of 12 trials · best loss 0.25 (t0003)")
    assert lines[1] == "COMPLETED: all 3 trials are done"
