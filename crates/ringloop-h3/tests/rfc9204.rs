//! The examples of RFC 9204, appendix B, in both directions where ours encodes the same.
#![allow(clippy::unwrap_used)]

use ringloop_h3::qpack::{Decoded, Decoder, Encoder, Error, Field};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn fields(list: &[(&'static str, &'static str)]) -> Decoded {
    Decoded::Fields(list.iter().map(|(name, value)| Field::new(*name, *value)).collect())
}

#[test]
fn example_b_1_literal_field_line_with_name_reference() {
    let mut decoder = Decoder::new(0, 0, 1000);
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let restored = decoder.decode(0, section.into()).unwrap();
    assert_eq!(restored, fields(&[(":path", "/index.html")]));
    assert_eq!(decoder.take_instructions(), b"");
}

#[test]
fn examples_b_2_to_b_5_dynamic_table() {
    let mut decoder = Decoder::new(220, 8, 1000);
    // B.2: the section comes first, and waits.
    let section = bytes("0381 10 11");
    assert_eq!(decoder.decode(4, section.into()).unwrap(), Decoded::Blocked);
    let insertions = bytes(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468",
    );
    for byte in insertions {
        assert!(decoder.next_unblocked().is_none());
        decoder.receive(&[byte]).unwrap();
    }
    let (stream, restored) = decoder.next_unblocked().unwrap();
    let expected = fields(&[(":authority", "www.example.com"), (":path", "/sample/path")]);
    assert_eq!((stream, Decoded::Fields(restored.unwrap())), (4, expected));
    assert_eq!(decoder.take_instructions(), bytes("84"));
    // B.3: a speculative insertion.
    let insertion = bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565");
    decoder.receive(&insertion).unwrap();
    assert_eq!(decoder.take_instructions(), bytes("01"));
    // B.4: a duplicate.
    decoder.receive(&bytes("02")).unwrap();
    let restored = decoder.decode(8, bytes("0500 80 c1 81").into()).unwrap();
    let expected =
        [(":authority", "www.example.com"), (":path", "/"), ("custom-key", "custom-value")];
    assert_eq!(restored, fields(&expected));
    assert_eq!(decoder.take_instructions(), bytes("88"));
    decoder.cancel(8);
    assert_eq!(decoder.take_instructions(), bytes("48"));
    // B.5: the oldest entry is evicted.
    decoder.receive(&bytes("810d 6375 7374 6f6d 2d76 616c 7565 32")).unwrap();
    let restored = decoder.decode(12, bytes("0600 80").into()).unwrap();
    assert_eq!(restored, fields(&[("custom-key", "custom-value2")]));
    let evicted = decoder.decode(16, bytes("0600 84").into()).unwrap_err();
    assert_eq!(evicted.code(), Some(0x200));
}

#[test]
fn what_is_seen_twice_is_inserted_and_then_refers_to_one_byte() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 8);
    let mut decoder = Decoder::new(4096, 8, 1000);
    let sent = vec![
        Field::new(":method", "GET"),
        Field::new("user-agent", "curl/8.17"),
        Field::new("x-trace", "a long value that every request has"),
    ];
    let mut lens = Vec::new();
    for stream in [0, 4, 8] {
        let mut section = Vec::new();
        encoder.encode(stream, &sent, &mut section);
        lens.push(section.len());
        decoder.receive(&encoder.take_instructions()).unwrap();
        let restored = decoder.decode(stream, section.into()).unwrap();
        assert_eq!(restored, Decoded::Fields(sent.clone()));
        encoder.receive(&decoder.take_instructions()).unwrap();
    }
    assert!(lens[0] > 30, "{lens:?}");
    // Two bytes of prefix, and one a field.
    assert_eq!(lens[1..], [5, 5]);
}

#[test]
fn sensitive_fields_are_never_inserted_and_stay_marked() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 8);
    let mut decoder = Decoder::new(4096, 8, 1000);
    drop(encoder.take_instructions());
    let sent = vec![
        Field::new("authorization", "Basic secret").sensitive(),
        Field::new("x-key", "secret").sensitive(),
        Field::new(":method", "GET").sensitive(),
    ];
    for stream in 0..3 {
        let mut section = Vec::new();
        encoder.encode(stream, &sent, &mut section);
        assert_eq!(encoder.take_instructions(), b"");
        let restored = decoder.decode(stream, section.into()).unwrap();
        assert_eq!(restored, Decoded::Fields(sent.clone()));
    }
    assert!(!format!("{sent:?}").contains("secret"));
}

#[test]
fn what_peers_must_not_send_is_refused_by_its_code() {
    let restored = |section: &str| {
        let mut decoder = Decoder::new(220, 0, 60);
        decoder.receive(&bytes("3fbd01 4161 0162")).unwrap();
        decoder.decode(0, bytes(section).into())
    };
    assert_eq!(restored("0200 80").unwrap(), fields(&[("a", "b")]));
    for (section, why) in [
        ("", "nothing"),
        ("00", "no Base"),
        ("0000 80", "an entry where none is required"),
        ("0200 81", "an entry before the first"),
        ("0200 10", "an entry at the Base"),
        ("0000 ff24", "static entry 99"),
        ("0000 51", "a name without its value"),
        ("ff00", "a Required Insert Count that cannot be"),
        ("0300", "insertions, where no stream may wait"),
        ("0281", "a Base below zero"),
        ("0000 2161 81ff", "a wrong padding"),
    ] {
        let refused = restored(section).unwrap_err();
        assert_eq!(refused.code(), Some(0x200), "{why}: {refused}");
    }
    assert_eq!(restored("0000 2161 7f00").unwrap_err(), Error::SectionTooLong);
    assert_eq!(restored("0200 80 80").unwrap_err(), Error::SectionTooLong);
    for (instructions, why) in [
        ("3fbe01", "a capacity above the limit"),
        ("80 00", "a name of no entry"),
        ("00", "a duplicate of no entry"),
        ("ff24 00", "static entry 99"),
        ("4161 0162", "an entry, with no capacity"),
        ("3fbd01 4161 7fff7f", "a value larger than the table"),
    ] {
        let refused = Decoder::new(220, 0, 1000).receive(&bytes(instructions)).unwrap_err();
        assert_eq!(refused.code(), Some(0x201), "{why}: {refused}");
    }
    for (instructions, why) in [
        ("80", "a section that refers to nothing"),
        ("00", "no insertions"),
        ("01", "more insertions than there are"),
        ("3fffffffffffffffffff7f", "a number of more than 62 bits"),
    ] {
        let refused = Encoder::new().receive(&bytes(instructions)).unwrap_err();
        assert_eq!(refused.code(), Some(0x202), "{why}: {refused}");
    }
}
