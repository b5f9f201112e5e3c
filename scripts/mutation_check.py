"""Share of small faults in costmodel/ that the tests notice.

    pip install -e '.[test,mutation]'
    python scripts/mutation_check.py --mutants 100 --seed 0

Mutants come from the operators of cosmic-ray. Places in the source are drawn at random by the seed, then one mutation
of each. A copy of the repository receives one mutant at a time and runs the tests that mirror its module: the module's
own test file first, then its package's tests. A mutant that no test notices survives, and is shown as a difference.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parent.parent
COPIED = ("costmodel", "collectors", "scripts", "tests", "README.md", "pyproject.toml")
LINKED = ("trained_models", "docs", "CHANGELOG.md", "Makefile", "constraints.txt")
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not gpu")
NOT_USED = ("VariableReplacer", "VariableInserter", "_Is_Eq", "_Eq_Is", "_IsNot_NotEq", "_NotEq_IsNot")
"""Operators that need the names of variables, and identity for equality: the same for None, enums and constants."""
PASSED = (0, 5)
"""Exit statuses of pytest: all tests passed, no tests were left."""
TIME_LIMIT = "the time limit"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutation: the operator's occurrence of that number in the module, counted as cosmic-ray does."""

    module: Path
    line: int
    operator: str
    occurrence: int

    def source(self, root: Path) -> str:
        """The module's text with the fault."""
        mutated: str = mutate_code(_text(root / self.module), get_operator(self.operator)(), self.occurrence)
        return mutated

    def difference(self) -> str:
        """Lines that change, as a unified difference without context."""
        before, after = (text.splitlines() for text in (_text(ROOT / self.module), self.source(ROOT)))
        changed = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
        return "\n".join(changed)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def without_effect(text: str) -> set[int]:
    """Lines of annotations and of declarations of data classes, where a mutation changes nothing that runs.

    Modules import annotations from __future__, so `int | None` is never evaluated; `frozen` and `slots` of a data class
    refuse what no caller does.
    """
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            lines |= _lines_of(node.annotation) if node.annotation.end_lineno == node.end_lineno else set()
            if isinstance(node, ast.AnnAssign) and node.value is None:
                lines |= _lines_of(node)
        elif isinstance(node, ast.FunctionDef):
            first = node.body[0].lineno
            lines |= set(range(node.lineno, first)) if node.returns is not None else set()
        elif isinstance(node, ast.ClassDef):
            lines |= {line for decorator in node.decorator_list for line in _lines_of(decorator)}
    return lines


def _lines_of(node: ast.expr | ast.AnnAssign) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def mutants_of(module: Path) -> Iterator[Mutant]:
    """Every mutation of a module in code that runs."""
    text = _text(ROOT / module)
    unused = without_effect(text)
    nodes = list(ast_nodes(get_ast(text)))
    for name in operator_names():
        if name.endswith(NOT_USED):
            continue
        operator = get_operator(name)()
        starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, _) in enumerate(starts):
            if line not in unused:
                yield Mutant(module, line, name, occurrence)


def sample(modules: Iterable[Path], count: int, seed: int) -> list[Mutant]:
    """Mutants on as many lines, each line as likely as any other, and any mutation of a line."""
    by_line: dict[tuple[Path, int], list[Mutant]] = {}
    for module in modules:
        for mutant in mutants_of(module):
            by_line.setdefault((module, mutant.line), []).append(mutant)
    chooser = random.Random(seed)  # noqa: S311 - a sample, not a secret
    return [chooser.choice(by_line[place]) for place in chooser.sample(sorted(by_line), min(count, len(by_line)))]


def mirroring(module: Path, root: Path) -> list[str]:
    """Paths of tests that mirror a module: the file of its name first, then its package's directory."""
    inner = module.relative_to("costmodel")
    package = root / "tests" / inner.parent
    own = sorted(package.glob(f"test_{module.stem}*.py"))
    beside = sorted(package.glob("test_*.py")) if inner.parent.parts else []
    return [str(path.relative_to(root)) for path in dict.fromkeys([*own, *beside])]


def copy_of_repository(directory: Path) -> Path:
    """Copy into a directory all files that tests need; data is linked."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / name)
    for name in LINKED:
        (directory / name).symlink_to(ROOT / name)
    return directory


class Tests:
    """Tests run in a copy of the repository."""

    def __init__(self, root: Path, limit_s: float) -> None:
        self.root = root
        self.limit_s = limit_s
        self._broken: set[str] = set()

    def first_failure(self, tests: list[str], skipped: Iterable[str] = ()) -> str:
        """The first test that fails, TIME_LIMIT, or nothing."""
        variables = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "1",
            "COLUMNS": "1000",
        }
        command = [sys.executable, *PYTEST, *(f"--deselect={name}" for name in skipped), *tests]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        try:
            done = subprocess.run(command, cwd=self.root, env=variables, timeout=self.limit_s, check=False, **pipes)
        except subprocess.TimeoutExpired:
            return TIME_LIMIT
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        if done.returncode in PASSED:
            return ""
        assert found is not None, done.stdout[-1000:]
        return found.group(1)

    def noticing(self, mutant: Mutant) -> str:
        """The first test that fails with the mutant and passes without it, TIME_LIMIT, or nothing."""
        path, paths = self.root / mutant.module, mirroring(mutant.module, self.root)
        original = _text(path)
        while paths:
            path.write_text(mutant.source(ROOT), encoding="utf-8")
            failed = self.first_failure(paths, self._broken)
            path.write_text(original, encoding="utf-8")
            if failed in ("", TIME_LIMIT) or not self.first_failure([failed]):
                return failed
            self._broken.add(failed)  # a test or file that fails without the mutant shows nothing: go on without it
            paths = [one for one in paths if one != failed]
        return ""


def check(mutants: list[Mutant], limit_s: float, output: Path | None) -> list[tuple[Mutant, str]]:
    """Which test noticed each mutant, printed as it is found."""
    found: list[tuple[Mutant, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        tests = Tests(copy_of_repository(Path(directory)), limit_s)
        for mutant in mutants:
            found.append((mutant, tests.noticing(mutant)))
            show(*found[-1], output)
    return found


def show(mutant: Mutant, noticed: str, output: Path | None) -> None:
    """Print one outcome, and add it to a file of JSON lines."""
    name = mutant.operator.partition("/")[2]
    said = f"noticed by {noticed}" if noticed else f"survived:\n{mutant.difference()}"
    print(f"{mutant.module}:{mutant.line} {name} {said}", flush=True)
    if output:
        record = {"module": str(mutant.module), "line": mutant.line, "operator": name, "noticed": noticed}
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**record, "difference": mutant.difference()}) + "\n")


def arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100, help="how many to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="costmodel/**/*.py", help="modules to mutate, as a pattern of paths")
    parser.add_argument(
        "--limit", type=float, default=600.0, help="seconds a mutant; an endless loop counts as noticed"
    )
    parser.add_argument("--part", default="1/1", help="I/N: every N-th of the mutants drawn, from the I-th")
    parser.add_argument("-o", "--output", type=Path, help="add each outcome to a file of JSON lines")
    parser.add_argument("--least", type=float, default=0.75, help="share noticed below which the exit status is 1")
    return parser.parse_args()


def main() -> int:
    """Draw mutants, test each, print the share noticed by package."""
    args = arguments()
    modules = sorted(path.relative_to(ROOT) for path in ROOT.glob(args.only))
    part, parts = map(int, args.part.split("/"))
    found = check(sample(modules, args.mutants, args.seed)[part - 1 :: parts], args.limit, args.output)
    drawn = Counter(str(mutant.module.parent) for mutant, _ in found)
    noticed = Counter(str(mutant.module.parent) for mutant, by in found if by)
    for package, count in sorted(drawn.items()):
        print(f"{package}: {noticed[package]} of {count}")
    share = noticed.total() / max(drawn.total(), 1)
    print(f"{noticed.total()} of {drawn.total()} mutants noticed: {share:.0%}")
    return 0 if share >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
