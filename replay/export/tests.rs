//! What is written is what was logged.

use super::arrivals::Arrivals;
use super::parquet::{Column, Kind};
use super::requests::Requests;
use super::*;
use crate::what_if::tests::log;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use weir_kernel::Input;
use weir_log::reader::Bound;

#[test]
fn every_request_has_one_row_and_rows_are_well_formed() {
    let steps = log(&["defaultRequestTTL=8s"], 90);
    let mut table = Requests::new("truth", Bound::Open);
    let mut rows: Vec<Value> = steps.iter().flat_map(|step| table.take(step)).collect();
    rows.extend(table.rest());
    let arrived = steps.iter().filter(|step| matches!(step.input, Input::Arrived(_))).count();
    assert_eq!(rows.len(), arrived);
    let of = |outcome: &str| rows.iter().filter(|row| row["outcome"] == outcome).count();
    assert!(of("Dispatched") > 50 && of("EvictedTTL") > 0);
    for row in rows.iter().filter(|row| row["lease_end"] == "Completed") {
        let at = |key: &str| row[key].as_u64().unwrap();
        assert!(at("arrived_us") <= at("decided_us") && at("decided_us") < at("first_byte_us"));
        assert!(at("first_byte_us") <= at("ended_us") && at("completion_tokens") > 0);
    }
    let mut text = Vec::new();
    csv::header(&mut text, &rows[0]).unwrap();
    rows.iter().for_each(|row| csv::row(&mut text, row).unwrap());
    let text = String::from_utf8(text).unwrap();
    let widths: std::collections::BTreeSet<usize> =
        text.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(widths.len(), 1);
    assert_eq!(text.lines().count(), arrived + 1);
}

#[test]
fn arrivals_are_a_trace_in_order() {
    let steps = log(&[], 60);
    let (mut trace, mut out) = (Arrivals::new(7), Vec::new());
    steps.iter().for_each(|step| trace.take(step, &mut out).unwrap());
    trace.rest(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<Vec<f64>> =
        text.lines().map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!((rows.len() as u64, rows[0][0]), (trace.counts().0, 0.0));
    assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0]));
    let plan = crate::what_if::tests::plan(60);
    assert_eq!((rows[5][1], rows[5][2]), (f64::from(plan[5].prompt), f64::from(plan[5].output)));
}

#[test]
fn cells_are_quoted_where_they_must_be() {
    let mut out = Vec::new();
    csv::row(&mut out, &json!({ "a": "x,y", "b": "say \"hi\"", "c": null, "d": 3 })).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "\"x,y\",\"say \"\"hi\"\"\",,3\n");
}

/// Thrift's compact protocol, read without knowing what is in it.
#[derive(Clone, Debug)]
enum Thrift {
    Number(i64),
    Text(String),
    List(Vec<Thrift>),
    Struct(BTreeMap<u8, Thrift>),
}

impl Thrift {
    fn at(&self, number: u8) -> &Thrift {
        match self {
            Thrift::Struct(fields) => &fields[&number],
            other => panic!("{other:?}"),
        }
    }

    fn number(&self) -> i64 {
        match self {
            Thrift::Number(number) => *number,
            other => panic!("{other:?}"),
        }
    }

    fn list(&self) -> &[Thrift] {
        match self {
            Thrift::List(list) => list,
            other => panic!("{other:?}"),
        }
    }

    fn text(&self) -> &str {
        match self {
            Thrift::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn read(kind: u8, bytes: &mut &[u8]) -> Thrift {
    match kind {
        5 | 6 => {
            let value = varint(bytes);
            Thrift::Number((value >> 1) as i64 ^ -((value & 1) as i64))
        }
        8 => {
            let len = varint(bytes) as usize;
            let (text, rest) = bytes.split_at(len);
            *bytes = rest;
            Thrift::Text(String::from_utf8(text.to_vec()).unwrap())
        }
        9 => {
            let head = bytes[0];
            *bytes = &bytes[1..];
            let len = if head >> 4 == 15 { varint(bytes) } else { u64::from(head >> 4) };
            Thrift::List((0..len).map(|_| read(head & 15, bytes)).collect())
        }
        12 => {
            let (mut fields, mut last) = (BTreeMap::new(), 0);
            loop {
                let head = bytes[0];
                *bytes = &bytes[1..];
                if head == 0 {
                    return Thrift::Struct(fields);
                }
                last += head >> 4;
                fields.insert(last, read(head & 15, bytes));
            }
        }
        other => panic!("type {other}"),
    }
}

/// The rows of a file, read as its footer says.
fn parquet_rows(file: &[u8], columns: &[Column]) -> Vec<Value> {
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
    let len = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let end = file.len() - 8;
    let footer = read(12, &mut &file[end - len(end)..end]);
    let names: Vec<&str> = footer.at(2).list()[1..].iter().map(|leaf| leaf.at(4).text()).collect();
    assert_eq!(names, columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let mut rows = Vec::new();
    for group in footer.at(4).list() {
        let count = group.at(3).number() as usize;
        let mut some = vec![Map::new(); count];
        for ((name, kind), chunk) in columns.iter().zip(group.at(1).list()) {
            let meta = chunk.at(3);
            let mut bytes = &file[meta.at(9).number() as usize..];
            let page = read(12, &mut bytes);
            let packed = &bytes[..page.at(3).number() as usize];
            let body = zstd::bulk::decompress(packed, page.at(2).number() as usize).unwrap();
            assert_eq!((body.len() as i64, page.at(5).at(1).number()), (page.at(2).number(), count as i64));
            for (row, cell) in some.iter_mut().zip(cells(&body, *kind, count)) {
                row.insert((*name).to_owned(), cell);
            }
        }
        rows.extend(some.into_iter().map(Value::Object));
    }
    assert_eq!(footer.at(3).number() as usize, rows.len());
    rows
}

fn cells(body: &[u8], kind: Kind, count: usize) -> Vec<Value> {
    let (head, rest) = body.split_at(4);
    let (mut levels, mut values) = rest.split_at(u32::from_le_bytes(head.try_into().unwrap()) as usize);
    let mut present = Vec::new();
    while !levels.is_empty() {
        let run = varint(&mut levels);
        assert_eq!(run & 1, 0, "a run of one value");
        present.extend(std::iter::repeat_n(levels[0] == 1, (run >> 1) as usize));
        levels = &levels[1..];
    }
    assert_eq!(present.len(), count);
    let mut flag = 0;
    let cells = present.into_iter().map(|present| match kind {
        _ if !present => Value::Null,
        Kind::Number | Kind::Time => {
            let (number, rest) = values.split_at(8);
            values = rest;
            json!(i64::from_le_bytes(number.try_into().unwrap()))
        }
        Kind::Text => {
            let (len, rest) = values.split_at(4);
            let (text, rest) = rest.split_at(u32::from_le_bytes(len.try_into().unwrap()) as usize);
            values = rest;
            json!(std::str::from_utf8(text).unwrap())
        }
        Kind::Flag => {
            flag += 1;
            json!(values[(flag - 1) / 8] >> ((flag - 1) % 8) & 1 == 1)
        }
    });
    cells.collect()
}

#[test]
fn a_parquet_file_holds_the_rows_and_says_so_in_its_footer() {
    let steps = log(&["defaultRequestTTL=8s"], 90);
    let mut table = Requests::new("truth", Bound::Open);
    let mut requests: Vec<Value> = steps.iter().flat_map(|step| table.take(step)).collect();
    requests.extend(table.rest());
    let events = steps.iter().flat_map(|step| {
        step.events.iter().enumerate().map(|(n, event)| rows::event("truth", step, n, event))
    });
    let all = steps.iter().map(|step| rows::step("truth", step, Form::Parquet));
    for (what, want) in
        [(What::Requests, requests), (What::Events, events.collect()), (What::Steps, all.collect::<Vec<_>>())]
    {
        let columns = rows::columns(what);
        // Several groups, as a long log has.
        let times = 60_000 / want.len() + 1;
        let want: Vec<Value> = (0..times).flat_map(|_| want.clone()).collect();
        let mut out = Vec::new();
        let mut file = Parquet::start(columns, &mut out).unwrap();
        want.iter().for_each(|row| file.row(row, &mut out).unwrap());
        file.end(&mut out).unwrap();
        let got = parquet_rows(&out, columns);
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got, want, "no column is missing, and none is of another kind");
        }
    }
}
