"""Compaction filters of functions of Python."""

import pytest

import terracedb


def rule(key, value):
    if key.startswith(b"old/"):
        return False
    if value == b"spelled rong":
        return b"spelled right"
    return True


def filled(db):
    db.update({b"old/1": b"x", b"old/2": b"y", b"new/1": b"spelled rong", b"new/2": b"z"})


KEPT = {b"new/1": b"spelled right", b"new/2": b"z"}


def test_entries_are_kept_removed_and_changed(tmp_path):
    filter = terracedb.CompactionFilter("spelling", rule)
    families = {"f": {"compaction_filter": None}, "g": {}}
    with terracedb.Db(tmp_path / "s", compaction_filter=filter, column_families=families) as db:
        filled(db)
        db.compact()
        assert dict(db.items()) == KEPT
        # It is for the family that it is given for.
        for name in families:
            other = db.column_family(name)
            filled(other)
            other.compact()
            assert len(dict(other.items())) == 4
        made = db.create_column_family("made", compaction_filter=filter)
        filled(made)
        made.compact()
        assert dict(made.items()) == KEPT
    assert filter.name == "spelling"


def test_a_snapshot_sees_what_it_saw(tmp_path):
    filter = terracedb.CompactionFilter("spelling", rule)
    with terracedb.Db(tmp_path / "s", compaction_filter=filter) as db:
        filled(db)
        with db.snapshot() as snapshot:
            db.compact()
            assert len(dict(snapshot.items())) == 4
        db.compact()
        assert dict(db.items()) == KEPT
    filter = terracedb.CompactionFilter("spelling", rule, ignores_snapshots=True)
    with terracedb.Db(tmp_path / "t", compaction_filter=filter) as db:
        filled(db)
        with db.snapshot() as snapshot:
            db.compact()
            assert dict(snapshot.items()) == KEPT


def test_keys_only_and_flushes(tmp_path):
    asked = []

    def keep(key, value):
        asked.append((key, value))
        return True

    filter = terracedb.CompactionFilter("all", keep, keys_only=True, flushes=True)
    with terracedb.Db(tmp_path / "s", compaction_filter=filter) as db:
        db[b"a"] = b"1"
        db.flush()
        assert asked == [(b"a", None)]
    filter = terracedb.CompactionFilter("all", keep)
    with terracedb.Db(tmp_path / "t", compaction_filter=filter, value_separation_threshold=100) as db:
        db[b"a"] = b"v" * 1000
        db.flush()
        assert asked == [(b"a", None)]
        db.compact()
        assert (b"a", b"v" * 1000) in asked


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_fails_keeps_all_and_is_reported_once(tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr("sys.unraisablehook", lambda raised: reported.append(raised.exc_type))

    def fail(key, value):
        if key == b"old/1":
            raise ValueError("not this one")
        return None

    filter = terracedb.CompactionFilter("failing", fail)
    with terracedb.Db(tmp_path / "s", compaction_filter=filter) as db:
        filled(db)
        db.compact()
        assert len(dict(db.items())) == 4
        assert "terrace_compaction_filter_failures_total 4" in db.metrics_prometheus()
    assert len(reported) == 1 and reported[0] in (ValueError, TypeError)


def test_what_is_no_filter_is_refused(tmp_path):
    with pytest.raises(TypeError):
        terracedb.CompactionFilter("n", 7)
    for wrong in (rule, "spelling", 7):
        with pytest.raises(TypeError):
            terracedb.Db(tmp_path / "s", compaction_filter=wrong)


def test_a_store_that_is_forgotten_closes_while_it_asks(tmp_path):
    filter = terracedb.CompactionFilter("all", lambda key, value: True, flushes=True)
    for _ in range(3):
        db = terracedb.Db(tmp_path / "s", compaction_filter=filter)
        filled(db)
        del db
    with terracedb.Db(tmp_path / "s") as db:
        assert len(dict(db.items())) == 4
