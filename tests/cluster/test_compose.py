"""The image and compose.yaml of cluster/deploy: held against compose-spec and rules, and run.

There is no Docker here, neither its daemon nor Compose. The services run as processes, by the
commands, variables and health checks of compose.yaml; only addresses, ports and folders differ.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import postgres_server
import psycopg
import pytest
import yaml
from click.testing import CliRunner
from dockerfile_parse import DockerfileParser
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client.parser import text_string_to_metric_families
from remote_cluster import end
from ruamel.yaml import YAML

from cluster.local import free_ports
from hposvc.cli.app import commands as hposvc

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "cluster" / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
SECRETS = {"POSTGRES_PASSWORD": "p" * 20, "RAY_AUTH_TOKEN": "t" * 32, "HPOSVC_METRICS_TOKEN": "m"}
SCRIPTS = Path(sys.executable).parent
PATH = f"{SCRIPTS}:{os.environ['PATH']}"
PATIENCE_S = 180.0
OURS = re.compile(r"HPOSVC_|RAY_|MLFLOW_|POSTGRES_")


def other_variables():
    """Return this process' variables without those that the services have their own of."""
    return {name: text for name, text in os.environ.items() if not OURS.match(name)}


def refusal(file):
    """Return what the schema of compose-spec has against a file, or nothing."""
    tool = shutil.which("check-jsonschema", path=PATH)
    assert tool, "pip install check-jsonschema"
    words = [tool, "--builtin-schema", "vendor.compose-spec", "--output-format=json", file]
    done = subprocess.run(words, capture_output=True, text=True)
    answer = json.loads(done.stdout)  # none if the tool itself fails
    assert (answer["status"] == "ok") == (done.returncode == 0)
    return answer["errors"] + answer.get("parse_errors", [])


def interpolated(value, variables):
    """Return a value of compose.yaml with the variables in it: the form ${NAME:?message} alone."""
    if isinstance(value, dict):
        return {key: interpolated(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each, variables) for each in value]
    if not isinstance(value, str):
        return value

    def given(match):
        if match["name"] is None:
            raise ValueError(f"the tests know no other form than ${{NAME:?message}}: {value}")
        if not (text := variables.get(match["name"])):
            raise ValueError(
                f"required variable {match['name']} is missing a value: {match['message']}"
            )
        return text

    return re.sub(r"\$(?:\{(?P<name>\w+):\?(?P<message>[^${}]*)\})?", given, value)


def read_compose(variables):
    return interpolated(yaml.safe_load(COMPOSE.read_text()), variables)


@pytest.fixture(scope="module")
def compose():
    return read_compose(SECRETS)


@pytest.fixture(scope="module")
def services(compose):
    return compose["services"]


def mounts(service):
    """Return the mounts of a service, all in the long form."""
    for mount in service.get("volumes", []):
        if isinstance(mount, str):
            source, target = mount.split(":")
            yield {"type": "volume", "source": source, "target": target}
        else:
            yield mount


def test_the_schema_takes_compose():
    assert refusal(COMPOSE) == []


def test_the_schema_refuses_a_misspelt_key(tmp_path):
    (tmp_path / "compose.yaml").write_text(COMPOSE.read_text().replace("start_p", "strat_p"))
    assert refusal(tmp_path / "compose.yaml")


def test_no_key_is_there_twice():
    """Compose refuses such a file; the other readers here let it pass next to a merged `<<`."""
    YAML().load(COMPOSE.read_text())


@pytest.mark.parametrize("secret", ["POSTGRES_PASSWORD", "RAY_AUTH_TOKEN"])
def test_no_secret_has_a_default(secret):
    others = {name: text for name, text in SECRETS.items() if name != secret}
    for given in (others, {**others, secret: ""}):
        with pytest.raises(ValueError, match=f"{secret} is missing a value: a secret; see the"):
            read_compose(given)


def test_what_services_name_is_defined_and_all_of_it_is_used(compose, services):
    used = {"volumes": set(), "configs": set(), "secrets": set()}
    for service in services.values():
        used["volumes"] |= {each["source"] for each in mounts(service) if each["type"] == "volume"}
        used["configs"] |= {config["source"] for config in service.get("configs", [])}
        used["secrets"] |= set(service.get("secrets", []))
    assert used == {kind: compose[kind].keys() for kind in used}
    assert {each["environment"] for each in compose["secrets"].values()} <= SECRETS.keys()


def test_times_and_sizes_have_units(services):
    for service in services.values():
        check = service.get("healthcheck", {})
        times = [check[key] for key in ("interval", "timeout", "start_period") if key in check]
        for span in (*times, service.get("stop_grace_period", "1s")):
            assert re.fullmatch(r"\d+(ms|s|m|h)", span)
        assert re.fullmatch(r"\d+[kmg]b", service.get("shm_size", "1gb"))


def test_services_wait_for_those_that_they_need(services):
    assert services.keys() == {
        *("server", "ray-head", "ray-worker", "postgres", "mlflow", "prometheus")
    }
    needs = {name: service.get("depends_on", {}) for name, service in services.items()}
    assert needs["server"].keys() == {"postgres", "mlflow", "ray-head"}
    assert needs["mlflow"].keys() == {"postgres"}
    assert needs["ray-worker"].keys() == {"ray-head"}
    for needed in needs.values():
        for name, how in needed.items():
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in services[name]


def test_ports_are_open_to_this_machine_alone(services):
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)
    assert "ports" not in services["postgres"]


def test_what_lasts_is_in_named_volumes(services):
    lasting = {
        (name, mount["target"]): mount["source"]
        for name, service in services.items()
        for mount in mounts(service)
        if mount["type"] == "volume"
    }
    assert lasting["postgres", "/var/lib/postgresql/data"] == "postgres"
    [home] = [each["value"] for each in image() if "HPOSVC_HOME" in each["value"]]
    home = re.search(r"HPOSVC_HOME=(\S+)", home)[1]
    assert lasting["server", home] == "home"
    for name in ("server", "ray-head", "ray-worker"):
        assert lasting[name, "/sweeps"] == "sweeps"  # checkpoints: the same folder on each node


def test_images_are_pinned(services):
    for service in services.values():
        assert "build" in service or re.search(r":v?\d+\.\d+", service["image"])
    own = {name for name, service in services.items() if "build" in service}
    assert own == {"server", "ray-head", "ray-worker", "mlflow"}
    for name in own:
        build = services[name]["build"]
        assert (DEPLOY / build["context"]).resolve() == ROOT
        assert ROOT / build["dockerfile"] == DEPLOY / "Dockerfile"


DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "SHELL", "ARG", "USER", "ENV", "CMD"}


def image(text=DOCKERFILE):
    """Return the instructions of a Dockerfile, without comments."""
    parsed = DockerfileParser(fileobj=io.BytesIO(text.encode())).structure
    return [each for each in parsed if each["instruction"] != "COMMENT"]


def of(instructions, name):
    return [each["value"] for each in instructions if each["instruction"] == name]


def sent():
    """Return what of the repository the Docker daemon gets."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in lines
    return {line[1:] for line in lines if line.startswith("!")}


def check_image(text):
    """Hold a Dockerfile against rules of ours, most of which hadolint has, too."""
    instructions = image(text)
    assert {each["instruction"] for each in instructions} <= INSTRUCTIONS
    stages = [re.fullmatch(r"(\S+:\S+)(?: AS (\w+))?", line) for line in of(instructions, "FROM")]
    for stage in stages:
        assert re.search(r":\d+\.\d+\.\d+-", stage[1]), "an image without a version"
    assert len({stage[1] for stage in stages}) == 1  # a wheel is built by the Python that runs it

    last = max(at for at, each in enumerate(instructions) if each["instruction"] == "FROM")
    users = of(instructions[last:], "USER")
    assert users, "the user is root"
    assert re.fullmatch(r"[1-9]\d*", users[-1]), "Kubernetes' runAsNonRoot takes a number alone"
    assert f"useradd --create-home --uid {users[-1]} " in text

    for line in of(instructions, "COPY"):
        *sources, target = line.split()
        assert target.endswith("/") or len(sources) == 1
        for source in sources:
            assert source == "." or (source in sent() and (ROOT / source).exists()), source
    for line in of(instructions, "RUN"):
        check_run(line, {stage[2] for stage in stages})

    [words] = map(json.loads, of(instructions, "CMD"))
    assert words[0] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert words[1:] == ["--help"] or hposvc.get_command(None, words[1])


def check_run(line, stages):
    """Hold what a RUN does against rules: complete, and nothing left of the packages' downloads."""
    mount, script = re.fullmatch(r"(--mount=\S+ +)?(.*)", line).groups()
    assert set(re.findall(r"from=(\w+)", mount or "")) <= stages
    subprocess.run(["bash", "-n", "-c", script], check=True)
    for command in re.split(r"&&|;|\|", script):
        words = command.split()
        if words[:2] in (["pip", "install"], ["pip", "wheel"]):
            assert "--no-cache-dir" in words
            assert {"--no-deps", "--constraint"} & set(words), "packages without versions"
        if words[:2] == ["apt-get", "install"]:
            assert {"--yes", "--no-install-recommends"} <= set(words)
            assert "rm -rf /var/lib/apt/lists/*" in script


def test_the_dockerfile_keeps_the_rules():
    check_image(DOCKERFILE)


def test_verbs_and_options_of_compose_exist(services):
    """As the image has them: click refuses unknown words before it shows the help."""
    words = services["server"]["command"]
    assert words[0] == "hposvc"
    answers = [
        CliRunner().invoke(hposvc, [*given, "--help"]).exit_code
        for given in (words[1:], ["sreve", *words[2:]], [*words[1:], "--behind-prox"])
    ]
    assert answers == [0, 2, 2]


def test_the_image_takes_all_versions_from_the_constraints(tmp_path):
    [line] = re.findall(r'^RUN (python -c ".*?")', DOCKERFILE.replace("\\\n", ""), re.M)
    (tmp_path / "tmp").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = subprocess.run(
        line.replace("/tmp/hposvc", str(tmp_path)),
        **{"shell": True, "check": True, "capture_output": True, "text": True},
        env={**os.environ, "PATH": PATH},
    )
    needed = {canonicalize_name(Requirement(line).name) for line in done.stdout.splitlines()}
    pinned = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().split()]
    assert {"ray", "psycopg", "s3fs", "mlflow"} <= needed
    assert needed <= {canonicalize_name(entry.name) for entry in pinned}
    assert all(str(entry.specifier).startswith("==") for entry in pinned)


def test_the_image_is_built_from_what_the_wheel_needs():
    for name in sent():
        assert (ROOT / name).exists()
    settings = (ROOT / "pyproject.toml").read_text()
    [found] = re.findall(r"^include = (\[.*\])$", settings, re.M)
    assert {name.removesuffix("*") for name in json.loads(found)} <= sent()


def prometheus():
    return yaml.safe_load((DEPLOY / "prometheus.yml").read_text())


def test_prometheus_reads_the_server_and_each_node_of_ray(services):
    config = prometheus()
    jobs = {job.pop("job_name"): job for job in config.pop("scrape_configs")}
    assert jobs.keys() == {"hposvc", "ray"}
    assert jobs["hposvc"]["static_configs"] == [{"targets": ["server:8900"]}]
    assert "--port=8900" in services["server"]["command"]
    [found] = jobs["ray"]["dns_sd_configs"]
    for name in found["names"]:
        assert f"--metrics-export-port={found['port']}" in services[name]["command"]
    [secret] = services["prometheus"]["secrets"]
    token = jobs["hposvc"]["authorization"]["credentials_file"]
    assert token == f"/run/secrets/{secret}"


def test_prometheus_has_its_files(services):
    bound = [mount for mount in mounts(services["prometheus"]) if mount["type"] == "bind"]
    files = {mount["target"]: DEPLOY / mount["source"] for mount in bound}
    folder = Path("/etc/prometheus")
    assert f"--config.file={folder}/prometheus.yml" in services["prometheus"]["command"]
    names = {"prometheus.yml", *prometheus()["rule_files"]}
    assert files == {f"{folder / name}": DEPLOY / name for name in names}


@pytest.fixture
def postgres():
    """The socket of a real Postgres; the test is skipped if none can be started."""
    try:
        with postgres_server.start() as socket:
            yield socket
    except postgres_server.Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def folder():
    """A folder with a short path, which Ray's sockets want."""
    with tempfile.TemporaryDirectory(prefix="hposvc-c-", dir="/tmp") as path:
        yield Path(path)


class Stack:
    """The services as processes: each with the command, variables and health check of Compose."""

    def __init__(self, services, folder, databases):
        gcs, dashboard, client, mlflow, server, *others = free_ports(9)
        self.services, self.folder = services, folder
        # Each container has its own address and all ports to itself; two of Ray's nodes do not.
        self.ports = {"6379": gcs, "8265": dashboard, "5000": mlflow, "8900": server}
        self.metrics = {"ray-head": others[0], "ray-worker": others[1]}
        self.hosts = {"ray-head": "127.0.0.61", "ray-worker": "127.0.0.62"}
        self.more = {
            "ray-head": [f"--ray-client-server-port={client}", *self._node("ray-head", others[2])],
            "ray-worker": ["--num-cpus=1", *self._node("ray-worker", others[3])],
        }
        self.databases = databases
        self.processes = {}  # by service
        for name in ("home", "mlflow", "sweeps"):
            (folder / name).mkdir()
        operator = yaml.safe_load(COMPOSE.read_text())["configs"]["operator"]["content"]
        (folder / "hposvc.yaml").write_text(operator)

    def _node(self, name, agent):
        words = [f"--node-ip-address={self.hosts[name]}", f"--dashboard-agent-listen-port={agent}"]
        return [*words, f"--temp-dir={self.folder / name}", "--object-store-memory=100000000"]

    def here(self, name, text):
        """Return a word of a command, or a variable, with addresses and folders of this machine."""
        for database, url in self.databases.items():
            text = re.sub(rf"^postgresql\S*@postgres:5432/{database}$", url, text)
        names = "server|ray-head|mlflow|127.0.0.1|localhost"

        def moved(match):
            host = self.hosts.get(match[1] or name, "127.0.0.1")
            return f"{host}:{self.ports[match[2]]}"

        text = re.sub(rf"({names}):(\d+)", moved, text)
        text = re.sub(r"port=(6379|8265|5000|8900)$", lambda m: f"port={self.ports[m[1]]}", text)
        text = re.sub(r"port=8080$", lambda _: f"port={self.metrics[name]}", text)
        for path, own in {"/mlflow": "mlflow", "/etc/hposvc.yaml": "hposvc.yaml"}.items():
            text = re.sub(rf"(^|=){path}$", rf"\g<1>{self.folder / own}", text)
        return text

    def environment(self, name):
        own = self.services[name]["environment"]
        own = {key: self.here(name, text) for key, text in own.items()}
        home = {"HPOSVC_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT), "PATH": PATH}
        return {**other_variables(), **home, **own}

    def address(self, name, port):
        return f"{self.hosts.get(name, '127.0.0.1')}:{self.ports[port]}"

    def run(self, name, words, **options):
        """Run a command in the place of a service, as `docker compose exec` does."""
        return subprocess.run(
            [self.here(name, word) for word in words],
            **{"capture_output": True, "text": True, "env": self.environment(name), "cwd": "/"},
            **options,
        )

    @contextmanager
    def running(self):
        """Run all services, each after those that it waits for."""
        with ExitStack() as running:
            for names in (("mlflow", "ray-head"), ("ray-worker", "server")):
                for name in names:
                    running.enter_context(self.service(name))
                for name in names:
                    if "healthcheck" in self.services[name]:
                        self.wait(name)
            yield

    @contextmanager
    def service(self, name):
        """Run a service until the block ends."""
        self.start(name)
        try:
            yield
        finally:
            end(self.processes[name])

    def start(self, name):
        """Start the process of a service."""
        words = [self.here(name, word) for word in self.services[name]["command"]]
        words += self.more.get(name, [])
        log = self.folder / f"{name}.log"
        with log.open("w") as out:
            self.processes[name] = subprocess.Popen(
                words, stdout=out, stderr=out, env=self.environment(name), cwd="/"
            )

    def wait(self, name):
        """Wait until the health check of a service passes; one that ends is started again.

        That is what Compose does, and on a busy machine Ray gives its own start up.
        """
        starts = 3 if self.services[name].get("restart") else 1
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        deadline = time.monotonic() + PATIENCE_S
        while (done := self.run(name, words)).returncode != 0:
            said = (self.folder / f"{name}.log").read_text()[-3000:]
            if self.processes[name].poll() is not None:
                starts -= 1
                assert starts, said
                self.start(name)
            assert time.monotonic() < deadline, f"{done.stderr}\n{said}"
            time.sleep(0.5)


def get(address, path, token=None):
    request = urllib.request.Request(f"http://{address}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def metrics(text):
    return {family.name for family in text_string_to_metric_families(text)}


SWEEP = """
name: composed
project: composed
trainable: toy.py:train
metric: {name: loss, goal: minimize}
parameters: {x: {min: -1.0, max: 1.0}}
search: random
fidelity: {max: 1}
trials: {max: 2}
resources: {cpus_per_worker: 1}
"""
TOY = """
def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": params["x"] ** 2})
"""


@pytest.mark.full
@pytest.mark.ray
def test_a_sweep_runs_through_the_commands_of_compose(services, postgres, folder, tmp_path):
    stack = Stack(services, folder, create_databases(services, postgres))
    with stack.running():
        server, mlflow = stack.address("server", "8900"), stack.address("mlflow", "5000")
        token = create_token(stack, "ann", "submit", "steer")
        done = submit(tmp_path, server, token, storage=folder / "sweeps")
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        sweeps = json.loads(get(server, "/api/v1/sweeps", token))
        assert "COMPLETED" in json.dumps(sweeps)
        experiment = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=composed"
        assert json.loads(get(mlflow, experiment))["experiment"]["lifecycle_stage"] == "active"

        # As prometheus.yml does it, with a token of its own.
        reads = create_token(stack, "prometheus", "read")
        assert "hposvc_requests" in metrics(get(server, "/metrics", reads))
        for name, port in stack.metrics.items():
            found = metrics(get(f"{stack.hosts[name]}:{port}", "/metrics"))
            assert any(metric.startswith("ray_") for metric in found)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(server, "/metrics")  # --behind-proxy: nobody is let in without a token


def create_databases(services, socket):
    """Make the databases of the service postgres, and return their URLs."""
    kind, *words = services["postgres"]["healthcheck"]["test"]
    assert kind == "CMD"
    subprocess.run([word.replace("127.0.0.1", socket) for word in words], check=True)
    url = postgres_server.create_database(socket, "hposvc")
    script = yaml.safe_load(COMPOSE.read_text())["configs"]["mlflow-database"]["content"]
    with psycopg.connect(host=socket, user="tester", dbname="hposvc", autocommit=True) as server:
        server.execute(script)
    return {"hposvc": url, "mlflow": url.replace("/hposvc?", "/mlflow?")}


def submit(folder, server, token, storage):
    """Submit a small sweep to the server, and wait for its end."""
    (folder / "sweep.yaml").write_text(f"{SWEEP}storage: {storage}\n")
    (folder / "toy.py").write_text(TOY)
    client = {"HPOSVC_TOKEN": token, "HPOSVC_SERVER": f"http://{server}"}
    own = {"PYTHONPATH": str(ROOT), "HPOSVC_HOME": str(folder / "home")}
    return subprocess.run(
        [SCRIPTS / "hposvc", "submit", folder / "sweep.yaml", "--wait"],
        **{"capture_output": True, "text": True, "timeout": 300},
        env={**other_variables(), **client, **own},
    )


def create_token(stack, owner, *scopes):
    words = [word for scope in scopes for word in ("--scope", scope)]
    done = stack.run("server", ["hposvc", "token", "create", "--owner", owner, *words])
    assert done.returncode == 0, done.stderr
    return re.search(r"hpo_\S+", done.stdout)[0]
