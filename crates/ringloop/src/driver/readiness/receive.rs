//! Receives of the readiness driver into pool buffers, one system call at a time, and tries on the
//! caller's own memory.
//!
//! Called by: the driver, when the descriptor is ready. Never waits.

use super::{ReadinessDriver, would_block};
use crate::buf::PoolKind;
use crate::driver::completion::Event;
use crate::op::{Key, Need, Operation, Request, raw_of};
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::pool::PoolBuffer;
use crate::sys::socket;
use std::io;

impl ReadinessDriver {
    /// One receive of a multishot operation, into a buffer of the pool.
    pub(super) fn receive(&mut self, key: Key) -> Option<Event> {
        let Some(Need::Ready(fd, _)) = self.need(key) else {
            return None;
        };
        let Some(mut buffer) = self.pools[PoolKind::Streams as usize].buffers.take() else {
            return self.starve(key, PoolKind::Streams);
        };
        match socket::recv_into(fd, buffer.bytes_mut(), libc::MSG_DONTWAIT) {
            Ok(0) => {
                self.unpark(key);
                self.deliver(key, 0, false, None)
            }
            Ok(count) => {
                buffer.truncate(count);
                self.deliver(key, count as i32, true, Some(buffer))
            }
            Err(error) => self.receive_failed(key, error),
        }
    }

    /// A single-shot receive, into a buffer of the pool.
    pub(super) fn receive_once(&mut self, key: Key) -> Option<Event> {
        let Some(Request::RecvPooled(receive)) = self.table.slot(key)?.request() else {
            return None;
        };
        let (len_max, Need::Ready(fd, interest)) = (receive.len_max(), receive.need()) else {
            return None;
        };
        let Some(mut buffer) = self.pools[PoolKind::Streams as usize].buffers.take() else {
            return self.starve(key, PoolKind::Streams);
        };
        buffer.truncate(len_max);
        let count = match socket::recv_into(fd, buffer.bytes_mut(), libc::MSG_DONTWAIT) {
            Ok(count) => count,
            Err(error) => return self.receive_failed(key, error),
        };
        self.unpark(key);
        if (1..len_max).contains(&count) {
            self.watches.note_blocked(fd, interest);
        }
        buffer.truncate(count);
        let buffer = Some(buffer).filter(|_| count > 0);
        self.deliver(key, count as i32, false, buffer)
    }

    /// Receives into the caller's own memory, unless it is known to block or others wait before it.
    pub fn receive_first(&mut self, fd: RawFd, into: &mut [u8]) -> Option<io::Result<usize>> {
        if self.watches.is_blocked(fd, Interest::READ) {
            return None;
        }
        let received = socket::recv_into(fd, into, libc::MSG_DONTWAIT);
        match &received {
            Err(error) if would_block(error) => {
                self.watches.note_blocked(fd, Interest::READ);
                return None;
            }
            Ok(count @ 1..) if *count < into.len() => {
                self.watches.note_blocked(fd, Interest::READ);
            }
            _ => {}
        }
        Some(received)
    }

    /// Sends from the caller's own memory, unless it is known to block or others wait before it.
    pub fn send_first(&mut self, fd: RawFd, bytes: &[u8]) -> Option<io::Result<usize>> {
        if self.watches.is_blocked(fd, Interest::WRITE) {
            return None;
        }
        let sent = send(fd, bytes);
        if sent.is_none() {
            self.watches.note_blocked(fd, Interest::WRITE);
        }
        sent
    }

    /// Receives messages, into as many pool buffers as the operation asks for.
    pub(super) fn receive_messages(&mut self, key: Key) -> Option<Event> {
        let pool = &mut self.pools[PoolKind::Datagrams as usize].buffers;
        let Some(Request::RecvMsgMulti(receive)) = self.table.slot(key)?.request_mut() else {
            return None;
        };
        let free = std::iter::from_fn(|| pool.take());
        let mut batch: Vec<_> = free.take(receive.want()).collect();
        if batch.is_empty() {
            return self.starve(key, PoolKind::Datagrams);
        }
        match receive.receive(batch.iter_mut().map(PoolBuffer::bytes_mut)) {
            // Messages are delivered from the queue.
            Ok(filled) => {
                for (mut buffer, len) in batch.into_iter().zip(filled) {
                    buffer.truncate(len);
                    self.arrived.push_back((key, buffer));
                }
                None
            }
            Err(error) => self.receive_failed(key, error),
        }
    }

    /// Out of buffers: stops watching. Level-triggered, epoll would spin until a buffer comes back.
    fn starve(&mut self, key: Key, kind: PoolKind) -> Option<Event> {
        self.unpark(key);
        self.pools[kind as usize].starve(key);
        None
    }

    fn receive_failed(&mut self, key: Key, error: io::Error) -> Option<Event> {
        if would_block(&error) {
            return None;
        }
        self.unpark(key);
        self.deliver(key, raw_of(Err(error)), false, None)
    }
}

/// Sends without waiting; `None`: it would block.
pub(in crate::driver) fn send(fd: RawFd, bytes: &[u8]) -> Option<io::Result<usize>> {
    match socket::send(fd, bytes, libc::MSG_DONTWAIT) {
        Err(error) if would_block(&error) => None,
        sent => Some(sent),
    }
}
