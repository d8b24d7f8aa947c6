"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from tidegate import __version__
from tidegate.adapters.keys.store import KeyStore
from tidegate.cli import reference
from tidegate.cli.configured import Overrides, effective
from tidegate.cli.development_key import development_key
from tidegate.cli.main import main
from tidegate.errors import ConfigurationError
from tidegate.wiring.worker import KEYS_FILE

NOW = 1_700_000_000.0
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty directory, without keys of providers in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENROUTER_API_KEY", "DASHSCOPE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def write(text: str) -> Path:
    file = Path("tidegate.yaml")
    file.write_text(text)
    return file


# ── usage ─────────────────────────────────────────────────────────────────────


def test_version_names_program_and_interpreter(capsys: Capture) -> None:
    """What a bug report needs."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"tidegate {__version__}, Python 3.")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["serve", "--help"], ["keys", "--help"], ["keys", "create", "--help"], ["doctor", "--help"]]
)
def test_help_tells_the_exit_codes(arguments: list[str], capsys: Capture) -> None:
    """Every help page ends with them."""
    assert main(arguments) == 0
    assert "Exit codes:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["serve", "--nonsense"], ["up", "--port", "many"], ["keys", "create"], ["keys", "revoke"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    """An option that does not exist, a word that is no number, an argument that is missing."""
    assert main(arguments) == 2


@pytest.mark.parametrize("arguments", [["check", "tidegate.yaml"], ["doctor", "jitter"], ["keys", "list", "acme"]])
def test_a_word_without_its_option_is_told(arguments: list[str], capsys: Capture) -> None:
    """The word, the command that has no place for it, and where its options are listed."""
    assert main(arguments) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    command = " ".join(("tidegate", *arguments[:-1]))
    assert f'"{arguments[-1]}" stands where `{command}` takes nothing more' in said
    assert f"`{command} --help` lists them" in said


def test_serve_without_a_file_says_what_to_do(capsys: Capture) -> None:
    """Production is not started by accident with defaults."""
    assert main(["serve"]) == 2
    assert "--config" in capsys.readouterr().err


def test_failures_are_messages_not_tracebacks(capsys: Capture) -> None:
    """A refused configuration is shown with its line, on standard error."""
    write("server:\n  prot: 1\n")
    assert main(["serve"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "tidegate.yaml:2" in captured.err
    assert "Traceback" not in captured.err


def test_the_page_of_commands_is_current() -> None:
    """`docs/reference/cli.md` is what `make docs` would write."""
    committed = Path(__file__).parents[3] / "docs" / "reference" / reference.FILE_NAME
    assert committed.read_text() == reference.page()


def test_the_command_line_starts_without_the_heavy_parts() -> None:
    """`tidegate keys list` does not import the web framework or the engine's bindings."""
    program = "import sys, tidegate.cli.main; print([name for name in ('starlette', 'uvicorn', 'xllamacpp') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "[]"


# ── check ─────────────────────────────────────────────────────────────────────


def test_check_without_a_file_shows_the_defaults(capsys: Capture) -> None:
    """An empty configuration is a working one."""
    assert main(["check"]) == 0
    assert "Listens on" in capsys.readouterr().out


def test_check_finds_problems_with_their_lines(capsys: Capture) -> None:
    """Refused: 2, the problems on standard error, nothing on standard output."""
    write("server:\n  port: 99999999\n")
    assert main(["check"]) == 2
    captured = capsys.readouterr()
    assert ("tidegate.yaml:2" in captured.err, captured.out) == (True, "")


def test_check_with_warnings_only_exits_with_1(capsys: Capture) -> None:
    """It works, but perhaps not as meant: shown, and told by the status."""
    write("admin:\n  host: 0.0.0.0\n")
    assert main(["check"]) == 1
    captured = capsys.readouterr()
    assert "warning" in captured.err
    assert "Listens on" in captured.out


def test_check_warns_of_an_extra_that_is_missing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the start does."""
    monkeypatch.setattr("tidegate.cli.check.installed", frozenset)
    write("tracing:\n  otlp:\n    endpoint: http://127.0.0.1:4318/v1/traces\n")
    assert main(["check"]) == 1
    assert "warning: tracing.otlp needs the extra otlp, which is not installed: pip install 'tidegate[otlp]'" in capsys.readouterr().err


def test_check_says_where_a_node_listens(capsys: Capture) -> None:
    """Which may be elsewhere than configured."""
    Path("state").mkdir()
    Path("state/endpoints.json").write_text('{"api": "http://127.0.0.1:1", "admin": "http://127.0.0.1:2"}')
    write("state_directory: state\n")
    main(["check"])
    assert "listens on http://127.0.0.1:1, and on http://127.0.0.1:2 for admin" in capsys.readouterr().out


def test_check_of_a_missing_file_exits_with_2(capsys: Capture) -> None:
    """A misspelt path is told as that."""
    assert main(["check", "--config", "nowhere.yaml"]) == 2
    assert "nowhere.yaml does not exist" in capsys.readouterr().err


def test_options_stand_above_the_file() -> None:
    """A port on the command line wins, and is checked like one in the file."""
    file = write("server: {port: 1234, workers: 3}\nupstreams: {there: {dialect: vllm, base_url: http://127.0.0.1:9/v1, models: [m]}}")
    configuration = effective(file, Overrides(port=0, admin_port=5, local_engine=False, state_directory=Path("s")))
    assert (configuration.server.port, configuration.server.workers, configuration.admin.port) == (0, 3, 5)
    assert (configuration.local_engine.enabled, configuration.state_directory) == (False, "s")
    with pytest.raises(ConfigurationError, match="port"):
        effective(file, Overrides(port=70_000))


def test_no_engine_without_an_upstream_is_refused(capsys: Capture) -> None:
    """A gateway that could answer nobody says so at once, as `check` does for a file."""
    assert main(["up", "--no-engine", "--port", "0", "--admin-port", "0"]) == 2
    assert "upstream" in capsys.readouterr().err


# ── keys ──────────────────────────────────────────────────────────────────────


def test_a_key_is_printed_alone_so_that_it_can_be_captured(capsys: Capture) -> None:
    """`KEY=$(tidegate keys create --name app)` works; the words are on standard error."""
    assert main(["keys", "create", "--name", "app"]) == 0
    captured = capsys.readouterr()
    token = captured.out.strip()
    store = KeyStore(Path(".tidegate") / KEYS_FILE)
    assert store.snapshot().match(token, wall_now=2e9) is not None
    store.close()
    assert token not in captured.err


def test_json_of_every_key_command_is_json(capsys: Capture) -> None:
    """Scripts read it."""
    assert (
        main(["keys", "create", "--name", "app", "--tenant", "acme", "--model", "q*", "--model", "r", "--concurrency", "2", "--json"]) == 0
    )
    made = json.loads(capsys.readouterr().out)
    assert main(["keys", "rotate", made["key_id"], "--grace-s", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] != made["key"]
    assert main(["keys", "list", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["keys"]
    assert (shown["key_id"], shown["tenant"], shown["models"], shown["concurrency"]) == (made["key_id"], "acme", ["q*", "r"], 2)
    assert main(["keys", "revoke", made["key_id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"revoked": made["key_id"]}


def test_revoked_keys_are_listed_only_on_request(capsys: Capture) -> None:
    """The list is of what works."""
    main(["keys", "create", "--name", "first"])
    token = capsys.readouterr().out.strip()
    main(["keys", "create", "--name", "second"])
    assert main(["keys", "revoke", token]) == 0
    capsys.readouterr()
    main(["keys", "list"])
    shown = capsys.readouterr().out
    assert ("second" in shown, "first" in shown) == (True, False)
    main(["keys", "list", "--all"])
    assert "first" in capsys.readouterr().out


def test_a_listed_key_is_one_line(capsys: Capture) -> None:
    """Ids can be copied and lines grepped however narrow the terminal; columns line up under wide characters too."""
    main(["keys", "create", "--name", "a-long-name-" * 12, "--json"])
    made = json.loads(capsys.readouterr().out)
    main(["keys", "create", "--name", "账单", "--user", "u"])
    capsys.readouterr()
    assert main(["keys", "list"]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{made['key_id']}  a-long-name-")
    assert cell_len(second.partition("default")[0]) == heading.index("tenant")


def test_a_tier_without_limits_is_told(capsys: Capture) -> None:
    """A misspelt tier would quietly give a key the general limits; it is made, with a word about it."""
    write("tiers: {vip: {concurrency: 2}}")
    assert main(["keys", "create", "--name", "x", "--tier", "vpi"]) == 0
    told = capsys.readouterr().err
    assert ("'vpi'" in told, "vip" in told) == (True, True)
    assert main(["keys", "create", "--name", "x", "--tier", "vip"]) == 0
    assert "note:" not in capsys.readouterr().err


def test_an_empty_list_names_the_directory_it_looked_in(capsys: Capture) -> None:
    """In the wrong folder there are no keys, and no other sign of it."""
    assert main(["keys", "list"]) == 0
    assert str(Path(".tidegate").resolve()) in capsys.readouterr().err


def test_a_key_that_does_not_exist_exits_with_2(capsys: Capture) -> None:
    """The message says how to see those that do."""
    assert main(["keys", "revoke", "nosuchkey"]) == 2
    assert "tidegate keys list" in capsys.readouterr().err


def test_a_key_revoked_twice_is_told_without_its_secret(capsys: Capture) -> None:
    """The second time says that nothing was left to do; a pasted token is not repeated, nor in what scripts read."""
    main(["keys", "create", "--name", "first"])
    token = capsys.readouterr().out.strip()
    key_id, secret = token.split("-")[1:]
    assert main(["keys", "revoke", token, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"revoked": key_id}
    assert main(["keys", "revoke", token]) == 2
    told = capsys.readouterr().err
    assert (f"Key {key_id} is revoked already." in told, secret[:6] in told) == (True, False)


def test_a_key_out_of_range_exits_with_2(capsys: Capture) -> None:
    """The store's own checks reach the person."""
    assert main(["keys", "create", "--name", "x", "--concurrency", "0"]) == 2
    assert "concurrency" in capsys.readouterr().err


def test_keys_follow_the_configured_state_directory(capsys: Capture) -> None:
    """The keys of the gateway that this directory's file describes; a broken file is told with the way round it."""
    write("state_directory: elsewhere")
    main(["keys", "create", "--name", "x"])
    assert (Path("elsewhere") / KEYS_FILE).exists()
    write("state_directory: [")
    assert main(["keys", "list"]) == 2
    assert "--state-directory" in capsys.readouterr().err
    assert main(["keys", "list", "--state-directory", "elsewhere"]) == 0


# ── the development key ───────────────────────────────────────────────────────


def test_the_development_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    """The second start shows the same key; only its owner can read the file."""
    first = development_key(tmp_path, KEYS_FILE, now=NOW)
    assert development_key(tmp_path, KEYS_FILE, now=NOW + 1) == first
    assert (tmp_path / "dev-key").stat().st_mode & 0o777 == 0o600
    store = KeyStore(tmp_path / KEYS_FILE)
    assert [(key.name, key.admin) for key in store.list()] == [("development", False)]
    store.close()


def test_a_revoked_development_key_is_replaced(tmp_path: Path) -> None:
    """`tidegate up` always shows a key that works."""
    first = development_key(tmp_path, KEYS_FILE, now=NOW)
    store = KeyStore(tmp_path / KEYS_FILE)
    store.revoke(first.reveal(), NOW)
    store.close()
    second = development_key(tmp_path, KEYS_FILE, now=NOW)
    assert second != first
    assert (tmp_path / "dev-key").read_text().strip() == second.reveal()
