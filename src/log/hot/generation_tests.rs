//! Tests of one database of the hot window.

use super::*;
use crate::world::World;

fn all(generation: &Generation) -> Vec<Frame> {
    let mut frames = Vec::new();
    let torn = generation.visit(&mut |frame| {
        frames.push(frame.clone());
        Ok(())
    });
    assert!(torn.unwrap().is_empty());
    frames
}

/// Batches that were cut into parts beside the keys, as all were before there were pages, are read as ever, and
/// what follows them goes to the pages.
#[test]
fn parts_beside_the_keys_and_pages_are_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001");
    let mut world = World::new("a", 7);
    let mut frames = world.frames(2, 300);
    frames.extend(world.frames(1, 1));
    let [first, second, third] = frames.try_into().unwrap();
    assert!(first.bytes.len() > 3 * 6_000, "{}", first.bytes.len());
    assert!(second.bytes.len() > WHOLE_MAX && third.bytes.len() <= WHOLE_MAX);
    {
        let generation = Generation::open(&path, 1, 1 << 20).unwrap();
        let id = generation.id(&first.header.pool).unwrap();
        let cut = generation.with(|opened| {
            for (part, chunk) in first.bytes.chunks(6_000).enumerate().rev() {
                opened.db.insert(keys::part_key(id, 1, part as u16), chunk).map_err(sled_error)?;
            }
            Ok(())
        });
        cut.unwrap();
        generation.sync().unwrap();
    }
    let generation = Generation::open(&path, 1, 1 << 20).unwrap();
    assert_eq!(all(&generation), std::slice::from_ref(&first));
    generation.put(&second).unwrap();
    generation.put(&third).unwrap();
    generation.sync().unwrap();
    drop(generation);
    let generation = Generation::open(&path, 1, 1 << 20).unwrap();
    assert_eq!(all(&generation), [first, second.clone(), third.clone()]);
    let mut read = Vec::new();
    generation
        .read("a", second.header.first_seq + 5, third.header.last_seq(), usize::MAX, &mut read)
        .unwrap();
    assert_eq!(read, [second, third]);
}

/// A place whose pages are missing is a batch that was on its way, if nothing follows it.
#[test]
fn a_place_without_its_pages_is_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001");
    let generation = Generation::open(&path, 1, 1 << 20).unwrap();
    let first = World::new("a", 7).frames(1, 90).remove(0);
    generation.put(&first).unwrap();
    let id = generation.held_of("a").unwrap().id;
    let lost = keys::Place { first: 50, count: 2 };
    let put = generation.with(|opened| {
        opened.db.insert(keys::place_key(id, 5_000), &lost.value()[..]).map_err(sled_error).map(|_| ())
    });
    put.unwrap();
    let mut seen = 0;
    let torn = generation
        .visit(&mut |_| {
            seen += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!((seen, torn.len(), torn[0].seq), (1, 1, 5_000));
    generation.remove(&torn[0]).unwrap();
    assert_eq!(all(&generation), [first]);
}
