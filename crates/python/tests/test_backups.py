"""Backups and bulk loads."""

import time

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import terracedb


@pytest.fixture
def db(tmp_path):
    with terracedb.Db(tmp_path / "store", memory_budget="16MiB") as db:
        yield db


def test_states_are_kept_and_come_back(db, tmp_path):
    with terracedb.Backups(tmp_path / "backups") as backups:
        assert backups.list() == []
        db.update({b"a": b"1", b"b": b"2"})
        first = backups.create(db)
        db[b"a"] = b"changed"
        del db[b"b"]
        second = backups.create(db)
        assert first.id < second.id and [one.id for one in backups.list()] == [first.id, second.id]
        assert abs(first.created_at - time.time()) < 1000 and first.size_bytes > 0 and first.damage is None
        backups.verify(first.id)
        backups.restore(first.id, tmp_path / "first")
        backups.restore(second.id, str(tmp_path / "second"))
        with pytest.raises(terracedb.InvalidArgumentError):
            backups.restore(second.id, tmp_path / "second")
        assert backups.keep_latest(1) > 0
        for call in (backups.verify, backups.remove):
            with pytest.raises(terracedb.InvalidArgumentError):
                call(first.id)
        with pytest.raises(terracedb.LockedError):
            terracedb.Backups(tmp_path / "backups")
    with pytest.raises(terracedb.ClosedError):
        backups.list()
    with terracedb.Db(tmp_path / "first") as copy:
        assert dict(copy.items()) == {b"a": b"1", b"b": b"2"}
    with terracedb.Db(tmp_path / "second") as copy:
        assert dict(copy.items()) == {b"a": b"changed"}
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.Backups(tmp_path / "first")


def test_damage_is_found(db, tmp_path):
    db.update({b"%d" % at: b"v" * 100 for at in range(1000)})
    with terracedb.Backups(tmp_path / "backups") as backups:
        one = backups.create(db)
        largest = max((tmp_path / "backups" / "files").iterdir(), key=lambda path: path.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 1
        largest.write_bytes(content)
        with pytest.raises(terracedb.CorruptionError):
            backups.verify(one.id)
        with pytest.raises(terracedb.CorruptionError):
            backups.restore(one.id, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        (tmp_path / "backups" / "backups" / str(one.id)).write_text("x")
        [listed] = backups.list()
        assert listed.id == one.id and listed.damage and listed.size_bytes is None


def test_a_damaged_store_is_backed_up_as_it_is_only_if_that_is_asked_for(tmp_path):
    store = tmp_path / "store"
    with terracedb.Db(store, compact_when_idle=False) as db, terracedb.Backups(tmp_path / "backups") as backups:
        db[b"a"] = b"1"
        db.flush()
        [sst] = store.glob("*.sst")
        with open(sst, "r+b") as file:
            file.seek(9)
            [byte] = file.read(1)
            file.seek(9)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(terracedb.CorruptionError):
            backups.create(db)
        with pytest.raises(terracedb.CorruptionError):
            backups.create(db, as_is=False)
        assert backups.list() == []
        one = backups.create(db, as_is=True)
        backups.verify(one.id)
        assert [listed.id for listed in backups.list()] == [one.id]


def test_a_closed_store_is_not_backed_up(db, tmp_path):
    with terracedb.Backups(tmp_path / "backups") as backups:
        db.close()
        with pytest.raises(terracedb.ClosedError):
            backups.create(db)
        assert backups.list() == []


def test_entries_are_loaded_in_any_order(db):
    db.update({b"a": b"old", b"gone": b"old"})
    with db.bulk_loader(memory="1MiB") as loader:
        loader[b"b"] = b"first"
        loader[b"a"] = b"new"
        loader[b"b"] = b"last"
        del loader[b"gone"]
        loader.put(b"soon", b"x", expires_at=time.time() + 1000)
        assert dict(db.items()) == {b"a": b"old", b"gone": b"old"}
    assert dict(db.items()) == {b"a": b"new", b"b": b"last", b"soon": b"x"} and db.expires_at(b"soon")
    with pytest.raises(terracedb.ClosedError):
        loader[b"c"] = b"late"
    family = db.create_column_family("f")
    family[b"a"] = b"there"
    below = family.bulk_loader(below=True)
    below[b"a"] = below[b"b"] = b"below"
    assert below.finish() == 2
    assert dict(family.items()) == {b"a": b"there", b"b": b"below"}
    with pytest.raises(RuntimeError):
        with db.bulk_loader() as loader:
            loader[b"never"] = b"1"
            raise RuntimeError
    assert b"never" not in db
    for wrong in (1, "x"):
        with pytest.raises(terracedb.InvalidArgumentError):
            db.bulk_loader(memory=wrong)
    with pytest.raises(ValueError):
        db.bulk_loader().put(b"a", b"1", expires_at=-1.0)


def test_a_load_outlives_the_store_object(tmp_path):
    db = terracedb.Db(tmp_path / "s")
    loader = db.bulk_loader()
    loader[b"a"] = b"1"
    del db
    loader.finish()
    del loader
    with terracedb.Db(tmp_path / "s") as db:
        assert db[b"a"] == b"1"


KEYS = st.binary(max_size=2)
ENTRIES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=30)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(st.tuples(ENTRIES, st.sampled_from(["load", "write", "back up"])), max_size=6))
def test_loads_and_restores_are_what_a_dict_says(tmp_path_factory, rounds):
    dir = tmp_path_factory.mktemp("loads")
    model, kept = {}, []
    with terracedb.Db(dir / "s", memory_budget="4MiB") as db, terracedb.Backups(dir / "b") as backups:
        for entries, how in rounds:
            with db.bulk_loader() if how == "load" else db.batch() as target:
                for key, value in entries:
                    if value is None:
                        target.delete(key)
                        model.pop(key, None)
                    else:
                        target[key] = model[key] = value
            assert dict(db.items()) == model
            if how == "back up":
                kept.append((backups.create(db).id, dict(model)))
        for id, model in kept:
            backups.verify(id)
            backups.restore(id, dir / str(id))
            with terracedb.Db(dir / str(id)) as copy:
                assert dict(copy.items()) == model
