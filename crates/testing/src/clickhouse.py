"""ClickHouse's engine behind its HTTP interface, for tests.

The engine is chdb: the code of a ClickHouse server as a library, with its parser, types, formats, MergeTree tables,
system tables and merges, on a data directory that survives a SIGKILL of this process. Statements, settings, errors and
their codes are the engine's own. INSERT is executed as the server does: blocks, squashing, parts.

What is *not* ClickHouse's is the HTTP interface, of which this file has the part that a client of inserts and queries
uses, after https://clickhouse.com/docs/interfaces/http:
  * POST with the statement in the parameter `query`, in the body, or begun in the one and continued in the other; GET /ping
  * the parameter `database`; every other parameter is a setting of this request
  * X-ClickHouse-User and X-ClickHouse-Key, compared with the one user of this server
  * bodies with Content-Length or in chunks, and Content-Encoding zstd or gzip; an incomplete body executes nothing
  * errors as text, with X-ClickHouse-Exception-Code and the status that the server has for the code
Answers are complete before they are sent, as with wait_end_of_query=1, so an error in the middle of an answer does not
occur. The rows of an INSERT reach the engine through a file: `input('...')` becomes `file(...)`, and `INSERT ... FORMAT`
becomes `FROM INFILE`. There are no quotas, grants, replicas, query ids or sessions.

Usage: clickhouse.py DIRECTORY PORT [CERTIFICATE KEY], with USER and PASSWORD in the environment.
"""

import http.server
import os
import re
import ssl
import sys
import tempfile
import urllib.parse

import chdb
import pyarrow

DIRECTORY, PORT = sys.argv[1], int(sys.argv[2])
USER, PASSWORD = os.environ["USER"], os.environ["PASSWORD"]
# Parameters of the interface that are no settings.
NO_SETTINGS = {"query", "database", "query_id", "wait_end_of_query", "default_format", "buffer_size"}
# As exceptionCodeToHTTPStatus in the server.
STATUS = {194: 401, 192: 403, 193: 403, 516: 403, 497: 403, 60: 404, 81: 404, 62: 400, 36: 400, 159: 408, 202: 503}
STRING = r"'(?:[^'\\]|\\.|'')*'"
INPUT = re.compile(r"\binput\((" + STRING + r")\)(.*?)\s+FORMAT\s+(\w+)\s*$", re.S)
FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$", re.S)
# The first connection owns the engine; it ends with the process.
ENGINE = chdb.connect(os.path.join(DIRECTORY, "data"))


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def literal(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def execute(connection, sql):
    try:
        answer = connection.query(sql, "TabSeparated")
        return answer.bytes() if answer is not None else b""
    except Exception as error:
        found = re.search(r"Code: (\d+)", str(error))
        raise Refused(int(found.group(1)) if found else 1001, str(error)) from error


def answer(parameters, body):
    """The answer to one request."""
    sql = parameters.get("query", "")
    path = None
    if not sql and re.match(rb"\s*INSERT\b.*\bFORMAT\s+\w+[ \t]*\n", body[:1 << 24], re.I | re.S):
        # The rows follow the line with the statement.
        head, body = body.split(b"\n", 1)
        sql = head.decode()
    if re.match(r"\s*INSERT\b", sql, re.I) and FORMAT.search(sql):
        file, path = tempfile.mkstemp(dir=DIRECTORY, prefix="rows-")
        with os.fdopen(file, "wb") as rows:
            rows.write(body)
        if INPUT.search(sql):
            of = lambda found: f"file({literal(path)}, '{found[3]}', {found[1]}){found[2]}"
            sql = INPUT.sub(of, sql)
        else:
            sql = FORMAT.sub(lambda found: f" FROM INFILE {literal(path)} FORMAT {found[1]}", sql)
    else:
        sql = sql + ("\n" if sql else "") + body.decode()
    connection = chdb.connect(os.path.join(DIRECTORY, "data"))
    try:
        if "database" in parameters:
            execute(connection, "USE `" + parameters["database"].replace("\\", "\\\\").replace("`", "\\`") + "`")
        settings = [name for name in parameters if name not in NO_SETTINGS]
        for name in settings:
            if not re.fullmatch(r"\w+", name):
                raise Refused(115, f"Code: 115. DB::Exception: Unknown setting {name!r}. (UNKNOWN_SETTING)")
        if settings:
            values = ", ".join(f"{name} = {literal(parameters[name])}" for name in settings)
            execute(connection, f"SET {values}")
        return execute(connection, sql)
    finally:
        connection.close()
        if path:
            os.remove(path)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def complete_body(self):
        """The body; None if it is incomplete."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size)
            return body if len(body) == size else None
        body = b""
        while True:
            head = self.rfile.readline()
            if not head.endswith(b"\n"):
                return None
            size = int(head.split(b";")[0], 16)
            chunk = self.rfile.read(size + 2)
            if len(chunk) != size + 2:
                return None
            if size == 0:
                return body
            body += chunk[:size]

    def reply(self, status, body, code=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        if code is not None:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, b"Ok.\n")

    def do_POST(self):
        body = self.complete_body()
        if body is None:
            self.close_connection = True
            return
        try:
            given = (self.headers.get("X-ClickHouse-User", "default"), self.headers.get("X-ClickHouse-Key", ""))
            if given != (USER, PASSWORD):
                raise Refused(516, f"Code: 516. DB::Exception: {given[0]}: Authentication failed: password is incorrect, "
                              "or there is no user with such name. (AUTHENTICATION_FAILED)")
            encoding = self.headers.get("Content-Encoding", "")
            if encoding:
                body = pyarrow.input_stream(pyarrow.BufferReader(body), compression=encoding).read()
            query = urllib.parse.urlsplit(self.path).query
            parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
            self.reply(200, answer(parameters, body))
        except Refused as refused:
            text = str(refused).rstrip() + " (version " + chdb.engine_version + " (official build))\n"
            self.reply(STATUS.get(refused.code, 500), text.encode(), refused.code)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


server = Server(("127.0.0.1", PORT), Handler)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
open(os.path.join(DIRECTORY, "ready"), "w").close()
server.serve_forever()
