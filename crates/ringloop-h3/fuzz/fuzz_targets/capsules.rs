#![no_main]

use bytes::Bytes;
use ringloop_h3::capsule::{Capsule, Keep, Reader};

/// Capsules of a body cut into pieces of this length.
fn read(body: &[u8], piece_len: usize) -> (Vec<Capsule>, bool) {
    let mut reader = Reader::new();
    let mut capsules = Vec::new();
    for piece in body.chunks(piece_len) {
        let mut piece = Bytes::copy_from_slice(piece);
        let decide = |kind: u64, len| match kind % 4 {
            0 | 1 if len <= 64 => Ok(Keep::Value),
            3 if len > 1 << 32 => Err(()),
            _ => Ok(Keep::Nothing),
        };
        loop {
            match reader.read(&mut piece, decide) {
                Ok(Some(capsule)) => capsules.push(capsule),
                Ok(None) => break,
                Err(()) => return (capsules, false),
            }
        }
        assert!(piece.is_empty());
    }
    (capsules, reader.is_at_boundary())
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&len, body)) = input.split_first() else {
        return;
    };
    assert_eq!(read(body, usize::from(len) + 1), read(body, usize::MAX));
});
