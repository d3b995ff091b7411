//! Receives of the readiness driver into pool buffers, one system call at a time, and tries on the
//! caller's own memory.
//!
//! Called by: the driver, when the descriptor is ready. Never waits.

use super::{ReadinessDriver, negated, would_block};
use crate::buf::PoolKind;
use crate::driver::completion::Event;
use crate::op::Key;
use crate::op::{Need, Operation, Request};
use crate::sys::interest::Interest;
use crate::sys::socket;
use std::io;
use std::os::fd::RawFd;

impl ReadinessDriver {
    /// One receive of a multishot operation, into a buffer of the pool.
    pub(super) fn receive(&mut self, key: Key) -> Option<Event> {
        let Some(Need::Ready(fd, _)) = self.need(key) else {
            return None;
        };
        let Some(id) = self.pools[PoolKind::Streams as usize].take() else {
            return self.starve(key, PoolKind::Streams);
        };
        let pool = &mut self.pools[PoolKind::Streams as usize];
        match socket::recv_into(fd, pool.bytes_mut(&id), libc::MSG_DONTWAIT) {
            Ok(0) => {
                pool.put(id);
                self.unpark(key);
                self.deliver(key, 0, false, None)
            }
            Ok(count) => self.deliver(key, count as i32, true, Some(id)),
            Err(error) => {
                pool.put(id);
                self.receive_failed(key, &error)
            }
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
        let Some(id) = self.pools[PoolKind::Streams as usize].take() else {
            return self.starve(key, PoolKind::Streams);
        };
        let pool = &mut self.pools[PoolKind::Streams as usize];
        let buffer = &mut pool.bytes_mut(&id)[..len_max];
        let received = socket::recv_into(fd, buffer, libc::MSG_DONTWAIT);
        if !matches!(received, Ok(1..)) {
            pool.put(id);
            let result = match received {
                Err(error) => return self.receive_failed(key, &error),
                Ok(_) => 0,
            };
            self.unpark(key);
            return self.deliver(key, result, false, None);
        }
        let count = received.unwrap_or(0);
        self.unpark(key);
        if count < len_max {
            self.watches.note_blocked(fd, interest);
        }
        self.deliver(key, count as i32, false, Some(id))
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
        let pool = &mut self.pools[PoolKind::Datagrams as usize];
        let Some(Request::RecvMsgMulti(receive)) = self.table.slot(key)?.request_mut() else {
            return None;
        };
        let mut batch = pool.take_batch(receive.want());
        if batch.is_empty() {
            return self.starve(key, PoolKind::Datagrams);
        }
        let buffers = batch.iter_mut().map(|(_, memory)| &mut **memory);
        let received = receive.receive(buffers);
        let mut filled = received.as_deref().unwrap_or(&[]).iter();
        for (id, memory) in batch {
            pool.restore(&id, memory);
            match filled.next() {
                Some(len) => self.arrived.push_back((key, *len as i32, id)),
                None => pool.put(id),
            }
        }
        match received {
            // Messages are delivered from the queue.
            Ok(_) => None,
            Err(error) => self.receive_failed(key, &error),
        }
    }

    /// Out of buffers: stops watching. Level-triggered, epoll would spin until a buffer comes back.
    fn starve(&mut self, key: Key, kind: PoolKind) -> Option<Event> {
        self.unpark(key);
        self.pools[kind as usize].starved.push(key);
        None
    }

    fn receive_failed(&mut self, key: Key, error: &io::Error) -> Option<Event> {
        if would_block(error) {
            return None;
        }
        self.unpark(key);
        self.deliver(key, negated(error), false, None)
    }
}

/// Sends without waiting; `None`: it would block.
pub(in crate::driver) fn send(fd: RawFd, bytes: &[u8]) -> Option<io::Result<usize>> {
    match socket::send(fd, bytes, libc::MSG_DONTWAIT) {
        Err(error) if would_block(&error) => None,
        sent => Some(sent),
    }
}
