"""Write the JSON Schema of a spec, with the words of the reference: `python docs/spec_schema.py`.

The file travels in the wheel, so that `hposvc schema` prints it without this page.
tests/hposvc/spec/test_json_schema.py holds it against the code.
"""

import json
import re
from pathlib import Path

from hposvc.spec.json_schema import build

ROOT = Path(__file__).parent.parent
FILE = ROOT / "hposvc" / "spec" / "schema.json"
ROW = re.compile(r"^\| `([^`]+)` \| .+? \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def schema() -> str:
    """Return the file's text."""
    page = (ROOT / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| key \| type \(default\) \| meaning \|\n(?:\|.*\n)+", page)
    words = {}
    for key, meaning in (row for table in tables for row in ROW.findall(table)):
        words[key] = LINK.sub(r"\1", meaning).removesuffix(" Details").replace("`", "")
    return json.dumps(build(words), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema(), encoding="utf-8")
