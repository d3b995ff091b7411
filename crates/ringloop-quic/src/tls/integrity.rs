//! Retry integrity tag (RFC 9001 §5.8, RFC 9369 §3.3.3): AES-128-GCM over the packet with a public
//! key.

#[cfg(not(feature = "ring"))]
use aws_lc_rs::aead;
// The engine uses ring's types if both features are on.
#[cfg(feature = "ring")]
use ring::aead;

const V1_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const V1_NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
const V2_KEY: [u8; 16] = [
    0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc, 0x92,
];
const V2_NONCE: [u8; 12] = [0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a];

/// The tag of a pseudo-packet, which has its version's type bits.
pub(crate) fn retry_tag(is_v2: bool, pseudo_packet: &[u8]) -> [u8; 16] {
    let (key, nonce) = if is_v2 { (V2_KEY, V2_NONCE) } else { (V1_KEY, V1_NONCE) };
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let mut tag = [0; 16];
    // Fails only for keys of a wrong length, and lengths beyond the cipher's limit.
    if let Ok(key) = aead::UnboundKey::new(&aead::AES_128_GCM, &key)
        && let Ok(sealed) = aead::LessSafeKey::new(key).seal_in_place_separate_tag(
            nonce,
            aead::Aad::from(pseudo_packet),
            &mut [],
        )
    {
        tag.copy_from_slice(sealed.as_ref());
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn retry_tags_match_rfc_examples() {
        // RFC 9001 A.4, RFC 9369 A.4: original id 8394c8f03e515708, token "token".
        for (is_v2, packet, tag) in [
            (false, "ff000000010008f067a5502a4262b5746f6b656e", "04a265ba2eff4d829058fb3f0f2496ba"),
            (true, "cf6b3343cf0008f067a5502a4262b5746f6b656e", "c8646ce8bfe33952d955543665dcc7b6"),
        ] {
            let pseudo = [&[8][..], &bytes("8394c8f03e515708"), &bytes(packet)].concat();
            assert_eq!(retry_tag(is_v2, &pseudo)[..], bytes(tag), "{is_v2}");
        }
    }
}
