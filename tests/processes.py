"""Python in a process of its own, where nothing is imported and no session is active."""

import os
import subprocess
import sys


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python, and fail unless it exits with 0."""
    command, env = [sys.executable, *arguments], os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def start_python(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start Python with pipes for its input and output."""
    command, env, pipe = [sys.executable, *arguments], os.environ | environment, subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
