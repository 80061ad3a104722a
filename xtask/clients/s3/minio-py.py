"""Runs the functional tests of MinIO's client for Python, which stop at the first that fails.

usage: minio-py.py DIRECTORY
"""

import importlib
import sys

sys.path.insert(0, sys.argv[1])
tests = importlib.import_module("tests")
call_test = tests._call_test


def call_each(func, *args, **kwargs):
    try:
        call_test(func, *args, **kwargs)
    except tests.TestFailed:
        pass  # Its line says so.


tests._call_test = call_each
tests.main()
