//! The Huffman code of strings (RFC 7541 §5.2 and appendix B).
//!
//! The decoder reads four bits at a time, with a table computed from the codes: the shortest code has five bits, so four
//! bits complete at most one.

use super::huffman_codes::CODES;
use super::integer::Stop;

const EOS: u16 = 256;
/// Inner nodes of the code's tree: one fewer than leaves.
const NODE_COUNT: usize = 256;
/// A child that is a leaf carries its symbol above this.
const LEAF: u16 = 0x1000;

/// The encoded length of `bytes`.
pub(super) fn encoded_len(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|byte| usize::from(CODES[usize::from(*byte)].1)).sum();
    bits.div_ceil(8)
}

/// Append the code of `bytes`, padded by the first bits of EOS.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut pending, mut pending_bits) = (0_u64, 0_u32);
    for byte in bytes {
        let (code, len) = CODES[usize::from(*byte)];
        pending = pending << len | u64::from(code);
        pending_bits += u32::from(len);
        while pending_bits >= 8 {
            pending_bits -= 8;
            out.push((pending >> pending_bits) as u8);
        }
    }
    if pending_bits > 0 {
        let padding = 8 - pending_bits;
        out.push((pending << padding) as u8 | ((1 << padding) - 1));
    }
}

/// Decode `bytes`, at most to `len_max`.
pub(super) fn decode(bytes: &[u8], len_max: usize) -> Result<Vec<u8>, Stop> {
    // The shortest code has five bits.
    let mut out = Vec::with_capacity((bytes.len() * 8 / 5).min(len_max));
    let mut node = 0_usize;
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            let step = STEPS[node][usize::from(nibble)];
            node = usize::from(step.node);
            match step.symbol {
                Symbol::None => {}
                Symbol::Byte(symbol) => {
                    if out.len() == len_max {
                        return Err(Stop::TooLong);
                    }
                    out.push(symbol);
                }
                Symbol::End => return Err(Stop::Invalid("a Huffman code contains EOS")),
            }
        }
    }
    // RFC 7541 §5.2: up to seven bits of EOS, all of them ones.
    if !IS_PADDING[node] {
        return Err(Stop::Invalid("a Huffman code is truncated, or its padding is invalid"));
    }
    Ok(out)
}

#[derive(Clone, Copy)]
enum Symbol {
    None,
    Byte(u8),
    End,
}

#[derive(Clone, Copy)]
struct Step {
    node: u8,
    symbol: Symbol,
}

/// The tree: the children of each inner node, by the next bit.
const TREE: [[u16; 2]; NODE_COUNT] = tree();
static STEPS: [[Step; 16]; NODE_COUNT] = steps();
static IS_PADDING: [bool; NODE_COUNT] = paddings();

const fn tree() -> [[u16; 2]; NODE_COUNT] {
    let mut tree = [[0_u16; 2]; NODE_COUNT];
    let mut count = 1;
    let mut symbol = 0;
    while symbol < CODES.len() {
        let (code, len) = CODES[symbol];
        let mut node = 0;
        let mut bit = len;
        while bit > 0 {
            bit -= 1;
            let side = (code >> bit & 1) as usize;
            if bit == 0 {
                tree[node][side] = LEAF | symbol as u16;
            } else {
                if tree[node][side] == 0 {
                    tree[node][side] = count;
                    count += 1;
                }
                node = tree[node][side] as usize;
            }
        }
        symbol += 1;
    }
    assert!(count as usize == NODE_COUNT);
    tree
}

const fn steps() -> [[Step; 16]; NODE_COUNT] {
    let mut steps = [[Step { node: 0, symbol: Symbol::None }; 16]; NODE_COUNT];
    let mut start = 0;
    while start < NODE_COUNT {
        let mut nibble = 0;
        while nibble < 16 {
            let (mut node, mut bit) = (start, 4);
            let mut symbol = Symbol::None;
            while bit > 0 {
                bit -= 1;
                let child = TREE[node][nibble >> bit & 1];
                node = child as usize;
                if child >= LEAF {
                    let found = child & !LEAF;
                    symbol = if found == EOS { Symbol::End } else { Symbol::Byte(found as u8) };
                    node = 0;
                }
            }
            steps[start][nibble] = Step { node: node as u8, symbol };
            nibble += 1;
        }
        start += 1;
    }
    steps
}

/// The nodes that at most seven ones lead to.
const fn paddings() -> [bool; NODE_COUNT] {
    let mut paddings = [false; NODE_COUNT];
    let (mut node, mut depth) = (0, 0);
    while depth < 8 {
        paddings[node] = true;
        node = TREE[node][1] as usize;
        depth += 1;
    }
    paddings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytes, &mut out);
        assert_eq!(out.len(), encoded_len(bytes));
        out
    }

    #[test]
    fn examples_of_rfc_7541_appendix_c() {
        let www = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(encoded(b"www.example.com"), www);
        assert_eq!(encoded(b"no-cache"), b"\xa8\xeb\x10\x64\x9c\xbf");
        assert_eq!(decode(www, 100).unwrap(), b"www.example.com");
    }

    #[test]
    fn every_pair_of_bytes_reads_back() {
        for first in 0..=255 {
            for second in 0..=255 {
                let bytes = [first, second];
                assert_eq!(decode(&encoded(&bytes), 2).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn wrong_paddings_eos_and_too_long_strings_are_refused() {
        // "a" is 00011 and three ones of padding.
        assert_eq!(decode(&[0b0001_1111], 1).unwrap(), b"a");
        // Zeros, eight bits and more, EOS itself.
        for wrong in [&[0b0001_1110][..], &[0b0001_1000], &[0b0001_1111, 0xff], &[0xff; 4]] {
            assert!(matches!(decode(wrong, 9), Err(Stop::Invalid(_))));
        }
        assert_eq!(decode(&encoded(b"aa"), 1), Err(Stop::TooLong));
    }
}
