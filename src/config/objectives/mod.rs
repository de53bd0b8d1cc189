//! A folder of Gateway API Inference Extension `InferenceObjective` objects beside the table of the file, looked at now and
//! then: which priority each pool's objectives have.
//!
//! By what the file system says of each file, links followed, so that a mounted ConfigMap (whose link `..data` is exchanged)
//! is seen like any other change; no events are asked for, which network and overlay mounts do not send. A file with a
//! mistake keeps what it said before; a file that is gone takes its objects with it. Not here: the objects (`object.rs`).

mod object;
#[cfg(test)]
mod tests;

pub use object::{ObjectError, Objective, read as read_objects};

use crate::effective::Effective;
use crate::node::Origin;
use crate::report::Notice;
use crate::scalar::Scalar;
use crate::section::Row;
use crate::yaml;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most files that are read.
const FILES_MAX: usize = 4_096;

/// What tells two versions of a file apart.
type Stamp = (SystemTime, u64, u64);

/// The folder, as it was when last looked at.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    dir: PathBuf,
    files: BTreeMap<String, File>,
    /// Why the folder itself cannot be read.
    fault: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct File {
    stamp: Option<Stamp>,
    /// What it said when it was last right.
    objects: Vec<Objective>,
    fault: Option<String>,
    /// It was not there when last looked for.
    missing: bool,
}

impl Folder {
    /// The folder as it is now.
    pub fn open(dir: &Path) -> Folder {
        let mut folder = Folder { dir: dir.to_owned(), ..Folder::default() };
        folder.look();
        folder
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Looks again. True if there is anything new to say: other objects, or other mistakes.
    pub fn look(&mut self) -> bool {
        let names = match names(&self.dir) {
            Ok(names) => names,
            // What cannot be looked at is not gone.
            Err(error) => return self.trouble(Some(format!("{}: {error}", self.dir.display()))),
        };
        let mut changed = self.trouble(None);
        self.files.retain(|name, file| {
            // An editor may be exchanging it: what is missing twice in a row is gone.
            let gone = !names.contains(name) && std::mem::replace(&mut file.missing, true);
            changed |= gone;
            !gone
        });
        for name in names {
            let path = self.dir.join(&name);
            let Some(stamp) = stamp(&path) else { continue };
            let file = self.files.entry(name).or_default();
            file.missing = false;
            if file.stamp == Some(stamp) {
                continue;
            }
            file.stamp = Some(stamp);
            let before = (file.objects.clone(), file.fault.take());
            match content(&path, stamp.1).and_then(|text| read_objects(&text).map_err(|e| e.to_string())) {
                Ok(objects) => file.objects = objects,
                Err(error) => file.fault = Some(error),
            }
            changed |= before != (file.objects.clone(), file.fault.clone());
        }
        changed
    }

    fn trouble(&mut self, fault: Option<String>) -> bool {
        let changed = self.fault != fault;
        self.fault = fault;
        changed
    }

    /// What is wrong, file by file, each with what that means.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.fault.iter().cloned().collect();
        for (name, file) in &self.files {
            if let Some(fault) = &file.fault {
                let kept = match file.objects.len() {
                    0 => "nothing of it is in force".to_owned(),
                    n => format!("what it said before is kept: objectives: {n}"),
                };
                faults.push(format!("{}: {fault} ({kept})", self.dir.join(name).display()));
            }
        }
        let mut seen = BTreeMap::new();
        for (file, object) in self.objects() {
            if let Some(first) = seen.insert((&object.pool, &object.name), file) {
                let at = self.dir.join(file);
                let (name, pool) = (&object.name, &object.pool);
                let line = object.line;
                faults.push(format!(
                    "{}: line {line}: the objective {name:?} of {pool:?} stands in {first} already, which counts",
                    at.display()
                ));
                seen.insert((&object.pool, &object.name), first);
            }
        }
        faults
    }

    /// Every object that is in force, with its file, by file and line.
    fn objects(&self) -> impl Iterator<Item = (&str, &Objective)> {
        self.files.iter().flat_map(|(name, file)| file.objects.iter().map(|object| (name.as_str(), object)))
    }

    /// Puts what it says beside the table of the file, for each pool: that table goes first.
    pub fn apply(&self, effective: &mut Effective) {
        let table = &effective.settings.objectives;
        for pool in effective.pools.values_mut() {
            pool.objectives.clone_from(table);
            for (_, object) in self.objects().filter(|(_, object)| object.pool == pool.inference_pool) {
                pool.objectives.entry(object.name.clone()).or_insert(object.priority);
            }
        }
    }

    /// The same, and says it: rows for what holds, warnings for what does not.
    pub fn explain(&self, effective: &mut Effective) {
        self.apply(effective);
        let path = "weir.objectivesDir";
        let warn = |text: String| Notice { path: path.to_owned(), text };
        effective.warnings.extend(self.faults().into_iter().map(warn));
        let mut used = BTreeSet::new();
        for (pool_name, pool) in &effective.pools {
            for (file, object) in self.objects().filter(|(_, object)| object.pool == pool.inference_pool) {
                used.insert(&object.pool);
                let place = format!("{}:{}", self.dir.join(file).display(), object.line);
                let hidden = effective.settings.objectives.contains_key(&object.name);
                effective.rows.push(Row {
                    path: format!("pools.{pool_name}.objectives.{}", object.name),
                    value: Scalar::Whole(object.priority.into()),
                    unit: "",
                    origin: Origin::Given,
                    note: if hidden { format!("{place}: weir.objectives goes first") } else { place },
                    inactive: hidden,
                });
            }
        }
        let unused: BTreeSet<&String> =
            self.objects().map(|(_, object)| &object.pool).filter(|pool| !used.contains(pool)).collect();
        for pool in unused {
            let known: Vec<&str> =
                effective.pools.values().map(|pool| pool.inference_pool.as_str()).collect();
            let text = format!(
                "{}: objectives of the InferencePool {pool:?} concern no pool; known: {} (pools.<name>.inferencePool)",
                self.dir.display(),
                known.join(", ")
            );
            effective.notices.push(Notice { path: path.to_owned(), text });
        }
    }
}

/// The files that may hold objects: `.yaml`, `.yml`, `.json`, none that is hidden.
fn names(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let kind = Path::new(&name).extension().and_then(OsStr::to_str);
        if name.starts_with('.') || !matches!(kind, Some("yaml" | "yml" | "json")) {
            continue;
        }
        if names.len() == FILES_MAX {
            return Err(io::Error::other(format!("more than {FILES_MAX} files, allowed: at most that many")));
        }
        names.insert(name);
    }
    Ok(names)
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

fn content(path: &Path, size: u64) -> Result<String, String> {
    if size > yaml::TEXT_BYTES_MAX as u64 {
        return Err(format!("the file has {size} bytes, allowed: at most {}", yaml::TEXT_BYTES_MAX));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}
