# Aggregates the objects of an inventory over all prefixes of their keys with DuckDB, and runs two
# queries. Arguments: the directory of the Parquet files, the file to write, a prefix to look up, and
# the method: `statement` is the obvious aggregation, each object counted at every prefix of its key, in
# its fastest wording (a list expression without `unnest` takes 3.4 seconds for either shape);
# `levels` is a program optimised by hand, directories first and then from each level to the one above it,
# which needs the least CPU time of all that were tried. With 2.0.0, seconds for two million
# objects, wide and narrow: 3.1 and 2.5, and 2.5 and 0.37.
import json, os, resource, sys, time
import duckdb

data, out, point, how = sys.argv[1:5]
CLASSES = ["STANDARD", "STANDARD_IA", "GLACIER", "GLACIER_IR", "DEEP_ARCHIVE"]


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(question, times=20):
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        rows = db.execute(question[0], question[1:]).fetchall()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[times // 2] * 1e3, rows


def levels():
    depth = "length(prefix) - length(replace(prefix, '/', ''))"
    db.execute(
        "CREATE TEMP TABLE dirs AS SELECT parse_dirpath(key, 'forward_slash') || '/' AS prefix, "
        f"count(*) AS objects, sum(size)::BIGINT AS bytes, {counts} "
        f"FROM read_parquet('{data}/*.parquet') GROUP BY 1"
    )
    shallowest, deepest = db.execute(f"SELECT min({depth}), max({depth}) FROM dirs").fetchone()
    for level in range(deepest, 0, -1):
        above = "''" if level == 1 else "parse_dirpath(left(prefix, length(prefix) - 1), 'forward_slash') || '/'"
        if level == deepest:
            below = "dirs" if shallowest == deepest else f"(FROM dirs WHERE {depth} = {level})"
        else:
            below = f"level_{level}"
            if shallowest <= level:
                below = f"(FROM dirs WHERE {depth} = {level} UNION ALL FROM level_{level})"
        db.execute(
            f"CREATE TEMP TABLE level_{level - 1} AS "
            f"SELECT {above} AS prefix, {sums} FROM {below} GROUP BY 1"
        )
    everything = " UNION ALL ".join(["FROM dirs"] + [f"FROM level_{i}" for i in range(deepest)])
    if shallowest < deepest:
        everything = f"SELECT prefix, {sums} FROM ({everything}) GROUP BY 1"
    db.execute(f"COPY (FROM ({everything}) ORDER BY prefix) TO '{out}' (FORMAT parquet)")


db = duckdb.connect()
started, before = time.perf_counter(), cpu()
# Drawn on standard output, which is for the figures.
db.execute("SET enable_progress_bar = false")
db.execute("SET threads = 2")
db.execute("SET memory_limit = '4GiB'")
db.execute("SET preserve_insertion_order = false")
counts = ", ".join(
    f"count(*) FILTER (storage_class = '{name}') AS objects_{i}, "
    f"coalesce(sum(size) FILTER (storage_class = '{name}'), 0)::BIGINT AS bytes_{i}"
    for i, name in enumerate(CLASSES)
)
names = ["objects", "bytes"] + [f"{what}_{i}" for i in range(5) for what in ("objects", "bytes")]
columns = ", ".join(names)
sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in names)
if how == "statement":
    above = "SELECT string_split(key, '/') AS parts, unnest(range(len(parts))) AS i, size, storage_class"
    db.execute(
        f"COPY (SELECT prefix, count(*) AS objects, sum(size)::BIGINT AS bytes, {counts} "
        "FROM (SELECT CASE WHEN i = 0 THEN '' ELSE array_to_string(parts[1:i], '/') || '/' END AS prefix, "
        f"size, storage_class FROM ({above} FROM read_parquet('{data}/*.parquet'))) "
        f"GROUP BY 1 ORDER BY prefix) TO '{out}' (FORMAT parquet)"
    )
else:
    levels()
found = {"cpu_s": cpu() - before, "wall_s": time.perf_counter() - started}
found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
found["prefixes"] = db.execute(f"SELECT count(*) FROM '{out}'").fetchone()[0]
found["point_ms"], rows = timed([f"FROM '{out}' WHERE prefix = ?", point])
assert [row[0] for row in rows] == [point], rows
found["top_ms"], rows = timed([f"SELECT prefix, bytes FROM '{out}' ORDER BY bytes DESC LIMIT 100"])
assert len(rows) == min(100, found["prefixes"])
root = db.execute(f"SELECT objects, bytes FROM '{out}' WHERE prefix = ''").fetchone()
found["objects"], found["bytes"] = root
print(json.dumps(found))
