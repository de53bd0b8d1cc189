//! `weir log export` and `weir log import`.

use super::Done;
use super::error::Failed;
use super::filter::range;
use super::info::size;
use super::source::{Source, pools};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_log::export::{Exported, Wanted, export, import_log};
use weir_log::reader::{Bound, Logs};
use weir_log::upkeep::wall_clock;
use weir_log::{SegmentError, dir, output, say, segment};

/// Arguments of `weir log export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An export holds whole batches in the form of sealed segments, pool after pool, with the snapshots that a trimmed log needs.
It is verified while it is written; a damaged batch stops it. weir log cat|check|import and weir-replay verify read it.

Examples:
  weir log export --data ./data -o backup.wlog
  weir log export --data ./data --pool chat --from 2026-11-30T01:00 --to 2026-11-30T02:00 -o incident.wlog
  weir log export --data ./data --sealed -o sealed.wlog     when the database does not open
  weir log export --data ./data -o - | weir-replay verify -")]
pub struct ExportArgs {
    #[command(flatten)]
    source: Source,
    /// The file to write; `-` is standard output. A device, a named pipe or a link is written to, not replaced.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only this pool.
    #[arg(long)]
    pool: Option<String>,
    /// From this sequence or time on; the batch that holds it is exported whole.
    #[arg(long, value_name = "SEQ|TIME")]
    from: Option<Bound>,
    /// Up to this sequence or time; the batch that holds it is exported whole.
    #[arg(long, value_name = "SEQ|TIME")]
    to: Option<Bound>,
}

/// Arguments of `weir log import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new directory is the same log, with the same id: it goes on where what was imported ends. This is the way back from a
database that does not open: what is sealed of the broken directory, and the newest export, become a new directory.

Examples:
  weir log import backup.wlog --data ./new-data
  weir log import ./broken-data backup.wlog --data ./new-data")]
pub struct ImportArgs {
    /// Exports, segment files, and data directories (of these, what is sealed).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The data directory to make; it must not exist, or be empty.
    #[arg(long, value_name = "NEWDIR")]
    data: PathBuf,
}

/// Runs `weir log export`.
pub fn run_export(args: &ExportArgs) -> Done {
    let (from, to) = range(args.from, args.to)?;
    let opened = args.source.open()?;
    pools(&opened.logs, args.pool.as_deref())?;
    let log_id = log_id(&args.source, &opened.logs)?;
    let wanted = Wanted { pool: args.pool.clone(), from, to };
    let done = if args.output.as_os_str() == "-" {
        let out = BufWriter::new(std::io::stdout().lock());
        write(&opened.logs, &wanted, log_id, out, "standard output")?.0
    } else {
        to_file(&opened.logs, &wanted, log_id, &args.output)?
    };
    for pool in &done {
        let snapshots =
            if pool.snapshots > 0 { format!(", {} snapshots", pool.snapshots) } else { String::new() };
        eprintln!("pool {}: sequences {} to {}{snapshots}", pool.pool, pool.first_seq, pool.last_seq);
    }
    if done.is_empty() {
        return Err(Failed::Other("nothing to export: no steps in that range".to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Half an export is a failure, also where it is the reader that went away.
fn write<W: Write>(
    logs: &Logs,
    wanted: &Wanted,
    log_id: [u8; 16],
    mut out: W,
    name: &str,
) -> Result<(Vec<Exported>, W), Failed> {
    let done = export(logs, wanted, log_id, wall_clock(), &mut out, name)?;
    out.flush().map_err(|error| SegmentError::io(name, "write", error))?;
    Ok((done, out))
}

/// Under a temporary name first: there is no half an export under the name asked for, unless that is not a file of
/// ours to replace.
fn to_file(logs: &Logs, wanted: &Wanted, log_id: [u8; 16], path: &Path) -> Result<Vec<Exported>, Failed> {
    let create =
        |path: &Path| File::create(path).map_err(|error| SegmentError::io(path.display(), "create", error));
    let replaceable = output::is_replaceable(path);
    if !replaceable.map_err(|error| SegmentError::io(path.display(), "look at", error))? {
        let out = BufWriter::new(create(path)?);
        return Ok(write(logs, wanted, log_id, out, &path.display().to_string())?.0);
    }
    let temporary = output::beside(path);
    let file = create(&temporary)?;
    let written = write(logs, wanted, log_id, BufWriter::new(file), &temporary.display().to_string());
    let published = written.and_then(|(done, out)| {
        if done.is_empty() {
            std::fs::remove_file(&temporary)?;
            return Ok(done);
        }
        let bytes = segment::publish(out, &temporary, path)?;
        eprintln!("{}: {}", path.display(), size(bytes));
        Ok(done)
    });
    if published.is_err() {
        // What failed is the message; that half a file could not be removed as well would hide it.
        let _ = std::fs::remove_file(&temporary);
    }
    published
}

/// The log's id: in its description, else in the first section.
fn log_id(source: &Source, logs: &Logs) -> Result<[u8; 16], Failed> {
    let description = source.data.as_deref().map(dir::read_description).transpose()?.flatten();
    if let Some(description) = description {
        return Ok(description.log_id_bytes());
    }
    let first = logs.library().pools.values().find_map(|shelf| shelf.pieces.first());
    let Some(piece) = first else { return Ok([0; 16]) };
    let file = segment::SectionFile::open(&piece.path)?;
    Ok(file.sections.get(piece.section).map_or([0; 16], |section| section.header.log_id))
}

/// Runs `weir log import`.
pub fn run_import(args: &ImportArgs) -> Done {
    let imported = import_log(&args.files, &args.data, wall_clock())?;
    for pool in &imported.pools {
        say!(
            "pool {}: sequences {} to {}, {} segments, {} snapshots",
            pool.pool,
            pool.first_seq,
            pool.head.seq,
            pool.segments,
            pool.snapshots
        )?;
    }
    say!("{} is ready; it goes on where the import ends", args.data.display())?;
    Ok(ExitCode::SUCCESS)
}
