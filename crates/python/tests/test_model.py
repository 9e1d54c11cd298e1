"""A store and a dict do the same, whatever is asked of them, in any order, over reopenings."""

import os
import shutil
import tempfile

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import terracedb

KEYS = st.binary(max_size=3) | st.sampled_from([b"a", b"ab", b"b", b"\xff", b"\xff\xff"])
VALUES = st.binary(max_size=20) | st.integers(1000, 5000).map(lambda size: b"v" * size)


class Store(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.dir = tempfile.mkdtemp()
        self.model, self.family_model, self.snapshots = {}, {}, []
        self.reopen()

    def reopen(self):
        self.db = terracedb.Db(
            self.dir + "/s", memory_budget="4MiB", memtable_bytes="16KiB", column_families=["f"]
        )
        self.family = self.db.column_family("f")

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        self.db[key] = value
        self.model[key] = value

    @rule(key=KEYS, value=VALUES)
    def put_in_family(self, key, value):
        self.family.put(key, value, ttl=100000)
        self.family_model[key] = value

    @rule(key=KEYS)
    def delete(self, key):
        try:
            del self.model[key]
        except KeyError:
            try:
                del self.db[key]
            except KeyError:
                return
            raise AssertionError("the store had a key that the dict has not")
        del self.db[key]

    @rule(start=KEYS, end=KEYS)
    def delete_range(self, start, end):
        self.db.delete_range(start, end)
        for key in [key for key in self.model if start <= key < end]:
            del self.model[key]

    @rule(entries=st.dictionaries(KEYS, VALUES, max_size=30), commit=st.booleans())
    def batch(self, entries, commit):
        batch = self.db.batch()
        for key, value in entries.items():
            batch[key] = value
            batch.delete(key, family=self.family)
        if commit:
            batch.commit()
            self.model.update(entries)
            for key in entries:
                self.family_model.pop(key, None)

    @rule(key=KEYS, value=VALUES, conflict=st.booleans())
    def transaction(self, key, value, conflict):
        transaction = self.db.transaction()
        assert transaction.get(key) == self.model.get(key)
        transaction[key] = value
        assert transaction[key] == value
        if conflict:
            self.db[key] = self.model[key] = b"of another"
            try:
                transaction.commit()
            except terracedb.ConflictError:
                return
            raise AssertionError("a conflict was not seen")
        transaction.commit()
        self.model[key] = value

    @rule(key=KEYS)
    def get(self, key):
        assert self.db.get(key) == self.model.get(key)
        assert (key in self.db) == (key in self.model)
        assert self.family.get(key) == self.family_model.get(key)

    @rule(start=st.none() | KEYS, end=st.none() | KEYS, prefix=st.none() | KEYS, reverse=st.booleans())
    def scan(self, start, end, prefix, reverse):
        expected = [
            (key, value)
            for key, value in sorted(self.model.items(), reverse=reverse)
            if (start is None or start <= key)
            and (end is None or key < end)
            and (prefix is None or key.startswith(prefix))
        ]
        bounds = dict(start=start, end=end, prefix=prefix, reverse=reverse)
        assert list(self.db.items(**bounds)) == expected
        assert list(self.db.keys(**bounds)) == [key for key, _ in expected]
        assert list(self.db.values(**bounds)) == [value for _, value in expected]

    @rule(
        entries=st.dictionaries(KEYS, st.none() | VALUES, min_size=1, max_size=30),
        ranges=st.lists(st.tuples(KEYS, KEYS), max_size=2),
        move=st.booleans(),
    )
    def ingest(self, entries, ranges, move):
        path = self.dir + "/outside.sst"
        with terracedb.SstWriter(path) as writer:
            for key, value in sorted(entries.items()):
                if value is None:
                    del writer[key]
                else:
                    writer[key] = value
            for start, end in ranges:
                writer.delete_range(start, end)
        count = self.db.ingest([path], move=move)
        assert count >= len(entries)
        assert os.path.exists(path) != move
        if not move:
            os.remove(path)
        for start, end in ranges:
            for key in [key for key in self.model if start <= key < end]:
                del self.model[key]
        for key, value in entries.items():
            self.model.pop(key, None)
            if value is not None:
                self.model[key] = value

    @rule()
    def snapshot(self):
        self.snapshots.append((self.db.snapshot(), dict(self.model)))

    @rule()
    def flush(self):
        self.db.flush()

    @rule()
    def compact(self):
        self.db.compact()

    @rule()
    def close_and_open(self):
        self.db.close()
        self.snapshots.clear()
        self.reopen()

    @invariant()
    def snapshots_do_not_change(self):
        for snapshot, model in getattr(self, "snapshots", [])[-2:]:
            assert dict(snapshot.items()) == model

    def teardown(self):
        if hasattr(self, "db"):
            self.db.close()
            shutil.rmtree(self.dir)


Store.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestStore = Store.TestCase
