"""The smallest build backend that can install this project in place; it needs no package."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = "rlinf_plugin_zoo_editable"
INFO = f"{PACKAGE}-1.0.dist-info"


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    source = Path(__file__).parent / "src"
    content = {
        f"{PACKAGE}.pth": f"{source}\n",
        f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: rlinf-plugin-zoo-editable\nVersion: 1.0\n"
        "Requires-Dist: rlinf-core>=0.1,<0.2\n",
        f"{INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{INFO}/entry_points.txt": f"[rlinf.plugins]\nzoo = {PACKAGE}.plugin\n",
    }
    name = f"{PACKAGE}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as archive:
        for file, text in content.items():
            archive.writestr(file, text)
        record = "".join(f"{file},,\n" for file in [*content, f"{INFO}/RECORD"])
        archive.writestr(f"{INFO}/RECORD", record)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    raise NotImplementedError("this project is installed in place only")
