//! One address, a listener on every worker.
//!
//! Called by: servers on several workers. A connection stays on the worker that the kernel chose by
//! its addresses (`SO_REUSEPORT`, socket(7)).

use super::{ListenOptions, TcpListener};
use crate::error::Error;
use crate::executor::{RemoteJoinHandle, Workers};
use crate::sys::fd::OwnedFd;
use std::future::Future;
use std::net::SocketAddr;

/// Address and handles of a server on every worker.
#[derive(Debug)]
pub struct ServeHandles<T> {
    /// The address, with the system's choice for port 0.
    pub local_addr: SocketAddr,
    /// Handles of the `serve` futures, by worker.
    pub handles: Vec<RemoteJoinHandle<T>>,
}

impl TcpListener {
    /// Listens on `addr`, shared with other listeners of this user; see
    /// [`ListenOptions::reuse_port`].
    pub fn bind_reuse_port(addr: SocketAddr) -> std::io::Result<Self> {
        let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        Self::bind_with(addr, options)
    }

    /// Listens on `addr` on every worker, and runs `serve` there with the worker's listener.
    ///
    /// All listeners are bound before the first one serves, so each worker gets its part from the
    /// first connection on. The kernel's hash spreads hundreds of connections evenly within some
    /// percent; with few of them a worker may have none.
    ///
    /// ```no_run
    /// use ringloop::{Runtime, net::TcpListener};
    /// let runtime = Runtime::builder().workers(2).build()?;
    /// let serving = TcpListener::serve_on_all(
    ///     &runtime.workers(),
    ///     ([127, 0, 0, 1], 7000).into(),
    ///     async |listener: TcpListener| loop {
    ///         match listener.accept().await {
    ///             Ok(stream) => drop(ringloop::spawn(async move {
    ///                 let (_, bytes) = stream.read(Vec::with_capacity(4096)).await;
    ///                 stream.write_all(bytes).await.0
    ///             })),
    ///             Err(error) => break error,
    ///         }
    ///     },
    /// )?;
    /// for worker in serving.handles {
    ///     eprintln!("{:?}", runtime.block_on(worker)?);
    /// }
    /// # Ok::<(), ringloop::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`TcpListener::bind_with`] and [`Workers::spawn_on`].
    pub fn serve_on_all<F, Fut>(
        workers: &Workers,
        addr: SocketAddr,
        serve: F,
    ) -> Result<ServeHandles<Fut::Output>, Error>
    where
        F: FnOnce(Self) -> Fut + Clone + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let first = Self::bind_reuse_port(addr)?;
        let local_addr = first.local_addr()?;
        let mut descriptors = vec![OwnedFd::from(first)];
        for _ in 1..workers.count() {
            descriptors.push(Self::bind_reuse_port(local_addr)?.into());
        }
        let start = |(worker, descriptor): (usize, OwnedFd)| {
            let serve = serve.clone();
            workers.spawn_on(worker, move || serve(Self::from(descriptor)))
        };
        let handles = descriptors.into_iter().enumerate().map(start);
        Ok(ServeHandles { local_addr, handles: handles.collect::<Result<_, _>>()? })
    }
}
