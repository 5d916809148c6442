"""Notes in the installed package where the checkout builds its library, so that `make` is all that has to come before
`pip install ./python`. Everything else is in pyproject.toml."""
import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPlace(build_py):
    def run(self):
        super().run()
        place = pathlib.Path(__file__).resolve().parent.parent / "build"
        target = pathlib.Path(self.build_lib) / "tenon" / "_place.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"BUILD = {str(place)!r}\n")


setup(cmdclass={"build_py": BuildWithPlace})
