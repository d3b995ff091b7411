//! One address, a listener on every worker.
//!
//! Called by: servers on several workers. Never does: hand a connection from one worker to another; the
//! kernel has chosen by the connection's addresses (`SO_REUSEPORT`, socket(7)), and it stays there.

use super::{ListenOptions, TcpListener};
use crate::error::Error;
use crate::executor::{RemoteJoinHandle, Workers};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// What a server on every worker is reached by, and ends with.
#[derive(Debug)]
pub struct Shared<T> {
    /// The address, with the port that was chosen where 0 was asked for.
    pub local_addr: SocketAddr,
    /// What `serve` returned, by worker.
    pub handles: Vec<RemoteJoinHandle<T>>,
}

impl TcpListener {
    /// Listen on `addr`, which other listeners of this user may share; see [`ListenOptions::reuse_port`].
    pub fn bind_reuse_port(addr: SocketAddr) -> std::io::Result<Self> {
        let options = ListenOptions {
            reuse_port: true,
            ..ListenOptions::default()
        };
        Self::bind_with(addr, options)
    }

    /// Listen on `addr` on every worker, and run `serve` there with the worker's own listener.
    ///
    /// Shape: all listeners are bound before the first one serves, so that from the first connection on each
    /// worker gets its part. How even the parts are is up to the kernel's hash: with hundreds of
    /// connections within some percent; with few of them one worker may have none.
    /// Errors: those of [`TcpListener::bind_with`] and [`Workers::spawn_on`].
    ///
    /// ```no_run
    /// use ringloop::{Runtime, net::TcpListener};
    ///
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
    pub fn serve_on_all<F, Fut>(
        workers: &Workers,
        addr: SocketAddr,
        serve: F,
    ) -> Result<Shared<Fut::Output>, Error>
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
        Ok(Shared {
            local_addr,
            handles: handles.collect::<Result<_, _>>()?,
        })
    }
}
