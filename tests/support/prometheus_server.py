"""Debian's Prometheus and promtool (2.42): a server that scrapes one address, and the checker."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from waiting import until

PROGRAMS = ("prometheus", "promtool")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
WHY_NOT = f"no {', '.join(MISSING)}: apt-get install prometheus" if MISSING else ""
RULES = Path(__file__).parents[2] / "cluster" / "deploy" / "hposvc-rules.yml"
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **query: str) -> Any:
        """Return the data at a path of the HTTP API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the present values of an expression, by the values of these labels."""
        return {
            tuple(row["metric"].get(label, "") for label in labels): float(row["value"][1])
            for row in self.get("query", query=expression)["result"]
        }


@contextmanager
def scraping(folder: Path, address: str) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes HOST:PORT each second, with our rules; end it at the end."""
    scrape = {"job_name": "hposvc", "static_configs": [{"targets": [address]}]}
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    settings = {"global": every, "rule_files": [f"{RULES}"], "scrape_configs": [scrape]}
    config.write_text(yaml.safe_dump(settings))
    promtool("check", "config", f"{config}")
    command = ["prometheus", f"--config.file={config}", "--web.listen-address=127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder}/tsdb", "--log.format=json"],
            stdout=output,
            stderr=output,
        )
    try:
        yield Prometheus(f"http://{until(lambda: _listens_on(log), log.read_text, PATIENCE_S)}")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def promtool(*arguments: str, text: str = "") -> str:
    """Return what promtool says, once it finds no fault."""
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _listens_on(log: Path) -> str:
    """Return the address in the log, with the port that the system chose; empty: not ready yet."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    messages = {line.get("msg"): line for line in lines}
    ready = "Server is ready to receive web requests." in messages
    return str(messages["Listening on"]["address"]) if ready else ""
