"""Sends what the description of a running server permits, and what it does not, to every operation.

Arguments: the server's URL and a directory for output. Prints `ok OPERATION` or `FAILED OPERATION` and why for each
operation that was tried. The requests are the same on every run.

An answer fails if its status is 5xx or not described, if its media type, a header or its JSON is not as described, if
a method that is not described is not refused with `Allow`, or if something can be used after it was deleted.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

URL = sys.argv[1]
DIR = Path(sys.argv[2])
HERE = Path(__file__).parent
# Requests that are drawn for each operation, beside those that try each of its parameters in turn.
EXAMPLES = 6
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "missing_required_header",
    "use_after_free",
    "ensure_resource_availability",
]
# Left out: positive_data_acceptance and negative_data_rejection. A description cannot say which names, cursors and
# conditions fit what is stored, so requests that match it are refused with 400 by right; and a request that is accepted as a
# job is judged when it runs.

report = DIR / "report.ndjson"
run = subprocess.run(
    [
        *(Path(sys.executable).with_name("schemathesis"), "run", URL + "/openapi.json"),
        *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"),
        *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
        *("--workers", "1", "--continue-on-failure"),
        *("--request-timeout", "10", "--no-color", "--warnings", "off"),
        *("--report-ndjson-path", report),
    ],
    env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)},
    cwd=DIR,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
(DIR / "schemathesis.log").write_text(run.stdout)

if not report.exists():
    sys.exit(run.stdout[-3000:])
tried, failures = set(), {}
for line in report.read_text().splitlines():
    [(kind, event)] = json.loads(line).items()
    if kind == "NonFatalError":
        failures.setdefault(event["label"], []).append(event["value"]["message"])
    if kind != "ScenarioFinished" or event["status"] == "skip":
        continue
    recorder = event["recorder"]
    tried.add(recorder["label"])
    for case, checks in recorder.get("checks", {}).items():
        for check in checks:
            if check["status"] == "failure":
                failure = check.get("failure_info", {})
                sent = recorder.get("interactions", {}).get(case, {}).get("request", {})
                text = f"{check['name']}: {json.dumps(failure)[:1500]}\n{json.dumps(sent)[:500]}"
                failures.setdefault(recorder["label"], []).append(text)
for label in sorted(tried | failures.keys()):
    if label in failures:
        print("FAILED", label)
        print("\n".join(failures[label][:3]))
    else:
        print("ok", label)
sys.exit(run.returncode)
