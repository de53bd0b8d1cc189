//! The recorded stream, and the files as a loss of power at some point of it leaves them.
//!
//! What the model promises is what POSIX does: data and size of a file are on disk up to the last sync of that file
//! that returned; directory entries up to the last sync of their directory. Of everything later each 4 KiB page may be
//! there as it was at any moment since, or not, and of each directory's changes any first part.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
const HEAD: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    Write,
    Truncate,
    SyncBegin,
    SyncEnd,
    Rename,
    Remove,
    MakeDir,
    Range,
}

#[derive(Debug)]
pub struct Op {
    pub kind: Kind,
    pub path: PathBuf,
    to: PathBuf,
    inode: u64,
    at: u64,
    pub data: Vec<u8>,
}

/// How much of what was not synced is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    Some,
    Everything,
}

/// xorshift: the same seed gives the same cuts.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}

pub fn read(path: &Path) -> Vec<Op> {
    let bytes = fs::read(path).unwrap();
    let (mut ops, mut at) = (Vec::new(), 0);
    while at + HEAD <= bytes.len() {
        let word = |n: usize| u32::from_ne_bytes(bytes[at + n..at + n + 4].try_into().unwrap()) as usize;
        let long = |n: usize| u64::from_ne_bytes(bytes[at + n..at + n + 8].try_into().unwrap());
        let (a, b, len) = (word(4), word(8), word(12));
        let kind = match word(0) {
            1 => Kind::Create,
            2 => Kind::Write,
            3 => Kind::Truncate,
            4 => Kind::SyncBegin,
            5 => Kind::SyncEnd,
            6 => Kind::Rename,
            7 => Kind::Remove,
            8 => Kind::MakeDir,
            9 => Kind::Range,
            other => panic!("operation {other} in the stream"),
        };
        let names = at + HEAD;
        let text = |from: usize, len: usize| {
            PathBuf::from(String::from_utf8(bytes[from..from + len].to_vec()).unwrap())
        };
        let data = names + a + b;
        ops.push(Op {
            kind,
            path: text(names, a),
            to: text(names + a, b),
            inode: long(16),
            at: long(24),
            data: bytes[data..data + len].to_vec(),
        });
        at = data + len;
    }
    assert_eq!(at, bytes.len(), "the stream is cut");
    ops
}

/// For each file (by inode) and each path: up to which operation it is on disk for sure.
fn synced(ops: &[Op]) -> (HashMap<u64, usize>, HashMap<&Path, usize>) {
    let (mut files, mut paths) = (HashMap::new(), HashMap::new());
    let mut begun = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        match op.kind {
            Kind::SyncBegin => {
                begun.insert((op.inode, op.at), index);
            }
            Kind::SyncEnd => {
                let from = begun[&(op.inode, op.at)];
                // Of two syncs at once the one that began later counts, whichever returns last.
                let file: &mut usize = files.entry(op.inode).or_default();
                *file = from.max(*file);
                let path: &mut usize = paths.entry(&*op.path).or_default();
                *path = from.max(*path);
            }
            _ => {}
        }
    }
    (files, paths)
}

/// Builds the files under `root` of the stream as the loss of power leaves them, under `target`.
pub fn rebuild(ops: &[Op], root: &Path, left: Left, random: &mut Random, target: &Path) {
    let (files, paths) = synced(ops);
    let contents = contents(ops, &files, left, random);
    let mut tree: BTreeMap<PathBuf, Option<u64>> = BTreeMap::new();
    // Per directory: after how many more unsynced changes its changes are lost.
    let mut lost: HashMap<PathBuf, u64> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        let changed = match op.kind {
            Kind::Create | Kind::Remove | Kind::MakeDir => &op.path,
            Kind::Rename => &op.to,
            _ => continue,
        };
        let parent = changed.parent().unwrap();
        if paths.get(parent).is_none_or(|upto| index > *upto) {
            let more = lost.entry(parent.to_owned()).or_insert_with(|| match left {
                Left::Nothing => 0,
                Left::Some => random.below(6),
                Left::Everything => u64::MAX,
            });
            if *more == 0 {
                continue;
            }
            *more -= 1;
        }
        if parent.starts_with(root) && parent != root && !tree.contains_key(parent) {
            continue;
        }
        change(&mut tree, op);
    }
    for (path, inode) in tree {
        let path = target.join(path.strip_prefix(root).unwrap());
        match inode {
            None => fs::create_dir_all(&path).unwrap(),
            Some(inode) => fs::write(&path, contents.get(&inode).map_or(&[][..], Vec::as_slice)).unwrap(),
        }
    }
}

fn change(tree: &mut BTreeMap<PathBuf, Option<u64>>, op: &Op) {
    match op.kind {
        Kind::Create => drop(tree.insert(op.path.clone(), Some(op.inode))),
        Kind::MakeDir => drop(tree.insert(op.path.clone(), None)),
        // A directory that is gone was empty, whatever became of the records of its entries.
        Kind::Remove => tree.retain(|path, _| !path.starts_with(&op.path)),
        Kind::Rename => {
            let moved: Vec<PathBuf> =
                tree.keys().filter(|path| path.starts_with(&op.path)).cloned().collect();
            for path in moved {
                let inside = path.strip_prefix(&op.path).unwrap();
                let to = if inside.as_os_str().is_empty() { op.to.clone() } else { op.to.join(inside) };
                let node = tree.remove(&path).unwrap();
                tree.insert(to, node);
            }
        }
        _ => {}
    }
}

fn contents(
    ops: &[Op],
    files: &HashMap<u64, usize>,
    left: Left,
    random: &mut Random,
) -> HashMap<u64, Vec<u8>> {
    let mut contents: HashMap<u64, Vec<u8>> = HashMap::new();
    // Per page that was written since: up to which operation it is there.
    let mut pages: HashMap<(u64, u64), usize> = HashMap::new();
    let mut kept = |inode: u64, page: u64, index: usize, random: &mut Random| {
        let upto = *pages.entry((inode, page)).or_insert_with(|| match (left, random.below(3)) {
            (Left::Nothing, _) | (Left::Some, 0) => 0,
            (Left::Everything, _) | (Left::Some, 1) => usize::MAX,
            (Left::Some, _) => index + random.below((ops.len() - index) as u64) as usize,
        });
        index <= upto
    };
    for (index, op) in ops.iter().enumerate() {
        let sure = files.get(&op.inode).is_some_and(|upto| index < *upto);
        match op.kind {
            Kind::Create => drop(contents.insert(op.inode, Vec::new())),
            Kind::Truncate
                if sure || left == Left::Everything || (left == Left::Some && random.below(2) == 0) =>
            {
                contents.entry(op.inode).or_default().resize(op.at as usize, 0);
            }
            Kind::Write => {
                let content = contents.entry(op.inode).or_default();
                let (mut at, end) = (op.at, op.at + op.data.len() as u64);
                while at < end {
                    let next = ((at / PAGE + 1) * PAGE).min(end);
                    if sure || kept(op.inode, at / PAGE, index, random) {
                        if content.len() < next as usize {
                            content.resize(next as usize, 0);
                        }
                        let from = (at - op.at) as usize..(next - op.at) as usize;
                        content[at as usize..next as usize].copy_from_slice(&op.data[from]);
                    }
                    at = next;
                }
            }
            _ => {}
        }
    }
    contents
}
