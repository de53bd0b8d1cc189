//! Thrift's compact protocol, as much of it as the footer and the page headers of a Parquet file need.

/// Types on the wire.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A struct that is being written: fields come in the order of their numbers.
#[derive(Debug, Default)]
pub struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    /// Without fields.
    pub fn new() -> Struct {
        Struct::default()
    }

    fn field(&mut self, number: u8, kind: u8) -> &mut Vec<u8> {
        // Numbers here are at most 15 apart, so that the short form does.
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
        &mut self.bytes
    }

    /// A number or an enumeration's value.
    #[must_use]
    pub fn i32(mut self, number: u8, value: i32) -> Struct {
        varint(self.field(number, I32), zigzag(value.into()));
        self
    }

    /// A long number.
    #[must_use]
    pub fn i64(mut self, number: u8, value: i64) -> Struct {
        varint(self.field(number, I64), zigzag(value));
        self
    }

    /// A text.
    #[must_use]
    pub fn text(mut self, number: u8, value: &str) -> Struct {
        binary(self.field(number, BINARY), value);
        self
    }

    /// A struct within.
    #[must_use]
    pub fn within(mut self, number: u8, value: Struct) -> Struct {
        let bytes = value.end();
        self.field(number, STRUCT).extend(bytes);
        self
    }

    /// A list of structs.
    #[must_use]
    pub fn structs(mut self, number: u8, all: impl ExactSizeIterator<Item = Struct>) -> Struct {
        let to = self.field(number, LIST);
        list(to, STRUCT, all.len());
        all.for_each(|one| to.extend(one.end()));
        self
    }

    /// A list of numbers.
    #[must_use]
    pub fn i32s(mut self, number: u8, all: &[i32]) -> Struct {
        let to = self.field(number, LIST);
        list(to, I32, all.len());
        all.iter().for_each(|one| varint(to, zigzag((*one).into())));
        self
    }

    /// A list of texts.
    #[must_use]
    pub fn texts(mut self, number: u8, all: &[&str]) -> Struct {
        let to = self.field(number, LIST);
        list(to, BINARY, all.len());
        all.iter().for_each(|one| binary(to, one));
        self
    }

    /// Its bytes.
    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// Seven bits a byte, the lowest first.
pub fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn binary(to: &mut Vec<u8>, text: &str) {
    varint(to, text.len() as u64);
    to.extend(text.as_bytes());
}

fn list(to: &mut Vec<u8>, kind: u8, len: usize) {
    if len < 15 {
        to.push((len as u8) << 4 | kind);
    } else {
        to.push(0xf0 | kind);
        varint(to, len as u64);
    }
}
