"""Measure the latency of the explorer with many concurrent users.

    python benchmarks/explorer.py RUN [--users 50] [--seconds 20] [--pause 1.0]

The program starts `regard show RUN` in one process and all users in another process. Each user submits an
input, waits for the answer, pauses, and submits the next input. `--pause` is the mean pause in seconds. Every
fourth request disables a head. The program prints the number of answers and their latencies.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from typing import Any

import httpx


async def user(client: httpx.AsyncClient, seed: int, until: float, pause: float, layers: list[str]) -> list[float]:
    """Send requests until the time is over; return the seconds of each answer."""
    draw, latencies = random.Random(seed), []
    await asyncio.sleep(draw.random() * max(pause, 0.1))
    while time.perf_counter() < until:
        body: dict[str, Any] = {"seed": draw.randrange(10**6)}
        if draw.random() < 0.25:
            body["interventions"] = [{"layer": draw.choice(layers), "heads": [0]}]
        began = time.perf_counter()
        response = await client.post("/api/attend", json=body)
        latencies.append(time.perf_counter() - began)
        response.raise_for_status()
        if pause:
            await asyncio.sleep(draw.expovariate(1 / pause))
    return latencies


async def load(address: str, users: int, seconds: float, pause: float) -> list[float]:
    """Run all users, and return the latencies of all answers."""
    limits = httpx.Limits(max_connections=users, max_keepalive_connections=users)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        first = await client.post("/api/attend", json={"seed": 0})
        layers = [layer["name"] for layer in first.json()["map"]["layers"]]
        until = time.perf_counter() + seconds
        by_user = await asyncio.gather(*(user(client, seed, until, pause, layers) for seed in range(users)))
    return [latency for latencies in by_user for latency in latencies]


def main() -> None:
    """Start the explorer, run the users, and print the latencies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a run, or name of a task under --savepath")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pause", type=float, default=1.0, help="mean time between two requests of a user, in seconds")
    parser.add_argument("--savepath", default="models")
    args = parser.parse_args()
    command = [sys.executable, "-m", "regard", "show", args.run, "--savepath", args.savepath, "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None, "the explorer did not start"
        latencies = asyncio.run(load(address[0], args.users, args.seconds, args.pause))
    finally:
        server.terminate()
        server.wait()
    cuts = statistics.quantiles(latencies, n=100)
    figures = {
        "users": args.users,
        "pause": args.pause,
        "answers": len(latencies),
        "answers per second": round(len(latencies) / args.seconds, 1),
        "median ms": round(1000 * cuts[49], 1),
        "95 % ms": round(1000 * cuts[94], 1),
        "99 % ms": round(1000 * cuts[98], 1),
        "longest ms": round(1000 * max(latencies), 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
