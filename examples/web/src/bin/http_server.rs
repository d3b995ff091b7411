//! An HTTP server by hyper, on two workers.
//!
//! ```text
//! cargo run -p ringloop-web-examples --bin http_server -- [ADDRESS] [--http2]
//! curl http://127.0.0.1:8080/count
//! curl --http2-prior-knowledge http://127.0.0.1:8080/     (with --http2)
//! ```
//! Look at `serve_on_all`: each worker has a listener of its own on the one address, and the kernel spreads
//! the connections. From then on a connection, its tasks and the worker's counter stay on one thread.

use ringloop::Runtime;
use ringloop::net::TcpListener;
use ringloop_web_examples::serve_plain;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let is_http2 = std::env::args().any(|argument| argument == "--http2");
    let address = std::env::args().nth(1).filter(|it| !it.starts_with("--"));
    let address = address.as_deref().unwrap_or("127.0.0.1:8080").parse()?;

    let runtime = Runtime::builder().workers(2).thread_name("http").build()?;
    let serve = move |listener| serve_plain(listener, is_http2);
    let serving = TcpListener::serve_on_all(&runtime.workers(), address, serve)?;
    eprintln!("http://{} by {}", serving.local_addr, runtime.kind());
    for worker in serving.handles {
        eprintln!("a worker stopped accepting: {}", runtime.block_on(worker)??);
    }
    Ok(())
}
