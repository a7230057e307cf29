"""A wall clock that jumps, for processes of a test: a library that is loaded before all others."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

# Adds the double in the file $CLOCK_SHIFT to the wall clock; the monotonic clock stays as it is.
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static volatile double *shift;

static void load(void) {
    if (real) return;
    const char *name = getenv("CLOCK_SHIFT");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *memory = mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        if (memory != MAP_FAILED) shift = memory;
    }
    real = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    load();
    int failed = real(clock, now);
    int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && wall && shift) now->tv_sec += (long)*shift;
    return failed;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""


class Missing(Exception):
    """This machine has no C compiler."""


class JumpingClock:
    """The wall clock of processes with `variables` in their environment, ahead by `shift_s`.

    Args:
        folder: of the library and of the file with the shift, which it maps.

    Raises:
        Missing: the library can't be built here.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise Missing("no C compiler in PATH")
        source, library, self._file = (folder / f"clock.{end}" for end in ("c", "so", "shift"))
        source.write_text(SOURCE)
        build = [compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"]
        subprocess.run(build, check=True)
        self._file.write_bytes(struct.pack("d", 0.0))
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self._file)}

    def jump(self, shift_s: float) -> None:
        """Set the clock to be ahead of the true one by so many seconds; below 0: behind it."""
        with self._file.open("r+b") as file:
            os.pwrite(file.fileno(), struct.pack("d", shift_s), 0)
