//! Child processes: their pipes, their ends, and coroutines that are cancelled beside them; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::process::{Child, Command};
use ringloop_coro::{select, spawn_local, time, yield_now};
use ringloop_testing::coro::{on_both, pattern};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

fn cat() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn child_echoes_more_than_its_pipes_hold_while_others_run() {
    on_both(|| {
        let mut child = cat();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let writer = spawn_local(move || stdin.write_all(&pattern(3_000_001)).unwrap());
        let mut echoed = Vec::new();
        stdout.read_to_end(&mut echoed).unwrap();
        writer.join().unwrap();
        assert!(echoed == pattern(3_000_001));
        assert!(child.wait().unwrap().success() && child.id().is_none());
    });
}

#[test]
fn output_and_status_are_those_of_the_child() {
    on_both(|| {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("echo \"$WORD\"; pwd >&2; exit 3");
        shell.env("WORD", "out").current_dir("/");
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"/\n"[..]));
        assert!(Command::new("true").status().unwrap().success());
        let missing = Command::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn wait_may_be_raced_and_goes_on_after_it_lost() {
    on_both(|| {
        let mut child = cat();
        let kept = child.stdin.take();
        let won = select! {
            _ = child.wait_async() => "the child",
            () = time::after(std::time::Duration::from_millis(2)) => "the clock",
        };
        assert_eq!((won, child.try_wait().unwrap()), ("the clock", None));
        drop(kept);
        assert!(child.wait().unwrap().success());
        let mut child = cat();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    });
}

#[test]
fn cancelled_coroutine_leaves_a_read_at_once_and_kills_if_it_was_told_to() {
    on_both(|| {
        let reader = spawn_local(|| {
            let mut command = Command::new("sleep");
            let command = command.arg("3600").stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn().unwrap();
            let stdout = child.stdout.as_mut().unwrap();
            stdout.read_exact(&mut [0; 8]).unwrap();
        });
        yield_now();
        reader.cancel();
        assert!(reader.join().is_err());
    });
}

#[test]
fn closed_pipes_are_ends_and_errors() {
    on_both(|| {
        let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        child.wait().unwrap();
        // More than a pipe holds: what another test has just forked has the other end, too, until it
        // runs its program.
        let written = stdin.write_all(&pattern(100_000));
        assert_eq!(written.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}
