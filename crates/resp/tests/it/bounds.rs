//! What is announced costs nothing; what has arrived costs no more than stated.

use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep, RequestParser, Step, write_request};

#[test]
fn announced_arguments_take_no_memory() {
    let mut parser = RequestParser::new(Limits::default());
    let mut buf = b"*1048576\r\n$4\r\nMSET\r\n$536870912\r\n".to_vec();
    assert!(matches!(parser.next(&mut buf), Ok(Step::Incomplete { .. })));
    assert!(parser.held_bytes() <= 8 * 4, "{}", parser.held_bytes());
}

#[test]
fn announced_elements_take_no_memory() {
    let mut parser = ReplyParser::new(Limits::default());
    let announced = b"*1048576\r\n".repeat(30);
    assert!(matches!(parser.next(&announced), Ok(ReplyStep::Incomplete { missing: 1 })));
    assert!(parser.held_bytes() <= 8 * 32);
}

#[test]
fn a_guest_makes_the_parser_hold_ten_arguments_and_no_more() {
    let mut parser = RequestParser::for_guest(Limits::default());
    for at in 0..10_000usize {
        let mut buf = Vec::new();
        write_request(&mut buf, &vec![b"x"; at % 12 + 1]);
        assert_eq!(parser.next(&mut buf).is_ok(), at % 12 < 10);
        assert!(parser.held_bytes() <= 8 * 16);
    }
}

#[test]
fn a_connection_that_has_to_authenticate_once_more_is_a_guest_again() {
    let mut many = Vec::new();
    write_request(&mut many, &[b"x"; 11]);
    let mut parser = RequestParser::new(Limits::default());
    for _ in 0..2 {
        assert!(matches!(parser.next(&mut many.clone()), Ok(Step::Command(_))));
        parser.dismiss();
        // Whatever the others may.
        parser.set_limits(Limits { elements: 100, ..Limits::default() });
        assert!(parser.next(&mut many.clone()).is_err());
        parser.admit();
    }
}

#[test]
fn memory_of_a_large_command_is_given_back_with_the_next() {
    let mut parser = RequestParser::new(Limits::default());
    let mut buf = Vec::new();
    write_request(&mut buf, &vec![b"x"; 100_000]);
    let Ok(Step::Command(command)) = parser.next(&mut buf) else { panic!() };
    assert_eq!(command.count(), 100_000);
    assert!(parser.held_bytes() >= 800_000);
    assert!(matches!(parser.next(&mut b"PING\r\n".to_vec()), Ok(Step::Command(_))));
    assert!(parser.held_bytes() <= 8 * 1024, "{}", parser.held_bytes());
    // Not while a request is incomplete.
    let mut buf = b"*2\r\n$3\r\nGET\r\n".to_vec();
    assert!(matches!(parser.next(&mut buf), Ok(Step::Incomplete { .. })));
    parser.release();
    buf.extend_from_slice(b"$1\r\nk\r\n");
    let Ok(Step::Command(command)) = parser.next(&mut buf) else { panic!() };
    assert_eq!(command.iter().collect::<Vec<_>>(), [&b"GET"[..], b"k"]);
    parser.release();
    assert_eq!(parser.held_bytes(), 0);
}

/// The factor that `Frame::decode` states.
#[test]
fn a_reply_is_as_large_as_stated() {
    assert!(size_of::<Reply<'_>>() <= 40);
}

#[test]
fn the_default_limits_are_those_stated() {
    let limits = Limits::default();
    assert_eq!((limits.elements, limits.bulk_bytes), (1024 * 1024, 512 * 1024 * 1024));
    assert_eq!((Limits::GUEST.elements, Limits::GUEST.bulk_bytes), (10, 16384));
    assert_eq!(limits.for_guests(), Limits::GUEST);
    let tighter = Limits { elements: 3, ..limits };
    assert_eq!(tighter.for_guests().elements, 3);
}
