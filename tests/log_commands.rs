//! `weir log` on a real log: what each subcommand prints, and its exit code where something is damaged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use weir_kernel::{
    Arrival, Ended, EndpointChange, Input, KERNEL_BEHAVIOUR, Micros, Observation, Policy, PolicyChange, Role,
    Slot, Started, State, Step, Termination, step,
};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::segment::list;
use weir_log::store::Store;
use weir_log::{Frame, Head};

const START: u64 = 1_764_460_800_000_000;

/// Two pools of 300 requests each; every tenth batch comes after a rotation, so that a part can be sealed.
fn log(data: &Path) -> u64 {
    let mut store = HotStore::open(data, HotOptions::default()).unwrap();
    let mut last = 0;
    for pool in ["chat", "batch"] {
        let steps = steps(pool);
        last = steps.len() as u64;
        let mut head = Head::default();
        for chunk in steps.chunks(20) {
            let frame = Frame::encode(&Arc::from(pool), head.hash, chunk[0].at, chunk).unwrap();
            head = Head::of(&frame);
            store.write(&[frame]).unwrap();
        }
        store.sync().unwrap();
    }
    last
}

fn steps(pool: &str) -> Vec<Step> {
    let mut state = State::new();
    let mut at = START;
    let mut out = Vec::new();
    let mut take = |state: &mut State, input: Input| {
        at += 1_000;
        out.push(step(state, Micros(at), input));
    };
    let started =
        Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: Micros(START) };
    take(&mut state, Input::Started(started));
    let policy = Box::new(Policy { max_requests: 10, ..Policy::default() });
    take(&mut state, Input::PolicyChanged(PolicyChange { policy, digest: [1; 32] }));
    let changes = vec![
        EndpointChange::Joined { slot: Slot(0), name: "10.0.0.1:8000".to_owned(), role: Role::Decode },
        EndpointChange::Sampled { slot: Slot(0), waiting: 4, running: 1, kv: 100 },
    ];
    let requested_at = Micros(START);
    take(&mut state, Input::Observed(Observation { requested_at, changes, ..Observation::default() }));
    for turn in 0..300 {
        let caller_id = format!("{pool}-{turn}");
        take(&mut state, Input::Arrived(Arrival { caller_id, bytes: 100, ..Arrival::default() }));
        let running = state.leases().next();
        if let Some(request) = running.filter(|_| turn % 2 == 1) {
            take(&mut state, Input::Ended(Ended { request, termination: Termination::Natural, usage: None }));
        }
    }
    out
}

fn weir(args: &[&str], at: &Path) -> Output {
    weir_to(args, at, Stdio::piped())
}

fn weir_to(args: &[&str], at: &Path, out: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("log").args(args).current_dir(at).stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

fn ok(args: &[&str], at: &Path) -> String {
    let output = weir(args, at);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn fails(args: &[&str], at: &Path) -> String {
    let output = weir(args, at);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x04;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn info_cat_and_tail_show_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let last = log(&dir.path().join("data"));
    let info = ok(&["info", "--data", "data"], dir.path());
    assert!(info.contains(&format!("sequences  1 to {last} ({last} steps)")), "{info}");
    let json: serde_json::Value =
        serde_json::from_str(&ok(&["info", "--data", "data", "--json"], dir.path())).unwrap();
    assert_eq!(json["pools"][1]["pool"], "chat");
    assert_eq!(json["pools"][1]["lastSequence"], last);

    let lines = ok(&["cat", "--data", "data", "--json", "--from", "5", "--to", "9"], dir.path());
    let steps: Vec<Step> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sequences: Vec<u64> = steps.iter().map(|step| step.seq).collect();
    assert_eq!(sequences, [5, 5, 6, 6, 7, 7, 8, 8, 9, 9], "both pools, by time");

    let about = ok(&["cat", "--data", "data", "--pool", "chat", "--request", "chat-3"], dir.path());
    assert!(about.contains("id=\"chat-3\"") && !about.contains("chat-4\""), "{about}");
    let rejected = ok(&["cat", "--data", "data", "--kind", "rejected", "--limit", "1"], dir.path());
    assert!(rejected.contains("RejectedCapacity rejected-saturated"), "{rejected}");

    let tail = ok(&["tail", "--data", "data", "--pool", "chat", "-n", "2", "--json"], dir.path());
    let steps: Vec<Step> = tail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(steps.iter().map(|step| step.seq).collect::<Vec<_>>(), [last - 1, last]);
    assert!(fails(&["cat", "--data", "data", "--pool", "nope"], dir.path()).contains("no pool \"nope\""));
    assert!(fails(&["info", "--data", "elsewhere"], dir.path()).contains("there is no log here"));
    assert!(!dir.path().join("elsewhere").exists(), "looking makes no log");
}

#[test]
fn damage_is_named_and_the_way_back_works() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let last = log(&data);
    ok(&["export", "--data", "data", "-o", "all.wlog"], dir.path());
    let sealed = ok(&["seal", "--data", "data"], dir.path());
    assert!(sealed.contains("segments/chat/") && sealed.contains("snapshot of pool chat"), "{sealed}");
    assert!(ok(&["seal", "--data", "data"], dir.path()).contains("everything is sealed already"));
    assert!(ok(&["check", "--data", "data"], dir.path()).contains("good: every checksum"));
    assert!(ok(&["check", "all.wlog"], dir.path()).contains("good: every checksum"));

    let segment = list(&data, "chat").unwrap().remove(0);
    let whole = std::fs::read(&segment.path).unwrap();
    flip(&segment.path, 3_000);
    let found = fails(&["check", "--data", "data"], dir.path());
    assert!(found.contains("block 0, batch that starts at sequence 1"), "{found}");
    std::fs::write(&segment.path, whole).unwrap();
    flip(&dir.path().join("all.wlog"), 3_000);
    assert!(fails(&["check", "all.wlog"], dir.path()).contains("batch that starts at sequence"));

    // The database of the hot window breaks: what is sealed is the way back.
    let databases: Vec<PathBuf> =
        std::fs::read_dir(data.join("hot")).unwrap().map(|e| e.unwrap().path()).collect();
    for database in databases {
        std::fs::write(database.join("db"), vec![0xa5; 1 << 20]).unwrap();
    }
    let refused = fails(&["cat", "--data", "data"], dir.path());
    assert!(refused.contains("weir log import") && refused.contains("--sealed"), "{refused}");
    let imported = ok(&["import", "data", "--data", "new"], dir.path());
    assert!(imported.contains(&format!("pool chat: sequences 1 to {last}")), "{imported}");
    assert!(ok(&["check", "--data", "new"], dir.path()).contains("good"));
    assert!(fails(&["import", "data", "--data", "new"], dir.path()).contains("is not empty"));
}

/// What is left begins in the middle, and nothing reaches there: whoever would start on it learns so from the check.
#[test]
fn a_log_without_its_beginning_is_not_called_good() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    log(&data);
    ok(&["seal", "--data", "data"], dir.path());
    let first = list(&data, "chat").unwrap().remove(0);
    std::fs::remove_file(&first.path).unwrap();
    let check = ok(&["check", "--data", "data"], dir.path());
    assert!(check.contains("good"), "a snapshot reaches there: {check}");
    std::fs::remove_dir_all(data.join("snapshots")).unwrap();
    let found = fails(&["check", "--data", "data"], dir.path());
    assert!(found.contains("DAMAGED: it begins at sequence"), "{found}");
    assert!(found.contains("no good snapshot reaches there"), "{found}");
}

/// Without the mark a cut tail could not be told: nothing is opened, and the way back is named and works.
#[test]
fn a_missing_mark_is_refused_with_the_way_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let last = log(&data);
    ok(&["seal", "--data", "data"], dir.path());
    std::fs::remove_file(data.join("mark")).unwrap();
    let refused = fails(&["cat", "--data", "data"], dir.path());
    assert!(refused.contains("mark") && refused.contains("weir log import"), "{refused}");
    let imported = ok(&["import", "data", "--data", "new"], dir.path());
    assert!(imported.contains(&format!("pool chat: sequences 1 to {last}")), "{imported}");
}

#[test]
fn a_directory_in_use_is_read_as_far_as_it_is_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    log(&data);
    ok(&["seal", "--data", "data"], dir.path());
    let held = HotStore::open(&data, HotOptions::default()).unwrap();
    let output = weir(&["info", "--data", "data"], dir.path());
    assert!(output.status.success());
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(note.contains("in use by another process") && note.contains("--server"), "{note}");
    assert!(fails(&["seal", "--data", "data"], dir.path()).contains("in use"));
    drop(held);
}

#[test]
fn what_is_written_to_a_closed_pipe_is_no_error_and_to_a_full_disk_is_one() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    for args in [&["cat", "--data", "data"][..], &["check", "--data", "data"], &["seal", "--data", "data"]] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let output = weir_to(args, dir.path(), write.into());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = weir_to(args, dir.path(), full.into());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains("weir log: cannot write: ") && !told.contains("panicked"), "{args:?}: {told}");
    }
    // Half an export is one that failed.
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = weir_to(&["export", "--data", "data", "-o", "-"], dir.path(), write.into());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("standard output: cannot write"), "{told}");
}

#[test]
fn an_export_replaces_files_only() {
    use std::os::unix::fs::FileTypeExt;
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let at = |name: &str| dir.path().join(name);
    ok(&["export", "--data", "data", "-o", "plain.wlog"], dir.path());
    let size = std::fs::metadata(at("plain.wlog")).unwrap().len();

    std::os::unix::fs::symlink("target.wlog", at("link.wlog")).unwrap();
    ok(&["export", "--data", "data", "-o", "link.wlog"], dir.path());
    assert!(std::fs::symlink_metadata(at("link.wlog")).unwrap().is_symlink());
    assert_eq!(std::fs::symlink_metadata(at("target.wlog")).unwrap().len(), size, "through the link");

    assert!(Command::new("mkfifo").arg(at("fifo.wlog")).status().unwrap().success());
    // Open for both, so that no end waits for the other; a reader of its own, since a pipe holds 64 KiB.
    let held = std::fs::OpenOptions::new().read(true).write(true).open(at("fifo.wlog")).unwrap();
    let mut read = std::fs::File::open(at("fifo.wlog")).unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut read, &mut bytes).unwrap();
        bytes
    });
    let output = weir(&["export", "--data", "data", "-o", "fifo.wlog"], dir.path());
    drop(held);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(reader.join().unwrap().len() as u64, size);
    assert!(std::fs::symlink_metadata(at("fifo.wlog")).unwrap().file_type().is_fifo());
    assert!(!at("fifo.wlog.tmp").exists() && !at("link.wlog.tmp").exists());
}

/// A server that gives these steps, without `follow` the first two only; it answers each connection once.
fn server(steps: Vec<Step>, answers: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for _ in 0..answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while !lines.next().unwrap().unwrap().is_empty() {}
            let shown = if request.contains("follow=true") { &steps[2..] } else { &steps[..2] };
            let body: String = shown
                .iter()
                .map(|step| weir_log::describe::step_json(step).unwrap().to_string() + "\n")
                .collect();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close";
            write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            asked.push(request);
        }
        asked
    });
    (url, thread)
}

#[test]
fn tail_follows_a_running_server_where_the_first_answer_ended() {
    let dir = tempfile::tempdir().unwrap();
    let steps: Vec<Step> = steps("chat").into_iter().take(5).collect();
    let (url, asked) = server(steps.clone(), 2);
    let lines = ok(&["tail", "--server", &url, "--pool", "chat", "-f", "-n", "1", "--json"], dir.path());
    let read: Vec<Step> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, steps[1..], "the last one of what there was, and all that came");
    let asked = asked.join().unwrap();
    assert!(asked[0].starts_with("GET /v1/pools/chat/log?follow=false "), "{asked:?}");
    assert!(asked[1].starts_with("GET /v1/pools/chat/log?follow=true&from=3 "), "{asked:?}");
    assert!(fails(&["tail", "--server", &url, "--pool", "chat"], dir.path()).contains("no connection"));
}

/// A mistyped kind or a range that ends before it begins shows nothing without saying why: both are refused.
#[test]
fn what_can_show_nothing_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    for (args, wants) in [
        (&["--kind", "NONSENSE"][..], &["no such kind", "RejectedMany"][..]),
        (&["--kind", "Rejectd"], &["did you mean Rejected?"]),
        (&["--kind", "arrived,dispatchd"], &["did you mean Dispatched?"]),
        (&["--from", "10", "--to", "5"], &["--to 5 is before --from 10"]),
        (&["--from", "2026-11-30", "--to", "2026-11-29"], &["is before --from 2026-11-30T00:00:00"]),
    ] {
        for command in ["cat", "tail"] {
            let output = weir(&[&[command, "--data", "data"], args].concat(), dir.path());
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command} {args:?}: {error}");
            assert!(wants.iter().all(|want| error.contains(want)), "{command} {args:?}: {error}");
        }
    }
    let export = weir(&["export", "--data", "data", "--from", "9", "--to", "8", "-o", "x"], dir.path());
    assert_eq!(export.status.code(), Some(2));
    // One end of each kind, or both the same, are ranges.
    ok(&["cat", "--data", "data", "--from", "10", "--to", "2026-11-30"], dir.path());
    assert!(!ok(&["cat", "--data", "data", "--from", "10", "--to", "10"], dir.path()).is_empty());
}

/// sled gives no space back: a rebuild that cleared its database in place would leave all of the old one on the disk.
#[test]
fn projections_are_rebuilt_in_a_new_database_and_not_while_somebody_has_the_log() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(args).args(["--data", "data"]).current_dir(dir.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    };
    let counted = || {
        let (answered, text) = run(&["query", "how-far-are-the-answers", "--json"]);
        assert!(answered, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        answer["data"]["projection"].as_array().unwrap().len()
    };
    assert_eq!(counted(), 2, "two pools");
    let projections = dir.path().join("data/projections");
    let size = || std::fs::metadata(projections.join("db")).unwrap().len();
    let rebuilt = || {
        let (done, text) = run(&["projections", "rebuild"]);
        assert!(done && text.contains("chat: sequence") && text.contains("steps/s"), "{text}");
        size()
    };
    // How full its last pages are differs from run to run; four times as much would be seen.
    let first = rebuilt() * 5 / 4;
    for turn in 0..4 {
        let again = rebuilt();
        assert!(again <= first, "{again} bytes in turn {turn}, at most {first} at first");
    }
    // Damage is no hindrance.
    std::fs::write(projections.join("db"), vec![7; 1 << 20]).unwrap();
    assert!(rebuilt() <= first);
    assert_eq!(counted(), 2);
    let (before, held) = (size(), HotStore::open(&dir.path().join("data"), HotOptions::default()).unwrap());
    let (done, text) = run(&["projections", "rebuild"]);
    assert!(!done && text.contains("in use"), "{text}");
    assert_eq!(size(), before, "they are left as they were");
    drop(held);
}
