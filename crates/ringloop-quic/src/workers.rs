//! Several workers at one address, each with its own thread, loop and endpoint.
//!
//! Owns: which worker a datagram belongs to, by its connection id ([`place_of`]); the BPF program
//! that makes the kernel route the same way; and the queues for misrouted datagrams ([`Routes`]).
//! Called by: applications ([`Worker::bind`]), the endpoint's task.
//!
//! A client's address does not identify the worker, because it may change. So the ids that a worker
//! issues carry its number, and first packets, whose id the client chose, go by the same rule: the
//! worker they reach owns the connection. The rule: the xor of the id's first two bytes, modulo the
//! number of workers. The kernel applies it by a classic BPF program on the sockets' `SO_REUSEPORT`
//! group, which needs no privilege; otherwise the worker that got the datagram passes it on.

use crate::limits::HANDED_MAX;
use crate::message::Datagram;
use crate::proto::worker::WorkerIds;
use ringloop::embed::sys::fd::{AsFd, OwnedFd};
use ringloop::net::{Instruction, UdpSocket};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Who routes datagrams to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steering {
    /// The kernel if it accepts the program, otherwise the workers.
    #[default]
    Kernel,
    /// The workers, by passing on misrouted datagrams. For hosts where the kernel's own choice of
    /// socket should stay, such as one that follows interrupts.
    Workers,
}

/// One of several workers at an address; pass it to [`crate::Endpoint::worker`] on the worker's
/// thread.
#[derive(Debug)]
pub struct Worker {
    pub(crate) socket: OwnedFd,
    pub(crate) place: Place,
}

impl Worker {
    /// Binds one socket per worker, 1 to 256, to one address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// Errors of bind(2); `InvalidInput` for another count.
    pub fn bind(address: SocketAddr, count: usize, steering: Steering) -> io::Result<Vec<Self>> {
        if !(1..=256).contains(&count) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "1 to 256 workers"));
        }
        let first = UdpSocket::bind_reuse_port(address)?;
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(UdpSocket::bind_reuse_port(address)?);
        }
        if steering == Steering::Kernel {
            // If the kernel rejects it, the workers route.
            drop(sockets[0].set_reuse_port_program(&steering_program(count as u32)));
        }
        let routes = Arc::new(Routes::new(count));
        let worker = |(number, socket): (usize, &UdpSocket)| {
            Ok(Self {
                socket: socket.as_fd().try_clone_to_owned()?,
                place: Place { number, routes: Arc::clone(&routes) },
            })
        };
        sockets.iter().enumerate().map(worker).collect()
    }

    /// The worker's number, from 0.
    pub fn number(&self) -> usize {
        self.place.number
    }

    /// The shared address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        UdpSocket::from(self.socket.try_clone()?).local_addr()
    }
}

/// Offset of a packet's destination id (RFC 9000 §17).
fn id_at(first: u8) -> usize {
    if first & 0x80 != 0 { 6 } else { 1 }
}

/// The worker that a datagram belongs to; the first one if it is too short to tell.
fn place_of(datagram: &[u8], count: usize) -> usize {
    let at = id_at(datagram.first().copied().unwrap_or(0));
    match datagram.get(at..at + 2) {
        Some(id) => usize::from(id[0] ^ id[1]) % count,
        None => 0,
    }
}

/// BPF program that selects the socket of a `SO_REUSEPORT` group by a datagram's worker; sockets
/// are numbered in the order of bind(2). For applications that bind sockets themselves. Loads
/// beyond a datagram's end return 0.
pub fn steering_program(count: u32) -> [Instruction; 13] {
    let step = |code, value| Instruction { code, jump_true: 0, jump_false: 0, value };
    let load = |at| step(0x30, at);
    let (to_index, xor_index) = (step(0x07, 0), step(0xac, 0));
    let if_long = Instruction { jump_false: 5, ..step(0x45, 0x80) };
    [
        load(0),
        if_long,
        load(6),
        to_index,
        load(7),
        xor_index,
        // Skip the four of short headers.
        step(0x05, 4),
        load(1),
        to_index,
        load(2),
        xor_index,
        // Return it modulo the count.
        step(0x94, count),
        step(0x16, 0),
    ]
}

/// State shared by the workers of an address.
#[derive(Debug)]
pub(crate) struct Routes {
    inboxes: Vec<Mutex<Inbox>>,
    /// Recognises the ids of these workers.
    key: u64,
    handed_count: AtomicU64,
}

#[derive(Debug, Default)]
struct Inbox {
    datagrams: Vec<Datagram>,
    task: Option<Waker>,
}

impl Routes {
    fn new(count: usize) -> Self {
        Self {
            inboxes: (0..count).map(|_| Mutex::default()).collect(),
            key: WorkerIds::random_key(),
            handed_count: AtomicU64::new(0),
        }
    }

    fn inbox(&self, number: usize) -> MutexGuard<'_, Inbox> {
        // A poisoned list is still consistent.
        let inbox = self.inboxes[number].lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker and its peers.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    number: usize,
    routes: Arc<Routes>,
}

impl Place {
    /// The generator of this worker's ids; `key` if endpoints of other processes must recognise
    /// them.
    pub(crate) fn ids(&self, key: Option<u64>) -> WorkerIds {
        let count = self.routes.inboxes.len();
        WorkerIds::new(self.number, count, key.unwrap_or(self.routes.key))
    }

    /// Passes a datagram to the worker it belongs to; returns it if that is this one.
    pub(crate) fn sort(&self, datagram: Datagram) -> Option<Datagram> {
        let number = place_of(&datagram.bytes, self.routes.inboxes.len());
        if number == self.number {
            return Some(datagram);
        }
        let mut inbox = self.routes.inbox(number);
        // Dropped otherwise, like by a full kernel queue.
        if inbox.datagrams.len() < HANDED_MAX {
            inbox.datagrams.push(datagram);
            self.routes.handed_count.fetch_add(1, Ordering::Relaxed);
        }
        let task = inbox.task.take();
        drop(inbox);
        if let Some(task) = task {
            task.wake();
        }
        None
    }

    /// Takes datagrams passed on by others; the task is woken for later ones.
    pub(crate) fn handed(&self, task: &Waker) -> Vec<Datagram> {
        let mut inbox = self.routes.inbox(self.number);
        inbox.task = Some(task.clone());
        std::mem::take(&mut inbox.datagrams)
    }

    /// Total number of datagrams that the workers have passed on.
    pub(crate) fn handed_count(&self) -> u64 {
        self.routes.handed_count.load(Ordering::Relaxed)
    }
}
