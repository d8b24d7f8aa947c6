"""The key database: what it keeps, what it never keeps, and what it says when it cannot work."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.adapters.keys.store import MAX_SECRETS_PER_KEY, CreatedKey, KeyStore
from tidegate.domain.principal import Limits, Principal
from tidegate.domain.units import KeyId, Secret, TenantId, UserId
from tidegate.errors import ConfigurationError, InvalidParameter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.db"


@pytest.fixture
def store(path: Path) -> Iterator[KeyStore]:
    with KeyStore(path) as store:
        yield store


def make_key(store: KeyStore, *, now: float = 100.0, expires_at: float | None = None) -> CreatedKey:
    return store.create(name="checkout", tenant="acme", user="ann", now=now, expires_at=expires_at)


def works(store: KeyStore, token: Secret, *, wall_now: float = 100.0) -> bool:
    return store.snapshot().match(token.reveal(), wall_now=wall_now) is not None


def test_a_created_key_is_the_principal_it_was_made_for(store: KeyStore) -> None:
    """Every attribute given at creation comes back when the token is used."""
    limits = Limits(tokens_per_minute=5, requests_per_minute=None, concurrency=2)
    created = store.create(
        name="n", tenant="acme", user="ann", now=1.0, tier="vip", limits=limits, models=("qwen*", "gpt-?"), admin=True, expires_at=9.0
    )

    match = store.snapshot().match(created.token.reveal(), wall_now=1.0)

    expected = Principal(
        key_id=created.key_id,
        tenant=TenantId("acme"),
        user=UserId("ann"),
        tier="vip",
        limits=limits,
        models=("qwen*", "gpt-?"),
        admin=True,
    )
    assert match is not None
    assert (expected, 9.0) == (match.principal, match.expires_at)


def test_the_files_are_for_their_owner_alone(store: KeyStore, path: Path) -> None:
    """Directory 0700; database, log and shared memory 0600."""
    make_key(store)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == {"keys.db": 0o600, "keys.db-wal": 0o600, "keys.db-shm": 0o600}


def test_a_file_open_to_others_is_closed_to_them_and_their_directory_left_alone(tmp_path: Path) -> None:
    """The database tightens its own file, not a directory that was there before."""
    tmp_path.chmod(0o755)
    path = tmp_path / "keys.db"
    path.touch(mode=0o644)
    path.chmod(0o644)

    KeyStore(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_no_file_and_no_text_ever_holds_a_token(store: KeyStore, path: Path) -> None:
    """Neither the secret nor the whole token is in the database's files, in a `repr`, or in a list."""
    created = make_key(store)
    rotated = store.rotate(created.key_id, 101.0, 60.0)
    assert rotated is not None
    snapshot = store.snapshot()
    on_disk = b"".join(file.read_bytes() for file in path.parent.iterdir())
    shown = " ".join(
        map(repr, (created, rotated, store, store.list(), snapshot, snapshot[created.key_id], snapshot.match("x", wall_now=1.0)))
    )

    assert created.key_id.encode() in on_disk
    for token in (created.token.reveal(), rotated.token.reveal()):
        secret = token.split("-")[2]
        assert secret[:12].encode() not in on_disk
        assert secret[:12] not in shown
        assert str(snapshot[created.key_id].secrets[0].digest) not in shown


@pytest.mark.parametrize("spelling", ["id", "beginning", "prefixed", "token"])
def test_a_key_is_revoked_by_whatever_names_it(store: KeyStore, spelling: str) -> None:
    """An id, its first characters, `tg-…` and the whole token all name the key; its row stays."""
    created = make_key(store)
    text = {
        "id": created.key_id,
        "beginning": created.key_id[:6],
        "prefixed": f"tg-{created.key_id}",
        "token": created.token.reveal(),
    }[spelling]

    assert works(store, created.token)
    assert store.revoke(text, 105.0) == created.key_id
    assert not works(store, created.token)
    assert [key.revoked_at for key in store.list()] == [105.0]


@pytest.mark.parametrize("text", ["", "  ", "tg-", "unknown-id", "%", "_"])
def test_revoking_what_names_no_key_does_nothing(store: KeyStore, text: str) -> None:
    """Empty and unknown names, and SQL wildcards, revoke nothing."""
    created = make_key(store)

    assert store.revoke(text, 105.0) is None
    assert works(store, created.token)


def test_revoking_twice_reports_that_nothing_was_left_to_do(store: KeyStore) -> None:
    """The second revocation is None and keeps the time of the first."""
    created = make_key(store)
    store.revoke(created.key_id, 105.0)

    assert store.revoke(created.key_id, 106.0) is None
    assert store.list()[0].revoked_at == 105.0


def test_a_beginning_that_fits_several_keys_revokes_none(store: KeyStore) -> None:
    """With more keys than first letters two begin alike: the refusal names them and all keep working."""
    created = [make_key(store) for _ in range(37)]
    firsts = [key.key_id[0] for key in created]
    shared = next(first for first in firsts if firsts.count(first) > 1)

    with pytest.raises(InvalidParameter, match="beginning of several keys"):
        store.revoke(shared, 105.0)

    assert all(works(store, key.token) for key in created)


def test_a_rotated_token_works_until_its_grace_ends(store: KeyStore) -> None:
    """Old and fresh tokens overlap for the grace, and are the same principal."""
    created = make_key(store)
    rotated = store.rotate(created.key_id, 100.0, 60.0)
    assert rotated is not None
    snapshot = store.snapshot()

    assert rotated.key_id == created.key_id
    assert works(store, created.token, wall_now=159.9)
    assert not works(store, created.token, wall_now=160.0)
    assert works(store, rotated.token, wall_now=1e9)
    assert snapshot.match(created.token.reveal(), wall_now=100.0) != snapshot.match(rotated.token.reveal(), wall_now=100.0)


def test_a_later_rotation_can_end_an_earlier_grace_but_not_prolong_it(store: KeyStore) -> None:
    """Grace 0 stops every earlier token at once; a longer grace leaves the promised end."""
    first = make_key(store)
    second = store.rotate(first.key_id, 100.0, 50.0)
    assert second is not None
    third = store.rotate(first.key_id, 110.0, 1000.0)
    assert third is not None
    assert not works(store, first.token, wall_now=150.0)
    assert works(store, second.token, wall_now=150.0)

    fourth = store.rotate(first.key_id, 120.0, 0.0)

    assert fourth is not None
    assert [works(store, key.token, wall_now=120.0) for key in (first, second, third, fourth)] == [False, False, False, True]


def test_tokens_in_grace_are_bounded(store: KeyStore) -> None:
    """A key that is rotated again and again within its grace is refused before it becomes slow to check."""
    created = make_key(store)
    for _ in range(MAX_SECRETS_PER_KEY - 1):
        assert store.rotate(created.key_id, 100.0, 60.0) is not None

    with pytest.raises(InvalidParameter, match="rotate with grace 0"):
        store.rotate(created.key_id, 100.0, 60.0)
    assert store.rotate(created.key_id, 100.0, 0.0) is not None


def test_only_an_active_key_can_be_rotated(store: KeyStore) -> None:
    """Unknown, revoked and expired keys give None."""
    revoked = make_key(store)
    store.revoke(revoked.key_id, 100.0)
    expired = make_key(store, expires_at=110.0)

    assert [store.rotate(key_id, 110.0, 1.0) for key_id in ("unknown", revoked.key_id, expired.key_id)] == [None, None, None]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("tenant", " "),
        ("user", "a\x1b[2J"),
        ("tier", "x" * 201),
        ("models", ()),
        ("models", ("",)),
        ("models", ("*",) * 101),
        ("expires_at", 100.0),
        ("expires_at", float("nan")),
        ("limits", Limits(tokens_per_minute=0)),
        ("limits", Limits(concurrency=2**63)),
    ],
)
def test_a_key_out_of_range_is_refused_before_anything_is_written(store: KeyStore, field: str, value: object) -> None:
    """Each bad attribute is an `InvalidParameter` that names it, and no key comes of it."""
    arguments: dict[str, Any] = {"name": "n", "tenant": "t", "user": "u", "now": 100.0, field: value}

    with pytest.raises(InvalidParameter) as refusal:
        store.create(**arguments)

    assert refusal.value.param in {field, *Limits.__struct_fields__}
    assert store.list() == []


@pytest.mark.parametrize("grace_s", [-1.0, float("nan"), float("inf")])
def test_a_grace_must_be_a_time(store: KeyStore, grace_s: float) -> None:
    """A negative or endless grace is refused."""
    created = make_key(store)

    with pytest.raises(InvalidParameter):
        store.rotate(created.key_id, 100.0, grace_s)


def test_every_change_raises_the_version_that_others_see(store: KeyStore, path: Path) -> None:
    """Create, rotate and revoke raise the version, here and in a second opening of the file; reading does not."""
    with KeyStore(path, create_file=False) as other:
        versions = [(store.version(), other.version())]
        created = make_key(store)
        versions.append((store.version(), other.version()))
        other.rotate(created.key_id, 101.0, 5.0)
        versions.append((store.version(), other.version()))
        store.revoke(created.key_id, 102.0)
        versions.append((store.version(), other.version()))
        store.list()
        assert other.snapshot().version == store.version() == versions[-1][0]

    assert all(here == there for here, there in versions)
    assert sorted({here for here, _ in versions}) == [here for here, _ in versions]
    assert len({here for here, _ in versions}) == 4


def test_a_row_changed_by_hand_raises_the_version_too(store: KeyStore, path: Path) -> None:
    """Someone who revokes with the `sqlite3` tool is heard like anyone else."""
    created = make_key(store)
    before = store.version()

    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE api_keys SET revoked_at = 1 WHERE key_id = ?", (created.key_id,))
    connection.close()

    assert store.version() > before
    assert not works(store, created.token)


def test_a_snapshot_does_not_change(store: KeyStore) -> None:
    """A snapshot taken before a revocation still shows the key, and cannot be written to."""
    created = make_key(store)
    snapshot = store.snapshot()
    store.revoke(created.key_id, 100.0)

    assert snapshot[created.key_id].revoked is False
    assert store.snapshot()[created.key_id].revoked is True
    with pytest.raises(TypeError):
        snapshot[KeyId("x")] = snapshot[created.key_id]  # type: ignore[index]  # that it cannot be written is the point


def test_a_missing_database_is_said_to_be_missing(path: Path) -> None:
    """Opening without leave to create names the file and the command that makes it, and creates nothing."""
    with pytest.raises(ConfigurationError, match=r"keys\.db is missing; `tidegate keys create`"):
        KeyStore(path, create_file=False)

    assert not path.exists()


@pytest.mark.parametrize("create_file", [True, False])
def test_a_damaged_database_is_said_to_be_damaged(tmp_path: Path, *, create_file: bool) -> None:
    """A file that is no database is left as it is, and the message says what to do."""
    path = tmp_path / "keys.db"
    path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(ConfigurationError, match="restore a backup"):
        KeyStore(path, create_file=create_file)

    assert path.read_bytes() == b"not a database at all" * 100


def test_a_strange_database_is_refused(tmp_path: Path) -> None:
    """Another program's SQLite file is not filled with our tables."""
    path = tmp_path / "keys.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()

    with pytest.raises(ConfigurationError, match="is no key database"):
        KeyStore(path)


@pytest.mark.usefixtures("store")
def test_a_database_of_a_later_version_is_refused(path: Path) -> None:
    """A schema we do not know is not read by guesswork."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE store_state SET schema_version = 2")
    connection.close()

    with pytest.raises(ConfigurationError, match="schema version 2, this Tidegate reads 1"):
        KeyStore(path)


@pytest.mark.usefixtures("store")
def test_a_locked_database_is_said_to_be_locked(path: Path) -> None:
    """A writer that cannot get the lock within the busy timeout says so and changes nothing."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with KeyStore(path, create_file=False, busy_timeout_s=0.05) as hurried:
        with pytest.raises(ConfigurationError, match="locked by another process"):
            make_key(hurried)
        connection.close()

        assert hurried.list() == []
        assert works(hurried, make_key(hurried).token)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A path below a file cannot exist; the message points at the setting."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="set `state_directory`"):
        KeyStore(tmp_path / "file" / "keys.db")
