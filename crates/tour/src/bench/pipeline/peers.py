# Copies a table with one of several tools. Arguments: the tool, the table, the port of the server, a
# directory for its output. Prints the seconds, from the first call to the last, and the rows. The time to
# start Python and to load the tool is excluded.
import json
import os
import shutil
import subprocess
import sys
import time

tool, table, port, out = sys.argv[1:5]
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
source = f"postgresql://postgres:none@127.0.0.1:{port}/src"
target = f"postgresql://postgres:none@127.0.0.1:{port}/dst"


def count(query):
    import psycopg2

    with psycopg2.connect(target) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def dlt_copy():
    import dlt
    from dlt.sources.sql_database import sql_table

    pipeline = dlt.pipeline("bench", destination=dlt.destinations.postgres(target), dataset_name="dlt_bench",
                            pipelines_dir=out, dev_mode=False)
    begun = time.perf_counter()
    rows = sql_table(credentials=source.replace("postgresql:", "postgresql+psycopg2:"), table=table)
    pipeline.run(rows, write_disposition="replace")
    seconds = time.perf_counter() - begun
    return seconds, count(f"select count(*) from dlt_bench.{table}")


def sling_copy():
    import sling_linux_amd64

    program = os.path.join(os.path.dirname(sling_linux_amd64.__file__), "bin", "sling-linux-amd64")
    os.chmod(program, 0o755)
    env = dict(os.environ, SRC=source + "?sslmode=disable", DST=target + "?sslmode=disable", SLING_HOME_DIR=out,
               SLING_DISABLE_TELEMETRY="TRUE")
    begun = time.perf_counter()
    subprocess.run([program, "run", "--src-conn", "SRC", "--src-stream", f"public.{table}", "--tgt-conn", "DST",
                    "--tgt-object", f"public.sling_{table}", "--mode", "full-refresh"],
                   env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - begun
    return seconds, count(f"select count(*) from public.sling_{table}")


def parquet_rows():
    import pyarrow.parquet as pq

    return pq.read_metadata(os.path.join(out, "t.parquet")).num_rows


# ConnectorX reads in two parts, as intended.
def connectorx_copy():
    import connectorx as cx
    import pyarrow.parquet as pq

    begun = time.perf_counter()
    read = cx.read_sql(source, f"select * from {table}", return_type="arrow", partition_on="id", partition_num=2)
    pq.write_table(read, os.path.join(out, "t.parquet"), compression="snappy")
    seconds = time.perf_counter() - begun
    return seconds, parquet_rows()


def duckdb_copy():
    import duckdb
    from duckdb_extensions import import_extension

    import_extension("postgres_scanner")
    connection = duckdb.connect()
    connection.sql("load postgres_scanner")
    begun = time.perf_counter()
    connection.sql(f"attach '{source}' as pg (type postgres, read_only)")
    connection.sql(f"copy (select * from pg.public.{table}) to '{out}/t.parquet' (format parquet, compression snappy)")
    seconds = time.perf_counter() - begun
    return seconds, parquet_rows()


def adbc_copy():
    import adbc_driver_postgresql.dbapi as adbc
    import pyarrow.parquet as pq

    begun = time.perf_counter()
    with adbc.connect(source) as connection, connection.cursor() as cursor:
        cursor.execute(f"select * from {table}")
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(os.path.join(out, "t.parquet"), reader.schema, compression="snappy") as writer:
            for batch in reader:
                writer.write_batch(batch)
    seconds = time.perf_counter() - begun
    return seconds, parquet_rows()


tools = {"dlt": dlt_copy, "sling": sling_copy, "connectorx": connectorx_copy, "duckdb": duckdb_copy, "adbc": adbc_copy}
seconds, rows = tools[tool]()
print(json.dumps({"seconds": seconds, "rows": rows}))
