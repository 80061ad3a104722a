//! The promises of a [`RowSink`].

use std::collections::BTreeMap;

use super::{Case, Failure, ReadRow, RowSubject, equal, plain_number, refused};
use crate::column::{ColumnType, Value};
use crate::error::SinkError;
use crate::name::PATH_LEN_MAX;
use crate::schema::{COLUMNS_MAX, Field, Refusal};
use crate::sink::{Derive, Document, Position, RowSink, Written};

type RowCase = Case<dyn RowSubject>;

/// What every [`RowSink`] promises.
pub const ROW_CASES: &[RowCase] = &[
    Case { claim: "values and documents come back", run: values_come_back },
    Case { claim: "fields are added as they appear", run: fields_are_added },
    Case { claim: "what does not fit is NULL and counted", run: conflicts_are_null },
    Case { claim: "no digit is lost", run: no_digit_is_lost },
    Case { claim: "no key is SQL", run: no_key_is_sql },
    Case { claim: "fields beyond the limits are named", run: limits_are_named },
    Case { claim: "documents and rows share a namespace", run: both_kinds_share },
    Case { claim: "a writer dropped takes its transaction along", run: dropping_fails },
    Case { claim: "rows are not written twice", run: rows_are_not_doubled },
    Case { claim: "a roll-back takes new columns along", run: columns_roll_back },
    Case { claim: "reshaped columns hold what the documents say", run: reshaping_fills_rows },
    Case { claim: "an uncommitted reshaping never happened", run: reshaping_rolls_back },
    Case { claim: "what was left out is added at the same position", run: amending_adds },
];

const fn field(path: &str, ty: ColumnType) -> Field<'_> {
    Field { path, ty }
}

fn write(
    sink: &mut dyn RowSink,
    at: u64,
    fields: &[Field<'_>],
    values: &[Value<'_>],
) -> Result<Written, SinkError> {
    let mut writer = sink.row_writer(Position(at), "t", fields)?;
    writer.write(&Document { id: at, received_ms: 7, raw: b"{\"whole\":1}" }, values)?;
    writer.finish()
}

fn values(row: &ReadRow) -> Vec<(&str, &str)> {
    row.values.iter().map(|(path, value)| (path.as_str(), value.as_str())).collect()
}

/// With the decimals, which are in `d`, in one notation.
fn plain(mut row: ReadRow) -> ReadRow {
    if let Some(number) = row.values.get_mut("d") {
        *number = plain_number(number);
    }
    row
}

fn values_come_back(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let fields = [
        field("yes", ColumnType::Boolean),
        field("n", ColumnType::Integer),
        field("x", ColumnType::Real),
        field("d", ColumnType::Decimal),
        field("s", ColumnType::Text),
        field("b", ColumnType::Bytes),
        field("j", ColumnType::Json),
        field("nothing", ColumnType::Text),
    ];
    let given = [
        Value::Boolean(true),
        Value::Integer(i64::MIN),
        Value::Real(-0.25),
        Value::Number("1e400"),
        Value::Text("nul \0, quote \" and \u{1f980}"),
        Value::Bytes(&[0, 255]),
        Value::Json("{ \"a\": [1] }"),
        Value::Null,
    ];
    let written = write(&mut *sink, 1, &fields, &given)?;
    let conflicts = u64::from(!place.keeps_nul());
    equal("written", written, Written { rows: 1, conflicts, ..Written::default() })?;
    sink.commit(Position(1))?;
    let expected = [
        ("yes", "1"),
        ("n", "-9223372036854775808"),
        ("x", "-0.25"),
        ("d", "1e400"),
        ("s", "nul \0, quote \" and \u{1f980}"),
        ("b", "00ff"),
        ("j", "{ \"a\": [1] }"),
    ];
    let values: BTreeMap<String, String> = expected
        .into_iter()
        .filter(|(path, _)| place.keeps_nul() || *path != "s")
        .map(|(path, value)| (path.to_owned(), value.to_owned()))
        .collect();
    let document = Some(b"{\"whole\":1}".to_vec());
    let rows: Vec<ReadRow> = place.read("t")?.into_iter().map(plain).collect();
    equal("rows", rows, vec![plain(ReadRow { id: 1, received_ms: 7, document, values })])
}

fn fields_are_added(place: &dyn RowSubject) -> Result<(), Failure> {
    let (a, b) = (field("a", ColumnType::Integer), field("b", ColumnType::Text));
    let c = field("c", ColumnType::Boolean);
    let mut sink = place.open()?;
    write(&mut *sink, 1, &[a], &[Value::Integer(1)])?;
    write(&mut *sink, 2, &[b, a], &[Value::Text("two"), Value::Integer(2)])?;
    sink.commit(Position(2))?;
    drop(sink);
    let mut sink = place.open()?;
    write(&mut *sink, 3, &[c, b], &[Value::Boolean(false), Value::Text("three")])?;
    write(&mut *sink, 4, &[], &[])?;
    sink.commit(Position(4))?;
    let rows = place.read("t")?;
    let found: Vec<_> = rows.iter().map(values).collect();
    let expected: [&[(&str, &str)]; 4] =
        [&[("a", "1")], &[("a", "2"), ("b", "two")], &[("b", "three"), ("c", "0")], &[]];
    equal("values", found, expected.map(<[_]>::to_vec).to_vec())
}

fn conflicts_are_null(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let fields = [
        field("yes", ColumnType::Boolean),
        field("n", ColumnType::Integer),
        field("x", ColumnType::Real),
        field("s", ColumnType::Text),
        field("d", ColumnType::Decimal),
    ];
    let given = [
        [
            Value::Integer(1),
            Value::Number("1.0"),
            Value::Text("1"),
            Value::Number("1"),
            Value::Null,
        ],
        [
            Value::Text("true"),
            Value::Number("9223372036854775808"),
            Value::Number("1e400"),
            Value::Boolean(true),
            Value::Text("1.5"),
        ],
        [
            Value::Json("{}"),
            Value::Real(1.0),
            Value::Number("9007199254740993"),
            Value::Json("[]"),
            Value::Boolean(false),
        ],
    ];
    for (at, values) in (1..).zip(&given) {
        let written = write(&mut *sink, at, &fields, values)?;
        equal("conflicts", written.conflicts, if at == 1 { 4 } else { 5 })?;
    }
    // The type asked for now does not matter once there is a column.
    let other = [field("n", ColumnType::Text)];
    equal("conflicts", write(&mut *sink, 4, &other, &[Value::Text("x")])?.conflicts, 1)?;
    sink.commit(Position(4))?;
    for row in place.read("t")? {
        equal("values", values(&row), vec![])?;
        equal("document", row.document.as_deref(), Some(&b"{\"whole\":1}"[..]))?;
    }
    Ok(())
}

fn no_digit_is_lost(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let fields = [
        field("n", ColumnType::Integer),
        field("x", ColumnType::Real),
        field("d", ColumnType::Decimal),
        field("j", ColumnType::Json),
    ];
    for (at, text) in (1..).zip(["9007199254740993", "0.1", "1e400", "-9223372036854775808"]) {
        write(&mut *sink, at, &fields, &[Value::Number(text); 4])?;
    }
    sink.commit(Position(4))?;
    let rows = place.read("t")?;
    let notations: Vec<_> = rows.iter().filter_map(|row| row.values.get("d").cloned()).collect();
    let found: Vec<_> = notations.iter().map(|number| plain_number(number)).collect();
    let written = ["9007199254740993", "0.1", "1e400", "-9223372036854775808"];
    equal("decimals", found, written.map(plain_number).to_vec())?;
    let found: Vec<_> = rows.iter().map(values).collect();
    let decimal = |row: usize| notations.get(row).map_or("", String::as_str);
    let expected: [&[(&str, &str)]; 4] = [
        &[("d", decimal(0)), ("j", "9007199254740993"), ("n", "9007199254740993")],
        &[("d", decimal(1)), ("j", "0.1"), ("x", "0.1")],
        &[("d", decimal(2)), ("j", "1e400")],
        &[
            ("d", decimal(3)),
            ("j", "-9223372036854775808"),
            ("n", "-9223372036854775808"),
            ("x", "-9.223372036854776e18"),
        ],
    ];
    equal("values", found, expected.map(<[_]>::to_vec).to_vec())
}

fn no_key_is_sql(place: &dyn RowSubject) -> Result<(), Failure> {
    let long = "k".repeat(PATH_LEN_MAX);
    let keys = [
        "",
        " ",
        "a",
        "A",
        "a b",
        "a\"b",
        "a'b",
        "a;b",
        "\"",
        "x\"); DROP TABLE t; --",
        "'",
        "`",
        "[a]",
        "\0",
        "a\0b",
        "ключ",
        "钥匙",
        "\u{1f511}",
        "select",
        "table",
        "rowid",
        "_rowid_",
        "xmin",
        "ctid",
        "tableoid",
        "oid",
        "_id",
        "_document",
        "_received_ms",
        "1",
        "1a",
        "a.b",
        "a_b",
        "?1",
        ":a",
        "@a",
        "$a",
        "%s",
        "{}",
        "\\",
        "\r\n",
        long.as_str(),
    ];
    let fields: Vec<Field<'_>> = keys.iter().map(|key| field(key, ColumnType::Text)).collect();
    let given: Vec<Value<'_>> = keys.iter().map(|key| Value::Text(key)).collect();
    let mut sink = place.open()?;
    let written = write(&mut *sink, 1, &fields, &given)?;
    let fits = |key: &&&str| place.keeps_nul() || !key.contains('\0');
    let mut expected: Vec<(&str, &str)> = keys.iter().filter(fits).map(|&key| (key, key)).collect();
    let conflicts = (keys.len() - expected.len()) as u64;
    equal("written", written, Written { rows: 1, conflicts, ..Written::default() })?;
    sink.commit(Position(1))?;
    drop(sink);
    write(&mut *place.open()?, 1, &fields, &given)?;
    expected.sort_unstable();
    let rows = place.read("t")?;
    equal("rows", rows.len(), 1)?;
    equal("values", rows.first().map(values), Some(expected))
}

fn limits_are_named(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let huge = "h".repeat(10 << 20);
    let names: Vec<String> = (0..COLUMNS_MAX + 3).map(|number| format!("f{number}")).collect();
    let mut fields = vec![field(&huge, ColumnType::Text), field("f0", ColumnType::Integer)];
    fields.extend(names.iter().map(|name| field(name, ColumnType::Integer)));
    let written = write(&mut *sink, 1, &fields, &vec![Value::Integer(5); fields.len()])?;
    let reasons: Vec<Refusal> = written.refused.iter().map(|refused| refused.reason).collect();
    let many = Refusal::TooManyColumns;
    equal("refused", reasons, vec![Refusal::PathTooLong, Refusal::Repeated, many, many, many])?;
    let shown = written.refused.iter().all(|refused| refused.path.len() < 100);
    equal("a long path is cut short", shown, true)?;
    sink.commit(Position(1))?;
    equal("values", place.read("t")?.first().map(|row| row.values.len()), Some(COLUMNS_MAX))
}

fn both_kinds_share(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let plain = |id| [Document { id, received_ms: 7, raw: b"[]" }];
    sink.write_documents(Position(1), "t", &plain(1))?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, &[field("a", ColumnType::Integer)], &[Value::Integer(2)])?;
    sink.write_documents(Position(3), "t", &plain(3))?;
    sink.commit(Position(3))?;
    let rows = place.read("t")?;
    let found: Vec<_> = rows.iter().map(|row| (row.id, values(row))).collect();
    equal("values", found, vec![(1, vec![]), (2, vec![("a", "2")]), (3, vec![])])
}

fn dropping_fails(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let fields = [field("a", ColumnType::Integer)];
    write(&mut *sink, 1, &fields, &[Value::Integer(1)])?;
    let mut writer = sink.row_writer(Position(2), "t", &fields)?;
    writer.write(&Document { id: 2, received_ms: 7, raw: b"{}" }, &[Value::Null])?;
    drop(writer);
    let after = |error: &SinkError| matches!(error, SinkError::RolledBack);
    refused("a commit after a dropped writer", sink.commit(Position(2)), after)?;
    sink.roll_back()?;
    let short = write(&mut *sink, 1, &fields, &[]);
    refused("too few values", short, |error| matches!(error, SinkError::ValueCount { .. }))?;
    sink.roll_back()?;
    equal("rows", place.read("t")?.len(), 0)
}

fn rows_are_not_doubled(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let fields = [field("a", ColumnType::Integer)];
    for _ in 0..2 {
        for at in 1..=3 {
            write(&mut *sink, at, &fields, &[Value::Integer(1)])?;
        }
        sink.commit(Position(3))?;
    }
    // A replayed field gets no column either.
    let replay = write(&mut *sink, 2, &[field("new", ColumnType::Text)], &[Value::Text("x")])?;
    equal("a replay", replay, Written::replay())?;
    equal("rows", place.read("t")?.len(), 3)
}

fn columns_roll_back(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    write(&mut *sink, 1, &[field("a", ColumnType::Integer)], &[Value::Integer(1)])?;
    sink.commit(Position(1))?;
    write(&mut *sink, 2, &[field("b", ColumnType::Integer)], &[Value::Integer(2)])?;
    sink.roll_back()?;
    // Its path is free for another type.
    let written = write(&mut *sink, 2, &[field("b", ColumnType::Text)], &[Value::Text("two")])?;
    equal("conflicts", written.conflicts, 0)?;
    sink.commit(Position(2))?;
    let rows = place.read("t")?;
    let found: Vec<_> = rows.iter().map(values).collect();
    equal("values", found, vec![vec![("a", "1")], vec![("b", "two")]])
}

/// Finds the members of documents that are flat.
fn derive<'f>(fields: &'f [Field<'f>]) -> Box<Derive<'f>> {
    Box::new(|document, put| {
        type Members<'a> = BTreeMap<&'a str, &'a serde_json::value::RawValue>;
        let Ok(members) = serde_json::from_slice::<Members<'_>>(document) else { return };
        for (index, field) in fields.iter().enumerate() {
            let Some(text) = members.get(field.path).map(|value| value.get()) else { continue };
            match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
                Some(text) => put(index, Value::Text(text)),
                None => put(index, Value::Number(text)),
            }
        }
    })
}

/// Three rows, whose column `n` is an integer and holds the first value alone.
fn narrow_rows(sink: &mut dyn RowSink) -> Result<(), Failure> {
    let rows = [("10", "2026-01-02T03:04:05.5+01:00"), ("9.99", "soon"), ("1e400", "")];
    let fields = [field("n", ColumnType::Integer), field("at", ColumnType::Timestamp)];
    for (id, (n, at)) in (1..).zip(rows) {
        let raw = format!("{{\"n\":{n},\"at\":\"{at}\",\"new\":\"{id}\"}}");
        let document = Document { id, received_ms: 7, raw: raw.as_bytes() };
        let mut writer = sink.row_writer(Position(id), "t", &fields)?;
        writer.write(&document, &[Value::Number(n), Value::Text(at)])?;
        let conflicts = if id == 1 { 0 } else { 2 };
        equal("conflicts", writer.finish()?.conflicts, conflicts)?;
    }
    Ok(sink.commit(Position(3))?)
}

fn reshaping_fills_rows(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    narrow_rows(&mut *sink)?;
    let wide = [
        field("n", ColumnType::Decimal),
        field("new", ColumnType::Text),
        field("at", ColumnType::Text),
    ];
    let done = sink.reshape(Position(4), "t", &wide, &mut *derive(&wide))?;
    equal("reshaped", done, Written::default())?;
    let types = |sink: &mut dyn RowSink| -> Result<Vec<(String, ColumnType)>, Failure> {
        let schema = sink.columns("t")?.cloned().unwrap_or_default();
        Ok(schema.columns().iter().map(|column| (column.path.clone(), column.ty)).collect())
    };
    let expected = vec![
        ("n".to_owned(), ColumnType::Decimal),
        ("at".to_owned(), ColumnType::Text),
        ("new".to_owned(), ColumnType::Text),
    ];
    equal("columns", types(&mut *sink)?, expected.clone())?;
    let mut writer = sink.row_writer(Position(4), "t", &wide)?;
    let last = b"{\"n\":0.5,\"at\":\"late\",\"new\":\"x\"}";
    let document = Document { id: 4, received_ms: 7, raw: last };
    writer.write(&document, &[Value::Number("0.5"), Value::Text("x"), Value::Text("late")])?;
    equal("conflicts", writer.finish()?.conflicts, 0)?;
    sink.commit(Position(4))?;
    equal("replayed", sink.reshape(Position(4), "t", &[], &mut |_, _| {})?, Written::replay())?;
    drop(sink);
    let mut sink = place.open()?;
    equal("columns", types(&mut *sink)?, expected)?;
    let rows = place.read("t")?;
    equal("rows", rows.len(), 4)?;
    let found: Vec<Vec<(String, String)>> = rows
        .iter()
        .map(|row| {
            let plain = |(path, value): (&String, &String)| {
                let value = if path == "n" { plain_number(value) } else { value.clone() };
                (path.clone(), value)
            };
            row.values.iter().map(plain).collect()
        })
        .collect();
    let row = |at: &str, n: &str, new: &str| -> Vec<(String, String)> {
        [("at", at.to_owned()), ("n", plain_number(n)), ("new", new.to_owned())]
            .map(|(path, value)| (path.to_owned(), value))
            .to_vec()
    };
    let expected = [
        row("2026-01-02T03:04:05.5+01:00", "10", "1"),
        row("soon", "9.99", "2"),
        row("", "1e400", "3"),
        row("late", "0.5", "x"),
    ];
    equal("values", found, expected.to_vec())?;
    // Columns that no field asks for are gone, and the documents are what they were.
    sink.reshape(Position(5), "t", &wide[1..2], &mut *derive(&wide[1..2]))?;
    sink.commit(Position(5))?;
    let rows = place.read("t")?;
    let found: Vec<_> = rows.iter().map(values).collect();
    let expected = ["1", "2", "3", "x"].map(|value| vec![("new", value)]);
    equal("values", found, expected.to_vec())?;
    equal("document", rows.last().and_then(|row| row.document.clone()), Some(last.to_vec()))
}

fn amending_adds(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    let fields = [field("a", ColumnType::Integer)];
    write(&mut *sink, 1, &fields, &[Value::Integer(1)])?;
    sink.commit(Position(9))?;
    let add = |sink: &mut dyn RowSink, id: u64| -> Result<Written, Failure> {
        let mut writer = sink.row_writer(Position(9), "t", &fields)?;
        let document = Document { id, received_ms: 7, raw: b"{}" };
        writer.write(&document, &[Value::Integer(1)])?;
        Ok(writer.finish()?)
    };
    equal("before", add(&mut *sink, 2)?, Written::replay())?;
    for (id, is_kept) in [(2, true), (3, false), (3, true)] {
        sink.amend();
        equal("rows", add(&mut *sink, id)?.rows, 1)?;
        if is_kept {
            sink.commit(Position(9))?;
            equal("after", add(&mut *sink, id + 1)?, Written::replay())?;
        } else {
            sink.roll_back()?;
        }
        equal("position", sink.position(), Some(Position(9)))?;
    }
    drop(sink);
    let ids = |place: &dyn RowSubject| -> Result<Vec<u64>, Failure> {
        Ok(place.read("t")?.iter().map(|row| row.id).collect())
    };
    equal("ids", ids(place)?, vec![1, 2, 3])?;
    let mut sink = place.open()?;
    sink.amend();
    add(&mut *sink, 4)?;
    drop(sink);
    drop(place.open()?);
    equal("ids", ids(place)?, vec![1, 2, 3])
}

fn reshaping_rolls_back(place: &dyn RowSubject) -> Result<(), Failure> {
    let mut sink = place.open()?;
    narrow_rows(&mut *sink)?;
    let before = place.read("t")?;
    let wide = [field("n", ColumnType::Decimal), field("more", ColumnType::Text)];
    for again in [false, true] {
        sink.reshape(Position(4), "t", &wide, &mut *derive(&wide))?;
        if again {
            drop(sink);
            sink = place.open()?;
        } else {
            sink.roll_back()?;
        }
        equal("rows", place.read("t")?, before.clone())?;
        let columns = sink.columns("t")?.map(|schema| schema.columns().len());
        equal("columns", columns, Some(2))?;
    }
    // A namespace that does not exist comes into being with the columns.
    sink.reshape(Position(4), "new", &wide, &mut *derive(&wide))?;
    sink.commit(Position(4))?;
    equal("columns", sink.columns("new")?.map(|schema| schema.columns().len()), Some(2))
}
