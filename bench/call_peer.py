"""A driver of one system that runs Python functions: `call_peer.py NAME WORKERS [ADDRESS TOKEN]`.

NAME is phalanx, ray or dask. All have so many worker processes, which are warm, and get the same function and items; a
run is from the first call to the last result in the driver.
"""

import json
import sys
import time


def small(number):
    return number + 1


def phalanx_driver(workers, address, token):
    import phalanx

    executor = phalanx.Executor(phalanx.Client(address, token), max_workers=workers, idle_s=3600.0)
    return lambda calls: list(executor.map(small, range(calls)))


def ray_driver(workers):
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(num_cpus=1)(small)
    return lambda calls: ray.get([remote.remote(number) for number in range(calls)])


def dask_driver(workers):
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)
    client = Client(cluster)
    return lambda calls: client.gather(client.map(small, range(calls), pure=False))


def timed(run, calls):
    began = time.perf_counter()
    results = run(calls)
    seconds = time.perf_counter() - began
    if results != list(range(1, calls + 1)):
        raise RuntimeError("a result is wrong")
    return seconds


def say(answer):
    print(json.dumps(answer), flush=True)


def main(name, workers, *words):
    drivers = {"phalanx": phalanx_driver, "ray": ray_driver, "dask": dask_driver}
    run = drivers[name](int(workers), *words)
    timed(run, 1000)
    say({})
    for line in sys.stdin:
        say({"seconds": timed(run, json.loads(line)["calls"])})


if __name__ == "__main__":
    main(*sys.argv[1:])
