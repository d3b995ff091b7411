//! Copying from sources to sinks, in one direction or both.
//!
//! Owns: [`copy`], [`copy_bidirectional`]. Called by: applications, proxies.
//!
//! Byte path: sockets pass on what `net::Receive` gives, in the loop's own buffers (`sources`); other
//! sources read into one buffer, which grows while their reads fill it (`traits`).

use super::copy_error::{CopyError, Side};
use super::traits::{AsyncRead, AsyncWrite};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Writes everything that `from` has up to its end to `to`; returns the count of bytes.
///
/// Sockets pass on the loop's own buffers: nothing is copied in user space, and an idle connection
/// owns no buffer. Other sources read up to [`COPY_BYTES_MAX`](crate::embed::limits::COPY_BYTES_MAX) at a
/// time. It does not end the sink.
///
/// ```
/// use ringloop::{io, net::UnixStream};
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let (mut ours, mut peer) = UnixStream::pair()?;
/// io::copy(&mut &b"all of it"[..], &mut peer).await?;
/// drop(peer);
/// let mut received = Vec::new();
/// assert_eq!(io::copy(&mut ours, &mut received).await?, 9);
/// assert_eq!(received, b"all of it");
/// # std::io::Result::Ok(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`CopyError`], which names the side.
///
/// # Cancel safety
/// Not cancel safe: bytes that were read and not written are lost.
pub async fn copy<R: AsyncRead, W: AsyncWrite>(from: &mut R, to: &mut W) -> Result<u64, CopyError> {
    from.copy_to(to).await
}

/// Copies in both directions until both streams have ended; returns the counts of bytes, from the
/// first to the second and back.
///
/// The end of one stream shuts down the writing side of the other, and the other direction goes on.
/// The first failure ends both directions; the streams are the caller's, and usually dropped then. A
/// peer that neither sends nor ends keeps it waiting: limit it by [`crate::time::timeout`] or a
/// [`CancellationToken`](crate::sync::CancellationToken).
///
/// ```no_run
/// use ringloop::{io, net::TcpStream};
///
/// async fn serve(client: TcpStream) -> std::io::Result<()> {
///     let server = TcpStream::connect("backend:8080").await?;
///     let (sent, received) = io::copy_bidirectional(&client, &server).await?;
///     println!("{sent} bytes there, {received} back");
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`CopyError`], which names the stream and the side.
///
/// # Cancel safety
/// Not cancel safe: bytes that were read and not written are lost.
pub async fn copy_bidirectional<A, B>(first: &A, second: &B) -> Result<(u64, u64), CopyError>
where
    for<'a> &'a A: AsyncRead + AsyncWrite,
    for<'b> &'b B: AsyncRead + AsyncWrite,
{
    let (mut there, mut back) = (pin!(one_way(first, second)), pin!(one_way(second, first)));
    let (mut sent, mut received) = (None, None);
    poll_fn(|cx| {
        poll_direction(&mut sent, there.as_mut(), cx)?;
        let backward = poll_direction(&mut received, back.as_mut(), cx);
        backward.map_err(|error| CopyError { is_backward: true, ..error })?;
        match (sent, received) {
            (Some(sent), Some(received)) => Poll::Ready(Ok((sent, received))),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Copies to the end, and passes that on.
async fn one_way<R, W>(mut from: R, mut to: W) -> Result<u64, CopyError>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let copied = from.copy_to(&mut to).await?;
    let ended = to.shut_down().await;
    ended.map_err(|error| CopyError::new(Side::Write, copied, error))?;
    Ok(copied)
}

/// Polls a direction that has not ended.
fn poll_direction<F: Future<Output = Result<u64, CopyError>>>(
    copied: &mut Option<u64>,
    direction: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Result<(), CopyError> {
    if copied.is_none()
        && let Poll::Ready(ended) = direction.poll(cx)
    {
        *copied = Some(ended?);
    }
    Ok(())
}
