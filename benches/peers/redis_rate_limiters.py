"""PyPI's redis-rate-limiters, with an expiry of 10 s and its other settings as they come."""

import asyncio
import os
import sys
import time

from limiters import AsyncSemaphore
from redis.asyncio import Redis


def semaphore(connection, key, limit):
    return AsyncSemaphore(
        name=key, capacity=limit, max_sleep=60, expiry=10, connection=connection
    )


async def pairs(connection, key, tasks, seconds):
    start, count = time.monotonic(), 0

    async def work():
        nonlocal count
        while time.monotonic() - start < seconds:
            async with semaphore(connection, key, 1_000):
                pass
            count += 1

    await asyncio.gather(*(work() for _ in range(tasks)))
    print(round(count / (time.monotonic() - start)))


async def contend(connection, key):
    start, granted = time.monotonic(), [0.0] * 50

    async def contender(at):
        await asyncio.sleep(0.004 * at)
        async with semaphore(connection, key, 5):
            granted[at] = time.monotonic()
            await asyncio.sleep(0.1)
            return time.monotonic() - start

    ends = await asyncio.gather(*map(contender, range(50)))
    # Pairs that were granted in the opposite order of their arrival.
    inversions = sum(
        later < earlier
        for at, earlier in enumerate(granted)
        for later in granted[at + 1 :]
    )
    print(round(max(ends) * 1e3), inversions)


async def main(url, what, key, tasks="1", seconds="1"):
    connection = Redis.from_url(url)
    if what == "pairs":
        await pairs(connection, key, int(tasks), float(seconds))
    if what == "contend":
        await contend(connection, key)
    if what == "hold":
        async with semaphore(connection, key, 1):
            print("held", os.getpid(), flush=True)
            await asyncio.sleep(1e6)
    if what == "wait":
        start = time.monotonic()
        async with semaphore(connection, key, 1):
            print(f"{time.monotonic() - start:.1f}")


asyncio.run(main(*sys.argv[1:]))
