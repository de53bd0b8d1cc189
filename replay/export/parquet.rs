//! Rows as a Parquet file: flat columns, plain encoding, pages compressed with zstd, a row group at a time.
//!
//! Written to the format's own description (parquet.thrift; data pages of version 1, which every reader knows). Not here:
//! dictionaries, statistics, nesting: rows of a log need none, and a crate that has them costs more than all of replay.

use super::thrift::{Struct, varint};
use serde_json::Value;
use std::io::{self, Write};

/// Rows of a group at most.
const ROWS: usize = 50_000;
/// Bytes of a group at most, before compression.
const BYTES: usize = 32 << 20;
/// Of zstd.
const LEVEL: i32 = 3;

const MAGIC: &[u8] = b"PAR1";
/// Of the format's enumerations.
const OPTIONAL: i32 = 1;
const DATA_PAGE: i32 = 0;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const ZSTD: i32 = 6;

/// What a column holds; any cell may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Number,
    /// µs since 1970, UTC.
    Time,
    /// UTF-8.
    Text,
    /// True or false.
    Flag,
}

impl Kind {
    /// The physical type.
    const fn physical(self) -> i32 {
        match self {
            Kind::Flag => 0,
            Kind::Number | Kind::Time => 2,
            Kind::Text => 6,
        }
    }

    /// What it means: UTF8, TIMESTAMP_MICROS.
    const fn converted(self) -> Option<i32> {
        match self {
            Kind::Text => Some(0),
            Kind::Time => Some(10),
            Kind::Number | Kind::Flag => None,
        }
    }
}

/// Name and kind of a column.
pub type Column = (&'static str, Kind);

/// The cells of a column in a group.
#[derive(Default)]
struct Cells {
    present: Vec<bool>,
    /// Of those that are: plain.
    values: Vec<u8>,
    flags: Vec<bool>,
}

/// A file that is being written.
pub struct Parquet {
    columns: &'static [Column],
    cells: Vec<Cells>,
    rows: usize,
    all_rows: i64,
    at: u64,
    groups: Vec<Struct>,
}

impl Parquet {
    /// Begins it.
    ///
    /// # Errors
    /// A failed write, here and below.
    pub fn start(columns: &'static [Column], out: &mut dyn Write) -> io::Result<Parquet> {
        out.write_all(MAGIC)?;
        let cells = columns.iter().map(|_| Cells::default()).collect();
        Ok(Parquet { columns, cells, rows: 0, all_rows: 0, at: MAGIC.len() as u64, groups: Vec::new() })
    }

    /// One more row: an object with the columns' names. What is of another kind than its column is null.
    pub fn row(&mut self, row: &Value, out: &mut dyn Write) -> io::Result<()> {
        for ((name, kind), cells) in self.columns.iter().zip(&mut self.cells) {
            cells.add(*kind, &row[name]);
        }
        self.rows += 1;
        let bytes: usize = self.cells.iter().map(|cells| cells.values.len()).sum();
        if self.rows >= ROWS || bytes >= BYTES { self.group(out) } else { Ok(()) }
    }

    fn group(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let (mut chunks, mut total) = (Vec::new(), 0);
        for ((name, kind), cells) in self.columns.iter().zip(&mut self.cells) {
            let body = cells.page();
            let packed = zstd::bulk::compress(&body, LEVEL)?;
            let size =
                |bytes: usize| i32::try_from(bytes).map_err(|_| io::Error::other("a page beyond 2 GiB"));
            let page = Struct::new()
                .i32(1, DATA_PAGE)
                .i32(2, size(body.len())?)
                .i32(3, size(packed.len())?)
                .within(5, Struct::new().i32(1, size(self.rows)?).i32(2, PLAIN).i32(3, RLE).i32(4, RLE))
                .end();
            out.write_all(&page)?;
            out.write_all(&packed)?;
            let (plain, written) = (page.len() + body.len(), page.len() + packed.len());
            total += plain as i64;
            let at = self.at as i64;
            let meta = Struct::new()
                .i32(1, kind.physical())
                .i32s(2, &[PLAIN, RLE])
                .texts(3, &[name])
                .i32(4, ZSTD)
                .i64(5, self.rows as i64)
                .i64(6, plain as i64)
                .i64(7, written as i64)
                .i64(9, at);
            chunks.push(Struct::new().i64(2, at).within(3, meta));
            self.at += written as u64;
            *cells = Cells::default();
        }
        self.groups.push(Struct::new().structs(1, chunks.into_iter()).i64(2, total).i64(3, self.rows as i64));
        self.all_rows += self.rows as i64;
        self.rows = 0;
        Ok(())
    }

    /// Ends it.
    pub fn end(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.group(out)?;
        let root = Struct::new().text(4, "weir").i32(5, self.columns.len() as i32);
        let leaf = |(name, kind): &Column| {
            let leaf = Struct::new().i32(1, kind.physical()).i32(3, OPTIONAL).text(4, name);
            match kind.converted() {
                Some(meaning) => leaf.i32(6, meaning),
                None => leaf,
            }
        };
        let schema: Vec<Struct> = std::iter::once(root).chain(self.columns.iter().map(leaf)).collect();
        let footer = Struct::new()
            .i32(1, 1)
            .structs(2, schema.into_iter())
            .i64(3, self.all_rows)
            .structs(4, self.groups.into_iter())
            .text(6, concat!("weir-replay ", env!("CARGO_PKG_VERSION")))
            .end();
        out.write_all(&footer)?;
        out.write_all(&(footer.len() as u32).to_le_bytes())?;
        out.write_all(MAGIC)
    }
}

impl Cells {
    fn add(&mut self, kind: Kind, value: &Value) {
        let present = match kind {
            Kind::Number | Kind::Time => {
                let number = value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX));
                number.map(|number| self.values.extend(number.to_le_bytes())).is_some()
            }
            Kind::Text => value
                .as_str()
                .map(|text| {
                    self.values.extend((text.len() as u32).to_le_bytes());
                    self.values.extend(text.as_bytes());
                })
                .is_some(),
            Kind::Flag => value.as_bool().map(|flag| self.flags.push(flag)).is_some(),
        };
        self.present.push(present);
    }

    /// The body of a data page: which cells are there (runs of one bit), then those.
    fn page(&self) -> Vec<u8> {
        let mut levels = Vec::new();
        for run in self.present.chunk_by(|a, b| a == b) {
            varint(&mut levels, (run.len() as u64) << 1);
            levels.push(u8::from(run[0]));
        }
        let mut body = Vec::with_capacity(4 + levels.len() + self.values.len() + self.flags.len() / 8 + 1);
        body.extend((levels.len() as u32).to_le_bytes());
        body.extend(levels);
        body.extend(&self.values);
        for eight in self.flags.chunks(8) {
            body.push(eight.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
        }
        body
    }
}
