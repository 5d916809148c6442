"""Notes in the installed package where the checkout builds its library, and builds it with `make` where nobody has: `pip install ./python` is
enough on a fresh clone. Everything else is in pyproject.toml."""
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPlace(build_py):
    def run(self):
        super().run()
        root = pathlib.Path(__file__).resolve().parent.parent
        target = pathlib.Path(self.build_lib) / "tenon" / "_place.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"BUILD = {str(root / 'build')!r}\n")
        if (root / "Makefile").exists() and not (root / "build" / "libtenon.so").exists() and shutil.which("make"):
            made = subprocess.run(["make", f"-j{os.cpu_count() or 1}", "build/libtenon.so"], cwd=root)
            if made.returncode != 0:
                sys.exit("`make` failed in Tenon's checkout: scripts/install-deps build installs what it needs; then `pip install ./python` again")


setup(cmdclass={"build_py": BuildWithPlace})
