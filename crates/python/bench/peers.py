"""Gets and puts per second of terracedb beside plyvel (LevelDB) and rocksdict (RocksDB), in one run.

    pip install plyvel rocksdict && python peers.py [KEYS] > result.json

Every store gets the same keys and values in the same order, uncompressed, and is measured in turns, another one first in
each round; the median of three counts. The data fit the memory of each; everything is merged before it is read, and what is
read has been read before. Each round has a directory of its own, which is removed.
"""

import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time

import plyvel
import rocksdict
import terracedb

ROUNDS = 3
VALUE_BYTES = 100
BATCH = 100
MEMORY = 256 << 20


class Terrace:
    name = f"terracedb {terracedb.__version__}"

    def __init__(self, path):
        self.db = terracedb.Db(path, memory_budget=MEMORY, compression="none")
        self.get, self.put = self.db.get, self.db.put

    def write(self, pairs):
        with self.db.batch() as batch:
            for key, value in pairs:
                batch.put(key, value)

    def scan(self):
        return self.db.items()

    def settle(self):
        self.db.compact()
        self.db.wait_idle()

    def close(self):
        self.db.close()


class Plyvel:
    name = f"plyvel {plyvel.__version__}"

    def __init__(self, path):
        options = dict(lru_cache_size=MEMORY * 3 // 4, write_buffer_size=MEMORY // 8, bloom_filter_bits=10)
        self.db = plyvel.DB(str(path), create_if_missing=True, compression=None, **options)
        self.get, self.put = self.db.get, self.db.put

    def write(self, pairs):
        with self.db.write_batch() as batch:
            for key, value in pairs:
                batch.put(key, value)

    def scan(self):
        return iter(self.db)

    def settle(self):
        self.db.compact_range()

    def close(self):
        self.db.close()


class Rocksdict:
    name = f"rocksdict {__import__('importlib.metadata').metadata.version('rocksdict')}"

    def __init__(self, path):
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(MEMORY // 8)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(MEMORY * 3 // 4))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.db = rocksdict.Rdict(str(path), options)
        self.get, self.put = self.db.get, self.db.put

    def write(self, pairs):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self.db.write(batch)

    def scan(self):
        return self.db.items()

    def settle(self):
        self.db.flush()
        self.db.compact_range(None, None)

    def close(self):
        self.db.close()


def per_second(count, work):
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def measure(engine, path, keys, order, values):
    """What one engine does in one round, in operations per second."""
    store, done = engine(path), {}

    def put():
        put = store.put
        for key, value in zip(keys, values):
            put(key, value)

    def get():
        get = store.get
        for key in order:
            value = get(key)
            if value is None or len(value) != VALUE_BYTES:
                raise AssertionError("a key is lost")

    def get_absent():
        get = store.get
        for key in order:
            if get(key + b"x") is not None:
                raise AssertionError("a key came from nowhere")

    def write():
        for at in range(0, len(keys), BATCH):
            store.write(list(zip(keys[at : at + BATCH], values[at : at + BATCH])))

    def scan():
        if sum(1 for _ in store.scan()) != len(keys):
            raise AssertionError("a scan lost keys")

    done["puts"] = per_second(len(keys), put)
    done["puts in batches of 100"] = per_second(len(keys), write)
    store.settle()
    get()
    done["gets, cached"] = per_second(len(order), get)
    done["gets of absent keys"] = per_second(len(order), get_absent)
    done["entries scanned"] = per_second(len(keys), scan)
    store.close()
    return done


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    draw = random.Random(1)
    keys = [b"key%012d" % at for at in range(count)]
    order = keys[:]
    draw.shuffle(keys)
    draw.shuffle(order)
    values = [draw.randbytes(VALUE_BYTES) for _ in keys]
    engines = [Terrace, Plyvel, Rocksdict]
    rounds = {}
    for turn in range(ROUNDS):
        first = turn % len(engines)
        for engine in engines[first:] + engines[:first]:
            path = tempfile.mkdtemp()
            os.sync()  # what the one before has left to write
            try:
                done = measure(engine, os.path.join(path, "store"), keys, order, values)
            finally:
                shutil.rmtree(path)
            for what, rate in done.items():
                rounds.setdefault(what, {}).setdefault(engine.name, []).append(round(rate))
    medians = {
        what: {name: round(statistics.median(rates)) for name, rates in engines.items()}
        for what, engines in rounds.items()
    }
    setting = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "keys": count,
        "value_bytes": VALUE_BYTES,
        "memory_bytes": MEMORY,
        "rounds": ROUNDS,
    }
    print(json.dumps({"setting": setting, "median_per_second": medians, "per_second": rounds}, indent=1))


if __name__ == "__main__":
    main()
