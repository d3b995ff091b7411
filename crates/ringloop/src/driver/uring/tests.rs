//! The ring driver when the kernel runs out of memory. `Ring::takes_at_most` simulates it: the
//! kernel sees fewer entries than there are, and acts as it does when it stops by itself.

mod borrowed;
mod refused;
mod resend;

use super::{Entry, UringDriver};
use crate::buf::{RecvBuf, SendBuf};
use crate::driver::{Driver, Key, Sink};
use crate::limits;
use crate::op::Request;
use crate::op::{Nop, Open, Recv, Splice, Tee, Timeout, Truncate, Write};
use crate::sys::event::EventFd;
use crate::sys::fd::AsRawFd;
use crate::sys::file;
use crate::sys::libc;
use crate::sys::uring::Config;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// A descriptor that one test closes and uses again. The tests share the numbers, and the kernel
/// gives the lowest.
const REUSED: i32 = 700;

const HOUR: Duration = Duration::from_secs(3600);

/// A driver with an empty queue.
pub fn driver() -> UringDriver {
    driver_that_polls(None)
}

fn driver_that_polls(polling: Option<Duration>) -> UringDriver {
    let config = Config { entries: 16, cq_entries: 64, polling };
    let mut driver = UringDriver::new(Arc::new(EventFd::new().unwrap()), &config).unwrap();
    driver.bind().unwrap();
    // The wake's poll, so that what follows is only the link's.
    driver.wait(Some(Duration::ZERO)).unwrap();
    driver
}

fn submit(driver: &mut UringDriver, request: Request, sink: Sink) -> Key {
    driver.submit_as(request, sink, 0)
}

/// Runs turns until the operation has ended.
fn result(driver: &mut UringDriver, key: Key) -> (i32, Option<Request>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Ok(taken) = driver.table_mut().poll(key, Waker::noop(), |back| back) {
            let (taken, back) = taken.unwrap();
            return (taken.result, back.expect("the last result"));
        }
        assert!(Instant::now() < deadline, "not over: {:?}", driver.table.slot(key));
        driver.wait(Some(Duration::from_millis(10))).unwrap();
        assert!(driver.next_event().is_none());
    }
}

fn begin(driver: &mut UringDriver, request: Request, sink: Sink) -> Key {
    let key = submit(driver, request, sink);
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert!(driver.next_event().is_none());
    key
}

/// Makes the kernel end an operation with `errno`: stops it, and changes its completion.
fn stop(driver: &mut UringDriver, key: Key, errno: i32) {
    assert!(driver.push_cancel(key));
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        driver.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some(mut cqe) = driver.ring.pop() {
            if cqe.user_data == key.user_data() {
                assert_eq!(cqe.res, -libc::ECANCELED, "it waited");
                cqe.res = -errno;
                assert!(driver.completed(cqe).is_none());
                return;
            }
        }
        assert!(Instant::now() < deadline, "it was not stopped");
    }
}

fn write(fd: i32, bytes: &[u8]) -> Request {
    Request::Write(Write { fd, buf: SendBuf::from(bytes.to_vec()), offset: None })
}

#[test]
fn link_that_memory_fails_in_the_middle_of_ends_there() {
    for taken in 1..4 {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let mut driver = driver();
        driver.ring.takes_at_most = taken;
        let links = [b"1", b"2", b"3", b"4"].map(|byte| write(near.as_raw_fd(), byte));
        let keys = driver.submit_linked(links.into(), Waker::noop());
        // An operation behind it on the queue, not in the link, is unaffected.
        let beside = submit(&mut driver, Request::Nop(Nop), Sink::Waker(Waker::noop().clone()));
        let results: Vec<_> = keys.iter().map(|key| result(&mut driver, *key).0).collect();
        let mut expected = vec![-libc::ECANCELED; 4];
        expected[..taken as usize].fill(1);
        expected[taken as usize] = -libc::ENOMEM;
        assert_eq!(results, expected, "of 4 entries the kernel took {taken}");
        assert_eq!(result(&mut driver, beside).0, 0);
        driver.ring.takes_at_most = u32::MAX;
        for _ in 0..3 {
            driver.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(driver.next_event().is_none());
        }
        let mut written = [0; 8];
        assert_eq!(far.read(&mut written).unwrap(), taken as usize);
        assert_eq!(driver.table.len(), 0);
        // The next link is whole again.
        let links = [b"5", b"6"].map(|byte| write(near.as_raw_fd(), byte));
        for key in driver.submit_linked(links.into(), Waker::noop()) {
            assert_eq!(result(&mut driver, key).0, 1);
        }
    }
}

#[test]
fn operation_that_lost_its_timeout_is_cancelled() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 1;
    let recv = Recv { fd: near.as_raw_fd(), buf: RecvBuf::with_capacity(8) };
    let limit = Timeout::of_link(HOUR);
    let requests = vec![Request::Recv(recv), Request::Timeout(limit), Request::Nop(Nop)];
    let keys = driver.submit_linked(requests, Waker::noop());
    let results: Vec<_> = keys.iter().map(|key| result(&mut driver, *key).0).collect();
    // A kernel thread begins a link that a submission cuts short; its waits end like this.
    assert!([libc::ECANCELED, libc::EINTR].contains(&-results[0]));
    assert_eq!(results[1..], [-libc::ENOMEM, -libc::ECANCELED]);
    assert_eq!(driver.table.len(), 0);
}

#[test]
fn split_link_whose_future_is_gone_leaves_nothing() {
    let mut driver = driver();
    driver.ring.takes_at_most = 2;
    let nops = (0..5).map(|_| Request::Nop(Nop)).collect();
    let keys = driver.submit_linked(nops, Waker::noop());
    for key in keys {
        driver.forget(key);
    }
    driver.ring.takes_at_most = u32::MAX;
    for _ in 0..5 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
    assert_eq!(driver.table.len(), 0);
}

#[test]
fn operations_wait_out_a_kernel_without_memory() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 0;
    let sink = || Sink::Waker(Waker::noop().clone());
    let recv = Recv { fd: near.as_raw_fd(), buf: RecvBuf::with_capacity(8) };
    let recv = submit(&mut driver, Request::Recv(recv), sink());
    let given_up = submit(&mut driver, Request::Timeout(Timeout::after(HOUR)), sink());
    driver.forget(given_up);
    // More than the queue holds.
    let nops: Vec<_> = (0..40).map(|_| submit(&mut driver, Request::Nop(Nop), sink())).collect();
    std::io::Write::write_all(&mut far, b"bytes").unwrap();
    for _ in 0..5 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
    assert_eq!(driver.table.len(), 42, "nothing is lost, nothing has begun");
    // A little at a time, then all there is.
    driver.ring.takes_at_most = 3;
    assert_eq!(result(&mut driver, nops[0]).0, 0);
    driver.ring.takes_at_most = u32::MAX;
    for key in &nops[1..] {
        assert_eq!(result(&mut driver, *key).0, 0);
    }
    let received = result(&mut driver, recv);
    assert_eq!(received.0, 5);
    while driver.table.len() > 0 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
}

#[test]
fn driver_dropped_while_the_kernel_has_no_memory_frees_what_it_never_took() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 1;
    for _ in 0..30 {
        let recv = Recv { fd: near.as_raw_fd(), buf: RecvBuf::with_capacity(8) };
        submit(&mut driver, Request::Recv(recv), Sink::Waker(Waker::noop().clone()));
    }
    driver.wait(Some(Duration::ZERO)).unwrap();
    drop(driver);
    // The results are not taken.
    std::io::Write::write_all(&mut far, b"bytes").unwrap();
    let mut near = near;
    near.set_nonblocking(true).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(near.read(&mut bytes).unwrap(), 5);
}

#[test]
fn descriptors_of_what_a_polling_thread_took_are_forgotten_under_load() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut driver = driver_that_polls(Some(HOUR));
    let deadline = Instant::now() + Duration::from_secs(10);
    for _ in 0..50 {
        let sink = Sink::Waker(Waker::noop().clone());
        let key = submit(&mut driver, write(near.as_raw_fd(), b"1"), sink);
        // Completes before the loop polls, which then makes no system call.
        while driver.ring.pending() > 0 || driver.ring.ready() == 0 {
            assert!(Instant::now() < deadline, "nothing is taken");
            std::thread::yield_now();
        }
        driver.wait(Some(Duration::ZERO)).unwrap();
        assert_eq!(driver.unsubmitted, []);
        assert_eq!(result(&mut driver, key).0, 1);
    }
}

#[test]
fn descriptors_of_what_the_kernel_left_are_known_still() {
    let (near, far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 8;
    let fds = [near.as_raw_fd(), far.as_raw_fd()];
    let sink = || Sink::Waker(Waker::noop().clone());
    let keys: Vec<_> = [fds[0]; 8]
        .into_iter()
        .chain(fds)
        .map(|fd| submit(&mut driver, write(fd, b"1"), sink()))
        .collect();
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert_eq!(driver.ring.pending(), 2);
    assert!(driver.unsubmitted.ends_with(&fds), "{:?}", driver.unsubmitted);
    assert!(driver.unsubmitted.len() <= 4, "two an entry");
    // Released: they have been submitted.
    driver.ring.takes_at_most = u32::MAX;
    driver.release(fds[1]);
    assert_eq!((driver.ring.pending(), driver.unsubmitted.len()), (0, 0));
    for key in keys {
        assert_eq!(result(&mut driver, key).0, 1);
    }
}

#[test]
fn operation_on_two_descriptors_that_was_tried_first_names_both() {
    let (empty, _full) = file::pipe().unwrap();
    let (_free, to) = file::pipe().unwrap();
    let fds = [empty.as_raw_fd(), to.as_raw_fd()];
    let requests = [
        Request::Splice(Splice::new((fds[0], None), (fds[1], None), 1)),
        Request::Tee(Tee::new(fds[0], fds[1], 1)),
    ];
    for mut request in requests {
        let mut tried = Driver::Uring(Box::new(driver()));
        assert_eq!(tried.attempt(&mut request), None, "there is nothing");
        let Driver::Uring(driver) = &mut tried else { unreachable!("made just now") };
        let sink = Sink::Waker(Waker::noop().clone());
        let key = submit(driver, request, sink);
        assert_eq!(driver.unsubmitted, fds);
        driver.forget(key);
    }
}

/// Runs turns until nothing is in flight.
fn finish(driver: &mut UringDriver) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while driver.table.len() > 0 {
        assert!(Instant::now() < deadline, "something goes on");
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
}

#[test]
fn truncate_that_waited_for_a_thread_of_the_kernels_hits_no_other_file_of_its_number() {
    let directory = std::env::temp_dir().join(format!("ringloop-late-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let fifo = directory.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let path = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    let open_next = |name: &str| {
        let mut options = std::fs::File::options();
        options.read(true).write(true).create_new(true);
        options.open(directory.join(name)).unwrap()
    };
    for released in [false, true] {
        let mut driver = driver();
        let sink = || Sink::Waker(Waker::noop().clone());
        // Each occupies a kernel thread until a peer writes to the FIFO: as many as there are for
        // such calls.
        for _ in 0..16 {
            let open = Open {
                dir: crate::sys::path::HERE,
                path: path.clone(),
                flags: libc::O_RDONLY | libc::O_CREAT,
                mode: 0o600,
            };
            let key = submit(&mut driver, Request::Open(open), sink());
            driver.table.orphan(key);
        }
        driver.wait(Some(Duration::ZERO)).unwrap();
        let file = open_next(&format!("file-{released}"));
        let fd = file.as_raw_fd();
        let truncate = submit(&mut driver, Request::Truncate(Truncate { fd, len: 1 }), sink());
        driver.wait(Some(Duration::ZERO)).unwrap();
        driver.forget(truncate);
        if released {
            driver.release(fd);
            drop(file);
        } else {
            driver.close(file.into());
        }
        let next = open_next(&format!("next-{released}"));
        next.set_len(4).unwrap();
        let _writer = std::fs::File::options().read(true).write(true).open(&fifo);
        // The threads run on, whether the driver is entered or not.
        let deadline = Instant::now() + Duration::from_millis(50);
        while Instant::now() < deadline && next.metadata().unwrap().len() == 4 {
            std::thread::yield_now();
        }
        finish(&mut driver);
        assert_eq!(next.metadata().unwrap().len(), 4, "released: {released}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

fn recv(socket: &UnixStream) -> Request {
    Request::Recv(Recv { fd: socket.as_raw_fd(), buf: RecvBuf::with_capacity(8) })
}

#[test]
fn cancel_of_a_later_operation_of_a_link_does_not_keep_the_loop_awake() {
    let ((near, mut far), (idle, _other)) =
        (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let mut driver = driver();
    let keys = driver.submit_linked(vec![recv(&near), recv(&idle)], Waker::noop());
    driver.wait(Some(Duration::ZERO)).unwrap();
    driver.cancel(keys[1]);
    let (begun, mut turns) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(200) {
        driver.wait(Some(Duration::from_millis(100))).unwrap();
        assert!(driver.next_event().is_none());
        turns += 1;
    }
    assert!(turns < 20, "{turns} turns for nothing");
    // It begins now, and its cancel is sent again.
    std::io::Write::write_all(&mut far, b"go on").unwrap();
    assert_eq!(result(&mut driver, keys[0]).0, 5);
    assert_eq!(result(&mut driver, keys[1]).0, -libc::ECANCELED);
}

#[test]
fn release_waits_for_a_later_operation_of_a_link() {
    let ((near, mut far), (idle, _other)) =
        (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let mut driver = driver();
    let keys = driver.submit_linked(vec![recv(&near), recv(&idle)], Waker::noop());
    driver.wait(Some(Duration::ZERO)).unwrap();
    driver.cancel(keys[1]);
    let begun = Instant::now();
    let peer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        std::io::Write::write_all(&mut far, b"go on").unwrap();
        far
    });
    driver.release(idle.as_raw_fd());
    let waited = begun.elapsed();
    assert!(
        driver.has_ended(keys[1]) || waited.as_millis() >= u128::from(limits::DRAIN_TIMEOUT_MS),
        "given up after {waited:?}"
    );
    drop(peer.join().unwrap());
    assert_eq!(result(&mut driver, keys[0]).0, 5);
    assert_eq!(result(&mut driver, keys[1]).0, -libc::ECANCELED);
}

#[test]
fn cancel_by_descriptor_that_waits_for_room_is_not_for_the_next_file_of_its_number() {
    let (near, _far) = UnixStream::pair().unwrap();
    let fd = near.as_raw_fd();
    let mut driver = driver();
    let sink = || Sink::Waker(Waker::noop().clone());
    let given_up = submit(&mut driver, recv(&near), sink());
    driver.wait(Some(Duration::ZERO)).unwrap();
    driver.ring.takes_at_most = 0;
    for _ in 0..16 {
        submit(&mut driver, Request::Nop(Nop), sink());
    }
    assert_eq!(driver.cancel_descriptor(fd), 1);
    driver.close(near.into());
    let entries = driver.backlog.iter();
    let mut named = entries.filter(|entry| matches!(entry, Entry::CancelDescriptor(_)));
    assert!(named.next().is_none(), "{:?}", driver.backlog);
    driver.ring.takes_at_most = u32::MAX;
    assert_eq!(result(&mut driver, given_up).0, -libc::ECANCELED);
}

#[test]
fn forgotten_link_that_waits_for_room_is_cancelled_when_its_descriptor_is_closed() {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let fd = REUSED;
    let named = file::duplicate_from(near.as_raw_fd(), fd).unwrap();
    drop(near);
    assert_eq!(named.as_raw_fd(), fd);
    let mut driver = driver();
    driver.ring.takes_at_most = 0;
    for _ in 0..16 {
        submit(&mut driver, Request::Nop(Nop), Sink::Waker(Waker::noop().clone()));
    }
    let keys = driver.submit_linked(vec![Request::Nop(Nop), write(fd, b"stray")], Waker::noop());
    driver.close(named);
    let (one, mut other) = UnixStream::pair().unwrap();
    let next = file::duplicate_from(one.as_raw_fd(), fd).unwrap();
    assert_eq!(next.as_raw_fd(), fd, "it is free");
    driver.ring.takes_at_most = u32::MAX;
    for key in keys {
        assert_eq!(result(&mut driver, key).0, -libc::ECANCELED);
    }
    other.set_nonblocking(true).unwrap();
    assert!(other.read(&mut [0; 8]).is_err(), "it was written to another file");
}
