//! A connection's handle.
//!
//! Invariants:
//! 1. The handle is one that the table made, and is dropped once, on its thread: [`Tcp`] is not `Send`.

use std::future::poll_fn;
use std::io;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd};
use std::ptr::NonNull;

use ringloop_abi as abi;

use super::memory::{Lent, LentRoom};
use super::operation::{Operation, no_loop};
use super::table::loaded;

/// A connection of ringloop's.
pub struct Tcp {
    table: &'static abi::Table,
    handle: NonNull<abi::Tcp>,
}

impl Tcp {
    /// Connects to `host:port`.
    pub async fn connect(address: &str) -> io::Result<Self> {
        let mut connect = Operation::connect(address).ok_or_else(no_loop)?;
        let handle = poll_fn(|cx| connect.poll_handle(cx)).await?;
        Self::of(handle)
    }

    /// A connection that std has opened.
    pub fn from_std(stream: TcpStream) -> io::Result<Self> {
        let table = loaded().ok_or_else(no_loop)?;
        // SAFETY: the descriptor is given up.
        Self::of(unsafe { (table.tcp_from_fd)(stream.into_raw_fd()) })
    }

    fn of(handle: *mut abi::Tcp) -> io::Result<Self> {
        match (loaded(), NonNull::new(handle)) {
            (Some(table), Some(handle)) => Ok(Self { table, handle }),
            _ => Err(no_loop()),
        }
    }

    /// Receives up to the capacity of `buf`.
    pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let (lent, memory) = LentRoom::new(buf);
        // SAFETY: invariant 1; contract 4.
        let read = unsafe { (self.table.tcp_read)(self.handle.as_ptr(), memory) };
        let result = match Operation::of(self.table, read) {
            Some(read) => read.await,
            None => Err(no_loop()),
        };
        let buf = lent.into_filled(*result.as_ref().unwrap_or(&0));
        (result, buf)
    }

    /// Sends all of `bytes`.
    pub async fn write_all<B: AsRef<[u8]> + 'static>(&self, bytes: B) -> io::Result<()> {
        let (_lent, memory) = Lent::bytes(bytes);
        // SAFETY: invariant 1; contract 4.
        let write = unsafe { (self.table.tcp_write_all)(self.handle.as_ptr(), memory) };
        Operation::of(self.table, write).ok_or_else(no_loop)?.await.map(drop)
    }

    /// The connection as std's, for its options and addresses.
    pub fn as_std(&self) -> impl Deref<Target = TcpStream> {
        // SAFETY: open while `self` is there, and not closed by the other.
        ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(self.as_raw_fd()) })
    }
}

impl AsRawFd for Tcp {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: invariant 1.
        unsafe { (self.table.tcp_fd)(self.handle.as_ptr()) }
    }
}

impl AsFd for Tcp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open while `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { (self.table.tcp_drop)(self.handle.as_ptr()) }
    }
}
