"""Compile the modules of the request path with mypyc, into a copy of the package: `python tools/compile_hot_modules.py build/compiled`.

The source tree stays pure Python: tests, coverage and debuggers see it, and it is what runs where there is no C compiler. A process
that finds the copy first (`PYTHONPATH=build/compiled`) runs the same code at about half the cost. Exit status 3 means that this
machine has no compiler.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOT = {
    "domain": ("header_lines", "units"),
    "policy": (
        "metering/calendar_window",
        "metering/coefficients",
        "metering/counter",
        "metering/counter_register",
        "metering/forecast",
        "metering/gcra",
        "metering/leases/leased_counter",
        "metering/limiter",
        "metering/local_counters",
        "metering/permit",
        "metering/places",
        "metering/quantile_sketch",
        "metering/sliding_window",
        "resilience/breaker",
        "resilience/failure_window",
        "resilience/retry_budget",
        "routing/affinity",
        "routing/fleet",
        "routing/fleet_view",
        "routing/latency",
        "routing/pick",
        "routing/router",
        "routing/routes",
        "routing/standing",
    ),
    "flow": ("allowance", "call_flow", "charges", "degrade", "lease_waits", "lengths", "outcomes", "progress", "record", "request_flow"),
    "wire": (
        "business_context",
        "headers",
        "lenient",
        "openai_request",
        "openai_response",
        "prompt_bound",
        "sse",
        "stencil",
        "stream",
        "trace_context",
    ),
    "gateway": ("alarms", "attempt", "authenticate", "calibration", "endpoints", "gateway", "request_context", "request_driver"),
    "http": (
        "answer_memory",
        "client",
        "client_call",
        "client_connection",
        "client_request",
        "deadlines",
        "framing",
        "head_memory",
        "outbox",
        "request_head",
        "response_head",
        "server_connection",
        "server_exchange",
        "server_socket",
        "server_state",
    ),
    "adapters": ("metrics/tally", "records/files", "records/jsonl", "records/lines", "records/sink"),
}
MESSAGES = {
    "domain/demand": (),
    "domain/request": ("ParsedRequest",),
    "flow/actions": (),
    "flow/charges": ("Charges",),
    "flow/events": (),
    "flow/facts": (),
    "flow/record": ("Use", "Asked", "Ended"),
    "gateway/endpoints": ("Endpoint",),
    "gateway/services": (),
    "gateway/request_context": (),
    "http/answer_memory": (),
    "http/head_memory": (),
    "http/request_head": ("ParsedHead", "_Line"),
    "policy/metering/coefficients": ("Expected", "TokenEstimate"),
    "policy/metering/estimate": ("Estimate",),
    "ports": ("RequestHead", "UpstreamRequest", "WindowState", "LimitState"),
    "wire/openai_response": ("AnswerFacts",),
}
"""Structs that only carry values from one step to the next (of these modules, without names: all): nothing encodes, compares or replaces
them."""
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

modules = mypycify({modules!r}, opt_level="3")
for module in modules:
    module.extra_compile_args = [*module.extra_compile_args, *{compile_flags!r}]
    module.extra_link_args = {link_flags!r}
setup(name="tidegate-hot", ext_modules=modules)
"""
# All is one library, and nobody replaces its functions when it is loaded: so they may call each other directly, and be put into each other.
COMPILE_FLAGS = ["-fno-semantic-interposition", "-fvisibility=hidden"]
LINK_FLAGS = ["-Wl,-Bsymbolic"] if sys.platform == "linux" else []
NO_COMPILER = 3


def make_native(module: Path) -> None:
    """Take out, in the copy, what keeps mypyc from making a class native.

    Slots, which native classes have by themselves, and the base class of asyncio's protocols, which adds nothing: transports only call
    methods.
    """
    text = module.read_text()
    for node in reversed([node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]):
        if any(isinstance(name, ast.Name) and name.id == "__slots__" for name in node.targets):
            lines = text.splitlines(keepends=True)
            indent = " " * node.col_offset
            lines[node.lineno - 1 : node.end_lineno] = [f"{indent}...\n"]
            text = "".join(lines)
    module.write_text(text.replace("(asyncio.Protocol):", ":").replace(", asyncio.Protocol):", "):"))


def enum_members(source: Path) -> dict[str, set[str]]:
    """Give the names of the members of every Enum that a module defines; of a package, none."""
    enums: dict[str, set[str]] = {}
    if not source.exists():
        return enums
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases):
            targets = [target for line in node.body if isinstance(line, ast.Assign) for target in line.targets]
            enums[node.name] = {target.id for target in targets if isinstance(target, ast.Name)}
    return enums


def look_up_members_once(module: Path, package_root: Path) -> None:
    """Make a constant, in the copy, of every member of an imported Enum that the module names.

    Until Python 3.12 `Enum.MEMBER` fails to find an attribute, formats that failure and then asks a Python function: a third of a
    microsecond, some ten times for each request. Patterns of `match` stay as they are: there a plain name would mean something else.
    """
    text = module.read_text()
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    members: dict[str, set[str]] = {}
    for node in imports:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidegate."):
            known = enum_members(package_root / f"{str(node.module).replace('.', '/')}.py")
            members |= {name.name: known[name.name] for name in node.names if name.asname is None and name.name in known}
    in_patterns = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.match_case) for inner in ast.walk(node.pattern)}
    found = [
        (node, node.value.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and id(node) not in in_patterns
        if node.attr in members.get(node.value.id, ())
    ]
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # columns count bytes
    for place, enum in sorted(found, key=lambda each: (each[0].lineno, each[0].col_offset), reverse=True):
        line = lines[place.lineno - 1]
        assert place.end_lineno == place.lineno
        lines[place.lineno - 1] = line[: place.col_offset] + f"_{enum}_{place.attr}".encode() + line[place.end_col_offset :]
    constants = sorted({f"_{enum}_{place.attr}: _Final = {enum}.{place.attr}\n" for place, enum in found})
    if constants:
        end = imports[-1].end_lineno
        lines[end:end] = [line.encode() for line in ("from typing import Final as _Final\n", *constants)]
        module.write_bytes(b"".join(lines))


def settle_constants(module: Path) -> None:
    """Declare final, in the copy, what a module names in capitals and sets once: else each use looks it up by its name.

    But no tuples: mypyc would keep their parts, and make a new tuple of them at each use.
    """
    text = module.read_text()
    body = ast.parse(text).body
    names = [node.targets[0].id for node in body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    lines = text.splitlines(keepends=True)
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1:
            name = node.targets[0].id
            if name.isupper() and names.count(name) == 1 and not isinstance(node.value, ast.Tuple):
                lines[node.lineno - 1] = lines[node.lineno - 1].replace(f"{name} =", f"{name}: _Final =", 1)
    end = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)][-1].end_lineno
    lines.insert(end or 0, "from typing import Final as _Final\n")
    module.write_text("".join(lines))


def ask_classes_directly(module: Path) -> None:
    """Make a chain of `isinstance`, in the copy, of every `match` of a variable that only tells classes apart.

    mypyc asks a native class directly there, and goes by Python's protocol in a pattern, at ten times the cost.
    """
    text = module.read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Match) or not isinstance(node.subject, ast.Name):
            continue
        tests = [_test_of(node.subject.id, case) for case in node.cases]
        if None in tests:
            continue
        lines[node.lineno - 1] = f"{' ' * node.col_offset}if True:\n"
        for word, case, test in zip(("if", *["elif"] * len(tests)), node.cases, tests, strict=False):
            first, captured = case.body[0], "".join(f"{to} = {node.subject.id}.{name}; " for name, to in _captures(case.pattern))
            line = lines[first.lineno - 1]
            lines[first.lineno - 1] = line[: first.col_offset] + captured + line[first.col_offset :]
            lines[case.pattern.lineno - 1] = f"{' ' * (node.col_offset + 4)}{f'{word} {test}' if test else 'else'}:\n"
    module.write_text("".join(lines))


def _test_of(subject: str, case: ast.match_case) -> str | None:
    """Give the test that a case stands for, empty for the wildcard; None: it asks for more than a class and plain fields."""
    patterns = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [case.pattern]
    if case.guard is not None or not isinstance(case.body[0], ast.Return | ast.Expr | ast.Assign):
        return None
    if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.pattern.name is None:
        return ""
    tests = []
    for pattern in patterns:
        if not isinstance(pattern, ast.MatchClass) or pattern.patterns:
            return None
        if not all(isinstance(field, ast.MatchAs) and field.name and field.pattern is None for field in pattern.kwd_patterns):
            return None
        tests.append(f"isinstance({subject}, {ast.unparse(pattern.cls)})")
    return " or ".join(tests)


def _captures(pattern: ast.pattern) -> list[tuple[str, str]]:
    """Give the fields that a pattern names, each with the variable that it puts it into."""
    if not isinstance(pattern, ast.MatchClass):
        return []
    fields = zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True)
    return [(name, field.name) for name, field in fields if isinstance(field, ast.MatchAs) and field.name]


def make_messages_native(module: Path, names: tuple[str, ...]) -> None:
    """Make native classes, in the copy, of a module's Structs: of all, or of those with these names.

    Compiled code finds a field of a Struct by its name, and tells Structs apart by asking msgspec's metaclass; both cost thirty times what
    they cost for a class of its own. Fields, their order and their defaults stay; being frozen, equality and `msgspec`'s functions do not.
    """
    text = module.read_text()
    lines = text.splitlines(keepends=True)
    fields: dict[str, list[ast.AnnAssign]] = {}
    edits: list[tuple[int, int, list[str]]] = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ClassDef) or not node.bases:
            continue
        base = ast.unparse(node.bases[0])
        if (base != "msgspec.Struct" and base not in fields) or (names and node.name not in names):
            continue
        own = [line for line in node.body if isinstance(line, ast.AnnAssign)]
        fields[node.name] = every = [*fields.get(base, ()), *own]
        head = f"class {node.name}({base}):\n" if base in fields else f"class {node.name}:\n"
        edits.append((node.lineno, node.body[0].lineno - 1, [head]))
        edits += [(line.lineno, line.end_lineno or 0, ["    ...\n"]) for line in own]
        if every:
            given = ", ".join(_parameter(line) for line in every)
            keep = [f"        self.{ast.unparse(line.target)} = {_kept(line)}\n" for line in every]
            end = node.end_lineno or 0
            edits.append((end + 1, end, [f"\n    def __init__(self, {given}) -> None:\n", *keep]))
    for first, last, replacement in sorted(edits, key=lambda edit: edit[0], reverse=True):
        lines[first - 1 : last] = replacement
    module.write_text("".join(lines))


def _factory(field: ast.AnnAssign) -> str | None:
    """Give what makes a field's default afresh for each instance, if something does."""
    value = field.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "msgspec.field":
        return next(ast.unparse(keyword.value) for keyword in value.keywords if keyword.arg == "default_factory")
    return None


def _parameter(field: ast.AnnAssign) -> str:
    if _factory(field) is None:
        return ast.unparse(field)
    return f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)} | None = None"


def _kept(field: ast.AnnAssign) -> str:
    name, factory = ast.unparse(field.target), _factory(field)
    return name if factory is None else f"{factory}() if {name} is None else {name}"


def main(target: Path) -> int:
    work = target.with_name(f"{target.name}.part")
    for folder in (work, target):  # first of all: compiled code of another state of the source must never run
        shutil.rmtree(folder, ignore_errors=True)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    include = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(compiler) is None or not include.exists():
        print("no C compiler, or no Python headers: the pure form will run", file=sys.stderr)
        return NO_COMPILER
    shutil.copytree(ROOT / "src", work, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    modules = [f"tidegate/{folder}/{name}.py" for folder, names in HOT.items() for name in names]
    modules = sorted({*modules, *(f"tidegate/{name}.py" for name in MESSAGES)})
    for message_module, names in MESSAGES.items():
        make_messages_native(work / "tidegate" / f"{message_module}.py", names)
    for module in modules:
        make_native(work / module)
        ask_classes_directly(work / module)
        settle_constants(work / module)
        if sys.version_info < (3, 12):
            look_up_members_once(work / module, work)
    setup = work / "setup.py"
    options = ["--ignore-missing-imports", "--follow-imports=silent"]
    setup.write_text(SETUP.format(modules=[*options, *modules], compile_flags=COMPILE_FLAGS, link_flags=LINK_FLAGS))
    log = target.with_name(f"{target.name}.log")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    with log.open("w") as output:
        outcome = subprocess.run(command, cwd=work, stdout=output, stderr=output, check=False)
    if outcome.returncode != 0:
        print(f"compiling failed, the pure form will run; see {log}", file=sys.stderr)
        shutil.rmtree(work)
        return outcome.returncode
    shutil.rmtree(work / "build")
    setup.unlink()
    work.rename(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
