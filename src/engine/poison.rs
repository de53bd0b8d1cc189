//! Inputs that made the kernel fail: kept aside as files of the data directory, and refused from then on.
//!
//! An arrival is known again by what the kernel is given of it, times and trace aside. Once two that differ in nothing
//! but the caller's id and key failed alike, all of that kind are refused. Not here: how a pool comes back
//! (`comeback.rs`).

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_kernel::{Arrival, Input, KERNEL_BEHAVIOUR, Micros};
use weir_log::describe::{input_kind, show_time};

/// Files that are kept of one pool; what fails beyond it is refused as well, but not written down.
const FILES_MAX: usize = 64;
/// Fingerprints that are remembered of one pool.
const KNOWN_MAX: usize = 4_096;

type Print = [u8; 16];

/// What an input is known again by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prints {
    /// All of it but times and trace.
    exact: Print,
    /// The same without what tells one caller from another.
    class: Print,
}

/// The memory of one pool.
pub(super) struct Poison {
    /// Where the files of this pool are; none if the log lives in memory.
    dir: Option<PathBuf>,
    pool: String,
    /// Is anything refused at all?
    any: AtomicBool,
    refused: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    refused: BTreeSet<Print>,
    /// Kinds of arrivals that failed once, and with which words.
    once: BTreeMap<Print, String>,
    files: usize,
}

impl Poison {
    /// What earlier runs of this version kept in the data directory.
    pub fn load(data: Option<&Path>, pool: &str) -> Poison {
        let dir = data.map(|data| data.join("poison").join(pool));
        let mut known = Known::default();
        let files = dir.as_deref().and_then(|dir| fs::read_dir(dir).ok());
        for file in files.into_iter().flatten().flatten().map(|entry| entry.path()) {
            known.files += 1;
            match read(&file) {
                Some((prints, panic)) => known.learn(prints, &panic),
                None => {
                    tracing::warn!(file = %file.display(), "kept aside by another version, or not readable")
                }
            }
        }
        let any = !known.refused.is_empty();
        if any {
            let (files, dir) = (known.files, dir.as_deref().map(Path::display).map(|d| d.to_string()));
            tracing::warn!(
                pool,
                files,
                dir,
                "inputs like those kept aside are refused; remove a file to allow its like"
            );
        }
        Poison {
            dir,
            pool: pool.to_owned(),
            any: AtomicBool::new(any),
            refused: AtomicU64::new(0),
            known: Mutex::new(known),
        }
    }

    /// Inputs that were refused because their like made the kernel fail.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Is this one refused? Counts it if it is.
    pub fn refuses(&self, input: &Input) -> bool {
        self.any.load(Ordering::Acquire) && prints(input).is_some_and(|prints| self.meets(prints))
    }

    /// The same of an arrival that is no input yet.
    pub fn refuses_arrival(&self, arrival: &Arrival) -> bool {
        self.any.load(Ordering::Acquire) && self.meets(arrival_prints(arrival))
    }

    fn meets(&self, prints: Prints) -> bool {
        let known = self.lock();
        let met = known.refused.contains(&prints.exact) || known.refused.contains(&prints.class);
        drop(known);
        if met {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        met
    }

    /// Keeps an input aside that made the kernel fail at this sequence, and refuses its like from here on. Returns where
    /// it is kept.
    pub fn keep(&self, input: &Input, seq: u64, at: Micros, panic: &str) -> Option<PathBuf> {
        let prints = prints(input);
        let mut known = self.lock();
        if let Some(prints) = prints {
            known.learn(prints, panic);
            self.any.store(true, Ordering::Release);
        }
        let dir = self.dir.as_deref().filter(|_| known.files < FILES_MAX)?;
        let own = hex(&prints.map_or([0; 16], |prints| prints.exact));
        let file = dir.join(format!("{seq}-{}.json", own.get(..8).unwrap_or_default()));
        let text = self.text(input, seq, at, panic, prints);
        match write(dir, &file, text.as_bytes()) {
            Ok(()) => {
                known.files += 1;
                Some(file)
            }
            Err(error) => {
                tracing::error!(file = %file.display(), %error, "the input cannot be kept aside: {text}");
                None
            }
        }
    }

    fn text(&self, input: &Input, seq: u64, at: Micros, panic: &str, prints: Option<Prints>) -> String {
        let value = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernelBehaviour": KERNEL_BEHAVIOUR,
            "pool": self.pool,
            "sequence": seq,
            "at": at,
            "time": show_time(at),
            "panic": panic,
            "kind": input_kind(input),
            "exact": prints.map(|prints| hex(&prints.exact)),
            "class": prints.map(|prints| hex(&prints.class)),
            "input": input,
        });
        format!("{value:#}\n")
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn learn(&mut self, prints: Prints, panic: &str) {
        if self.refused.len() >= KNOWN_MAX {
            return;
        }
        // The same one again, as from a file that is read, says nothing about others of its kind.
        if self.refused.insert(prints.exact) && prints.class != prints.exact {
            match self.once.get(&prints.class) {
                Some(before) if before == panic => {
                    self.refused.insert(prints.class);
                }
                Some(_) => {}
                None => {
                    self.once.insert(prints.class, panic.to_owned());
                }
            }
        }
    }
}

/// What comes from outside can be refused; time, the pool's own view and the end cannot.
fn prints(input: &Input) -> Option<Prints> {
    match input {
        Input::Arrived(arrival) => Some(arrival_prints(arrival)),
        Input::Cancelled(_)
        | Input::Ended(_)
        | Input::FirstByte { .. }
        | Input::Renewed { .. }
        | Input::PolicyChanged(_)
        | Input::ObjectivesChanged(_)
        | Input::Admin(_) => {
            let print = print(input);
            Some(Prints { exact: print, class: print })
        }
        _ => None,
    }
}

fn arrival_prints(arrival: &Arrival) -> Prints {
    let timeless = Arrival {
        received_at: Micros::ZERO,
        deadline: arrival.deadline.map(|_| Micros::ZERO),
        trace: None,
        ..arrival.clone()
    };
    let nobodys = Arrival { caller_id: String::new(), idempotency: None, ..timeless.clone() };
    Prints { exact: print(&timeless), class: print(&nobodys) }
}

fn print(of: &impl serde::Serialize) -> Print {
    // The kernel's types all have a JSON form.
    let digest = Sha256::digest(serde_json::to_vec(of).unwrap_or_default());
    let mut print = Print::default();
    print.copy_from_slice(&digest[..16]);
    print
}

fn hex(print: &Print) -> String {
    print.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Print> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then(|| number.to_be_bytes())
}

/// The fingerprints and the words of a file that this version wrote.
fn read(file: &Path) -> Option<(Prints, String)> {
    let value: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let ours = value["version"] == env!("CARGO_PKG_VERSION") && value["kernelBehaviour"] == KERNEL_BEHAVIOUR;
    let print = |name: &str| unhex(value[name].as_str()?);
    let prints = Prints { exact: print("exact")?, class: print("class")? };
    ours.then(|| Some((prints, value["panic"].as_str()?.to_owned())))?
}

fn write(dir: &Path, file: &Path, text: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut out = fs::File::create(file)?;
    out.write_all(text)?;
    out.sync_all()?;
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::RequestId;

    fn arrival(caller_id: &str, received_at: u64, bytes: u64) -> Input {
        let received_at = Micros(received_at);
        Input::Arrived(Arrival { caller_id: caller_id.to_owned(), received_at, bytes, ..Arrival::default() })
    }

    /// The same again is refused, also after a restart; another of its kind only once two of them failed alike.
    #[test]
    fn the_like_of_what_failed_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let poison = Poison::load(Some(data.path()), "p");
        assert!(!poison.refuses(&arrival("a", 1, 7)));
        let file = poison.keep(&arrival("a", 1, 7), 42, Micros(5), "index out of bounds").unwrap();
        assert!(poison.refuses(&arrival("a", 9, 7)), "when it came does not count");
        assert!(!poison.refuses(&arrival("b", 1, 7)) && !poison.refuses(&arrival("a", 1, 8)));
        let told: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&told["sequence"], &told["panic"]), (&42.into(), &"index out of bounds".into()));
        assert_eq!(told["input"]["Arrived"]["bytes"], 7);

        let again = Poison::load(Some(data.path()), "p");
        assert!(again.refuses(&arrival("a", 1, 7)) && !again.refuses(&arrival("b", 1, 7)));
        again.keep(&arrival("b", 1, 7), 43, Micros(6), "index out of bounds").unwrap();
        assert!(again.refuses(&arrival("c", 1, 7)) && !again.refuses(&arrival("c", 1, 8)));
        assert_eq!(again.refused(), 2);
        fs::remove_file(file).unwrap();
        assert!(!Poison::load(Some(data.path()), "p").refuses(&arrival("a", 1, 7)), "an operator allowed it");
        assert!(!Poison::load(Some(data.path()), "other").refuses(&arrival("b", 1, 7)));
    }

    #[test]
    fn time_and_the_view_of_the_pool_are_never_refused() {
        let poison = Poison::load(None, "p");
        for input in [Input::TimePassed, Input::Observed(weir_kernel::Observation::default()), Input::Stopped]
        {
            assert_eq!(poison.keep(&input, 1, Micros(1), "x"), None);
            assert!(!poison.refuses(&input));
        }
        let byte = Input::FirstByte { request: RequestId(7) };
        assert!(!poison.refuses(&byte));
        poison.keep(&byte, 1, Micros(1), "x");
        assert!(poison.refuses(&byte));
    }
}
