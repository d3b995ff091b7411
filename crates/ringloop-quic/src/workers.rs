//! Several workers at one address, each with a thread, a loop and an endpoint of its own.
//!
//! Owns: which worker a datagram is for, by the connection id that it names ([`place_of`]), the program that has the
//! kernel route so, and the way to the right worker for what comes to a wrong one ([`Routes`]). Called by: programs
//! ([`Worker::bind`]), the endpoint's task. Never does: look further into packets.
//!
//! A client's address does not tell the worker: it may change. So the ids that a worker gives out carry its place, and
//! what names an id of a client's own choice, the first packets, goes where the same rule says; that worker then has
//! the connection. The rule: the id's first two bytes, one xor the other, modulo the count of workers. The kernel
//! applies it by a classic BPF program of the sockets' `SO_REUSEPORT` group, which needs no privilege; where it did
//! not, the worker that got the datagram hands it over.

use crate::limits::HANDED_MAX;
use crate::message::Datagram;
use crate::proto::worker::WorkerIds;
use ringloop::net::{Instruction, UdpSocket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Who routes datagrams to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steering {
    /// The kernel, where it takes the program; else the workers.
    #[default]
    Kernel,
    /// The workers: each hands over what is another's. For networks where the kernel's choice of a socket by addresses
    /// is to stay, such as one that follows interrupts.
    Workers,
}

/// One of several workers at an address: what [`crate::Endpoint::worker`] makes an endpoint of, on the worker's thread.
#[derive(Debug)]
pub struct Worker {
    pub(crate) socket: OwnedFd,
    pub(crate) place: Place,
}

impl Worker {
    /// Bind as many sockets as there are to be workers, 1 to 256, to one address; port 0 lets the system choose one.
    ///
    /// Errors: those of bind(2); `InvalidInput` for another count.
    pub fn bind(address: SocketAddr, count: usize, steering: Steering) -> io::Result<Vec<Self>> {
        if !(1..=256).contains(&count) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "1 to 256 workers",
            ));
        }
        let first = UdpSocket::bind_reuse_port(address)?;
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(UdpSocket::bind_reuse_port(address)?);
        }
        if steering == Steering::Kernel {
            // A kernel that refuses leaves it to the workers.
            drop(sockets[0].set_reuse_port_program(&steering_program(count as u32)));
        }
        let routes = Arc::new(Routes::new(count));
        let worker = |(number, socket): (usize, &UdpSocket)| {
            Ok(Self {
                socket: socket.as_fd().try_clone_to_owned()?,
                place: Place {
                    number,
                    routes: Arc::clone(&routes),
                },
            })
        };
        sockets.iter().enumerate().map(worker).collect()
    }

    /// Its number, from 0.
    pub fn number(&self) -> usize {
        self.place.number
    }

    /// The address that all share.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        UdpSocket::from(self.socket.try_clone()?).local_addr()
    }
}

/// Where the first two bytes are of the id that a packet is addressed to (RFC 9000 §17).
fn id_at(first: u8) -> usize {
    if first & 0x80 != 0 { 6 } else { 1 }
}

/// The worker that a datagram is for. What is too short is nobody's, and goes to the first.
fn place_of(datagram: &[u8], count: usize) -> usize {
    let at = id_at(datagram.first().copied().unwrap_or(0));
    match datagram.get(at..at + 2) {
        Some(id) => usize::from(id[0] ^ id[1]) % count,
        None => 0,
    }
}

/// What has the kernel give a datagram to the socket, of those in a group with `SO_REUSEPORT`, whose number in the order
/// of bind(2) is that of the worker that it is for: for programs that bind by themselves. Loads beyond a datagram's end
/// return 0.
pub fn steering_program(count: u32) -> [Instruction; 13] {
    let step = |code, value| Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        value,
    };
    let load = |at| step(0x30, at);
    let (to_index, xor_index) = (step(0x07, 0), step(0xac, 0));
    let if_long = Instruction {
        jump_false: 5,
        ..step(0x45, 0x80)
    };
    [
        load(0),
        if_long,
        load(6),
        to_index,
        load(7),
        xor_index,
        // Over the four of short headers.
        step(0x05, 4),
        load(1),
        to_index,
        load(2),
        xor_index,
        // Modulo the count; return it.
        step(0x94, count),
        step(0x16, 0),
    ]
}

/// What the workers of an address share.
#[derive(Debug)]
pub(crate) struct Routes {
    inboxes: Vec<Mutex<Inbox>>,
    /// Tells the ids of these workers from other numbers.
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
        // A list of datagrams is whole at any time.
        let inbox = self.inboxes[number].lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker among others.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    number: usize,
    routes: Arc<Routes>,
}

impl Place {
    /// What gives out ids that say so; `key` where endpoints of other processes are to know them.
    pub(crate) fn ids(&self, key: Option<u64>) -> WorkerIds {
        let count = self.routes.inboxes.len();
        WorkerIds::new(self.number, count, key.unwrap_or(self.routes.key))
    }

    /// Give a datagram to another worker if it is that one's; else it comes back.
    pub(crate) fn sort(&self, datagram: Datagram) -> Option<Datagram> {
        let number = place_of(&datagram.bytes, self.routes.inboxes.len());
        if number == self.number {
            return Some(datagram);
        }
        let mut inbox = self.routes.inbox(number);
        // Like a full queue of the kernel's.
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

    /// Take what others have handed over; the task is woken for what comes later.
    pub(crate) fn handed(&self, task: &Waker) -> Vec<Datagram> {
        let mut inbox = self.routes.inbox(self.number);
        inbox.task = Some(task.clone());
        std::mem::take(&mut inbox.datagrams)
    }

    /// How many the workers have handed over so far, all together.
    pub(crate) fn handed_count(&self) -> u64 {
        self.routes.handed_count.load(Ordering::Relaxed)
    }
}
