//! Forget, cancel and drop at every state of the operations on files, on both drivers; and what
//! pool threads keep alive.
//!
//! After each: nothing is in flight, no descriptor leaked, and a foreign buffer was released once and not
//! touched after.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::limits::{BLOCKING_QUEUE, BLOCKING_THREADS};
use ringloop::embed::op::{
    Allocate, Cancel, Fsync, HardLink, MakeDir, Open, Read, ReadV, Rename, Request, Splice, Statx,
    Symlink, Tee, Truncate, Unlink, Write, WriteV,
};
use ringloop::embed::sys::file;
use ringloop::embed::sys::storage::CURRENT_POSITION;
use ringloop::embed::{Completion, Token};
use ringloop_testing::drivers;
use ringloop_testing::engine::{Bed, Foreign, alone, expect_descriptors, open_descriptors};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A directory with a file in it, and the operations' arguments.
struct World {
    path: PathBuf,
    dir: File,
    file: File,
    pipes: [(OwnedFd, OwnedFd); 2],
    foreign: Foreign,
}

/// How many descriptors a world has.
const WORLD_DESCRIPTORS: usize = 6;

impl World {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("ringloop-states-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), vec![7; 100_000]).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).open(path.join("file"));
        Self {
            dir: File::open(&path).unwrap(),
            file: file.unwrap(),
            path,
            pipes: [file::pipe().unwrap(), file::pipe().unwrap()],
            foreign: Foreign::new(4096),
        }
    }

    fn at(&self, name: &str) -> (RawFd, CString) {
        (self.dir.as_raw_fd(), CString::new(name).unwrap())
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap();
    }
}

struct Case {
    name: &'static str,
    request: fn(&World) -> Request,
    uses_foreign: bool,
}

const fn case(name: &'static str, request: fn(&World) -> Request) -> Case {
    let uses_foreign = false;
    Case { name, request, uses_foreign }
}

const fn with_foreign(name: &'static str, request: fn(&World) -> Request) -> Case {
    let uses_foreign = true;
    Case { name, request, uses_foreign }
}

fn open(world: &World) -> Request {
    let (dir, path) = world.at("file");
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let mode = 0;
    Request::Open(Open { dir, path, flags, mode })
}

fn read(world: &World) -> Request {
    let (fd, buf, offset) = (world.fd(), world.foreign.recv_buf(), Some(1));
    Request::Read(Read { fd, buf, offset })
}

fn write(world: &World) -> Request {
    let (fd, buf, offset) = (world.fd(), world.foreign.send_buf(), Some(1));
    Request::Write(Write { fd, buf, offset })
}

fn readv(world: &World) -> Request {
    let bufs = vec![RecvBuf::with_capacity(10), world.foreign.recv_buf()];
    Request::ReadV(ReadV::new(world.fd(), bufs, 1))
}

fn writev(world: &World) -> Request {
    let bufs = vec![SendBuf::from(vec![1; 10]), world.foreign.send_buf()];
    Request::WriteV(WriteV::new(world.fd(), bufs, 1))
}

fn rename(world: &World) -> Request {
    Request::Rename(Rename { from: world.at("file"), to: world.at("moved"), flags: 0 })
}

fn unlink(world: &World) -> Request {
    let (dir, path) = world.at("file");
    let flags = 0;
    Request::Unlink(Unlink { dir, path, flags })
}

fn make_dir(world: &World) -> Request {
    let (dir, path) = world.at("inner");
    let mode = 0o700;
    Request::MakeDir(MakeDir { dir, path, mode })
}

fn symlink(world: &World) -> Request {
    let (dir, path) = world.at("soft");
    let target = CString::new("file").unwrap();
    Request::Symlink(Symlink { target, dir, path })
}

fn hard_link(world: &World) -> Request {
    Request::HardLink(HardLink { from: world.at("file"), to: world.at("hard"), flags: 0 })
}

fn metadata(world: &World) -> Request {
    let path = CString::new(world.path.as_os_str().as_bytes()).unwrap();
    Request::Statx(Statx::new(world.dir.as_raw_fd(), path, 0))
}

fn splice_of_a_file(world: &World) -> Request {
    let to = (world.pipes[0].1.as_raw_fd(), None);
    Request::Splice(Splice::new((world.fd(), Some(0)), to, 100))
}

fn splice_that_waits(world: &World) -> Request {
    let from = (world.pipes[0].0.as_raw_fd(), None);
    let to = (world.pipes[1].1.as_raw_fd(), None);
    Request::Splice(Splice::new(from, to, 100))
}

fn tee_that_waits(world: &World) -> Request {
    let (from, to) = (&world.pipes[0].0, &world.pipes[1].1);
    Request::Tee(Tee::new(from.as_raw_fd(), to.as_raw_fd(), 100))
}

fn fsync(world: &World) -> Request {
    let (fd, data_only) = (world.fd(), false);
    Request::Fsync(Fsync { fd, data_only })
}

fn allocate(world: &World) -> Request {
    Request::Allocate(Allocate { fd: world.fd(), mode: 0, offset: 0, len: 200_000 })
}

fn truncate(world: &World) -> Request {
    let (fd, len) = (world.fd(), 10);
    Request::Truncate(Truncate { fd, len })
}

const CASES: [Case; 17] = [
    case("open", open),
    with_foreign("read", read),
    with_foreign("write", write),
    with_foreign("readv", readv),
    with_foreign("writev", writev),
    case("fsync", fsync),
    case("allocate", allocate),
    case("truncate", truncate),
    case("statx", metadata),
    case("rename", rename),
    case("unlink", unlink),
    case("mkdir", make_dir),
    case("symlink", symlink),
    case("hard link", hard_link),
    case("splice of a file", splice_of_a_file),
    case("splice", splice_that_waits),
    case("tee", tee_that_waits),
];

/// State of an operation when it is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Submitted; the kernel, or a thread, may not have begun it.
    Queued,
    /// The kernel was asked for completions once.
    InFlight,
    /// Its result has arrived, as a rule, and has not been taken.
    Completed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancel,
    Forget,
    CancelThenForget,
    DropDriver,
}

fn run(choice: Choice, case: &Case, state: State, end: End) {
    let before = open_descriptors();
    let world = World::new();
    let mut bed = Bed::new(choice);
    let settled = open_descriptors();
    let (key, token) = bed.submit((case.request)(&world));
    match state {
        State::Queued => {}
        State::InFlight => bed.engine.park(Some(Duration::ZERO)).unwrap(),
        State::Completed => bed.engine.park(Some(Duration::from_millis(2))).unwrap(),
    }
    match end {
        End::Cancel => {
            bed.cancel(key);
            close_opened(case, &bed.expect(token));
        }
        End::Forget => bed.forget(key),
        End::CancelThenForget => {
            bed.cancel(key);
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            bed.forget(key);
        }
        End::DropDriver => {
            drop(bed);
            expect_descriptors(before + WORLD_DESCRIPTORS);
            finish(case, &world);
            drop(world);
            expect_descriptors(before);
            return;
        }
    }
    bed.drain();
    assert!(bed.take_all().is_empty(), "an event after the last");
    assert_eq!(open_descriptors(), settled, "descriptors");
    finish(case, &world);
    drop((bed, world));
    expect_descriptors(before);
}

fn close_opened(case: &Case, completion: &Completion) {
    assert!(!completion.more && completion.request.is_some());
    if case.name == "open" && completion.result >= 0 {
        file::close(completion.result).unwrap();
    }
}

fn finish(case: &Case, world: &World) {
    if case.uses_foreign {
        world.foreign.assert_released_untouched();
    }
}

#[test]
fn file_operations_given_up_at_every_state_leave_nothing_behind() {
    let _alone = alone();
    for choice in drivers() {
        for case in &CASES {
            for state in [State::Queued, State::InFlight, State::Completed] {
                for end in [End::Cancel, End::Forget, End::CancelThenForget, End::DropDriver] {
                    let description = format!("{choice:?}: {} {state:?} {end:?}", case.name);
                    let outcome = std::panic::catch_unwind(|| run(choice, case, state, end));
                    assert!(outcome.is_ok(), "{description}");
                }
            }
        }
    }
}

/// A read of an empty pipe on a pool thread, which cannot be stopped: at its position, as if the
/// pipe were a file.
fn stuck_read(reader: &OwnedFd, buf: RecvBuf) -> Request {
    ringloop::embed::sys::file::set_nonblocking(reader.as_raw_fd(), false).unwrap();
    Request::Read(Read { fd: reader.as_raw_fd(), buf, offset: Some(CURRENT_POSITION) })
}

/// Waits until this many threads are inside their reads of `reader`.
fn let_threads_begin(bed: &mut Bed, reader: &OwnedFd, count: usize) {
    let begun = Instant::now();
    while threads_reading(reader) < count {
        assert!(begun.elapsed() < ringloop_testing::PATIENCE, "no thread begins");
        bed.turn(Duration::from_millis(1));
    }
}

/// Threads of this process that wait inside a read of `reader` (proc(5), syscall: number and
/// arguments).
fn threads_reading(reader: &OwnedFd) -> usize {
    let fd = format!("{:#x}", reader.as_raw_fd());
    let number = libc::SYS_preadv2.to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let calls = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok());
    calls.filter(|call| call.split(' ').take(2).eq([&number, &fd])).count()
}

fn is_open(fd: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()
}

#[test]
fn file_closed_under_a_running_call_keeps_its_number_until_the_call_ends() {
    let _alone = alone();
    let before = open_descriptors();
    let mut bed = Bed::new(Choice::Epoll);
    let foreign = Foreign::new(16);
    let (reader, writer) = file::pipe().unwrap();
    let fd = reader.as_raw_fd();
    let (key, _) = bed.submit(stuck_read(&reader, foreign.recv_buf()));
    let_threads_begin(&mut bed, &reader, 1);
    bed.forget(key);
    bed.engine.driver_mut().close(reader);
    assert!(is_open(fd), "a thread is reading from it");
    assert_eq!((foreign.releases(), bed.in_flight()), (0, 1));
    file::write(writer.as_raw_fd(), b"late", None).unwrap();
    bed.drain();
    assert!(!is_open(fd));
    foreign.assert_released_untouched();
    drop((bed, writer));
    expect_descriptors(before);
}

#[test]
fn release_waits_for_the_thread_that_names_the_descriptor() {
    let _alone = alone();
    let mut bed = Bed::new(Choice::Epoll);
    let (reader, writer) = file::pipe().unwrap();
    let (key, _) = bed.submit(stuck_read(&reader, RecvBuf::with_capacity(16)));
    let_threads_begin(&mut bed, &reader, 1);
    bed.forget(key);
    let begun = Instant::now();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        file::write(writer.as_raw_fd(), b"late", None).unwrap();
    });
    bed.release(&reader);
    assert!(begun.elapsed() >= Duration::from_millis(30));
    later.join().unwrap();
    bed.drain();
}

#[test]
fn cancelled_call_that_has_begun_ends_with_its_own_result() {
    let _alone = alone();
    let mut bed = Bed::new(Choice::Epoll);
    let (reader, writer) = file::pipe().unwrap();
    let (key, token) = bed.submit(stuck_read(&reader, RecvBuf::with_capacity(16)));
    let_threads_begin(&mut bed, &reader, 1);
    bed.cancel(key);
    let answer = bed.run(Request::Cancel(Cancel { target: key }));
    assert_eq!(answer.result, -libc::EALREADY);
    bed.expect_none(token);
    file::write(writer.as_raw_fd(), b"won", None).unwrap();
    let completion = bed.expect(token);
    assert_eq!(completion.result, 3, "the bytes are not lost");
    let gone = bed.run(Request::Cancel(Cancel { target: key }));
    assert_eq!(gone.result, -libc::ENOENT);
}

#[test]
fn what_waits_for_a_thread_is_cancelled_at_once_and_more_than_fits_waits_its_turn() {
    let _alone = alone();
    let mut bed = Bed::new(Choice::Epoll);
    let (reader, writer) = file::pipe().unwrap();
    let stuck: Vec<Token> = (0..BLOCKING_THREADS)
        .map(|_| bed.submit(stuck_read(&reader, RecvBuf::with_capacity(1))).1)
        .collect();
    let_threads_begin(&mut bed, &reader, BLOCKING_THREADS);
    let world = World::new();
    let behind: Vec<_> = (0..2 * BLOCKING_QUEUE).map(|_| bed.submit(fsync(&world))).collect();
    bed.turn(Duration::ZERO);
    for (key, token) in behind.iter().step_by(2) {
        bed.cancel(*key);
        assert_eq!(bed.expect(*token).result, -libc::ECANCELED);
    }
    file::write(writer.as_raw_fd(), &[7; BLOCKING_THREADS], None).unwrap();
    for token in stuck {
        assert_eq!(bed.expect(token).result, 1);
    }
    for (_, token) in behind.iter().skip(1).step_by(2) {
        assert_eq!(bed.expect(*token).result, 0);
    }
    bed.drain();
    bed.assert_sleeps();
}

#[test]
fn driver_dropped_under_a_call_that_does_not_end_leaks_its_buffer() {
    let _alone = alone();
    let mut bed = Bed::new(Choice::Epoll);
    let foreign = Foreign::new(16);
    let (reader, writer) = file::pipe().unwrap();
    bed.submit(stuck_read(&reader, foreign.recv_buf()));
    let_threads_begin(&mut bed, &reader, 1);
    let begun = Instant::now();
    drop(bed);
    let waited = begun.elapsed().as_millis();
    assert!(waited >= u128::from(ringloop::embed::limits::DRAIN_TIMEOUT_MS));
    assert_eq!(foreign.releases(), 0, "a thread may still write to it");
    file::write(writer.as_raw_fd(), b"late", None).unwrap();
    let begun = Instant::now();
    while thread_count() > 0 {
        assert!(begun.elapsed() < ringloop_testing::PATIENCE, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(foreign.releases(), 0, "nor is it released on another thread");
}

/// Threads of the blocking pool that still exist.
fn thread_count() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let ours = names.filter(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("ringloop-blocki")
    });
    ours.count()
}
