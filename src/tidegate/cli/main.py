"""The `tidegate` command: what can be said on the command line, and what its exit status means.

0: it worked (for the gateway: it was stopped in order). 1: it ran, and the answer is bad. 2: an option, the configuration or the machine
needs a person first. 130: interrupted. A failure is one message on standard error, never a traceback.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, CycloptsPanel, Group, Parameter, UnusedCliTokensError

from tidegate import __version__
from tidegate.adapters.records.lines import LogFormat
from tidegate.cli.bench import build_bench
from tidegate.cli.configured import Overrides, effective, find_file, state_directory, warn_of_unknown_tier
from tidegate.cli.doctor import build_doctor
from tidegate.cli.query import query
from tidegate.cli.report_choices import GroupName, ReportForm
from tidegate.errors import ClientError, ConfigurationError, TidegateError
from tidegate.node.exits import Exit

_EXIT_CODES = """\
Exit codes: 0 it worked; 1 it ran, and the answer is bad; 2 an option, the configuration or the machine needs a person first; 130
interrupted.\
"""

Config = Annotated[
    Path | None, Parameter(name=["--config", "-c"], help="The configuration file; without it `tidegate.yaml` here, if there is one.")
]
Port = Annotated[int | None, Parameter(help="Port of the API instead of the configured one; 0 takes a free one.")]
Host = Annotated[str | None, Parameter(help="Address of the API instead of the configured one.")]
AdminPort = Annotated[int | None, Parameter(help="Port of the admin API instead of the configured one; 0 takes a free one.")]
Workers = Annotated[int | None, Parameter(help="Worker processes instead of the configured number.")]
StateDirectory = Annotated[Path | None, Parameter(help="Where keys, records and sockets live, instead of the configured directory.")]
Engine = Annotated[
    bool | None, Parameter(name="--engine", negative="--no-engine", help="Run the local model, or do not, whatever the file says.")
]
Format = Annotated[LogFormat, Parameter(help="How log lines look: `logfmt` for people, `json` for collectors.")]
Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON on standard output.")]
TrafficColor = Annotated[str | None, Parameter(help="Only traffic of this color (`X-Tidegate-Color`), billed or not.")]
ReportFormat = Annotated[ReportForm, Parameter(name="--format", help="How it is written: for people, for spreadsheets, for programs.")]
KeyId = Annotated[str, Parameter(help="The key's id, the beginning of it, or the key itself.")]


def build_app() -> App:
    """Declare every command."""
    app = App(
        name="tidegate",
        help="Meters, routes, protects and explains every token between applications and LLMs.",
        help_epilogue=_EXIT_CODES,
        help_format="markdown",
        version=__version__,
        error_formatter=_wrong_words,
    )
    app["--help"].group = app["--version"].group = Group("Other", sort_key=9)
    for command in (up, serve, check, explain, query, usage, invoice, reconcile, conformance, mock, credit, version):
        app.command(command)
    keys = App(name="keys", help="Make, list, revoke and rotate API keys. A running gateway follows within a second.")
    keys.command(create)
    keys.command(list_, name="list")
    keys.command(revoke)
    keys.command(rotate)
    app.command(keys)
    books = App(name="books", help="Look into the ledger of what tenants were given, hold, and have spent.")
    books.command(balance)
    books.command(verify)
    app.command(books)
    app.command(audit)
    app.command(build_doctor())
    app.command(build_bench())
    return app


def _wrong_words(error: CycloptsError) -> object:
    """Say what is wrong with a command line, in a frame; cyclopts' own words, but where those speak of its insides."""
    if not isinstance(error, UnusedCliTokensError):
        return CycloptsPanel(error)
    command = " ".join(("tidegate", *(error.command_chain or ())))
    words = " ".join(error.unused_tokens or ())
    return CycloptsPanel(
        f'"{words}" stands where `{command}` takes nothing more. Write it after its option: `{command} --help` lists them.'
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; give the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        "".join(given).encode()
    except UnicodeEncodeError:
        sys.stderr.write("tidegate: what stands behind the command is not UTF-8; write it in a terminal whose locale is.\n")
        return Exit.USAGE
    try:
        result = build_app()(given, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return Exit.USAGE  # cyclopts has printed what is wrong
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush does not complain
        return Exit.FAILED
    except OSError as error:  # a full disk, most of all of whoever takes the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"tidegate: {error.filename or 'the output'} cannot be used: {error.strerror or error}.\n")
        return Exit.FAILED
    except TidegateError as error:
        sys.stderr.write(f"tidegate: {error.message.rstrip()}\n")
        return Exit.USAGE if isinstance(error, ConfigurationError | ClientError) else Exit.FAILED
    return int(result) if isinstance(result, int) else Exit.OK


# ── the gateway ───────────────────────────────────────────────────────────────


def up(
    *,
    config: Config = None,
    host: Host = None,
    port: Port = None,
    admin_port: AdminPort = None,
    workers: Workers = None,
    state_directory: StateDirectory = None,
    engine: Engine = None,
    log_format: Format = LogFormat.LOGFMT,
) -> int:
    """Run a gateway for development: no configuration needed, a key is made, a small model runs beside it.

    The state directory (`.tidegate`) is made on the first run, with one key in `dev-key`. Prints what to paste. Ctrl-C stops everything.
    """
    from tidegate.cli import gateway

    overrides = Overrides(host, port, admin_port, workers, state_directory, engine)
    return gateway.up(find_file(config), overrides, log_format=log_format)


def serve(
    *,
    config: Config = None,
    host: Host = None,
    port: Port = None,
    admin_port: AdminPort = None,
    workers: Workers = None,
    state_directory: StateDirectory = None,
    engine: Engine = None,
    log_format: Format = LogFormat.LOGFMT,
) -> int:
    """Run a gateway for production: plain log lines, no key is made.

    SIGTERM or Ctrl-C: not ready, accept nothing more, let running requests finish up to `server.drain_timeout_s`, then stop; a second one
    stops at once. SIGHUP: read the configuration again, all or nothing.
    """
    from tidegate.cli import gateway

    file = find_file(config)
    if file is None:
        raise ConfigurationError("There is no tidegate.yaml here. Name the file with --config, or use `tidegate up` to start without one.")
    overrides = Overrides(host, port, admin_port, workers, state_directory, engine)
    return gateway.serve(file, overrides, log_format=log_format)


def check(*, config: Config = None) -> int:
    """Check a configuration, and show what the gateway would do with it.

    Problems come with their lines on standard error, the effective configuration on standard output. Exits with 0 when there is no
    problem, with 1 when there are warnings only, with 2 when the configuration is refused.
    """
    from tidegate.cli.check import check as run

    return run(find_file(config))


def explain(
    request: Annotated[Path, Parameter(help="A file with the JSON body of a request, or - for standard input.", allow_leading_hyphen=True)],
    /,
    *,
    config: Config = None,
    tier: Annotated[str, Parameter(help="The caller's tier.")] = "default",
    feature: Annotated[str, Parameter(help="The business feature that the caller names in `X-Business-Context`.")] = "",
    key_model: Annotated[
        tuple[str, ...], Parameter(help="Model name or pattern that the key may use; may be repeated.", negative="", show_default=" ".join)
    ] = ("*",),
    json: Json = False,
) -> int:
    """Say where a request would go, and why: its route, each rule with what held, promise, budget, targets, replicas, and its body.

    Sends nothing and asks no running gateway: replicas are shown as after a start. What the gateway would refuse is refused here too.
    """
    from tidegate.cli import explain as command
    from tidegate.wiring.explain import Caller

    return command.explain(request, find_file(config), Caller(tier, feature, key_model), as_json=json)


def conformance(
    *,
    url: Annotated[
        str | None, Parameter(help="The gateway under test, up to and including its version: `http://127.0.0.1:8080/v1`.")
    ] = None,
    key: Annotated[str, Parameter(help="An API key of that gateway.")] = "",
    model: Annotated[
        str, Parameter(help="Model name that the gateway sends to the scripted upstream; `{case}` in it stands for the case's name.")
    ] = "scripted",
    mock_url: Annotated[
        str | None, Parameter(help="Address of the scripted upstream (`tidegate mock`), for cases only it can judge.")
    ] = None,
    patience_s: Annotated[float, Parameter(help="Longest wait for an answer: above the gateway's own clocks.")] = 30.0,
    only: Annotated[tuple[str, ...], Parameter(help="Cases to run, by name or pattern; may be repeated.", negative="")] = (),
    list_: Annotated[bool, Parameter(name="--list", negative="", show_default=False, help="List the cases and stop.")] = False,
    json: Json = False,
) -> int:
    """Run the fault matrix against a gateway, this one or another, and say what held.

    The gateway's upstream must be a `tidegate mock`. Each case tells the upstream how to misbehave by a marker in the prompt, and judges
    what the client sees. Exits with 0 when every case holds.
    """
    from tidegate.cli import conformance as command

    if list_:
        return command.list_cases()
    if url is None:
        raise ConfigurationError("Which gateway? Name it with --url; --list shows the cases.")
    return command.conformance(url, key, model=model, mock_url=mock_url, patience_s=patience_s, only=only, as_json=json)


def mock(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes a free one.")] = 9100,
    script: Annotated[Path | None, Parameter(help="YAML or JSON file that says how to behave; `docs/mock.md` explains it.")] = None,
    model: Annotated[tuple[str, ...], Parameter(help="Model name for `/v1/models`; may be repeated.", negative="")] = (),
    api_key: Annotated[str | None, Parameter(help="The only bearer token it accepts.")] = None,
    seed: Annotated[int | None, Parameter(help="Of everything drawn at random, instead of the script's.")] = None,
    quiet: Annotated[bool, Parameter(help="Say nothing of clients that leave early.", negative="", show_default=False)] = False,
    open_control: Annotated[
        bool, Parameter(help="Let other machines use the control endpoints too.", negative="", show_default=False)
    ] = False,
) -> int:
    """Run the scripted upstream: a model server without a model that misbehaves as told, for drills and load tests.

    Prints its address, a section for `tidegate.yaml`, what it can be told, and a line for each client that leaves early. Ctrl-C stops it.
    """
    from tidegate.cli.mock import mock as run

    return run(host=host, port=port, script=script, models=model, api_key=api_key, seed=seed, quiet=quiet, open_control=open_control)


def version() -> int:
    """Print the versions of Tidegate, Python and the machine."""
    print(f"tidegate {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    return Exit.OK


# ── money ─────────────────────────────────────────────────────────────────────


def usage(
    *,
    by: Annotated[tuple[GroupName, ...], Parameter(help="What to group by; may be repeated.", negative="", show_default=" ".join)] = (
        GroupName.TENANT,
    ),
    since: Annotated[str | None, Parameter(help="From this day or time on (UTC); without it, from the first of this month.")] = None,
    until: Annotated[str | None, Parameter(help="Up to this day or time, not including it; without it, up to now.")] = None,
    tenant: Annotated[str | None, Parameter(help="Only this tenant.")] = None,
    color: TrafficColor = None,
    top: Annotated[int, Parameter(help="Groups shown apart, the most expensive first.")] = 20,
    form: ReportFormat = ReportForm.TABLE,
    config: Config = None,
) -> int:
    """Say who used how many tokens, what they cost, and what share of all that is."""
    from tidegate.cli import money

    return money.usage(effective(find_file(config)), by, since=since, until=until, tenant=tenant, color=color, top=top, form=form)


def invoice(
    *,
    month: Annotated[str, Parameter(help="The month (UTC), like `2026-11`; it has to be said.", show_default=False)] = "",
    tenant: Annotated[str | None, Parameter(help="Only this tenant.")] = None,
    color: TrafficColor = None,
    form: ReportFormat = ReportForm.TABLE,
    config: Config = None,
) -> int:
    """Write each tenant's invoice of a month: a line for every model and price version, lines of hybrid terms, and the total."""
    from tidegate.cli import money

    return money.invoice(effective(find_file(config)), month, tenant=tenant, color=color, form=form)


def reconcile(
    export: Annotated[Path, Parameter(help="A provider's usage export, as CSV; `docs/money.md` says which columns are known.")],
    /,
    *,
    upstream: Annotated[str | None, Parameter(help="The upstream that the provider is; without it, all our calls are compared.")] = None,
    color: TrafficColor = None,
    alias: Annotated[tuple[str, ...], Parameter(help="`THEIRS=OURS`: another name of a model; may be repeated.", negative="")] = (),
    tolerance: Annotated[float, Parameter(help="Drift that is let pass, as a share of the provider's figure.")] = 0.01,
    form: ReportFormat = ReportForm.TABLE,
    config: Config = None,
) -> int:
    """Compare a provider's usage export with our own figures, by day and model: tokens, cost, and the drift between them.

    Exits with 1 when a model's tokens or cost over all days of the export drift by more than the tolerance.
    """
    from tidegate.cli import money

    return money.reconcile(
        effective(find_file(config)), export, upstream=upstream, color=color, aliases=alias, tolerance=tolerance, form=form
    )


# ── keys ──────────────────────────────────────────────────────────────────────


def create(
    *,
    name: Annotated[str, Parameter(help="What the key is for; shown in lists.")],
    tenant: Annotated[str, Parameter(help="Whose usage it is.")] = "default",
    user: Annotated[str | None, Parameter(help="Who calls; without it, the name.")] = None,
    tier: Annotated[str, Parameter(help="Tier of the configuration whose limits apply.")] = "default",
    tokens_per_minute: Annotated[int | None, Parameter(help="Limit of tokens in any 60 s, instead of the tier's.")] = None,
    requests_per_minute: Annotated[int | None, Parameter(help="Limit of requests in any 60 s, instead of the tier's.")] = None,
    concurrency: Annotated[int | None, Parameter(help="Limit of requests at the same time, instead of the tier's.")] = None,
    model: Annotated[
        tuple[str, ...], Parameter(help="Model name or pattern it may use; may be repeated.", negative="", show_default=" ".join)
    ] = ("*",),
    admin: Annotated[bool, Parameter(help="It may use the admin API and the console.", negative="", show_default=False)] = False,
    read_only: Annotated[bool, Parameter(help="With --admin: it may look, and change nothing.", negative="", show_default=False)] = False,
    expires_in_days: Annotated[float | None, Parameter(help="It stops working after this time.")] = None,
    config: Config = None,
    state_directory: StateDirectory = None,
    json: Json = False,
) -> int:
    """Make a key. It is printed on standard output, once."""
    from tidegate.admin.keys import KeyRequest
    from tidegate.cli import keys

    request = KeyRequest(
        name=name,
        tenant=tenant,
        user=user,
        tier=tier,
        tokens_per_minute=tokens_per_minute,
        requests_per_minute=requests_per_minute,
        concurrency=concurrency,
        models=model,
        admin=admin,
        read_only=read_only,
        expires_in_s=None if expires_in_days is None else expires_in_days * 86_400,
    )
    warn_of_unknown_tier(config, tier)
    return keys.create(_state_directory(config, state_directory), request, as_json=json)


def list_(
    *,
    everything: Annotated[bool, Parameter(name="--all", negative="", show_default=False, help="Revoked and expired keys too.")] = False,
    config: Config = None,
    state_directory: StateDirectory = None,
    json: Json = False,
) -> int:
    """List keys. The keys themselves are not kept and cannot be shown."""
    from tidegate.cli import keys

    return keys.show(_state_directory(config, state_directory), as_json=json, everything=everything)


def revoke(key: KeyId, /, *, config: Config = None, state_directory: StateDirectory = None, json: Json = False) -> int:
    """Stop a key for good."""
    from tidegate.cli import keys

    return keys.revoke(_state_directory(config, state_directory), key, as_json=json)


def rotate(
    key: KeyId,
    /,
    *,
    grace_s: Annotated[float, Parameter(help="How long the old key still works, in seconds.")] = 0.0,
    config: Config = None,
    state_directory: StateDirectory = None,
    json: Json = False,
) -> int:
    """Make another key with the same id, limits and rights, and stop the old one."""
    from tidegate.cli import keys

    return keys.rotate(_state_directory(config, state_directory), key, grace_s=grace_s, as_json=json)


def _state_directory(config: Path | None, chosen: Path | None) -> Path:
    return state_directory(config, chosen)


# ── books ─────────────────────────────────────────────────────────────────────


def credit(
    tenant: Annotated[str, Parameter(help="Who gets it.")],
    amount: Annotated[
        str, Parameter(help="In the currency of the prices, e.g. 12.50; below zero, it is taken back.", allow_leading_hyphen=True)
    ],
    /,
    *,
    note: Annotated[str, Parameter(help="For people who read the books.")] = "",
    reference: Annotated[str | None, Parameter(help="Your own name of this payment: given again with it, nothing is changed.")] = None,
    config: Config = None,
    state_directory: StateDirectory = None,
    json: Json = False,
) -> int:
    """Give a tenant money. A running gateway need not be told."""
    from tidegate.cli import books

    place = books.BooksPlace(effective(find_file(config), Overrides(state_directory=state_directory)))
    return books.credit(place, tenant, amount, note=note, reference=reference, as_json=json)


def balance(*, config: Config = None, state_directory: StateDirectory = None, json: Json = False) -> int:
    """Show what every tenant was given, may still use, holds, and has spent."""
    from tidegate.cli import books

    return books.balance(books.BooksPlace(effective(find_file(config), Overrides(state_directory=state_directory))), as_json=json)


def verify(*, config: Config = None, state_directory: StateDirectory = None, json: Json = False) -> int:
    """Check that nothing is missing: credited = balance + holds + spent, for every tenant. Exits with 0 when that holds, else with 1."""
    from tidegate.cli import books

    return books.verify(books.BooksPlace(effective(find_file(config), Overrides(state_directory=state_directory))), as_json=json)


# ── audit ─────────────────────────────────────────────────────────────────────


def audit(
    request_id: Annotated[str, Parameter(help="As the client was told it (`x-request-id`).")],
    *,
    config: Config = None,
    state_directory: StateDirectory = None,
    json: Json = False,
) -> int:
    """Show what is kept of the bodies of one request. Exits with 1 when nothing is."""
    from tidegate.cli import audit as command
    from tidegate.wiring.records import records_directory

    configuration = effective(find_file(config), Overrides(state_directory=state_directory))
    return command.show(records_directory(configuration, Path(configuration.state_directory)), request_id, as_json=json)


if __name__ == "__main__":
    sys.exit(main())
