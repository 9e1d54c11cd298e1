"""What the store does, one thing a test."""

import time
import types

import pytest

import terracedb


@pytest.fixture
def db(tmp_path):
    with terracedb.Db(tmp_path / "store", memory_budget="16MiB") as db:
        yield db


def snapshots(db):
    """How many moments the store keeps for readers."""
    lines = db.metrics_prometheus().splitlines()
    return int(next(line for line in lines if line.startswith("terrace_snapshots ")).split()[1])


def test_it_is_a_dict(db):
    db[b"a"] = b"1"
    assert db[b"a"] == b"1"
    assert db.get(b"a") == b"1"
    assert b"a" in db and b"b" not in db
    assert db.get(b"b") is None and db.get(b"b", 7) == 7
    with pytest.raises(KeyError) as error:
        db[b"b"]
    assert error.value.args == (b"b",)
    del db[b"a"]
    with pytest.raises(KeyError):
        del db[b"a"]
    db.delete(b"a")
    db.update({b"x": b"1", b"y": b"2"})
    db.update([(b"z", b"3")])
    assert dict(db.items()) == {b"x": b"1", b"y": b"2", b"z": b"3"}
    assert db.pop(b"x") == b"1" and db.pop(b"x", None) is None
    with pytest.raises(KeyError):
        db.pop(b"x")
    assert list(db) == [b"y", b"z"] and list(reversed(db)) == [b"z", b"y"]


def test_bytes_of_any_kind_and_no_text(db):
    db[bytearray(b"a")] = memoryview(b"xyz")[1:]
    assert db[memoryview(b"a")] == b"yz"
    db[b""] = b""
    assert db[b""] == b"" and b"" in db
    for wrong in ["a", 1, None, [b"a"]]:
        for call in (db.get, db.__getitem__, db.delete, lambda key: db.put(key, b""), db.__contains__):
            with pytest.raises(TypeError):
                call(wrong)
        with pytest.raises(TypeError):
            db[b"a"] = wrong
    assert db[b"a"] == b"yz"


def test_ranges_both_ways(db):
    db.update({bytes([c]): bytes([c, c]) for c in b"abcdef"})
    assert list(db.keys(b"b", b"e")) == [b"b", b"c", b"d"]
    assert list(db.keys(b"b", b"e", reverse=True)) == [b"d", b"c", b"b"]
    assert list(db.values(end=b"c")) == [b"aa", b"bb"]
    assert list(db.items(start=b"e")) == [(b"e", b"ee"), (b"f", b"ff")]
    assert list(db.keys(b"c", b"b")) == []
    db.update({b"p/1": b"", b"p/2": b"", b"q": b""})
    assert list(db.keys(prefix=b"p/")) == [b"p/1", b"p/2"]
    assert list(db.keys(prefix=b"p/", reverse=True)) == [b"p/2", b"p/1"]


def test_long_iterations_see_one_moment(db):
    for start in range(0, 3000, 500):
        db.update({b"%06d" % at: b"x" * 100 for at in range(start, start + 500)})
    iterator = db.items()
    first = next(iterator)
    db.delete_range(b"0", b"9")
    rest = list(iterator)
    assert [first[0]] + [key for key, _ in rest] == [b"%06d" % at for at in range(3000)]
    assert list(db) == []
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_iterator_at_its_end_keeps_nothing_on_disk(db):
    db.update({b"%03d" % at: b"v" for at in range(100)})
    for reverse in (False, True):
        with db.snapshot() as snapshot:
            iterator = snapshot.items(reverse=reverse)
            next(iterator)
        assert snapshots(db) == 1
        assert len(list(iterator)) == 99 and snapshots(db) == 0
        with pytest.raises(StopIteration):
            next(iterator)


def test_an_exception_in_a_loop_harms_nothing(db):
    db.update({b"%03d" % at: b"v" for at in range(100)})
    with pytest.raises(ZeroDivisionError):
        for at, key in enumerate(db):
            1 // (50 - at)
    assert len(list(db)) == 100
    with db.keys() as keys:
        next(keys)
    with pytest.raises(terracedb.ClosedError):
        next(keys)


def test_times_to_live(db):
    db.put(b"soon", b"gone", ttl=0.05)
    db.put(b"later", b"here", ttl=3600)
    assert abs(db.expires_at(b"later") - time.time() - 3600) < 600
    db[b"ever"] = b"x"
    assert db.expires_at(b"ever") is None
    with pytest.raises(KeyError):
        db.expires_at(b"absent")
    deadline = time.time() + 600
    while b"soon" in db and time.time() < deadline:
        time.sleep(0.01)
    assert db.get(b"soon") is None and db[b"later"] == b"here"
    for wrong in [-1, float("nan"), float("inf")]:
        with pytest.raises(ValueError):
            db.put(b"a", b"b", ttl=wrong)


def test_snapshots(db):
    colours = db.create_column_family("colours", compression="zstd")
    colours[b"sky"] = b"blue"
    db[b"a"] = b"old"
    with db.snapshot() as snapshot:
        db[b"a"] = b"new"
        colours[b"sky"] = b"grey"
        assert snapshot[b"a"] == b"old" and db[b"a"] == b"new"
        assert list(snapshot.items()) == [(b"a", b"old")]
        assert snapshot.column_family("colours")[b"sky"] == b"blue"
        assert snapshot.multi_get([b"a", b"x"]) == [b"old", None]
        assert not hasattr(snapshot, "put")
    with pytest.raises(terracedb.ClosedError):
        snapshot[b"a"]


def test_batches(db):
    with db.batch() as batch:
        batch[b"a"] = b"1"
        batch.put(b"b", b"2", ttl=3600)
        batch.delete(b"c")
        batch.delete_range(b"x", b"y")
        assert len(batch) == 4
        assert b"a" not in db
    assert db[b"a"] == b"1" and db[b"b"] == b"2"
    with pytest.raises(terracedb.ClosedError):
        batch[b"a"] = b"1"
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch[b"a"] = b"3"
            1 // 0
    assert db[b"a"] == b"1"
    batch = db.batch()
    batch[b"a"] = b"4"
    batch.clear()
    del batch[b"b"]
    batch.commit(sync="batch")
    assert db[b"a"] == b"1" and b"b" not in db
    with pytest.raises(terracedb.InvalidArgumentError):
        db.batch().commit(sync="always")


def test_merges(tmp_path):
    one = (1).to_bytes(8, "little", signed=True)
    with terracedb.Db(tmp_path / "merges", merge_operator="counter") as db:
        db.merge(b"n", one)
        with db.batch() as batch:
            batch.merge(b"n", one)
        with db.transaction() as transaction:
            transaction.merge(b"n", one)
            assert int.from_bytes(transaction[b"n"], "little") == 3
            transaction.put(b"m", one)
            transaction.delete_range(b"m", b"n")
            assert b"m" not in transaction
        assert int.from_bytes(db[b"n"], "little") == 3
        assert b"m" not in db
    with terracedb.Db(tmp_path / "merges") as db:
        assert int.from_bytes(db[b"n"], "little") == 3
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.Db(tmp_path / "merges", merge_operator="max")


def test_transactions(db):
    db[b"n"] = b"1"
    one, two = db.transaction(), db.transaction()
    for transaction in (one, two):
        transaction[b"n"] = b"%d" % (int(transaction[b"n"]) + 1)
        assert transaction[b"n"] == b"2" and b"n" in transaction
    one.commit()
    with pytest.raises(terracedb.ConflictError):
        two.commit()
    with pytest.raises(terracedb.ClosedError):
        two.commit()
    assert db[b"n"] == b"2"
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as transaction:
            transaction[b"n"] = b"9"
            1 // 0
    with db.transaction() as transaction:
        transaction.get(b"n", track=False)
        transaction.put(b"m", b"x", ttl=3600)
        db[b"n"] = b"3"
    assert db[b"m"] == b"x"
    with db.transaction() as transaction:
        del transaction[b"m"]
        with pytest.raises(KeyError):
            transaction[b"m"]
        assert transaction.get(b"m", 7) == 7
    assert b"m" not in db


def test_transactions_read_ranges(db):
    db.update({b"a": b"1", b"c": b"3", b"e": b"5", b"\xff": b"255"})
    transaction = db.transaction()
    transaction[b"b"] = b"2"
    del transaction[b"c"]
    assert transaction.items(b"a", b"e") == [(b"a", b"1"), (b"b", b"2")]
    assert transaction.items(prefix=b"e") == [(b"e", b"5")]
    assert transaction.items(prefix=b"\xff") == [(b"\xff", b"255")]
    assert transaction.items(b"b", prefix=b"") == transaction.items(b"b") != transaction.items()
    assert transaction.items(b"z", b"a") == [] == transaction.items(limit=0)
    with pytest.raises(TypeError):
        transaction.items("a")
    transaction.rollback()
    with pytest.raises(terracedb.ClosedError):
        transaction.items()


def test_what_others_write_into_a_range_that_was_read_is_a_conflict(db):
    other = db.create_column_family("other")

    def commits(written, **ranges):
        db.update({b"a": b"1", b"c": b"3", b"e": b"5"})
        other.update({b"a": b"1"})
        transaction = db.transaction()
        transaction.items(**ranges)
        transaction[b"mine"] = b"x"
        written()
        try:
            transaction.commit()
        except terracedb.ConflictError:
            return False
        return True

    absent = lambda: db.put(b"b", b"2")
    assert not commits(absent, start=b"a", end=b"c")
    assert not commits(absent)
    assert commits(absent, start=b"c")
    assert not commits(lambda: db.delete(b"a"), prefix=b"a")
    # It ends after the last entry that was read.
    assert commits(lambda: db.put(b"d", b"4"), limit=3)
    assert not commits(lambda: db.put(b"d", b"4"), limit=4)
    assert not commits(lambda: db.delete_range(b"x", b"y"), start=b"w")
    assert not commits(lambda: other.put(b"z", b""), family=other)
    assert commits(lambda: other.put(b"z", b""), start=b"w")


def test_transact_runs_again_until_there_is_no_conflict(db):
    db[b"n"] = b"0"
    runs = []

    def add(transaction):
        value = int(transaction[b"n"])
        if len(runs) < 3:
            db[b"n"] = b"%d" % (value + 10)
        runs.append(value)
        transaction[b"n"] = b"%d" % (value + 1)
        return value

    assert db.transact(add) == 30
    assert db[b"n"] == b"31" and runs == [0, 10, 20, 30]

    def never(transaction):
        transaction.get(b"n")
        db[b"n"] = b"0"
        transaction[b"n"] = b"1"

    with pytest.raises(terracedb.ConflictError):
        db.transact(never, attempts=3)
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda transaction: 1 // 0)


def test_transact_ends_the_transaction_of_a_function_that_raises(db):
    kept = []

    def fail(transaction):
        kept.append(transaction)
        transaction[b"n"] = b"1"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.transact(fail)
    with pytest.raises(terracedb.ClosedError):
        kept[0].commit()
    assert b"n" not in db and snapshots(db) == 0


def test_options_of_families_are_of_any_mapping_and_a_name_is_no_list(tmp_path):
    for wrong in ("log", {"log": None}, {"log": "zstd"}, 7):
        with pytest.raises(TypeError):
            terracedb.Db(tmp_path / "s", column_families=wrong)
    families = types.MappingProxyType({"n": types.MappingProxyType({"merge_operator": "counter"})})
    with terracedb.Db(tmp_path / "s", column_families=families) as db:
        assert db.column_families() == ["default", "n"]
        db.column_family("n").merge(b"k", (5).to_bytes(8, "little"))


def test_the_family_called_default_is_the_default_one(tmp_path):
    five = (5).to_bytes(8, "little")
    families = {"n": {}, "default": {"merge_operator": "counter", "prefix_len": 4}}
    with terracedb.Db(tmp_path / "s", column_families=families) as db:
        db.merge(b"k", five)
        assert db[b"k"] == five
        # What is not named for a family is as for the default one, but for code.
        n = db.column_family("n")
        assert n.option("prefix_len") == db.option("prefix_len") == "4"
        with pytest.raises(terracedb.InvalidArgumentError):
            n.merge(b"k", five)


def test_memory_that_no_machine_has_is_refused(tmp_path):
    with terracedb.Db(tmp_path / "s") as db, pytest.raises(terracedb.InvalidArgumentError):
        db.bulk_loader(memory="10000000TiB")


def test_column_families(tmp_path):
    path = tmp_path / "store"
    families = {"a": {"compression": ["none", "lz4"]}, "b": {}}
    with terracedb.Db(path, column_families=families) as db:
        assert db.column_families() == ["default", "a", "b"]
        a, b = db.column_family("a"), db.column_family("b")
        assert (db.name, a.name) == ("default", "a")
        a[b"k"] = b"of a"
        with db.batch() as batch:
            batch.put(b"k", b"of b", family=b)
            batch.put(b"k", b"of default")
        with db.transaction() as transaction:
            assert transaction.get(b"k", family=a) == b"of a"
            transaction.put(b"m", b"of b", family=b)
        assert [family[b"k"] for family in (db, a, b)] == [b"of default", b"of a", b"of b"]
        db.drop_column_family("b")
        with pytest.raises(terracedb.NoSuchFamilyError):
            b[b"k"]
        with pytest.raises(terracedb.NoSuchFamilyError):
            db.column_family("b")
        a.compact()
        assert a.estimate()["keys"] == 1
    with terracedb.Db(path, column_families=["a"]) as db:
        assert db.column_family("a")[b"k"] == b"of a"


def test_what_is_written_is_there_after_the_next_open(tmp_path):
    with terracedb.Db(tmp_path / "s", sync="batch", compression="lz4", compact_when_idle=False) as db:
        db.update({b"%05d" % at: b"v" * at for at in range(2000)})
        db.flush()
        db.compact(b"0", b"9")
        db.sync()
        assert db.verify() >= 1
        db.checkpoint(tmp_path / "copy")
        db[b"later"] = b""
        assert str(db.path).endswith("s") and "s" in repr(db)
    for name, expected in (("s", 2001), ("copy", 2000)):
        with terracedb.Db(tmp_path / name) as db:
            assert len(list(db)) == expected and db[b"01999"] == b"v" * 1999
    assert terracedb.repair(tmp_path / "s", dry_run=True)["was_sound"] is True


def test_a_repair_takes_back_what_was_lost(tmp_path):
    store = tmp_path / "s"
    with terracedb.Db(store) as db:
        db[b"kept"] = b"here"
        db.flush()
    (store / "lost").mkdir()
    for file in list(store.glob("*.sst")):
        file.rename(store / "lost" / file.name)
    assert terracedb.repair(store)["lost"]
    report = terracedb.repair(store, from_lost=True)
    assert any("taken back" in line for line in report["saved"]), report
    with terracedb.Db(store) as db:
        assert dict(db.items()) == {b"kept": b"here"}


def test_beside_a_writer(tmp_path):
    with terracedb.Db(tmp_path / "s") as writer:
        with pytest.raises(terracedb.LockedError):
            terracedb.Db(tmp_path / "s")
        with terracedb.Db(tmp_path / "s", read_only=True) as reader:
            writer[b"news"] = b"today"
            assert b"news" not in reader
            assert reader.refresh() is True and reader[b"news"] == b"today"
            with pytest.raises(terracedb.ReadOnlyError):
                reader[b"a"] = b"b"


def test_options(tmp_path):
    for wrong in ({"colour": 1}, {"memory_budget": "1"}, {"sync": "always"}, {"block_size": None}):
        with pytest.raises(terracedb.InvalidArgumentError):
            terracedb.Db(tmp_path / "s", **wrong)
    with pytest.raises(terracedb.NotAStoreError):
        terracedb.Db(tmp_path / "s", create_if_missing=False)
    assert not (tmp_path / "s").exists()
    with terracedb.Db(tmp_path / "s", memory_budget=32 << 20) as db:
        assert db.option("memory_budget") == str(32 << 20)
        db.set_option("gc_garbage_ratio", 0.5)
        assert db.option("gc_garbage_ratio") == "0.5" and db.option("colour") is None
        with pytest.raises(terracedb.InvalidArgumentError):
            db.set_option("block_size", 1)
        db.set_option("compact_when_idle", False)
        assert db.option("compact_when_idle") == "false"
        db.set_option("filter", ["ribbon:12", "none"])
    with terracedb.Db(tmp_path / "s") as db:
        assert db.option("filter") == "ribbon:12,none" and db.option("compact_when_idle") == "true"
        db.create_column_family("a", prefix_len=4).set_option("learning", "off")
    with terracedb.Db(tmp_path / "s", column_families=["a"]) as db:
        family = db.column_family("a")
        assert family.option("learning") == "off" and family.option("prefix_len") == "4"
        assert db.option("learning") == "build" and family.option("sync") is None


def test_a_list_within_the_list_of_an_option_is_refused(db, tmp_path):
    endless = ["none"]
    endless.append(endless)
    for value in endless, (endless,), ["none", ["none"]], [("none",)]:
        with pytest.raises(TypeError):
            db.set_option("filter", value)
        with pytest.raises(TypeError):
            terracedb.Db(tmp_path / "other", filter=value)
    db.set_option("filter", ("ribbon:12", None))
    assert db.option("filter") == "ribbon:12,none"


def test_metrics(db):
    db[b"a"] = b"1"
    db.wait_idle()
    db.collect_garbage()
    assert "gets" in db.metrics() or len(db.metrics()) > 100
    assert "terrace_gets_total" in db.metrics_prometheus()


def test_large_values_and_limits(db):
    large = bytes(range(256)) * (20 << 12)
    db[b"large"] = large
    assert db[b"large"] == large and next(db.values()) == large
    assert db[b"large"] == large
    db[b"k" * 65536] = b"v"
    assert db[b"k" * 65536] == b"v"
    with pytest.raises(terracedb.InvalidArgumentError):
        db[b"k" * 65537] = b"v"
    assert b"k" * 65537 not in db


def test_sorted_files_are_ingested_whole_or_not_at_all(db, tmp_path):
    first, second = tmp_path / "1.sst", tmp_path / "2.sst"
    db.update({b"b": b"old", b"x1": b"old"})
    with terracedb.SstWriter(first, compression="zstd") as writer:
        assert writer.path == first
        writer[b"a"] = b"1"
        with pytest.raises(terracedb.InvalidArgumentError):
            writer[b"a"] = b"again"
        with pytest.raises(terracedb.InvalidArgumentError):
            writer.merge(b"c", b"no operator")
        del writer[b"b"]
        writer.put(b"c", b"soon", expires_at=time.time() + 1000)
        writer.delete_range(b"x", b"y")
        assert writer.estimated_bytes() > 0
    with pytest.raises(terracedb.ClosedError):
        writer[b"d"] = b"late"
    writer = terracedb.SstWriter(second)
    writer[b"b"] = b"2"
    assert writer.finish() == 1
    with pytest.raises(terracedb.ClosedError):
        writer.finish()
    # Their keys overlap.
    with pytest.raises(terracedb.InvalidArgumentError):
        db.ingest([first, second])
    with pytest.raises(terracedb.InvalidArgumentError):
        db.ingest([])
    # Its characters are no paths.
    with pytest.raises(TypeError, match="list of paths"):
        db.ingest(str(first))
    assert dict(db.items()) == {b"b": b"old", b"x1": b"old"}
    assert db.ingest([first], move=True) == 4
    assert dict(db.items()) == {b"a": b"1", b"c": b"soon"} and db.expires_at(b"c")
    assert not first.exists()
    with pytest.raises(terracedb.IoError):
        db.ingest([first])
    assert db.ingest([str(second)]) == 1 and second.exists()
    assert db[b"b"] == b"2"


def test_a_time_of_expiry_is_copied_to_the_millisecond(db, tmp_path):
    # In seconds it is a float that is a little less.
    ends_ms = 2147483690502
    assert int(ends_ms / 1000 * 1000) == ends_ms - 1
    with terracedb.SstWriter(tmp_path / "1.sst") as writer:
        writer.put(b"a", b"1", expires_at=ends_ms / 1000)
    db.ingest([tmp_path / "1.sst"])
    with db.bulk_loader() as loader:
        loader.put(b"b", b"2", expires_at=db.expires_at(b"a"))
    assert [db.expires_at(key) for key in (b"a", b"b")] == [ends_ms / 1000] * 2


def test_a_file_is_ingested_below_what_is_there(db, tmp_path):
    family = db.create_column_family("f")
    family[b"a"] = b"new"
    with terracedb.SstWriter(tmp_path / "old.sst") as writer:
        writer[b"a"] = b"old"
        writer[b"b"] = b"old"
    family.ingest([tmp_path / "old.sst"], below=True)
    assert dict(family.items()) == {b"a": b"new", b"b": b"old"} and not dict(db.items())


def test_operands_are_ingested_into_a_family_with_their_operator(tmp_path):
    with terracedb.SstWriter(tmp_path / "m.sst", merge_operator="append:,") as writer:
        writer.merge(b"k", b"2")
    with terracedb.Db(tmp_path / "store", merge_operator="append:,") as db:
        db[b"k"] = b"1"
        db.ingest([tmp_path / "m.sst"])
        assert db[b"k"] == b"1,2"


def test_a_file_that_an_exception_leaves_is_gone(tmp_path):
    path = tmp_path / "gone.sst"
    with pytest.raises(RuntimeError):
        with terracedb.SstWriter(path) as writer:
            writer[b"a"] = b"1"
            raise RuntimeError
    assert not path.exists()
    with pytest.raises(ValueError):
        terracedb.SstWriter(path).put(b"a", b"1", expires_at=float("nan"))
    assert not path.exists()
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.SstWriter(path).finish()
    assert not path.exists()
