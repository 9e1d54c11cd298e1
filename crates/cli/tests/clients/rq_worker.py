"""rq's worker against a server, in burst mode: it takes jobs by LPOP until there are none, and blocks
nowhere. Jobs run in a child process each; what depends on another waits for it with WATCH and MULTI.

Usage: rq_worker.py PORT
"""

import sys

import redis
from rq import Queue, Worker
from rq.job import Job
from rq.registry import FinishedJobRegistry

JOBS = 20


def check(found, wanted):
    if found != wanted:
        raise SystemExit(f"{found!r}, not {wanted!r}")


def main():
    connection = redis.Redis(port=int(sys.argv[1]))
    high, low = (Queue(name, connection=connection) for name in ("high", "low"))
    sums = [low.enqueue("operator.add", number, 1) for number in range(JOBS)]
    failing = high.enqueue("operator.truediv", 1, 0)
    after = high.enqueue("operator.mul", 6, 7, depends_on=sums[-1])
    gone = low.enqueue("operator.neg", 1)
    gone.delete()
    check(after.get_status(), "deferred")
    check((low.count, high.count), (JOBS, 1))

    worker = Worker([high, low], connection=connection, name="the-worker")
    check(worker.work(burst=True, logging_level="ERROR"), True)

    for number, job in enumerate(sums):
        check((job.get_status(), job.result), ("finished", number + 1))
    check((after.get_status(), after.result), ("finished", 42))
    check(failing.get_status(), "failed")
    failing.refresh()
    check("ZeroDivisionError" in failing.exc_info, True)
    check((low.count, high.count), (0, 0))
    check(high.failed_job_registry.get_job_ids(), [failing.id])
    check(len(FinishedJobRegistry("low", connection=connection)), JOBS)
    check(Job.exists(gone.id, connection=connection), False)
    check(Worker.all(connection=connection), [])
    worker.refresh()
    check((worker.successful_job_count, worker.failed_job_count), (JOBS + 1, 1))
    print("all jobs done")


main()
