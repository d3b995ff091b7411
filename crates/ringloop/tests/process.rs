//! Child processes: pipes of many MiB both ways, every kind of exit, kills and drops at every
//! state, no zombies; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::process::{Command, pipe};
use ringloop::{Runtime, spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::{in_runtimes, processor_time};
use std::future::poll_fn;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::task::Poll;
use std::time::{Duration, Instant};

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    command
}

/// The children of this process, ended or not.
fn child_count() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let children = tasks.map(|task| {
        let path = task.unwrap().path().join("children");
        std::fs::read_to_string(path).unwrap_or_default()
    });
    children.map(|line| line.split_whitespace().count()).sum()
}

async fn until_childless() {
    let started = Instant::now();
    while child_count() > 0 {
        assert!(started.elapsed() < PATIENCE, "a child or a zombie is left");
        time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn status_is_the_childs() {
    in_runtimes(|runtime| {
        run(runtime, async {
            assert!(shell("exit 0").status().await.unwrap().success());
            assert_eq!(shell("exit 7").status().await.unwrap().code(), Some(7));
            let killed = shell("kill -USR1 $$").status().await.unwrap();
            assert_eq!(killed.signal(), Some(libc::SIGUSR1));
            let absent = Command::new("/nonexistent/program").status().await;
            assert_eq!(absent.unwrap_err().kind(), io::ErrorKind::NotFound);
        });
        assert_eq!(child_count(), 0);
    });
}

#[test]
fn output_is_all_that_was_written_to_both_pipes() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let script = "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2; exit 3";
            let mut command = shell(script);
            for _ in 0..2 {
                let output = command.output().await.unwrap();
                assert_eq!(output.status.code(), Some(3));
                assert_eq!((output.stdout.len(), output.stderr.len()), (3_000_000, 2_000_000));
            }
            // Settings persist.
            let output = command.stderr(Stdio::null()).output().await.unwrap();
            assert_eq!((output.stdout.len(), output.stderr.len()), (3_000_000, 0));
            let mut echo = shell("echo $GREETING; pwd; cat");
            echo.env_clear().env("GREETING", "hello").env("PATH", "/usr/bin:/bin");
            let output = echo.current_dir("/").args(["a", "b"]).output().await.unwrap();
            assert_eq!(output.stdout, b"hello\n/\n");
        });
        assert_eq!(child_count(), 0);
    });
}

#[test]
fn output_ends_the_input_of_a_child_that_reads_a_pipe() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut command = shell("cat; echo over");
            let output = time::timeout(PATIENCE, command.stdin(Stdio::piped()).output()).await;
            assert_eq!(output.unwrap().unwrap().stdout, b"over\n");
        });
    });
}

#[test]
fn mebibytes_go_both_ways_at_once() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut command = Command::new("cat");
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let sent: Vec<u8> = (0..8_000_000_u32).map(|at| (at % 251) as u8).collect();
            let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let bytes = sent.clone();
            let writing = spawn(async move { stdin.write_all(bytes).await.0 });
            let received = stdout.read_to_end(Vec::new()).await.unwrap();
            writing.await.unwrap().unwrap();
            assert!(received == sent);
            assert!(child.wait().await.unwrap().success());
            assert_eq!(child.id(), None);
            // A second wait returns the same.
            assert!(child.wait().await.unwrap().success());
            assert!(child.try_wait().unwrap().unwrap().success());
            child.kill().unwrap();
        });
    });
}

#[test]
fn read_of_a_pipe_without_room_returns_at_once() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (reader, writer) = pipe().unwrap();
            assert_eq!(reader.read(Vec::new()).await.0.unwrap(), 0);
            writer.write_all(b"x").await.0.unwrap();
            assert_eq!(reader.read(Vec::new()).await.0.unwrap(), 0);
            drop(writer);
            assert_eq!(reader.read_to_end(Vec::new()).await.unwrap(), b"x");
        });
    });
}

#[test]
fn child_that_reads_no_more_is_a_broken_pipe() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut child = shell("exec true").stdin(Stdio::piped()).spawn().unwrap();
            let stdin = child.stdin.take().unwrap();
            assert!(child.wait().await.unwrap().success());
            let (result, bytes) = stdin.write_all(vec![b'x'; 100_000]).await;
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(bytes.len(), 100_000);
        });
    });
}

#[test]
fn waiting_closes_the_childs_input() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            assert!(child.try_wait().unwrap().is_none());
            assert!(child.id().is_some());
            assert!(child.wait().await.unwrap().success());
        });
    });
}

#[test]
fn killed_child_reports_its_signal_and_a_late_kill_does_nothing() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut child = shell("exec sleep 100").spawn().unwrap();
            let late = time::timeout(Duration::from_millis(5), child.wait()).await;
            assert!(late.is_err(), "it sleeps");
            child.kill().unwrap();
            assert_eq!(child.wait().await.unwrap().signal(), Some(libc::SIGKILL));
            child.kill().unwrap();
        });
        assert_eq!(child_count(), 0);
    });
}

/// Never waited for, waiting, and ended unseen; each dropped.
#[test]
fn dropped_child_is_killed_where_asked_and_leaves_no_zombie() {
    in_runtimes(|runtime| {
        for state in 0..3 {
            run(runtime, async {
                let mut command = shell(if state == 2 { "exit 0" } else { "exec sleep 100" });
                let mut child = command.kill_on_drop(true).spawn().unwrap();
                if state == 1 {
                    let mut wait = Box::pin(child.wait());
                    let first = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
                    assert!(first.is_pending());
                    time::sleep(Duration::from_millis(1)).await;
                }
                if state == 2 {
                    time::sleep(Duration::from_millis(20)).await;
                }
                drop(child);
                until_childless().await;
            });
        }
    });
}

#[test]
fn dropped_child_that_is_not_to_be_killed_runs_on_and_is_seen_to() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (reader, writer) = pipe().unwrap();
            let mut command = shell("read line; echo done");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            drop(child);
            assert_eq!(child_count(), 1, "it runs on");
            stdin.write_all(b"go\n".to_vec()).await.0.unwrap();
            assert_eq!(stdout.read_to_end(Vec::new()).await.unwrap(), b"done\n");
            until_childless().await;
            writer.write_all(b"end".to_vec()).await.0.unwrap();
            drop(writer);
            assert_eq!(reader.read_to_end(b"the ".to_vec()).await.unwrap(), b"the end");
        });
    });
}

#[test]
fn children_of_a_dropped_runtime_are_killed_where_asked() {
    in_runtimes(|_| {
        let inner = Runtime::new().unwrap();
        let child = run(&inner, async {
            spawn(async {
                let mut command = shell("exec sleep 100");
                let mut child = command.kill_on_drop(true).spawn().unwrap();
                child.wait().await
            });
            time::sleep(Duration::from_millis(5)).await;
            shell("exec sleep 100").kill_on_drop(true).spawn().unwrap()
        });
        drop(inner);
        drop(child);
        // Their statuses are taken here, instead of by init.
        for _ in 0..2 {
            // SAFETY: a null pointer requests no status.
            assert!(unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0);
        }
        assert_eq!(child_count(), 0);
    });
}

#[test]
fn hundred_children_at_once_each_have_their_own_status() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let children: Vec<_> = (0..100)
                .map(|code| spawn(async move { shell(&format!("exit {code}")).status().await }))
                .collect();
            for (code, child) in children.into_iter().enumerate() {
                let status = child.await.unwrap().unwrap();
                assert_eq!(status.code(), i32::try_from(code).ok());
            }
        });
        assert_eq!(child_count(), 0);
    });
}

#[test]
fn status_reaped_by_other_code_is_an_error() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut child = shell("exit 0").spawn().unwrap();
            let pid = i32::try_from(child.id().unwrap()).unwrap();
            // SAFETY: a null pointer requests no status.
            assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
            let error = child.wait().await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
        });
    });
}

/// A process that traces another, without reaping it until its pipe is closed.
struct Tracer {
    pid: libc::pid_t,
    end: Option<std::io::PipeWriter>,
}

impl Tracer {
    /// `None` if processes may not trace others.
    fn of(traced: u32) -> Option<Self> {
        let (mut answer, tells) = std::io::pipe().unwrap();
        let (waits, end) = std::io::pipe().unwrap();
        // SAFETY: the child keeps to system calls and ends with _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            trace(traced, (tells.as_raw_fd(), waits.as_raw_fd()), end.as_raw_fd());
        }
        let mut word = [0];
        answer.read_exact(&mut word).unwrap();
        let end = Some(end);
        (word == [1]).then_some(Self { pid, end })
    }
}

/// The tracer: reports if it traces, and waits for the end of a pipe of which it has the other end
/// too.
fn trace(traced: u32, (tells, waits): (RawFd, RawFd), end: RawFd) -> ! {
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: no pointer is followed.
    let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, traced as libc::pid_t, null, null) };
    let mut word = u8::from(done == 0);
    // SAFETY: the descriptor is this process's.
    unsafe { libc::close(end) };
    // SAFETY: one live byte.
    unsafe { libc::write(tells, (&raw const word).cast(), 1) };
    // SAFETY: room for one byte.
    unsafe { libc::read(waits, (&raw mut word).cast(), 1) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end = None;
        // SAFETY: no status is requested.
        let reaped = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        assert_eq!(reaped, self.pid);
    }
}

#[test]
fn wait_neither_blocks_nor_spins_while_a_tracer_has_the_child() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let Some(holder) = Tracer::of(child.id().unwrap()) else {
                eprintln!("skipped: this machine lets no process trace another");
                child.wait().await.unwrap();
                return;
            };
            let used = processor_time();
            let early = time::timeout(Duration::from_millis(300), child.wait()).await;
            assert!(early.is_err(), "{early:?}");
            assert!(processor_time() < used + Duration::from_millis(150));
            drop(holder);
            assert_eq!(child.wait().await.unwrap().code(), Some(0));
        });
        assert_eq!(child_count(), 0);
    });
}
