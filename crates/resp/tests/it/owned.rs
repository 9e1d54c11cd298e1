//! Commands that outlive their buffer.

use terrace_resp::{Limits, OwnedCommand, RequestParser, Step};

#[test]
fn a_copy_has_the_same_arguments() {
    for request in
        [&b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\nvv\r\nrest"[..], b"set 'a b' \"\\x00\"\r\nrest"]
    {
        let mut buf = request.to_vec();
        let mut parser = RequestParser::new(Limits::default());
        let Ok(Step::Command(command)) = parser.next(&mut buf) else { panic!("no command") };
        let owned = command.to_owned();
        let arguments: Vec<&[u8]> = command.iter().collect();
        assert_eq!(arguments.len(), 3);
        assert_eq!(owned.as_command().iter().collect::<Vec<_>>(), arguments);
        assert_eq!(owned.as_command().bytes(), command.bytes());
        assert!(owned.held_bytes() >= command.bytes());
        let made = OwnedCommand::of(&arguments);
        assert_eq!(made.as_command().iter().collect::<Vec<_>>(), arguments);
        assert_eq!(made.as_command().name(), arguments[0]);
    }
}
