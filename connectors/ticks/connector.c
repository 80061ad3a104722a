// A source for pipelines of Forebay. `wit/connector.wit` describes every function and type; `bindings/` is made of it.
//
// As it is, it has one stream, `ticks`: the seconds since 2000-01-01, as many as the setting `rows` says. Replace
// COLUMNS, SCHEMA, settings_of, discover and append by yours.
//
// What is passed to a function belongs to it and is freed by it; what is returned is allocated by malloc, and freed by
// the bindings. A constant text is no such memory: `text` copies it. There is no clock, no file and no network of C in
// a component: the functions of `host` and `sockets` in the bindings are in their place.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source_connector.h"

#define SOURCE(name) exports_forebay_connector_source_##name
#define TYPE(name) forebay_connector_types_##name

typedef source_connector_string_t string;
typedef SOURCE(error_t) error;

static const char SCHEMA[] =
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {"
    "\"rows\": {\"type\": \"integer\", \"minimum\": 0, \"description\": \"Number of rows.\"},"
    "\"rows_per_unit\": {\"type\": \"integer\", \"minimum\": 1, \"description\": \"Number of rows of a unit.\"}}}";

enum { ID, AT, NAME, COLUMN_COUNT };
static const struct {
  const char *name, *sql_type, *wire;
} COLUMNS[COLUMN_COUNT] = {
    [ID] = {"id", "bigint", "int8"},
    [AT] = {"at", "timestamp with time zone", "timestamptz"},
    [NAME] = {"name", "text", "text"},
};

// Rows of a batch, and the most bytes of one value.
enum { BATCH_ROWS = 4096, VALUE_MAX = 32 };
// Numbers have at most 18 digits, so that sums of two of them are numbers.
static const int64_t NUMBER_MAX = 999999999999999999;

struct settings {
  int64_t rows, rows_per_unit;
};
// The first and the last number of a unit.
struct bounds {
  int64_t first, last;
};
// The stream of this instance.
static struct {
  struct bounds *units;
  size_t unit_count;
  uint8_t *columns;
  size_t column_count;
} stream;

// Memory, or the end of this instance: the host reports it.
static void *memory(size_t count, size_t size) {
  void *found = calloc(count ? count : 1, size);
  if (!found) abort();
  return found;
}

static string text(const char *from) {
  string made;
  source_connector_string_dup(&made, from);
  return made;
}

static string numbered(const char *format, int64_t a, int64_t b) {
  char made[96];
  snprintf(made, sizeof made, format, a, b);
  return text(made);
}

static bool is(string found, const char *wanted) {
  return found.len == strlen(wanted) && memcmp(found.ptr, wanted, found.len) == 0;
}

// A number of up to 18 digits; false if it is none.
static bool number(string from, int64_t *to) {
  if (from.len == 0 || from.len > 18) return false;
  for (*to = 0; from.len > 0; from.ptr++, from.len--) {
    if (*from.ptr < '0' || *from.ptr > '9') return false;
    *to = *to * 10 + (*from.ptr - '0');
  }
  return true;
}

// The error of a request that cannot be served. Nothing of it is stored. Returns false, as what failed does.
static bool unsupported(error *err, string what, const char *way_out) {
  err->failure.tag = FOREBAY_CONNECTOR_TYPES_FAILURE_UNSUPPORTED;
  err->failure.val.unsupported.what = what;
  err->failure.val.unsupported.way_out = text(way_out);
  err->committed = FOREBAY_CONNECTOR_TYPES_COMMITTED_NO;
  return false;
}

static void skip(string *json) {
  while (json->len > 0 && memchr(" \t\r\n", *json->ptr, 4)) json->ptr++, json->len--;
}

static bool take(string *json, uint8_t wanted) {
  skip(json);
  if (json->len == 0 || *json->ptr != wanted) return false;
  json->ptr++, json->len--;
  return true;
}

// Takes what is before the first of these bytes.
static string until(string *json, const char *ends) {
  string taken = {json->ptr, 0};
  while (taken.len < json->len && !memchr(ends, taken.ptr[taken.len], strlen(ends))) taken.len++;
  json->ptr += taken.len, json->len -= taken.len;
  return taken;
}

// Reads the settings: an object of numbers. A wrong one is reported with its name; false then.
static bool settings_of(string json, struct settings *to, string *field, string *found) {
  *to = (struct settings){.rows = 1000, .rows_per_unit = 100000};
  source_connector_string_dup(field, "");
  if (!take(&json, '{')) return *found = text("the settings are not an object"), false;
  if (take(&json, '}')) return true;
  do {
    if (!take(&json, '"')) return *found = text("the settings are not an object"), false;
    string name = until(&json, "\"");
    int64_t *setting = is(name, "rows") ? &to->rows : is(name, "rows_per_unit") ? &to->rows_per_unit : NULL;
    source_connector_string_dup_n(field, (const char *)name.ptr, name.len);
    if (!setting) return *found = text("there is no such setting"), false;
    if (!take(&json, '"') || !take(&json, ':')) return *found = text("it has no value"), false;
    skip(&json);
    string value = until(&json, " \t\r\n,}");
    if (!number(value, setting) || (setting == &to->rows_per_unit && *setting == 0))
      return *found = text("it is not a number of rows"), false;
  } while (take(&json, ','));
  return take(&json, '}') || (*found = text("the settings are not an object"), false);
}

// Settings that were checked before.
static bool checked(string config, struct settings *to, error *err) {
  string field, found;
  return settings_of(config, to, &field, &found) || unsupported(err, found, "correct the settings");
}

// Remembers the columns that the pipeline wants: all of them if it names none.
static bool choose(const SOURCE(stream_settings_t) * wanted, error *err) {
  if (!is(wanted->name, "ticks")) return unsupported(err, text("there is no such stream"), "the only one is `ticks`");
  bool all = wanted->columns.len == 0;
  stream.column_count = all ? COLUMN_COUNT : wanted->columns.len;
  stream.columns = memory(stream.column_count, 1);
  for (size_t at = 0; at < stream.column_count; at++) {
    uint8_t column = all ? at : 0;
    while (!all && column < COLUMN_COUNT && !is(wanted->columns.ptr[at], COLUMNS[column].name)) column++;
    if (column == COLUMN_COUNT) return unsupported(err, text("there is no such column"), "correct `columns`");
    stream.columns[at] = column;
  }
  return true;
}

void SOURCE(spec)(SOURCE(component_spec_t) * ret) {
  ret->version = text("0.1.0");
  ret->description = text("Seconds as rows: a source in C.");
  ret->settings = text(SCHEMA);
}

bool SOURCE(validate)(string *config, SOURCE(reach_t) * ret, SOURCE(invalid_setting_t) * err) {
  struct settings settings;
  // The servers and files that the settings name: none.
  *ret = (SOURCE(reach_t)){0};
  return settings_of(*config, &settings, &err->field, &err->found);
}

bool SOURCE(check)(string *config, string *ret, error *err) {
  struct settings settings;
  if (!checked(*config, &settings, err)) return false;
  *ret = numbered("%" PRId64 " rows", settings.rows, 0);
  return true;
}

bool SOURCE(discover)(string *config, SOURCE(list_discovered_t) * ret, error *err) {
  struct settings settings;
  if (!checked(*config, &settings, err)) return false;
  SOURCE(discovered_t) *found = memory(1, sizeof *found);
  found->name = text("ticks");
  found->columns.len = COLUMN_COUNT;
  found->columns.ptr = memory(COLUMN_COUNT, sizeof *found->columns.ptr);
  for (size_t at = 0; at < COLUMN_COUNT; at++) {
    found->columns.ptr[at].name = text(COLUMNS[at].name);
    found->columns.ptr[at].sql_type = text(COLUMNS[at].sql_type);
  }
  found->primary_key.len = 1;
  found->primary_key.ptr = memory(1, sizeof *found->primary_key.ptr);
  *found->primary_key.ptr = text("id");
  found->rows = (source_connector_option_u64_t){true, settings.rows};
  *ret = (SOURCE(list_discovered_t)){found, 1};
  return true;
}

bool SOURCE(place)(string *config, SOURCE(stream_settings_t) * wanted, source_connector_option_string_t *ret,
                   error *err) {
  (void)config, (void)wanted, (void)err;
  ret->is_some = false;
  return true;
}

// The first and the last number of a recorded unit; false if its name has others.
static bool recorded(const TYPE(unit_t) * unit, struct bounds *to) {
  if (!unit->from.is_some || !unit->to.is_some) return false;
  if (!number(unit->from.val, &to->first) || !number(unit->to.val, &to->last)) return false;
  string name = numbered("%" PRId64 "..%" PRId64, to->first, to->last);
  bool same = name.len == unit->name.len && memcmp(name.ptr, unit->name.ptr, name.len) == 0;
  source_connector_string_free(&name);
  return same;
}

// Remembers the units from `first` on: those of an unfinished load, or new ones, at least one.
static bool divide(const SOURCE(division_t) * division, int64_t first, struct settings settings, error *err) {
  int64_t each = settings.rows_per_unit, rows = settings.rows - first + 1;
  if (division->tag == EXPORTS_FOREBAY_CONNECTOR_SOURCE_DIVISION_WHOLE || rows < 1) each = NUMBER_MAX;
  bool again = division->tag == EXPORTS_FOREBAY_CONNECTOR_SOURCE_DIVISION_RECORDED;
  stream.unit_count = again ? division->val.recorded.len : rows < 1 ? 1 : (rows - 1) / each + 1;
  stream.units = memory(stream.unit_count, sizeof *stream.units);
  for (size_t at = 0; at < stream.unit_count; at++) {
    struct bounds *unit = &stream.units[at];
    if (again && !recorded(&division->val.recorded.ptr[at], unit))
      return unsupported(err, text("there is no such unit"), "run with `--from-scratch`");
    if (again) continue;
    unit->first = first + (int64_t)at * each;
    unit->last = settings.rows - unit->first < each ? settings.rows : unit->first + each - 1;
  }
  return true;
}

bool SOURCE(open)(string *config, SOURCE(stream_settings_t) * wanted, SOURCE(opening_t) * opening,
                  SOURCE(opened_t) * ret, error *err) {
  struct settings settings;
  int64_t since = 0;
  if (!checked(*config, &settings, err) || !choose(wanted, err)) return false;
  if (opening->since.is_some && !number(opening->since.val.value, &since))
    return unsupported(err, text("the cursor is not a number"), "run with `--from-scratch`");
  if (!divide(&opening->division, since + 1, settings, err)) return false;

  *ret = (SOURCE(opened_t)){.units_are_stable = true};
  // Another instance reads the same rows with the handle. Without one, this instance reads all units.
  ret->handle.len = stream.unit_count * sizeof *stream.units;
  ret->handle.ptr = memory(ret->handle.len, 1);
  memcpy(ret->handle.ptr, stream.units, ret->handle.len);
  ret->columns.len = stream.column_count;
  ret->columns.ptr = memory(stream.column_count, sizeof *ret->columns.ptr);
  for (size_t at = 0; at < stream.column_count; at++) {
    uint8_t column = stream.columns[at];
    ret->columns.ptr[at].name = text(COLUMNS[column].name);
    ret->columns.ptr[at].sql_type = text(COLUMNS[column].sql_type);
    ret->columns.ptr[at].wire = text(COLUMNS[column].wire);
  }
  ret->units.len = stream.unit_count;
  ret->units.ptr = memory(stream.unit_count, sizeof *ret->units.ptr);
  for (size_t at = 0; at < stream.unit_count; at++) {
    struct bounds unit = stream.units[at];
    TYPE(unit_t) *made = &ret->units.ptr[at];
    made->name = numbered("%" PRId64 "..%" PRId64, unit.first, unit.last);
    made->from = (source_connector_option_string_t){true, numbered("%" PRId64, unit.first, 0)};
    made->to = (source_connector_option_string_t){true, numbered("%" PRId64, unit.last, 0)};
    made->rows = (source_connector_option_u64_t){true, unit.last - unit.first + 1};
  }
  ret->cursor.is_some = true;
  ret->cursor.val.value = numbered("%" PRId64, settings.rows, 0);
  return true;
}

bool SOURCE(attach)(string *config, SOURCE(stream_settings_t) * wanted, source_connector_list_u8_t *handle,
                    error *err) {
  (void)config;
  stream.unit_count = handle->len / sizeof *stream.units;
  stream.units = memory(stream.unit_count, sizeof *stream.units);
  memcpy(stream.units, handle->ptr, stream.unit_count * sizeof *stream.units);
  return choose(wanted, err);
}

static size_t big_endian(uint8_t *to, uint64_t value, size_t size) {
  for (size_t at = 0; at < size; at++) to[at] = value >> 8 * (size - 1 - at);
  return size;
}

// Writes a row as a tuple of binary COPY: the number of fields, then length and bytes of each. Records of Arrow IPC are
// the other form of rows. Returns the number of bytes.
static size_t append(uint8_t *to, int64_t row) {
  size_t size = big_endian(to, stream.column_count, 2);
  for (size_t at = 0; at < stream.column_count; at++) {
    char name[VALUE_MAX];
    size_t length = 8;
    uint8_t *value = to + size + 4;
    switch (stream.columns[at]) {
      case ID: big_endian(value, row, 8); break;
      // Microseconds since 2000-01-01.
      case AT: big_endian(value, row * 1000000, 8); break;
      default: length = snprintf(name, sizeof name, "tick %" PRId64, row), memcpy(value, name, length);
    }
    size += big_endian(to + size, length, 4) + length;
  }
  return size;
}

bool SOURCE(read)(uint32_t unit, error *err) {
  if (unit >= stream.unit_count) return unsupported(err, text("there is no such unit"), "open the stream first");
  struct bounds bounds = stream.units[unit];
  uint8_t *tuples = memory(BATCH_ROWS, 2 + stream.column_count * (4 + VALUE_MAX));
  forebay_connector_outlet_list_dead_row_t dead = {NULL, 0};
  bool sent = true;
  while (sent && bounds.first <= bounds.last) {
    size_t size = 0;
    for (int row = 0; row < BATCH_ROWS && bounds.first <= bounds.last; row++) size += append(tuples + size, bounds.first++);
    forebay_connector_outlet_rows_t rows = {.tag = FOREBAY_CONNECTOR_TYPES_ROWS_TUPLES};
    rows.val.tuples = (source_connector_list_u8_t){tuples, size};
    sent = forebay_connector_outlet_send(&rows, &dead, err);
  }
  free(tuples);
  return sent;
}
