//! Goal: no command panics where its output cannot be written, and a named pipe that is given for a file stays one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_kernel::{Input, KERNEL_BEHAVIOUR, Micros, Started, State, step};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;
use weir_log::{Frame, Head};

const PATIENCE: Duration = Duration::from_secs(60);

fn weir(args: &[&str], at: &Path, out: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(at).stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn full() -> Stdio {
    std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// A log of one pool with a start.
fn one_step(data: &Path) {
    let wall = Micros(1_764_460_800_000_000);
    let start = Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall };
    let steps = [step(&mut State::new(), wall, Input::Started(start))];
    let frame = Frame::encode(&Arc::from("default"), Head::default().hash, wall, &steps).unwrap();
    let mut store = HotStore::open(data, HotOptions::default()).unwrap();
    store.write(&[frame]).unwrap();
    store.sync().unwrap();
}

#[test]
fn a_question_without_its_variable_is_not_put_and_one_without_an_answer_fails() {
    let dir = tempfile::tempdir().unwrap();
    one_step(&dir.path().join("data"));
    let ask =
        |args: &[&str]| weir(&[&["query"], args, &["--data", "data"]].concat(), dir.path(), Stdio::null());
    let (code, told) = ask(&["why-was-this-request-shed"]);
    assert_eq!(code, Some(2), "{told}");
    assert_eq!(told, "weir query: why-was-this-request-shed needs --var id=… (ID!)\n");
    let (code, told) = ask(&["what-became-of-a-callers-request", "--var", "pool=default"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("needs --var callerId=… (String!)"), "{told}");
    let (code, told) = ask(&["why-was-this-request-shed", "--var", "id=null"]);
    assert_eq!(code, Some(1), "{told}");
    for form in [&["--json"][..], &[]] {
        let asked = [&["why-was-this-request-shed", "--var", "id=default-7"], form].concat();
        let (code, told) = ask(&asked);
        assert_eq!((code, told.as_str()), (Some(1), "weir query: request: there is none\n"));
    }
    // A list that is empty is an answer.
    let (code, told) = ask(&["what-became-of-a-callers-request", "--var", "callerId=nobody"]);
    assert_eq!((code, told.as_str()), (Some(0), ""));
}

#[test]
fn no_command_panics_where_its_output_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    one_step(&dir.path().join("data"));
    // Nobody listens there: the report says so, and the exit code is 1 with any output.
    let load = ["load", "--target", "http://127.0.0.1:1", "--rate", "5", "--duration", "1s", "--grace", "1s"];
    for (args, code) in [
        (&["config", "explain"][..], 0),
        (&["config", "explain", "--json"], 0),
        (&["config", "reference"], 0),
        (&["config", "check"], 0),
        (&["simpool", "--run-for", "10ms"], 0),
        (&["simpool", "--run-for", "10ms", "--json"], 0),
        (&["projections", "info", "--data", "data"], 0),
        (&["projections", "rebuild", "--data", "data"], 0),
        (&["query", "--list"], 0),
        (&["query", "how-far-are-the-answers", "--data", "data"], 0),
        (&["query", "how-far-are-the-answers", "--data", "data", "--json"], 0),
        (&load, 1),
    ] {
        let (found, told) = weir(args, dir.path(), closed());
        assert_eq!(found, Some(code), "{args:?}: {told}");
        assert!(!told.contains("panicked") && !told.contains("standard output"), "{args:?}: {told}");
        let (found, told) = weir(args, dir.path(), full());
        assert_eq!(found, Some(1), "{args:?}: {told}");
        let said = format!("weir {}: standard output: ", args[0]);
        assert!(told.contains(&said) && !told.contains("panicked"), "{args:?}: {told}");
    }
}

/// A server that is stopped with the test.
struct Serving(Child);

impl Serving {
    fn start(at: &Path, out: Stdio) -> Self {
        Serving::saying(at, out, Stdio::null())
    }

    fn saying(at: &Path, out: Stdio, error: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--port-file", "port"]);
        command.current_dir(at).stdin(Stdio::null()).stdout(out).stderr(error);
        Serving(command.spawn().unwrap())
    }

    /// Asks it to end, and waits.
    fn end(&mut self) -> ExitStatus {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_service_lives_on_where_its_messages_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut serving = Serving::saying(dir.path(), Stdio::null(), full());
    let (port, began) = (dir.path().join("port"), Instant::now());
    let listens =
        || std::fs::read_to_string(&port).is_ok_and(|text| text.trim().parse::<SocketAddr>().is_ok());
    while !listens() {
        assert_eq!(serving.0.try_wait().unwrap(), None, "it ended");
        assert!(began.elapsed() < PATIENCE, "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(serving.end().code(), Some(0));
}

#[test]
fn a_port_file_that_is_a_named_pipe_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("port");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Standard output that nobody reads is no reason not to serve.
    let mut serving = Serving::start(dir.path(), closed());
    let (to, read) = std::sync::mpsc::channel();
    let name = pipe.clone();
    std::thread::spawn(move || to.send(std::fs::read_to_string(name)));
    let text = read.recv_timeout(PATIENCE).unwrap().unwrap();
    std::net::TcpStream::connect(text.parse::<SocketAddr>().unwrap()).unwrap();
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(serving.end().success());

    // Without a reader the address waits, and a signal is heard all the same.
    let (mut out, told) = std::io::pipe().unwrap();
    let mut serving = Serving::start(dir.path(), told.into());
    let mut first = [0; 5];
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"weir ", "it serves");
    assert!(serving.end().success());
}
