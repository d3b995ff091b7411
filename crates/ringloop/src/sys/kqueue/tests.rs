//! The calls, on libkqueue.

use super::*;
use crate::sys::file::{pipe, write};
use crate::sys::testing::{LONG, interrupted, tcp_pair};
use std::io::Write;
use std::time::Instant;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn reports(queue: &OwnedFd, timeout: Option<Duration>) -> Vec<Report> {
    let mut all = Vec::new();
    wait(queue.as_raw_fd(), timeout, |report| all.push(report)).unwrap();
    all
}

fn readable(fd: &impl AsRawFd) -> Report {
    Report { ident: fd.as_raw_fd() as usize, filter: Some(Filter::Read), errno: 0 }
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn q1_reports_are_those_that_were_asked_for() {
    let (queue, (reader, writer)) = (create().unwrap(), pipe().unwrap());
    let fd = queue.as_raw_fd();
    apply(fd, [Change::add(reader.as_raw_fd(), Filter::Read, false)]).unwrap();
    assert_eq!(reports(&queue, NOW), []);
    write(writer.as_raw_fd(), b"x", None).unwrap();
    assert_eq!(reports(&queue, Some(LONG)), [readable(&reader)]);
    apply(fd, [Change::delete(reader.as_raw_fd(), Filter::Read)]).unwrap();
    assert_eq!(reports(&queue, NOW), []);
    // What is not registered can be deleted, and a failed change is an error.
    apply(fd, [Change::delete(reader.as_raw_fd(), Filter::Write)]).unwrap();
    // libkqueue has one errno for all registrations that fail.
    let failed = errno(apply(fd, [Change::add(-1, Filter::Read, false)]));
    assert!(matches!(failed, Some(libc::EBADF | libc::EFAULT)), "{failed:?}");
}

#[test]
fn q1_more_is_ready_than_one_wait_reports() {
    let queue = create().unwrap();
    let pipes: Vec<_> = (0..REPORTS_PER_WAIT + 20).map(|_| pipe().unwrap()).collect();
    for (_, writer) in &pipes {
        let change = Change::add(writer.as_raw_fd(), Filter::Write, true);
        apply(queue.as_raw_fd(), [change]).unwrap();
    }
    let mut seen: Vec<_> = reports(&queue, NOW).iter().map(|report| report.ident).collect();
    assert!(seen.len() <= REPORTS_PER_WAIT);
    while seen.len() < pipes.len() {
        let more = reports(&queue, NOW);
        assert!(!more.is_empty());
        seen.extend(more.iter().map(|report| report.ident));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), pipes.len());
}

#[test]
fn q2_queue_is_closed_on_exec() {
    let queue = create().unwrap();
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(queue.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

#[test]
fn connection_that_was_reset_has_its_error() {
    let (queue, (client, server)) = (create().unwrap(), tcp_pair());
    let fd = server.as_raw_fd();
    apply(queue.as_raw_fd(), [Change::add(fd, Filter::Read, false)]).unwrap();
    crate::sys::socket::set_linger(client.as_raw_fd(), Some(Duration::ZERO)).unwrap();
    drop(client);
    let reset = Report { errno: libc::ECONNRESET, ..readable(&server) };
    assert_eq!(reports(&queue, Some(LONG)), [reset]);
}

#[test]
fn end_of_a_stream_is_no_error() {
    let (queue, (mut client, server)) = (create().unwrap(), tcp_pair());
    apply(queue.as_raw_fd(), [Change::add(server.as_raw_fd(), Filter::Read, false)]).unwrap();
    client.write_all(b"last").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reports(&queue, Some(LONG)), [readable(&server)]);
}

#[test]
fn timeout_ends_a_wait_and_a_signal_interrupts_it() {
    let queue = create().unwrap();
    let (start, timeout) = (Instant::now(), Duration::from_micros(1500));
    assert_eq!(reports(&queue, Some(timeout)), []);
    assert!(start.elapsed() >= timeout);
    let waited = interrupted(|| wait(queue.as_raw_fd(), Some(LONG), |_| {}));
    assert_eq!(errno(waited), Some(libc::EINTR));
}

#[test]
fn user_event_stays() {
    let queue = create().unwrap();
    apply(queue.as_raw_fd(), Change::sticky()).unwrap();
    for _ in 0..3 {
        assert_eq!(reports(&queue, Some(LONG)), [Report { ident: 0, filter: None, errno: 0 }]);
    }
}
