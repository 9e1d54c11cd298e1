"""The six core workloads of YCSB (Cooper et al., SoCC 2010, table 2) with the data model of its Redis
binding: a record is a hash of ten fields of 100 bytes, and the sorted set `_indices` has all records.

    ycsb.py PORT RECORDS OPERATIONS

Every value that is read is checked against what this program wrote last."""

import random
import sys
import time
import zlib

import redis

PORT, RECORDS, OPERATIONS = (int(argument) for argument in sys.argv[1:4])
FIELDS = 10
THETA = 0.99


class Zipfian:
    """Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994."""

    def __init__(self, count):
        self.count = count
        self.zeta = sum(1 / (i + 1) ** THETA for i in range(count))
        zeta2 = 1 + 0.5**THETA
        self.alpha = 1 / (1 - THETA)
        self.eta = (1 - (2 / count) ** (1 - THETA)) / (1 - zeta2 / self.zeta)

    def next(self):
        u = random.random()
        uz = u * self.zeta
        if uz < 1:
            return 0
        if uz < 1 + 0.5**THETA:
            return 1
        return int(self.count * (self.eta * u - self.eta + 1) ** self.alpha)


class Store:
    def __init__(self):
        self.r = redis.Redis(port=PORT)
        self.expected = {}
        self.count = 0

    @staticmethod
    def name(number):
        return f"user{zlib.crc32(str(number).encode()):010}{number}"

    def insert(self):
        name = self.name(self.count)
        record = {f"field{i}": random.randbytes(100) for i in range(FIELDS)}
        pipe = self.r.pipeline(transaction=False)
        pipe.hset(name, mapping=record)
        pipe.zadd("_indices", {name: zlib.crc32(name.encode())})
        pipe.execute()
        self.expected[name] = record
        self.count += 1

    def read(self, number):
        name = self.name(number)
        seen = {field.decode(): value for field, value in self.r.hgetall(name).items()}
        if seen != self.expected[name]:
            raise AssertionError(f"{name} is not as it was written")

    def update(self, number):
        name, field, value = self.name(number), f"field{random.randrange(FIELDS)}", random.randbytes(100)
        self.r.hset(name, field, value)
        self.expected[name][field] = value

    def scan(self, number):
        name = self.name(number)
        length = random.randint(1, 100)
        low = zlib.crc32(name.encode())
        names = self.r.zrangebyscore("_indices", low, "inf", start=0, num=length)
        if not names or zlib.crc32(names[0]) != low:
            raise AssertionError(f"the scan does not begin with {name}")
        for found in names[:3]:
            found = found.decode()
            seen = {f.decode(): v for f, v in self.r.hgetall(found).items()}
            if seen != self.expected[found]:
                raise AssertionError(f"{found} is not as it was written")


#            read  update insert scan  read-modify-write
WORKLOADS = {
    "a": (0.50, 0.50, 0.00, 0.00, 0.00),
    "b": (0.95, 0.05, 0.00, 0.00, 0.00),
    "c": (1.00, 0.00, 0.00, 0.00, 0.00),
    "d": (0.95, 0.00, 0.05, 0.00, 0.00),
    "e": (0.00, 0.00, 0.05, 0.95, 0.00),
    "f": (0.50, 0.00, 0.00, 0.00, 0.50),
}

random.seed(1)
store = Store()
store.r.flushall()
for _ in range(RECORDS):
    store.insert()
zipfian = Zipfian(RECORDS)
for workload, shares in WORKLOADS.items():
    start = time.perf_counter()
    for _ in range(OPERATIONS):
        operation = random.choices(range(5), shares)[0]
        rank = min(zipfian.next(), RECORDS - 1)
        # The latest records are the hot ones in d; elsewhere hot ones lie anywhere.
        number = store.count - 1 - rank if workload == "d" else zlib.crc32(str(rank).encode()) % RECORDS
        if operation == 0:
            store.read(number)
        elif operation == 1:
            store.update(number)
        elif operation == 2:
            store.insert()
        elif operation == 3:
            store.scan(number)
        else:
            store.read(number)
            store.update(number)
    rate = OPERATIONS / (time.perf_counter() - start)
    print(f"workload {workload}: {OPERATIONS} operations, {rate:.0f} a second")
