//! An echo whose submissions cost no system call: a kernel thread takes them.
//!
//! Look at: the one option of the builder. The kernel thread spins on the submission queue, which
//! uses a core while there is work and for the given time after it; worth it only with a core to
//! spare. If the kernel refuses it, or on epoll, everything runs without it.
//!
//!     cargo run --release --example tier4_sqpoll

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use std::io::{self, Write};
use std::time::Duration;

const MESSAGES: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let idle = Duration::from_millis(100);
    let polled = Runtime::builder().submission_polling(Some(idle)).build();
    let runtime = match polled {
        Ok(runtime) => runtime,
        Err(refusal) => {
            writeln!(io::stderr(), "without submission polling: {refusal}")?;
            Runtime::new()?
        }
    };
    runtime.block_on(run())?
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let server = listener.accept().await?;
    let echo = ringloop::spawn(async move {
        let mut buf = Vec::with_capacity(64);
        for _ in 0..MESSAGES {
            let (count, filled) = server.read(buf).await;
            count?;
            let (sent, back) = server.write_all(filled).await;
            sent?;
            buf = back;
        }
        Ok::<_, io::Error>(())
    });
    let mut buf = b"ping".to_vec();
    for _ in 0..MESSAGES {
        let (sent, back) = client.write_all(buf).await;
        sent?;
        let (count, filled) = client.read(back).await;
        count?;
        buf = filled;
    }
    echo.await??;
    writeln!(io::stdout(), "{MESSAGES} messages echoed")?;
    Ok(())
}
