//! GRO and GSO batches of datagrams from and to the kernel.
//!
//! The socket belongs to the application, which keeps it open; only its descriptor is used here.
//! Memory for system calls belongs to the thread, not the endpoint: a thousand idle endpoints hold
//! no buffers.

use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::libc;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use ringloop::embed::sys::datagram::{self, Batch, Control, Message};
use ringloop::embed::sys::socket;
use ringloop_quic::core::{BatchMemory, Core, Datagram};
use ringloop_quic::sender::{Progress, Sender};

use crate::limits::{QUIC_BATCHES_PER_CALL, QUIC_BATCHES_PER_TURN};

thread_local! {
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
    static MEMORY: RefCell<BatchMemory> = const { RefCell::new(BatchMemory::new()) };
}

/// Settings of a socket.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Send GSO batches (`UDP_SEGMENT`) of at most this many datagrams.
    pub segments_max: usize,
    /// Receive GRO batches (`UDP_GRO`).
    pub gro: bool,
    pub ecn: bool,
    /// Kernel buffer size to request, for each direction.
    pub buffer: usize,
}

/// One more than usual, so that the same call shows that there are no more.
const WANTED_MIN: usize = 2;

/// A UDP socket, by its descriptor.
pub struct Socket {
    fd: RawFd,
    is_v6: bool,
    is_unfragmented: bool,
    settings: Settings,
    sender: Sender,
    /// Batches that the next call requests.
    wanted: usize,
}

fn with_room(batch: &mut Option<Batch>) -> io::Result<&mut Batch> {
    let made = match batch.take() {
        Some(batch) => batch,
        None => Batch::new(QUIC_BATCHES_PER_CALL, usize::from(u16::MAX))?,
    };
    Ok(batch.insert(made))
}

impl Socket {
    /// Prepares a bound, non-blocking UDP socket. Options that the kernel or the socket rejects are
    /// skipped.
    pub fn new(fd: RawFd, settings: Settings) -> io::Result<Self> {
        BATCH.with_borrow_mut(|batch| with_room(batch).map(drop))?;
        let address = socket::local_addr(fd)?.to_std();
        let is_v6 = address.is_some_and(|address| address.is_ipv6());
        if settings.gro {
            drop(datagram::set_gro(fd, true));
        }
        drop(datagram::set_receive_local_ip(fd, true));
        let is_unfragmented = datagram::set_unfragmented(fd).is_ok();
        if let Ok(bytes) = i32::try_from(settings.buffer)
            && bytes > 0
        {
            for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
                drop(socket::set_option_int(fd, libc::SOL_SOCKET, name, bytes));
            }
        }
        Ok(Self {
            fd,
            is_v6,
            is_unfragmented,
            settings,
            sender: Sender::new(fd, settings.segments_max, settings.ecn),
            wanted: WANTED_MIN,
        })
    }

    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    pub fn is_unfragmented(&self) -> bool {
        self.is_unfragmented
    }

    pub fn settings(&self) -> Settings {
        self.settings
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(self.fd).ok()?.to_std()
    }

    /// Receives for the core, up to a budget.
    pub fn receive(&mut self, now: Instant, core: &mut Core) {
        self.sender.read_errors(now, core);
        BATCH.with_borrow_mut(|batch| {
            // The endpoint's creating thread has one; another thread without memory leaves
            // datagrams in the socket.
            let Ok(batch) = with_room(batch) else { return };
            let mut left = QUIC_BATCHES_PER_TURN;
            while left > 0 {
                let wanted = self.wanted.min(left);
                // An ICMP error of an earlier send, or out of memory for a moment: like a lost
                // datagram.
                let count = batch.receive(self.fd, Control::Wanted, wanted).unwrap_or_default();
                for message in batch.received() {
                    feed(core, now, &message);
                }
                left -= count;
                if count < wanted {
                    self.wanted = (count + 1).next_power_of_two().clamp(WANTED_MIN, self.wanted);
                    return;
                }
                self.wanted = (wanted * 2).min(QUIC_BATCHES_PER_CALL);
            }
        });
    }

    /// Sends what may be sent now, up to a budget.
    pub fn transmit(&mut self, now: Instant, core: &mut Core) -> Progress {
        self.sender.transmit(now, core)
    }
}

fn feed(core: &mut Core, now: Instant, message: &Message<'_>) {
    let copy = |payload: &[u8]| MEMORY.with_borrow_mut(|memory| memory.copy(payload));
    for datagram in Datagram::received_by(message, copy) {
        core.receive(now, datagram);
    }
}
