"""A disk that answers EIO for some seconds: to ranks that write into the sweep's checkpoint folder.

A library that is loaded before all others fails their calls; the folder itself is sound.
"""

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from scene import Scene
from terminal import pause

from hposvc.events import Event, Failed

BROKEN_S = (1.0, 6.0)  # how long
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int broken(const char *path) {
    const char *folder = getenv("BROKEN_FOLDER"), *switched = getenv("BROKEN_WHILE");
    if (!folder || !switched || !path || !strstr(path, folder)) return 0;
    if (access(switched, F_OK)) return 0;
    errno = EIO;
    return 1;
}

#define OPEN(NAME) \\
    int NAME(const char *path, int flags, ...) { \\
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #NAME); \\
        va_list more; \\
        va_start(more, flags); \\
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \\
        va_end(more); \\
        return broken(path) ? -1 : real(path, flags, mode); \\
    }

OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
    return broken(path) ? -1 : real(path, mode);
}
"""


def plan_broken(scene: Scene) -> None:
    """Processes that the driver starts have the library."""
    source, library = scene.place / "broken.c", scene.place / "broken.so"
    source.write_text(SOURCE)
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(build, check=True)
    folder = scene.home.folder(scene.sweep, None) / "checkpoints"
    scene.variables |= {"LD_PRELOAD": f"{library}", "BROKEN_FOLDER": f"{folder}"}
    scene.variables |= {"BROKEN_WHILE": f"{_switch(scene)}"}


def break_disk(scene: Scene) -> None:
    """Let writes fail for some seconds."""
    _switch(scene).touch()
    pause(scene.rng.uniform(*BROKEN_S))
    _switch(scene).unlink()


def _switch(scene: Scene) -> Path:
    return scene.place / "disk-is-broken"


def retried(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether an order failed of that, for no fault of its trial."""
    found = [one for one in events if isinstance(one, Failed) and "Errno 5" in one.message]
    users = [f"{one.trial}: {one.message}" for one in found if one.cause == "user"]
    assert not users, f"counted as the user's fault: {users}"
    return bool(found)


@cache
def has_compiler() -> bool:
    """Whether the library can be built here."""
    return shutil.which("cc") is not None
