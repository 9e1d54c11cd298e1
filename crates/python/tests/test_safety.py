"""Use after close, objects that outlive their store, threads, forks."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import terracedb


def test_after_close_everything_is_refused(tmp_path):
    db = terracedb.Db(tmp_path / "s", column_families=["f"])
    db.update({b"%04d" % at: b"v" for at in range(2000)})
    family, snapshot, batch, transaction = (
        db.column_family("f"),
        db.snapshot(),
        db.batch(),
        db.transaction(),
    )
    iterator, fresh = db.items(), db.items()
    next(iterator)
    batch[b"a"] = transaction[b"b"] = b"1"
    db.close()
    db.close()
    for call in (
        lambda: db[b"0001"],
        lambda: db.get(b"0001"),
        lambda: db.put(b"a", b"b"),
        lambda: db.multi_get([b"a"]),
        lambda: list(db),
        lambda: db.flush(),
        lambda: family.put(b"a", b"b"),
        lambda: snapshot[b"0001"],
        batch.commit,
        transaction.commit,
    ):
        with pytest.raises(terracedb.ClosedError):
            call()
    # An iterator goes on or fails, as the engine says; it ends.
    for one in (iterator, fresh):
        try:
            assert len(list(one)) in (1999, 2000)
        except terracedb.Error:
            pass
    db.snapshot()
    with terracedb.Db(tmp_path / "s") as again:
        assert len(list(again)) == 2000


def test_a_relative_path_is_that_of_the_call_wherever_the_program_goes(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    first, backups = terracedb.Db("store"), terracedb.Backups("backups")
    writer = terracedb.SstWriter("file.sst")
    first[b"k"] = writer[b"file"] = b"a"
    monkeypatch.chdir(tmp_path / "b")
    # Another store has the same path from here on.
    with terracedb.Db("store") as second:
        second[b"k"] = b"b"
        first.flush()
        backups.create(first)
        writer.finish()
        first.ingest([writer.path])
        first.close()
        second.flush()
    assert not (tmp_path / "b" / "backups").exists()
    for name, keys in ("a", 2), ("b", 1):
        with terracedb.Db(tmp_path / name / "store") as db:
            assert db[b"k"] == name.encode() and len(list(db)) == keys


def test_objects_outlive_the_store(tmp_path):
    db = terracedb.Db(tmp_path / "s")
    db.update({b"%04d" % at: b"v" for at in range(1000)})
    iterator, snapshot, transaction = db.items(), db.snapshot(), db.transaction()
    del db
    gc.collect()
    assert len(list(iterator)) == 1000
    assert snapshot[b"0001"] == b"v"
    transaction[b"new"] = b"1"
    transaction.commit()
    del iterator, snapshot, transaction
    gc.collect()
    with terracedb.Db(tmp_path / "s") as db:
        assert db[b"new"] == b"1"


def test_an_iterator_holds_its_store_open_until_its_end(tmp_path):
    with terracedb.Db(tmp_path / "s") as db:
        db.update({b"%04d" % at: b"v" for at in range(1000)})

    def is_open():
        gc.collect()
        try:
            terracedb.Db(tmp_path / "s").close()
        except terracedb.LockedError:
            return True
        return False

    # No other object of the store is left.
    iterator = terracedb.Db(tmp_path / "s").keys()
    assert next(iterator) == b"0000" and is_open()
    assert len(list(iterator)) == 999 and not is_open()
    closed = terracedb.Db(tmp_path / "s").snapshot().items(reverse=True)
    assert next(closed) == (b"0999", b"v") and is_open()
    closed.close()
    assert not is_open()
    dropped = terracedb.Db(tmp_path / "s").values()
    assert is_open()
    del dropped
    assert not is_open()


def test_threads_on_one_store_and_one_iterator(tmp_path):
    with terracedb.Db(tmp_path / "s", memory_budget="16MiB") as db:
        failures = []

        def run(work, *arguments):
            def guarded():
                try:
                    work(*arguments)
                except BaseException as error:
                    failures.append(error)

            return threading.Thread(target=guarded)

        def write(number):
            for at in range(500):
                key = b"t%d-%d" % (number, at)
                db[key] = key
                assert db[key] == key
                if at % 100 == 0:
                    db.transact(
                        lambda t: t.put(b"n", b"%d" % (int(t.get(b"n", b"0")) + 1))
                    )

        threads = [run(write, number) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join(600) for thread in threads]
        assert not failures and not any(thread.is_alive() for thread in threads)
        assert db[b"n"] == b"40"

        seen, iterator, batch = [], db.keys(prefix=b"t"), db.batch()

        def share():
            for key in iterator:
                seen.append(key)
                batch[key] = b"x"

        threads = [run(share) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join(600) for thread in threads]
        assert not failures and len(seen) == len(set(seen)) == 4000
        batch.commit()
        assert set(db.values(prefix=b"t")) == {b"x"}


def reads_beside_a_compaction(db):
    """How many reads there were before a compaction had ended."""
    db.update({b"%05d" % at: os.urandom(500) for at in range(20000)})
    done = threading.Event()
    worker = threading.Thread(target=lambda: (db.compact(), done.set()))
    worker.start()
    counted = 0
    while not done.is_set():
        counted += 1
        db[b"00001"]
        time.sleep(0.001)
    worker.join()
    return counted


def test_a_thread_that_waits_does_not_stop_the_others(tmp_path):
    interval = sys.getswitchinterval()
    with terracedb.Db(tmp_path / "s") as db:
        # Nobody is made to give the interpreter away.
        sys.setswitchinterval(1000)
        try:
            # A compaction may end before this thread gets a processor, but not every time.
            assert any(reads_beside_a_compaction(db) > 0 for _ in range(20))
        finally:
            sys.setswitchinterval(interval)


def runs_beside(call):
    """Whether a thread that wants the interpreter gets it during one of many calls."""
    begun, gate, ran, held = threading.Event(), threading.Lock(), [], []
    gate.acquire()

    def wait():
        begun.set()
        gate.acquire()
        ran.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    gate.release()
    for _ in range(20000):
        # Kept, since what is freed gives the interpreter away.
        held.append(call())
        if ran:
            break
    got_it = bool(ran)
    held.clear()
    thread.join()
    return got_it


@pytest.mark.parametrize("what", ["snapshot", "transaction"])
def test_what_may_wait_gives_the_interpreter_to_others(tmp_path, what):
    interval = sys.getswitchinterval()
    with terracedb.Db(tmp_path / "s") as db:
        # Nobody is made to give it away.
        sys.setswitchinterval(1000)
        try:
            assert any(runs_beside(getattr(db, what)) for _ in range(100))
        finally:
            sys.setswitchinterval(interval)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_refused_and_the_parent_goes_on(tmp_path):
    db = terracedb.Db(tmp_path / "s")
    db[b"a"] = b"1"
    iterator, snapshot, transaction = db.items(), db.snapshot(), db.transaction()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (
                lambda: db[b"a"],
                lambda: db.put(b"x", b"y"),
                lambda: next(iterator),
                lambda: snapshot[b"a"],
                transaction.commit,
                db.close,
            ):
                try:
                    call()
                except terracedb.ForkedError:
                    refused += 1
            with terracedb.Db(tmp_path / "s", read_only=True) as reader:
                fresh = reader[b"a"] == b"1"
            del db, iterator, snapshot, transaction
            gc.collect()
            code = 0 if refused == 6 and fresh else 2
        finally:
            sys.stdout.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    db[b"b"] = b"2"
    assert list(iterator) == [(b"a", b"1")] and snapshot[b"a"] == b"1"
    db.close()
    with terracedb.Db(tmp_path / "s") as db:
        assert sorted(db) == [b"a", b"b"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_batch_and_backups_of_before_a_fork_are_refused(tmp_path):
    db, backups = terracedb.Db(tmp_path / "s"), terracedb.Backups(tmp_path / "b")
    batch = db.batch()
    batch[b"a"] = b"1"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (
                lambda: batch.put(b"b", b"2"),
                lambda: len(batch),
                batch.clear,
                batch.commit,
                lambda: batch.__exit__(None, None, None),
                backups.list,
            ):
                try:
                    call()
                except terracedb.ForkedError:
                    refused += 1
            batch.__exit__(ValueError, ValueError(), None)
            backups.close()
            code = 0 if refused == 6 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(batch) == 1
    batch.commit()
    backups.create(db)
    assert dict(db.items()) == {b"a": b"1"} and len(backups.list()) == 1
    backups.close()
    db.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_exception_leaves_the_block_of_a_store_in_a_forked_process_as_it_is(tmp_path):
    with terracedb.Db(tmp_path / "s") as db:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # As of `sys.exit` in the child.
                with db:
                    raise SystemExit("of the child")
            except SystemExit:
                # Without an exception it is refused as other calls are.
                with pytest.raises(terracedb.ForkedError), db:
                    pass
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        db[b"k"] = b"v"
    with terracedb.Db(tmp_path / "s") as db:
        assert db[b"k"] == b"v"


# A program that is killed while its child lives on.
KILLED_BESIDE_A_CHILD = """
import os, signal, sys, terracedb
db = terracedb.Db(sys.argv[1])
db[b"k"] = b"v"
is_forked, forked = os.pipe()
if os.fork() == 0:
    os.write(forked, b"x")
    # Until the test is done.
    sys.stdin.read()
    os._exit(0)
os.read(is_forked, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_keep_the_store_of_a_parent_that_is_killed(tmp_path):
    program = [sys.executable, "-c", KILLED_BESIDE_A_CHILD, str(tmp_path / "s")]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as parent:
        assert parent.wait(timeout=120) == -signal.SIGKILL
        with terracedb.Db(tmp_path / "s") as db:
            assert db[b"k"] == b"v"


def test_a_panic_is_an_error():
    with pytest.raises(terracedb.Error, match="a defect of it: here") as raised:
        terracedb._terracedb._panic("here")
    assert raised.type is terracedb.Error


# A program that has no memory for objects of Python while it reads.
WITHOUT_MEMORY = """
import operator, sys
import _testcapi, terracedb

def is_refused(call, *arguments):
    try:
        _testcapi.set_nomemory(0)
        call(*arguments)
    except MemoryError:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False

value = b"v" * 1000
with terracedb.Db(sys.argv[1]) as db:
    since = db.latest_seqno() + 1
    db[b"k"] = value
    iterator, transaction, batch = db.items(), db.transaction(), next(db.updates_since(since))
    try:
        # Makes the class that every later exception is compared with.
        db.multi_get(1)
    except TypeError:
        pass
    print(is_refused(db.get, b"k"), is_refused(operator.getitem, db, b"k"))
    print(is_refused(next, iterator), is_refused(batch.updates))
    print(is_refused(transaction.get, b"k"), is_refused(transaction.items))
    print(is_refused(db.pop, b"k"))
    # What was refused is there still.
    assert db[b"k"] == value and list(iterator) == [(b"k", value)]
    assert batch.updates()[0].value == db.pop(b"k") == value and b"k" not in db
"""


def test_without_memory_for_what_was_read_there_is_a_memory_error(tmp_path):
    pytest.importorskip("_testcapi")
    program = [sys.executable, "-c", WITHOUT_MEMORY, str(tmp_path / "s")]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["True"] * 7


def test_objects_of_two_stores_do_not_mix(tmp_path):
    with terracedb.Db(tmp_path / "a", column_families=["f"]) as a, terracedb.Db(tmp_path / "b") as b:
        foreign = a.column_family("f")
        with pytest.raises(terracedb.InvalidArgumentError):
            with b.batch() as batch:
                batch.put(b"k", b"v", family=foreign)
        with pytest.raises(terracedb.InvalidArgumentError):
            b.transaction().get(b"k", family=foreign)
        assert list(foreign) == []
