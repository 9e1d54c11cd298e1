"""Merge operators of functions of Python."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import terracedb


def union(key, existing, operands):
    parts = set(filter(None, (existing or b"").split(b",")))
    return b",".join(sorted(parts.union(operands)))


def union_operator(partial=None):
    return terracedb.MergeOperator("union", union, partial)


def add(key, existing, operand):
    return b"%d" % (int(existing or b"0") + int(operand))


def run(code, *arguments):
    """A program of its own, since it is about its end."""
    program = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_operands_are_merged_by_functions(tmp_path):
    families = {"sum": {"merge_operator": terracedb.MergeOperator.associative("add", add)}}
    options = dict(merge_operator=union_operator(), column_families=families)
    with terracedb.Db(tmp_path / "s", **options) as db:
        total = db.column_family("sum")
        db.merge(b"k", b"b")
        with db.batch() as batch:
            batch.merge(b"k", b"a")
            batch.merge(b"n", b"1", family=total)
        with db.transaction() as transaction:
            transaction.merge(b"k", b"c")
            assert transaction[b"k"] == b"a,b,c"
        total.merge(b"n", b"41")
        assert db[b"k"] == b"a,b,c" and b"k" in db and dict(db.items()) == {b"k": b"a,b,c"}
        assert total[b"n"] == b"42" and db.multi_get([b"k", b"x"]) == [b"a,b,c", None]
        db.compact()
        total.compact()
        db.merge(b"k", b"b")
        assert db[b"k"] == b"a,b,c" and total[b"n"] == b"42"
        made = db.create_column_family("made", merge_operator=union_operator())
        made.merge(b"k", b"x")
        with terracedb.SstWriter(tmp_path / "a.sst", merge_operator=union_operator()) as writer:
            writer.merge(b"k", b"y")
        made.ingest([tmp_path / "a.sst"])
        assert made[b"k"] == b"x,y"
    # The name is stored; what is written is still there with the operator.
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.Db(tmp_path / "s")
    families["made"] = {"merge_operator": union_operator()}
    with terracedb.Db(tmp_path / "s", **options) as db:
        assert db[b"k"] == b"a,b,c"


def test_what_is_no_operator_is_refused(tmp_path):
    for wrong in (union, 7, "union"):
        with pytest.raises(terracedb.InvalidArgumentError):
            terracedb.Db(tmp_path / "s", merge_operator=wrong)
    for arguments in (("n", 7), ("n", union, 7)):
        with pytest.raises(TypeError):
            terracedb.MergeOperator(*arguments)
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.MergeOperator("counter", union)
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.MergeOperator.associative("append:,", add)
    with pytest.raises(terracedb.InvalidArgumentError):
        terracedb.Db(tmp_path / "s", merge_operator=terracedb.MergeOperator("", union))
    assert union_operator().name == "union"


def test_an_exception_is_an_error_and_loses_nothing(tmp_path):
    broken = True

    def merge(key, existing, operands):
        if broken and key == b"bad":
            raise ValueError("not today")
        return union(key, existing, operands)

    def combine(key, operands):
        raise RuntimeError("never")

    operator = terracedb.MergeOperator("union", merge, combine)
    with terracedb.Db(tmp_path / "s", merge_operator=operator) as db:
        db[b"bad"] = b"a"
        db.flush()
        for operand in (b"b", b"c"):
            db.merge(b"bad", operand)
            db.merge(b"good", operand)
            db.flush()
        for read in (
            lambda: db[b"bad"],
            lambda: db.multi_get([b"bad"]),
            lambda: list(db.items()),
            lambda: db.transaction()[b"bad"],
        ):
            with pytest.raises(terracedb.MergeFailedError, match="ValueError: not today") as error:
                read()
            assert isinstance(error.value.__cause__, ValueError)
        assert db[b"good"] == b"b,c"
        db.compact()
        with pytest.raises(terracedb.MergeFailedError):
            db[b"bad"]
        broken = False
        assert db[b"bad"] == b"a,b,c"
        db.compact()
        assert dict(db.items()) == {b"bad": b"a,b,c", b"good": b"b,c"}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_goes_to_the_caller(tmp_path, kind):
    ends = True

    def merge(key, existing, operands):
        if ends:
            raise kind("now")
        return operands[-1]

    with terracedb.Db(tmp_path / "s", merge_operator=terracedb.MergeOperator("last", merge)) as db:
        db.merge(b"k", b"v")
        for read in (
            lambda: db[b"k"],
            lambda: db.multi_get([b"k"]),
            lambda: list(db.items()),
            lambda: db.transaction()[b"k"],
        ):
            with pytest.raises(kind, match="now"):
                read()
        ends = False
        assert db[b"k"] == b"v"


def test_an_exception_is_the_cause_of_its_own_error_only(tmp_path):
    def merge(key, existing, operands):
        raise ValueError("not today")

    families = {"counters": {"merge_operator": "counter"}}
    operator = terracedb.MergeOperator("broken", merge)
    with terracedb.Db(tmp_path / "s", merge_operator=operator, column_families=families) as db:
        counters = db.column_family("counters")
        counters[b"n"] = b"no number"
        counters.merge(b"n", bytes(8))
        db[b"a"] = b"1"
        db.merge(b"b", b"2")
        items = db.items()
        # The error of the second key is met with the first one, and raised later.
        assert next(items) == (b"a", b"1")
        with pytest.raises(terracedb.MergeFailedError) as error:
            counters[b"n"]
        assert error.value.__cause__ is None
        with pytest.raises(terracedb.MergeFailedError, match="not today") as error:
            next(items)
        assert isinstance(error.value.__cause__, ValueError)


@pytest.mark.parametrize("wrong", [None, "text", 7])
def test_a_value_that_is_not_bytes_is_an_error(tmp_path, wrong):
    operator = terracedb.MergeOperator("wrong", lambda key, existing, operands: wrong)
    with terracedb.Db(tmp_path / "s", merge_operator=operator) as db:
        db.merge(b"k", b"a")
        with pytest.raises(terracedb.MergeFailedError, match="TypeError"):
            db[b"k"]


def test_threads_merge_and_read_while_compactions_call_python(tmp_path):
    operator = terracedb.MergeOperator.associative("add", add)
    failures = []

    def work(db):
        try:
            for at in range(300):
                db.merge(b"n%d" % (at % 3), b"1")
                if at % 20 == 0:
                    int(db[b"n0"])
                    list(db.items())
                if at % 100 == 50:
                    db.flush()
        except BaseException as error:
            failures.append(error)

    with terracedb.Db(tmp_path / "s", merge_operator=operator, memory_budget="16MiB") as db:
        threads = [threading.Thread(target=work, args=(db,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        db.compact()
        for thread in threads:
            thread.join()
        assert not failures and [db[b"n%d" % at] for at in range(3)] == [b"400"] * 3


def test_a_store_that_is_forgotten_closes_while_it_calls_python(tmp_path):
    """The end of the store waits for a flush, which waits for the interpreter."""
    for _ in range(3):
        db = terracedb.Db(tmp_path / "s", merge_operator=union_operator())
        db[b"k"] = b"a"
        db.merge(b"k", b"b")
        transaction = db.transaction()
        del db
        gc.collect()
        del transaction
        gc.collect()
    with terracedb.Db(tmp_path / "s", merge_operator=union_operator()) as db:
        assert db[b"k"] == b"a,b"


def test_a_store_that_is_freed_within_a_call_of_its_own_closes(tmp_path):
    """The collector runs on any thread; the end of the store waits for the flush in which it runs here."""
    code = """
        import gc, sys, threading, terracedb
        gc.disable()
        main, inside, go = threading.get_ident(), threading.Event(), threading.Event()
        def merge(key, existing, operands):
            if threading.get_ident() != main and not go.is_set():
                inside.set()
                go.wait()
                gc.collect()
            return operands[-1]
        class Owner:
            pass
        operator = terracedb.MergeOperator("last", merge)
        owner = Owner()
        owner.me = owner
        owner.db = terracedb.Db(sys.argv[1], merge_operator=operator, memtable_bytes="16KiB")
        at = 0
        while not inside.is_set():
            owner.db[b"%d" % at] = bytes(1000)
            owner.db.merge(b"%d" % at, bytes(1000))
            at += 1
            inside.wait(0.01)
        del owner
        go.set()
        print("done")
    """
    assert run(code, tmp_path / "s") == "done\n"
    last = terracedb.MergeOperator("last", lambda key, existing, operands: operands[-1])
    with terracedb.Db(tmp_path / "s", merge_operator=last) as db:
        assert set(db.values()) == {bytes(1000)}


@pytest.mark.parametrize("ends", ["", "db.close()", "del db", "import threading; threading.Thread(target=db.compact, daemon=True).start()"])
def test_the_interpreter_ends_whatever_is_still_open(tmp_path, ends):
    code = f"""
        import sys, terracedb
        def merge(key, existing, operands):
            return b",".join(([existing] if existing is not None else []) + operands)
        operator = terracedb.MergeOperator("join", merge)
        db = terracedb.Db(sys.argv[1], merge_operator=operator)
        for at in range(200):
            db.merge(b"%d" % (at % 10), b"x")
        {ends}
        print("done")
    """
    for round in range(1, 3):
        assert run(code, tmp_path / "s") == "done\n"
        operator = terracedb.MergeOperator("join", lambda k, old, new: b",".join([old] * (old is not None) + new))
        with terracedb.Db(tmp_path / "s", merge_operator=operator) as db:
            assert {value.count(b"x") for value in db.values()} == {20 * round}


def test_an_exit_handler_of_before_the_import_reads_what_is_merged(tmp_path):
    """The handlers of the interpreter's end run from the last to the first, so this one is behind Terrace's own."""
    code = """
        import atexit, sys
        @atexit.register
        def last():
            print(db[b"k"].decode(), len(list(db.items())))
        import terracedb
        def merge(key, existing, operands):
            return b"".join(operands)
        db = terracedb.Db(sys.argv[1], merge_operator=terracedb.MergeOperator("join", merge))
        db.merge(b"k", b"v")
    """
    assert run(code, tmp_path / "s") == "v 1\n"


def test_a_panic_within_a_call_leaves_the_exceptions_of_the_call_alone(tmp_path):
    def merge(key, existing, operands):
        with pytest.raises(terracedb.Error, match="within"):
            terracedb._terracedb._panic("within")
        raise ValueError("not today")

    with terracedb.Db(tmp_path / "s", merge_operator=terracedb.MergeOperator("broken", merge)) as db:
        db.merge(b"k", b"v")
        with pytest.raises(terracedb.MergeFailedError, match="not today") as error:
            db[b"k"]
        assert isinstance(error.value.__cause__, ValueError)


# A program that ends while its merge operator is called by a thread of the store.
ENDS_IN_A_CALL = """
        import sys, threading, time, terracedb
        began = threading.Event()
        def merge(key, existing, operands):
            began.set()
            time.sleep(0.5)
            print("merged", flush=True)
            return operands[-1]
        db = terracedb.Db(sys.argv[1], merge_operator=terracedb.MergeOperator("last", merge))
        db[b"k"] = b"1"
        db.merge(b"k", b"2")
        threading.Thread(target=db.flush, daemon=True).start()
        began.wait()
    """


def test_the_end_of_the_interpreter_waits_for_a_call_under_way(tmp_path):
    assert "merged" in run(ENDS_IN_A_CALL, tmp_path / "s")


def test_the_end_of_the_interpreter_waits_for_no_call_that_begins_later(tmp_path):
    """One of two threads is always within a call: each call ends when the other thread's next one has begun."""
    code = """
        import sys, threading, terracedb
        begun = [threading.Semaphore(0), threading.Semaphore(0)]
        numbers, calls = {}, threading.Semaphore(0)
        def merge(key, existing, operands):
            own = numbers.get(threading.get_ident())
            if own is not None:
                calls.release()
                begun[own].release()
                begun[1 - own].acquire()
            return operands[-1]
        db = terracedb.Db(sys.argv[1], merge_operator=terracedb.MergeOperator("last", merge))
        db.merge(b"k", b"v")
        def read(own):
            numbers[threading.get_ident()] = own
            if own == 1:
                begun[0].acquire()
            try:
                while True:
                    db[b"k"]
            except terracedb.MergeFailedError:
                # The call of the other thread ends.
                begun[own].release()
        for own in (0, 1):
            threading.Thread(target=read, args=(own,), daemon=True).start()
        for _ in range(20):
            calls.acquire()
        print("done")
    """
    assert run(code, tmp_path / "s") == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_ends_and_the_parent_goes_on(tmp_path):
    code = """
        import os, sys, terracedb
        def merge(key, existing, operands):
            return b"".join(operands)
        operator = terracedb.MergeOperator("last", merge)
        db = terracedb.Db(sys.argv[1], merge_operator=operator)
        db.merge(b"k", b"v")
        child = os.fork()
        if child == 0:
            try:
                db[b"k"]
            except terracedb.ForkedError:
                sys.exit(0)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert db[b"k"] == b"v"
        print("done")
    """
    assert run(code, tmp_path / "s") == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_end_of_a_forked_process_waits_for_a_call_under_way(tmp_path):
    # Terrace is imported before the fork.
    fork = """
        import os, sys, terracedb
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert "merged" in run(fork + ENDS_IN_A_CALL, tmp_path / "s")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_another_thread_is_using_at_a_fork_is_refused_and_waits_for_nobody(tmp_path):
    code = """
        import os, signal, sys, threading, terracedb
        entered, go_on = threading.Semaphore(0), threading.Event()
        def merge(key, existing, operands):
            entered.release()
            go_on.wait()
            return b"".join(operands)
        operator = terracedb.MergeOperator("last", merge)
        db = terracedb.Db(sys.argv[1], merge_operator=operator)
        db.merge(b"k", b"v")
        iterator, transaction, seen = db.items(), db.transaction(), []
        reads = (lambda: next(iterator), lambda: transaction.get(b"k"))
        threads = [threading.Thread(target=lambda read=read: seen.append(read())) for read in reads]
        for thread in threads:
            thread.start()
        for thread in threads:
            entered.acquire()
        # Both threads wait in the operator, and hold the locks of what they read.
        child = os.fork()
        if child == 0:
            # Who waits for a lock is ended by the signal.
            signal.alarm(60)
            refused = 0
            for call in (
                lambda: next(iterator),
                lambda: transaction.get(b"k"),
                transaction.commit,
                lambda: transaction.__exit__(None, None, None),
            ):
                try:
                    call()
                except terracedb.ForkedError:
                    refused += 1
            iterator.close()
            transaction.rollback()
            os._exit(0 if refused == 4 else 7)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        go_on.set()
        for thread in threads:
            thread.join()
        assert status == 0, status
        assert len(seen) == 2 and (b"k", b"v") in seen and b"v" in seen
        print("done")
    """
    assert run(code, tmp_path / "s") == "done\n"


OPERANDS = st.binary(min_size=1, max_size=2).filter(lambda part: b"," not in part)
STEPS = st.one_of(
    st.tuples(st.just("merge"), st.sampled_from([b"a", b"b"]), OPERANDS),
    st.tuples(st.just("put"), st.sampled_from([b"a", b"b"]), OPERANDS),
    st.tuples(st.just("delete"), st.sampled_from([b"a", b"b"])),
    st.sampled_from([("flush",), ("compact",), ("reopen",)]),
)


def combine(key, operands):
    """Of one part each; more are left as they are."""
    return operands[-1] if len(set(operands)) == 1 else None


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=30), partial=st.booleans())
def test_a_dict_of_sets_is_the_same(tmp_path_factory, steps, partial):
    dir = tmp_path_factory.mktemp("merge")
    options = dict(merge_operator=union_operator(combine if partial else None), memory_budget="4MiB")
    db, model = terracedb.Db(dir / "s", **options), {}
    for name, *arguments in steps:
        if name == "reopen":
            db.close()
            db = terracedb.Db(dir / "s", **options)
            continue
        getattr(db, name)(*arguments)
        if name == "merge":
            key, operand = arguments
            model[key] = union(key, model.get(key), [operand])
        elif name == "put":
            model[arguments[0]] = arguments[1]
        elif name == "delete":
            model.pop(arguments[0], None)
    assert dict(db.items()) == model
    assert {key: db[key] for key in db} == model
    db.close()
