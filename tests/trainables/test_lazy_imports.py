import shutil
import subprocess
import sys

import pytest

import searchers
import trainables

DOOR = """
from typing import TYPE_CHECKING
from {package}.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from door import room as room
    from door.room import LAMP as LAMP
    from door.room import Chair as Chair
else:
    __getattr__, __dir__ = lazy_imports(__name__)
    __all__ = __dir__()
"""
USE = """
import sys, door
assert dir(door) == ["Chair", "LAMP", "room"]
assert "door.room" not in sys.modules
assert door.Chair.__name__ == "Chair" and door.LAMP == 1
assert door.room is sys.modules["door.room"]
LAMP = None
from door import *
assert (LAMP, Chair) == (1, door.Chair)
"""


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("package", ["searchers", "trainables"])
def test_names_are_those_imported_for_types_and_load_on_first_use(package, zipped, tmp_path):
    folder = tmp_path / "sources" / "door"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(DOOR.format(package=package))
    (folder / "room.py").write_text("LAMP = 1\nclass Chair: ...\n")
    place = shutil.make_archive(str(tmp_path / "zipped"), "zip", folder.parent)
    code = f"import sys; sys.path.append({place if zipped else str(folder.parent)!r})\n{USE}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", [searchers, trainables])
def test_a_name_that_is_not_imported_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'Spce'"):
        module.Spce  # noqa: B018 - the access is the test
