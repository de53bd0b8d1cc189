//! Header, block header, footer and trailer: every flipped byte is found.

use crate::segment::error::Fault;
use crate::segment::format::*;
use weir_kernel::Micros;

fn header() -> Header {
    Header {
        kind: Kind::Segment,
        pool: "chat".to_owned(),
        log_id: [7; 16],
        first_seq: 41,
        prev_hash: [9; 32],
        written: Micros(1_700_000_000_000_000),
    }
}

#[test]
fn every_flipped_byte_of_a_header_is_found() {
    let bytes = header().encode().unwrap();
    let read = |bytes: &[u8]| -> Result<Header, Fault> {
        let prefix = Prefix::read(&bytes[..PREFIX_LEN].try_into().unwrap())?;
        Header::decode(prefix.kind, &bytes[PREFIX_LEN..])
    };
    assert_eq!(read(&bytes), Ok(header()));
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        assert!(read(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn every_flipped_byte_of_a_footer_and_its_trailer_is_found() {
    let footer = Footer {
        last_seq: 99,
        at_first: Micros(3),
        at_last: Micros(5),
        batches: 4,
        raw_bytes: 1_234,
        chain: [1; 32],
        content: [2; 32],
        index: vec![IndexEntry { offset: 80, first_seq: 41, at_first: Micros(3) }],
    };
    let bytes = footer.encode(1_000);
    let body = bytes.len() - TRAILER_LEN;
    let read = |bytes: &[u8]| -> Result<(Footer, Trailer), Fault> {
        let trailer = read_trailer(&bytes[body..].try_into().unwrap())?;
        Ok((Footer::decode(&bytes[..body])?, trailer))
    };
    let trailer = Trailer { section: 1_000 + bytes.len() as u64, footer: body };
    assert_eq!(read(&bytes), Ok((footer, trailer)));
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x01;
        assert!(read(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn a_block_header_beyond_the_limit_is_refused_before_memory_is_taken() {
    let head = BlockHead {
        batches: 1,
        first_seq: 1,
        last_seq: 2,
        at_first: Micros(1),
        at_last: Micros(2),
        raw_len: BLOCK_RAW_MAX + 1,
        packed_len: 10,
        crc: 0,
    };
    assert!(matches!(BlockHead::decode(&head.encode()), Err(Fault::Field { .. })));
    let head = BlockHead { raw_len: 100, ..head };
    assert_eq!(BlockHead::decode(&head.encode()), Ok(head));
}

#[test]
fn a_pool_name_has_a_length_that_fits() {
    for pool in [String::new(), "p".repeat(1_025)] {
        assert!(Header { pool, ..header() }.encode().is_err());
    }
}
