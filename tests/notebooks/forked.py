"""Kernels for notebooks, forked from one process that has imported what notebooks import.

With the number of a listening socket this is that process. With a connection file it is what Jupyter takes
for the kernel: it asks the first for one, whose end is its own, and the other way round.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

# In the environment: the first process's socket; where the flights are made once for all notebooks; and
# whether the JVM has a Spark context that outlives a notebook.
SOCKET, FLIGHTS, KEPT = "KERNELS_SOCKET", "KERNELS_FLIGHTS", "KERNELS_KEEP_SPARK"


def ask_for_a_kernel(connection_file: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[SOCKET])
        request = {"file": connection_file, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(server, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
        kernel = int(server.recv(16))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(kernel, number))
        # As kernels do, it ends with Jupyter.
        jupyter = os.getppid()
        while os.getppid() == jupyter and not select.select([server], [], [], 1)[0]:
            pass


def serve(listener: socket.socket) -> None:
    """Fork a kernel for each that asks, until the standard input ends."""
    # As in any kernel, before matplotlib is imported.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    import delta.tables  # noqa: F401
    import deltalake  # noqa: F401
    import ipykernel.kernelapp  # noqa: F401
    import pandas as pd
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    import compaction_kit.widgets  # noqa: F401

    # What pandas finds when it is imported in a kernel, where the width isn't a terminal's.
    pd.options.display.max_columns = 20
    # Those that have ended aren't waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        asking, _ = listener.accept()
        with asking:
            if os.fork() == 0:
                listener.close()
                be_a_kernel(asking)


def be_a_kernel(asking: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, files, _, _ = socket.recv_fds(asking, 2**16, 3)
    while not text.endswith(b"\n"):
        text += asking.recv(2**16)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    request = json.loads(text)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    asking.sendall(str(os.getpid()).encode())
    threading.Thread(target=end_with, args=(asking,), daemon=True).start()

    import numpy as np
    from ipykernel.kernelapp import IPKernelApp

    from compaction_kit import datasets, reads

    np.random.seed()  # noqa: NPY002 - the global one, which was forked with the rest
    if FLIGHTS in os.environ:
        make, shared = datasets.flights, Path(os.environ[FLIGHTS])
        datasets.flights = lambda path, *_: str(shutil.copytree(made_once(make, shared), path))
    # A lesson's times are for its reader, who has them measured more often.
    measure = reads.measure_reads
    reads.measure_reads = lambda *known, **_: measure(*known[:5], repeats=1)  # type: ignore[misc]
    if KEPT in os.environ:
        attach()
    IPKernelApp.launch_instance(argv=["-f", request["file"]])
    os._exit(0)


def end_with(asking: socket.socket) -> NoReturn:
    asking.recv(1)
    os._exit(1)


def made_once(make: Callable[[Path], str], table: Path) -> Path:
    """A table that is made once for all processes."""
    with table.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return table if table.exists() else Path(make(table))


def attach() -> None:
    """Make the JVM's Spark context that of this process, which doesn't stop it."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    kept = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    kept.stop = lambda: None
    SparkContext(master=context.master(), appName=context.appName(), gateway=gateway, jsc=kept)


if __name__ == "__main__":
    # As for any kernel: no module of this folder's.
    del sys.path[0]
    if sys.argv[1].isdigit():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        ask_for_a_kernel(sys.argv[1])
