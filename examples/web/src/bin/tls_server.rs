//! An HTTPS server by hyper and rustls, on two workers, with a certificate made at the start.
//!
//! ```text
//! cargo run -p ringloop-web-examples --bin tls_server -- [ADDRESS]
//! curl --insecure https://localhost:8443/                 HTTP/2, by ALPN
//! curl --insecure --http1.1 https://localhost:8443/
//! ```
//! Look at `serve_tls`: rustls knows tokio's traits, which `net::Polled` has; hyper gets its own by
//! hyper-util's `TokioIo`. No part of tokio's runtime takes part.

use ringloop::Runtime;
use ringloop::net::TcpListener;
use ringloop_web_examples::{self_signed, serve_tls};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8443").parse()?;
    let config = Arc::new(self_signed()?.0);

    let runtime = Runtime::builder().workers(2).thread_name("https").build()?;
    let serve = move |listener| serve_tls(listener, config);
    let serving = TcpListener::serve_on_all(&runtime.workers(), address, serve)?;
    eprintln!("https://{} by {}", serving.local_addr, runtime.kind());
    for worker in serving.handles {
        eprintln!("a worker stopped accepting: {}", runtime.block_on(worker)??);
    }
    Ok(())
}
