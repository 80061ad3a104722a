"""Generates a client from a running server's API description, and uses it.

Arguments: the server's URL and an empty directory. Prints `ok NAME` or `FAILED NAME: why` for each
check. The generator's warnings are failures: each is an operation, or an answer, that the client
would not have.
"""

import io
import json
import subprocess
import sys
import time
import traceback
import urllib.request
from pathlib import Path

URL = sys.argv[1]
DIR = Path(sys.argv[2])
HERE = Path(__file__).parent
LIMIT_S = 30


def document_is_valid():
    from openapi_spec_validator import validate

    with urllib.request.urlopen(URL + "/openapi.json", timeout=LIMIT_S) as response:
        text = response.read()
    (DIR / "openapi.json").write_bytes(text)
    validate(json.loads(text))


def client_is_generated():
    generated = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"),
            *("--path", DIR / "openapi.json", "--config", HERE / "config.yaml"),
            *("--output-path", DIR / "forebay_client", "--meta", "none"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert generated.returncode == 0, generated.stdout
    sys.path.insert(0, str(DIR))


CONTENT = bytes(range(256)) * 300


def client():
    from forebay_client import Client

    return Client(base_url=URL, raise_on_unexpected_status=True)


def file_is_put():
    from forebay_client.api.files import put_file
    from forebay_client.models import StoredFile, StoredFileStatus
    from forebay_client.types import File

    body = File(payload=io.BytesIO(CONTENT))
    answer = put_file.sync("plans", "a b/c.bin", client=client(), body=body, comment="x & y")
    assert isinstance(answer, StoredFile), answer
    assert answer.status == StoredFileStatus.STORED and not answer.replaced
    assert answer.namespace == "plans" and answer.name == "a b/c.bin"
    assert answer.size == len(CONTENT) and answer.comment == "x & y"


def files_are_listed():
    from forebay_client.api.files import list_files
    from forebay_client.models import FilePage

    page = list_files.sync(client=client(), namespace="plans", limit=10)
    assert isinstance(page, FilePage), page
    assert [file.name for file in page.files] == ["a b/c.bin"] and page.next_cursor is None


def file_is_read_back():
    from forebay_client.api.files import get_file_by_name

    answer = get_file_by_name.sync("plans", "a b/c.bin", client=client())
    assert answer.payload.read() == CONTENT


def errors_have_a_type():
    from forebay_client.api.files import get_file_by_name
    from forebay_client.models import Problem

    answer = get_file_by_name.sync_detailed("plans", "none", client=client())
    assert answer.status_code == 404 and isinstance(answer.parsed, Problem), answer
    assert answer.parsed.error.code == "not_found" and answer.parsed.error.request_id


def document_is_stored_and_read():
    from forebay_client.api.documents import list_documents, post_documents
    from forebay_client.models import DocumentPage, JsonObject, StoredDocuments

    body = JsonObject.from_dict({"id": 7, "tags": ["a"]})
    stored = post_documents.sync("orders", client=client(), body=body)
    assert isinstance(stored, StoredDocuments) and stored.accepted == 1, stored
    page = list_documents.sync("orders", client=client())
    assert isinstance(page, DocumentPage), page
    assert page.documents[0].document["id"] == 7


def inventory_is_built_and_paged():
    from forebay_client.api.inventories import (
        build_inventory,
        get_inventory_build,
        list_inventory_children,
    )
    from forebay_client.models import (
        InventoryBuild,
        InventoryBuildRequest,
        InventoryBuildState,
        InventoryPrefixPage,
    )

    request = InventoryBuildRequest(from_="forebay:blobs")
    build = build_inventory.sync("mine", client=client(), body=request)
    deadline = time.monotonic() + LIMIT_S
    while build.state == InventoryBuildState.RUNNING:
        assert time.monotonic() < deadline, build
        time.sleep(0.05)
        build = get_inventory_build.sync("mine", client=client())
    assert isinstance(build, InventoryBuild) and build.objects == 1, build
    page = list_inventory_children.sync("mine", client=client(), prefix="plans/", limit=5)
    assert isinstance(page, InventoryPrefixPage), page
    [child] = page.items
    assert (child.prefix, child.objects, child.bytes_) == ("plans/a b/", 1, len(CONTENT))
    assert page.total == 1 and page.next_ is None


def event_is_appended_and_found():
    from forebay_client.api.events import append_events, list_events
    from forebay_client.models import EventPage, EventReport, JsonObject

    body = JsonObject.from_dict({"message": "hello", "host": "web-1"})
    report = append_events.sync(client=client(), body=body)
    assert isinstance(report, EventReport) and report.accepted == 1, report
    page = list_events.sync(client=client(), limit=1)
    assert isinstance(page, EventPage) and page.events[0].id == report.first_id, page


def server_is_ready():
    from forebay_client.api.server import get_readiness
    from forebay_client.models import HealthState

    assert get_readiness.sync(client=client()).status == HealthState.READY


CHECKS = [
    document_is_valid,
    client_is_generated,
    file_is_put,
    files_are_listed,
    file_is_read_back,
    errors_have_a_type,
    document_is_stored_and_read,
    inventory_is_built_and_paged,
    event_is_appended_and_found,
    server_is_ready,
]

failed = False
for check in CHECKS:
    try:
        check()
        print("ok", check.__name__, flush=True)
    except Exception as error:
        failed = True
        print("FAILED", check.__name__, flush=True)
        traceback.print_exc(file=sys.stdout)
        # Without a client nothing else can be checked.
        if check is client_is_generated:
            break
sys.exit(failed)
