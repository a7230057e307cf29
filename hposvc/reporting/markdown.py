"""The report as Markdown with pictures beside it, for a pull request."""

import re
from collections.abc import Iterator, Sequence
from importlib import util
from pathlib import Path

from hposvc.errors import require_extra
from hposvc.reporting.charts import draw
from hposvc.reporting.comparison import Compared
from hposvc.reporting.document import Section, compare
from hposvc.reporting.svg import flat
from hposvc.state.answers import values_of
from hposvc.text import duration, number, value_text

ZOOM = 2  # pixels of a PNG for each of its picture
CODE = re.compile(r"(`[^`|]+`)")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#])")


def markdown(sections: Sequence[Section], stem: str) -> dict[str, str | bytes]:
    """Return the report's files by name: STEM.md, and a PNG for each chart.

    Args:
        stem: begins the names of all files.

    Raises:
        MissingExtra: what draws the charts is not installed.
    """
    require_extra("plots", "a report in Markdown")
    lines: list[str] = []
    pictures: dict[str, bytes] = {}
    if len(sections) > 1:
        lines += _comparison(sections)
        comparison, _ = compare(sections)
        if comparison is not None:
            name = f"{stem}-comparison.png"
            pictures[name] = png(draw(comparison.chart))
            lines += _at_equal_cost(comparison, name)
    for number_, section in enumerate(sections, start=1):
        lines += first_screen(section)
        for chart in section.charts:
            mark = f"{number_}-{chart.kind}" if len(sections) > 1 else chart.kind
            name = f"{stem}-{mark}.png"
            pictures[name] = png(draw(chart))
            lines += [f"### {escape(chart.title)}", "", escape(chart.message), ""]
            lines += [f"![{escape(chart.title)}]({name})", ""]
        lines += reproduction(section)
    return {f"{stem}.md": "\n".join(lines), **pictures}


def png(picture: str) -> bytes:
    """Return a picture as PNG, in light colours and with a font that matplotlib brings."""
    import resvg_py

    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=flat(picture),
            background="#ffffff",
            zoom=ZOOM,
            skip_system_fonts=True,
            font_files=[str(file) for file in _fonts()],
            font_family="DejaVu Sans",
            sans_serif_family="DejaVu Sans",
        )
    )


def escape(text: str) -> str:
    """Return a text that Markdown shows as it is, and `words` between backquotes as code."""
    words = " ".join(str(text).split())
    parts = CODE.split(words)
    return "".join(
        part if place % 2 else SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts)
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def _fonts() -> Iterator[Path]:
    """Yield the fonts that matplotlib brings."""
    module_spec = util.find_spec("matplotlib")
    assert module_spec is not None
    assert module_spec.origin is not None
    folder = Path(module_spec.origin).parent / "mpl-data" / "fonts" / "ttf"
    yield from (folder / name for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"))


def _comparison(sections: Sequence[Section]) -> list[str]:
    head = ["sweep", "state", "search", "scheduler", "trials", "best", "GPU-hours", "time"]
    rows = [
        [
            *(escape(text) for text in (section.id, section.phase.lower(), section.search)),
            *(escape(text) for text in (section.scheduler, f"{section.total}", section.best_text)),
            *(number(section.gpu_hours), duration(section.elapsed_s)),
        ]
        for section in sections
    ]
    return [f"# {len(sections)} sweeps compared", "", *table(head, rows)]


def _at_equal_cost(comparison: Compared, picture: str) -> list[str]:
    rows = [[*map(escape, row)] for row in comparison.rows]
    lines = [line for sentence in comparison.sentences for line in (escape(sentence), "")]
    lines += [
        *table([*map(escape, comparison.head)], rows),
        f"![{escape(comparison.chart.title)}]({picture})",
        "",
    ]
    warnings = [f"- **warning:** {escape(warning)}" for warning in comparison.warnings]
    return [*lines, *warnings, ""]


def first_screen(section: Section) -> list[str]:
    """Return the first screen in words."""
    lines = [f"## {escape(section.id)}: {section.phase.lower()}", ""]
    if section.front:
        lines += [f"Best: **{escape(section.best_text)}**", ""]
        names = [name for name in section.names if any(name in b.params for b in section.front)]
        rows = [
            [best.trial, ", ".join(map(number, values_of(best.value)))]
            + [escape(value_text(best.params.get(name))) for name in names]
            for best in section.front[:10]
        ]
        metrics = ", ".join(metric.name for metric in section.metrics)
        lines += table([*map(escape, ("trial", metrics, *names))], rows)
    else:
        lines += [escape(section.nothing), ""]
    lines += [
        f"- **{finding['level']}: {escape(finding['title'])}.** {escape(finding['sentence'])}"
        for finding in section.findings
    ]
    lines += [""] if section.findings else []
    facts = [
        f"{figure.name}: {figure.text}{f' ({figure.note})' if figure.note else ''}"
        for figure in section.figures
    ]
    return [*lines, escape(" · ".join(facts)), ""]


def reproduction(section: Section) -> list[str]:
    """Return how to run the sweep, and its best trial, again."""
    return [
        "### How to reproduce it",
        "",
        *("```sh", section.commands, "```", ""),
        *("<details><summary>spec.yaml</summary>", "", "```yaml", section.yaml.rstrip(), "```"),
        *("</details>", ""),
    ]
