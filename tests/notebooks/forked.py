"""Fork kernels for notebooks from one process that has already imported the modules of notebooks.

With the number of a listening socket, this script is that process. With a connection file, Jupyter starts
it as the kernel: it asks the first process for a kernel, and each of the two ends when the other one ends.
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

# Environment variables: the first process's socket; the flights, which are made once for all notebooks; and
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
        # End with Jupyter, as kernels do.
        jupyter = os.getppid()
        while os.getppid() == jupyter and not select.select([server], [], [], 1)[0]:
            pass


def serve(listener: socket.socket) -> None:
    """Fork a kernel for each request, until the standard input ends."""
    # Kernels set this before matplotlib is imported.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    import delta.tables  # noqa: F401
    import deltalake  # noqa: F401
    import ipykernel.kernelapp  # noqa: F401
    import pandas as pd
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    import compaction_kit.widgets  # noqa: F401

    # The default of pandas when it is imported in a kernel, which isn't a terminal.
    pd.options.display.max_columns = 20
    # Let the system remove kernels that have ended, because nobody waits for them.
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
    # Measure once: the times in a lesson are for its readers, who measure more often.
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
    """Return a table that is made only once for all processes."""
    with table.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return table if table.exists() else Path(make(table))


def attach() -> None:
    """Use the JVM's Spark context in this process, which never stops it."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    kept = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    kept.stop = lambda: None
    SparkContext(master=context.master(), appName=context.appName(), gateway=gateway, jsc=kept)


if __name__ == "__main__":
    # Import no module from this folder, as in any kernel.
    del sys.path[0]
    if sys.argv[1].isdigit():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        ask_for_a_kernel(sys.argv[1])
