//! A file that somebody else writes: looked at now and then, read when it has changed and rests.
//!
//! By what the file system says of it, links followed: no events are asked for, which network and overlay mounts do not send.

use super::teller::Teller;
use super::{SLOW, heard};
use crate::observer::Spec;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use weir_config::FileSettings;

/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// What tells two versions of a file apart.
type Stamp = (SystemTime, u64, u64);

/// What one look found.
enum Look {
    /// The same as when it was read last.
    Same,
    /// Another one, which may still be being written.
    Moving(Stamp),
    /// It was read.
    Read(Stamp, Result<Vec<Spec>, String>),
    /// It cannot be looked at.
    Missing(String),
}

/// Looks until it is dropped.
pub async fn run(settings: FileSettings, tell: Teller) {
    let place = settings.path.display().to_string();
    let mut every = tokio::time::interval(Duration::from_micros(settings.interval.0));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut read, mut last): (Option<Stamp>, Option<Stamp>) = (None, None);
    // What is wrong with what was read, for as long as it is the same.
    let mut wrong: Option<String> = None;
    let mut first = true;
    loop {
        every.tick().await;
        let (path, known) = (settings.path.clone(), (read, last, first));
        // A file system that hangs must hold nobody up.
        let looking = tokio::task::spawn_blocking(move || look(&path, known));
        let Ok(look) = heard(&tell, &place, SLOW, looking).await else { continue };
        first = false;
        match look {
            Look::Same => {
                match &wrong {
                    None => tell.well(&place),
                    Some(error) => tell.still(&place, error),
                }
                last = read;
            }
            Look::Moving(stamp) => last = Some(stamp),
            Look::Read(stamp, specs) => {
                (read, last) = (Some(stamp), Some(stamp));
                wrong = specs.as_ref().err().cloned();
                match specs {
                    Ok(specs) => {
                        tell.well(&place);
                        tell.endpoints(specs);
                    }
                    Err(error) => tell.fault(&place, error),
                }
            }
            Look::Missing(error) => {
                last = None;
                tell.fault(&place, error);
            }
        }
    }
}

fn look(path: &Path, (read, last, first): (Option<Stamp>, Option<Stamp>, bool)) -> Look {
    match stamp(path) {
        Err(error) => Look::Missing(error),
        Ok(now) if Some(now) == read => Look::Same,
        Ok(now) if !first && Some(now) != last => Look::Moving(now),
        Ok(now) => Look::Read(now, content(path)),
    }
}

fn stamp(path: &Path) -> Result<Stamp, String> {
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("it is no file".to_owned());
    }
    Ok((meta.modified().map_err(|error| error.to_string())?, meta.len(), meta.ino()))
}

fn content(path: &Path) -> Result<Vec<Spec>, String> {
    let mut text = String::new();
    let file = fs::File::open(PathBuf::from(path)).map_err(|error| error.to_string())?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes, allowed: at most that many"));
    }
    let endpoints = weir_config::read_endpoints(&text).map_err(|mistakes| mistakes.to_string())?;
    let spec = |endpoint: weir_config::EndpointSettings| Spec {
        metrics_url: Some(format!("{}/metrics", endpoint.url)),
        name: endpoint.name,
        role: endpoint.role,
    };
    Ok(endpoints.into_iter().map(spec).collect())
}
