"""The change feed."""

import gc
import threading
import time

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import terracedb

KEPT = dict(memory_budget="16MiB", log_retention_bytes="64MiB")


@pytest.fixture
def db(tmp_path):
    families = {"f": {"merge_operator": "append:,"}}
    with terracedb.Db(tmp_path / "store", column_families=families, **KEPT) as db:
        yield db


def test_a_batch_comes_as_it_was_committed(db):
    since = db.latest_seqno() + 1
    with db.updates_since(since) as feed:
        assert list(feed) == [] and feed.next_seqno == since
        family = db.column_family("f")
        ends = time.time() + 1000
        with db.batch() as batch:
            batch[b"a"] = b"1"
            batch.put(b"b", b"", ttl=1000)
            batch.delete(b"c")
            batch.delete_range(b"r", b"s", family=family)
            batch.merge(b"m", b"x", family=family)
        [batch] = feed
        assert (batch.first_seqno, batch.last_seqno, len(batch)) == (since, since + 4, 5)
        assert db.latest_seqno() == since + 4 and feed.next_seqno == since + 5
        updates = batch.updates()
        told = [(u.seqno - since, u.kind, u.family, u.key, u.value, u.end) for u in updates]
        assert told == [
            (0, "put", "default", b"a", b"1", None),
            (1, "put", "default", b"b", b"", None),
            (2, "delete", "default", b"c", None, None),
            (3, "delete_range", "f", b"r", None, b"s"),
            (4, "merge", "f", b"m", b"x", None),
        ]
        assert updates[0].expires_at is None and abs(updates[1].expires_at - ends) < 100
        # At its end it is asked again.
        db[b"later"] = b"2"
        assert [u.key for batch in feed for u in batch.updates()] == [b"later"]
        # What was dropped has no name.
        family[b"k"] = b"v"
        db.drop_column_family("f")
        assert [u.family for batch in feed for u in batch.updates()] == [None]
    with pytest.raises(terracedb.ClosedError):
        next(feed)


def test_what_is_gone_says_from_where_on_there_is_more(db):
    first = db.latest_seqno() + 1
    db[b"a"] = b"1"
    db.flush()
    assert db.oldest_update() <= first
    assert len(list(db.updates_since(first, synced_only=True))) == 1
    db.set_option("log_retention_bytes", 0)
    deadline = time.time() + 600
    # A thread of the store removes it.
    while db.oldest_update() <= first and time.time() < deadline:
        db[b"b"] = b"2"
        db.flush()
        db.wait_idle()
    with pytest.raises(terracedb.UpdatesGoneError) as error:
        db.updates_since(first)
    assert first < error.value.oldest <= db.oldest_update()
    with pytest.raises(terracedb.InvalidArgumentError):
        db.updates_since(db.latest_seqno() + 2)


def test_a_read_only_store_has_the_feed_of_its_writer(db, tmp_path):
    since = db.latest_seqno() + 1
    with terracedb.Db(tmp_path / "store", read_only=True) as reader:
        feed = reader.updates_since(since)
        assert list(feed) == []
        db[b"a"] = b"1"
        assert reader.refresh()
        assert [u.key for batch in feed for u in batch.updates()] == [b"a"]
        with pytest.raises(terracedb.InvalidArgumentError):
            reader.updates_since(since, synced_only=True)


def test_a_target_needs_the_families_and_no_files(db, tmp_path):
    since = db.latest_seqno() + 1
    db.column_family("f")[b"a"] = b"1"
    with terracedb.SstWriter(tmp_path / "a.sst") as writer:
        writer[b"a"] = writer[b"b"] = b"1"
    db.ingest([tmp_path / "a.sst"])
    of_family, of_file = db.updates_since(since)
    ingested = of_file.updates()[0]
    assert (ingested.kind, ingested.key, ingested.end) == ("ingested", b"a", b"b")
    with terracedb.Db(tmp_path / "target", **KEPT) as target:
        with pytest.raises(terracedb.NoSuchFamilyError):
            of_family.to_batch(target)
        with pytest.raises(terracedb.InvalidArgumentError):
            of_file.to_batch(target)


def test_a_batch_outlives_feed_and_store(tmp_path):
    with terracedb.Db(tmp_path / "store", **KEPT) as db:
        since = db.latest_seqno() + 1
        db[b"a"] = b"v" * 100000
        feed = db.updates_since(since)
        batch = next(feed)
    with pytest.raises(terracedb.ClosedError):
        next(feed)
    del db, feed
    assert batch.updates()[0].value == b"v" * 100000


def test_a_feed_holds_its_store_open_until_it_is_closed(tmp_path):
    for ends in "close", "del":
        db = terracedb.Db(tmp_path / "store", **KEPT)
        feed = db.updates_since(db.latest_seqno() + 1)
        db[b"a"] = b"1"
        # The feed is the only object of the store that is left.
        del db
        gc.collect()
        assert [u.key for batch in feed for u in batch.updates()] == [b"a"]
        assert list(feed) == []
        with pytest.raises(terracedb.LockedError):
            terracedb.Db(tmp_path / "store", **KEPT)
        if ends == "close":
            feed.close()
        del feed
        gc.collect()
    terracedb.Db(tmp_path / "store", **KEPT).close()


def test_threads_share_a_feed_while_others_write(db):
    since, seen, failures = db.latest_seqno() + 1, [], []
    feed = db.updates_since(since)
    written = threading.Event()

    def run(work):
        def guarded():
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=guarded)

    def read():
        while True:
            is_last = written.is_set()
            seen.extend(batch.first_seqno for batch in feed)
            if is_last:
                return

    def write():
        for at in range(500):
            db[b"%d" % at] = b"v"

    readers, writers = [run(read) for _ in range(4)], [run(write) for _ in range(4)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    written.set()
    for thread in readers:
        thread.join()
    assert not failures and sorted(seen) == list(range(since, since + 2000))


KEYS = st.binary(max_size=2)
VALUES = st.binary(max_size=20) | st.integers(1000, 5000).map(lambda size: b"v" * size)
OPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("delete_range"), KEYS, KEYS),
)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(st.lists(OPS, min_size=1, max_size=5) | st.sampled_from(["flush", "compact", "reopen"])),
    stops=st.sets(st.integers(0, 30)),
)
def test_a_replica_that_follows_is_the_same(tmp_path_factory, batches, stops):
    dir = tmp_path_factory.mktemp("feed")
    small = dict(KEPT, memory_budget="4MiB", memtable_bytes="16KiB")
    db = terracedb.Db(dir / "store", **small)
    replica = terracedb.Db(dir / "replica", **small)
    following = db.latest_seqno() + 1

    def follow():
        nonlocal following
        for batch in db.updates_since(following):
            assert batch.first_seqno == following
            batch.to_batch(replica).commit()
            following = batch.last_seqno + 1

    for at, ops in enumerate(batches):
        if ops == "flush":
            db.flush()
        elif ops == "compact":
            db.compact()
        elif ops == "reopen":
            db.close()
            db = terracedb.Db(dir / "store", **small)
        else:
            with db.batch() as batch:
                for name, *arguments in ops:
                    getattr(batch, name)(*arguments)
        if at in stops:
            follow()
    follow()
    assert list(replica.items()) == list(db.items())
    db.close()
    replica.close()
