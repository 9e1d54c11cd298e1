//! Dumps that are not as they were written.

use crate::{NEXT_CENTURY, dump, open, read, restore};
use terrace_dump::{ChunkWriter, DumpedFamily, Error, RecordWriter};

/// A dump of two families with an expiry; compressed, since words repeat.
fn small() -> Vec<u8> {
    let mut records = RecordWriter::start(Vec::new()).unwrap();
    records.family("default").unwrap();
    for n in 0..20_u8 {
        records.entry(&[b'k', n], b"words and words and words", None).unwrap();
    }
    records.family("other").unwrap();
    records.entry(b"late", b"", Some(NEXT_CENTURY)).unwrap();
    records.finish().unwrap().0
}

/// A family with a merge operator, and one with options.
fn described() -> [DumpedFamily; 2] {
    let merged = DumpedFamily {
        name: "default".into(),
        merge_operator: Some("counter".into()),
        ..DumpedFamily::default()
    };
    let options = Some("compaction=tiered".into());
    [merged, DumpedFamily { name: "tuned".into(), options, ..DumpedFamily::default() }]
}

/// A dump of such families.
fn with_families(families: &[DumpedFamily]) -> Vec<u8> {
    let mut records = RecordWriter::start_for(Vec::new(), families).unwrap();
    for family in families {
        records.described_family(family).unwrap();
        records.entry(b"k", b"12345678", None).unwrap();
    }
    records.finish().unwrap().0
}

/// As a dump of version 1 whose checksums are right, whatever the records say.
fn chunked(stream: &[u8]) -> Vec<u8> {
    chunked_as(1, stream)
}

fn chunked_as(version: u16, stream: &[u8]) -> Vec<u8> {
    let mut chunks = ChunkWriter::start_as(Vec::new(), version).unwrap();
    chunks.push(stream).unwrap();
    chunks.finish().unwrap()
}

#[test]
fn damage_in_any_byte_is_an_error() {
    let all = described();
    for (whole, entries) in [(small(), 21), (with_families(&all[..1]), 1), (with_families(&all), 2)]
    {
        assert_eq!(read(&whole).unwrap().entries, entries);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                assert!(read(&bytes).is_err(), "bit {bit} of byte {at} may be another one");
            }
        }
    }
}

#[test]
fn a_dump_that_is_cut_at_any_length_is_an_error() {
    let whole = small();
    for length in 0..whole.len() {
        let error = read(&whole[..length]).unwrap_err();
        let expected = matches!((&error, length), (Error::NoDump, 0) | (Error::Cut, 1..));
        assert!(expected, "{length}: {error}");
    }
    let longer = [&whole[..], b"\0"].concat();
    assert!(read(&longer).unwrap_err().to_string().contains("behind the last chunk"));
}

#[test]
fn a_large_dump_that_is_cut_between_chunks_is_an_error() {
    let mut records = RecordWriter::start(Vec::new()).unwrap();
    records.family("default").unwrap();
    let mut ends = Vec::new();
    for n in 0..40_u8 {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8 ^ n).collect();
        records.entry(&[n], &noise, None).unwrap();
    }
    let (whole, _) = records.finish().unwrap();
    let mut at = 16;
    while at < whole.len() {
        ends.push(at);
        let length = u32::from_le_bytes(whole[at + 2..at + 6].try_into().unwrap());
        at += 10 + length as usize;
    }
    assert!(ends.len() > 3 && at == whole.len());
    for end in ends {
        assert!(matches!(read(&whole[..end]), Err(Error::Cut)), "{end}");
    }
    // A chunk is bound to its place.
    let length =
        |at: usize| 10 + u32::from_le_bytes(whole[at + 2..at + 6].try_into().unwrap()) as usize;
    let (first, second) = (16..16 + length(16), 16 + length(16));
    let second = second..second + length(second);
    let swapped =
        [&whole[..16], &whole[second.clone()], &whole[first], &whole[second.end..]].concat();
    assert!(read(&swapped).unwrap_err().to_string().contains("checksum"));
}

#[test]
fn a_length_is_not_believed_before_its_bytes_are_there() {
    // A gigabyte is announced, and a few bytes follow.
    let family = b"\x01\x07default";
    let gigabyte = b"\x80\x80\x80\x80\x04";
    let value = [&family[..], b"\x02\x01k", gigabyte, b"abc"].concat();
    let error = read(&chunked(&value)).unwrap_err();
    assert!(error.to_string().contains("in the middle of a record"), "{error}");
    for (stream, want) in [
        (&b"\x01\x07default\x02\x01k\x81\x80\x80\x80\x04"[..], "a value of 1073741825 bytes"),
        (b"\x01\x07default\x02\x81\x80\x04", "a key of 65537 bytes"),
        (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a text of 18446744073709551615"),
        (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "length is malformed"),
        (b"\x01\x81\x00", "length is malformed"),
    ] {
        let error = read(&chunked(stream)).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
    // Of a chunk too.
    let mut bytes = chunked(b"");
    bytes[18..22].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert!(error.to_string().contains("a chunk of 4294967295 bytes"), "{error}");
}

#[test]
fn records_that_make_no_sense_are_refused() {
    for (stream, want) in [
        (&b"\x02\x01k\x01v"[..], "without a column family"),
        (b"\x09", "a record of kind 9"),
        (b"\x01\x00", "a column family: it is empty"),
        (b"\x01\x01\xff", "a column family: it is no text"),
        (b"\x01\x01b\x01\x01a", "families are not in their order"),
        (b"\x01\x01b\x01\x01b", "families are not in their order"),
        (b"\x01\x01a\x02\x01k\x00\x02\x01k\x00", "keys are not in their order"),
        (b"\x01\x01a\x02\x01k\x00\x03\0\0\0\0\0\0\0\0\x01j\x00", "keys are not in their order"),
        (b"\x01\x01a", "in the middle"),
        (b"", "in the middle"),
        (b"\x04", "in the middle"),
        (&[&[4][..], &[0; 32], &[1; 4]].concat(), "not those of the records"),
        (&[&b"\x01\x01a"[..], &[4], &[0; 36]].concat(), "not those of the records"),
        (&[&[4][..], &[0; 36], b"more"].concat(), "behind the last record"),
    ] {
        let error = read(&chunked(stream)).unwrap_err();
        assert!(error.to_string().contains(want), "{stream:?}: {error}");
    }
    assert_eq!(read(&chunked(&[&[4][..], &[0; 36]].concat())).unwrap().families, 0);
}

#[test]
fn what_is_no_dump_is_told() {
    assert!(matches!(read(b"hello, this is some text"), Err(Error::NoDump)));
    assert!(matches!(read(b"\x28\xb5\x2f\xfd"), Err(Error::NoDump)));
    // A later version, with its checksum.
    let later = {
        let mut bytes = small();
        bytes[8] = 4;
        let sum = terrace_base::checksum::crc32c(&[&bytes[..12]]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let error = read(&later).unwrap_err().to_string();
    assert!(error.contains("version 4") && error.contains("versions 1 to 3"), "{error}");
}

#[test]
fn a_dump_has_the_lowest_version_that_can_say_what_is_in_it() {
    let [merged, tuned] = described();
    for (families, version) in [
        (&[][..], 1),
        (&[DumpedFamily { name: "plain".into(), ..DumpedFamily::default() }], 1),
        (std::slice::from_ref(&merged), 2),
        (&[merged.clone(), tuned.clone()], 3),
    ] {
        assert_eq!(with_families(families)[8..10], [version, 0]);
    }
    // A record of a later version is in none of an earlier one.
    for (stream, kind) in [(&b"\x05\x01a\x01b"[..], "kind 5"), (b"\x06\x01a\x00\x01b", "kind 6")] {
        let error = read(&chunked(stream)).unwrap_err().to_string();
        assert!(error.contains(kind), "{error}");
    }
    for (stream, want) in [
        (&b"\x05\x01a\x00"[..], "a merge operator: it is empty"),
        (b"\x06\x01a\x00\x00", "options of a column family: it is empty"),
        (b"\x06\x01a\x00\x01\xff", "options of a column family: it is no text"),
        (b"\x06\x01a\x00\x81\x20", "a text of 4097 bytes"),
    ] {
        let error = read(&chunked_as(3, stream)).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    for family in [merged, tuned] {
        let mut records = RecordWriter::start(Vec::new()).unwrap();
        assert!(matches!(records.described_family(&family), Err(Error::Unsupported(_))));
    }
}

#[test]
fn a_value_that_no_restore_could_write_is_refused() {
    let mut records = RecordWriter::start(Vec::new()).unwrap();
    records.family("default").unwrap();
    // Nobody looks at these bytes, and the system gives memory only for what is looked at.
    let too_long = vec![0_u8; terrace::MAX_VALUE_BYTES + 1];
    let refused = records.entry(b"k\n", &too_long, None);
    let Err(Error::Unsupported(what)) = refused else { panic!("{refused:?}") };
    assert!(what.contains("key `k\\n` has 1073741825 bytes"), "{what}");
    assert_eq!(records.counts().entries, 0);
}

#[test]
fn options_that_this_build_does_not_take_are_refused_by_their_names() {
    for (text, want) in [
        ("colour=red", "no option `colour`"),
        ("compaction=lazy", "compaction is \"lazy\""),
        ("compaction", "`compaction` is none"),
        ("merge_operator=max", "`merge_operator=max` is none"),
        ("learning=off;", "`` is none"),
    ] {
        let family =
            DumpedFamily { name: "tuned".into(), options: Some(text.into()), ..Default::default() };
        let refused = restore(&with_families(&[family])).map(drop);
        let Err(Error::Unsupported(what)) = refused else { panic!("{text}: {refused:?}") };
        assert!(what.contains("`tuned`") && what.contains(want), "{what}");
    }
}

#[test]
fn a_restore_that_fails_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    for n in 0..2000_u32 {
        db.put(n.to_be_bytes(), [0; 500]).unwrap();
    }
    let (whole, _) = dump(&db);
    assert!(matches!(restore(&whole[..whole.len() - 1]), Err(Error::Cut)));
}
